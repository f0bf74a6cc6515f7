"""Plan the shards: how many there are, and which rows each gets.

Shard s of N holds the rows with shuffle keys from s * 2**64 / N to below (s + 1) * 2**64 / N. The number of shards and
slices decides the bytes of the shards, so it is computed from the set of documents. How much is read at once is
computed from what the sorted runs hold, copies included, since it bounds the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from pathlib import Path
from typing import Any

import numpy as np

from albert_data.config import MIN_VALIDATION, BuildConfig
from albert_data.errors import InputError
from albert_data.kernels.draws import split_keys, threshold
from albert_data.pipeline.choosing import Choice
from albert_data.pipeline.mapping import measure_rows
from albert_data.pipeline.receipts import TaskReceipt
from albert_data.shards.manifest import SPLITS
from albert_data.shards.schema import SHARD_SUFFIX
from albert_data.survey.sorted_columns import find_keys, map_u64
from albert_data.text.wording import count_of

SHARD_BYTES = 32 << 20
MOST_SHARDS = 40_000  # of a split by default: reached at 1.3 TB of rows, 2 TB of English text; then shards get larger
SLICE_BYTES = 8 << 20
KEYS = 2**64


@dataclass(frozen=True, kw_only=True)
class ReduceTask:
    """One shard to write.

    num_slices: how many record batches it gets; slice_bytes: about what the runs hold for each, copies included.
    seal: of the build's plan. It is part of the names in .build, so that a worker which outlives the lock of its build
        replaces no file of the next one.
    """

    split: str
    shard: int
    num_shards: int
    num_slices: int
    slice_bytes: int
    seal: str = ""

    @property
    def file(self) -> str:
        return f"{self.split}/shard-{self.shard:05d}{SHARD_SUFFIX}"

    @property
    def num_bytes(self) -> int:
        """About what the runs hold for it."""
        return self.num_slices * self.slice_bytes

    @property
    def made_file(self) -> str:
        """The name until the shard is published."""
        return f"{self.split}/shard-{self.shard:05d}-{self.seal}{SHARD_SUFFIX}"

    @property
    def receipt_name(self) -> str:
        return f"{self.split}-{self.shard:05d}-{self.seal}.json"

    def describe(self) -> str:
        return f"shard {self.file}"


@dataclass(frozen=True, kw_only=True)
class Move:
    """Documents change their split: those of validation are now all with split keys below `bound`.

    In the sorted runs, the rows of those that change lie under `from_split`, and only in `runs`, by their names.
    num_documents: of validation; num_drawn: those that were drawn for it; num_bytes: of the rows of one pass, in a
    mixture and with groups of all passes.
    keys: with groups, the file of the keys of all documents of validation, in place of `bound`.
    """

    seed: int
    bound: int
    from_split: str
    to_split: str
    runs: frozenset[str]
    num_documents: int
    num_drawn: int
    num_bytes: int
    keys: Path | None = None

    def find_rows(self, document_keys: np.ndarray, split: str) -> np.ndarray:
        """Which rows belong to a split: bool."""
        if self.keys is None:
            is_validation = split_keys(np.uint64(self.seed), document_keys) < np.uint64(self.bound)
        else:
            is_validation, _ = find_keys(document_keys, map_u64(self.keys))
        return is_validation if split == "validation" else ~is_validation


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """The splits where documents of one group lie in one, see grouping.py.

    sizes: about the bytes of each split; num_validation: its documents
    move: the documents that change their split; held_out: where none do, the file with the keys of those of validation
        that have copies under train, None if there are none
    """

    sizes: dict[str, int]
    num_validation: int
    move: Move | None = None
    held_out: Path | None = None


@dataclass(frozen=True, kw_only=True)
class ReduceRules:
    """The settings of the reduce stage.

    sources: source codes, in the order of the manifest's `sources`.
    choice: which rows of a mixture are kept; None for other builds. removed, left_out: the files with the keys of the
    documents that no split gets, and that training does not get; None if there are none. grouping: None without groups.
    lost: the file with the forms of documents that are dropped because another form stays; None without any.
    """

    id_dtype: type[Any]
    compression: str
    keep_duplicates: bool
    move: Move | None
    sources: tuple[int, ...]
    choice: Choice | None = None
    left_out: Path | None = None
    removed: Path | None = None
    grouping: Grouping | None = None
    lost: Path | None = None


def count_wanted(num_documents: int) -> int:
    """How many documents validation gets at least: MIN_VALIDATION, or a tenth of all, or one of several.

    >>> [count_wanted(number) for number in (1, 2, 100, 1000)]
    [0, 1, 10, 30]
    """
    return min(MIN_VALIDATION, num_documents // 10) or int(num_documents > 1)


def is_validation_emptied(total: TaskReceipt, num_validation: int) -> bool:
    """Whether all that was drawn for validation is dropped. If none follows, training reads it: copies are counted."""
    return not num_validation and total.counts["validation_rows"] > 0


def check_drawn(config: BuildConfig, num_documents: Sequence[int], bits: np.ndarray) -> None:
    """Raise InputError if a given fraction draws no document for validation, or all.

    num_documents: in the order of SPLITS; bits: the least distinct split keys, ascending.
    """
    if not config.validation_fraction or all(num_documents):
        return
    at = min(count_wanted(sum(num_documents)), len(bits) - 1)  # so many split keys would be drawn by default
    drawn, most = int(bits[at - 1]) if at else KEYS, int(bits[-1])
    rounded = (Context(prec, ROUND_CEILING).create_decimal_from_float((drawn + 1) / KEYS) for prec in range(2, 18))
    works = next((one for one in map(float, rounded) if one <= 0.5 and drawn < threshold(one) <= most), None)
    what = "all documents, and leaves none for training" if num_documents[1] else "no document for validation"
    other = "" if works is None else f", or pass {works}"
    raise InputError(
        f"--validation-fraction {config.validation_fraction:g} draws {what}; a given share is never adjusted, so leave "
        f"the option out{other}, and give --overwrite"
    )


def find_move(total: TaskReceipt, config: BuildConfig) -> Move | None:
    """The documents that must change their split; None where none must, as with a given fraction.

    Documents with split keys below a bound go to validation. If these are too few, those with the next split keys
    follow until there are MIN_VALIDATION, or a tenth of all, or one. If all are below the bound, validation keeps only
    so many. A lone document goes to training.
    """
    num_train, num_validation = (total.samples[split].count() for split in SPLITS)
    num_documents = num_train + num_validation
    nearest, keys = total.nearest, np.unique(total.nearest.hashes)
    check_drawn(config, (num_train, num_validation), keys)
    wanted, is_emptied = count_wanted(num_documents), is_validation_emptied(total, num_validation)
    is_enough = num_train and num_validation >= wanted and not is_emptied
    if config.validation_fraction is not None or is_enough:
        return None
    # The last key has a part if the keys of many documents collide. Those of dropped documents may be below all.
    bound = int(keys[min(wanted, len(keys) - 1)]) if wanted else 0
    to_training = not num_train or not wanted
    runs = total.runs if to_training else (run for run, least in total.least.items() if least < bound)
    return Move(
        seed=config.examples.seed,
        bound=bound,
        from_split="validation" if to_training else "train",
        to_split="train" if to_training else "validation",
        runs=frozenset(runs),
        num_documents=int(np.count_nonzero(keys < bound)),
        num_drawn=num_validation,
        num_bytes=int(nearest.sizes[nearest.hashes < bound].sum()),
    )


def describe_validation(total: TaskReceipt, rules: ReduceRules) -> list[str]:
    """A line if validation has few documents."""
    num_documents = rules.move.num_documents if rules.move else total.samples["validation"].count()
    num_documents = rules.grouping.num_validation if rules.grouping else num_documents
    if not 0 < num_documents < MIN_VALIDATION:
        return []
    more = "" if rules.left_out else ", a larger --validation-fraction, or text of your own by --validation"
    return [
        f"validation: {count_of(num_documents, 'document')}, fewer than {MIN_VALIDATION}, so its figures are rough; "
        f"use more documents{more}"
    ]


def plan_reduce(total: TaskReceipt, config: BuildConfig, rules: ReduceRules) -> list[ReduceTask]:
    """The shards of all splits that have rows."""
    move, choice, passes = rules.move, rules.choice, config.examples.dupe_factor
    id_bytes = np.dtype(rules.id_dtype).itemsize
    held = {split: _measure_section(total, split, id_bytes) for split in SPLITS}
    if rules.grouping:
        sizes, passes = rules.grouping.sizes, 1
    elif choice:
        sizes, passes = choice.num_bytes, 1
    elif config.keep_duplicates:
        sizes = held
    else:
        sizes = {split: total.samples[split].estimate() * passes for split in SPLITS}
    if move:
        num_bytes = move.num_bytes * passes
        sizes = {"train": sum(sizes.values()) - num_bytes, "validation": num_bytes}
        held = {**held, move.to_split: sum(held.values())}
    if move or rules.left_out:  # training has rows, however large what is taken from an estimate
        sizes = {**sizes, "train": max(1, sizes["train"])}
    tasks = []
    for split in reversed(SPLITS):  # with documents that move, the shard of validation takes longest
        if held[split] and sizes[split]:
            count = config.num_shards if split == "train" else None
            tasks += plan_shards(split, sizes[split], count, held[split])
    return tasks


def _measure_section(total: TaskReceipt, section: str, id_bytes: int) -> int:
    """How many bytes of Arrow data the rows of one split in all sorted runs make, copies included."""
    rows, tokens, masked = (total.counts[f"{section}_{what}"] for what in ("rows", "tokens", "masked"))
    return int(measure_rows(rows, tokens, masked, id_bytes))


def plan_shards(split: str, num_bytes: int, num_shards: int | None, held_bytes: int) -> list[ReduceTask]:
    """Tasks for a split of `num_bytes` of Arrow data.

    num_shards: None for as many as make shards of SHARD_BYTES, and at most MOST_SHARDS
    held_bytes: of the split's rows in the runs, copies included.
    """
    count = num_shards or min(max(1, round(num_bytes / SHARD_BYTES)), MOST_SHARDS)
    num_slices = max(1, -(-num_bytes // (count * SLICE_BYTES)))
    slice_bytes = held_bytes // (count * num_slices)
    return [
        ReduceTask(split=split, shard=shard, num_shards=count, num_slices=num_slices, slice_bytes=slice_bytes)
        for shard in range(count)
    ]
