"""Reads shards into batches on the device, beginning at any position of the order.

In: an open split of a shard folder. Out: Batch after Batch. order.py decides which rows a batch has, Remasker
which masks. The batch of a step is a pure function of (shards, batch tokens, seed, position), for any number of ranks,
threads and micro-batches, so the state of a loader is the position of the next step.
A loader has one iterator at a time, for one thread. If a second one is made, the first fails.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
import torch
from torch.utils.data import get_worker_info

from albert_data.config import check_range
from albert_data.data import Examples
from albert_data.errors import AlbertDataError, CheckpointError, ConfigError, ShardError
from albert_data.examples.masks import Pieces, make_rows, mask_by_tables
from albert_data.examples.spans import measure_span_len, span_tables
from albert_data.shards.manifest import Manifest
from albert_data.shards.packing import cut_rows, find_words
from albert_data.shards.reader import Shards, open_shards
from albert_data.shards.rows import slice_rows, unmask
from albert_data.tokenizer.model import Tokenizer
from albert_data.train.batch import Batch, BatchShape, choose_mask_capacity, collate
from albert_data.train.order import (
    BUCKET,
    CUTTING_VERSION,
    ORDER_VERSION,
    BatchOrder,
    Pack,
    Position,
    RowBatch,
    cut_batches,
    cut_share,
    derive_keys,
    pack_batches,
    padded_len,
    rows_per_batch,
)
from albert_data.train.reading import show

_REMASK_PURPOSE = 2  # so that these keys differ from those that shuffle the batches


class Remasker:
    """Draws new masks for rows of later epochs."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, *, seed: int) -> None:
        """tokenizer: that of the shards."""
        config = self._config = manifest.config.examples
        self._words = tokenizer.word_rule(config)
        self._pieces = Pieces.of(tokenizer.specials, self._words, tokenizer.ordinary_ids, config)
        # Not the seed itself: the build may have used the same number, and would have drawn equal masks from it.
        self._seed = derive_keys(seed, 0, 0, _REMASK_PURPOSE, num=1)[0]

    def __call__(self, examples: Examples, rows: np.ndarray, epoch: int, mask_prob: float | None = None) -> Examples:
        """Mask the original ids anew. rows: the row numbers (int64). mask_prob: by default that of the build."""
        config = self._config
        share = config.mask_prob if mask_prob is None else mask_prob
        tables = span_tables(config.max_seq_len, config.longest_span, share, config.masking)
        pairs = unmask(examples)
        # The build draws by document key and row of the document. Here the row number takes the place of both.
        masked = make_rows(pairs, self._words, rows.astype(np.uint64), self._seed, epoch)
        return mask_by_tables(pairs, masked, tables, self._pieces)


READ_AHEAD = 3
ROWS_PER_SOURCE = 16  # of 128 tokens have about 300 labels: an accuracy is then known to 3 points or better
Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class Splits:
    """The rows of a shard folder. validation: None if the build set no rows aside."""

    folder: Path
    train: Shards
    validation: Shards | None


def open_training(folder: Path) -> Splits:
    """Open the training rows and, if the build set any aside, the validation rows."""
    train: Shards = open_shards(folder, split="train")
    set_aside = train.manifest.splits.get("validation")
    has_rows = set_aside is not None and set_aside.num_rows > 0
    return Splits(folder=folder, train=train, validation=open_shards(folder, split="validation") if has_rows else None)


