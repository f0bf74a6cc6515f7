"""Pieces by their bytes, as a double array: a step to the next byte is one load, and so is one to a first character.

A node is a number: its child by a byte stands at that number XOR the byte, if the entry there is of that byte. No two
nodes that have children have the same number, so the byte of an entry tells whose child it is. The numbers are chosen
so that all entries stand close together, in blocks of 256. (J. Aoe, "An efficient digital search algorithm by using a
double-array structure", 1989; the XOR is from Yata's darts-clone.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from albert_data.kernels import I64, U64, Pointer, helper, item, kernel, pointer
from albert_data.utf8 import write_character

NUM_HEADS = 1 << 16
MAX_CHARACTERS = 1 << 21  # of all pieces together; a model with as many goes through SentencePiece
_UNKNOWN_PENALTY = 10.0  # SentencePiece's, below the worst score of a piece
_BLOCK = 256
LEAF = 0  # the number of all nodes without children
_PIECE_SHIFT, _NODE_SHIFT = 9, 32
_BYTE, _PIECE = U64((1 << 9) - 1), U64((1 << 23) - 1)
_HASH, _8, _40 = U64(0x9E3779B97F4A7C15), U64(8), U64(40)


class Trie(NamedTuple):
    """In kernels, pointers to the arrays.

    entries: uint64: the node that a byte leads to << 32 | 1 + the piece that ends there, or 0, << 9 | 1 + the byte;
    heads: uint64, the entry that each character of the basic plane leads to from the root, 0 for none;
    root: a node; scores: float64 of the vocabulary, 0 of what is no piece; max_score: the largest magnitude of one;
    has_gains: a score is positive; is_wide: ids take more than 16 bits; unknown_is_whole: what an unknown character
    becomes, SentencePiece must say.
    """

    entries: np.ndarray
    heads: np.ndarray
    root: int
    scores: np.ndarray
    unk_id: int
    unknown_score: float
    max_score: float
    has_gains: bool
    is_wide: bool
    unknown_is_whole: bool


def make_trie(
    pieces: list[str], ids: list[int], scores: list[float], *, unk_id: int, vocab_size: int, unknown_is_whole: bool
) -> Trie:
    """A trie of the pieces that text is matched against, of less than MAX_CHARACTERS. It may be empty."""
    entries, root = (
        _lay_out([piece.encode() for piece in pieces], ids) if pieces else (np.zeros(_BLOCK, np.uint64), LEAF)
    )
    scores_of_ids = np.zeros(vocab_size)
    scores_of_ids[ids] = scores
    return Trie(
        entries=entries,
        heads=find_heads(entries, root, np.zeros(NUM_HEADS, np.uint64), np.empty(3, np.uint8)),
        root=root,
        scores=scores_of_ids,
        unk_id=unk_id,
        unknown_score=min(scores, default=0.0) - _UNKNOWN_PENALTY,
        max_score=float(np.abs(scores_of_ids).max(initial=0.0)),
        has_gains=max(scores, default=0.0) > 0,
        is_wide=vocab_size > 1 << 16,
        unknown_is_whole=unknown_is_whole,
    )


class Room(NamedTuple):
    """For numbering nodes: of each its last child and the child before itself, 0 for none (int32); of each place if it
    is taken, and if it is the number of a node (bool); of each block its free places (int64).
    """

    youngest: np.ndarray
    elder: np.ndarray
    is_taken: np.ndarray
    is_used: np.ndarray
    num_free: np.ndarray


def _make_room(num_nodes: int, num_blocks: int) -> Room:
    youngest, elder = np.zeros(num_nodes, np.int32), np.zeros(num_nodes, np.int32)
    is_taken, is_used = np.zeros(_BLOCK * num_blocks, np.bool_), np.zeros(_BLOCK * num_blocks, np.bool_)
    return Room(youngest, elder, is_taken, is_used, np.full(num_blocks, _BLOCK, np.int64))


def _lay_out(pieces: list[bytes], ids: list[int]) -> tuple[np.ndarray, int]:
    """The entries of a trie, and its root."""
    data = np.frombuffer(b"".join(pieces), np.uint8)
    offsets = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
    parents, labels, ends = (np.zeros(len(data) + 1, np.int32) for _ in range(3))
    slots = np.zeros(1 << (2 * len(data)).bit_length(), np.int32)
    num_nodes = list_nodes(data, offsets, np.array(ids, np.int64), slots, parents, labels, ends)
    parents, labels, ends = parents[:num_nodes], labels[:num_nodes], ends[:num_nodes]
    num_children = np.bincount(parents[1:], minlength=num_nodes)
    most_first = np.argsort(_BLOCK - num_children.astype(np.uint16), kind="stable")[: np.count_nonzero(num_children)]
    numbers, num_blocks = np.full(num_nodes, LEAF), 1 + num_nodes // _BLOCK
    while not number_nodes(parents, labels, num_children, most_first, numbers, _make_room(num_nodes, num_blocks)):
        num_blocks *= 2
    places = (numbers[parents] ^ labels)[1:]
    entries = np.zeros(places.max() // _BLOCK * _BLOCK + _BLOCK, np.uint64)
    entries[places] = (numbers << _NODE_SHIFT | ends.astype(np.int64) << _PIECE_SHIFT | labels + 1)[1:]
    return entries, int(numbers[0])


@helper
def point_to_trie(trie: Trie) -> Trie:
    return Trie(
        pointer(trie.entries),
        pointer(trie.heads),
        trie.root,
        pointer(trie.scores),
        trie.unk_id,
        trie.unknown_score,
        trie.max_score,
        trie.has_gains,
        trie.is_wide,
        trie.unknown_is_whole,
    )


@helper
def step(entries: Pointer, node: int, byte: int) -> tuple[int, int]:
    """The node that a byte leads to from a node, and the piece that ends there; -1 for none of either."""
    entry = item(entries, node ^ byte)
    if I64(entry & _BYTE) != byte + 1:
        return -1, -1
    return read_entry(entry)


@helper
def read_entry(entry: U64) -> tuple[int, int]:
    """The node that an entry leads to, and the piece that ends there or -1."""
    return I64(entry >> U64(_NODE_SHIFT)), I64((entry >> U64(_PIECE_SHIFT)) & _PIECE) - 1


@kernel
def find_heads(entries: np.ndarray, root: int, heads: np.ndarray, utf8: np.ndarray) -> np.ndarray:
    """Fill in Trie.heads, which are zeros. utf8: uint8, room for a character."""
    for code in range(NUM_HEADS):
        node, entry = root, U64(0)
        for at in range(write_character(pointer(utf8), 0, code)):
            entry = entries[node ^ I64(utf8[at])]
            if I64(entry & _BYTE) != I64(utf8[at]) + 1:
                entry = U64(0)
                break
            node, _ = read_entry(entry)
        heads[code] = entry
    return heads


@kernel
def list_nodes(
    data: np.ndarray,
    offsets: np.ndarray,
    ids: np.ndarray,
    slots: np.ndarray,
    parents: np.ndarray,
    labels: np.ndarray,
    ends: np.ndarray,
) -> int:
    """List the nodes, the root as number 0, and fill in of each its parent, its byte and 1 + the piece that ends there.

    data: uint8, the bytes of all pieces; slots: int32, zeros, an open hash of the nodes: a power of two, and more than
    twice as many as bytes. Returns how many nodes there are.
    """
    mask, num_nodes = len(slots) - 1, 1
    for piece in range(len(offsets) - 1):
        node = 0
        for at in range(offsets[piece], offsets[piece + 1]):
            byte = data[at]
            slot = I64(((U64(node) << _8 | U64(byte)) * _HASH) >> _40) & mask
            while slots[slot] != 0 and (parents[slots[slot]] != node or labels[slots[slot]] != byte):
                slot = (slot + 1) & mask
            if slots[slot] == 0:
                slots[slot], parents[num_nodes], labels[num_nodes] = num_nodes, node, byte
                num_nodes += 1
            node = I64(slots[slot])
        if node:
            ends[node] = ids[piece] + 1
    return num_nodes


@kernel
def number_nodes(
    parents: np.ndarray,
    labels: np.ndarray,
    num_children: np.ndarray,
    most_first: np.ndarray,
    numbers: np.ndarray,
    room: Room,
) -> bool:
    """Number the nodes that have children, so that no two children share a place. Returns whether all had room.

    parents, labels: of each node; most_first: those that have children, in the order in which they are numbered.
    """
    youngest, elder, is_taken, is_used, num_free = room
    for node in range(1, len(parents)):
        elder[node], youngest[parents[node]] = youngest[parents[node]], node
    is_used[LEAF] = True
    place, num_tried = 0, _BLOCK
    for parent in most_first:
        if 2 * num_children[parent] <= num_tried:  # so few have room where more had none
            place, num_tried = 0, num_children[parent]
        number, child = 0, -1
        while child != 0 or is_used[number]:
            if child >= 0:
                place += 1
            while place < len(is_taken) and num_free[place // _BLOCK] < num_children[parent]:
                place += _BLOCK - place % _BLOCK
            if place >= len(is_taken):
                return False
            number, child = place ^ labels[youngest[parent]], youngest[parent]
            while child != 0 and not is_taken[number ^ labels[child]]:
                child = elder[child]
        numbers[parent] = number
        is_used[number] = True
        num_free[place // _BLOCK] -= num_children[parent]
        child = youngest[parent]
        while child != 0:
            is_taken[number ^ labels[child]] = True
            child = elder[child]
    return True
