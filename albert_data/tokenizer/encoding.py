"""The compiled loop of the tokenizer: cut a sentence into chunks, look each up, write its ids."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from albert_data.kernels import (
    Int,
    Pointer,
    Word,
    copy_items,
    count_trailing_zeros,
    helper,
    item,
    kernel,
    load_word,
    pointer,
    prefetch,
    put,
    store_word,
)
from albert_data.tokenizer.cutting import BLOCK, CutRule, point_to_rule
from albert_data.tokenizer.table import (
    COUNT,
    COUNT_SHIFT,
    FRAGILE,
    IDENTITY,
    INLINE_BYTES,
    INLINE_IDS,
    INNER_SHIFT,
    LENGTH,
    LIMIT_SHIFT,
    LONG_COUNT,
    LONG_IDS,
    LONG_SHIFT,
    ODD,
    PENDING,
    STURDY,
    UNKNOWN,
    Desk,
    Table,
    add_chunk,
    find_slot,
    hash_long,
    hash_short,
    learn_chunk,
    make_desk,
    point_to_desk,
    point_to_table,
)
from albert_data.tokenizer.trie import Trie, point_to_trie

PADDING = BLOCK  # bytes that can be read behind the text
NOT_DONE = -1
LONG_SENTENCE = 32768  # bytes; a longer one goes through SentencePiece
_MAX_PIECES = 18  # of a character: U+FDFA is normalised to so many characters
_BATCH = 32  # chunks, and those of a block more, are hashed before the first is looked up: their cache lines come
_NUM_FRESH, _IS_DONE, _NUM_UNKNOWN, _NUM_SUMMED = range(4)  # the places in Workplace.state
_1, _40 = Word(1), Word(40)
_ID = Word(0xFFFF)
_ALL = Word(0xFFFFFFFFFFFFFFFF)
_MASKS = np.array([(1 << 8 * min(max(n - 8, 0), 8)) - 1 for n in range(INLINE_BYTES + 9)], np.uint64)  # n - 8 bytes


class Batch(NamedTuple):
    """Chunks that are to be looked up. begins: int64; homes: int64, the slot to begin at; low, high, tags: uint64,
    of its slot. In kernels, pointers.
    """

    begins: np.ndarray
    homes: np.ndarray
    low: np.ndarray
    high: np.ndarray
    tags: np.ndarray


class Workplace(NamedTuple):
    """Room to work in.

    state: int64, the number of fresh chunks, and of a sentence: whether the table can do it, at most how many unknown
    characters it has, and how many of its ids `score` (float64, one) sums the scores of, negated.
    """

    batch: Batch
    desk: Desk
    state: np.ndarray
    score: np.ndarray


def make_workplace() -> Workplace:
    size = _BATCH + BLOCK + 1
    begins, homes = (np.empty(size, np.int64) for _ in range(2))
    low, high, tags = (np.empty(size, np.uint64) for _ in range(3))
    return Workplace(Batch(begins, homes, low, high, tags), make_desk(), np.zeros(4, np.int64), np.zeros(1))


@helper
def point_to_batch(batch: Batch) -> Batch:
    return Batch(
        pointer(batch.begins), pointer(batch.homes), pointer(batch.low), pointer(batch.high), pointer(batch.tags)
    )


@helper
def hash_chunk(
    utf8: Pointer, begin: int, end: int, inner: int, masks: Pointer, slots: Pointer, mask: int, batch: Batch, count: int
) -> int:
    """Put a chunk into the batch behind `count` others, and ask for its slot. Returns the number of them all."""
    length = end - begin
    tag = Word(length) | Word(inner) << INNER_SHIFT
    if length <= INLINE_BYTES:
        low = load_word(utf8, begin) & item(masks, length + 8)
        high = load_word(utf8, begin + 8) & item(masks, length)
        value = hash_short(low, high, tag)
    else:
        value = hash_long(utf8, begin, end, tag)
        low, high = _ALL, value  # no key stands there: the slot's bytes are compared
    slot = 4 * (Int(value >> _40) & mask)
    prefetch(slots, slot)
    put(batch.begins, count, begin)
    put(batch.homes, count, slot)
    put(batch.low, count, low)
    put(batch.high, count, high)
    put(batch.tags, count, tag)
    return count + 1


@kernel
def encode_sentences(
    utf8: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
    cuts: np.ndarray,
    rule: CutRule,
    table: Table,
    trie: Trie,
    workplace: Workplace,
    max_chunks: int,
    ids: np.ndarray,
    lengths: np.ndarray,
    fresh: np.ndarray,
) -> tuple[int, int]:
    """Encode sentences by the table, and add the chunks that it lacks, up to max_chunks in all.

    utf8: uint8, with PADDING bytes behind the last end; begins, ends: int64, of sentences; cuts: those of mark_cuts.
    Writes their ids and how many each has, NOT_DONE where the table can't do it. A new chunk whose ids the trie
    can't tell is left pending; its slot, begin and end go into `fresh` (int64, a row a chunk). Returns the number
    of ids and of those.
    """
    text, out, slots, mask = pointer(utf8), pointer(ids), pointer(table.slots), len(table.slots) // 4 - 1
    entries, cut_rule, pieces = point_to_table(table), point_to_rule(rule), point_to_trie(trie)
    batch, desk, state = point_to_batch(workplace.batch), point_to_desk(workplace.desk), pointer(workplace.state)
    score = pointer(workplace.score)
    marks, masks, can_learn, max_ids = pointer(cuts), pointer(_MASKS), len(trie.entries) > 0, len(ids) - INLINE_IDS
    put(state, _NUM_FRESH, 0)
    filled = 0
    for sentence in range(len(begins)):
        begin, end, first = begins[sentence], ends[sentence], filled
        if end - begin > LONG_SENTENCE:
            lengths[sentence] = NOT_DONE
            continue
        put(state, _IS_DONE, 1)
        put(state, _NUM_UNKNOWN, 0)
        put(state, _NUM_SUMMED, 0)
        at, inner, count = begin & -BLOCK, 0, 0
        bits = item(marks, at >> 6) & (_ALL << _1) << Word(begin & 63)
        while at < end:
            if end - at < BLOCK:
                bits &= ~(_ALL << Word(end - at))
            while bits != 0:
                place = at + count_trailing_zeros(bits)
                bits &= bits - _1
                count = hash_chunk(text, begin, place, inner, masks, slots, mask, batch, count)
                inner = Int(item(text, place) != 32)
                begin = place + 1 - inner
                while begin < end and item(text, begin) == 32:
                    begin += 1
            at += BLOCK
            if at < end:
                bits = item(marks, at >> 6)
                if count < _BATCH:
                    continue
            elif begin < end:
                count = hash_chunk(text, begin, end, inner, masks, slots, mask, batch, count)
            for i in range(count):
                slot, tag = item(batch.homes, i), item(batch.tags, i)
                found = item(slots, slot + 2)
                unlike = (found ^ tag) & (IDENTITY | ODD)
                unlike |= (item(slots, slot) ^ item(batch.low, i)) | (item(slots, slot + 1) ^ item(batch.high, i))
                if unlike == 0 and filled <= max_ids:
                    store_word(out, filled, item(slots, slot + 3))
                    filled += Int((found >> COUNT_SHIFT) & COUNT)
                    continue
                start, low, high = item(batch.begins, i), item(batch.low, i), item(batch.high, i)
                slot = find_slot(text, start, low, high, tag, slot, entries, mask)
                if item(slots, slot + 2) == 0 and item(entries.counts, 0) < max_chunks:
                    add_chunk(text, start, low, high, tag, slot, entries)
                    if can_learn:
                        learn_chunk(text, start, slot, entries, len(table.long_ids), cut_rule, pieces, desk)
                    if item(slots, slot + 2) & PENDING:
                        num_fresh, length = item(state, _NUM_FRESH), Int(tag & LENGTH)
                        fresh[num_fresh, 0], fresh[num_fresh, 1], fresh[num_fresh, 2] = slot, start, start + length
                        put(state, _NUM_FRESH, num_fresh + 1)
                filled = write_ids(slot, entries, pieces, out, first, filled, len(ids), state, score)
            count = 0
        at_most = (filled - first) * trie.max_score - item(state, _NUM_UNKNOWN) * trie.unknown_score
        if item(state, _IS_DONE) == 0 or (can_learn and at_most > STURDY):
            filled, lengths[sentence] = first, NOT_DONE
        else:
            lengths[sentence] = filled - first
    return filled, item(state, _NUM_FRESH)


@helper
def write_ids(
    slot: int,
    table: Table,
    trie: Trie,
    ids: Pointer,
    first: int,
    filled: int,
    max_ids: int,
    state: Pointer,
    score: Pointer,
) -> int:
    """Write the ids of any chunk, and note what they mean for its sentence, whose ids begin at `first`."""
    tag, value = item(table.slots, slot + 2), item(table.slots, slot + 3)
    num_ids = Int((tag >> COUNT_SHIFT) & COUNT)
    if tag & LONG_IDS:
        num_ids = Int(value & LONG_COUNT)
    if tag == 0 or tag & PENDING or filled + num_ids > max_ids:
        put(state, _IS_DONE, 0)
        return filled
    if tag & UNKNOWN:
        put(state, _NUM_UNKNOWN, item(state, _NUM_UNKNOWN) + _MAX_PIECES * Int(tag & LENGTH))
    for i in range(num_ids):
        one = (
            item(table.long_ids, Int(value >> LONG_SHIFT) + i) if tag & LONG_IDS else Int((value >> Word(16 * i)) & _ID)
        )
        if one != trie.unk_id or filled == first or item(ids, filled - 1) != trie.unk_id:
            put(ids, filled, one)
            filled += 1
    if tag & FRAGILE and sum_scores(ids, first, filled, trie, state, score) + 1 >= Int(tag >> LIMIT_SHIFT):
        put(state, _IS_DONE, 0)  # the 1: the other choice's score may be so much further from 0
    return filled


@helper
def sum_scores(ids: Pointer, first: int, filled: int, trie: Trie, state: Pointer, score: Pointer) -> float:
    """At most the magnitude of the score of a sentence so far, or of a part of it. Its ids begin at `first`."""
    total = item(score, 0) if item(state, _NUM_SUMMED) else 0.0
    for i in range(first + item(state, _NUM_SUMMED), filled):
        total -= item(trie.scores, Int(item(ids, i)))
    put(state, _NUM_SUMMED, filled - first)
    put(score, 0, total)
    return np.inf if trie.has_gains else total - item(state, _NUM_UNKNOWN) * trie.unknown_score


@kernel
def fill_in(ids: np.ndarray, lengths: np.ndarray, other_ids: np.ndarray, other_lengths: np.ndarray) -> np.ndarray:
    """Put the ids of other sentences where sentences are NOT_DONE, in order; their lengths are filled in."""
    out = np.empty(len(ids) + len(other_ids), ids.dtype)
    target, mine, others = pointer(out), pointer(ids), pointer(other_ids)
    source, other_source, other, filled = 0, 0, 0, 0
    for i in range(len(lengths)):
        if lengths[i] == NOT_DONE:
            length = other_lengths[other]
            copy_items(target, filled, others, other_source, length)
            other_source += length
            other += 1
            lengths[i] = length
        else:
            length = lengths[i]
            copy_items(target, filled, mine, source, length)
            source += length
        filled += length
    return out
