"""The chunk table, and the compiled loop that cuts a sentence into chunks, looks each up, and writes its ids.

The table is a hash table with open addressing from chunks to their ids. A slot is four uint64, so a look-up of a common
chunk costs one cache line:

    LOW    the chunk's first eight bytes         of a chunk of over 16 bytes: the index of its bytes in long_keys
    HIGH   its next eight bytes                  of a chunk of over 16 bytes: their hash
    TAG    see below; 0 if the slot is free
    IDS    up to four ids of 16 bits             of more or wider ids: their index in long_ids << 32 | their number

    bits of a tag    0..15     16      17..19   20..23         24..31   32..63
                     length    INNER   count    the flags of   free     the limit of
                     in bytes          of ids   UNCOMMON                a FRAGILE chunk

INNER: the chunk continues a word and so gets no "▁". count: 0 if the ids are in long_ids.

Chunks are looked up in batches. A chunk is hashed as soon as its end is known, and the processor is asked for the
cache line of its slot. When 32 chunks or more are waiting, they are looked up one after another; by then their lines
have arrived. The loops are bound by the number of their instructions, so a batch lies in one array: several would
have more base addresses than there are registers, and each chunk would load them again. Its items are uint64:

    batch    the masks of hash_chunk, then for each chunk: LOW, HIGH and TAG of its slot, _HOME, _BEGIN

A new chunk is one that the table lacked; it is pending as long as it is in the table without ids; it is fresh if it is
still pending after learn_chunk, so that the model's library must be asked.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from functools import partial
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
    multiply_and_fold,
    pointer,
    prefetch,
    put,
    rarely,
    store_u64,
)
from albert_data.kernels.draws import GOLDEN, mix
from albert_data.text.utf8 import write_character
from albert_data.tokenizer.buffers import Sentences
from albert_data.tokenizer.chunks.cutting import BLOCK, CutRule, find_single, look_up_character, point_to_rule
from albert_data.tokenizer.chunks.lattice import ChunkIds, Lattice, encode_chunk, make_lattice, point_to_lattice
from albert_data.tokenizer.chunks.trie import LEAF, Trie, point_to_trie
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE

INLINE_IDS, INLINE_BYTES = 4, 16
SLOT = 4  # uint64 of a slot; a slot is known by the index of its first one
LOW, HIGH, TAG, IDS = range(SLOT)

LENGTH = U64((1 << 16) - 1)
IDENTITY = U64((1 << 17) - 1)  # the bits that two equal chunks share: length and INNER
INNER_SHIFT, COUNT_SHIFT, LIMIT_SHIFT = U64(16), U64(17), U64(32)
COUNT = U64(7)
LONG_IDS = U64(1 << 20)  # the ids are in long_ids
PENDING = U64(1 << 21)  # the ids are not known yet
UNKNOWN = U64(1 << 22)  # some of the chunk is unknown characters
FRAGILE = U64(1 << 23)  # rounding could decide, where the score of the sentence reaches the limit (lattice.find_limit)
UNCOMMON = LONG_IDS | PENDING | UNKNOWN | FRAGILE  # a chunk without these is common: write_common writes it
LONG_SHIFT, LONG_COUNT = U64(32), U64((1 << 32) - 1)
CERTAIN_LIMIT = 1 << 20  # chunks of this limit or a higher one are not fragile: hardly any sentence has such a score

NOT_DONE = -1  # in place of a sentence's number of ids: the table does not suffice
LONG_SENTENCE = 32768  # bytes; a longer one goes through SentencePiece, as the length of a chunk has 16 bits in its tag
MAX_LEARNT = 512  # bytes of normalised text; longer chunks are normalised by SentencePiece
# A safe bound on the characters that normalisation makes of one byte, each an unknown piece at worst. NFKC makes the
# most of U+FDFA: 18 of its 3 bytes.
_MAX_PIECES = 18

# A batch holds up to _BATCH - 1 chunks before a block, then one for each byte of the block, and the last of a sentence.
_BATCH = 32
_MAX_BATCH = _BATCH + BLOCK + 1
SPARE_IDS = INLINE_IDS * _MAX_BATCH  # spare capacity, for a batch whose chunks have as many ids as a slot holds
_ENTRY, _HOME, _BEGIN = 5, 3, 4  # items of a chunk in the batch; _HOME: its home slot, _BEGIN: its place in the text
_MASKS = [(1 << 8 * min(max(n - 8, 0), 8)) - 1 for n in range(INLINE_BYTES + 9)]  # keep n - 8 bytes of a uint64
_FIRST_ENTRY = len(_MASKS)
_FULL = _FIRST_ENTRY + _BATCH * _ENTRY

_NUM_CHUNKS, _NUM_KEY_BYTES, _NUM_LONG_IDS = range(3)  # indices of Table.counts
# Indices of EncodingScratch.state: the number of fresh chunks; and for the sentence, whether the table suffices so far,
# an upper bound of the number of its unknown pieces, and how many of its ids are in `score`.
_NUM_FRESH, _IS_DONE, _MAX_UNKNOWN, _NUM_SUMMED = range(4)

_1, _ID, _TWO_BYTES, _TWO_SPACES = U64(1), U64(0xFFFF), U64(0xFFFF), U64(0x2020)
_ALL_BITS = U64(2**64 - 1)
_HASH_SHIFT = U64(38)  # leaves 26 bits: more than the index of a slot has
_VISIBLE_SPACE = ord(VISIBLE_SPACE)


class Table(NamedTuple):
    """The table as Python has it."""

    slots: np.ndarray  # uint64, a power of two of slots, see above
    long_keys: np.ndarray  # uint8, the bytes of long chunks
    long_ids: np.ndarray  # int64
    counts: np.ndarray  # int64 [3], how many chunks there are, and items of long_keys and of long_ids


class TablePointers(NamedTuple):
    """The table as kernels have it."""

    slots: Pointer
    long_keys: Pointer
    long_ids: Pointer
    counts: Pointer
    max_slot: int  # the index of the last slot
    max_long_ids: int  # how many may be there
    max_chunks: int  # how many may be there


class ChunkKey(NamedTuple):
    """A chunk to look up: where it begins in the text, and the first three uint64 of its slot."""

    begin: int
    low: U64  # of a chunk of over INLINE_BYTES not used here, as its slot has an index there
    high: U64
    tag: U64


class ChunkRules(NamedTuple):
    """What chunks a text has, and their ids."""

    cuts: CutRule
    trie: Trie  # of a unigram model; of any other kind without pieces
    first_is_inner: int  # 1 if the first chunk of a sentence gets no "▁", like one that continues a word, else 0


class EncodingScratch(NamedTuple):
    """Scratch buffers."""

    batch: np.ndarray  # uint64, see above
    state: np.ndarray  # int64 [4], see _NUM_FRESH
    score: np.ndarray  # float64 [1], the magnitude of the summed scores of the first ids of the sentence
    text: np.ndarray  # uint8, for learn_chunk, as the rest: the normalised text of one chunk
    lattice: Lattice
    ids: np.ndarray  # int32


class EncodedSlice(NamedTuple):
    """What encode_sentences fills in for S sentences."""

    ids: np.ndarray  # uint16 or uint32, with a capacity of SPARE_IDS or more
    lengths: np.ndarray  # int64 [S], ids of each sentence, or NOT_DONE
    fresh: np.ndarray  # int64 [chunks, 3], of each fresh chunk its slot, begin and end


class Work(NamedTuple):
    """What the helpers of encode_sentences read and write."""

    text: Pointer
    cuts: Pointer
    table: TablePointers
    cut_rule: CutRule
    trie: Trie
    batch: Pointer
    state: Pointer
    score: Pointer
    learnt_text: Pointer  # of EncodingScratch, as the lattice and learnt_ids
    lattice: Lattice
    learnt_ids: Pointer
    ids: Pointer
    ids_capacity: int  # of ids
    fresh: Pointer


def make_encoding_scratch() -> EncodingScratch:
    batch = np.empty(_FIRST_ENTRY + _MAX_BATCH * _ENTRY, np.uint64)
    batch[:_FIRST_ENTRY] = _MASKS
    return EncodingScratch(
        batch=batch,
        state=np.zeros(4, np.int64),
        score=np.zeros(1),
        text=np.empty(MAX_LEARNT, np.uint8),
        lattice=make_lattice(MAX_LEARNT),
        ids=np.empty(MAX_LEARNT, np.int32),
    )


def make_slots(num_slots: int) -> np.ndarray:
    """Free slots, a power of two, in huge pages where the system has them.

    The memory is private: what a process writes after a fork stays in its own copy.
    """
    memory = mmap.mmap(-1, 8 * SLOT * num_slots, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(AttributeError, OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint64)


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


# ---- the loop ----


@kernel
def encode_sentences(
    sentences: Sentences, cuts: np.ndarray, rules: ChunkRules, table: Table, scratch: EncodingScratch, out: EncodedSlice
) -> tuple[int, int]:
    """Encode sentences with the table, and add the chunks that it lacks, as long as it has free slots.

    sentences: followed by PADDING bytes; cuts: those of mark_cuts. A sentence is NOT_DONE where the table
    does not suffice. Returns the number of ids and of fresh chunks.
    """
    work = point_to_work(sentences, cuts, rules, table, scratch, out)
    put(work.state, _NUM_FRESH, 0)
    filled = 0
    for sentence in range(len(sentences.begins)):
        begin, end, first, is_inner = sentences.begins[sentence], sentences.ends[sentence], filled, rules.first_is_inner
        if end - begin > LONG_SENTENCE:
            out.lengths[sentence] = NOT_DONE
            continue
        put(work.state, _IS_DONE, 1)
        put(work.state, _MAX_UNKNOWN, 0)
        put(work.state, _NUM_SUMMED, 0)
        at, batch_end = begin & -BLOCK, _FIRST_ENTRY
        # The cuts after the first byte. Two shifts, since one by 64 is undefined.
        bits = item(work.cuts, at >> 6) & (_ALL_BITS << _1) << U64(begin & 63)
        while at < end:
            if end - at < BLOCK:  # leave out the cuts of the next sentence
                bits &= ~(_ALL_BITS << U64(end - at))
            while bits != 0:
                cut = at + count_trailing_zeros(bits)
                bits &= bits - _1  # clears the lowest bit
                batch_end = hash_chunk(begin, cut, is_inner, batch_end, work)
                is_inner = I64(item(work.text, cut) != 32)  # after a space a chunk gets a "▁"
                begin = cut + 1 - is_inner  # a space is left out
                if rarely(load_u64(work.text, cut) & _TWO_BYTES == _TWO_SPACES):
                    while begin < end and item(work.text, begin) == 32:
                        begin += 1
            at += BLOCK
            if at < end:  # the sentence goes on
                bits = item(work.cuts, at >> 6)
                if batch_end < _FULL:
                    continue  # the batch grows over several blocks
            elif begin < end:  # its last chunk, unless it ends with a space
                batch_end = hash_chunk(begin, end, is_inner, batch_end, work)
            filled = look_up_batch(batch_end, first, filled, work)
            batch_end = _FIRST_ENTRY
        if is_exact(first, filled, work):
            out.lengths[sentence] = filled - first
        else:  # the next sentence overwrites its ids
            filled, out.lengths[sentence] = first, NOT_DONE
    return filled, item(work.state, _NUM_FRESH)


@helper
def point_to_work(
    sentences: Sentences, cuts: np.ndarray, rules: ChunkRules, table: Table, scratch: EncodingScratch, out: EncodedSlice
) -> Work:
    return Work(
        pointer(sentences.utf8),
        pointer(cuts),
        point_to_table(table),
        point_to_rule(rules.cuts),
        point_to_trie(rules.trie),
        pointer(scratch.batch),
        pointer(scratch.state),
        pointer(scratch.score),
        pointer(scratch.text),
        point_to_lattice(scratch.lattice),
        pointer(scratch.ids),
        pointer(out.ids),
        len(out.ids),
        pointer(out.fresh),
    )


@helper
def hash_chunk(begin: int, end: int, is_inner: int, entry: int, work: Work) -> int:
    """Append a chunk to the batch at index `entry`, and prefetch its slot. Returns the index of the next entry."""
    length = end - begin
    tag = U64(length) | U64(is_inner) << INNER_SHIFT
    if rarely(length > INLINE_BYTES):
        hashed = hash_long(work.text, begin, end, tag)
        low, high = _ALL_BITS, hashed  # low is no index in long_keys, so write_common leaves this chunk to find_slot
    else:
        # Masks[n] keeps n - 8 bytes, at least 0 and at most 8. "the" has 3: low keeps 3 of them, high none.
        low = load_u64(work.text, begin) & item(work.batch, length + 8)
        high = load_u64(work.text, begin + 8) & item(work.batch, length)
        hashed = hash_short(low, high, tag)
    slot = home_slot(hashed, work.table.max_slot)
    prefetch(work.table.slots, slot)
    put(work.batch, entry + LOW, low)
    put(work.batch, entry + HIGH, high)
    put(work.batch, entry + TAG, tag)
    put(work.batch, entry + _HOME, U64(slot))
    put(work.batch, entry + _BEGIN, U64(begin))
    return entry + _ENTRY


@partial(helper, inline=True)  # a call would push 30 arguments for each sentence
def look_up_batch(batch_end: int, first: int, filled: int, work: Work) -> int:
    """Write the ids of the chunks of a batch, and add those that the table lacks."""
    batch, table, entry = work.batch, work.table, _FIRST_ENTRY
    while entry < batch_end:
        has_capacity = filled <= work.ids_capacity - SPARE_IDS  # then no store of this batch needs a check
        if has_capacity:
            entry, filled = write_common(entry, batch_end, filled, work)
            if entry == batch_end:
                break
        # A chunk that is not common, not in its home slot, or not in the table.
        begin = I64(item(batch, entry + _BEGIN))
        key = ChunkKey(begin, item(batch, entry + LOW), item(batch, entry + HIGH), item(batch, entry + TAG))
        slot = find_slot(work.text, key, I64(item(batch, entry + _HOME)), table)
        if rarely(item(table.slots, slot + TAG) == 0) and item(table.counts, _NUM_CHUNKS) < table.max_chunks:
            add_new_chunk(key, slot, work)
        tag = item(table.slots, slot + TAG)
        if has_capacity and tag != 0 and tag & UNCOMMON == 0:  # a common chunk, but not in its home slot
            filled = copy_ids(slot, tag, filled, work)
        else:
            filled = write_ids(slot, first, filled, work)
        entry += _ENTRY
    return filled


@helper
def write_common(entry: int, batch_end: int, filled: int, work: Work) -> tuple[int, int]:
    """Write the ids of chunks up to the first that is not common or not in its home slot.

    Returns the entry of that chunk, or `batch_end`, and the index after the ids.
    """
    while entry < batch_end:
        slot = I64(item(work.batch, entry + _HOME))
        tag = item(work.table.slots, slot + TAG)
        # One branch for four comparisons: all differences are joined by OR. The tag in the entry has no flags,
        # so each flag of the slot is a difference.
        unlike = (tag ^ item(work.batch, entry + TAG)) & (IDENTITY | UNCOMMON)
        unlike |= item(work.table.slots, slot + LOW) ^ item(work.batch, entry + LOW)
        unlike |= item(work.table.slots, slot + HIGH) ^ item(work.batch, entry + HIGH)
        if unlike != 0:
            break
        filled = copy_ids(slot, tag, filled, work)
        entry += _ENTRY
    return entry, filled


@helper
def copy_ids(slot: int, tag: U64, filled: int, work: Work) -> int:
    """Write the ids of a slot without flags: always four of 16 bits. The next store replaces the surplus."""
    store_u64(work.ids, filled, item(work.table.slots, slot + IDS))
    next_index: int = filled + I64((tag >> COUNT_SHIFT) & COUNT)
    return next_index


@helper
def add_new_chunk(key: ChunkKey, slot: int, work: Work) -> None:
    """Put a chunk into a free slot; it becomes fresh if its ids can't be found here."""
    table, length, low = work.table, I64(key.tag & LENGTH), key.low
    if length > INLINE_BYTES:
        first = item(table.counts, _NUM_KEY_BYTES)
        for i in range(length):
            put(table.long_keys, first + i, item(work.text, key.begin + i))
        put(table.counts, _NUM_KEY_BYTES, first + length)
        low = U64(first)  # the slot holds the index instead of the bytes
    put(table.slots, slot + LOW, low)
    put(table.slots, slot + HIGH, key.high)
    put(table.slots, slot + TAG, key.tag | PENDING)
    put(table.counts, _NUM_CHUNKS, item(table.counts, _NUM_CHUNKS) + 1)
    if work.trie.settings.root != LEAF:
        learn_chunk(key, slot, work)
    if item(table.slots, slot + TAG) & PENDING:
        num_fresh = item(work.state, _NUM_FRESH)
        put(work.fresh, 3 * num_fresh, slot)
        put(work.fresh, 3 * num_fresh + 1, key.begin)
        put(work.fresh, 3 * num_fresh + 2, key.begin + length)
        put(work.state, _NUM_FRESH, num_fresh + 1)


