"""Which rows make up which batch: a pure function of (row lengths, batch tokens, seed, place).

An epoch is a permutation of all rows, computed and never stored: a Feistel network over the row numbers
(Black and Rogaway 2002, cycle walking) gives the row at any place. The permutation is cut into windows of
about 1,024 batches. The rows of a window are sorted into buckets by their length rounded up to a multiple of 64, and
each bucket is cut into batches of as many rows as the token budget allows at its length; what is left over
goes up into the next longer bucket, and the last batch of a window may be short; the batches are shuffled. So each
row comes exactly once an epoch, batches have few shapes, memory is one window, and any place is reached in the
time of one window, whatever came before. Ranks take their rows out of the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

BUCKET = 64
# English books in rows of up to 512 tokens and batches of 16,384: rounding up to multiples of 64 alone pads 4.8 %;
# in windows of 16, 64, 256 and 1,024 batches it is 10.6, 7.3, 5.6 and 5.0 %.
WINDOW_BATCHES = 1024
MOST_EPOCHS = 2**31 - 1
ROUNDS = 6  # 4 make a Feistel network pseudo-random; 2 more for halves of a few bits

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_A, _MIX_B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def mix(x: np.ndarray) -> np.ndarray:
    """Scatter 64 bits, the finaliser of SplitMix64: `draws.mix` for arrays, without loading numba."""
    x = (x ^ (x >> np.uint64(30))) * _MIX_A
    x = (x ^ (x >> np.uint64(27))) * _MIX_B
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed


def round_keys(*parts: int, num: int) -> np.ndarray:
    """Keys uint64 [num] out of whole numbers, 0 or more; the same on every platform and numpy."""
    return np.random.SeedSequence(parts).generate_state(num, np.uint64)


def permute(places: np.ndarray, *, size: int, seed: int, epoch: int) -> np.ndarray:
    """Return int64, what a pseudo-random permutation of [0, size) holds at `places`."""
    half_bits = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    keys = round_keys(seed, epoch, num=ROUNDS)
    values = _feistel(places.astype(np.uint64), half_bits, keys)
    outside = np.flatnonzero(values >= size)
    while len(outside):  # the network permutes up to 4 * size numbers: walk on until inside
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
    """The rows (int64) of a batch of all ranks, and the length that they are padded to."""

    rows: np.ndarray
    row_len: int


class Place(NamedTuple):
    """A batch: the epoch, the window in it, the batch in that."""

    epoch: int
    window: int
    batch: int


def padded_len(num_tokens: int) -> int:
    """The next multiple of 64."""
    return -(-num_tokens // BUCKET) * BUCKET


def num_slots(row_len: int, batch_tokens: int) -> int:
    """The rows of a full batch: at least one."""
    return max(1, batch_tokens // row_len)


def cut_batches(rows: np.ndarray, lengths: np.ndarray, batch_tokens: int) -> list[RowBatch]:
    """Part rows into batches by their lengths, the shortest first, each row in one; only the last may be short."""
    row_lens = -(-lengths // BUCKET) * BUCKET
    batches: list[RowBatch] = []
    left = rows[:0]
    for row_len in np.unique(row_lens).tolist():
        waiting = np.concatenate((left, rows[row_lens == row_len]))
        slots = num_slots(row_len, batch_tokens)
        num_full = len(waiting) // slots
        batches += [RowBatch(waiting[i * slots : (i + 1) * slots], row_len) for i in range(num_full)]
        left = waiting[num_full * slots :]
    return [*batches, RowBatch(left, row_len)] if len(left) else batches


def take_share(rows: np.ndarray, *, rank: int, num_ranks: int) -> np.ndarray:
    """A rank's rows: the shares, one after another, are the rows, and differ by one row at most."""
    return rows[len(rows) * rank // num_ranks : len(rows) * (rank + 1) // num_ranks]


class BatchOrder:
    """The endless list of batches of row numbers. lengths: tokens of each row, of one row or more.

    Any thread may ask it; a window that two ask for at once is cut twice.
    """

    def __init__(self, lengths: np.ndarray, *, batch_tokens: int, seed: int) -> None:
        self._lengths, self._batch_tokens, self._seed = lengths, batch_tokens, seed
        num_cells = int((-(-lengths // BUCKET)).sum(dtype=np.int64)) * BUCKET
        self.num_windows = min(len(lengths), max(1, round(num_cells / (WINDOW_BATCHES * batch_tokens))))
        self._kept: tuple[tuple[int, int], list[RowBatch]] | None = None

    def window(self, epoch: int, window: int) -> list[RowBatch]:
        """The batches of a window; the last one asked for is kept."""
        kept = self._kept  # one tuple, so that no thread sees half of it
        if kept is None or kept[0] != (epoch, window):
            kept = self._kept = ((epoch, window), self._cut_window(epoch, window))
        return kept[1]

    def _cut_window(self, epoch: int, window: int) -> list[RowBatch]:
        num_rows = len(self._lengths)
        begin, end = (num_rows * number // self.num_windows for number in (window, window + 1))
        rows = permute(np.arange(begin, end), size=num_rows, seed=self._seed, epoch=epoch)
        batches = cut_batches(rows, self._lengths[rows], self._batch_tokens)
        order = np.argsort(round_keys(self._seed, epoch, window, 1, num=len(batches)))
        return [batches[i] for i in order]

    def batches_from(self, place: Place) -> Iterator[tuple[RowBatch, Place, Place]]:
        """Yield each batch from a place on without end, with its place and the next one."""
        while True:
            batches = self.window(place.epoch, place.window)
            after = self._following(place, len(batches))
            yield batches[place.batch], place, after
            place = after

    def _following(self, place: Place, num_batches: int) -> Place:
        if place.batch + 1 < num_batches:
            return place._replace(batch=place.batch + 1)
        if place.window + 1 < self.num_windows:
            return Place(place.epoch, place.window + 1, 0)
        return Place(place.epoch + 1, 0, 0)

    def holds(self, place: Place) -> bool:
        """Whether there is such a batch."""
        if min(place) < 0 or place.epoch > MOST_EPOCHS or place.window >= self.num_windows:
            return False
        return place.batch < len(self.window(place.epoch, place.window))
