"""The compiled loop of the tokenizer: cut a sentence into chunks, look each up, write its ids.

A slot is four uint64: the first and the next eight bytes of the chunk, its tag, and its ids, four of 16 bits.
So a common chunk costs one cache line. A chunk of over 16 bytes keeps its bytes in `long_keys` and has there, in
the slot, its place and its hash; more or wider ids stand in `long_ids`, and the slot has their place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from albert_data.draws import mix
from albert_data.kernels import (
    Int,
    Pointer,
    Word,
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
from albert_data.tokenizer.lattice import (
    Lattice,
    Trie,
    make_lattice,
    point_to_lattice,
    point_to_trie,
    segment_chunk,
)

PADDING = 24  # bytes that can be read behind the text
INLINE_IDS, INLINE_BYTES = 4, 16
PAIR_BYTES = 1 << 18
NOT_DONE = -1
_MAX_LEARNT = 512  # bytes of normalised text that the trie is asked for; more goes through SentencePiece's normaliser
_BATCH = 32  # chunks that are hashed before the first is looked up, so that their cache lines come meanwhile
LONG_SENTENCE = 32768  # bytes; a longer one goes through SentencePiece

# A tag: the chunk's length in bytes, whether it goes on a word, the number of ids in the slot, and what is odd.
_IDENTITY = Word((1 << 17) - 1)
INNER_SHIFT, _COUNT_SHIFT = Word(16), Word(17)
_COUNT = Word(7)
_LONG_IDS = Word(1 << 20)  # ids are in long_ids
_WHOLE = Word(1 << 21)  # SentencePiece must see the whole sentence
_PENDING = Word(1 << 22)  # ids are not known yet
_UNKNOWN = Word(1 << 23)  # some of it is unknown characters
_FRAGILE = Word(1 << 24)  # rounding could decide in a sentence whose score is over 2 ** (the bits above)
_ODD = _LONG_IDS | _WHOLE | _PENDING | _UNKNOWN | _FRAGILE
_LIMIT_SHIFT, _LIMIT = Word(25), Word(31)
STURDY = 20  # log2 of a score that no sentence of LONG_SENTENCE reaches but by unknown characters
_MAX_PIECES = 18  # of a character: U+FDFA is normalised to so many characters

# Flags of a character: a cut may be made before it; after it, in a word; after it, at a space; before it, and it
# is ASCII; it is normalised to itself.
BEFORE, AFTER, SOLID, ASCII_BEFORE, PLAIN = 1, 2, 4, 8, 16
_WORTH = 0x0E00  # Thai and all after it, and ASCII but letters: elsewhere letters make words between spaces

_0, _1, _16, _29, _40, _61 = (Word(n) for n in (0, 1, 16, 29, 40, 61))
_ALL = Word(0xFFFFFFFFFFFFFFFF)
_HIGH, _LOW7 = Word(0x8080808080808080), Word(0x7F7F7F7F7F7F7F7F)
_CASE, _FROM_A, _BEYOND_Z = (Word(byte * 0x0101010101010101) for byte in (0x20, 0x1F, 0x05))
_HASH_A, _HASH_B = Word(0x9E3779B97F4A7C15), Word(0xC2B2AE3D27D4EB4F)
_ID, _BYTE = Word(0xFFFF), Word(0xFF)


class CutRule(NamedTuple):
    """Where a word may be cut: arrays over the characters of the basic plane, and over pairs of them.

    flags: uint8, of the above; first, last: uint16, the first and last character of what one is normalised to;
    pairs: uint8, the neighbours in some piece, and a few more (`may_be_pair`);
    ascii_cuts: uint8, left << 7 | right. In kernels, pointers to all of these.
    """

    flags: np.ndarray
    first: np.ndarray
    last: np.ndarray
    pairs: np.ndarray
    ascii_cuts: np.ndarray


class Table(NamedTuple):
    """The chunks. counts: int64, of chunks, of bytes in long_keys, of ids in long_ids."""

    slots: np.ndarray
    long_keys: np.ndarray
    long_ids: np.ndarray
    counts: np.ndarray


class Desk(NamedTuple):
    """Room to work in: for the ids of one chunk, its lattice, normalised text and ids; and a batch of chunks.

    A batch is hashed and not looked up yet. starts: int64, where each begins; homes: int64, the slot to begin
    looking at; words: uint64 [3, _BATCH], the first three of its slot.
    """

    lattice: Lattice
    text: np.ndarray
    ids: np.ndarray
    starts: np.ndarray
    homes: np.ndarray
    words: np.ndarray


def make_desk() -> Desk:
    return Desk(
        lattice=make_lattice(_MAX_LEARNT),
        text=np.empty(_MAX_LEARNT, np.uint8),
        ids=np.empty(_MAX_LEARNT, np.int32),
        starts=np.empty(_BATCH, np.int64),
        homes=np.empty(_BATCH, np.int64),
        words=np.empty((3, _BATCH), np.uint64),
    )


@helper
def point_to_rule(rule: CutRule) -> CutRule:
    return CutRule(
        pointer(rule.flags), pointer(rule.first), pointer(rule.last), pointer(rule.pairs), pointer(rule.ascii_cuts)
    )


@helper
def point_to_desk(desk: Desk) -> Desk:
    return Desk(
        point_to_lattice(desk.lattice),
        pointer(desk.text),
        pointer(desk.ids),
        pointer(desk.starts),
        pointer(desk.homes),
        pointer(desk.words),
    )


@helper
def point_to_table(table: Table) -> Table:
    return Table(pointer(table.slots), pointer(table.long_keys), pointer(table.long_ids), pointer(table.counts))


@helper
def decode_character(utf8: Pointer, at: int) -> tuple[int, int]:
    """A character's code, 0 beyond the basic plane, and its width in bytes."""
    byte = Int(item(utf8, at))
    if byte < 0x80:
        return byte, 1
    second = Int(item(utf8, at + 1)) & 0x3F
    if byte < 0xE0:
        return (byte & 0x1F) << 6 | second, 2
    if byte < 0xF0:
        return (byte & 0x0F) << 12 | second << 6 | (Int(item(utf8, at + 2)) & 0x3F), 3
    return 0, 4


