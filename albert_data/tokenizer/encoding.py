"""The compiled loop of the tokenizer: cut a sentence into chunks, look each up, write its ids.

Chunks are looked up in batches. A chunk is hashed as soon as its end is known, and the processor is asked for the cache
line of its slot. When 32 chunks or more are waiting, they are looked up one after another; by then their lines have
arrived. The loops are bound by the number of their instructions, so a batch lies in one array: several would have more
base addresses than there are registers, and each chunk would load them again.
"""

from __future__ import annotations

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
    pointer,
    prefetch,
    put,
    rarely,
    store_u64,
)
from albert_data.tokenizer.buffers import Sentences
from albert_data.tokenizer.cutting import BLOCK
from albert_data.tokenizer.table import (
    CERTAIN_LIMIT,
    COUNT,
    COUNT_SHIFT,
    FRAGILE,
    HIGH,
    IDENTITY,
    IDS,
    INLINE_BYTES,
    INLINE_IDS,
    INNER_SHIFT,
    LENGTH,
    LIMIT_SHIFT,
    LONG_COUNT,
    LONG_IDS,
    LONG_SHIFT,
    LOW,
    PENDING,
    TAG,
    UNCOMMON,
    UNKNOWN,
    ChunkKey,
    ChunkRulePointers,
    ChunkRules,
    LearningPointers,
    LearningScratch,
    Table,
    TablePointers,
    add_chunk,
    find_slot,
    hash_long,
    hash_short,
    home_slot,
    is_full,
    learn_chunk,
    make_learning_scratch,
    point_to_learning,
    point_to_rules,
    point_to_table,
)
from albert_data.tokenizer.trie import LEAF

NOT_DONE = -1
LONG_SENTENCE = 32768  # bytes; a longer one goes through SentencePiece, as the length of a chunk has 16 bits in its tag
# A safe bound on the characters that normalisation makes of one byte, each an unknown piece at worst. NFKC makes the
# most of U+FDFA: 18 of its 3 bytes.
_MAX_PIECES = 18
_1, _ALL_BITS, _ID, _TWO_BYTES, _TWO_SPACES = U64(1), U64(2**64 - 1), U64(0xFFFF), U64(0xFFFF), U64(0x2020)

# A batch holds up to _BATCH - 1 chunks before a block, then one for each byte of the block, and the last of a sentence.
_BATCH = 32
_MAX_BATCH = _BATCH + BLOCK + 1
SPARE_IDS = INLINE_IDS * _MAX_BATCH  # spare capacity, for a batch whose chunks have as many ids as a slot holds

# The array of a batch: the masks of hash_chunk, then an entry for each chunk: the first three uint64 of its slot, its
# home slot, and where it begins.
_ENTRY, _HOME, _BEGIN = 5, 3, 4
_MASKS = [(1 << 8 * min(max(n - 8, 0), 8)) - 1 for n in range(INLINE_BYTES + 9)]  # keep n - 8 bytes of a uint64
_FIRST_ENTRY = len(_MASKS)
_FULL = _FIRST_ENTRY + _BATCH * _ENTRY

# Indices of EncodingScratch.state: the number of fresh chunks; and for the sentence, whether the table suffices so far,
# an upper bound of the number of its unknown pieces, and how many of its ids are in `score`.
_NUM_FRESH, _IS_DONE, _MAX_UNKNOWN, _NUM_SUMMED = range(4)


class EncodingScratch(NamedTuple):
    """Scratch buffers. batch: uint64, see above; state: int64, see above; score: float64, of one item: the magnitude of
    the summed scores of the first ids of the sentence.
    """

    batch: np.ndarray
    learning: LearningScratch
    state: np.ndarray
    score: np.ndarray


class Output(NamedTuple):
    """Filled in by encode_sentences.

    ids: uint16 or uint32, with a capacity of SPARE_IDS or more; lengths: int64, ids of each sentence, or NOT_DONE;
    fresh: int64, a row for each fresh chunk: its slot, begin and end.

    A new chunk is one that the table lacked; it is pending as long as it is in the table without ids; it is fresh if it
    is still pending after learn_chunk, so that SentencePiece must be asked.
    """

    ids: np.ndarray
    lengths: np.ndarray
    fresh: np.ndarray


class Work(NamedTuple):
    """What the helpers of encode_sentences read and write. ids_capacity: of ids."""

    text: Pointer
    cuts: Pointer
    table: TablePointers
    rules: ChunkRulePointers
    batch: Pointer
    learning: LearningPointers
    state: Pointer
    score: Pointer
    ids: Pointer
    ids_capacity: int
    fresh: Pointer


def make_encoding_scratch() -> EncodingScratch:
    batch = np.empty(_FIRST_ENTRY + _MAX_BATCH * _ENTRY, np.uint64)
    batch[:_FIRST_ENTRY] = _MASKS
    return EncodingScratch(batch, make_learning_scratch(), np.zeros(4, np.int64), np.zeros(1))


@kernel
def encode_sentences(
    sentences: Sentences, cuts: np.ndarray, rules: ChunkRules, table: Table, scratch: EncodingScratch, out: Output
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
                    begin = skip_spaces(work.text, begin, end)
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
    sentences: Sentences, cuts: np.ndarray, rules: ChunkRules, table: Table, scratch: EncodingScratch, out: Output
) -> Work:
    return Work(
        pointer(sentences.utf8),
        pointer(cuts),
        point_to_table(table),
        point_to_rules(rules),
        pointer(scratch.batch),
        point_to_learning(scratch.learning),
        pointer(scratch.state),
        pointer(scratch.score),
        pointer(out.ids),
        len(out.ids),
        pointer(out.fresh),
    )


@helper
def skip_spaces(utf8: Pointer, position: int, end: int) -> int:
    while position < end and item(utf8, position) == 32:
        position += 1
    return position


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
        if rarely(item(table.slots, slot + TAG) == 0) and not is_full(table):
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
    """Add a chunk to the table; it becomes fresh if its ids can't be found here."""
    table = work.table
    add_chunk(work.text, key, slot, table)
    if work.rules.trie.settings.root != LEAF:  # the trie of a BPE model is empty
        learn_chunk(work.text, key.begin, slot, table, work.rules, work.learning)
    if item(table.slots, slot + TAG) & PENDING:
        num_fresh = item(work.state, _NUM_FRESH)
        put(work.fresh, 3 * num_fresh, slot)
        put(work.fresh, 3 * num_fresh + 1, key.begin)
        put(work.fresh, 3 * num_fresh + 2, key.begin + I64(key.tag & LENGTH))
        put(work.state, _NUM_FRESH, num_fresh + 1)


@helper
def write_ids(slot: int, first: int, filled: int, work: Work) -> int:
    """Write the ids of any chunk, and record what they mean for its sentence, whose ids begin at index `first`."""
    table, ids, unk_id = work.table, work.ids, work.rules.trie.settings.unk_id
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
    trie, num_summed = work.rules.trie, item(work.state, _NUM_SUMMED)
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
    trie = work.rules.trie.settings
    bound = (filled - first) * trie.max_score + item(work.state, _MAX_UNKNOWN) * abs(trie.unknown_score)
    return item(work.state, _IS_DONE) != 0 and not (trie.root != LEAF and bound > CERTAIN_LIMIT)


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
