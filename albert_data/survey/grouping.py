"""Which documents are validation where documents of one group must lie in one split.

The split key of a group decides, as that of a document does in other builds. Of equal documents with several groups the
least split key counts, of a mixture only in the source that they belong to, with `alpha` only in languages that use
them: so all documents of a group of validation are there, and none equals one of training. What is held are the 31
groups with the least split keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from albert_data.config import MIN_VALIDATION
from albert_data.kernels.draws import split_keys, threshold
from albert_data.shards.manifest import SPLITS
from albert_data.survey.document_lists import DocumentReader, Listed
from albert_data.survey.made import Made
from albert_data.survey.passes import Limits
from albert_data.survey.sizes import estimate_bytes
from albert_data.survey.sorted_columns import find_changes, write_u64
from albert_data.survey.splits import Move, check_drawn, count_wanted, is_validation_emptied

_FILE = "grouped.keys"


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """sizes: about the bytes of each split; num_validation: its documents; move: those that change their split."""

    sizes: dict[str, int]
    num_validation: int
    move: Move | None = None


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


class Groups:
    """Judges documents by their groups. limits: of the sources that have passes of their own; id_bytes: of a token."""

    def __init__(self, reader: DocumentReader, limits: Limits | None, id_bytes: int) -> None:
        self._reader, self._limits, self._id_bytes = reader, limits, id_bytes
        self._config = reader.config

    def decide(self, made: Made) -> Grouping:
        """Decide the splits."""
        config, drawn = self._config, threshold(self._config.drawn_fraction)
        num_documents, num_bytes = np.zeros(2, int), np.zeros(2, int)
        nearest = _Nearest(*(np.zeros(0, kind) for kind in (np.uint64, np.int64, np.int64)))
        for some in self._read():
            is_drawn = (some.least < drawn).astype(int)  # in the order of SPLITS
            np.add.at(num_documents, is_drawn, 1)
            np.add.at(num_bytes, is_drawn, some.sizes)
            nearest = nearest.add(some)
        check_drawn(config, num_documents.tolist(), nearest.bits)
        is_given = config.validation_fraction is not None
        num_moved = None if is_given else _count_moved(nearest.counts, *num_documents.tolist())
        if num_moved is None and not is_validation_emptied(made, num_documents[1]):
            sizes = dict(zip(SPLITS, num_bytes.tolist(), strict=True))
            return Grouping(sizes=sizes, num_validation=int(num_documents[1]))
        num_moved = num_moved or 0
        # No document is below 0, not even a dropped one.
        bound = nearest.bits[num_moved] if num_moved else np.uint64(0)
        moved_bytes = int(nearest.sizes[:num_moved].sum())
        from_split, to_split = SPLITS if num_documents[0] and num_moved else reversed(SPLITS)
        moved = (some.keys[some.least < bound] for some in self._read(all_used=True))
        move = Move(
            seed=config.examples.seed,
            bound=int(bound),
            keys=write_u64(self._reader.folder / _FILE, moved),
            from_split=from_split,
            to_split=to_split,
            runs=frozenset(made.runs),
            num_documents=int(nearest.counts[:num_moved].sum()),
            num_drawn=int(num_documents[1]),
            num_bytes=moved_bytes,
        )
        sizes = {"train": int(num_bytes.sum()) - moved_bytes, "validation": moved_bytes}
        return Grouping(sizes=sizes, num_validation=move.num_documents, move=move)

    def find_torn(self, listed: Listed) -> np.ndarray:
        """Which documents of validation have copies under train, by groups that are drawn for it: bool."""
        drawn, some = threshold(self._config.drawn_fraction), self._group(listed, all_used=True)
        return np.isin(listed.keys, some.keys[(some.least < drawn) & (some.most >= drawn)])

    def _read(self, *, all_used: bool = False) -> Iterator[_Grouped]:
        yield from (self._group(listed, all_used=all_used) for listed in self._reader.read())

    def _group(self, listed: Listed, *, all_used: bool) -> _Grouped:
        """all_used: also similar ones, whose rows must be found in the split that they would be in."""
        config, keys = self._config.examples, listed.keys
        bits = split_keys(np.uint64(config.seed), listed.groups)
        if self._limits is None:
            passes = np.full(len(keys), config.dupe_factor)
        else:
            passes = self._limits.count_passes(listed.sources, config.seed, keys).astype(np.int64)
        order = np.lexsort((listed.tokens, bits, listed.sources, keys))  # of several forms, that of the least split key
        keys, bits, passes, sources = keys[order], bits[order], passes[order], listed.sources[order]
        firsts = np.flatnonzero(find_changes(keys[None]))
        is_own = sources == np.repeat(sources[firsts], np.diff(firsts, append=len(keys)))
        if self._config.alpha is not None:  # a text of two languages belongs to both
            is_own = passes > 0
        least = np.minimum.reduceat(np.where(is_own, bits, np.uint64(2**64 - 1)), firsts)
        most = np.maximum.reduceat(np.where(is_own, bits, np.uint64(0)), firsts)
        passes = np.maximum.reduceat(np.where(is_own, passes, 0), firsts)
        sizes = estimate_bytes(listed.tokens[order][firsts], passes, config, self._id_bytes)
        is_used = passes > 0
        if not all_used:
            is_used &= ~listed.is_similar[order][firsts]
        return _Grouped(keys[firsts][is_used], least[is_used], most[is_used], sizes[is_used])


def _count_moved(counts: np.ndarray, num_train: int, num_validation: int) -> int | None:
    """How many of the nearest groups make validation; None if it stays as it was drawn. counts: their documents."""
    num_documents = num_train + num_validation
    wanted = count_wanted(num_documents)
    if num_train and num_validation >= wanted:
        return None
    num_moved = min(int(np.searchsorted(np.cumsum(counts), wanted)) + 1, len(counts) - 1)  # training keeps a group
    return None if num_train and not num_moved else num_moved
