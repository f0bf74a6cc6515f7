"""Measures the rows of a split, and compares them with what the build intended (ALBERT, sections 3.1 and 4.1).

In: a split of a shard folder. Out: counts, and figures from them. Counts come from the rows alone, one record batch at
a time (counts.py); intended values come from the config and the paper.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from albert_data.config import ExampleConfig
from albert_data.examples.spans import span_shares
from albert_data.inspect.counts import EDGE, count_batch, no_counts
from albert_data.inspect.sources import SourceCounter, SourceCounts
from albert_data.shards.reader import Shards

QUANTILES = {"min": 0.0, "p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95, "max": 1.0}
BUCKET_LENS = (8, 16, 32, 64, 128, 256)  # `train` uses buckets of 64
NUM_PIECES = 20
_NUM_BINS = 8


@dataclass(frozen=True, kw_only=True)
class Figure:
    """intended: None where neither config nor paper gives one; realised: None where there was nothing to measure."""

    name: str
    intended: float | None
    realised: float | None


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Counts over the rows of one split.

    row_lens: rows by tokens, 0 .. max_seq_len; span_lens: spans by words, 1 .. config.longest_span, then the
    longer.
    label_counts: rows of each label of the sentence task, then those without a pair; shown_counts: masked tokens that
    show [MASK], another piece, the original. edge_tokens, edge_masked: maskable and masked tokens at the first EDGE
    positions of a row's text, at the last EDGE, and between; of rows with over 2 * EDGE tokens of text.
    position_tokens, position_masked: the same at each position of a row, [CLS] at 0, of all rows.
    piece_counts: tokens of each piece of the vocabulary before masking, 0 for special pieces; num_unk: those of <unk>.
    by_source: empty where the rows have no sources.
    """

    config: ExampleConfig
    num_documents: int
    num_unk: int
    num_maskable: int
    num_broken_words: int
    num_special_masked: int
    num_special_replacements: int
    label_counts: tuple[int, ...]
    shown_counts: tuple[int, ...]
    row_lens: tuple[int, ...]
    span_lens: tuple[int, ...]
    edge_tokens: tuple[int, ...]
    edge_masked: tuple[int, ...]
    position_tokens: tuple[int, ...]
    position_masked: tuple[int, ...]
    piece_counts: tuple[int, ...]
    by_source: tuple[SourceCounts, ...] = ()

    @property
    def num_rows(self) -> int:
        return sum(self.row_lens)

    @cached_property
    def num_tokens(self) -> int:
        """Tokens with [CLS] and [SEP]."""
        return sum(length * rows for length, rows in enumerate(self.row_lens))

    @property
    def num_masked(self) -> int:
        return sum(self.shown_counts)

    @property
    def mean_row_len(self) -> float | None:
        return _share(self.num_tokens, self.num_rows)

    @property
    def padding_share(self) -> float | None:
        """Of all tokens, if each row were padded to max_seq_len."""
        return self.pad_to_buckets(self.config.max_seq_len)

    def pad_to_buckets(self, bucket_len: int) -> float | None:
        """Share of padding if each row were padded to the next multiple of `bucket_len`, but at most to max_seq_len."""
        ends = (
            min(max(1, -(-n // bucket_len)) * bucket_len, self.config.max_seq_len) for n in range(len(self.row_lens))
        )
        padded = sum(end * rows for end, rows in zip(ends, self.row_lens, strict=True))
        return _share(padded - self.num_tokens, padded)

    @property
    def padding_by_bucket(self) -> dict[int, float | None]:
        """Share of padding by the length of buckets in tokens; the last is max_seq_len, one bucket for all."""
        lens = [bucket_len for bucket_len in BUCKET_LENS if bucket_len < self.config.max_seq_len]
        return {bucket_len: self.pad_to_buckets(bucket_len) for bucket_len in (*lens, self.config.max_seq_len)}

    @property
    def unk_share(self) -> float | None:
        """The share of <unk> in the tokens of text."""
        return _share(self.num_unk, self.num_maskable)

    def most_frequent(self, count: int = NUM_PIECES) -> list[tuple[int, int]]:
        """The ids and counts of the most frequent pieces of text; of equally frequent ones the lower id first."""
        ranked = sorted(enumerate(self.piece_counts), key=lambda pair: (-pair[1], pair[0]))
        return [(i, tokens) for i, tokens in ranked[:count] if tokens]

    @property
    def row_len_quantiles(self) -> dict[str, int | None]:
        """For each of QUANTILES the shortest length that this share of the rows does not exceed."""
        if self.num_rows == 0:
            return dict.fromkeys(QUANTILES)
        ranks = [max(1, math.ceil(share * self.num_rows)) for share in QUANTILES.values()]
        found = np.searchsorted(np.cumsum(self.row_lens), ranks)
        return dict(zip(QUANTILES, found.tolist(), strict=True))

    @property
    def row_len_bins(self) -> list[tuple[int, int, int]]:
        """A small histogram: the shortest and the longest length of each bin, and its rows."""
        width = -(-self.config.max_seq_len // _NUM_BINS)
        firsts = range(1, self.config.max_seq_len + 1, width)
        lasts = (min(first + width - 1, self.config.max_seq_len) for first in firsts)
        return [(a, b, sum(self.row_lens[a : b + 1])) for a, b in zip(firsts, lasts, strict=True)]

    @property
    def edge_ratios(self) -> tuple[float | None, ...]:
        """Masked share at the first and the last EDGE positions of the text, relative to the middle."""
        *shares, middle = map(_share, self.edge_masked, self.edge_tokens)
        return tuple(share / middle if share is not None and middle else None for share in shares)

    @property
    def edge_error(self) -> float | None:
        """The standard error of each of edge_ratios: of the share at one position, divided by the share.

        The share of the middle, from many more tokens, is taken as exact.
        """
        share, num_rows = _share(self.edge_masked[-1], self.edge_tokens[-1]), self.edge_tokens[0]
        return math.sqrt((1 - share) / (share * num_rows)) if share and num_rows else None

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Figures with what was intended, and counts that show a fault if they are not 0. Names are JSON keys."""
        return (*self._mask_figures(), *self._pair_figures(), *self._must_be_zero())

    def _mask_figures(self) -> Iterator[Figure]:
        yield Figure(
            name="masked_share",
            intended=self.config.mask_prob,
            realised=_share(self.num_masked, self.num_maskable),
        )
        intended = [*span_shares(self.config.longest_span, self.config.masking).tolist(), 0.0]
        names = [f"spans_of_{n}" for n in range(1, len(intended))]
        for name, share, count in zip([*names, "spans_longer"], intended, self.span_lens, strict=True):
            yield Figure(name=name, intended=share, realised=_share(count, sum(self.span_lens)))
        names = ["shown_as_mask", "shown_as_random", "shown_as_kept"]
        for name, share, count in zip(names, self.config.replace_shares, self.shown_counts, strict=True):
            yield Figure(name=name, intended=share, realised=_share(count, self.num_masked))

    def _pair_figures(self) -> Iterator[Figure]:
        orders, (*counts, unpaired) = self.config.task.orders, self.label_counts
        for order, count in zip(orders[1:], counts[1:], strict=True):
            yield Figure(name=f"{order}_share", intended=1 / len(orders), realised=_share(count, sum(counts)))
        yield Figure(name="unpaired_share", intended=None, realised=_share(unpaired, self.num_rows))
        yield Figure(name="num_unpaired", intended=None, realised=unpaired)
        yield Figure(name="unknown_share", intended=None, realised=self.unk_share)

    def _must_be_zero(self) -> Iterator[Figure]:
        for name in ("num_broken_words", "num_special_masked", "num_special_replacements"):
            yield Figure(name=name, intended=0, realised=getattr(self, name))

    def to_dict(self) -> dict[str, Any]:
        """Counts, lengths, and each figure as {"intended", "realised"}, for JSON."""
        *labels, unpaired = self.label_counts
        ratios = {"first": self.edge_ratios[:EDGE], "last": self.edge_ratios[EDGE:]}
        return {
            "num_documents": self.num_documents,
            "num_rows": self.num_rows,
            "num_tokens": self.num_tokens,
            "num_maskable": self.num_maskable,
            "num_masked": self.num_masked,
            "num_spans": sum(self.span_lens),
            **{f"num_{name.replace(' ', '_')}": n for name, n in zip(self.config.task.orders, labels, strict=True)},
            "num_unpaired": unpaired,
            "num_unknown": self.num_unk,
            "padding_share": self.padding_share,
            "padding_by_group": [  # a group is a bucket; the names are stable
                {"group_len": bucket_len, "padding_share": share}
                for bucket_len, share in self.padding_by_bucket.items()
            ],
            "row_len": {"mean": self.mean_row_len, **self.row_len_quantiles},
            "row_len_bins": [{"from": a, "to": b, "num_rows": rows} for a, b, rows in self.row_len_bins],
            "figures": {f.name: {"intended": f.intended, "realised": f.realised} for f in self.figures},
            "masked_at_edges": {"intended": 1.0, **ratios, "standard_error": self.edge_error},
            "by_position": {"num_tokens": self.position_tokens, "num_masked": self.position_masked},
            **({"by_source": [source.to_dict() for source in self.by_source]} if self.by_source else {}),
        }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def measure(shards: Shards) -> Statistics:
    """Measure all rows of a split.

    Needs memory for a few record batches, and eight bytes for each document of each batch, to count the documents.
    Raises ShardError at a row that leaves its bounds.
    """
    config, tokenizer = shards.manifest.config.examples, shards.tokenizer
    words = tokenizer.word_rule(config)
    totals = no_counts(config, tokenizer.vocab_size)
    keys = [np.zeros(0, np.uint64)]
    names = shards.manifest.sources
    by_source = None if names is None else SourceCounter(names, tokenizer.unk_id)
    for batch in shards.batches():
        for name, counts in count_batch(batch, tokenizer.specials, words, config).items():
            totals[name] += counts
        keys.append(np.unique(batch.document_keys))
        if by_source is not None:
            by_source.add(batch)
    num_unk = int(totals["pieces"][tokenizer.unk_id])
    totals["pieces"][tokenizer.specials.is_special] = 0
    statistics = _to_statistics(config, totals, num_unk, len(np.unique(np.concatenate(keys))))
    return statistics if by_source is None else replace(statistics, by_source=by_source.finish())


def _to_statistics(
    config: ExampleConfig, totals: dict[str, np.ndarray], num_unk: int, num_documents: int
) -> Statistics:
    counts = {name: total.tolist() for name, total in totals.items()}
    return Statistics(
        config=config,
        num_documents=num_documents,
        num_unk=num_unk,
        num_maskable=counts["words"][0],
        num_broken_words=counts["words"][1],
        num_special_masked=counts["specials"][0],
        num_special_replacements=counts["specials"][1],
        label_counts=tuple(counts["labels"]),
        shown_counts=tuple(counts["shown"]),
        row_lens=tuple(counts["row_lens"]),
        span_lens=tuple(counts["span_lens"]),
        edge_tokens=tuple(counts["edges"][0]),
        edge_masked=tuple(counts["edges"][1]),
        position_tokens=tuple(counts["positions"][0]),
        position_masked=tuple(counts["positions"][1]),
        piece_counts=tuple(counts["pieces"]),
    )
