"""The table of chunks: what each is tokenised to.

A slot is four uint64: the first and the next eight bytes of the chunk, its tag, and its ids, four of 16 bits.
So a common chunk costs one cache line. A chunk of over 16 bytes keeps its bytes in `long_keys` and has there, in
the slot, its place and its hash; more or wider ids stand in `long_ids`, and the slot has their place.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from albert_data.draws import mix
from albert_data.kernels import (
    I64,
    U64,
    Pointer,
    copy_items,
    helper,
    item,
    kernel,
    load_u64,
    multiply_and_fold,
    pointer,
    put,
)
from albert_data.tokenizer.cutting import CutRule, find_character, find_replacement
from albert_data.tokenizer.lattice import Lattice, make_lattice, point_to_lattice, segment_chunk
from albert_data.tokenizer.trie import Trie, point_to_trie
from albert_data.tokenizer.words import SPACE
from albert_data.utf8 import write_character

INLINE_IDS, INLINE_BYTES = 4, 16
MAX_LEARNT = 512  # bytes of normalised text that the trie is asked for; more goes through SentencePiece's normaliser

# A tag: the chunk's length in bytes, whether it goes on a word, the number of ids in the slot, and what is odd.
IDENTITY = U64((1 << 17) - 1)
LENGTH = U64((1 << 16) - 1)
INNER_SHIFT, COUNT_SHIFT = U64(16), U64(17)
COUNT = U64(7)
LONG_IDS = U64(1 << 20)  # ids are in long_ids; the slot has their place << LONG_SHIFT | their number
PENDING = U64(1 << 21)  # ids are not known yet
UNKNOWN = U64(1 << 22)  # some of it is unknown characters
FRAGILE = U64(1 << 23)  # rounding could decide where the score of its sentence is over the limit
ODD = LONG_IDS | PENDING | UNKNOWN | FRAGILE
LONG_SHIFT, LONG_COUNT = U64(32), U64((1 << 32) - 1)
LIMIT_SHIFT = U64(32)
STURDY = 1 << 20  # a score that hardly a sentence of LONG_SENTENCE reaches but by unknown characters

_0, _1, _38 = (U64(n) for n in (0, 1, 38))
_ALL = U64(0xFFFFFFFFFFFFFFFF)
_HASH = U64(0x9E3779B97F4A7C15)
_VISIBLE_SPACE = ord(SPACE)


class Table(NamedTuple):
    """The chunks. counts: int64, of chunks, of bytes in long_keys, of ids in long_ids."""

    slots: np.ndarray
    long_keys: np.ndarray
    long_ids: np.ndarray
    counts: np.ndarray


class Desk(NamedTuple):
    """Room to find the ids of one chunk: its normalised text, lattice and ids. In kernels, pointers."""

    text: np.ndarray
    lattice: Lattice
    ids: np.ndarray


def make_desk() -> Desk:
    return Desk(np.empty(MAX_LEARNT, np.uint8), make_lattice(MAX_LEARNT), np.empty(MAX_LEARNT, np.int32))


@helper
def point_to_desk(desk: Desk) -> Desk:
    return Desk(pointer(desk.text), point_to_lattice(desk.lattice), pointer(desk.ids))


@helper
def point_to_table(table: Table) -> Table:
    return Table(pointer(table.slots), pointer(table.long_keys), pointer(table.long_ids), pointer(table.counts))


@helper
def hash_short(low: U64, high: U64, tag: U64) -> U64:
    """Of a chunk of up to INLINE_BYTES, by its bytes."""
    return multiply_and_fold(low ^ _HASH, high ^ tag ^ _HASH)


@helper
def home_slot(value: U64, mask: int) -> I64:
    """Where the slot of a chunk begins, by its hash, unless another has taken it. mask: where the last slot begins.

    That has all bits of a slot's number, and none of a place within.
    """
    return I64(value >> _38) & mask


@helper
def hash_long(utf8: Pointer, begin: int, end: int, tag: U64) -> U64:
    value = tag
    for at in range(begin, end, 8):
        word = load_u64(utf8, at)
        if end - at < 8:
            word &= ~(_ALL << U64(8 * (end - at)))
        value = mix(value ^ word)
    return value


@helper
def same_bytes(a: Pointer, a_begin: int, b: Pointer, b_begin: int, length: int) -> bool:
    i = 0
    while i < length and item(a, a_begin + i) == item(b, b_begin + i):
        i += 1
    return i == length


@helper
def find_slot(utf8: Pointer, begin: int, low: U64, high: U64, tag: U64, slot: int, table: Table, mask: int) -> int:
    """The slot of a chunk: where it stands or would. mask: see home_slot."""
    length = I64(tag & LENGTH)
    while item(table.slots, slot + 2) != 0:
        if (item(table.slots, slot + 2) & IDENTITY) == tag and item(table.slots, slot + 1) == high:
            low_there = item(table.slots, slot)
            if length <= INLINE_BYTES:
                if low_there == low:
                    break
            elif same_bytes(utf8, begin, table.long_keys, I64(low_there), length):
                break
        slot = (slot + 4) & mask
    return slot


@helper
def add_chunk(utf8: Pointer, begin: int, low: U64, high: U64, tag: U64, slot: int, table: Table) -> None:
    """Put a chunk into a slot, pending."""
    length, key = I64(tag & LENGTH), item(table.counts, 1)
    if length > INLINE_BYTES:
        for i in range(length):
            put(table.long_keys, key + i, item(utf8, begin + i))
        put(table.counts, 1, key + length)
        low = U64(key)
    put(table.slots, slot, low)
    put(table.slots, slot + 1, high)
    put(table.slots, slot + 2, tag | PENDING)
    put(table.counts, 0, item(table.counts, 0) + 1)


@helper
def learn_chunk(
    utf8: Pointer, begin: int, slot: int, table: Table, max_long_ids: int, rule: CutRule, trie: Trie, desk: Desk
) -> None:
    """Find the ids of a pending chunk, if normalisation makes one character of each of its characters."""
    tag = item(table.slots, slot + 2)
    filled = 0
    if (tag >> INNER_SHIFT) & _1 == 0:
        filled = write_character(desk.text, 0, _VISIBLE_SPACE)
    at, end = begin, begin + I64(tag & LENGTH)
    while at < end:
        character, at = find_character(utf8, at, rule.characters)
        code = find_replacement(character)
        if code == 0 or filled + 3 > MAX_LEARNT:
            return
        filled = write_character(desk.text, filled, code)
    count, limit = segment_chunk(desk.text, filled, trie, desk.lattice, desk.ids)
    store_chunk(slot, desk.ids, count, limit, table, max_long_ids, trie)


@helper
def store_chunk(slot: int, ids: Pointer, count: int, limit: int, table: Table, max_long_ids: int, trie: Trie) -> None:
    """Give a pending chunk its ids (int32), if there is room for them. limit: see lattice.find_limit."""
    tag = item(table.slots, slot + 2) & IDENTITY
    if limit < STURDY:
        tag |= FRAGILE | U64(limit) << LIMIT_SHIFT
    for i in range(count):
        if item(ids, i) == trie.unk_id:
            tag |= UNKNOWN
    if count <= INLINE_IDS and not trie.is_wide:
        value = _0
        for i in range(count):
            value |= U64(item(ids, i)) << U64(16 * i)
        put(table.slots, slot + 3, value)
        tag |= U64(count) << COUNT_SHIFT
    else:
        first = item(table.counts, 2)
        if first + count > max_long_ids:
            return
        for i in range(count):
            put(table.long_ids, first + i, item(ids, i))
        put(table.counts, 2, first + count)
        put(table.slots, slot + 3, U64(first) << LONG_SHIFT | U64(count))
        tag |= LONG_IDS
    put(table.slots, slot + 2, tag)


@kernel
def store_chunks(
    chunk_slots: np.ndarray, ids: np.ndarray, lengths: np.ndarray, limits: np.ndarray, table: Table, trie: Trie
) -> None:
    """Give pending chunks their ids."""
    begin = 0
    for i in range(len(chunk_slots)):
        store_chunk(
            chunk_slots[i],
            pointer(ids[begin:]),
            lengths[i],
            limits[i],
            point_to_table(table),
            len(table.long_ids),
            point_to_trie(trie),
        )
        begin += lengths[i]


def make_slots(size: int) -> np.ndarray:
    """An empty table of `size` slots, a power of two, of huge pages where the system has them.

    Private, so that a process forked later has one of its own.
    """
    memory = mmap.mmap(-1, 32 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(AttributeError, OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint64)


@kernel
def copy_slots(slots: np.ndarray, grown: np.ndarray) -> None:
    """Put the chunks into a larger table, which is empty."""
    source, out, mask = pointer(slots), pointer(grown), len(grown) - 4
    for slot in range(0, len(slots), 4):
        tag = item(source, slot + 2)
        if tag == 0:
            continue
        low, high = item(source, slot), item(source, slot + 1)
        value = hash_short(low, high, tag & IDENTITY) if I64(tag & LENGTH) <= INLINE_BYTES else high
        target = home_slot(value, mask)
        while item(out, target + 2) != 0:
            target = (target + 4) & mask
        copy_items(out, target, source, slot, 4)