class RowReader:
    """Reads rows of a split by number and lays them out in batches."""

    def __init__(self, shards: Shards, remask: Remasker | None = None) -> None:
        self._shards, self._remask = shards, remask
        self._pad_id = shards.manifest.tokenizer.pad_id
        config = shards.manifest.config.examples
        self.mask_probs, self._span_len = [config.mask_prob], measure_span_len(config)

    def shape(self, num_rows: int, row_len: int, pack: Pack | None = None, mask_prob: float = 0.0) -> BatchShape:
        """The shape of a batch of `num_rows` rows or packs, with room for the least of `mask_probs` that is enough.

        mask_prob: the share of masked tokens, for which there is room also if all of `mask_probs` are less.
        """
        share = min((one for one in self.mask_probs if one >= mask_prob), default=mask_prob)
        capacity = choose_mask_capacity(num_rows * row_len, mask_prob=share, span_len=self._span_len)
        return BatchShape(num_rows, row_len, capacity, pack)

    def read(
        self,
        row_batch: RowBatch,
        shape: BatchShape,
        *,
        num_batches: int = 1,
        epoch: int = 0,
        mask_prob: float | None = None,
        pin: bool = False,
    ) -> list[Batch]:
        """Return batches of one shape. Packs fill them in order, so the last ones may be short or empty.

        epoch: from 1 on, new masks are drawn; with mask_prob, which is the share of masked tokens, always.
        """
        begin, end = row_batch.offsets[[0, -1]]
        rows, offsets = row_batch.rows[begin:end], row_batch.offsets - begin
        examples = self._shards.rows(rows)  # with their stored masks
        is_new = epoch > 0 or mask_prob is not None
        if self._remask is not None and is_new and len(rows):  # a rank may get no row of a short batch
            examples = self._remask(examples, rows, epoch, mask_prob)
        if row_batch.parts is not None:
            examples = cut_rows(examples, *row_batch.parts[:, begin:end])
        size, last = shape.num_rows, len(offsets) - 1
        parts = [offsets[np.minimum(np.arange(size + 1) + i * size, last)] for i in range(num_batches)]
        return [
            collate(
                slice_rows(examples, part[0], part[-1]),
                pad_id=self._pad_id,
                shape=shape,
                rows=rows[part[0] : part[-1]],
                offsets=part - part[0],
                pin=pin,
            )
            for part in parts
        ]


def fixed_batches(shards: Shards, *, num_rows: int, batch_tokens: int, pack: Pack | None = None) -> Iterator[Batch]:
    """Yield the rows of `choose_rows` once, with their stored masks: the same batches of few shapes at each call.

    pack: of which size packs are, instead of padding.
    """
    reader = RowReader(shards)
    for row_batch, shape in _cut_fixed(reader, shards, num_rows, batch_tokens, pack):
        yield from reader.read(row_batch, shape)


def fixed_shapes(shards: Shards, *, num_rows: int, batch_tokens: int, pack: Pack | None = None) -> list[BatchShape]:
    """The shapes of the batches that `fixed_batches` yields, except the rare one with more masked tokens than usual."""
    return sorted({shape for _, shape in _cut_fixed(RowReader(shards), shards, num_rows, batch_tokens, pack)})


def choose_rows(shards: Shards, num_rows: int) -> np.ndarray:
    """The rows that an evaluation reads: int64, ascending. A build shuffles rows: the first are a fair sample of all.

    Up to as many are added of several sources, from each in turn, until each has ROWS_PER_SOURCE, or all of its own.
    """
    num_rows = min(num_rows, len(shards))
    turns = zip_longest(*(rows[:ROWS_PER_SOURCE] for rows in shards.rows_by_source), fillvalue=0)
    more = [row for turn in turns for row in turn if row >= num_rows][:num_rows]
    return np.concatenate((np.arange(num_rows), np.sort(np.array(more, np.int64))))


def _cut_fixed(
    reader: RowReader, shards: Shards, num_rows: int, batch_tokens: int, pack: Pack | None
) -> Iterator[tuple[RowBatch, BatchShape]]:
    rows = choose_rows(shards, num_rows)
    lengths = shards.lengths[rows]
    if pack is None:
        batches = cut_batches(rows, lengths, batch_tokens)
    else:
        batches = pack_batches(rows, lengths, pack, batch_tokens)
    for row_batch in batches:
        # No batch is larger than all rows are: a large batch of few rows would be empty rows for the most part.
        size = min(rows_per_batch(row_batch.row_len, batch_tokens), len(rows))
        yield row_batch, reader.shape(size, row_batch.row_len, pack)


