"""The rules that each row of a shard keeps, as one pass over a record batch.

In: a batch as it lies in a file, of the right schema. Out: for each row the first rule that it breaks,
and at what place, by what value. docs/format.md states the rules in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow

from albert_data.config import ExampleConfig
from albert_data.kernels import helper, kernel
from albert_data.shards.manifest import Manifest
from albert_data.shards.schema import from_record_batch, shard_schema
from albert_data.tokenizer.model import Specials, Tokenizer

SOUND, LENGTH, ID, SEGMENT, LABEL, NEEDS_LABEL, NEEDS_NO_LABEL, NO_CLS, NO_SEP, SPECIAL_INSIDE = range(10)
MASK_COUNT, MASK_ORDER, MASK_OUTSIDE, MASKED_ID, REPLACEMENT, BROKEN_WORD, SHARED_KEY, UNKNOWN_SOURCE = range(10, 18)
IS_SPECIAL, IS_ALIEN, MAY_STAND, STARTS, STANDALONE, CONTINUES, JOINS_NEXT = (1 << bit for bit in range(7))

_MESSAGES = {
    LENGTH: "has {value} tokens; allowed are 3 to {max_seq_len}",
    ID: "token {place} has the id {value}; allowed are ids below {vocab_size}",
    SEGMENT: "segment_a_len is {value}, which leaves no room for [CLS] A [SEP] or [CLS] A [SEP] B [SEP]",
    LABEL: "sop_label is {value}; allowed are 0, 1 and -1",
    NEEDS_LABEL: "sop_label is {value}, but the row has a segment B; allowed are 0 and 1",
    NEEDS_NO_LABEL: "sop_label is {value}, but the row has no segment B; allowed is -1",
    NO_CLS: "begins with {piece}; [CLS] is needed",
    NO_SEP: "token {place} is {piece}; [SEP] is needed at the end of a segment",
    SPECIAL_INSIDE: "token {place} is {piece}, inside a segment; allowed are pieces of text",
    MASK_COUNT: "has {place} masked_positions and {value} masked_ids; they must be as many",
    MASK_ORDER: "masked_positions[{place}] is {value}; it must be above the one before",
    MASK_OUTSIDE: "masked_positions[{place}] is {value}; allowed are the tokens of the segments",
    MASKED_ID: "masked_ids[{place}] is {value} ({piece}); allowed are pieces of text, ids below {vocab_size}",
    REPLACEMENT: "token {place} is masked by {piece}; allowed are [MASK], a piece of text or the original",
    BROKEN_WORD: "the word from token {place} on is masked in part; words must be masked whole",
    SHARED_KEY: "its document is in the validation split too; allowed is one split",
    UNKNOWN_SOURCE: "source is {value}; allowed are those of the manifest's {num_sources} sources, from 0 on",
}


@dataclass(frozen=True, kw_only=True)
class RowRules:
    """What rows are held against.

    traits: uint8 over the vocabulary, a sum of: IS_SPECIAL; IS_ALIEN, a special piece that the tokenizer makes
    of no text, so that it can't lie inside a segment; MAY_STAND, may replace a masked token; STARTS and STANDALONE, and
    CONTINUES and JOINS_NEXT where WordRule says NEVER. alien_low, alien_high: the least and the greatest alien id.
    validation_keys: uint64, sorted; documents that must not be here. num_sources: of the manifest.
    """

    schema: pyarrow.Schema
    config: ExampleConfig
    specials: Specials
    pieces: list[str]
    traits: np.ndarray
    alien_low: int
    alien_high: int
    validation_keys: np.ndarray
    num_sources: int


def make_row_rules(tokenizer: Tokenizer, manifest: Manifest) -> RowRules:
    """Rules without validation keys."""
    special_ids = np.flatnonzero(tokenizer.specials.is_special)
    from_text, _ = tokenizer.encode([tokenizer.pieces[i] for i in special_ids])
    words = tokenizer.choose_words(manifest.config.examples, manifest.rules_version)
    traits = np.zeros(tokenizer.vocab_size, np.uint8)
    traits[special_ids] = IS_SPECIAL | IS_ALIEN
    traits[from_text] &= ~np.uint8(IS_ALIEN)
    traits[[*tokenizer.ordinary_ids, tokenizer.mask_id]] |= MAY_STAND
    for values, yes, never in ((words.starts, STARTS, CONTINUES), (words.standalone, STANDALONE, JOINS_NEXT)):
        traits[values > 0] |= yes
        traits[values < 0] |= never
    aliens = np.flatnonzero(traits & IS_ALIEN)
    return RowRules(
        schema=shard_schema(tokenizer.id_dtype, manifest.format_version, has_source=manifest.sources is not None),
        config=manifest.config.examples,
        specials=tokenizer.specials,
        pieces=tokenizer.pieces,
        traits=traits,
        alien_low=int(aliens.min(initial=tokenizer.vocab_size)),
        alien_high=int(aliens.max(initial=-1)),
        validation_keys=np.empty(0, np.uint64),
        num_sources=len(manifest.sources or ()),
    )


def find_row_faults(batch: pyarrow.RecordBatch, rules: RowRules) -> Iterator[tuple[int, str]]:
    """The number in the batch and the fault of each row that breaks a rule, the first rule of each."""
    examples, specials = from_record_batch(batch), rules.specials
    position_offsets = batch.column("masked_positions").offsets.to_numpy().astype(np.int64)
    codes, places, values = check_rows(
        examples.input_ids,
        examples.offsets,
        examples.segment_a_len,
        examples.sop_label,
        examples.masked_positions,
        position_offsets - position_offsets[0],
        examples.masked_ids,
        examples.mask_offsets,
        rules.config.max_seq_len,
        specials.cls_id,
        specials.sep_id,
        rules.traits,
        rules.alien_low,
        rules.alien_high,
    )
    if len(rules.validation_keys):
        codes[(codes == SOUND) & np.isin(examples.document_keys, rules.validation_keys)] = SHARED_KEY
    if examples.sources is not None:
        is_unknown = (codes == SOUND) & (examples.sources >= rules.num_sources)
        codes[is_unknown], values[is_unknown] = UNKNOWN_SOURCE, examples.sources[is_unknown]
    for row in np.flatnonzero(codes).tolist():
        yield row, describe(int(codes[row]), int(places[row]), int(values[row]), rules)


def describe(code: int, place: int, value: int, rules: RowRules) -> str:
    """A rule's breach in words, with the value found and what is allowed."""
    vocab_size = len(rules.pieces)
    return _MESSAGES[code].format(
        place=place,
        value=value,
        piece=rules.pieces[value] if 0 <= value < vocab_size else "no piece",
        max_seq_len=rules.config.max_seq_len,
        vocab_size=vocab_size,
        num_sources=rules.num_sources,
    )