@helper
def may_be_pair(pairs: Pointer, first: int, second: int) -> bool:
    """Whether some piece may hold these two characters side by side. If not, none does."""
    value = (Word(first) << _16 | Word(second)) * _HASH_A
    return bool(item(pairs, Int(value >> _40) & (PAIR_BYTES - 1)) >> Word(value >> _61) & _1)


@kernel
def mark_pairs(pairs: np.ndarray, marks: np.ndarray) -> np.ndarray:
    """Mark pairs (uint32, first << 16 | second) in a Bloom filter of one hash (uint8, PAIR_BYTES)."""
    for pair in pairs:
        value = Word(pair) * _HASH_A
        marks[Int(value >> _40) & (PAIR_BYTES - 1)] |= 1 << Int(value >> _61)
    return marks


@helper
def can_cut(left: int, right: int, rule: CutRule) -> bool:
    """Whether a word may be cut between two characters, and is worth it."""
    if left < 128 and right < 128:
        return bool(item(rule.ascii_cuts, left << 7 | right))
    if 128 <= left < _WORTH and 128 <= right < _WORTH:
        return False
    left_flags, right_flags = item(rule.flags, left), item(rule.flags, right)
    if left_flags & AFTER == 0 or right_flags & BEFORE == 0:
        return False
    if left_flags & PLAIN == 0:
        left = Int(item(rule.last, left))
    if right_flags & PLAIN == 0:
        right = Int(item(rule.first, right))
    return not may_be_pair(rule.pairs, left, right)


@helper
def count_letters(word: Word) -> int:
    """How many of eight bytes are ASCII letters, up to the first that is none."""
    folded = (word & _LOW7) | _CASE
    letters = ((folded + _FROM_A) ^ (folded + _BEYOND_Z)) & ~word & _HIGH
    return int(count_trailing_zeros(letters ^ _HIGH) >> 3)


@helper
def find_cut(utf8: Pointer, begin: int, end: int, rule: CutRule) -> tuple[int, int, Word]:
    """Where the chunk that begins at `begin` ends, where the next begins, and whether that goes on the word (1)."""
    at, previous = begin, 0
    while at < end:
        count = 0
        if item(utf8, at) < 128:
            count = min(count_letters(load_word(utf8, at)), end - at)
        if count > 0:
            code = Int(item(utf8, at))
            if previous != 0 and can_cut(previous, code, rule):
                return at, at, _1
            at += count
            previous = Int(item(utf8, at - 1))
        elif item(utf8, at) == 32:
            behind = at + 1
            while behind < end and item(utf8, behind) == 32:
                behind += 1
            if behind < end and item(rule.flags, previous) & SOLID:
                code, _ = decode_character(utf8, behind)
                if item(rule.flags, code) & BEFORE:
                    return at, behind, _0
            previous, at = 32, behind
        else:
            code, width = decode_character(utf8, at)
            if previous != 0 and can_cut(previous, code, rule):
                return at, at, _1
            previous = code
            at += width
    return end, end, _0


