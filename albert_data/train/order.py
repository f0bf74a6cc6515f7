"""Which rows make up which batch: a pure function of (row lengths, batch size, seed, step).

An epoch is a permutation of all rows, computed and never stored: a Feistel network over the row numbers
(Black and Rogaway 2002, cycle walking) gives the row at any place. The permutation is cut into
windows of 64 batches; a window's rows are sorted by length, cut into batches, the batches shuffled. So a
batch holds rows of like length, each row comes exactly once an epoch, memory is one window, and any step
is reached in the time of one window, whatever came before. Ranks take their rows out of the same batch.
"""

from __future__ import annotations

import numpy as np

WINDOW_BATCHES = 64
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


class BatchOrder:
    """The endless list of batches of row numbers.

    lengths: tokens of each row. A batch has `batch_size` rows; the last rows of an epoch make a smaller one.
    """

    def __init__(self, lengths: np.ndarray, *, batch_size: int, seed: int) -> None:
        self._lengths = lengths
        self._batch_size = batch_size
        self._seed = seed
        self._window: tuple[int, int] | None = None
        self._batches: list[np.ndarray] = []

    @property
    def batches_per_epoch(self) -> int:
        return -(-len(self._lengths) // self._batch_size)

    def rows_at(self, step: int, *, rank: int = 0, num_ranks: int = 1) -> np.ndarray:
        """The rows (int64) of the batch at `step`, or a rank's share of them: alike in number and length."""
        epoch, batch = divmod(step, self.batches_per_epoch)
        window, place = divmod(batch, WINDOW_BATCHES)
        if self._window != (epoch, window):
            self._batches, self._window = self._cut_window(epoch, window), (epoch, window)
        return self._batches[place][rank::num_ranks]

    def _cut_window(self, epoch: int, window: int) -> list[np.ndarray]:
        begin = window * WINDOW_BATCHES * self._batch_size
        end = min(begin + WINDOW_BATCHES * self._batch_size, len(self._lengths))
        rows = permute(np.arange(begin, end), size=len(self._lengths), seed=self._seed, epoch=epoch)
        rows = rows[np.argsort(self._lengths[rows], kind="stable")]
        cuts = range(0, len(rows), self._batch_size)
        order = np.argsort(round_keys(self._seed, epoch, window, 1, num=len(cuts)))
        return [rows[cuts[i] : cuts[i] + self._batch_size] for i in order]