@helper
def check_frame(
    ids: np.ndarray,
    segment_a_len: int,
    label: int,
    cls_id: int,
    sep_id: int,
) -> tuple[int, int, int]:
    """Check that a row is [CLS] A [SEP] or [CLS] A [SEP] B [SEP]: the rule broken, the place, the value."""
    length, sep = len(ids), segment_a_len + 1
    if segment_a_len < 1 or sep >= length or sep == length - 2:
        return SEGMENT, 0, segment_a_len
    if label < -1 or label > 1:
        return LABEL, 0, label
    if label == -1 and sep < length - 1:
        return NEEDS_LABEL, 0, label
    if label != -1 and sep == length - 1:
        return NEEDS_NO_LABEL, 0, label
    if ids[0] != cls_id:
        return NO_CLS, 0, ids[0]
    for at in (sep, length - 1):
        if ids[at] != sep_id:
            return NO_SEP, at, ids[at]
    return SOUND, 0, 0


@helper
def check_masks(
    ids: np.ndarray,
    sep: int,
    positions: np.ndarray,
    masked_ids: np.ndarray,
    traits: np.ndarray,
) -> tuple[int, int, int]:
    """Check the masks of a row by themselves: the rule broken, the place, the value."""
    if len(positions) != len(masked_ids):
        return MASK_COUNT, len(positions), len(masked_ids)
    for i in range(len(positions)):
        position, original = positions[i], masked_ids[i]
        if i > 0 and position <= positions[i - 1]:
            return MASK_ORDER, i, position
        if position < 1 or position >= len(ids) - 1 or position == sep:
            return MASK_OUTSIDE, i, position
        if original >= len(traits) or traits[original] & IS_SPECIAL:
            return MASKED_ID, i, original
        if ids[position] != original and not traits[ids[position]] & MAY_STAND:
            return REPLACEMENT, position, ids[position]
    return SOUND, 0, 0


@helper
def find_alien(ids: np.ndarray, sep: int, positions: np.ndarray, traits: np.ndarray) -> int:
    """The first unmasked token inside a segment that the tokenizer makes of no text, or 0."""
    i = 0
    for at in range(1, len(ids) - 1):
        if i < len(positions) and positions[i] == at:
            i += 1
        elif at != sep and traits[ids[at]] & IS_ALIEN:
            return at
    return 0


