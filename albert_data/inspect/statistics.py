"""Measures the rows of a split, and compares them with what the build intended (ALBERT, sections 3.1 and 4.1).

In: a split of a shard folder. Out: counts, and figures from them. Counts come from the rows alone, one record batch at
a time; intended values come from the config and the paper.

Words are found in the original text, as it is decoded. A span is a longest sequence of words masked whole, inside one
segment: masks.py leaves an unmasked word between two spans, so two spans never join. If it masks single words, without
such gaps, each masked word is a span. A drawn span that was split where a segment ends counts as two, as in the
intended shares.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from albert_data.config import ExampleConfig
from albert_data.data import Examples
from albert_data.examples.pair_tasks import NO_LABEL
from albert_data.examples.spans import span_shares
from albert_data.inspect.sources import SourceCounter, SourceStatistics
from albert_data.inspect.words import WordArrays, find_text_words
from albert_data.kernels import kernel
from albert_data.shards.reader import Shards
from albert_data.shards.rows import locate_masks, no_rows, restore_ids
from albert_data.text.wording import divide
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.piece_texts import count_letters, find_script
from albert_data.tokenizer.words import begins_word

QUANTILES = {"min": 0.0, "p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95, "max": 1.0}
_NUM_BINS = 16


class Figure(NamedTuple):
    """intended: None where neither config nor paper gives one; realised: None where there was nothing to measure."""

    name: str
    intended: float | None
    realised: float | None


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Counts over the rows of one split."""

    config: ExampleConfig
    num_documents: int
    num_unk: int
    num_maskable: int  # tokens of text
    label_counts: tuple[int, ...]  # rows of each label of the sentence task, then those without a pair
    shown_counts: tuple[int, ...]  # masked tokens that show [MASK], another piece, the original
    row_lens: tuple[int, ...]  # rows by tokens, 0 .. max_seq_len
    span_lens: tuple[int, ...]  # spans by words, 1 .. config.longest_span, then the longer
    piece_counts: tuple[int, ...]  # tokens of each piece before masking, 0 for special pieces
    by_source: tuple[SourceStatistics, ...] = ()  # the worst first; empty where the rows have no sources

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
        return divide(self.num_tokens, self.num_rows)

    @property
    def padding_share(self) -> float | None:
        """Of all tokens, if each row were padded to max_seq_len."""
        padded = self.num_rows * self.config.max_seq_len
        return divide(padded - self.num_tokens, padded)

    @property
    def unk_share(self) -> float | None:
        """The share of <unk> in the tokens of text."""
        return divide(self.num_unk, self.num_maskable)

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
        longest = self.config.max_seq_len
        width = -(-longest // _NUM_BINS)
        bounds = [(first, min(first + width - 1, longest)) for first in range(1, longest + 1, width)]
        return [(first, last, sum(self.row_lens[first : last + 1])) for first, last in bounds]

    @property
    def figures(self) -> Iterator[Figure]:
        """Figures with what was intended. Their names are JSON keys."""
        config, (*pairs, unpaired) = self.config, self.label_counts
        yield Figure("masked_share", config.mask_prob, divide(self.num_masked, self.num_maskable))
        intended = [*span_shares(config.longest_span, config.masking).tolist(), 0.0]
        names = [*(f"spans_of_{n}" for n in range(1, len(intended))), "spans_longer"]
        for name, share, count in zip(names, intended, self.span_lens, strict=True):
            yield Figure(name, share, divide(count, sum(self.span_lens)))
        names = ["shown_as_mask", "shown_as_random", "shown_as_kept"]
        for name, share, count in zip(names, config.replace_shares, self.shown_counts, strict=True):
            yield Figure(name, share, divide(count, self.num_masked))
        for order, count in zip(config.task.orders[1:], pairs[1:], strict=True):
            yield Figure(f"{order}_share", 1 / len(pairs), divide(count, sum(pairs)))
        yield Figure("unpaired_share", None, divide(unpaired, self.num_rows))
        yield Figure("num_unpaired", None, unpaired)
        yield Figure("unknown_share", None, self.unk_share)

    def to_dict(self) -> dict[str, Any]:
        """Counts, lengths, and each figure as {"intended", "realised"}, for JSON."""
        *labels, unpaired = self.label_counts
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
            "row_len": {"mean": self.mean_row_len, **self.row_len_quantiles},
            "row_len_bins": [{"from": a, "to": b, "num_rows": rows} for a, b, rows in self.row_len_bins],
            "figures": {f.name: {"intended": f.intended, "realised": f.realised} for f in self.figures},
            **({"by_source": [source.to_dict() for source in self.by_source]} if self.by_source else {}),
        }


# ---- scripts ----


@dataclass(frozen=True, kw_only=True)
class ScriptCount:
    """script: as in "Latin"; share: of all letters of the split."""

    script: str
    num_letters: int
    num_tokens: int
    share: float