@helper
def find_common_cut(utf8: Pointer, begin: int, end: int, rule: CutRule) -> tuple[int, int, Word]:
    """The same, for up to seven ASCII letters or one other ASCII character; it ends at 0 where it is not so."""
    word = load_word(utf8, begin)
    head = Int(word & _BYTE)
    at = begin + max(count_letters(word), 1)
    if head >= 128 or head == 32 or at - begin > 7:
        return 0, 0, _0
    if at >= end:
        return end, end, _0
    left, right = Int(item(utf8, at - 1)), Int(item(utf8, at))
    if right == 32:
        if at + 1 < end and item(rule.flags, left) & SOLID and item(rule.flags, Int(item(utf8, at + 1))) & ASCII_BEFORE:
            return at, at + 1, _0
    elif right < 128 and item(rule.ascii_cuts, left << 7 | right):
        return at, at, _1
    return 0, 0, _0


@helper
def hash_short(low: Word, tag: Word) -> Word:
    return (low ^ tag) * _HASH_A


@helper
def hash_middle(low: Word, high: Word, tag: Word) -> Word:
    value = (((low ^ tag) * _HASH_A) ^ high) * _HASH_B
    return (value ^ value >> _29) * _HASH_A


@helper
def hash_long(utf8: Pointer, begin: int, end: int, tag: Word) -> Word:
    value = tag
    for at in range(begin, end, 8):
        word = load_word(utf8, at)
        if end - at < 8:
            word &= ~(_ALL << Word(8 * (end - at)))
        value = mix(value ^ word)
    return value


@helper
def same_bytes(a: Pointer, a_begin: int, b: Pointer, b_begin: int, length: int) -> bool:
    i = 0
    while i < length and item(a, a_begin + i) == item(b, b_begin + i):
        i += 1
    return i == length


@helper
def hash_chunks(
    utf8: Pointer, begin: int, end: int, inner: Word, rule: CutRule, slots: Pointer, mask: int, desk: Desk
) -> tuple[int, int, Word]:
    """Cut and hash chunks up to `end`, no more than _BATCH, and ask for their slots.

    Returns how many, where the next begins, and whether that goes on a word.
    """
    count = 0
    while begin < end and count < _BATCH:
        at, next_begin, next_inner = find_common_cut(utf8, begin, end, rule)
        if at == 0:
            at, next_begin, next_inner = find_cut(utf8, begin, end, rule)
        length = at - begin
        tag = Word(length) | inner << INNER_SHIFT
        low, high = load_word(utf8, begin), _0
        if length < 8:
            low &= ~(_ALL << Word(8 * length))
            value = hash_short(low, tag)
        elif length <= INLINE_BYTES:
            if length > 8:
                high = load_word(utf8, begin + 8) & (_ALL >> Word(8 * (INLINE_BYTES - length)))
            value = hash_middle(low, high, tag)
        else:
            value = hash_long(utf8, begin, at, tag)
            high = value
        slot = 4 * (Int(value >> _40) & mask)
        prefetch(slots, slot)
        put(desk.starts, count, begin)
        put(desk.homes, count, slot)
        put(desk.words, count, low)
        put(desk.words, _BATCH + count, high)
        put(desk.words, 2 * _BATCH + count, tag)
        begin, inner = next_begin, next_inner
        count += 1
    return count, begin, inner


@helper
def find_slot(utf8: Pointer, begin: int, low: Word, high: Word, tag: Word, slot: int, table: Table, mask: int) -> int:
    """The slot of a chunk: where it stands or would."""
    length = Int(tag & _ID)
    while item(table.slots, slot + 2) != 0:
        if (item(table.slots, slot + 2) & _IDENTITY) == tag and item(table.slots, slot + 1) == high:
            low_there = item(table.slots, slot)
            if length <= INLINE_BYTES:
                if low_there == low:
                    break
            elif same_bytes(utf8, begin, table.long_keys, Int(low_there), length):
                break
        slot = (slot + 4) & (4 * mask + 3)
    return slot


