"""Documents into sentence pairs (ALBERT, section 3.1, sentence-order prediction).

In: token ids with the offsets of sentences and documents. Out: rows `[CLS] A [SEP] B [SEP]`.
Whole consecutive sentences fill a row up to its target length; any boundary of two of them, each as likely, parts A
from B; half the rows are swapped. A row takes the first sentences that are left of its document or the last, at random,
so every token is in exactly one row a pass, and both segments are always of one document.

Deviations, see docs/fidelity.md: the short target is drawn for each row, not for each document; nothing
is truncated; a row of one sentence is cut at the word boundary nearest to its middle, where the
published script takes a random other document as segment B.

Why from both ends: the sentence that does not fit is longer than most, and stays for the next row. Filled from the
front alone, rows begin with long sentences, the earlier segment is the longer one, and lengths alone tell the order of
53.8 % of the pairs of English books at length 512. Here every choice is as likely as its mirror image.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from albert_data.config import ExampleConfig
from albert_data.draws import PAIRING, below, draw, stream, threshold
from albert_data.examples.ragged import Pairs
from albert_data.kernels import copy_items, helper, kernel, pointer
from albert_data.tokenizer.model import Documents, Specials
from albert_data.tokenizer.words import WordRule, begins_word

SOP_IN_ORDER, SOP_SWAPPED, SOP_NONE = 0, 1, -1


class Cuts(NamedTuple):
    """Begin, split and end of each row in tokens, and its document: int64; its label: int8, its number: uint32."""

    begins: np.ndarray
    splits: np.ndarray
    ends: np.ndarray
    owners: np.ndarray
    labels: np.ndarray
    indices: np.ndarray


def make_pairs(
    documents: Documents, specials: Specials, words: WordRule, config: ExampleConfig, pass_index: int
) -> Pairs:
    """Cut documents into rows; a pure function of each document, the config and the pass."""
    cuts = cut_documents(documents, words, config, pass_index)
    lengths = cuts.ends - cuts.begins + np.where(cuts.labels == SOP_NONE, 2, 3)
    offsets = np.append(0, np.cumsum(lengths))
    ids = np.empty(offsets[-1], documents.ids.dtype)
    lay_out_pairs(documents.ids, cuts, specials.cls_id, specials.sep_id, offsets, ids)
    is_swapped = cuts.labels == SOP_SWAPPED
    return Pairs(
        ids=ids,
        offsets=offsets,
        segment_a_len=np.where(is_swapped, cuts.ends - cuts.splits, cuts.splits - cuts.begins).astype(np.int32),
        sop_label=cuts.labels,
        document_keys=documents.document_keys[cuts.owners],
        indices=cuts.indices,
    )


def cut_documents(documents: Documents, words: WordRule, config: ExampleConfig, pass_index: int) -> Cuts:
    """Choose the rows, without their special tokens."""
    # Two neighbouring parts that are cut from one end of a sentence hold over max_tokens together, else they were one:
    # a sentence of n > max_tokens is cut at most 2 + 2 * n / max_tokens times.
    bound = len(documents.sentence_offsets) + 4 * (len(documents.ids) // config.max_tokens)
    begins, splits, ends, owners = (np.empty(bound, np.int64) for _ in range(4))
    cuts = Cuts(begins, splits, ends, owners, np.empty(bound, np.int8), np.empty(bound, np.uint32))
    num_rows = choose_pairs(
        documents.ids,
        documents.sentence_offsets,
        documents.document_offsets,
        documents.document_keys,
        words.starts,
        words.standalone,
        np.uint64(config.seed),
        pass_index,
        config.max_tokens,
        threshold(config.short_seq_prob),
        np.empty(len(documents.sentence_offsets), np.int64),
        cuts,
    )
    return Cuts(*(array[:num_rows] for array in cuts))


@helper
def take_first(
    ids: np.ndarray,
    edges: np.ndarray,
    low: int,
    high: int,
    target: int,
    max_tokens: int,
    starts: np.ndarray,
    standalone: np.ndarray,
) -> tuple[int, int]:
    """Take the sentences from number `low` on that fit a row of `target` tokens, one at least.

    Of a sentence over `max_tokens`, what comes before its last word boundary that fits (in a longer word, anywhere).
    Returns the number of the sentence after them, and the token where they end.
    """
    begin, stop = edges[low], low + 1
    if edges[stop] - begin > max_tokens:
        end = begin + max_tokens
        while not begins_word(ids, end, begin, starts, standalone):
            end -= 1
        return stop, end if end > begin else begin + max_tokens
    while stop < high and edges[stop + 1] - begin <= target:
        stop += 1
    return stop, edges[stop]


@helper
def take_last(
    ids: np.ndarray,
    edges: np.ndarray,
    low: int,
    high: int,
    target: int,
    max_tokens: int,
    starts: np.ndarray,
    standalone: np.ndarray,
) -> tuple[int, int]:
    """Take the sentences before number `high` that fit, as `take_first` does from the other end.

    Returns the number of the first of them, and the token where it begins.
    """
    end, first = edges[high], high - 1
    if end - edges[first] > max_tokens:
        begin = end - max_tokens
        while begin < end and not begins_word(ids, begin, edges[first], starts, standalone):
            begin += 1
        return first, begin if begin < end else end - max_tokens
    while first > low and end - edges[first - 1] <= target:
        first -= 1
    return first, edges[first]


@helper
def find_middle_cut(
    ids: np.ndarray, begin: int, end: int, starts: np.ndarray, standalone: np.ndarray, prefers_left: bool
) -> int:
    """The word boundary inside [begin, end) nearest to its middle, or `begin` if there is none."""
    for distance in range(end - begin):
        left, right = (begin + end) // 2 - distance, (begin + end + 1) // 2 + distance
        has_left = left > begin and begins_word(ids, left, begin, starts, standalone)
        has_right = right < end and begins_word(ids, right, begin, starts, standalone)
        if has_left and (prefers_left or not has_right):
            return left
        if has_right:
            return right
    return begin


@helper
def copy_edges(sentence_offsets: np.ndarray, first: int, stop: int, edges: np.ndarray) -> int:
    """Write where the sentences number `first` to `stop` - 1 begin and end; but for empty ones. Returns how many."""
    edges[0] = sentence_offsets[first]
    num_sentences = 0
    for sentence in range(first, stop):
        if sentence_offsets[sentence + 1] > edges[num_sentences]:
            num_sentences += 1
            edges[num_sentences] = sentence_offsets[sentence + 1]
    return num_sentences


@kernel
def choose_pairs(
    ids: np.ndarray,
    sentence_offsets: np.ndarray,
    document_offsets: np.ndarray,
    document_keys: np.ndarray,
    starts: np.ndarray,
    standalone: np.ndarray,
    seed: np.uint64,
    pass_index: int,
    max_tokens: int,
    short_threshold: np.uint64,
    edges: np.ndarray,
    cuts: Cuts,
) -> int:
    """Fill in the cuts of every row. edges: int64, room for those of the sentences. Returns how many rows there are."""
    row = 0
    for document in range(len(document_offsets) - 1):
        low, index = 0, 0
        high = copy_edges(sentence_offsets, document_offsets[document], document_offsets[document + 1], edges)
        while low < high:
            state = stream(seed, PAIRING, document_keys[document], pass_index, index)
            is_short = draw(state, 0) < short_threshold
            target = 2 + int(below(draw(state, 1), max_tokens - 1)) if is_short else max_tokens
            if draw(state, 4) >> np.uint64(63):
                first, begin = low, edges[low]
                stop, end = take_first(ids, edges, low, high, target, max_tokens, starts, standalone)
                low = stop if end == edges[stop] else first
                edges[low] = end
            else:
                stop, end = high, edges[high]
                first, begin = take_last(ids, edges, low, high, target, max_tokens, starts, standalone)
                high = first if begin == edges[first] else stop
                edges[high] = begin
            if stop - first > 1:
                split = edges[first + 1 + below(draw(state, 2), stop - first - 1)]
            else:
                prefers_left = bool(draw(state, 2) >> np.uint64(63))
                split = find_middle_cut(ids, begin, end, starts, standalone, prefers_left)
            if split == begin:
                split, cuts.labels[row] = end, SOP_NONE
            elif draw(state, 3) >> np.uint64(63):
                cuts.labels[row] = SOP_SWAPPED
            else:
                cuts.labels[row] = SOP_IN_ORDER
            cuts.begins[row], cuts.splits[row], cuts.ends[row] = begin, split, end
            cuts.owners[row], cuts.indices[row] = document, index
            row, index = row + 1, index + 1
    return row


@kernel
def lay_out_pairs(ids: np.ndarray, cuts: Cuts, cls_id: int, sep_id: int, offsets: np.ndarray, out: np.ndarray) -> None:
    """Write every row with its special tokens, from its offset on."""
    source, target = pointer(ids), pointer(out)
    for row in range(len(cuts.labels)):
        begin, split, end, label = cuts.begins[row], cuts.splits[row], cuts.ends[row], cuts.labels[row]
        a_begin, a_end, b_begin, b_end = begin, split, split, end
        if label == SOP_SWAPPED:
            a_begin, a_end, b_begin, b_end = split, end, begin, split
        at, a_len = offsets[row], a_end - a_begin
        out[at] = cls_id
        copy_items(target, at + 1, source, a_begin, a_len)
        out[at + 1 + a_len] = sep_id
        if label != SOP_NONE:
            copy_items(target, at + 2 + a_len, source, b_begin, b_end - b_begin)
            out[offsets[row + 1] - 1] = sep_id