@helper
def are_parted(before: int, own: int) -> bool:
    """Whether two neighbours, by their traits, are of different words."""
    if (before | own) & IS_SPECIAL:
        return True
    return (before & STANDALONE | own & STARTS) != 0 and (before & JOINS_NEXT | own & CONTINUES) == 0


@helper
def has_broken_word(
    ids: np.ndarray, sep: int, positions: np.ndarray, masked_ids: np.ndarray, traits: np.ndarray
) -> bool:
    """Whether a masked and an unmasked token stand side by side in one word.

    That is looked for beside masked tokens alone: three times as fast as finding all words.
    """
    for i in range(len(positions)):
        at, own = positions[i], traits[masked_ids[i]]
        first, last = (1, sep) if at < sep else (sep + 1, len(ids) - 1)
        is_first = at > first and (i == 0 or positions[i - 1] != at - 1)
        is_last = at + 1 < last and (i + 1 == len(positions) or positions[i + 1] != at + 1)
        if is_first and not are_parted(traits[ids[at - 1]], own):
            return True
        if is_last and not are_parted(own, traits[ids[at + 1]]):
            return True
    return False


@helper
def find_broken_word(
    ids: np.ndarray, sep: int, positions: np.ndarray, masked_ids: np.ndarray, traits: np.ndarray
) -> int:
    """Where the first word begins that is masked in part."""
    original, is_masked = ids.copy(), np.zeros(len(ids), np.bool_)
    for i in range(len(positions)):
        original[positions[i]] = masked_ids[i]
        is_masked[positions[i]] = True
    begin = 1
    for at in range(1, len(ids) - 1):
        if at == sep:
            continue
        if at in (1, sep + 1) or are_parted(traits[original[at - 1]], traits[original[at]]):
            begin = at
        elif is_masked[at] != is_masked[begin]:
            return begin
    return 0


@kernel
def check_rows(
    ids: np.ndarray,
    offsets: np.ndarray,
    segment_a_len: np.ndarray,
    labels: np.ndarray,
    positions: np.ndarray,
    position_offsets: np.ndarray,
    masked_ids: np.ndarray,
    mask_offsets: np.ndarray,
    max_seq_len: int,
    cls_id: int,
    sep_id: int,
    traits: np.ndarray,
    alien_low: int,
    alien_high: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each row the first rule that it breaks (0: none), the place and the value: int64.

    traits: uint8 over the vocabulary, of IS_SPECIAL and the others; alien_low, alien_high: the least and the
    greatest id with IS_ALIEN. Only a row with more ids between these than its frame and masks explain is
    looked through for an alien one.
    """
    num_rows = len(segment_a_len)
    codes, places, values = (
        np.zeros(num_rows, np.int64),
        np.zeros(num_rows, np.int64),
        np.zeros(num_rows, np.int64),
    )
    for row in range(num_rows):
        row_ids, sep = ids[offsets[row] : offsets[row + 1]], segment_a_len[row] + 1
        row_positions = positions[position_offsets[row] : position_offsets[row + 1]]
        row_masked = masked_ids[mask_offsets[row] : mask_offsets[row + 1]]
        length = len(row_ids)
        if length < 3 or length > max_seq_len:
            codes[row], values[row] = LENGTH, length
            continue
        top, num_low = 0, 0
        for at in range(length):
            top = max(top, row_ids[at])
            num_low += alien_low <= row_ids[at] and row_ids[at] <= alien_high
        if top >= len(traits):
            for at in range(length):
                if row_ids[at] >= len(traits):
                    codes[row], places[row], values[row] = ID, at, row_ids[at]
                    break
            continue
        code, place, value = check_frame(row_ids, segment_a_len[row], labels[row], cls_id, sep_id)
        if code == SOUND:
            code, place, value = check_masks(row_ids, sep, row_positions, row_masked, traits)
        if code == SOUND:
            for at in row_positions:
                num_low -= alien_low <= row_ids[at] and row_ids[at] <= alien_high
            num_low -= alien_low <= cls_id and cls_id <= alien_high
            if alien_low <= sep_id and sep_id <= alien_high:
                num_low -= 1 if sep == length - 1 else 2
            alien = find_alien(row_ids, sep, row_positions, traits) if num_low > 0 else 0
            if alien > 0:
                code, place, value = SPECIAL_INSIDE, alien, row_ids[alien]
            elif has_broken_word(row_ids, sep, row_positions, row_masked, traits):
                code, place = BROKEN_WORD, find_broken_word(row_ids, sep, row_positions, row_masked, traits)
        codes[row], places[row], values[row] = code, place, value
    return codes, places, values