@kernel
def encode_sentences(
    utf8: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
    rule: CutRule,
    table: Table,
    trie: Trie,
    desk: Desk,
    max_chunks: int,
    ids: np.ndarray,
    lengths: np.ndarray,
    fresh: np.ndarray,
) -> tuple[int, int]:
    """Encode sentences by the table, and add the chunks that it lacks, up to max_chunks in all.

    utf8: uint8, with PADDING bytes behind the last end; begins, ends: int64, of sentences. Writes their ids
    and how many each has, NOT_DONE where the table can't do it. A new chunk whose ids the trie can't tell is left
    pending; its slot, begin and end go into `fresh` (int64, a row a chunk). Returns the number of ids and of those.
    """
    text, out, slots, mask = pointer(utf8), pointer(ids), pointer(table.slots), len(table.slots) // 4 - 1
    places, cut_rule, pieces = point_to_table(table), point_to_rule(rule), point_to_trie(trie)
    starts, homes, words, room = desk.starts, desk.homes, desk.words, point_to_desk(desk)
    can_learn, max_ids = len(trie.children) > 0, len(ids) - INLINE_IDS
    filled, num_fresh = 0, 0
    for sentence in range(len(begins)):
        begin, end, sentence_first = begins[sentence], ends[sentence], filled
        is_done, inner, limit, num_unknown = end - begin <= LONG_SENTENCE, _0, STURDY, 0
        if not is_done:
            begin = end
        while begin < end:
            count, begin, inner = hash_chunks(text, begin, end, inner, cut_rule, slots, mask, room)
            for i in range(count):
                tag = words[2, i]
                slot = find_slot(text, starts[i], words[0, i], words[1, i], tag, homes[i], places, mask)
                there = item(slots, slot + 2)
                if there == 0:
                    length = Int(tag & _ID)
                    if item(places.counts, 0) == max_chunks:
                        is_done = False
                        continue
                    add_chunk(text, starts[i], words[0, i], words[1, i], tag, slot, places)
                    if can_learn:
                        learn_chunk(text, starts[i], slot, places, len(table.long_ids), cut_rule, pieces, room)
                    there = item(slots, slot + 2)
                    if there & _PENDING:
                        fresh[num_fresh, 0], fresh[num_fresh, 1], fresh[num_fresh, 2] = (
                            slot,
                            starts[i],
                            starts[i] + length,
                        )
                        num_fresh += 1
                if there & _ODD == 0 and filled <= max_ids:
                    store_word(out, filled, item(slots, slot + 3))
                    filled += Int((there >> _COUNT_SHIFT) & _COUNT)
                    continue
                chunk_ids, source = item(slots, slot + 3), -1
                num_ids = Int((there >> _COUNT_SHIFT) & _COUNT)
                if there & _LONG_IDS:
                    source, num_ids = Int(chunk_ids >> _16), Int(chunk_ids & _ID)
                if there & (_PENDING | _WHOLE) or filled + num_ids > len(ids):
                    is_done = False
                    continue
                if there & _FRAGILE:
                    limit = min(limit, Int((there >> _LIMIT_SHIFT) & _LIMIT))
                if there & _UNKNOWN:
                    num_unknown += _MAX_PIECES * Int(tag & _ID)
                for k in range(num_ids):
                    one = item(places.long_ids, source + k) if source >= 0 else Int((chunk_ids >> Word(16 * k)) & _ID)
                    if one != trie.unk_id or filled == sentence_first or ids[filled - 1] != trie.unk_id:
                        ids[filled] = one
                        filled += 1
        score = (filled - sentence_first) * trie.max_score - num_unknown * trie.unknown_score
        if can_learn and score > 1 << limit:
            is_done = False
        lengths[sentence] = filled - sentence_first if is_done else NOT_DONE
        if not is_done:
            filled = sentence_first
    return filled, num_fresh


@helper
def add_chunk(utf8: Pointer, begin: int, low: Word, high: Word, tag: Word, slot: int, table: Table) -> None:
    """Put a chunk into a slot, pending."""
    length, key = Int(tag & _ID), item(table.counts, 1)
    if length > INLINE_BYTES:
        for i in range(length):
            put(table.long_keys, key + i, item(utf8, begin + i))
        put(table.counts, 1, key + length)
        low = Word(key)
    put(table.slots, slot, low)
    put(table.slots, slot + 1, high)
    put(table.slots, slot + 2, tag | _PENDING)
    put(table.counts, 0, item(table.counts, 0) + 1)