class ShardLoader:
    """The training batches of a split, for `albert-data train` or for a training loop of your own.

        for batch in ShardLoader(Path("shards"), batch_tokens=16_384):  # one epoch on the CPU; loop again for the next
            ...

    batch_tokens: tokens of a batch of all ranks, padding included; a batch has at least one row.
    micro_tokens: tokens that a rank reads at once; a step then has several batches, all of one shape. A new value of
    the attribute holds from the next step that is read; on CUDA, a few steps are read ahead.
    rank, num_ranks: this process reads its share of each batch; all shares of a batch have the same shapes.
    remask: whether to draw new masks from the second epoch on.
    bucket: rows are padded to multiples of so many tokens. A smaller one needs less padding, and makes more shapes.
    packed: batches are packs of rows without padding, of one shape (see Batch), for kernels that know where rows begin.
    A pack holds up to eight of the longest rows. Without a sentence task rows may be cut (shards/packing.py).

    A loader can be pickled and copied if its shards can; a copy continues at the same position, independently.
    """

    def __init__(
        self,
        shards: Shards | str | os.PathLike[str],
        *,
        batch_tokens: int,
        seed: int = 0,
        micro_tokens: int | None = None,
        rank: int = 0,
        num_ranks: int = 1,
        remask: bool = True,
        bucket: int = BUCKET,
        packed: bool = False,
    ) -> None:
        """Raises ShardError if there are no rows or the tokenizer is not the build's, ConfigError for bad settings."""
        self._shards = open_shards(shards) if isinstance(shards, str | os.PathLike) else shards
        if len(self._shards) == 0:
            raise ShardError("the training split has no rows; build the shards from more text")
        check_range("batch_tokens", batch_tokens, 1, 2**31 - 1)
        check_range("seed", seed, 0, 2**63 - 1)
        check_range("bucket", bucket, 1, 2**20)
        check_range("num_ranks", num_ranks, 1, 2**20)
        check_range("rank", rank, 0, num_ranks - 1)
        self._batch_tokens, self.micro_tokens, self._seed = batch_tokens, micro_tokens, seed
        self.order = self._make_order(bucket, packed=packed)
        self._rank, self._num_ranks = rank, num_ranks
        redraw = Remasker(self._shards.manifest, self._shards.tokenizer, seed=seed) if remask else None
        if redraw is not None:  # loads its kernels, for which the second epoch would wait
            redraw(self._shards.rows(first := np.zeros(1, np.int64)), first, epoch=1)
        self._reader = RowReader(self._shards, redraw)
        self._position = Position(0, 0, 0)
        self._owner = object()  # identifies the latest iterator, which alone may advance the position

    def _make_order(self, bucket: int, *, packed: bool) -> BatchOrder:
        order = BatchOrder(
            self._shards.lengths,
            batch_tokens=self._batch_tokens,
            seed=self._seed,
            bucket=bucket,
            packed=packed,
            find_words=partial(find_words, self._shards) if packed and self._can_cut else None,
        )
        if self.micro_tokens is not None and self.micro_tokens < (longest := order.row_lens[-1]):
            what = "rows are packed into" if packed else "the longest row is padded to"
            raise ConfigError(
                f"micro_tokens is {self.micro_tokens}, but {what} {longest} tokens; allowed are {longest} or more"
            )
        return order

    @property
    def longest(self) -> int:
        """The tokens of the longest row, padded, or of a pack; micro_tokens is no less."""
        return self.order.row_lens[-1]

    @property
    def is_packed(self) -> bool:
        return self.order.pack is not None

    def find_pack(self, shards: Shards) -> Pack | None:
        """The size of packs for the rows of another split: that of training, if these are packed and no longer."""
        pack = self.order.pack
        return None if pack is None or padded_len(int(shards.lengths.max(initial=0))) > pack.longest else pack

    @property
    def _can_cut(self) -> bool:
        """Whether rows that are packed may be cut: a label of a pair is one of the whole row."""
        return not self._shards.manifest.config.examples.task.orders

    @property
    def epochs_read(self) -> float:
        """How often all rows were read, as 2.25: whole epochs, and the share of this one in windows and batches."""
        epoch, window, batch = self._position
        return epoch + (window + batch / len(self.order.window(epoch, window))) / self.order.num_windows

    @property
    def steps_per_epoch(self) -> int:
        """Exact if an epoch is one window (see order.py); otherwise estimated from the first window."""
        return len(self.order.window(0, 0)) * self.order.num_windows

    # ---- sizes of batches ----

    @property
    def tokens_at_once(self) -> int:
        """The tokens of this rank's largest micro-batch, padding included."""
        return self.micro_tokens or max(1, self._batch_tokens // self._num_ranks)

    def _rows_per_rank(self, row_len: int) -> int:
        num_rows = min(rows_per_batch(row_len, self._batch_tokens), len(self._shards))  # as in `_cut_fixed`
        return -(-num_rows // self._num_ranks)

    def _split(self, row_len: int) -> tuple[int, int]:
        """The number of micro-batches in a rank's share of a full batch, and the rows or packs of each."""
        num_rows = self._rows_per_rank(row_len)
        num_batches = 1 if self.micro_tokens is None else -(-num_rows // (self.micro_tokens // row_len))
        return num_batches, -(-num_rows // num_batches)

    def count_micro_tokens(self, num_batches: int) -> int:
        """The least micro_tokens with which no step has more than `num_batches` batches."""
        return max(row_len * -(-self._rows_per_rank(row_len) // num_batches) for row_len in self.order.row_lens)

    def shape(self, num_rows: int, row_len: int, mask_prob: float | None = None) -> BatchShape:
        """The shape of a micro-batch of so many rows, or packs, of a length."""
        return self._reader.shape(num_rows, row_len, self.order.pack, mask_prob or 0.0)

    def shapes(self) -> list[BatchShape]:
        """The shapes that this rank's batches may have, except the rare one with more masked tokens than usual."""
        sizes = [(self._split(row_len)[1], row_len) for row_len in self.order.row_lens]
        return [self.shape(*size, mask_prob) for size in sizes for mask_prob in self._reader.mask_probs]

    def reserve_masks(self, *mask_probs: float) -> None:
        """Let batches have room for these shares of masked tokens, so that those of `stream` have few shapes."""
        self._reader.mask_probs = sorted(set(mask_probs))

    # ---- reading ----

    def stream(
        self, device: torch.device, steps: int | None = None, mask_prob: Callable[[int], float] | None = None
    ) -> Iterator[list[Batch]]:
        """Yield the batches of each step on the device: this rank's micro-batches. Without `steps`, never ends.

        mask_prob: the share of tokens to mask in the i-th step of this iterator; all masks are then new ones. See
        `reserve_masks`.

        `state_dict` tells the position after the last step yielded. For CUDA a thread reads ahead into page-locked
        memory; on a CPU that thread would slow down the computation.
        """
        owner = self._owner = object()
        items = islice(self._read_from(self._position, mask_prob, pin=device.type == "cuda"), steps)
        with closing(read_ahead(items, depth=READ_AHEAD if device.type == "cuda" else 0)) as stream:
            for batches, after in stream:
                if owner is not self._owner:
                    raise AlbertDataError(
                        "the loader has a newer iterator, or got another state, since this iterator began; use one "
                        "iterator at a time, or make a loader for each"
                    )
                self._position = after
                yield [batch.to(device) for batch in batches]

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches of the rest of this epoch, on the CPU; the next call begins the next epoch.

        Raises ConfigError in a worker of a DataLoader: each worker has a copy, and each copy would yield all batches.
        """
        if get_worker_info() is not None:
            raise ConfigError(
                "a ShardLoader in a worker of a DataLoader: every worker would read every batch; iterate over the "
                "loader itself, in several processes with rank and num_ranks"
            )
        epoch = self._position.epoch
        for batches in self.stream(torch.device("cpu")):
            yield from batches
            if self._position.epoch > epoch:
                return

    def _read_from(
        self, first: Position, mask_prob: Callable[[int], float] | None, *, pin: bool
    ) -> Iterator[tuple[list[Batch], Position]]:
        for number, (row_batch, position, after) in enumerate(self.order.batches_from(first)):
            num_batches, num_rows = self._split(row_batch.row_len)
            share = cut_share(row_batch.offsets, rank=self._rank, num_ranks=self._num_ranks)
            prob = None if mask_prob is None else mask_prob(number)
            own, shape = row_batch._replace(offsets=share), self.shape(num_rows, row_batch.row_len, prob)
            batches = self._reader.read(
                own, shape, num_batches=num_batches, epoch=position.epoch, mask_prob=prob, pin=pin
            )
            yield batches, after

    # ---- the position ----

    def _identity(self) -> dict[str, int]:
        return {"num_rows": len(self._shards), "batch_tokens": self._batch_tokens, "seed": self._seed}

    def _find_version(self, packed: bool) -> int:
        return CUTTING_VERSION if packed and self._can_cut else ORDER_VERSION

    def state_dict(self) -> dict[str, int]:
        """The position of the next step; the same for every rank."""
        version, bucket = self._find_version(self.is_packed), self.order.bucket
        kind = {"order": version, "packed": int(self.is_packed), "bucket": bucket}
        return {**kind, **self._position._asdict(), **self._identity()}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue at the position in `state`, with any number of ranks. Takes as long as cutting one window.

        Rows are packed, or padded, from now on as those of the loader of `state` were.
        Raises CheckpointError if the loader of `state` had other rows, another batch_tokens or another seed, or ordered
        rows by the rule of another version.
        """
        if (version := state.get("order")) != (here := self._find_version(bool(state.get("packed")))):
            raise CheckpointError(
                f"can't resume: another version of albert-data saved the state: its order of rows is number "
                f"{show(version)}, here it is {here}; resume with the version that saved it, or start another "
                "run from its weights with --init-from"
            )
        if lacking := self.state_dict().keys() - state.keys():
            raise CheckpointError(f"can't resume: the state lacks {min(lacking)}; another version saved it")
        for name, own in self._identity().items():
            if state[name] != own:
                raise CheckpointError(
                    f"can't resume: the loader's {name} is {own}, but the state has {show(state[name])}; "
                    "make the loader with the value of the state"
                )
        check_range("bucket", state["bucket"], 1, 2**20)
        order, is_packed = self.order, bool(state["packed"])
        if (state["bucket"], is_packed) != (order.bucket, self.is_packed):
            order = self._make_order(state["bucket"], packed=is_packed)
        position = Position(state["epoch"], state["window"], state["batch"])
        if any(type(number) is not int for number in position) or not order.holds(position):
            raise CheckpointError(f"can't resume: there is no {position}; the state was not made by this version")
        self.order, self._owner, self._position = order, object(), position


def read_ahead(items: Iterator[Item], *, depth: int) -> Generator[Item, None, None]:
    """Yield the items in order; a thread takes them up to `depth` items ahead. With depth 0 there is no thread."""
    if not depth:
        yield from items
        return
    end = object()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="loader") as pool:
        pending = deque(pool.submit(next, items, end) for _ in range(depth))
        try:
            while (item := pending.popleft().result()) is not end:
                pending.append(pool.submit(next, items, end))
                yield cast(Item, item)
        finally:
            pool.shutdown(cancel_futures=True)
