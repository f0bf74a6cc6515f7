"""Finishes the rows of tasks in which some pairs have a segment B of another document.

In: a slice of masked rows. Out: the same rows after `exchange_segments`, with new masks: the number of masked tokens is
nearly fixed for each length, so masks that came along with B would tell which rows were exchanged.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from albert_data.config import BuildConfig, ExampleConfig
from albert_data.data import Examples
from albert_data.examples.exchange import exchange_segments
from albert_data.examples.masks import Pieces, make_rows, mask_by_tables
from albert_data.examples.spans import span_tables
from albert_data.shards.manifest import Manifest
from albert_data.shards.rows import unmask
from albert_data.text.wording import format_share
from albert_data.tokenizer.model import Tokenizer

_FEW = 0.8  # of the wanted random segments; with fewer the build says so


class Exchange:
    """Exchanges segments in the rows of a slice and draws their masks. It can be pickled."""

    def __init__(self, config: ExampleConfig, tokenizer: Tokenizer) -> None:
        self._words = tokenizer.word_rule(config)
        self._config = config
        self._pieces = Pieces.of(tokenizer.specials, self._words, tokenizer.ordinary_ids, config)

    def __call__(self, rows: Examples, shuffle_keys: np.ndarray) -> Examples:
        """The rows, in the same order. shuffle_keys: uint64; a row's masks depend on its own."""
        config = self._config
        sources = np.zeros(len(rows), np.uint16) if rows.sources is None else rows.sources
        pairs, partners = exchange_segments(unmask(rows), sources, config)
        tables = span_tables(config.max_seq_len, config.longest_span, config.mask_prob, config.masking)
        unmasked = make_rows(pairs, self._words, shuffle_keys, np.uint64(config.seed), 0)
        masked = mask_by_tables(pairs, unmasked, tables, self._pieces)
        return dataclasses.replace(masked, sources=rows.sources, document_keys_b=rows.document_keys[partners])


def make_exchange(config: BuildConfig, tokenizer: Tokenizer) -> Exchange | None:
    """None for sentence tasks without random segments."""
    return Exchange(config.examples, tokenizer) if config.examples.task.has_random else None


def describe_shortages(manifest: Manifest) -> list[str]:
    """A line for each split in which far fewer pairs than wanted have a segment B of another document."""
    wanted = 1 / max(1, len(manifest.config.examples.task.orders))
    lines = []
    for name, split in manifest.splits.items():
        num_pairs = split.num_rows - split.num_unpaired
        if split.num_random is not None and split.num_random < _FEW * wanted * num_pairs:
            lines.append(
                f"{name}: {split.num_random:,} of {num_pairs:,} pairs have a segment B of another document, where "
                f"{format_share(wanted, 0)} were wanted: rows of different documents exchange segments of nearly equal "
                "length, and there are too few of these; use more documents"
                + (" or a larger --validation-fraction" if name == "validation" else "")
            )
    return lines
