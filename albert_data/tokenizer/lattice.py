"""Segment chunks with a unigram model, and tell how close the second best segmentation comes to the best.

The same choice as SentencePiece's, in float64: where the two best are further apart than its rounding, its
choice is this one. Where they are not, the caller asks SentencePiece.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from albert_data.draws import mix
from albert_data.kernels import inline_kernel, kernel

_UNKNOWN_PENALTY = 10.0  # SentencePiece's, below the worst score of a piece


@dataclass(frozen=True, kw_only=True)
class Trie:
    """Pieces by their bytes: an open hash from (node, byte) to node.

    ids: int32, the piece that ends at a node, -1 where none does; scores: float64, of the piece.
    """

    keys: np.ndarray
    nodes: np.ndarray
    ids: np.ndarray
    scores: np.ndarray
    unk_id: int
    unknown_score: float


def make_trie(pieces: list[bytes], ids: list[int], scores: list[float], unk_id: int) -> Trie:
    """A trie of the pieces that text is matched against."""
    data = np.frombuffer(b"".join(pieces), np.uint8)
    offsets = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
    size = 1 << max(4, (4 * len(data)).bit_length())
    keys, nodes, node_ids, node_scores = build_trie(data, offsets, np.array(ids, np.int32), np.array(scores), size)
    return Trie(
        keys=keys,
        nodes=nodes,
        ids=node_ids,
        scores=node_scores,
        unk_id=unk_id,
        unknown_score=min(scores) - _UNKNOWN_PENALTY,
    )


@inline_kernel
def find_child(keys: np.ndarray, node: int, byte: int) -> int:
    """The slot of (node, byte): where it stands or would."""
    key = (np.int64(node) << 8 | np.int64(byte)) + 1
    slot = np.int64(mix(np.uint64(key)) & np.uint64(len(keys) - 1))
    while keys[slot] != 0 and keys[slot] != key:
        slot = (slot + 1) & (len(keys) - 1)
    return int(slot)


@kernel
def build_trie(
    data: np.ndarray, offsets: np.ndarray, ids: np.ndarray, scores: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    keys, nodes = np.zeros(size, np.int64), np.zeros(size, np.int64)
    node_ids, node_scores = np.full(len(data) + 1, -1, np.int32), np.zeros(len(data) + 1)
    num_nodes = 1
    for piece in range(len(offsets) - 1):
        node = 0
        for at in range(offsets[piece], offsets[piece + 1]):
            slot = find_child(keys, node, data[at])
            if keys[slot] == 0:
                keys[slot] = (np.int64(node) << 8 | np.int64(data[at])) + 1
                nodes[slot] = num_nodes
                num_nodes += 1
            node = nodes[slot]
        node_ids[node], node_scores[node] = ids[piece], scores[piece]
    return keys, nodes, node_ids[:num_nodes], node_scores[:num_nodes]


@kernel
def segment(
    text: np.ndarray,
    offsets: np.ndarray,
    keys: np.ndarray,
    nodes: np.ndarray,
    node_ids: np.ndarray,
    scores: np.ndarray,
    unk_id: int,
    unknown_score: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The best segmentation of each slice of normalised text, unknown characters in a row as one.

    Returns ids (int32), lengths (int64), and the best score less the second best (float64, inf if there is
    one way).
    """
    num = len(offsets) - 1
    ids, lengths, margins = np.empty(len(text), np.int32), np.empty(num, np.int64), np.empty(num)
    longest = 0
    for i in range(num):
        longest = max(longest, offsets[i + 1] - offsets[i])
    best, second = np.empty(longest + 1), np.empty(longest + 1)
    starts, pieces = np.empty(longest + 1, np.int64), np.empty(longest + 1, np.int32)
    filled = 0
    for i in range(num):
        begin, length = offsets[i], offsets[i + 1] - offsets[i]
        best[: length + 1], second[: length + 1] = -np.inf, -np.inf
        best[0] = 0.0
        for start in range(length):
            if best[start] == -np.inf:
                continue
            width = 1
            while start + width < length and text[begin + start + width] & 0xC0 == 0x80:
                width += 1
            node, has_single = 0, False
            for end in range(start + 1, length + 1):
                slot = find_child(keys, node, text[begin + end - 1])
                if keys[slot] == 0:
                    break
                node = nodes[slot]
                if node_ids[node] >= 0:
                    extend(best, second, starts, pieces, start, end, node_ids[node], scores[node])
                    has_single = has_single or end - start == width
            if not has_single:
                extend(best, second, starts, pieces, start, start + width, unk_id, unknown_score)
        margins[i] = best[length] - second[length]
        first, end = filled, length
        while end > 0:
            if pieces[end] != unk_id or filled == first or ids[filled - 1] != unk_id:
                ids[filled] = pieces[end]
                filled += 1
            end = starts[end]
        ids[first:filled] = ids[first:filled][::-1].copy()
        lengths[i] = filled - first
    return ids[:filled].copy(), lengths, margins


@inline_kernel
def extend(
    best: np.ndarray,
    second: np.ndarray,
    starts: np.ndarray,
    pieces: np.ndarray,
    start: int,
    end: int,
    piece: int,
    score: float,
) -> None:
    """Extend the two best ways to `start` by a piece that ends at `end`."""
    value, other = best[start] + score, second[start] + score
    if value > best[end]:
        second[end] = max(best[end], other)
        best[end], starts[end], pieces[end] = value, start, piece
    else:
        second[end] = max(second[end], value)
