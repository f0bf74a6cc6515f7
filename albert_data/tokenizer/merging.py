"""Byte-level BPE of single words, for chunks that the table lacks.

In: chunks. Out: the ids of those that are one word for the pre-tokeniser, by the merges of the model: again and again
the pair of neighbours that comes first in its list is joined, the leftmost one of equal pairs. That is what the library
does, but it takes 8 microseconds for a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from albert_data.kernels import I64, U64, Pointer, helper, kernel, pointer
from albert_data.kernels.draws import GOLDEN
from albert_data.text.utf8 import read_character
from albert_data.tokenizer.chunks.table import NOT_DONE

BEGINS, FOLLOWS = 1, 2  # roles of a character: it may stand before the letters of a word; it is a letter
_MAX_WORD = 128  # bytes; the time for a word grows with the square
_FREE = U64(2**64 - 1)  # no pair; as a joined pair it is after all others
_ID_SHIFT, _ID = U64(32), U64(2**32 - 1)


class Merges(NamedTuple):
    """The merges of a model, a hash table with open addressing."""

    byte_ids: np.ndarray  # int64 [256], of the piece of each byte
    pairs: np.ndarray  # uint64, a power of two of slots: left id << 32 | right id, or _FREE
    joined: np.ndarray  # uint64, of each pair its place in the list of merges << 32 | the id of the two joined


def make_merges(model: Mapping[str, Any], byte_of: Mapping[str, int]) -> Merges:
    """model: of a tokenizer.json that the library has loaded, so its merges are of its pieces.

    byte_of: of each byte-level character.
    """
    vocab = model["vocab"]
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    byte_ids = np.empty(256, np.int64)
    byte_ids[list(byte_of.values())] = [vocab[character] for character in byte_of]
    num_slots = 1 << (2 * len(merges) + 1).bit_length()
    table = Merges(byte_ids, np.full(num_slots, _FREE), np.full(num_slots, _FREE))
    rows = np.array([(vocab[a], vocab[b], vocab[a + b]) for a, b in merges], np.uint64).reshape(-1, 3)
    fill_table(rows, table)
    return table


@kernel
def fill_table(rows: np.ndarray, merges: Merges) -> None:
    """Put merges into an empty table. rows: uint64 [merges, 3], two ids and that of both joined."""
    for place in range(len(rows)):
        pair = rows[place, 0] << _ID_SHIFT | rows[place, 1]
        slot = find_slot(pair, merges.pairs)
        merges.pairs[slot] = pair
        merges.joined[slot] = U64(place) << _ID_SHIFT | rows[place, 2]


@helper
def find_slot(pair: U64, pairs: np.ndarray) -> int:
    """The slot of a pair, or the free one that it would take."""
    mask = len(pairs) - 1
    slot: int = I64(pair * GOLDEN >> _ID_SHIFT) & mask
    while pairs[slot] != pair and pairs[slot] != _FREE:
        slot = (slot + 1) & mask
    return slot


@helper
def join(left: int, right: int, merges: Merges) -> U64:
    """What `Merges.joined` has of two ids, _FREE if they are never joined."""
    found: U64 = merges.joined[find_slot(U64(left) << _ID_SHIFT | U64(right), merges.pairs)]
    return found


def merge_texts(texts: list[bytes], roles: np.ndarray, merges: Merges) -> tuple[np.ndarray, np.ndarray]:
    """The ids (int32) of the chunks that are one word, and their numbers (int64): see `merge_words`."""
    offsets = np.cumsum([0, *map(len, texts)])
    ids, lengths = np.empty(offsets[-1], np.int32), np.empty(len(texts), np.int64)
    filled = merge_words(np.frombuffer(b"".join([*texts, b"\0"]), np.uint8), offsets, roles, merges, ids, lengths)
    return ids[:filled], lengths


@kernel
def merge_words(
    utf8: np.ndarray, offsets: np.ndarray, roles: np.ndarray, merges: Merges, ids: np.ndarray, lengths: np.ndarray
) -> int:
    """Find the ids of the chunks that are one word, one after another. Returns how many ids they have in all.

    roles: uint8 [65536]; ids: int32, as many as bytes, filled in; lengths: int64 [chunks], filled in, NOT_DONE for a
    chunk that is not known to be one word.
    """
    filled, joined, text = 0, np.empty(_MAX_WORD, np.uint64), pointer(utf8)
    for i in range(len(lengths)):
        lengths[i] = NOT_DONE
        if offsets[i + 1] - offsets[i] <= _MAX_WORD and is_word(text, offsets[i], offsets[i + 1], roles):
            lengths[i] = merge_word(utf8[offsets[i] : offsets[i + 1]], merges, ids[filled:], joined)
            filled += lengths[i]
    return filled


@helper
def is_word(utf8: Pointer, at: int, end: int, roles: np.ndarray) -> bool:
    """Whether a chunk is letters, or one other character that may begin a word and letters."""
    needed = BEGINS
    while at < end:
        code, at = read_character(utf8, at)
        if code >= len(roles) or roles[code] & needed == 0:
            return False
        needed = FOLLOWS
    return True


@helper
def merge_word(word: np.ndarray, merges: Merges, ids: np.ndarray, joined: np.ndarray) -> int:
    """Fill in the ids of a word, and return their number. joined: scratch, what `join` gives for two neighbours."""
    count = len(word)
    for i in range(count):
        ids[i] = merges.byte_ids[word[i]]
    for i in range(count - 1):
        joined[i] = join(ids[i], ids[i + 1], merges)
    while count > 1:
        best = 0
        for i in range(1, count - 1):
            if joined[i] < joined[best]:
                best = i
        if joined[best] == _FREE:
            break
        ids[best] = joined[best] & _ID
        count -= 1
        for i in range(best + 1, count):
            ids[i], joined[i - 1] = ids[i + 1], joined[i]
        if best > 0:
            joined[best - 1] = join(ids[best - 1], ids[best], merges)
        if best < count - 1:
            joined[best] = join(ids[best], ids[best + 1], merges)
    return count
