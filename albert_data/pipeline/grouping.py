"""Which documents are validation where documents of one group must lie in one split, decided between map and reduce.

In: the lists of all map tasks (`list_groups`). Out: a `Grouping`, by which reduce keeps rows. The split key of a group
decides, as that of a document does in other builds. Of equal documents with several groups the least split key counts,
of a mixture only in the source that they belong to, with `alpha` only in languages that use them: so all documents of a
group of validation are there, and none equals one of training. What is held are the 31 groups with the least split
keys, and files are merged by ranges of keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from albert_data.config import MIN_VALIDATION, BuildConfig
from albert_data.kernels.draws import choice_keys, split_keys, threshold
from albert_data.pipeline.choosing import Choice, estimate_bytes
from albert_data.pipeline.receipts import TaskReceipt
from albert_data.pipeline.shard_plan import Grouping, Move, check_drawn, count_wanted, is_validation_emptied
from albert_data.shards.manifest import SPLITS
from albert_data.survey.sorted_columns import find_changes, find_keys, map_u64, merge_columns, write_u64

_FILE = "grouped.keys"


class _Grouped(NamedTuple):
    """Documents that are used, by their keys, each once.

    least, most: uint64, the least and the greatest split key of its groups; sizes: int64, about the bytes of its rows
    """

    keys: np.ndarray
    least: np.ndarray
    most: np.ndarray
    sizes: np.ndarray


class _Nearest(NamedTuple):
    """Groups with the least split keys, ascending: uint64; their documents and the bytes of these: int64."""

    bits: np.ndarray
    counts: np.ndarray
    sizes: np.ndarray

    def add(self, some: _Grouped) -> _Nearest:
        bits, which = np.unique(np.append(self.bits, some.least), return_inverse=True)
        counts, sizes = np.zeros(len(bits), np.int64), np.zeros(len(bits), np.int64)
        np.add.at(counts, which, np.append(self.counts, np.ones(len(some.keys), np.int64)))
        np.add.at(sizes, which, np.append(self.sizes, some.sizes))
        return _Nearest(*(column[: MIN_VALIDATION + 1] for column in (bits, counts, sizes)))


def group_documents(
    folder: Path, total: TaskReceipt, config: BuildConfig, id_bytes: int, choice: Choice | None, removed: Path | None
) -> Grouping:
    """Decide the splits. id_bytes: of a token in a shard; choice, removed: see `ReduceRules`."""
    reader = _Reader(folder, total, config, id_bytes, choice, removed)
    drawn, num_documents, num_bytes = threshold(config.drawn_fraction), np.zeros(2, int), np.zeros(2, int)
    nearest = _Nearest(*(np.zeros(0, kind) for kind in (np.uint64, np.int64, np.int64)))
    for some in reader.read():
        is_drawn = (some.least < drawn).astype(int)  # in the order of SPLITS
        np.add.at(num_documents, is_drawn, 1)
        np.add.at(num_bytes, is_drawn, some.sizes)
        nearest = nearest.add(some)
    check_drawn(config, num_documents.tolist(), nearest.bits)
    is_given = config.validation_fraction is not None
    num_moved = None if is_given else _count_moved(nearest.counts, *num_documents.tolist())
    if num_moved is None and not is_validation_emptied(total, num_documents[1]):
        used = reader.read(all_used=True)
        path = write_u64(folder / _FILE, (some.keys[(some.least < drawn) & (some.most >= drawn)] for some in used))
        sizes = dict(zip(SPLITS, num_bytes.tolist(), strict=True))
        return Grouping(sizes=sizes, num_validation=int(num_documents[1]), held_out=path)
    num_moved = num_moved or 0
    bound = nearest.bits[num_moved] if num_moved else np.uint64(0)  # no document is below it, not even a dropped one
    moved_bytes = int(nearest.sizes[:num_moved].sum())
    from_split, to_split = SPLITS if num_documents[0] and num_moved else reversed(SPLITS)
    move = Move(
        seed=config.examples.seed,
        bound=int(bound),
        keys=write_u64(folder / _FILE, (some.keys[some.least < bound] for some in reader.read(all_used=True))),
        from_split=from_split,
        to_split=to_split,
        runs=frozenset(total.runs),
        num_documents=int(nearest.counts[:num_moved].sum()),
        num_drawn=int(num_documents[1]),
        num_bytes=moved_bytes,
    )
    sizes = {"train": int(num_bytes.sum()) - moved_bytes, "validation": moved_bytes}
    return Grouping(sizes=sizes, num_validation=move.num_documents, move=move)


def _count_moved(counts: np.ndarray, num_train: int, num_validation: int) -> int | None:
    """How many of the nearest groups make validation; None if it stays as it was drawn. counts: their documents."""
    num_documents = num_train + num_validation
    wanted = count_wanted(num_documents)
    if num_train and num_validation >= wanted:
        return None
    num_moved = min(int(np.searchsorted(np.cumsum(counts), wanted)) + 1, len(counts) - 1)  # training keeps a group
    return None if num_train and not num_moved else num_moved


class _Reader:
    """Reads the lists, a range of keys after another."""

    def __init__(
        self,
        folder: Path,
        total: TaskReceipt,
        config: BuildConfig,
        id_bytes: int,
        choice: Choice | None,
        removed: Path | None,
    ) -> None:
        self._folder, self._files, self._config, self._id_bytes = folder, total.groups, config, id_bytes
        self._choice, self._seed = choice, np.uint64(config.examples.seed)
        self._removed = None if removed is None else map_u64(removed)

    def read(self, *, all_used: bool = False) -> Iterator[_Grouped]:
        """all_used: also those that are removed, whose rows must be found in the split that they would be in."""
        for keys, groups, tokens, places, _ in merge_columns(self._folder, self._files):
            bits = split_keys(self._seed, groups)
            order = np.lexsort((bits, places, keys))
            keys, bits, tokens, places = (column[order] for column in (keys, bits, tokens, places))
            firsts = np.flatnonzero(find_changes(keys[None]))
            passes = self._count_passes(keys, places)
            is_own = places == np.repeat(places[firsts], np.diff(firsts, append=len(keys)))
            if self._config.alpha is not None:  # a text of two languages belongs to both
                is_own = passes > 0
            least = np.minimum.reduceat(np.where(is_own, bits, np.uint64(2**64 - 1)), firsts)
            most = np.maximum.reduceat(np.where(is_own, bits, np.uint64(0)), firsts)
            passes = np.maximum.reduceat(np.where(is_own, passes, 0), firsts)
            keys, tokens = keys[firsts], tokens[firsts]
            sizes = estimate_bytes(tokens.astype(np.int64), passes, self._config.examples, self._id_bytes)
            is_used = passes > 0
            if self._removed is not None and not all_used:
                is_used &= ~find_keys(keys, self._removed)[0]
            yield _Grouped(keys[is_used], least[is_used], most[is_used], sizes[is_used])

    def _count_passes(self, keys: np.ndarray, places: np.ndarray) -> np.ndarray:
        if self._choice is None:
            return np.full(len(keys), self._config.examples.dupe_factor)
        choices = choice_keys(self._seed, keys)
        return self._choice.limits.count_passes(places.astype(np.int64), choices).astype(np.int64)
