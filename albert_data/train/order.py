"""Decides which rows make up which batch: a pure function of (row lengths, batch tokens, seed, position).

An epoch is a permutation of all rows. It is computed and never stored: a Feistel network over the row numbers
(Black and Rogaway 2002, cycle walking) gives the row at any index. The permutation is cut into windows of about 1,024
batches. The rows of a window are sorted into buckets by their length, rounded up to a multiple of 64, and each bucket
is cut into batches of as many rows as the token budget allows at its length. The rows that are left over go into the
next longer bucket, so only one batch of a window, cut from the longest bucket, may be short. Then the batches are
shuffled. So each row comes exactly once per epoch, batches have few shapes, and memory and the time to reach any
position are those of one window. Ranks take their rows from the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

BUCKET = 64
# English books in rows of up to 512 tokens and batches of 16,384: rounding up to multiples of 64 adds 4.8 % of padding.
# With windows of 16, 64, 256 and 1,024 batches the padding is 10.6, 7.3, 5.6 and 5.0 % in all.
WINDOW_BATCHES = 1024
MAX_EPOCHS = 2**31 - 1
ROUNDS = 6  # 4 make a Feistel network pseudo-random if its halves are large; 2 more for halves of a few bits
# Ends the parts of a key, so that keys for shuffling differ from those of remasking.py, which end in 2. `permute` and
# the seeds of dropout have (seed, epoch) and (seed, step, rank), without a purpose. SeedSequence ignores zeros at the
# end, so these two are equal for epoch = step on rank 0. That is harmless: a Feistel network uses one, PyTorch's
# generator the other.
_SHUFFLE_PURPOSE = 1

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_A, _MIX_B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def mix(x: np.ndarray) -> np.ndarray:
    """Mix 64 bits by the finaliser of SplitMix64: `draws.mix` for arrays, without loading numba."""
    x = (x ^ (x >> np.uint64(30))) * _MIX_A
    x = (x ^ (x >> np.uint64(27))) * _MIX_B
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed


def derive_keys(*parts: int, num: int) -> np.ndarray:
    """Derive keys, uint64 [num], from integers of 0 or more; equal on every platform and version of numpy."""
    return np.random.SeedSequence(parts).generate_state(num, np.uint64)


def permute(indices: np.ndarray, *, size: int, seed: int, epoch: int) -> np.ndarray:
    """Return the numbers (int64) that a pseudo-random permutation of [0, size) has at `indices`."""
    half_bits = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    keys = derive_keys(seed, epoch, num=ROUNDS)
    values = _feistel(indices.astype(np.uint64), half_bits, keys)
    # Cycle walking: the network permutes a range of up to 4 * size numbers. A result outside of [0, size) is permuted
    # again until it is inside. That is a permutation of [0, size): it skips the numbers outside along each cycle.
    outside = np.flatnonzero(values >= size)
    while len(outside):
        values[outside] = _feistel(values[outside], half_bits, keys)
        outside = outside[values[outside] >= size]
    return values.astype(np.int64)


def _feistel(x: np.ndarray, half_bits: np.uint64, keys: np.ndarray) -> np.ndarray:
    low = (np.uint64(1) << half_bits) - np.uint64(1)
    left, right = x >> half_bits, x & low
    for key in keys:
        left, right = right, left ^ (mix(right * _GOLDEN + key) & low)
    return (left << half_bits) | right


class RowBatch(NamedTuple):
    """The row numbers (int64) of a batch of all ranks, and the length that the rows are padded to."""

    rows: np.ndarray
    row_len: int


class Position(NamedTuple):
    """The position of a batch: epoch, window in the epoch, batch in the window."""

    epoch: int
    window: int
    batch: int


def padded_len(num_tokens: int) -> int:
    """The next multiple of 64."""
    return -(-num_tokens // BUCKET) * BUCKET


def rows_per_batch(row_len: int, batch_tokens: int) -> int:
    """The rows of a full batch: at least one."""
    return max(1, batch_tokens // row_len)


def cut_batches(rows: np.ndarray, lengths: np.ndarray, batch_tokens: int) -> list[RowBatch]:
    """Divide rows into batches by length, the shortest first. Each row is in one batch; only the last may be short."""
    row_lens = -(-lengths // BUCKET) * BUCKET
    batches: list[RowBatch] = []
    left = rows[:0]  # the rows of shorter buckets that fill no batch of their own
    for row_len in np.unique(row_lens).tolist():
        bucket = np.concatenate((left, rows[row_lens == row_len]))
        size = rows_per_batch(row_len, batch_tokens)
        num_full = len(bucket) // size
        batches += [RowBatch(bucket[i * size : (i + 1) * size], row_len) for i in range(num_full)]
        left = bucket[num_full * size :]
    return [*batches, RowBatch(left, row_len)] if len(left) else batches


def take_share(rows: np.ndarray, *, rank: int, num_ranks: int) -> np.ndarray:
    """A rank's rows. The shares of all ranks make up the rows in order; their sizes differ by at most one."""
    return rows[len(rows) * rank // num_ranks : len(rows) * (rank + 1) // num_ranks]


class BatchOrder:
    """The endless sequence of batches of row numbers. lengths: tokens of each row; there is at least one row.

    If two threads need another window at once, both cut it.
    """

    def __init__(self, lengths: np.ndarray, *, batch_tokens: int, seed: int) -> None:
        self._lengths, self._batch_tokens, self._seed = lengths, batch_tokens, seed
        num_cells = int((-(-lengths // BUCKET)).sum(dtype=np.int64)) * BUCKET
        self.num_windows = min(len(lengths), max(1, round(num_cells / (WINDOW_BATCHES * batch_tokens))))
        self._cached: tuple[tuple[int, int], list[RowBatch]] | None = None

    def row_lens(self) -> list[int]:
        """The lengths that rows of batches may be padded to, ascending."""
        return (BUCKET * np.flatnonzero(np.bincount(-(-self._lengths // BUCKET)))).tolist()

    def window(self, epoch: int, window: int) -> list[RowBatch]:
        """The batches of a window; the latest window is cached."""
        cached = self._cached  # one tuple, so that no thread sees the key of one window with the batches of another
        if cached is None or cached[0] != (epoch, window):
            cached = self._cached = ((epoch, window), self._cut_window(epoch, window))
        return cached[1]

    def _cut_window(self, epoch: int, window: int) -> list[RowBatch]:
        num_rows = len(self._lengths)
        begin, end = (num_rows * number // self.num_windows for number in (window, window + 1))
        rows = permute(np.arange(begin, end), size=num_rows, seed=self._seed, epoch=epoch)
        batches = cut_batches(rows, self._lengths[rows], self._batch_tokens)
        order = np.argsort(derive_keys(self._seed, epoch, window, _SHUFFLE_PURPOSE, num=len(batches)))
        return [batches[i] for i in order]

    def batches_from(self, position: Position) -> Iterator[tuple[RowBatch, Position, Position]]:
        """Yield each batch from a position on, without end, with its position and the next one."""
        while True:
            batches = self.window(position.epoch, position.window)
            after = self._next_position(position, len(batches))
            yield batches[position.batch], position, after
            position = after

    def _next_position(self, position: Position, num_batches: int) -> Position:
        if position.batch + 1 < num_batches:
            return position._replace(batch=position.batch + 1)
        if position.window + 1 < self.num_windows:
            return Position(position.epoch, position.window + 1, 0)
        return Position(position.epoch + 1, 0, 0)

    def holds(self, position: Position) -> bool:
        """Whether there is a batch at this position."""
        if min(position) < 0 or position.epoch > MAX_EPOCHS or position.window >= self.num_windows:
            return False
        return position.batch < len(self.window(position.epoch, position.window))
