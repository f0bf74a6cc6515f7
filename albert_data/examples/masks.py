"""Which words of a row are masked, and by what (ALBERT, section 4.1; BERT, section 3.1).

In: rows without masks. Out: positions to predict and the ids that stand there.
The words of a row lie on a circle. Span lengths are drawn by the law of spans.py; one arrangement of the
spans, each followed by at least one unmasked word, and of the other words is drawn at random, and turned
by a random number of words: so every word is masked with the same probability, the first and the last
too. A span that lies across a segment's end is parted there, so none crosses [CLS] or [SEP]. The unmasked
word between spans lets a reader of the shard tell each span. Of the masked tokens 80 % become [MASK],
10 % a random ordinary piece, 10 % stay.
"""

from __future__ import annotations

import numpy as np

from albert_data.config import ExampleConfig
from albert_data.draws import MASKING, below, draw, mix, stream, threshold
from albert_data.examples.ragged import Examples, Masks, Pairs
from albert_data.examples.spans import span_tables
from albert_data.kernels import kernel
from albert_data.tokenizer.model import Specials
from albert_data.tokenizer.words import WordRule, begins_word

MASK_SHARE, RANDOM_SHARE = 0.8, 0.1
_MASK_BELOW, _RANDOM_BELOW = threshold(MASK_SHARE), threshold(MASK_SHARE + RANDOM_SHARE)


def draw_masks(
    pairs: Pairs,
    specials: Specials,
    words: WordRule,
    ordinary_ids: np.ndarray,
    config: ExampleConfig,
    pass_index: int,
) -> Masks:
    """Draw the masks of every row; a pure function of each row's (document, pass, index) and the config.

    ordinary_ids: uint32, the pieces that may replace a token: no special, control, unused or byte piece.
    """
    longest = int(np.diff(pairs.offsets).max(initial=0))
    tables = span_tables(max(longest, config.max_seq_len), config.ngram, config.mask_prob)
    offsets, positions, ids = mask_rows(
        pairs.ids,
        pairs.offsets,
        pairs.segment_a_len,
        pairs.document_keys,
        pairs.indices,
        np.uint64(config.seed),
        pass_index,
        specials.is_special,
        words.starts,
        words.standalone,
        tables.cumulative,
        tables.bounds,
        tables.extra,
        ordinary_ids,
        specials.mask_id,
    )
    return Masks(offsets=offsets, positions=positions, ids=ids)


def apply_masks(pairs: Pairs, masks: Masks) -> Examples:
    """Put the masks' ids into the rows and keep the originals. Changes `pairs.ids` in place."""
    originals = swap_in(pairs.ids, pairs.offsets, masks.offsets, masks.positions, masks.ids)
    return Examples(
        input_ids=pairs.ids,
        offsets=pairs.offsets,
        segment_a_len=pairs.segment_a_len,
        sop_label=pairs.sop_label,
        masked_positions=masks.positions,
        masked_ids=originals,
        mask_offsets=masks.offsets,
        document_keys=pairs.document_keys,
    )


@kernel
def swap_in(
    ids: np.ndarray, offsets: np.ndarray, mask_offsets: np.ndarray, positions: np.ndarray, masked: np.ndarray
) -> np.ndarray:
    """Replace `ids` at the masked positions and return what stood there."""
    originals = np.empty_like(masked)
    for row in range(len(offsets) - 1):
        for i in range(mask_offsets[row], mask_offsets[row + 1]):
            at = offsets[row] + positions[i]
            originals[i] = ids[at]
            ids[at] = masked[i]
    return originals


@kernel
def find_words(
    ids: np.ndarray,
    begin: int,
    end: int,
    segment_a_len: int,
    is_special: np.ndarray,
    starts: np.ndarray,
    standalone: np.ndarray,
    word_begins: np.ndarray,
    word_ends: np.ndarray,
) -> tuple[int, int]:
    """Fill in the token ranges of a row's maskable words; returns their number and how many are of A."""
    count, count_a = 0, 0
    sep = begin + 1 + segment_a_len
    for segment in range(2):
        first, last = (begin + 1, sep) if segment == 0 else (sep + 1, end - 1)
        open_word = False
        for at in range(first, last):
            if is_special[ids[at]]:
                open_word = False
                continue
            if not open_word or begins_word(ids, at, first, starts, standalone):
                word_begins[count] = at
                count += 1
                open_word = True
            word_ends[count - 1] = at + 1
        if segment == 0:
            count_a = count
    return count, count_a


