"""The rules that each row of a shard must keep, checked in one pass over a record batch.

In: a record batch as it is in a file, of the right schema. Out: for each row the first rule that it breaks, with
the position and the value that break it. docs/reference/format.md states the rules in words. First come the bounds
that every reader checks (shards/row_bounds.py); the kernel here sees only rows within these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
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
from albert_data.shards.rows import restore_ids
from albert_data.shards.schema import from_record_batch, shard_schema
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.words import WordRule

# row_bounds has a LENGTH and a SEGMENT too, with codes below 100. `describe` knows only the codes here.
LENGTH, SEGMENT, NEEDS_LABEL, NEEDS_NO_LABEL, NO_CLS, NO_SEP, SPECIAL_INSIDE = range(101, 108)
MASK_COUNT, MASK_ORDER, MASK_OUTSIDE, MASKED_SPECIAL, REPLACEMENT, BROKEN_WORD, SHARED_KEY, KEY_B = range(108, 116)

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
    """What the kernel must know of the vocabulary: arrays of one value a piece."""

    is_special: np.ndarray  # bool, text never gives it
    may_stand: np.ndarray  # bool, it may replace a masked token
    starts: np.ndarray  # int8, as in WordRule
    standalone: np.ndarray  # int8, as in WordRule
    special_low: int  # the lowest special id
    special_high: int  # the highest one
    cls_id: int
    sep_id: int


@dataclass(frozen=True, kw_only=True)
class RowRules:
    """What the rows of a folder are checked against."""

    schema: pyarrow.Schema
    config: ExampleConfig
    bounds: Bounds
    vocabulary: Vocabulary
    words: WordRule
    pieces: list[str]
    validation_keys: np.ndarray  # uint64, sorted, the keys of documents that must not be here


def make_row_rules(tokenizer: Tokenizer, manifest: Manifest) -> RowRules:
    """Rules without validation keys."""
    specials, words = tokenizer.specials, tokenizer.word_rule(manifest.config.examples)
    may_stand = np.zeros(tokenizer.vocab_size, bool)
    may_stand[[*tokenizer.ordinary_ids, tokenizer.mask_id]] = True
    arrays = (specials.is_special, may_stand, words.starts, words.standalone)
    special_ids = np.flatnonzero(specials.is_special).tolist()
    return RowRules(
        schema=shard_schema(tokenizer.id_dtype, **manifest.optional_columns),
        config=manifest.config.examples,
        # Ids are indices into the arrays of this tokenizer, and the manifest may be wrong.
        bounds=Bounds.from_manifest(manifest)._replace(vocab_size=tokenizer.vocab_size),
        vocabulary=Vocabulary(*arrays, special_ids[0], special_ids[-1], specials.cls_id, specials.sep_id),
        words=words,
        pieces=tokenizer.pieces,
        validation_keys=np.empty(0, np.uint64),
    )


def find_row_faults(batch: pyarrow.RecordBatch, rules: RowRules) -> list[tuple[int, str]]:
    """For each row that breaks a rule, its index in the batch and the first rule that it breaks."""
    counts = [np.diff(batch.column(name).offsets.to_numpy()) for name in ("masked_positions", "masked_ids")]
    faults = {
        row: describe(MASK_COUNT, int(counts[0][row]), int(counts[1][row]), rules)
        for row in np.flatnonzero(counts[0] != counts[1]).tolist()
    }
    # `Examples` has one array of offsets for positions and ids, and the kernel follows all lengths, positions and ids:
    # each takes only the rows that are left.
    numbers, examples = _leave_out(batch, faults)
    faults |= {int(numbers[one.row]): rules.bounds.explain(one) for one in rules.bounds.find_faults(examples)}
    numbers, examples = _leave_out(batch, faults)
    faults |= {int(numbers[row]): what for row, what in _check_examples(examples, rules)}
    return sorted(faults.items())


def _leave_out(batch: pyarrow.RecordBatch, rows: Collection[int]) -> tuple[np.ndarray, Examples]:
    """The numbers of the other rows, and these."""
    is_left = np.ones(batch.num_rows, bool)
    is_left[list(rows)] = False
    numbers = np.flatnonzero(is_left)
    return numbers, from_record_batch(batch.take(pyarrow.array(numbers)) if rows else batch)


def _check_examples(examples: Examples, rules: RowRules) -> Iterator[tuple[int, str]]:
    """The same for rows within their bounds."""
    codes, positions, values = (np.zeros(len(examples), np.int64) for _ in range(3))
    original = restore_ids(examples)
    check_rows(examples.arrays, original, rules.words.find_joined(original), rules.vocabulary, codes, positions, values)
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
    ids: np.ndarray, sep: int, positions: np.ndarray, masked_ids: np.ndarray, vocabulary: Vocabulary
) -> tuple[int, int, int]:
    """Check the masks of a row by themselves: the rule broken, the index of the mask or token, the value."""
    for i in range(len(positions)):
        position, original = positions[i], masked_ids[i]
        if i > 0 and position <= positions[i - 1]:
            return MASK_ORDER, i, position
        if position < 1 or position >= len(ids) - 1 or position == sep:
            return MASK_OUTSIDE, i, position
        if vocabulary.is_special[original]:
            return MASKED_SPECIAL, i, original
        if ids[position] != original and not vocabulary.may_stand[ids[position]]:
            return REPLACEMENT, position, ids[position]
    return SOUND, 0, 0


@helper
def find_special(original: np.ndarray, sep: int, vocabulary: Vocabulary) -> int:
    """The first token inside a segment that is a special piece, or 0. original: the ids of a row before masking.

    First counts the ids from the lowest to the highest special id, an interval that is mostly the first few ids. That
    loop has no branch, so it is compiled to vector instructions. Only if it finds more than [CLS] and [SEP] does the
    slow loop go through the row.
    """
    count = 0
    for at in range(len(original)):
        count += vocabulary.special_low <= original[at] and original[at] <= vocabulary.special_high
    if count > (2 if sep == len(original) - 1 else 3):
        for at in range(1, len(original) - 1):
            if at != sep and vocabulary.is_special[original[at]]:
                return at
    return 0


@helper
def find_broken_word(
    original: np.ndarray, joined: np.ndarray, sep: int, positions: np.ndarray, vocabulary: Vocabulary
) -> int:
    """The first token of a word that is masked in part, at the border of the mask, or 0.

    original: the ids of a row before masking; joined: of its tokens, see WordRule.find_joined. Only the neighbours of
    masked tokens are examined: three times as fast as finding all words.
    """
    starts, standalone, has_list = vocabulary.starts, vocabulary.standalone, len(joined) > 0
    for i in range(len(positions)):
        at, own = int(positions[i]), original[positions[i]]
        begin, end = (1, sep) if at < sep else (sep + 1, len(original) - 1)
        # Positions rise: if the token before is masked, it is the one before in `positions`; likewise the token after.
        follows_unmasked = at > begin and (i == 0 or positions[i - 1] != at - 1)
        precedes_unmasked = at + 1 < end and (i + 1 == len(positions) or positions[i + 1] != at + 1)
        # No word begins where the sum is 0 or less: see WordRule. A call of begins_word would take twice the time.
        if follows_unmasked and (starts[own] + standalone[original[at - 1]] <= 0 or (has_list and joined[at])):
            return at
        if precedes_unmasked and (starts[original[at + 1]] + standalone[own] <= 0 or (has_list and joined[at + 1])):
            return at
    return 0


@kernel
def check_rows(
    rows: ExampleArrays,
    original: np.ndarray,
    joined: np.ndarray,
    vocabulary: Vocabulary,
    codes: np.ndarray,
    positions: np.ndarray,
    values: np.ndarray,
) -> None:
    """Fill in, for each row that breaks a rule, the first such rule, the position and the value: int64.

    original: the ids of all rows before masking; joined: of all tokens, or empty, see WordRule.find_joined.
    """
    for row in range(len(codes)):
        begin, end = rows.offsets[row], rows.offsets[row + 1]
        ids, sep = rows.input_ids[begin:end], rows.segment_a_len[row] + 1
        masks = slice(rows.mask_offsets[row], rows.mask_offsets[row + 1])
        places, originals = rows.masked_positions[masks], rows.masked_ids[masks]
        code, at, value = check_frame(ids, sep, rows.sop_label[row], vocabulary)
        if code == SOUND:
            code, at, value = check_masks(ids, sep, places, originals, vocabulary)
        if code == SOUND:
            at = find_special(original[begin:end], sep, vocabulary)
            code, value = (SPECIAL_INSIDE, int(ids[at])) if at > 0 else (SOUND, 0)
        if code == SOUND:
            at = find_broken_word(original[begin:end], joined[begin:end], sep, places, vocabulary)
            code = BROKEN_WORD if at > 0 else SOUND
        codes[row], positions[row], values[row] = code, at, value
