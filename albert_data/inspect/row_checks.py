"""The rules that each row of a shard must keep, checked in one pass over a record batch.

In: a record batch as it is in a file, of the right schema. Out: for each row the first rule that it breaks, with
the position and the value that break it. docs/reference/format.md states the rules in words. First come the bounds
that every reader checks (shards/row_bounds.py); the kernel here sees only rows within these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow

from albert_data.config import ExampleConfig
from albert_data.data import ExampleArrays, Examples
from albert_data.examples.pair_tasks import RANDOM_B
from albert_data.kernels import helper, kernel
from albert_data.shards.manifest import Manifest
from albert_data.shards.row_bounds import SOUND, Bounds
from albert_data.shards.rows import locate_masks, restore_ids
from albert_data.shards.schema import from_record_batch, shard_schema
from albert_data.tokenizer.lexicon import Lexicon
from albert_data.tokenizer.model import Tokenizer

# row_bounds has a LENGTH and a SEGMENT too, with codes below 100. `describe` knows only the codes here.
LENGTH, SEGMENT, NEEDS_LABEL, NEEDS_NO_LABEL, NO_CLS, NO_SEP, SPECIAL_INSIDE = range(101, 108)
MASK_COUNT, MASK_ORDER, MASK_OUTSIDE, MASKED_SPECIAL, REPLACEMENT, BROKEN_WORD, SHARED_KEY, KEY_B = range(108, 116)
IS_SPECIAL, MAY_STAND, STARTS, STANDALONE, CONTINUES, JOINS_NEXT = (1 << bit for bit in range(6))

_MESSAGES = {
    LENGTH: "it has {value} tokens; allowed are 3 to {max_seq_len}",
    SEGMENT: "segment_a_len is {value}, which leaves no room for [CLS] A [SEP] or [CLS] A [SEP] B [SEP]",
    NEEDS_LABEL: "sop_label is {value}, but the row has a segment B; allowed are {labels}",
    NEEDS_NO_LABEL: "sop_label is {value}, but the row has no segment B; allowed is -1",
    NO_CLS: "begins with {piece}; [CLS] is needed",
    NO_SEP: "token {at} is {piece}; [SEP] is needed at the end of a segment",
    SPECIAL_INSIDE: "token {at} is {piece}, inside a segment; allowed are pieces of text",
    # Here at and value are both counts.
    MASK_COUNT: "has {at} masked_positions and {value} masked_ids; there must be as many of both",
    MASK_ORDER: "masked_positions[{at}] is {value}; it must be above the one before",
    MASK_OUTSIDE: "masked_positions[{at}] is {value}; allowed are the tokens of the segments",
    MASKED_SPECIAL: "masked_ids[{at}] is {value} ({piece}); allowed are pieces of text",
    REPLACEMENT: "token {at} is masked by {piece}; allowed are [MASK], a piece of text or the original",
    BROKEN_WORD: "the word of token {at} is masked in part; words must be masked whole",
    SHARED_KEY: "its document is in the validation split too; allowed is one split",
    KEY_B: "sop_label is {value}, {says}, but document_key_b says otherwise; it must differ from document_key in these "
    "rows alone",
}


class Vocabulary(NamedTuple):
    """What the kernel must know of the vocabulary.

    traits: uint8 [vocabulary], a sum of
        IS_SPECIAL: text never gives it
        MAY_STAND: may replace a masked token
        STARTS, STANDALONE: these numbers of WordRule are 1
        CONTINUES, JOINS_NEXT: `starts` and `standalone` are NEVER
    special_low, special_high: the lowest and the highest special id
    """

    traits: np.ndarray
    special_low: int
    special_high: int
    cls_id: int
    sep_id: int


@dataclass(frozen=True, kw_only=True)
class RowRules:
    """What the rows of a folder are checked against."""

    schema: pyarrow.Schema
    config: ExampleConfig
    bounds: Bounds
    vocabulary: Vocabulary
    pieces: list[str]
    lexicon: Lexicon | None  # the word list by which words are masked whole
    validation_keys: np.ndarray  # uint64, sorted, the keys of documents that must not be here


def make_row_rules(tokenizer: Tokenizer, manifest: Manifest) -> RowRules:
    """Rules without validation keys."""
    specials = tokenizer.specials
    special_ids = np.flatnonzero(specials.is_special)
    words = tokenizer.word_rule(manifest.config.examples)
    traits = np.zeros(tokenizer.vocab_size, np.uint8)
    traits[special_ids] = IS_SPECIAL
    traits[[*tokenizer.ordinary_ids, tokenizer.mask_id]] |= MAY_STAND
    for values, yes, never in ((words.starts, STARTS, CONTINUES), (words.standalone, STANDALONE, JOINS_NEXT)):
        traits[values > 0] |= yes
        traits[values < 0] |= never
    return RowRules(
        schema=shard_schema(tokenizer.id_dtype, **manifest.optional_columns),
        config=manifest.config.examples,
        # Ids are indices into the arrays of this tokenizer, and the manifest may be wrong.
        bounds=Bounds.from_manifest(manifest)._replace(vocab_size=tokenizer.vocab_size),
        vocabulary=Vocabulary(traits, int(special_ids.min()), int(special_ids.max()), specials.cls_id, specials.sep_id),
        pieces=tokenizer.pieces,
        lexicon=words.lexicon,
        validation_keys=np.empty(0, np.uint64),
    )


def find_row_faults(batch: pyarrow.RecordBatch, rules: RowRules) -> list[tuple[int, str]]:
    """For each row that breaks a rule, its index in the batch and the first rule that it breaks."""
    counts = [np.diff(batch.column(name).offsets.to_numpy()) for name in ("masked_positions", "masked_ids")]
    faults = [
        (row, describe(MASK_COUNT, int(counts[0][row]), int(counts[1][row]), rules))
        for row in np.flatnonzero(counts[0] != counts[1]).tolist()
    ]
    numbers = np.arange(batch.num_rows)
    if faults:  # `Examples` has one array of offsets for positions and ids, so only rows with as many of both fit
        numbers = np.flatnonzero(counts[0] == counts[1])
        batch = batch.take(pyarrow.array(numbers))
    found = list(_check_examples(from_record_batch(batch), rules))
    if rules.lexicon is not None:
        sound = np.setdiff1d(np.arange(len(numbers)), [row for row, _ in found])
        examples = from_record_batch(batch.take(pyarrow.array(sound)))
        broken = _find_broken_words(examples, rules.lexicon)
        found += [(int(sound[row]), describe(BROKEN_WORD, at, 0, rules)) for row, at in broken]
    return sorted([*faults, *((int(numbers[row]), what) for row, what in found)])


def _find_broken_words(examples: Examples, lexicon: Lexicon) -> list[tuple[int, int]]:
    """The rows in which a word of the word list is masked in part, and a token of it.

    `check_rows` knows the words without the list.
    """
    joined, is_masked = lexicon.find_joined(restore_ids(examples)), np.zeros(len(examples.input_ids), bool)
    is_masked[locate_masks(examples)] = True
    broken = np.flatnonzero(joined[1:] & (is_masked[1:] != is_masked[:-1])) + 1
    rows, first = np.unique(np.searchsorted(examples.offsets, broken, side="right") - 1, return_index=True)
    return list(zip(rows.tolist(), (broken[first] - examples.offsets[rows]).tolist(), strict=True))


def _check_examples(examples: Examples, rules: RowRules) -> Iterator[tuple[int, str]]:
    outside = {fault.row: fault for fault in rules.bounds.find_faults(examples)}
    codes, positions, values = (np.zeros(len(examples), np.int64) for _ in range(3))
    codes[list(outside)] = -1  # check_rows skips what is not SOUND
    check_rows(examples.arrays, rules.vocabulary, codes, positions, values)
    if examples.document_keys_b is not None:
        is_random = examples.sop_label == rules.config.task.label_of(RANDOM_B)
        is_wrong = (examples.document_keys != examples.document_keys_b) != is_random
        codes[(codes == SOUND) & is_wrong] = KEY_B
        values[codes == KEY_B] = examples.sop_label[codes == KEY_B]
    if len(rules.validation_keys):
        keys = (examples.document_keys, examples.document_keys_b)
        is_shared = np.any([np.isin(some, rules.validation_keys) for some in keys if some is not None], axis=0)
        codes[(codes == SOUND) & is_shared] = SHARED_KEY
    for row in np.flatnonzero(codes).tolist():
        if row in outside:
            yield row, rules.bounds.explain(outside[row])
        else:
            yield row, describe(int(codes[row]), int(positions[row]), int(values[row]), rules)


def describe(code: int, at: int, value: int, rules: RowRules) -> str:
    """A broken rule in words, with the value found and what is allowed."""
    labels = [str(label) for label in range(len(rules.config.task.orders))]
    return _MESSAGES[code].format(
        at=at,
        value=value,
        piece=rules.pieces[value] if 0 <= value < len(rules.pieces) else "no piece",
        max_seq_len=rules.config.max_seq_len,
        labels=" and ".join([", ".join(labels[:-1]), labels[-1]]) if labels else "none: the rows have one segment",
        says=rules.config.task.describe(value),
    )


@helper
def check_frame(ids: np.ndarray, sep: int, label: int, vocabulary: Vocabulary) -> tuple[int, int, int]:
    """Check that a row is [CLS] A [SEP] or [CLS] A [SEP] B [SEP]: the rule broken, the position, the value."""
    end = len(ids) - 1
    if end < 2:  # Bounds checked that it is at most max_seq_len
        return LENGTH, 0, end + 1
    if sep < 2 or sep == end - 1:
        return SEGMENT, 0, sep - 1
    if label == -1 and sep < end:
        return NEEDS_LABEL, 0, label
    if label != -1 and sep == end:
        return NEEDS_NO_LABEL, 0, label
    if ids[0] != vocabulary.cls_id:
        return NO_CLS, 0, ids[0]
    for at in (sep, end):
        if ids[at] != vocabulary.sep_id:
            return NO_SEP, at, ids[at]
    return SOUND, 0, 0


@helper
def check_masks(
    ids: np.ndarray, sep: int, positions: np.ndarray, masked_ids: np.ndarray, traits: np.ndarray
) -> tuple[int, int, int]:
    """Check the masks of a row by themselves: the rule broken, the index of the mask or token, the value."""
    for i in range(len(positions)):
        position, original = positions[i], masked_ids[i]
        if i > 0 and position <= positions[i - 1]:
            return MASK_ORDER, i, position
        if position < 1 or position >= len(ids) - 1 or position == sep:
            return MASK_OUTSIDE, i, position
        if traits[original] & IS_SPECIAL:
            return MASKED_SPECIAL, i, original
        if ids[position] != original and not traits[ids[position]] & MAY_STAND:
            return REPLACEMENT, position, ids[position]
    return SOUND, 0, 0


@helper
def find_special(ids: np.ndarray, sep: int, positions: np.ndarray, vocabulary: Vocabulary) -> int:
    """The first unmasked token inside a segment that is a special piece, or 0.

    First counts the ids from the lowest to the highest special id, an interval that is mostly the first few ids. That
    loop has no branch, so it is compiled to vector instructions. [CLS], [SEP] and masked tokens were checked before, so
    they are taken off the count, and only if some are left does the slow loop go through the row.
    """
    low, high = vocabulary.special_low, vocabulary.special_high
    count = 0
    for at in range(len(ids)):
        count += low <= ids[at] and ids[at] <= high
    for at in positions:
        count -= low <= ids[at] and ids[at] <= high
    count -= low <= vocabulary.cls_id and vocabulary.cls_id <= high
    if low <= vocabulary.sep_id and vocabulary.sep_id <= high:
        count -= 1 if sep == len(ids) - 1 else 2
    if count == 0:
        return 0
    i = 0
    for at in range(1, len(ids) - 1):
        if i < len(positions) and positions[i] == at:
            i += 1
        elif at != sep and vocabulary.traits[ids[at]] & IS_SPECIAL:
            return at
    return 0


@helper
def are_parted(before: int, own: int) -> bool:
    """Whether two neighbours, given by their traits, belong to different words.

    The rule of WordRule as bits: the sum of the two numbers is positive if one is 1 and none is NEVER.
    """
    if (before | own) & IS_SPECIAL:
        return True
    return (before & STANDALONE | own & STARTS) != 0 and (before & JOINS_NEXT | own & CONTINUES) == 0


@helper
def find_broken_word(
    ids: np.ndarray, sep: int, positions: np.ndarray, masked_ids: np.ndarray, traits: np.ndarray
) -> int:
    """The first masked token with an unmasked neighbour in its word, or 0.

    Only the neighbours of masked tokens are examined: three times as fast as finding all words.
    """
    for i in range(len(positions)):
        at, own = positions[i], traits[masked_ids[i]]
        first, last = (1, sep) if at < sep else (sep + 1, len(ids) - 1)
        # Positions rise: if the token before is masked, it is the one before in `positions`; likewise the token after.
        follows_unmasked = at > first and (i == 0 or positions[i - 1] != at - 1)
        precedes_unmasked = at + 1 < last and (i + 1 == len(positions) or positions[i + 1] != at + 1)
        if follows_unmasked and not are_parted(traits[ids[at - 1]], own):
            return int(at)
        if precedes_unmasked and not are_parted(own, traits[ids[at + 1]]):
            return int(at)
    return 0


@kernel
def check_rows(
    rows: ExampleArrays, vocabulary: Vocabulary, codes: np.ndarray, positions: np.ndarray, values: np.ndarray
) -> None:
    """Fill in, for each row whose code is SOUND, the first rule that it breaks, the position and the value: int64."""
    traits = vocabulary.traits
    for row in range(len(codes)):
        if codes[row] != SOUND:
            continue
        ids, sep = rows.input_ids[rows.offsets[row] : rows.offsets[row + 1]], rows.segment_a_len[row] + 1
        masks = slice(rows.mask_offsets[row], rows.mask_offsets[row + 1])
        places, originals = rows.masked_positions[masks], rows.masked_ids[masks]
        code, at, value = check_frame(ids, sep, rows.sop_label[row], vocabulary)
        if code == SOUND:
            code, at, value = check_masks(ids, sep, places, originals, traits)
        special = find_special(ids, sep, places, vocabulary) if code == SOUND else 0
        if special > 0:
            code, at, value = SPECIAL_INSIDE, special, int(ids[special])
        broken = find_broken_word(ids, sep, places, originals, traits) if code == SOUND else 0
        if broken > 0:
            code, at = BROKEN_WORD, broken
        codes[row], positions[row], values[row] = code, at, value
