"""Rows as records: all that is known of a row in one piece, so that rows which lie together are read together.

In: columns of rows. Out: a buffer of records, and columns again, in whatever order is asked for.
A record is whole words of 8 bytes: the shuffle key; the document key; then, as numbers of 4 bytes, pass and label in
one, index, how many ids and how many masks it has, length of A and language (0 where the build has one language); then
its ids, masked ids and masked positions. Equal records are equal rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from albert_data.examples.ragged import Examples
from albert_data.kernels import I64, copy_items, helper, kernel, pointer, prefetch

_HEAD_WORDS = 5
_PASS, _INDEX, _NUM_IDS, _NUM_MASKS, _A_LEN, _LANGUAGE = range(4, 10)  # places in numbers of 4 bytes
_PASS_BITS = 16  # above them stands the label, plus one
_PASS_MASK = (1 << _PASS_BITS) - 1
_AHEAD = 8  # so many records before it is read, the begin of a record is asked for


class RowKeys(NamedTuple):
    """What rows are sorted by, the first first: uint64, uint64, uint16, uint32."""

    shuffle_keys: np.ndarray
    document_keys: np.ndarray
    passes: np.ndarray
    indices: np.ndarray

    @classmethod
    def empty(cls, num_rows: int) -> RowKeys:
        return cls(*(np.empty(num_rows, dtype) for dtype in (np.uint64, np.uint64, np.uint16, np.uint32)))

    def order(self) -> np.ndarray:
        """The row numbers by these keys: int64. Few shuffle keys are equal; the others decide only there."""
        order = np.argsort(self.shuffle_keys, kind="stable")
        keys = self.shuffle_keys[order]
        is_tie = keys[1:] == keys[:-1]
        tied = np.flatnonzero(np.append(is_tie, False) | np.append(False, is_tie))
        rows = order[tied]
        order[tied] = rows[np.lexsort([column[rows] for column in reversed(self)])]
        return order

    def find_ties(self, order: np.ndarray) -> np.ndarray:
        """For each place in an order, whether its row has all the keys of the one before: bool."""
        is_tie = np.zeros(len(order), bool)
        is_tie[1:] = self.shuffle_keys[order[1:]] == self.shuffle_keys[order[:-1]]
        if is_tie.any():
            for column in self:
                is_tie[1:] &= column[order[1:]] == column[order[:-1]]
        return is_tie


class Records(NamedTuple):
    """A buffer of records as uint64, and the same bytes as int32, as uint16 and as ids (uint16 or uint32)."""

    words: np.ndarray
    numbers: np.ndarray
    positions: np.ndarray
    ids: np.ndarray


def view_records(words: np.ndarray, id_dtype: Any) -> Records:
    return Records(words, words.view(np.int32), words.view(np.uint16), words.view(id_dtype))


class Room:
    """Memory for records that is used again: new pages cost more than to read into them."""

    def __init__(self, id_dtype: Any) -> None:
        self._id_dtype, self._words = id_dtype, np.empty(0, np.uint64)

    def give(self, num_words: int) -> Records:
        """Room for so many words or more; what it held is lost if there was none."""
        if num_words > len(self._words):
            self._words = np.empty(num_words * 9 // 8, np.uint64)
        return view_records(self._words, self._id_dtype)


def measure_records(examples: Examples) -> np.ndarray:
    """How many words the record of each row takes: int64."""
    id_bytes = examples.input_ids.itemsize
    num_bytes = np.diff(examples.offsets) * id_bytes + np.diff(examples.mask_offsets) * (id_bytes + 2)
    num_words: np.ndarray = _HEAD_WORDS + (num_bytes + 7) // 8
    return num_words


def put_examples(
    records: Records, places: np.ndarray, examples: Examples, keys: RowKeys, languages: np.ndarray
) -> None:
    """Write rows as records, each from the word of its number in `places` (int64) on. languages: uint32, packed."""
    put_records(
        records,
        places,
        keys,
        examples.input_ids,
        examples.offsets,
        examples.segment_a_len,
        examples.sop_label,
        examples.masked_positions,
        examples.masked_ids,
        examples.mask_offsets,
        languages,
    )


def take_examples(records: Records, places: np.ndarray, sources: np.ndarray | None = None) -> Examples:
    """The rows whose records begin at these words (int64), as `find_records` found them.

    sources: uint32, the languages that a shard's `source` counts through; None for shards without that column.
    """
    ids, offsets, segment_a_len, sop_label, positions, masked, mask_offsets, keys, languages = take_records(
        records, places
    )
    return Examples(
        input_ids=ids,
        offsets=offsets,
        segment_a_len=segment_a_len,
        sop_label=sop_label,
        masked_positions=positions,
        masked_ids=masked,
        mask_offsets=mask_offsets,
        document_keys=keys,
        sources=None if sources is None else _find_sources(sources, languages),
    )


def _find_sources(sources: np.ndarray, languages: np.ndarray) -> np.ndarray:
    order = np.argsort(sources)
    found: np.ndarray = order[np.searchsorted(sources, languages, sorter=order)].astype(np.uint16)
    return found


def order_records(records: Records, places: np.ndarray, keys: RowKeys) -> tuple[np.ndarray, np.ndarray]:
    """The row numbers in the total order (int64), and for each place in it whether its row is a copy of the one before.

    Where all keys are equal, the content decides. Mostly it is equal too, of a document that comes twice; it is not
    where the keys of two documents collide.
    """
    order = keys.order()
    is_tie = keys.find_ties(order)
    is_copy = find_copies(records, places[order], is_tie)
    differs = np.flatnonzero(is_tie & ~is_copy)
    if not len(differs):
        return order, is_copy
    bounds = np.append(np.flatnonzero(~is_tie), len(order))  # where rows of equal keys begin
    for group in np.unique(np.searchsorted(bounds, differs, side="right") - 1):
        rows = order[bounds[group] : bounds[group + 1]]  # a view
        rows[:] = sorted(rows.tolist(), key=lambda row: _read_record(records, int(places[row])))
    return order, find_copies(records, places[order], is_tie)


def _read_record(records: Records, place: int) -> bytes:
    num_ids, num_masks = records.numbers[2 * place + _NUM_IDS :][:2].tolist()
    num_bytes = num_ids * records.ids.itemsize + num_masks * (records.ids.itemsize + 2)
    return records.words[place : place + _HEAD_WORDS + (num_bytes + 7) // 8].tobytes()


@helper
def measure_record(numbers: np.ndarray, place: int, id_bytes: int) -> I64:
    """How many words the record that begins at word `place` has."""
    num_ids, num_masks = numbers[2 * place + _NUM_IDS], numbers[2 * place + _NUM_MASKS]
    return I64(_HEAD_WORDS + (num_ids * id_bytes + num_masks * (id_bytes + 2) + 7) // 8)


@kernel
def find_copies(records: Records, places: np.ndarray, is_tie: np.ndarray) -> np.ndarray:
    """For each record, which begins at a word in `places`, whether it equals the one before it: bool.

    is_tie: bool; only where it is true are records compared, for all others differ in their keys.
    """
    words, is_copy = records.words, np.zeros(len(places), np.bool_)
    for i in range(1, len(places)):
        if is_tie[i]:
            place, other, word = places[i], places[i - 1], 0
            num_words = measure_record(records.numbers, place, records.ids.itemsize)
            while word < num_words and words[place + word] == words[other + word]:  # the head, with the lengths, first
                word += 1
            is_copy[i] = word == num_words
    return is_copy


class Dropped(NamedTuple):
    """What rows that are dropped come to: documents and their tokens, of the first pass; rows, of all passes.

    digest: the sum of the keys of these documents modulo 2**64.
    """

    rows: int = 0
    documents: int = 0
    tokens: int = 0
    digest: int = 0

    def add(self, other: Dropped) -> Dropped:
        rows, documents, tokens, digest = (mine + its for mine, its in zip(self, other, strict=True))
        return Dropped(rows, documents, tokens, digest % 2**64)


def count_dropped(records: Records, places: np.ndarray) -> Dropped:
    """Count the rows whose records begin at these words (int64)."""
    numbers = records.numbers
    first = places[numbers[2 * places + _PASS] & _PASS_MASK == 0]
    num_specials = np.where(numbers[2 * first + _PASS] >> _PASS_BITS == 0, 2, 3)  # of label -1: no second [SEP]
    documents = first[numbers[2 * first + _INDEX] == 0]
    return Dropped(
        rows=len(places),
        documents=len(documents),
        tokens=int((numbers[2 * first + _NUM_IDS] - num_specials).sum()),
        digest=int(records.words[documents + 1].sum(dtype=np.uint64)),
    )


@kernel
def put_records(
    records: Records,
    places: np.ndarray,
    keys: RowKeys,
    input_ids: np.ndarray,
    offsets: np.ndarray,
    segment_a_len: np.ndarray,
    sop_label: np.ndarray,
    masked_positions: np.ndarray,
    masked_ids: np.ndarray,
    mask_offsets: np.ndarray,
    languages: np.ndarray,
) -> None:
    """Write the rows of the columns, each from word `places[row]` on."""
    words, numbers = records.words, records.numbers
    id_bytes = input_ids.itemsize
    ids, positions = pointer(records.ids), pointer(records.positions)
    from_ids, from_masked, from_positions = pointer(input_ids), pointer(masked_ids), pointer(masked_positions)
    for row in range(len(places)):
        place, num_ids = places[row], offsets[row + 1] - offsets[row]
        num_masks = mask_offsets[row + 1] - mask_offsets[row]
        num_bytes = num_ids * id_bytes + num_masks * (id_bytes + 2)
        words[place + _HEAD_WORDS + (num_bytes + 7) // 8 - 1] = 0  # what fills up the last word
        words[place], words[place + 1] = keys.shuffle_keys[row], keys.document_keys[row]
        numbers[2 * place + _PASS] = I64(keys.passes[row]) | (I64(sop_label[row]) + 1) << _PASS_BITS
        numbers[2 * place + _INDEX] = keys.indices[row]
        numbers[2 * place + _NUM_IDS], numbers[2 * place + _NUM_MASKS] = num_ids, num_masks
        numbers[2 * place + _A_LEN], numbers[2 * place + _LANGUAGE] = segment_a_len[row], languages[row]
        at = (place + _HEAD_WORDS) * 8 // id_bytes
        copy_items(ids, at, from_ids, offsets[row], num_ids)
        copy_items(ids, at + num_ids, from_masked, mask_offsets[row], num_masks)
        copy_items(positions, (at + num_ids + num_masks) * id_bytes // 2, from_positions, mask_offsets[row], num_masks)


@kernel
def find_records(
    records: Records,
    begin: int,
    end: int,
    low: np.uint64,
    high: np.uint64,
    places: np.ndarray,
    keys: RowKeys,
    count: int,
) -> tuple[int, int]:
    """Put place and keys of the records in words begin .. end with shuffle keys low .. high behind `count` others.

    Returns how many there are now, and where the last of these ends. Raises ValueError for what are no records.
    """
    words, numbers = records.words, records.numbers
    id_bytes = records.ids.itemsize
    place = last_end = begin
    while place < end:
        num_ids = num_masks = -1
        if place + _HEAD_WORDS <= end:
            num_ids, num_masks = numbers[2 * place + _NUM_IDS], numbers[2 * place + _NUM_MASKS]
        next_place = place + _HEAD_WORDS + (num_ids * id_bytes + num_masks * (id_bytes + 2) + 7) // 8
        if num_ids < 0 or num_masks < 0 or next_place > end or count >= len(places):
            raise ValueError("a record lies outside its run")
        if low <= words[place] <= high:
            places[count] = place
            keys.shuffle_keys[count], keys.document_keys[count] = words[place], words[place + 1]
            keys.passes[count] = numbers[2 * place + _PASS] & _PASS_MASK
            keys.indices[count] = numbers[2 * place + _INDEX]
            count, last_end = count + 1, next_place
        place = next_place
    return count, last_end


@kernel
def take_records(records: Records, places: np.ndarray) -> tuple[np.ndarray, ...]:
    """Copy rows out of records: the columns of `Examples`, in their order, with languages (uint32) for sources."""
    num_rows, numbers = len(places), records.numbers
    offsets, mask_offsets = np.zeros(num_rows + 1, np.int64), np.zeros(num_rows + 1, np.int64)
    segment_a_len, sop_label = np.empty(num_rows, np.int32), np.empty(num_rows, np.int8)
    document_keys, languages = np.empty(num_rows, np.uint64), np.empty(num_rows, np.uint32)
    words = pointer(records.words)
    for row in range(num_rows):
        prefetch(words, places[min(row + _AHEAD, num_rows - 1)])
        number = 2 * places[row]
        offsets[row + 1] = offsets[row] + numbers[number + _NUM_IDS]
        mask_offsets[row + 1] = mask_offsets[row] + numbers[number + _NUM_MASKS]
        segment_a_len[row], languages[row] = numbers[number + _A_LEN], numbers[number + _LANGUAGE]
        sop_label[row] = (numbers[number + _PASS] >> _PASS_BITS) - 1
        document_keys[row] = records.words[places[row] + 1]
    input_ids, masked_ids = np.empty(offsets[-1], records.ids.dtype), np.empty(mask_offsets[-1], records.ids.dtype)
    masked_positions = np.empty(mask_offsets[-1], np.uint16)
    id_bytes = records.ids.itemsize
    ids, positions = pointer(records.ids), pointer(records.positions)
    to_ids, to_masked, to_positions = pointer(input_ids), pointer(masked_ids), pointer(masked_positions)
    for row in range(num_rows):
        num_ids, num_masks = offsets[row + 1] - offsets[row], mask_offsets[row + 1] - mask_offsets[row]
        at = (places[row] + _HEAD_WORDS) * 8 // id_bytes
        copy_items(to_ids, offsets[row], ids, at, num_ids)
        copy_items(to_masked, mask_offsets[row], ids, at + num_ids, num_masks)
        at = (at + num_ids + num_masks) * id_bytes // 2
        copy_items(to_positions, mask_offsets[row], positions, at, num_masks)
    return (
        input_ids,
        offsets,
        segment_a_len,
        sop_label,
        masked_positions,
        masked_ids,
        mask_offsets,
        document_keys,
        languages,
    )