def count_scripts(piece_counts: Sequence[int], pieces: Sequence[str]) -> list[ScriptCount]:
    """Every script of the text, the one with most letters first. pieces: what each is in text.

    A token counts for the script of most of its letters, in a tie for the one that comes first in it; one without
    letters, such as an unknown one, counts for none.
    """
    letters, tokens = Counter[str](), Counter[str]()
    for piece, count in zip(pieces, piece_counts, strict=True):
        if not count:
            continue
        for name, number in count_letters(piece).items():
            letters[name] += number * count
        if name := find_script(piece):
            tokens[name] += count
    total = letters.total()
    return [
        ScriptCount(script=name.capitalize(), num_letters=number, num_tokens=tokens[name], share=number / total)
        for name, number in sorted(letters.items(), key=lambda item: (-item[1], item[0]))
    ]


# ---- counting ----


def measure(shards: Shards) -> Statistics:
    """Measure all rows of a split. Raises ShardError at a row that leaves its bounds.

    Needs memory for a few record batches, and eight bytes for each document of each batch, to count the documents.
    """
    config, tokenizer = shards.manifest.config.examples, shards.tokenizer
    words = find_text_words(tokenizer)
    if not config.masks_words:  # each piece is one
        ones = np.ones_like(words.starts)
        words = WordArrays(tokenizer.specials.is_special, ones, ones, np.zeros(len(ones), np.int64))
    totals, sources = dict[str, Any](), SourceCounter(shards)
    for batch in chain([no_rows()], shards.batches()):
        counts = count_batch(batch, tokenizer, words, config)
        totals = {name: count + totals.get(name, 0) for name, count in counts.items()}
        sources.add(batch)
    num_unk = int(totals["piece_counts"][tokenizer.unk_id])
    totals["piece_counts"][tokenizer.specials.is_special] = 0
    counted = dict[str, Any]((name, np.asarray(total).tolist()) for name, total in totals.items())
    counted |= {name: tuple(total) for name, total in counted.items() if isinstance(total, list)}
    num_documents = sources.count_documents()
    return Statistics(
        config=config, num_documents=num_documents, num_unk=num_unk, **counted, by_source=sources.finish()
    )


class OriginalRows(NamedTuple):
    """Rows as they were before masking. ids, offsets and segment_a_len are as in Examples."""

    ids: np.ndarray
    offsets: np.ndarray
    segment_a_len: np.ndarray
    is_masked: np.ndarray  # bool [tokens]
    joined: np.ndarray  # bool [tokens], or [0] without a word list: see WordRule.find_joined


def count_batch(batch: Examples, tokenizer: Tokenizer, words: WordArrays, config: ExampleConfig) -> dict[str, Any]:
    """The counts of Statistics over rows within their bounds, by their names: int or int64, to be added up."""
    is_special, original, masked = tokenizer.specials.is_special, restore_ids(batch), locate_masks(batch)
    is_masked = np.zeros(len(original), np.bool_)
    is_masked[masked] = True
    rows = OriginalRows(
        original, batch.offsets, batch.segment_a_len, is_masked, tokenizer.word_rule().find_joined(original)
    )
    shown = batch.input_ids[masked]
    shows_mask = shown == tokenizer.mask_id
    kept = ~shows_mask & (shown == batch.masked_ids)
    labels = (*range(len(config.task.orders)), NO_LABEL)
    return {
        "num_maskable": np.count_nonzero(~is_special[original]),
        "label_counts": np.array([np.count_nonzero(batch.sop_label == label) for label in labels]),
        "shown_counts": np.array([shows_mask.sum(), (~shows_mask & ~kept).sum(), kept.sum()]),
        "row_lens": np.bincount(np.diff(batch.offsets), minlength=config.max_seq_len + 1),
        "span_lens": count_spans(rows, words, config.span_gap, config.longest_span),
        "piece_counts": np.bincount(original, minlength=len(is_special)),
    }


@kernel
def count_spans(rows: OriginalRows, words: WordArrays, gap: int, longest_span: int) -> np.ndarray:
    """Statistics.span_lens. gap: between spans, in words."""
    ids, span_lens = rows.ids, np.zeros(longest_span + 1, np.int64)
    for row in range(len(rows.segment_a_len)):
        begin, end = rows.offsets[row], rows.offsets[row + 1]
        sep = begin + 1 + rows.segment_a_len[row]
        for segment in range(2):
            first, last = (begin + 1, sep) if segment == 0 else (sep + 1, end - 1)
            span_len, size, masked, num_inside = 0, 0, 0, 0  # words of the span, and tokens of the word, so far
            for at in range(first, last + 1):  # one more, to end the last word and span
                is_apart = at == last or words.is_apart[ids[at]]
                is_joined = len(rows.joined) > 0 and rows.joined[at]
                if size > 0 and (
                    is_apart or (begins_word(ids, at, first, words.starts, words.standalone) and not is_joined)
                ):
                    if span_len > 0 and (masked < size or gap == 0):
                        span_lens[min(span_len, len(span_lens)) - 1] += 1
                        span_len = 0
                    if masked == size:
                        span_len += 1 + num_inside
                    size, masked, num_inside = 0, 0, 0
                if not is_apart:
                    size += 1
                    masked += rows.is_masked[at]
                    num_inside += words.num_inside[ids[at]]
            if span_len > 0:
                span_lens[min(span_len, len(span_lens)) - 1] += 1
    return span_lens
