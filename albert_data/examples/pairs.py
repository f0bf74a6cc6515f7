"""Documents into sentence pairs (ALBERT, section 3.1, sentence-order prediction).

In: token ids with the offsets of sentences and documents. Out: rows `[CLS] A [SEP] B [SEP]`.
Whole consecutive sentences fill a row up to its target length; the boundary of two of them that is nearest to a
random token parts A from B; half the rows are swapped. The sentence that does not fit starts the next row, so every
token is in exactly one row a pass, and both segments are always of one document.

Deviations, see docs/fidelity.md: the short target is drawn for each row, not for each document; nothing
is truncated; a row of one sentence is cut at the word boundary nearest to its middle, where the
published script takes a random other document as segment B.

Why the nearest to a token, and not any boundary with one probability: the sentence that does not fit is longer than
most, and opens the next row. So the earlier segment would be the longer one, by 23 of 430 tokens on English books at
length 512, and lengths alone would tell the order of 53.8 % of the pairs.
"""

from __future__ import annotations

import numpy as np

from albert_data.config import ExampleConfig
from albert_data.draws import PAIRING, below, draw, stream, threshold
from albert_data.examples.ragged import Pairs
from albert_data.kernels import copy_items, kernel, pointer
from albert_data.tokenizer.model import Documents, Specials
from albert_data.tokenizer.words import WordRule, begins_word

SOP_IN_ORDER, SOP_SWAPPED, SOP_NONE = 0, 1, -1


def make_pairs(
    documents: Documents, specials: Specials, words: WordRule, config: ExampleConfig, pass_index: int
) -> Pairs:
    """Cut documents into rows; a pure function of each document, the config and the pass."""
    unit_offsets, unit_documents = cut_long_sentences(
        documents.ids,
        documents.sentence_offsets,
        documents.document_offsets,
        words.starts,
        words.standalone,
        config.max_tokens,
    )
    starts, splits, ends, labels, owners, indices = choose_pairs(
        documents.ids,
        unit_offsets,
        unit_documents,
        documents.document_keys,
        words.starts,
        words.standalone,
        np.uint64(config.seed),
        pass_index,
        config.max_tokens,
        threshold(config.short_seq_prob),
    )
    ids, offsets, segment_a_len = lay_out_pairs(
        documents.ids, starts, splits, ends, labels, specials.cls_id, specials.sep_id
    )
    return Pairs(
        ids=ids,
        offsets=offsets,
        segment_a_len=segment_a_len,
        sop_label=labels,
        document_keys=documents.document_keys[owners],
        indices=indices,
    )


