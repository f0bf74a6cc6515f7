"""Counts over the rows of each source: of a language, or of a source of a mixture.

In: record batches of rows that have sources. Out: a `SourceCounts` for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from albert_data.data import Examples
from albert_data.examples.pairs import SOP_NONE
from albert_data.shards.rows import restore_ids

_SPECIALS_PER_ROW = 2  # [CLS] and [SEP]; a pair has one [SEP] more


@dataclass(frozen=True, kw_only=True)
class SourceCounts:
    """The rows of one source. num_tokens: with the special ones; num_text_tokens: without; num_unk: those of <unk>."""

    name: str
    num_documents: int
    num_rows: int
    num_unpaired: int
    num_tokens: int
    num_text_tokens: int
    num_masked: int
    num_unk: int

    @property
    def unk_share(self) -> float | None:
        return self.num_unk / self.num_text_tokens if self.num_text_tokens else None

    @property
    def unpaired_share(self) -> float | None:
        return self.num_unpaired / self.num_rows if self.num_rows else None

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "unk_share": self.unk_share}


class SourceCounter:
    """Adds up the counts of batches. names: of the sources, in the order of the column `source`."""

    def __init__(self, names: tuple[str, ...], unk_id: int) -> None:
        self._names, self._unk_id = names, unk_id
        self._totals: dict[str, np.ndarray] = {}
        self._keys: list[list[np.ndarray]] = [[] for _ in names]

    def add(self, batch: Examples) -> None:
        sources = batch.sources
        assert sources is not None, "the shards have sources"
        row_lens, is_unpaired = np.diff(batch.offsets), batch.sop_label == SOP_NONE
        is_unk = restore_ids(batch) == self._unk_id
        values = {
            "num_rows": np.ones(len(sources), np.int64),
            "num_unpaired": is_unpaired,
            "num_tokens": row_lens,
            "num_text_tokens": row_lens - _SPECIALS_PER_ROW - ~is_unpaired,
            "num_masked": np.diff(batch.mask_offsets),
            "num_unk": np.diff(np.append(0, np.cumsum(is_unk))[batch.offsets]),
        }
        for name, of_rows in values.items():
            total = self._totals.setdefault(name, np.zeros(len(self._names), np.int64))
            np.add.at(total, sources, of_rows)
        for source in np.unique(sources).tolist():
            self._keys[source].append(np.unique(batch.document_keys[sources == source]))

    def finish(self) -> tuple[SourceCounts, ...]:
        return tuple(
            SourceCounts(
                name=name,
                num_documents=len(np.unique(np.concatenate([np.zeros(0, np.uint64), *keys]))),
                **{what: int(total[number]) for what, total in self._totals.items()},
            )
            for number, (name, keys) in enumerate(zip(self._names, self._keys, strict=True))
        )
