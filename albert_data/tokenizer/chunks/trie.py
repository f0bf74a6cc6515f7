"""The pieces of a vocabulary as a double-array trie: one load finds the child of a node by a byte.

A node is a number. Its child by a byte has its entry at index (node XOR byte), if the entry there is of that byte. No
two nodes with children have the same number, so the byte in an entry is enough to tell whose child it is. The numbers
are chosen so that all entries lie close together, in blocks of 256. (J. Aoe, "An efficient digital search algorithm by
using a double-array structure", 1989; the XOR is from Yata's darts-clone.)

An entry is a uint64. An empty one is 0, which is no byte + 1:

    bits    0..8        9..31                               32..63
            byte + 1    the piece that ends there + 1,      the number of the child
                        or 0

The pieces "a" (id 7) and "ab" (id 8), if the root's number is 256 and that of its child 512; a leaf's number is 0:

    256 ^ "a"   byte "a" + 1, piece 7 + 1, child 512
    512 ^ "b"   byte "b" + 1, piece 8 + 1, child 0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from albert_data.kernels import I64, U64, Pointer, helper, item, kernel, pointer
from albert_data.kernels.draws import GOLDEN
from albert_data.text.utf8 import write_character

NUM_FIRST = 1 << 16  # characters of the basic plane
MAX_CHARACTERS = 1 << 21  # of all pieces together; a model with more goes through SentencePiece
_UNKNOWN_PENALTY = 10.0  # SentencePiece's: an unknown character scores this much less than the worst piece
_BLOCK = 256
LEAF = 0  # the number of all nodes without children
_PIECE_SHIFT, _NODE_SHIFT = 9, 32
_BYTE_MASK, _PIECE_MASK = U64((1 << 9) - 1), U64((1 << 23) - 1)
_HASH_SHIFT, _BYTE_BITS = U64(40), U64(8)


class TrieSettings(NamedTuple):
    """What is not an array of a trie."""

    root: int  # a node
    unk_id: int
    unknown_score: float  # of an unknown character
    max_score: float  # the largest magnitude of a score
    max_gain: float  # the largest positive score, or 0
    is_wide: bool  # whether ids take more than 16 bits
    byte_fallback: bool  # whether SentencePiece must encode unknown characters


class Trie(NamedTuple):
    """A trie of pieces. In kernels also pointers to the arrays."""

    entries: np.ndarray  # uint64, see above
    # uint64 [65536], for each character of the basic plane the entry that its bytes lead to from the root, 0 for none;
    # so the first character of a piece costs one load, however many bytes it has
    first_entries: np.ndarray
    scores: np.ndarray  # float64 [vocabulary], 0 for what is not matched against text
    settings: TrieSettings


class Nodes(NamedTuple):
    """Nodes in the order of their creation, the root first."""

    parents: np.ndarray  # int32, the node above
    labels: np.ndarray  # int32, the byte that leads from it to the node
    ends: np.ndarray  # int32, 1 + the piece that ends there, or 0


def make_trie(
    pieces: list[str],
    ids: Sequence[int] | np.ndarray,
    scores: Sequence[float] | np.ndarray,
    *,
    unk_id: int,
    vocab_size: int,
    lowest_score: float = 0.0,
    byte_fallback: bool = False,
) -> Trie:
    """A trie of the pieces that are matched against text, of fewer than MAX_CHARACTERS. There may be none.

    lowest_score: of an ordinary piece.
    """
    entries, root = np.zeros(_BLOCK, np.uint64), LEAF
    if pieces:
        entries, root = _lay_out([piece.encode() for piece in pieces], ids)
    scores_of_ids = np.zeros(vocab_size)
    scores_of_ids[ids] = scores
    return Trie(
        entries=entries,
        first_entries=find_first_entries(entries, root),
        scores=scores_of_ids,
        settings=TrieSettings(
            root=root,
            unk_id=unk_id,
            unknown_score=lowest_score - _UNKNOWN_PENALTY,
            max_score=float(np.abs(scores_of_ids).max(initial=0.0)),
            max_gain=float(scores_of_ids.max(initial=0.0)),
            is_wide=vocab_size > 1 << 16,
            byte_fallback=byte_fallback,
        ),
    )


def _lay_out(pieces: list[bytes], ids: Sequence[int] | np.ndarray) -> tuple[np.ndarray, int]:
    """The entries of a trie, and its root."""
    data = np.frombuffer(b"".join(pieces), np.uint8)
    offsets = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
    nodes = Nodes(*(np.zeros(len(data) + 1, np.int32) for _ in Nodes._fields))
    slots = np.zeros(1 << (2 * len(data)).bit_length(), np.int32)
    num_nodes = list_nodes(data, offsets, np.array(ids, np.int64), slots, nodes)
    nodes = Nodes(*(array[:num_nodes] for array in nodes))
    num_children = np.bincount(nodes.parents[1:], minlength=num_nodes)
    # Descending and stable; NumPy sorts 16-bit integers by radix sort, in linear time.
    most_first = np.argsort(_BLOCK - num_children.astype(np.uint16), kind="stable")[: np.count_nonzero(num_children)]
    numbers, num_blocks = np.full(num_nodes, LEAF), 1 + num_nodes // _BLOCK
    while not number_nodes(nodes, num_children, most_first, num_blocks, numbers):
        num_blocks *= 2
    indices = (numbers[nodes.parents] ^ nodes.labels)[1:]
    entries = np.zeros(indices.max() // _BLOCK * _BLOCK + _BLOCK, np.uint64)
    entries[indices] = (numbers << _NODE_SHIFT | nodes.ends.astype(np.int64) << _PIECE_SHIFT | nodes.labels + 1)[1:]
    return entries, int(numbers[0])


@helper
def point_to_trie(trie: Trie) -> Trie:
    return Trie(pointer(trie.entries), pointer(trie.first_entries), pointer(trie.scores), trie.settings)


@helper
def step(entries: Pointer, node: int, byte: int) -> tuple[int, int]:
    """The child of a node by a byte, and the piece that ends there; -1 for none of either."""
    entry = item(entries, node ^ byte)
    if I64(entry & _BYTE_MASK) != byte + 1:
        return -1, -1
    return read_entry(entry)


@helper
def read_entry(entry: U64) -> tuple[int, int]:
    """The node of an entry, and the piece that ends there or -1."""
    return I64(entry >> U64(_NODE_SHIFT)), I64((entry >> U64(_PIECE_SHIFT)) & _PIECE_MASK) - 1


@kernel
def find_first_entries(entries: np.ndarray, root: int) -> np.ndarray:
    """Trie.first_entries."""
    found, utf8 = np.zeros(NUM_FIRST, np.uint64), np.empty(3, np.uint8)
    for code in range(NUM_FIRST):
        node, entry = root, U64(0)
        for i in range(write_character(pointer(utf8), 0, code)):
            entry = entries[node ^ I64(utf8[i])]
            if I64(entry & _BYTE_MASK) != I64(utf8[i]) + 1:
                entry = U64(0)  # no piece begins with this character
                break
            node, _ = read_entry(entry)
        found[code] = entry
    return found


@kernel
def list_nodes(data: np.ndarray, offsets: np.ndarray, ids: np.ndarray, slots: np.ndarray, nodes: Nodes) -> int:
    """Fill in the nodes of all pieces, and return how many there are.

    data, offsets: the bytes of the pieces; slots: int32, zeros, more than twice as many as bytes and a power of two: a
    hash table with open addressing from (parent, byte) to the node; 0 is free, since the root is nobody's child.
    """
    parents, labels, ends = nodes
    mask, num_nodes = len(slots) - 1, 1
    for piece in range(len(offsets) - 1):
        node = 0  # the root
        for i in range(offsets[piece], offsets[piece + 1]):
            byte = data[i]
            slot = I64(((U64(node) << _BYTE_BITS | U64(byte)) * GOLDEN) >> _HASH_SHIFT) & mask
            while slots[slot] != 0 and (parents[slots[slot]] != node or labels[slots[slot]] != byte):
                slot = (slot + 1) & mask  # linear probing
            if slots[slot] == 0:  # the first piece with this prefix
                slots[slot], parents[num_nodes], labels[num_nodes] = num_nodes, node, byte
                num_nodes += 1
            node = I64(slots[slot])
        if node:  # an empty piece ends at the root, and matches nothing
            ends[node] = ids[piece] + 1
    return num_nodes


@kernel
def number_nodes(
    nodes: Nodes, num_children: np.ndarray, most_first: np.ndarray, num_blocks: int, numbers: np.ndarray
) -> bool:
    """Number the nodes that have children so that no two children share an index. Returns whether all found a number.

    most_first: the nodes that have children, those with most children first: they are the hardest to fit.
    """
    labels = nodes.labels
    # Of each node its last child, and its parent's child before it; 0 for none.
    youngest, elder = np.zeros(len(labels), np.int32), np.zeros(len(labels), np.int32)
    # Of each index whether an entry is there, and whether it is the number of a node; of each block its free indices.
    is_taken, is_used = np.zeros(_BLOCK * num_blocks, np.bool_), np.zeros(_BLOCK * num_blocks, np.bool_)
    num_free = np.full(num_blocks, _BLOCK)
    for node in range(1, len(labels)):
        parent = nodes.parents[node]
        elder[node], youngest[parent] = youngest[parent], node
    is_used[LEAF] = True  # no node with children may have this number
    index, num_children_at_start = 0, _BLOCK
    for parent in most_first:
        # The search resumes where the last one ended: before that, nodes with at least as many children did not fit, so
        # this one hardly would. Nodes with half as many children may fit into the gaps, so it begins anew for these.
        if 2 * num_children[parent] <= num_children_at_start:
            index, num_children_at_start = 0, num_children[parent]
        while True:
            # Try the number that puts the youngest child at `index`.
            # A block with fewer free indices than children is skipped.
            while index < len(is_taken) and num_free[index // _BLOCK] < num_children[parent]:
                index += _BLOCK - index % _BLOCK
            if index >= len(is_taken):
                return False
            number, child = index ^ labels[youngest[parent]], youngest[parent]  # number ^ label is the index again
            while child != 0 and not is_taken[number ^ labels[child]]:
                child = elder[child]
            if child == 0 and not is_used[number]:  # the index of every child is free
                break
            index += 1
        numbers[parent], is_used[number] = number, True
        num_free[index // _BLOCK] -= num_children[parent]  # a byte changes the low 8 bits alone: one block has all
        child = youngest[parent]
        while child != 0:
            is_taken[number ^ labels[child]] = True
            child = elder[child]
    return True