@helper
def learn_chunk(key: ChunkKey, slot: int, work: Work) -> None:
    """Find the ids of a pending chunk of a unigram model.

    It stays pending if it is long, or if some character is not normalised to exactly one, independently of its
    neighbours. Then SentencePiece's normaliser is asked (encoder.py).
    """
    filled, position, end = 0, key.begin, key.begin + I64(key.tag & LENGTH)
    if (key.tag >> INNER_SHIFT) & _1 == 0:
        filled = write_character(work.learnt_text, 0, _VISIBLE_SPACE)  # the chunk does not continue a word
    while position < end:
        character, position = look_up_character(work.text, position, work.cut_rule.characters)
        code = find_single(character)
        if code == 0 or filled + 3 > MAX_LEARNT:  # a character of the basic plane has up to 3 bytes
            return
        filled = write_character(work.learnt_text, filled, code)
    count, limit = encode_chunk(work.learnt_text, filled, work.trie, work.lattice, work.learnt_ids)
    store_chunk(slot, work.learnt_ids, count, limit, work.table, work.trie)


@helper
def write_ids(slot: int, first: int, filled: int, work: Work) -> int:
    """Write the ids of any chunk, and record what they mean for its sentence, whose ids begin at index `first`."""
    table, ids, unk_id = work.table, work.ids, work.trie.settings.unk_id
    tag, packed = item(table.slots, slot + TAG), item(table.slots, slot + IDS)
    num_ids = I64(packed & LONG_COUNT) if tag & LONG_IDS else I64((tag >> COUNT_SHIFT) & COUNT)
    if tag == 0 or tag & PENDING or filled + num_ids > work.ids_capacity:  # 0: the table is full
        put(work.state, _IS_DONE, 0)
        return filled
    if tag & UNKNOWN:
        put(work.state, _MAX_UNKNOWN, item(work.state, _MAX_UNKNOWN) + _MAX_PIECES * I64(tag & LENGTH))
    for i in range(num_ids):
        if tag & LONG_IDS:
            one = item(table.long_ids, I64(packed >> LONG_SHIFT) + i)
        else:
            one = I64((packed >> U64(16 * i)) & _ID)
        if one != unk_id or filled == first or item(ids, filled - 1) != unk_id:  # unknown ids in a row become one
            put(ids, filled, one)
            filled += 1
    if tag & FRAGILE and bound_score(first, filled, work) >= I64(tag >> LIMIT_SHIFT):
        put(work.state, _IS_DONE, 0)
    return filled


