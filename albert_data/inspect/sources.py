"""Counts the rows of each source, which is a language or a source of a mixture, so that no average hides one.

In: the rows of a folder, one record batch at a time. Out: a `SourceStatistics` a source, the one that is worst for
training first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from albert_data.data import Examples
from albert_data.examples.pair_tasks import NO_LABEL
from albert_data.inspect.audit import rules
from albert_data.inspect.words import WordArrays, count_words, find_text_words
from albert_data.shards.reader import Shards
from albert_data.shards.rows import restore_ids
from albert_data.text.wording import divide

MIN_DOCUMENTS = 10  # a source of fewer is not judged
_COUNTS = (
    *("num_rows", "num_unpaired", "num_without_task", "num_tokens", "num_text_tokens"),
    *("num_words", "num_masked", "num_unk"),
)


@dataclass(frozen=True, kw_only=True)
class SourceStatistics:
    """The rows of one source."""

    name: str
    num_documents: int
    num_rows: int
    num_unpaired: int
    num_without_task: int  # rows with neither masks nor a pair
    num_tokens: int  # with the special ones
    num_text_tokens: int  # without
    num_words: int  # that begin in the text
    num_masked: int
    num_unk: int

    @property
    def shares(self) -> dict[str, float | None]:
        """None where there is nothing to measure."""
        return {
            "unk_share": divide(self.num_unk, self.num_text_tokens),
            "unpaired_share": divide(self.num_unpaired, self.num_rows),
            "without_task_share": divide(self.num_without_task, self.num_rows),
            "masked_share": divide(self.num_masked, self.num_text_tokens),
            "words_per_token": divide(self.num_words, self.num_text_tokens),
        }

    @property
    def is_small(self) -> bool:
        """Whether it has too few documents to be judged."""
        return self.num_documents < MIN_DOCUMENTS

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), **self.shares}


class SourceCounter:
    """Adds up the counts of each source. Needs eight bytes for each document of each batch.

    Where rows have no sources, all of them count for one.
    """

    def __init__(self, shards: Shards) -> None:
        self._names, self._tokenizer = shards.manifest.sources, shards.tokenizer
        self._has_pairs = bool(shards.manifest.config.examples.task.orders)
        num_sources = len(self._names or ("all",))
        self._keys = [[np.zeros(0, np.uint64)] for _ in range(num_sources)]
        self._counts = np.zeros((num_sources, len(_COUNTS)), np.int64)
        self._words = find_text_words(self._tokenizer) if self._names else None

    def add(self, batch: Examples) -> None:
        sources = np.zeros(len(batch), np.int64) if batch.sources is None else batch.sources
        for source in np.unique(sources).tolist():
            self._keys[source].append(np.unique(batch.document_keys[sources == source]))
        if self._words is not None:
            np.add.at(self._counts, sources, self._measure(batch, self._words))

    def _measure(self, batch: Examples, words: WordArrays) -> np.ndarray:
        """The values of _COUNTS for each row: int64 [rows, 8]."""
        original, row_lens, is_unpaired = restore_ids(batch), np.diff(batch.offsets), batch.sop_label == NO_LABEL
        joined = self._tokenizer.word_rule().find_joined(original)
        num_masked = np.diff(batch.mask_offsets)
        columns = {
            "num_rows": np.ones(len(batch), np.int64),
            "num_unpaired": is_unpaired,
            "num_without_task": is_unpaired & (num_masked == 0),
            "num_tokens": row_lens,
            "num_text_tokens": row_lens - np.where(is_unpaired, 2, 3),  # a pair has one [SEP] more
            "num_words": count_words(original, batch.offsets, words, joined),
            "num_masked": num_masked,
            "num_unk": np.diff(np.append(0, np.cumsum(original == self._tokenizer.unk_id))[batch.offsets]),
        }
        return np.stack([columns[name] for name in _COUNTS], axis=1)

    def count_documents(self) -> int:
        """The documents of all rows."""
        return len(np.unique(np.concatenate([part for parts in self._keys for part in parts])))

    def finish(self) -> tuple[SourceStatistics, ...]:
        """The sources, the worst for training first, then those that are too small; empty where rows have none."""
        found = (
            SourceStatistics(
                name=name, num_documents=len(np.unique(np.concatenate(keys))), **dict(zip(_COUNTS, counts, strict=True))
            )
            for name, keys, counts in zip(self._names or (), self._keys, self._counts.tolist(), strict=False)
        )
        return tuple(sorted(found, key=lambda one: (one.is_small, -self._rate(one))))

    def _rate(self, one: SourceStatistics) -> float:
        """Its worst share, as a multiple of what is bad."""
        judged = {"unk_share": rules.UNKNOWN_RATE, "without_task_share": rules.ROWS_WITHOUT_TASK}
        if self._has_pairs:
            judged["unpaired_share"] = rules.UNPAIRED_ROWS
        return max((one.shares[name] or 0.0) / rule.limits[1] for name, rule in judged.items())
