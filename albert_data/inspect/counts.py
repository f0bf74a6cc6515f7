"""Counts over the rows of one record batch, for statistics.py to add up.

In: a batch as it lies in a shard. Out: int64 arrays by name. Words are found on the original ids. A span
is a longest run of words masked whole, inside one segment: masks.py leaves an unmasked word between two
spans, so that runs are spans.
"""

from __future__ import annotations

import numpy as np

from albert_data.config import ExampleConfig
from albert_data.examples.pairs import SOP_IN_ORDER, SOP_NONE, SOP_SWAPPED
from albert_data.examples.ragged import Examples
from albert_data.inspect.words import find_words
from albert_data.kernels import kernel
from albert_data.shards.rows import locate_masks, restore_ids
from albert_data.tokenizer.model import Specials
from albert_data.tokenizer.words import WordRule

EDGE = 5  # text positions at either end of a row that are counted one by one


def no_counts(config: ExampleConfig, vocab_size: int) -> dict[str, np.ndarray]:
    """Zeros, one array a name.

    words: maskable tokens, words masked in part; specials: special ids masked, special ids as replacements;
    standing: masked tokens that show [MASK], another piece, the original; labels: rows in order, swapped,
    unpaired; pieces: tokens of each piece, as they were before masking; the others as in Statistics,
    "edges" with edge_tokens and edge_masked in its two rows, "positions" with position_tokens and position_masked.
    """
    shapes: dict[str, int | tuple[int, int]] = {
        "words": 2,
        "specials": 2,
        "labels": 3,
        "standing": 3,
        "row_lens": config.max_seq_len + 1,
        "span_lens": config.ngram + 1,
        "edges": (2, 2 * EDGE + 1),
        "positions": (2, config.max_seq_len),
        "pieces": vocab_size,
    }
    return {name: np.zeros(shape, np.int64) for name, shape in shapes.items()}


def count_batch(batch: Examples, specials: Specials, words: WordRule, config: ExampleConfig) -> dict[str, np.ndarray]:
    """Count all that Statistics holds, in sound rows."""
    is_special = specials.is_special
    counts = no_counts(config, len(is_special))
    original, masked = restore_ids(batch), locate_masks(batch)
    standing, is_masked = batch.input_ids[masked], np.zeros(len(original), np.bool_)
    is_masked[masked] = True
    rows = (original, batch.offsets, batch.segment_a_len, is_masked, is_special)
    count_words(*rows, words.starts, words.standalone, counts["words"], counts["span_lens"])
    count_edges(*rows, counts["edges"])
    count_positions(original, batch.offsets, is_masked, is_special, counts["positions"])
    counts["pieces"][:] = np.bincount(original, minlength=len(is_special))
    shows_mask = standing == specials.mask_id
    kept = ~shows_mask & (standing == batch.masked_ids)
    random = ~shows_mask & ~kept
    counts["standing"][:] = shows_mask.sum(), random.sum(), kept.sum()
    counts["specials"][:] = is_special[batch.masked_ids].sum(), (is_special[standing] & random).sum()
    labels = (SOP_IN_ORDER, SOP_SWAPPED, SOP_NONE)
    counts["labels"][:] = [np.count_nonzero(batch.sop_label == label) for label in labels]
    counts["row_lens"][:] = np.bincount(np.diff(batch.offsets), minlength=config.max_seq_len + 1)
    return counts


@kernel
def count_words(
    ids: np.ndarray,
    offsets: np.ndarray,
    segment_a_len: np.ndarray,
    is_masked: np.ndarray,
    is_special: np.ndarray,
    starts: np.ndarray,
    standalone: np.ndarray,
    counts: np.ndarray,
    span_lens: np.ndarray,
) -> None:
    """Add to `counts` the maskable tokens and the words masked in part, to `span_lens` the spans by words."""
    longest = 0
    for row in range(len(segment_a_len)):
        longest = max(longest, offsets[row + 1] - offsets[row])
    begins, ends = np.empty(longest, np.int64), np.empty(longest, np.int64)
    for row in range(len(segment_a_len)):
        words, words_a = find_words(
            ids,
            offsets[row],
            offsets[row + 1],
            segment_a_len[row],
            is_special,
            starts,
            standalone,
            begins,
            ends,
        )
        span_len = 0
        for word in range(words + 1):
            masked, size = 0, 0
            if word < words:
                size = ends[word] - begins[word]
                for at in range(begins[word], ends[word]):
                    masked += is_masked[at]
                counts[0] += size
                counts[1] += 0 < masked < size
            if span_len > 0 and (word in (words, words_a) or masked < size):
                span_lens[min(span_len, len(span_lens)) - 1] += 1
                span_len = 0
            if masked == size:
                span_len += 1


@kernel
def count_edges(
    ids: np.ndarray,
    offsets: np.ndarray,
    segment_a_len: np.ndarray,
    is_masked: np.ndarray,
    is_special: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Add maskable (0) and masked (1) tokens by place: the first EDGE text positions, the last, between."""
    for row in range(len(segment_a_len)):
        begin, sep = offsets[row] + 1, offsets[row] + 1 + segment_a_len[row]
        has_pair = sep < offsets[row + 1] - 1
        num_text = offsets[row + 1] - begin - (2 if has_pair else 1)
        if num_text <= 2 * EDGE:
            continue
        for text in range(num_text):
            at = begin + text if begin + text < sep else begin + text + 1
            place = 2 * EDGE
            if text < EDGE:
                place = text
            elif num_text - text <= EDGE:
                place = 2 * EDGE - (num_text - text)
            counts[0, place] += not is_special[ids[at]]
            counts[1, place] += is_masked[at]


@kernel
def count_positions(
    ids: np.ndarray, offsets: np.ndarray, is_masked: np.ndarray, is_special: np.ndarray, counts: np.ndarray
) -> None:
    """Add maskable (0) and masked (1) tokens by their position in the row, [CLS] at 0."""
    for row in range(len(offsets) - 1):
        begin = offsets[row]
        for at in range(begin, offsets[row + 1]):
            counts[0, at - begin] += not is_special[ids[at]]
            counts[1, at - begin] += is_masked[at]