@helper
def learn_chunk(
    utf8: Pointer, begin: int, slot: int, table: Table, max_long_ids: int, rule: CutRule, trie: Trie, desk: Desk
) -> None:
    """Find the ids of a pending chunk, if normalisation leaves it as it is."""
    tag = item(table.slots, slot + 2)
    length, filled = Int(tag & _ID), 0
    if length + 3 > _MAX_LEARNT:
        return
    if (tag >> INNER_SHIFT) & _1 == 0:
        put(desk.text, 0, np.uint8(0xE2))
        put(desk.text, 1, np.uint8(0x96))
        put(desk.text, 2, np.uint8(0x81))
        filled = 3
    at = begin
    while at < begin + length:
        code, width = decode_character(utf8, at)
        if item(rule.flags, code) & (PLAIN | BEFORE) != PLAIN | BEFORE:
            return
        for _ in range(width):
            put(desk.text, filled, item(utf8, at))
            filled, at = filled + 1, at + 1
    count, limit = segment_chunk(desk.text, filled, trie, desk.lattice, desk.ids)
    store_chunk(slot, desk.ids, count, limit, table, max_long_ids, trie)


@helper
def store_chunk(slot: int, ids: Pointer, count: int, limit: int, table: Table, max_long_ids: int, trie: Trie) -> None:
    """Give a pending chunk its ids (int32), if there is room for them. limit: see lattice.find_limit."""
    tag = item(table.slots, slot + 2) & _IDENTITY
    if limit < STURDY:
        tag |= _FRAGILE | Word(limit) << _LIMIT_SHIFT
    for i in range(count):
        if item(ids, i) == trie.unk_id:
            tag |= _UNKNOWN
    if count <= INLINE_IDS and not trie.is_wide:
        value = _0
        for i in range(count):
            value |= Word(item(ids, i)) << Word(16 * i)
        put(table.slots, slot + 3, value)
        tag |= Word(count) << _COUNT_SHIFT
    else:
        first = item(table.counts, 2)
        if first + count > max_long_ids:
            return
        for i in range(count):
            put(table.long_ids, first + i, item(ids, i))
        put(table.counts, 2, first + count)
        put(table.slots, slot + 3, Word(first) << _16 | Word(count))
        tag |= _LONG_IDS
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
    """An empty table of `size` slots, a power of two. Filled, not zeroed: NumPy asks for huge pages then only."""
    slots = np.empty(4 * size, np.uint64)
    slots.fill(0)
    return slots


@kernel
def copy_slots(slots: np.ndarray, grown: np.ndarray) -> None:
    """Put the chunks into a larger table, which is empty."""
    size = len(grown) // 4
    for slot in range(0, len(slots), 4):
        tag = slots[slot + 2]
        if tag == 0:
            continue
        length, identity = Int(tag & Word(0xFFFF)), tag & _IDENTITY
        low, high = slots[slot], slots[slot + 1]
        if length < 8:
            value = hash_short(low, identity)
        elif length <= INLINE_BYTES:
            value = hash_middle(low, high, identity)
        else:
            value = high
        target = 4 * (Int(value >> _40) & (size - 1))
        while grown[target + 2] != 0:
            target = (target + 4) & (4 * size - 1)
        grown[target : target + 4] = slots[slot : slot + 4]


@kernel
def fill_in(ids: np.ndarray, lengths: np.ndarray, other_ids: np.ndarray, other_lengths: np.ndarray) -> np.ndarray:
    """Put the ids of other sentences where sentences are NOT_DONE, in order; their lengths are filled in."""
    out = np.empty(len(ids) + len(other_ids), ids.dtype)
    source, other_source, other, filled = 0, 0, 0, 0
    for i in range(len(lengths)):
        if lengths[i] == NOT_DONE:
            length = other_lengths[other]
            out[filled : filled + length] = other_ids[other_source : other_source + length]
            other_source += length
            other += 1
            lengths[i] = length
        else:
            length = lengths[i]
            out[filled : filled + length] = ids[source : source + length]
            source += length
        filled += length
    return out
