"""Counts over the rows of one record batch, for statistics.py to add up.

In: a record batch of rows within their bounds. Out: int64 arrays by name. Words are found in the original ids. A span
is a longest sequence of words masked whole, inside one segment: masks.py leaves an unmasked word between two spans, so
two spans never join. If it masks single words, without such gaps, each masked word is a span. A drawn span that was
split where a segment ends counts as two, as in the intended shares.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from albert_data.config import ExampleConfig
from albert_data.data import Examples, Specials
from albert_data.kernels import helper, kernel
from albert_data.pair_tasks import NO_LABEL
from albert_data.shards.rows import locate_masks, restore_ids
from albert_data.tokenizer.words import WordRule, begins_word

EDGE = 5  # positions of text at either end of a row that are counted one by one


class OriginalRows(NamedTuple):
    """Rows as they were before masking. is_masked: bool, of each token; joined: see WordRule.find_joined."""

    ids: np.ndarray
    offsets: np.ndarray
    segment_a_len: np.ndarray
    is_masked: np.ndarray
    joined: np.ndarray


class WordArrays(NamedTuple):
    """Which pieces are special, and the two arrays of a WordRule: one value for each piece."""

    is_special: np.ndarray
    starts: np.ndarray
    standalone: np.ndarray


def no_counts(config: ExampleConfig, vocab_size: int) -> dict[str, np.ndarray]:
    """Zeros, an array for each name.

    words: the number of maskable tokens, and of words masked in part; specials: special ids masked, special ids as
    replacements; shown: masked tokens that show [MASK], another piece, the original; labels: rows in order, swapped,
    unpaired; pieces: tokens of each piece before masking; the others as in Statistics,
    "edges" with edge_tokens and edge_masked in its two rows, "positions" with position_tokens and position_masked.
    """
    shapes: dict[str, int | tuple[int, int]] = {
        "words": 2,
        "specials": 2,
        "labels": len(config.task.orders) + 1,
        "shown": 3,
        "row_lens": config.max_seq_len + 1,
        "span_lens": config.longest_span + 1,
        "edges": (2, 2 * EDGE + 1),
        "positions": (2, config.max_seq_len),
        "pieces": vocab_size,
    }
    return {name: np.zeros(shape, np.int64) for name, shape in shapes.items()}


def count_batch(batch: Examples, specials: Specials, words: WordRule, config: ExampleConfig) -> dict[str, np.ndarray]:
    """Count all that Statistics holds, in rows within their bounds."""
    is_special = specials.is_special
    counts = no_counts(config, len(is_special))
    original, masked = restore_ids(batch), locate_masks(batch)
    is_masked = np.zeros(len(original), np.bool_)
    is_masked[masked] = True
    rows = OriginalRows(original, batch.offsets, batch.segment_a_len, is_masked, words.find_joined(original))
    arrays = WordArrays(is_special, words.starts, words.standalone)
    count_words(rows, arrays, config.span_gap, counts["words"], counts["span_lens"])
    count_edges(rows, is_special, counts["edges"])
    count_positions(rows, is_special, counts["positions"])
    counts["pieces"][:] = np.bincount(original, minlength=len(is_special))
    shown = batch.input_ids[masked]
    shows_mask = shown == specials.mask_id
    kept = ~shows_mask & (shown == batch.masked_ids)
    random = ~shows_mask & ~kept
    counts["shown"][:] = shows_mask.sum(), random.sum(), kept.sum()
    counts["specials"][:] = is_special[batch.masked_ids].sum(), (is_special[shown] & random).sum()
    labels = (*range(len(config.task.orders)), NO_LABEL)
    counts["labels"][:] = [np.count_nonzero(batch.sop_label == label) for label in labels]
    counts["row_lens"][:] = np.bincount(np.diff(batch.offsets), minlength=config.max_seq_len + 1)
    return counts


@helper
def find_words(
    rows: OriginalRows, row: int, words: WordArrays, word_begins: np.ndarray, word_ends: np.ndarray
) -> tuple[int, int]:
    """Fill in the token ranges of a row's maskable words; returns their number and how many are of A.

    `examples.masks.find_word_begins` finds the same words faster, but not where they end.
    """
    count, count_a, ids = 0, 0, rows.ids
    begin, end = rows.offsets[row], rows.offsets[row + 1]
    sep = begin + 1 + rows.segment_a_len[row]
    for segment in range(2):
        first, last = (begin + 1, sep) if segment == 0 else (sep + 1, end - 1)
        is_open = False  # whether the token before belongs to a word
        for at in range(first, last):
            if words.is_special[ids[at]]:
                is_open = False
                continue
            is_joined = len(rows.joined) > 0 and rows.joined[at]
            if not is_open or (begins_word(ids, at, first, words.starts, words.standalone) and not is_joined):
                word_begins[count] = at
                count += 1
                is_open = True
            word_ends[count - 1] = at + 1
        if segment == 0:
            count_a = count
    return count, count_a


@kernel
def count_words(rows: OriginalRows, words: WordArrays, gap: int, counts: np.ndarray, span_lens: np.ndarray) -> None:
    """Add to `counts` the maskable tokens and the words masked in part, to `span_lens` the spans by words."""
    longest = 0
    for row in range(len(rows.segment_a_len)):
        longest = max(longest, rows.offsets[row + 1] - rows.offsets[row])
    begins, ends = np.empty(longest, np.int64), np.empty(longest, np.int64)
    for row in range(len(rows.segment_a_len)):
        num_words, num_words_a = find_words(rows, row, words, begins, ends)
        span_len = 0
        for word in range(num_words + 1):  # one more, to end the last span
            masked, size = 0, 0
            if word < num_words:
                size = ends[word] - begins[word]
                for at in range(begins[word], ends[word]):
                    masked += rows.is_masked[at]
                counts[0] += size
                counts[1] += 0 < masked < size
            if span_len > 0 and (word in (num_words, num_words_a) or masked < size or gap == 0):
                span_lens[min(span_len, len(span_lens)) - 1] += 1
                span_len = 0
            if masked == size:  # true in the extra round, too, with 0 == 0: no harm, as the next row sets span_len to 0
                span_len += 1


@kernel
def count_edges(rows: OriginalRows, is_special: np.ndarray, counts: np.ndarray) -> None:
    """Add maskable (0) and masked (1) tokens by column: the first EDGE positions of text, the last, those between."""
    for row in range(len(rows.segment_a_len)):
        begin, sep = rows.offsets[row] + 1, rows.offsets[row] + 1 + rows.segment_a_len[row]
        has_pair = sep < rows.offsets[row + 1] - 1
        num_text = rows.offsets[row + 1] - begin - (2 if has_pair else 1)
        if num_text <= 2 * EDGE:
            continue
        for text in range(num_text):
            at = begin + text if begin + text < sep else begin + text + 1  # [SEP] between A and B is no text
            column = 2 * EDGE
            if text < EDGE:
                column = text
            elif num_text - text <= EDGE:
                column = 2 * EDGE - (num_text - text)
            counts[0, column] += not is_special[rows.ids[at]]
            counts[1, column] += rows.is_masked[at]


@kernel
def count_positions(rows: OriginalRows, is_special: np.ndarray, counts: np.ndarray) -> None:
    """Add maskable (0) and masked (1) tokens by their position in the row, [CLS] at 0."""
    for row in range(len(rows.segment_a_len)):
        begin = rows.offsets[row]
        for at in range(begin, rows.offsets[row + 1]):
            counts[0, at - begin] += not is_special[rows.ids[at]]
            counts[1, at - begin] += rows.is_masked[at]