@kernel
def cut_long_sentences(
    ids: np.ndarray,
    sentence_offsets: np.ndarray,
    document_offsets: np.ndarray,
    starts: np.ndarray,
    standalone: np.ndarray,
    max_tokens: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Sentences, those over `max_tokens` cut at their last word boundary that fits (or, in a longer word, anywhere).

    Returns token offsets of the parts (int64) and document offsets in parts (int64).
    """
    # Two neighbouring parts of one sentence hold over max_tokens together, else they were one part.
    bound = len(sentence_offsets) + 2 * (len(ids) // max_tokens) + 1
    unit_offsets = np.empty(bound, np.int64)
    unit_documents = np.zeros(len(document_offsets), np.int64)
    unit_offsets[0] = 0
    num_units = 0
    for document in range(len(document_offsets) - 1):
        for sentence in range(document_offsets[document], document_offsets[document + 1]):
            begin, end = sentence_offsets[sentence], sentence_offsets[sentence + 1]
            while end - begin > max_tokens:
                cut = begin + max_tokens
                while cut > begin and not begins_word(ids, cut, begin, starts, standalone):
                    cut -= 1
                begin = cut if cut > begin else begin + max_tokens
                num_units += 1
                unit_offsets[num_units] = begin
            if end > begin:
                num_units += 1
                unit_offsets[num_units] = end
        unit_documents[document + 1] = num_units
    return unit_offsets[: num_units + 1], unit_documents


@kernel
def find_middle_cut(ids: np.ndarray, begin: int, end: int, starts: np.ndarray, standalone: np.ndarray) -> int:
    """The word boundary inside [begin, end) nearest to its middle (the left of two), or `begin` if there is none."""
    middle = (begin + end) // 2
    for distance in range(end - begin):
        left, right = middle - distance, middle + distance
        if left > begin and begins_word(ids, left, begin, starts, standalone):
            return left
        if right < end and begins_word(ids, right, begin, starts, standalone) and right > begin:
            return right
    return begin


@kernel
def find_nearest(offsets: np.ndarray, first: int, stop: int, place: int) -> int:
    """Of the offsets number `first` to `stop` - 1, the one nearest to `place`, the left of two."""
    at = first
    while at < stop - 1 and offsets[at] < place:
        at += 1
    if at > first and place - offsets[at - 1] <= offsets[at] - place:
        at -= 1
    return int(offsets[at])


@kernel
def choose_pairs(
    ids: np.ndarray,
    unit_offsets: np.ndarray,
    unit_documents: np.ndarray,
    document_keys: np.ndarray,
    starts: np.ndarray,
    standalone: np.ndarray,
    seed: np.uint64,
    pass_index: int,
    max_tokens: int,
    short_threshold: np.uint64,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Choose begin, split, end (in tokens), label, document and number of every row."""
    bound = len(unit_offsets)
    begins, splits, ends = np.empty(bound, np.int64), np.empty(bound, np.int64), np.empty(bound, np.int64)
    labels, owners = np.empty(bound, np.int8), np.empty(bound, np.int64)
    indices = np.empty(bound, np.uint32)
    row = 0
    for document in range(len(unit_documents) - 1):
        unit, last = unit_documents[document], unit_documents[document + 1]
        index = 0
        while unit < last:
            state = stream(seed, PAIRING, document_keys[document], pass_index, index)
            is_short = draw(state, 0) < short_threshold
            target = 2 + below(draw(state, 1), max_tokens - 1) if is_short else max_tokens
            begin, stop = unit_offsets[unit], unit + 1
            while stop < last and unit_offsets[stop + 1] - begin <= target:
                stop += 1
            end = unit_offsets[stop]
            if stop - unit > 1:
                place = begin + 1 + below(draw(state, 2), end - begin - 1)
                split = find_nearest(unit_offsets, unit + 1, stop, place)
            else:
                split = find_middle_cut(ids, begin, end, starts, standalone)
            if split == begin:
                split, labels[row] = end, SOP_NONE
            elif draw(state, 3) >> np.uint64(63):
                labels[row] = SOP_SWAPPED
            else:
                labels[row] = SOP_IN_ORDER
            begins[row], splits[row], ends[row] = begin, split, end
            owners[row], indices[row] = document, index
            row, index, unit = row + 1, index + 1, stop
    return begins[:row], splits[:row], ends[:row], labels[:row], owners[:row], indices[:row]


@kernel
def lay_out_pairs(
    ids: np.ndarray,
    begins: np.ndarray,
    splits: np.ndarray,
    ends: np.ndarray,
    labels: np.ndarray,
    cls_id: int,
    sep_id: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Write every row with its special tokens. Returns ids, row offsets (int64), length of A (int32)."""
    offsets = np.empty(len(begins) + 1, np.int64)
    offsets[0] = 0
    for row in range(len(begins)):
        specials = 2 if labels[row] == SOP_NONE else 3
        offsets[row + 1] = offsets[row] + ends[row] - begins[row] + specials
    out = np.empty(offsets[-1], ids.dtype)
    source, target = pointer(ids), pointer(out)
    segment_a_len = np.empty(len(begins), np.int32)
    for row in range(len(begins)):
        begin, split, end = begins[row], splits[row], ends[row]
        a_begin, a_end, b_begin, b_end = begin, split, split, end
        if labels[row] == SOP_SWAPPED:
            a_begin, a_end, b_begin, b_end = split, end, begin, split
        at = offsets[row]
        a_len = a_end - a_begin
        segment_a_len[row] = a_len
        out[at] = cls_id
        copy_items(target, at + 1, source, a_begin, a_len)
        out[at + 1 + a_len] = sep_id
        if labels[row] != SOP_NONE:
            copy_items(target, at + 2 + a_len, source, b_begin, b_end - b_begin)
            out[offsets[row + 1] - 1] = sep_id
    return out, offsets, segment_a_len
