"""The chunk table: a hash table with open addressing from chunks to their ids.

A slot is four uint64: the first eight bytes of the chunk, the next eight, its tag, and its ids, four of 16 bits. So a
look-up of a common chunk costs one cache line. Where a chunk has over 16 bytes, they are in `long_keys`, and the slot
holds their index there and their hash. Where it has more or wider ids, they are in `long_ids`, and the slot
holds their index there and their number.
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
from albert_data.tokenizer.cutting import CutRule, CutRulePointers, find_single, look_up_character, point_to_rule
from albert_data.tokenizer.lattice import (
    ChunkIds,
    Lattice,
    LatticePointers,
    encode_chunk,
    make_lattice,
    point_to_lattice,
)
from albert_data.tokenizer.trie import Trie, TriePointers, point_to_trie
from albert_data.tokenizer.words import SPACE
from albert_data.utf8 import write_character

INLINE_IDS, INLINE_BYTES = 4, 16
MAX_LEARNT = 512  # bytes of normalised text; longer chunks are normalised by SentencePiece

SLOT = 4  # uint64 of a slot; a slot is known by the index of its first one
LOW, HIGH, TAG, IDS = range(SLOT)

# A tag, from the lowest bit on: the chunk's length in bytes (16 bits), whether it continues a word and so gets no "▁"
# (1), the number of ids in the slot (3), the four flags of UNCOMMON, free bits, and from bit 32 on FRAGILE's limit.
LENGTH = U64((1 << 16) - 1)
IDENTITY = U64((1 << 17) - 1)  # the bits that two equal chunks share
INNER_SHIFT, COUNT_SHIFT, LIMIT_SHIFT = U64(16), U64(17), U64(32)
COUNT = U64(7)
LONG_IDS = U64(1 << 20)  # the ids are in long_ids, and the slot holds their index << LONG_SHIFT | their number
PENDING = U64(1 << 21)  # the ids are not known yet
UNKNOWN = U64(1 << 22)  # some of the chunk is unknown characters
FRAGILE = U64(1 << 23)  # rounding could decide, where the score of the sentence reaches the limit (lattice.find_limit)
UNCOMMON = LONG_IDS | PENDING | UNKNOWN | FRAGILE  # a chunk without these is common: encoding.write_common writes it
LONG_SHIFT, LONG_COUNT = U64(32), U64((1 << 32) - 1)
CERTAIN_LIMIT = 1 << 20  # chunks of this limit or a higher one are not fragile: hardly any sentence has such a score

_NUM_CHUNKS, _NUM_KEY_BYTES, _NUM_LONG_IDS = range(3)  # indices of Table.counts
_ALL_BITS = U64(2**64 - 1)
_GOLDEN = U64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio
_HASH_SHIFT = U64(38)  # leaves 26 bits: more than the index of a slot has
_VISIBLE_SPACE = ord(SPACE)


class Table(NamedTuple):
    """slots: uint64; long_keys: uint8; long_ids: int64; counts: int64: chunks, items of long_keys and of long_ids."""

    slots: np.ndarray
    long_keys: np.ndarray
    long_ids: np.ndarray
    counts: np.ndarray


class TablePointers(NamedTuple):
    """max_slot: the index of the last slot; long_ids_capacity, max_chunks: how many may be added in all."""

    slots: Pointer
    long_keys: Pointer
    long_ids: Pointer
    counts: Pointer
    max_slot: int
    long_ids_capacity: int
    max_chunks: int


class ChunkKey(NamedTuple):
    """A chunk to look up: where it begins in the text, and the first three uint64 of its slot.

    low: of a chunk of over INLINE_BYTES not used here, as its slot has an index there.
    """

    begin: int
    low: U64
    high: U64
    tag: U64


class ChunkRules(NamedTuple):
    """cuts: where to cut; trie: without pieces for a BPE model; first_is_inner: 1 if the first chunk of a sentence gets
    no "▁", like one that continues a word, else 0.
    """

    cuts: CutRule
    trie: Trie
    first_is_inner: int


class ChunkRulePointers(NamedTuple):
    cuts: CutRulePointers
    trie: TriePointers


class LearningScratch(NamedTuple):
    """Scratch buffers for the ids of one chunk: its normalised text (uint8), its lattice, its ids (int32)."""

    text: np.ndarray
    lattice: Lattice
    ids: np.ndarray


class LearningPointers(NamedTuple):
    text: Pointer
    lattice: LatticePointers
    ids: Pointer


def make_learning_scratch() -> LearningScratch:
    return LearningScratch(np.empty(MAX_LEARNT, np.uint8), make_lattice(MAX_LEARNT), np.empty(MAX_LEARNT, np.int32))


@helper
def point_to_learning(scratch: LearningScratch) -> LearningPointers:
    return LearningPointers(pointer(scratch.text), point_to_lattice(scratch.lattice), pointer(scratch.ids))


@helper
def point_to_rules(rules: ChunkRules) -> ChunkRulePointers:
    return ChunkRulePointers(point_to_rule(rules.cuts), point_to_trie(rules.trie))


@helper
def point_to_table(table: Table) -> TablePointers:
    return TablePointers(
        pointer(table.slots),
        pointer(table.long_keys),
        pointer(table.long_ids),
        pointer(table.counts),
        len(table.slots) - SLOT,
        len(table.long_ids),
        3 * (len(table.slots) // SLOT) // 4,  # three quarters: a probe of a fuller table takes long
    )


@helper
def hash_short(low: U64, high: U64, tag: U64) -> U64:
    """The hash of a chunk of up to INLINE_BYTES."""
    return multiply_and_fold(low ^ _GOLDEN, high ^ tag ^ _GOLDEN)


@helper
def hash_long(utf8: Pointer, begin: int, end: int, tag: U64) -> U64:
    """The hash of a longer chunk, eight bytes at a time."""
    hashed = tag
    for at in range(begin, end, 8):
        eight = load_u64(utf8, at)
        if end - at < 8:  # leave out the bytes after the chunk
            eight &= ~(_ALL_BITS << U64(8 * (end - at)))
        hashed = mix(hashed ^ eight)
    return hashed


@helper
def home_slot(hashed: U64, max_slot: int) -> I64:
    """The slot at which the probe for a chunk begins.

    max_slot, a power of two minus SLOT, is also the bit mask of slots: for 8 slots it is 28, binary 11100.
    """
    return I64(hashed >> _HASH_SHIFT) & max_slot


@helper
def same_bytes(a: Pointer, a_begin: int, b: Pointer, b_begin: int, length: int) -> bool:
    i = 0
    while i < length and item(a, a_begin + i) == item(b, b_begin + i):
        i += 1
    return i == length


@helper
def find_slot(utf8: Pointer, key: ChunkKey, slot: int, table: TablePointers) -> int:
    """The slot of a chunk, or the free one that it would take. slot: its home slot."""
    length = I64(key.tag & LENGTH)
    while item(table.slots, slot + TAG) != 0:  # a tag of 0 is a free slot: no chunk has length 0
        if (item(table.slots, slot + TAG) & IDENTITY) == key.tag and item(table.slots, slot + HIGH) == key.high:
            low = item(table.slots, slot + LOW)
            if length <= INLINE_BYTES:
                if low == key.low:
                    break
            # Of a long chunk `high` is the hash, so nearly always this compares the bytes of equal chunks.
            elif same_bytes(utf8, key.begin, table.long_keys, I64(low), length):
                break
        slot = (slot + SLOT) & table.max_slot  # linear probing, around the end
    return slot


@helper
def add_chunk(utf8: Pointer, key: ChunkKey, slot: int, table: TablePointers) -> None:
    """Put a chunk into a free slot, pending."""
    length, low = I64(key.tag & LENGTH), key.low
    if length > INLINE_BYTES:
        first = item(table.counts, _NUM_KEY_BYTES)
        for i in range(length):
            put(table.long_keys, first + i, item(utf8, key.begin + i))
        put(table.counts, _NUM_KEY_BYTES, first + length)
        low = U64(first)  # the slot holds the index instead of the bytes
    put(table.slots, slot + LOW, low)
    put(table.slots, slot + HIGH, key.high)
    put(table.slots, slot + TAG, key.tag | PENDING)
    put(table.counts, _NUM_CHUNKS, item(table.counts, _NUM_CHUNKS) + 1)


@helper
def is_full(table: TablePointers) -> bool:
    return bool(item(table.counts, _NUM_CHUNKS) >= table.max_chunks)


@helper
def learn_chunk(
    utf8: Pointer, begin: int, slot: int, table: TablePointers, rules: ChunkRulePointers, scratch: LearningPointers
) -> None:
    """Find the ids of a pending chunk of a unigram model.

    It stays pending if it is long, or if some character is not normalised to exactly one, independently of its
    neighbours. Then SentencePiece's normaliser is asked (chunks.py).
    """
    tag = item(table.slots, slot + TAG)
    filled, position, end = 0, begin, begin + I64(tag & LENGTH)
    if (tag >> INNER_SHIFT) & U64(1) == 0:
        filled = write_character(scratch.text, 0, _VISIBLE_SPACE)  # the chunk does not continue a word
    while position < end:
        character, position = look_up_character(utf8, position, rules.cuts.characters)
        code = find_single(character)
        if code == 0 or filled + 3 > MAX_LEARNT:  # a character of the basic plane has up to 3 bytes
            return
        filled = write_character(scratch.text, filled, code)
    count, limit = encode_chunk(scratch.text, filled, rules.trie, scratch.lattice, scratch.ids)
    store_chunk(slot, scratch.ids, count, limit, table, rules.trie)


@helper
def store_chunk(slot: int, ids: Pointer, count: int, limit: int, table: TablePointers, trie: TriePointers) -> None:
    """Give a pending chunk its ids (int32); it stays pending if long_ids is full. limit: see lattice.find_limit."""
    tag = item(table.slots, slot + TAG) & IDENTITY
    if limit < CERTAIN_LIMIT:
        tag |= FRAGILE | U64(limit) << LIMIT_SHIFT
    for i in range(count):  # one unknown id is enough: bound_score assumes the worst of the whole chunk
        if item(ids, i) == trie.settings.unk_id:
            tag |= UNKNOWN
    if count <= INLINE_IDS and not trie.settings.is_wide:
        packed = U64(0)
        for i in range(count):
            packed |= U64(item(ids, i)) << U64(16 * i)
        put(table.slots, slot + IDS, packed)
        tag |= U64(count) << COUNT_SHIFT
    else:
        first = item(table.counts, _NUM_LONG_IDS)
        if first + count > table.long_ids_capacity:
            return  # `_learn` stores it later, with more capacity
        for i in range(count):
            put(table.long_ids, first + i, item(ids, i))
        put(table.counts, _NUM_LONG_IDS, first + count)
        put(table.slots, slot + IDS, U64(first) << LONG_SHIFT | U64(count))
        tag |= LONG_IDS
    put(table.slots, slot + TAG, tag)


@kernel
def store_chunks(chunk_slots: np.ndarray, found: ChunkIds, table: Table, trie: Trie) -> None:
    """Give pending chunks their ids."""
    begin, entries, pieces = 0, point_to_table(table), point_to_trie(trie)
    for i in range(len(chunk_slots)):
        store_chunk(chunk_slots[i], pointer(found.ids[begin:]), found.lengths[i], found.limits[i], entries, pieces)
        begin += found.lengths[i]


def make_slots(num_slots: int) -> np.ndarray:
    """Free slots, a power of two, in huge pages where the system has them.

    The memory is private: what a process writes after a fork stays in its own copy.
    """
    memory = mmap.mmap(-1, 8 * SLOT * num_slots, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(AttributeError, OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint64)


@kernel
def copy_slots(slots: np.ndarray, grown: np.ndarray) -> None:
    """Put the chunks into a larger table, which is empty."""
    source, target, max_slot = pointer(slots), pointer(grown), len(grown) - SLOT
    for slot in range(0, len(slots), SLOT):
        tag = item(source, slot + TAG)
        if tag == 0:
            continue  # a free slot
        low, high = item(source, slot + LOW), item(source, slot + HIGH)
        # Of a long chunk the second uint64 is the hash itself.
        hashed = hash_short(low, high, tag & IDENTITY) if I64(tag & LENGTH) <= INLINE_BYTES else high
        target_slot = home_slot(hashed, max_slot)
        while item(target, target_slot + TAG) != 0:
            target_slot = (target_slot + SLOT) & max_slot
        copy_items(target, target_slot, source, slot, SLOT)