@helper
def bound_score(first: int, filled: int, work: Work) -> float:
    """An upper bound of the magnitude of the score of a sentence so far, and of any part of it.

    One unknown id may stand for several unknown pieces. So scores[unk_id] is 0, and unknown_score is counted for as
    many unknown pieces as there can be at most.
    """
    trie, num_summed = work.trie, item(work.state, _NUM_SUMMED)
    total = item(work.score, 0) if num_summed else 0.0
    for i in range(first + num_summed, filled):
        total += abs(item(trie.scores, I64(item(work.ids, i))))
    # Each id is added once, although each fragile chunk of the sentence asks for the bound.
    put(work.state, _NUM_SUMMED, filled - first)
    put(work.score, 0, total)
    # The bound has to hold for every part of the sentence too. Scores of both signs cancel each other out in the sum of
    # the whole, and a part may have a larger sum. So absolute values are summed.
    bound: float = total + item(work.state, _MAX_UNKNOWN) * abs(trie.settings.unknown_score)
    return bound


@helper
def is_exact(first: int, filled: int, work: Work) -> bool:
    """Whether the ids of a sentence are known and certain to be SentencePiece's.

    Chunks that are not marked fragile are certain for scores up to CERTAIN_LIMIT. A sentence of LONG_SENTENCE bytes
    reaches that only if much of it is unknown. The bound here is rougher than bound_score, and costs no loop.
    """
    trie = work.trie.settings
    bound = (filled - first) * trie.max_score + item(work.state, _MAX_UNKNOWN) * abs(trie.unknown_score)
    return item(work.state, _IS_DONE) != 0 and not (trie.root != LEAF and bound > CERTAIN_LIMIT)


# ---- the table ----


@helper
def hash_short(low: U64, high: U64, tag: U64) -> U64:
    """The hash of a chunk of up to INLINE_BYTES."""
    return multiply_and_fold(low ^ GOLDEN, high ^ tag ^ GOLDEN)


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
def store_chunk(slot: int, ids: Pointer, count: int, limit: int, table: TablePointers, trie: Trie) -> None:
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
        if first + count > table.max_long_ids:
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


@kernel
def fill_in(ids: np.ndarray, lengths: np.ndarray, other_ids: np.ndarray, other_lengths: np.ndarray) -> np.ndarray:
    """Insert the ids of other sentences where sentences are NOT_DONE, in order; fills in their lengths."""
    out = np.empty(len(ids) + len(other_ids), ids.dtype)
    target, own, others = pointer(out), pointer(ids), pointer(other_ids)
    own_index, other_index, other, filled = 0, 0, 0, 0
    for i in range(len(lengths)):
        if lengths[i] == NOT_DONE:
            length = lengths[i] = other_lengths[other]
            copy_items(target, filled, others, other_index, length)
            other_index, other = other_index + length, other + 1
        else:
            length = lengths[i]
            copy_items(target, filled, own, own_index, length)
            own_index += length
        filled += length
    return out