@kernel
def draw_lengths(
    state: np.uint64,
    num_words: int,
    cumulative: np.ndarray,
    bound: int,
    lengths: np.ndarray,
) -> tuple[int, int]:
    """Draw span lengths until their sum reaches the bound; returns their number and sum.

    A span for which the circle has no room left ends the draw: at a masking share of 15 % that cannot be.
    """
    count, total = 0, 0
    while total < bound:
        bits = draw(state, 2 + count)
        length = 1
        while bits >= cumulative[length - 1] and length < len(cumulative):
            length += 1
        if count > 0 and total + length + count + 1 > num_words:
            break
        lengths[count] = length
        count, total = count + 1, total + length
    return count, total


@kernel
def arrange(
    state: np.uint64, num_words: int, lengths: np.ndarray, num_spans: int, total: int, is_masked: np.ndarray
) -> None:
    """Place the spans on the circle: mark in `is_masked` the words that they cover."""
    free = max(0, num_words - total - num_spans)  # words beside the spans and the one behind each
    is_masked[:num_words] = False
    at = below(draw(state, 1), num_words)
    span, items = 0, num_spans + free
    state = mix(state)
    for item in range(items):
        if below(draw(state, item), items - item) >= num_spans - span:
            at += 1
        else:
            for _ in range(lengths[span]):
                is_masked[at if at < num_words else at - num_words] = True
                at += 1
            at += 1
            span += 1
        if at >= num_words:
            at -= num_words


@kernel
def replace(bits: np.uint64, original: np.uint32, mask_id: int, ordinary_ids: np.ndarray) -> int:
    """What stands at a masked token: [MASK], a random ordinary piece, or the original."""
    if bits < _MASK_BELOW:
        return mask_id
    if bits < _RANDOM_BELOW:
        return int(ordinary_ids[below(mix(bits), len(ordinary_ids))])
    return int(original)


@kernel
def mask_rows(
    ids: np.ndarray,
    offsets: np.ndarray,
    segment_a_len: np.ndarray,
    document_keys: np.ndarray,
    indices: np.ndarray,
    seed: np.uint64,
    pass_index: int,
    is_special: np.ndarray,
    starts: np.ndarray,
    standalone: np.ndarray,
    cumulative: np.ndarray,
    bounds: np.ndarray,
    extra: np.ndarray,
    ordinary_ids: np.ndarray,
    mask_id: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Masks of all rows: offsets (int64), positions in the row (uint16), the ids that stand there."""
    num_rows, ngram = len(segment_a_len), cumulative.shape[1]
    longest = 0
    for row in range(num_rows):
        longest = max(longest, offsets[row + 1] - offsets[row])
    word_begins, word_ends = np.empty(longest, np.int64), np.empty(longest, np.int64)
    is_masked, lengths = np.empty(longest, np.bool_), np.empty(longest + ngram, np.int64)
    mask_offsets = np.zeros(num_rows + 1, np.int64)
    positions, masked = np.empty(len(ids), np.uint16), np.empty(len(ids), ids.dtype)
    filled = 0
    for row in range(num_rows):
        begin, end = offsets[row], offsets[row + 1]
        words, words_a = find_words(
            ids, begin, end, segment_a_len[row], is_special, starts, standalone, word_begins, word_ends
        )
        if words > 0:
            two = 0 < words_a < words
            shorter = min(words_a, words - words_a) if two else words
            ends, longest_span = (1 if two else 0), min(ngram, shorter + 1) - 1
            state = stream(seed, MASKING, document_keys[row], pass_index, indices[row])
            bound = bounds[ends, longest_span, words]
            if draw(state, 0) < extra[ends, longest_span, words]:
                bound += 1
            count, total = draw_lengths(state, words, cumulative[ends, longest_span, words], bound, lengths)
            if count > 0:
                arrange(state, words, lengths, count, total, is_masked)
                state = mix(state ^ np.uint64(MASKING))
                for word in range(words):
                    if is_masked[word]:
                        for at in range(word_begins[word], word_ends[word]):
                            positions[filled] = at - begin
                            masked[filled] = replace(draw(state, at - begin), ids[at], mask_id, ordinary_ids)
                            filled += 1
        mask_offsets[row + 1] = filled
    return mask_offsets, positions[:filled].copy(), masked[:filled].copy()
