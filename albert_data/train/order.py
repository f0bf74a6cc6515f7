"""Decides which rows make up which batch: a pure function of (row lengths, batch tokens, seed, position).

A build writes its rows in random order. So an epoch reads blocks of 4,096 consecutive rows in a new random order, cut
into windows of about 1,024 batches: a window reads few stretches of the files. The rows of a window are shuffled and
sorted into buckets by their length, rounded up to a multiple of 64, or of 16 on a CPU, and each bucket is cut into
batches of as many rows as the token budget allows at its length. The rows that are left over go into the next longer
bucket, so only one batch of a window, cut from the longest bucket, may be short. Then the batches are shuffled. So each
row comes exactly once per epoch, batches have few shapes, and memory and the time to reach any position are those of
one window. Ranks take their rows from the same batches.
Packed batches have rows without padding: the rows of a window fill packs of one size (shards/packing.py), and a batch
is a number of packs. Without a sentence task some rows are cut: then the order depends on where words begin, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

import numpy as np

from albert_data.kernels.draws import GOLDEN, mix
from albert_data.shards.packing import FindWords, pack_rows

BUCKET = 64
CPU_BUCKET = 16  # on English books in rows of up to 128 tokens, padding is 6 % of the cells instead of 17 %
# English books in rows of up to 512 tokens and batches of 16,384: rounding up to multiples of 64 adds 4.8 % of padding.
# With windows of 16, 64, 256 and 1,024 batches the padding is 10.6, 7.3, 5.6 and 5.0 % in all.
WINDOW_BATCHES = 1024
MAX_EPOCHS = 2**31 - 1
# About a record batch (8 MiB) for rows of 512 tokens. It does not follow the record batches, so that the order is a
# function of the lengths alone, however a build divided its rows over files.
BLOCK_ROWS = 4096
# A pack holds 8 of the longest rows. On English books in rows of up to 128 tokens, 0.7 % of a pack stays empty; with
# packs of 4 and 16 rows it is 1.5 and 0.3 %. A micro-batch can't be smaller than a pack.
PACK_ROWS = 8
ORDER_VERSION = 2  # raised whenever the same lengths, batch tokens and seed give other batches
CUTTING_VERSION = 3  # the same of packs with cut rows
# The last part of a key is its purpose. It is never 0, as SeedSequence ignores zeros at the end. Remasker uses 2;
# the seeds of dropout have the three parts (seed, step, rank).
_BATCHES, _BLOCKS, _ROWS = 1, 3, 4

Tokens = TypeVar("Tokens", int, np.ndarray)


def derive_keys(*parts: int, num: int) -> np.ndarray:
    """Derive keys, uint64 [num], from integers of 0 or more; equal on every platform and version of numpy."""
    return np.random.SeedSequence(parts).generate_state(num, np.uint64)


def shuffle(num: int, *parts: int) -> np.ndarray:
    """Return the numbers below `num` (int64) in a random order for each `parts`; equal on every version of numpy.

    The number i is sorted by output i of SplitMix64 (Steele, Lea and Flood 2014). The outputs are all different.
    """
    return np.argsort(mix(derive_keys(*parts, num=1) + np.arange(num, dtype=np.uint64) * GOLDEN))


class RowBatch(NamedTuple):
    """A batch of all ranks.

    rows: int64 [rows], their numbers in the split.
    row_len: the length that they are padded to, or of a pack.
    offsets: int64 [packs + 1]; pack i holds rows[offsets[i] : offsets[i + 1]]. A row that is not packed is a pack.
    parts: int64 [2, rows], begins and ends of parts of rows, as in shards/packing.py; None for whole rows.
    """

    rows: np.ndarray
    row_len: int
    offsets: np.ndarray
    parts: np.ndarray | None = None


class Pack(NamedTuple):
    """The size of a pack: its tokens, the most rows that it takes, and the tokens of the longest row, padded."""

    pack_len: int
    max_rows: int
    longest: int


class Position(NamedTuple):
    """The position of a batch: epoch, window in the epoch, batch in the window."""

    epoch: int
    window: int
    batch: int


def padded_len(num_tokens: Tokens, bucket: int = BUCKET) -> Tokens:
    """The next multiple of a bucket's size, of a number or of each in an array.

    >>> padded_len(65)
    128
    """
    return -(-num_tokens // bucket) * bucket


def rows_per_batch(row_len: int, batch_tokens: int) -> int:
    """The rows of a full batch: at least one."""
    return max(1, batch_tokens // row_len)


def cut_batches(rows: np.ndarray, lengths: np.ndarray, batch_tokens: int, bucket: int = BUCKET) -> list[RowBatch]:
    """Divide rows into batches by length, the shortest first. Each row is in one batch; only the last may be short."""
    row_lens = padded_len(lengths, bucket)
    batches: list[RowBatch] = []
    left = rows[:0]  # the rows of shorter buckets that fill no batch of their own
    for row_len in np.unique(row_lens).tolist():
        own = np.concatenate((left, rows[row_lens == row_len]))
        size = rows_per_batch(row_len, batch_tokens)
        num_full = len(own) // size
        batches += [pad_rows(own[i * size : (i + 1) * size], row_len) for i in range(num_full)]
        left = own[num_full * size :]
    return [*batches, pad_rows(left, row_len)] if len(left) else batches


def pad_rows(rows: np.ndarray, row_len: int) -> RowBatch:
    return RowBatch(rows, row_len, np.arange(len(rows) + 1))


def choose_pack(lengths: np.ndarray, batch_tokens: int) -> Pack:
    """Choose the size of packs for rows of these lengths."""
    longest = padded_len(int(lengths.max()))
    num_packs = -(-batch_tokens // (PACK_ROWS * longest))
    pack_len = max(longest, batch_tokens // num_packs // BUCKET * BUCKET)
    # A full pack hardly ever has twice the mean number of rows. With a limit, tensors of one size hold any batch.
    return Pack(pack_len, int(2 * pack_len / lengths.mean()) + 1, longest)


def pack_batches(
    rows: np.ndarray, lengths: np.ndarray, pack: Pack, batch_tokens: int, find_words: FindWords | None = None
) -> list[RowBatch]:
    """Divide rows into packs, and these into batches. Each row is in one batch; only the last may have fewer packs.

    find_words: as in `pack_rows`; with it the parts of a cut row may be in several batches.
    """
    packs = pack_rows(rows, lengths, pack.pack_len, max_rows=pack.max_rows, find_words=find_words)
    size = rows_per_batch(pack.pack_len, batch_tokens)
    parts = None if len(packs.rows) == len(rows) else np.array([packs.begins, packs.ends])
    batches = []
    for first in range(0, len(packs.offsets) - 1, size):
        offsets = packs.offsets[first : first + size + 1]
        own = slice(offsets[0], offsets[-1])
        found = None if parts is None else parts[:, own]
        batches.append(RowBatch(packs.rows[own], pack.pack_len, offsets - offsets[0], found))
    return batches


def cut_share(offsets: np.ndarray, *, rank: int, num_ranks: int) -> np.ndarray:
    """The offsets of a rank's packs. The shares of all ranks make up the packs in order, evenly up to one pack."""
    num_packs = len(offsets) - 1
    return offsets[num_packs * rank // num_ranks : num_packs * (rank + 1) // num_ranks + 1]


class BatchOrder:
    """The endless sequence of batches of row numbers. lengths: tokens of each row; there is at least one row.

    row_lens: the lengths that rows of batches may be padded to, ascending; or the length of packs.
    bucket, packed: as of ShardLoader; find_words: to cut rows before words, as in `pack_rows`.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        *,
        batch_tokens: int,
        seed: int,
        bucket: int = BUCKET,
        packed: bool = False,
        find_words: FindWords | None = None,
    ) -> None:
        self.bucket = bucket
        self._lengths, self._batch_tokens, self._seed, self._find_words = lengths, batch_tokens, seed, find_words
        self.pack = choose_pack(lengths, batch_tokens) if packed else None
        cells = lengths if packed else padded_len(lengths, bucket)
        self.row_lens = [self.pack.pack_len] if self.pack is not None else np.unique(cells).tolist()
        num_cells = int(cells.sum(dtype=np.int64))
        self.num_windows = min(len(lengths), max(1, round(num_cells / (WINDOW_BATCHES * batch_tokens))))
        self._cached: dict[tuple[int, int], list[RowBatch]] = {}

    def window(self, epoch: int, window: int) -> list[RowBatch]:
        """The batches of a window. The two newest are cached: what is read ahead may be of the next window."""
        cached = self._cached  # never changed, only replaced, because other threads may read it
        if (epoch, window) not in cached:
            newest = dict([*cached.items()][-1:])
            cached = self._cached = newest | {(epoch, window): self._cut_window(epoch, window)}
        return cached[epoch, window]

    def _cut_window(self, epoch: int, window: int) -> list[RowBatch]:
        rows = self._read_rows(epoch, window)
        rows = rows[shuffle(len(rows), self._seed, epoch, window, _ROWS)]
        if self.pack is None:
            batches = cut_batches(rows, self._lengths[rows], self._batch_tokens, self.bucket)
        else:
            batches = pack_batches(rows, self._lengths[rows], self.pack, self._batch_tokens, self._find_words)
        return [batches[i] for i in shuffle(len(batches), self._seed, epoch, window, _BATCHES)]

    def _read_rows(self, epoch: int, window: int) -> np.ndarray:
        """A window's rows: its part of all blocks one after another. Blocks may continue in the next window."""
        num_rows = len(self._lengths)
        begin, end = (num_rows * number // self.num_windows for number in (window, window + 1))
        blocks = shuffle(-(-num_rows // BLOCK_ROWS), self._seed, epoch, 0, _BLOCKS) * BLOCK_ROWS
        stops = np.cumsum(np.minimum(BLOCK_ROWS, num_rows - blocks))  # only the block at the end of the split is short
        first, last = np.searchsorted(stops, [begin, end - 1], side="right")
        parts = [np.arange(row, min(row + BLOCK_ROWS, num_rows)) for row in blocks[first : last + 1].tolist()]
        skipped = begin - int(stops[first] - len(parts[0]))
        return np.concatenate(parts)[skipped : skipped + end - begin]

    def batches_from(self, position: Position) -> Iterator[tuple[RowBatch, Position, Position]]:
        """Yield each batch from a position on, without end, with its position and the next one."""
        while True:
            batches = self.window(position.epoch, position.window)
            epoch, window, batch = position
            after = Position(epoch, window, batch + 1)
            if after.batch == len(batches):
                after = Position(epoch, window + 1, 0) if window + 1 < self.num_windows else Position(epoch + 1, 0, 0)
            yield batches[batch], position, after
            position = after

    def holds(self, position: Position) -> bool:
        """Whether there is a batch at this position."""
        if min(position) < 0 or position.epoch > MAX_EPOCHS or position.window >= self.num_windows:
            return False
        return position.batch < len(self.window(position.epoch, position.window))
