"""Pieces by their characters: an array in which a step to the next character is one load.

A node is a number: its child by a character stands at that number plus the character, modulo the array, if the entry
there is of that character. No two nodes that have children have the same number, so the character of an entry tells
whose child it is. The numbers are chosen so that the entries of all fit side by side, those of most children first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from albert_data.kernels import Int, Pointer, Word, helper, item, kernel, pointer

MAX_CHARACTERS, MAX_PIECES = 1 << 21, 1 << 20  # a model with as many goes through SentencePiece
_UNKNOWN_PENALTY = 10.0  # SentencePiece's, below the worst score of a piece
_LEAF = 0  # the number of all nodes without children
_NODE_SHIFT, _CODE_SHIFT = 20, 43
_NODE, _PIECE = Word((1 << 23) - 1), Word(MAX_PIECES - 1)
_HASH, _21, _40 = Word(0x9E3779B97F4A7C15), Word(21), Word(40)


class Trie(NamedTuple):
    """Pieces by their characters. In kernels, pointers to the arrays.

    entries: uint64: a character + 1 << 43 | the node it leads to << 20 | 1 + the piece that ends there, 0 where none
    does; root: a node; scores: float32 of the vocabulary, 0 of what is no piece; max_score: the largest magnitude of
    one; has_gains: a score is positive; is_wide: ids take more than 16 bits; unknown_is_whole: what an unknown
    character becomes, SentencePiece must say.
    """

    entries: np.ndarray
    root: int
    scores: np.ndarray
    mask: int
    unk_id: int
    unknown_score: float
    max_score: float
    has_gains: bool
    is_wide: bool
    unknown_is_whole: bool


def make_trie(
    pieces: list[str], ids: list[int], scores: list[float], *, unk_id: int, vocab_size: int, unknown_is_whole: bool
) -> Trie:
    """A trie of the pieces that text is matched against, of less than MAX_CHARACTERS. It may have no entries."""
    entries, root = _lay_out(pieces, ids) if pieces else (np.empty(0, np.uint64), _LEAF)
    scores_of_ids = np.zeros(vocab_size)
    scores_of_ids[ids] = scores
    return Trie(
        entries=entries,
        root=root,
        scores=scores_of_ids,
        mask=len(entries) - 1,
        unk_id=unk_id,
        unknown_score=min(scores, default=0.0) - _UNKNOWN_PENALTY,
        max_score=float(np.abs(scores_of_ids).max(initial=0.0)),
        has_gains=max(scores, default=0.0) > 0,
        is_wide=vocab_size > 1 << 16,
        unknown_is_whole=unknown_is_whole,
    )


def _lay_out(pieces: list[str], ids: list[int]) -> tuple[np.ndarray, int]:
    """The entries of a trie, and its root."""
    data = np.frombuffer("".join(pieces).encode("utf-32-le"), np.uint32)
    offsets = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
    parents, codes, ends = (np.zeros(len(data) + 1, np.int64) for _ in range(3))
    num_nodes = list_nodes(data, offsets, np.array(ids, np.int64), parents, codes, ends)
    parents, codes, ends = parents[1:num_nodes], codes[1:num_nodes], ends[1:num_nodes]
    num_children = np.bincount(parents, minlength=num_nodes)
    order = np.lexsort((parents, -num_children[parents]))
    size = 1 << (num_nodes * 5 // 4).bit_length()
    numbers, places = np.full(num_nodes, _LEAF), np.zeros(num_nodes, np.int64)
    while not place_children(parents[order], codes[order], order + 1, size, numbers, places):
        size *= 2  # as where characters of one node are alike modulo the size
    entries = np.zeros(size, np.uint64)
    entries[places[1:]] = (codes + 1) << _CODE_SHIFT | numbers[1:] << _NODE_SHIFT | ends
    return entries, int(numbers[0])


@helper
def point_to_trie(trie: Trie) -> Trie:
    return Trie(
        pointer(trie.entries),
        trie.root,
        pointer(trie.scores),
        trie.mask,
        trie.unk_id,
        trie.unknown_score,
        trie.max_score,
        trie.has_gains,
        trie.is_wide,
        trie.unknown_is_whole,
    )


@helper
def step(entries: Pointer, mask: int, node: int, code: int) -> tuple[int, int]:
    """The node that a character leads to from a node, and the piece that ends there; -1 for none of either."""
    entry = item(entries, (node + code) & mask)
    if Int(entry >> Word(_CODE_SHIFT)) != code + 1:
        return -1, -1
    return Int((entry >> Word(_NODE_SHIFT)) & _NODE), Int(entry & _PIECE) - 1


@kernel
def list_nodes(
    data: np.ndarray, offsets: np.ndarray, ids: np.ndarray, parents: np.ndarray, codes: np.ndarray, ends: np.ndarray
) -> int:
    """Number the nodes, the root 0, and fill in of each its parent, its character and 1 + the piece that ends there.

    data: uint32, the characters of all pieces. Returns how many nodes there are.
    """
    mask = 15
    while mask < 2 * len(data):
        mask = 2 * mask + 1
    slots = np.zeros(mask + 1, np.int32)  # an open hash of the nodes
    num_nodes = 1
    for piece in range(len(offsets) - 1):
        node = 0
        for at in range(offsets[piece], offsets[piece + 1]):
            code = Int(data[at])
            slot = Int(((Word(node) << _21 | Word(code)) * _HASH) >> _40) & mask
            while slots[slot] != 0 and (parents[slots[slot]] != node or codes[slots[slot]] != code):
                slot = (slot + 1) & mask
            if slots[slot] == 0:
                slots[slot], parents[num_nodes], codes[num_nodes] = num_nodes, node, code
                num_nodes += 1
            node = Int(slots[slot])
        if node:
            ends[node] = ids[piece] + 1
    return num_nodes


@kernel
def place_children(
    parents: np.ndarray, codes: np.ndarray, nodes: np.ndarray, size: int, numbers: np.ndarray, places: np.ndarray
) -> bool:
    """Number the nodes that have children, so that no two children share a place of `size`, a power of two.

    parents, codes, nodes: int64, of each child its parent, character and node, those of one parent side by side, those
    of many siblings first. Fills in the places of nodes. Returns whether all had room.
    """
    is_taken, is_used = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
    is_used[0] = True  # the leaves'
    first, num_siblings, place = 0, 0, 0
    while first < len(parents):
        stop = first + 1
        while stop < len(parents) and parents[stop] == parents[first]:
            stop += 1
        if stop - first != num_siblings:
            num_siblings, place = stop - first, 0  # fewer have room where more had none
        child = first
        while place < size and child < stop:
            number = (place - codes[first]) & (size - 1)
            if not is_used[number]:
                while child < stop and not is_taken[(number + codes[child]) & (size - 1)]:
                    places[nodes[child]] = (number + codes[child]) & (size - 1)
                    is_taken[places[nodes[child]]] = True
                    child += 1
            if child < stop:
                place += 1
                while child > first:
                    child -= 1
                    is_taken[places[nodes[child]]] = False
        if place == size:
            return False
        numbers[parents[first]] = number
        is_used[number] = True
        first = stop
    return True
