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
from albert_data.inspect.statistics import choose_word_rule
from albert_data.inspect.words import find_words
from albert_data.kernels import kernel
from albert_data.shards.schema import from_record_batch, shard_schema
from albert_data.tokenizer.model import Specials, Tokenizer
from albert_data.tokenizer.words import WordRule

SOUND, LENGTH, ID, SEGMENT, LABEL, NEEDS_LABEL, NEEDS_NO_LABEL, NO_CLS, NO_SEP, SPECIAL_INSIDE = range(10)
MASK_COUNT, MASK_ORDER, MASK_OUTSIDE, MASKED_ID, REPLACEMENT, BROKEN_WORD, SHARED_KEY = range(10, 17)

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
}


@dataclass(frozen=True, kw_only=True)
class RowRules:
    """What rows are held against.

    may_stand: bool over the vocabulary, may replace a masked token; is_alien: bool over the vocabulary,
    special pieces that the tokenizer makes of no text, so that they can't lie inside a segment.
    validation_keys: uint64, sorted; documents that must not be here.
    """

    schema: pyarrow.Schema
    config: ExampleConfig
    specials: Specials
    words: WordRule
    pieces: list[str]
    may_stand: np.ndarray
    is_alien: np.ndarray
    validation_keys: np.ndarray


def make_row_rules(tokenizer: Tokenizer, config: ExampleConfig) -> RowRules:
    """Rules without validation keys."""
    special_ids = np.flatnonzero(tokenizer.specials.is_special)
    from_text, _ = tokenizer.encode([tokenizer.pieces[i] for i in special_ids])
    is_alien = tokenizer.specials.is_special.copy()
    is_alien[from_text] = False
    may_stand = np.zeros(tokenizer.vocab_size, bool)
    may_stand[tokenizer.ordinary_ids] = True
    may_stand[tokenizer.mask_id] = True
    return RowRules(
        schema=shard_schema(tokenizer.id_dtype),
        config=config,
        specials=tokenizer.specials,
        words=choose_word_rule(tokenizer, config),
        pieces=tokenizer.pieces,
        may_stand=may_stand,
        is_alien=is_alien,
        validation_keys=np.empty(0, np.uint64),
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
        specials.is_special,
        rules.is_alien,
        rules.may_stand,
        rules.words.starts,
        rules.words.standalone,
    )
    codes[(codes == SOUND) & np.isin(examples.document_keys, rules.validation_keys)] = SHARED_KEY
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
    )


@kernel
def check_frame(
    ids: np.ndarray,
    segment_a_len: int,
    label: int,
    max_seq_len: int,
    vocab_size: int,
    cls_id: int,
    sep_id: int,
) -> tuple[int, int, int]:
    """Check that a row is [CLS] A [SEP] or [CLS] A [SEP] B [SEP]: the rule broken, the place, the value."""
    length, sep = len(ids), segment_a_len + 1
    if length < 3 or length > max_seq_len:
        return LENGTH, 0, length
    for at in range(length):
        if ids[at] >= vocab_size:
            return ID, at, ids[at]
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


@kernel
def check_masks(
    ids: np.ndarray,
    sep: int,
    positions: np.ndarray,
    masked_ids: np.ndarray,
    is_special: np.ndarray,
    may_stand: np.ndarray,
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
        if original >= len(is_special) or is_special[original]:
            return MASKED_ID, i, original
        if ids[position] != original and not may_stand[ids[position]]:
            return REPLACEMENT, position, ids[position]
    return SOUND, 0, 0


@kernel
def check_words(
    original: np.ndarray,
    segment_a_len: int,
    is_masked: np.ndarray,
    is_special: np.ndarray,
    starts: np.ndarray,
    standalone: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
) -> tuple[int, int, int]:
    """Check that words are masked whole or not at all: the rule broken, the place, the value."""
    words, _ = find_words(original, 0, len(original), segment_a_len, is_special, starts, standalone, begins, ends)
    for word in range(words):
        for at in range(begins[word] + 1, ends[word]):
            if is_masked[at] != is_masked[begins[word]]:
                return BROKEN_WORD, begins[word], 0
    return SOUND, 0, 0


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
    is_special: np.ndarray,
    is_alien: np.ndarray,
    may_stand: np.ndarray,
    starts: np.ndarray,
    standalone: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each row the first rule that it breaks (0: none), the place and the value: int64."""
    num_rows = len(segment_a_len)
    codes, places, values = (
        np.zeros(num_rows, np.int64),
        np.zeros(num_rows, np.int64),
        np.zeros(num_rows, np.int64),
    )
    begins, ends = np.empty(max_seq_len, np.int64), np.empty(max_seq_len, np.int64)
    original, is_masked = np.empty(max_seq_len, ids.dtype), np.empty(max_seq_len, np.bool_)
    for row in range(num_rows):
        row_ids, a_len = ids[offsets[row] : offsets[row + 1]], segment_a_len[row]
        row_positions = positions[position_offsets[row] : position_offsets[row + 1]]
        row_masked = masked_ids[mask_offsets[row] : mask_offsets[row + 1]]
        length = len(row_ids)
        code, place, value = check_frame(row_ids, a_len, labels[row], max_seq_len, len(is_special), cls_id, sep_id)
        if code == SOUND:
            code, place, value = check_masks(row_ids, a_len + 1, row_positions, row_masked, is_special, may_stand)
        if code == SOUND:
            original[:length] = row_ids
            is_masked[:length] = False
            for i in range(len(row_positions)):
                original[row_positions[i]] = row_masked[i]
                is_masked[row_positions[i]] = True
            for at in range(1, length - 1):
                if is_alien[original[at]] and at != a_len + 1:
                    code, place, value = SPECIAL_INSIDE, at, original[at]
                    break
        if code == SOUND:
            code, place, value = check_words(
                original[:length],
                a_len,
                is_masked,
                is_special,
                starts,
                standalone,
                begins,
                ends,
            )
        codes[row], places[row], values[row] = code, place, value
    return codes, places, values
