"""The compiled loop of the tokenizer: cut a sentence into chunks, look each up, write its ids."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from albert_data.kernels import (
    I64,
    U64,
    Pointer,
    copy_items,
    count_trailing_zeros,
    helper,
    item,
    kernel,
    load_u64,
    pointer,
    prefetch,
    put,
    rarely,
    store_u64,
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
    home_slot,
    learn_chunk,
    make_desk,
    point_to_desk,
    point_to_table,
)
from albert_data.tokenizer.trie import LEAF, Trie, point_to_trie

NOT_DONE = -1
LONG_SENTENCE = 32768  # bytes; a longer one goes through SentencePiece
_MAX_PIECES = 18  # of a character: U+FDFA is normalised to so many characters
_BATCH = 32  # chunks, and those of a block more, are hashed before the first is looked up: their cache lines come
_MAX_BATCH = _BATCH + BLOCK + 1  # less than _BATCH before a block, a chunk for each of its bytes, one at the end
_NUM_FRESH, _IS_DONE, _NUM_UNKNOWN, _NUM_SUMMED = range(4)  # the places in Workplace.state
SPARE_IDS = INLINE_IDS * _MAX_BATCH  # room that is left behind the ids
_1 = U64(1)
_ID = _PAIR = U64(0xFFFF)
_SPACES = U64(0x2020)
_ALL = U64(0xFFFFFFFFFFFFFFFF)
_MASKS = [(1 << 8 * min(max(n - 8, 0), 8)) - 1 for n in range(INLINE_BYTES + 9)]  # of n - 8 bytes

# Workplace.cells: the masks, then a cell for each chunk of a batch. Its words are the first three of the chunk's slot,
# the place to look for that, and the chunk's begin. All in one array, for the loops have hardly a register to spare.
_CELL, _HOME, _BEGIN = 5, 3, 4
_FIRST_CELL = len(_MASKS)
_FULL = _FIRST_CELL + _BATCH * _CELL


class Workplace(NamedTuple):
    """Room to work in.

    cells: uint64, of the chunks that are to be looked up (see above);
    state: int64, the number of fresh chunks, and of a sentence: whether the table can do it, at most how many unknown
    characters it has, and how many of its ids `score` (float64, one) sums the scores of, negated.
    """

    cells: np.ndarray
    desk: Desk
    state: np.ndarray
    score: np.ndarray


def make_workplace() -> Workplace:
    cells = np.empty(_FIRST_CELL + _MAX_BATCH * _CELL, np.uint64)
    cells[:_FIRST_CELL] = _MASKS
    return Workplace(cells, make_desk(), np.zeros(4, np.int64), np.zeros(1))


@helper
def hash_chunk(
    utf8: Pointer, begin: int, end: int, inner: int, slots: Pointer, mask: int, cells: Pointer, cell: int
) -> int:
    """Put a chunk into a cell, and ask for its slot. mask: see home_slot. Returns the next cell."""
    length = end - begin
    tag = U64(length) | U64(inner) << INNER_SHIFT
    if rarely(length > INLINE_BYTES):
        value = hash_long(utf8, begin, end, tag)
        low, high = _ALL, value  # no key stands there: the slot's bytes are compared
    else:
        low = load_u64(utf8, begin) & item(cells, length + 8)
        high = load_u64(utf8, begin + 8) & item(cells, length)
        value = hash_short(low, high, tag)
    slot = home_slot(value, mask)
    prefetch(slots, slot)
    put(cells, cell, low)
    put(cells, cell + 1, high)
    put(cells, cell + 2, tag)
    put(cells, cell + _HOME, U64(slot))
    put(cells, cell + _BEGIN, U64(begin))
    return cell + _CELL


@helper
def skip_spaces(utf8: Pointer, begin: int, end: int) -> int:
    while begin < end and item(utf8, begin) == 32:
        begin += 1
    return begin


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
    first_inner: int,
    max_chunks: int,
    ids: np.ndarray,
    lengths: np.ndarray,
    fresh: np.ndarray,
) -> tuple[int, int]:
    """Encode sentences by the table, and add the chunks that it lacks, up to max_chunks in all.

    utf8: uint8, with PADDING bytes behind the last end; begins, ends: int64, of sentences; cuts: those of mark_cuts.
    first_inner: 1 if the first chunk of a sentence gets no "▁", like one that continues a word; else 0.
    ids: with room for SPARE_IDS or more. Writes their ids and how many each has, NOT_DONE where the table can't do it.
    A new chunk whose ids the trie can't tell is left pending; its slot, begin and end go into `fresh` (int64, a row a
    chunk). Returns the number of ids and of those.
    """
    text, out, slots, mask = pointer(utf8), pointer(ids), pointer(table.slots), len(table.slots) - 4
    entries, cut_rule, pieces = point_to_table(table), point_to_rule(rule), point_to_trie(trie)
    cells, desk, state = pointer(workplace.cells), point_to_desk(workplace.desk), pointer(workplace.state)
    score = pointer(workplace.score)
    marks, can_learn, max_ids = pointer(cuts), trie.root != LEAF, len(ids) - SPARE_IDS
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
        at, inner, behind = begin & -BLOCK, first_inner, _FIRST_CELL
        bits = item(marks, at >> 6) & (_ALL << _1) << U64(begin & 63)
        while at < end:
            if end - at < BLOCK:
                bits &= ~(_ALL << U64(end - at))
            while bits != 0:
                place = at + count_trailing_zeros(bits)
                bits &= bits - _1
                behind = hash_chunk(text, begin, place, inner, slots, mask, cells, behind)
                inner = I64(item(text, place) != 32)
                begin = place + 1 - inner
                if rarely(load_u64(text, place) & _PAIR == _SPACES):
                    begin = skip_spaces(text, begin, end)
            at += BLOCK
            if at < end:
                bits = item(marks, at >> 6)
                if behind < _FULL:
                    continue
            elif begin < end:
                behind = hash_chunk(text, begin, end, inner, slots, mask, cells, behind)
            cell = _FIRST_CELL
            while cell < behind:
                if filled <= max_ids:  # there is room for a whole batch, which write_common does not look after
                    cell, filled = write_common(cells, cell, behind, slots, out, filled)
                    if cell == behind:
                        break
                low, high, tag = item(cells, cell), item(cells, cell + 1), item(cells, cell + 2)
                start = I64(item(cells, cell + _BEGIN))
                slot = find_slot(text, start, low, high, tag, I64(item(cells, cell + _HOME)), entries, mask)
                if item(slots, slot + 2) == 0 and item(entries.counts, 0) < max_chunks:
                    add_chunk(text, start, low, high, tag, slot, entries)
                    if can_learn:
                        learn_chunk(text, start, slot, entries, len(table.long_ids), cut_rule, pieces, desk)
                    if item(slots, slot + 2) & PENDING:
                        num_fresh, length = item(state, _NUM_FRESH), I64(tag & LENGTH)
                        fresh[num_fresh, 0], fresh[num_fresh, 1], fresh[num_fresh, 2] = slot, start, start + length
                        put(state, _NUM_FRESH, num_fresh + 1)
                filled = write_ids(slot, entries, pieces, out, first, filled, len(ids), state, score)
                cell += _CELL
            behind = _FIRST_CELL
        at_most = (filled - first) * trie.max_score - item(state, _NUM_UNKNOWN) * trie.unknown_score
        if item(state, _IS_DONE) == 0 or (can_learn and at_most > STURDY):
            filled, lengths[sentence] = first, NOT_DONE
        else:
            lengths[sentence] = filled - first
    return filled, item(state, _NUM_FRESH)


@helper
def write_common(cells: Pointer, cell: int, behind: int, slots: Pointer, ids: Pointer, filled: int) -> tuple[int, int]:
    """Write the ids of chunks as long as each stands in its home slot with ids of the common kind.

    Returns the cell of the first that doesn't, or `behind`, and where the ids end.
    """
    while cell < behind:
        slot = I64(item(cells, cell + _HOME))
        found = item(slots, slot + 2)
        unlike = (found ^ item(cells, cell + 2)) & (IDENTITY | ODD)
        unlike |= (item(slots, slot) ^ item(cells, cell)) | (item(slots, slot + 1) ^ item(cells, cell + 1))
        if unlike != 0:
            break
        store_u64(ids, filled, item(slots, slot + 3))
        filled += I64((found >> COUNT_SHIFT) & COUNT)
        cell += _CELL
    return cell, filled


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
    num_ids = I64((tag >> COUNT_SHIFT) & COUNT)
    if tag & LONG_IDS:
        num_ids = I64(value & LONG_COUNT)
    if tag == 0 or tag & PENDING or filled + num_ids > max_ids:
        put(state, _IS_DONE, 0)
        return filled
    if tag & UNKNOWN:
        put(state, _NUM_UNKNOWN, item(state, _NUM_UNKNOWN) + _MAX_PIECES * I64(tag & LENGTH))
    for i in range(num_ids):
        one = (
            item(table.long_ids, I64(value >> LONG_SHIFT) + i) if tag & LONG_IDS else I64((value >> U64(16 * i)) & _ID)
        )
        if one != trie.unk_id or filled == first or item(ids, filled - 1) != trie.unk_id:
            put(ids, filled, one)
            filled += 1
    if tag & FRAGILE and sum_scores(ids, first, filled, trie, state, score) + 1 >= I64(tag >> LIMIT_SHIFT):
        put(state, _IS_DONE, 0)  # the 1: the other choice's score may be so much further from 0
    return filled


@helper
def sum_scores(ids: Pointer, first: int, filled: int, trie: Trie, state: Pointer, score: Pointer) -> float:
    """At most the magnitude of the score of a sentence so far, or of a part of it. Its ids begin at `first`."""
    total = item(score, 0) if item(state, _NUM_SUMMED) else 0.0
    for i in range(first + item(state, _NUM_SUMMED), filled):
        total -= item(trie.scores, I64(item(ids, i)))
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
