"""Documents into sentence pairs (ALBERT, section 3.1, sentence-order prediction).

In: token ids with the offsets of sentences and documents. Out: rows `[CLS] A [SEP] B [SEP]`.
Whole consecutive sentences fill a row; a boundary between two of them splits A from B; half of the pairs are swapped.
Every token is in exactly one row a pass, and both segments are always of one document. A row of one sentence has no
order: it is `[CLS] A [SEP]`, with label -1. A heading and the sentence after it count as one sentence.

Deviations, see docs/fidelity.md: the short target is drawn for each row, not for each document; nothing is truncated;
the published script takes a random other document as segment B where a row holds one sentence.

What could give the order away, and what is done about it:
- A segment that begins or ends inside a sentence: both always begin and end with sentences.
- The sentence that does not fit begins the next row, and is longer than most: its chance is proportional to its length.
  So the rows of a document are filled from its front or from its back, at random, and the split is drawn such that the
  sentences at the inner edges are as long as those at the outer edges (see `draw_split`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from albert_data.config import ExampleConfig
from albert_data.draws import PAIRING, below, draw, stream, threshold
from albert_data.examples.ragged import Pairs
from albert_data.examples.row_plan import cut_long_sentence, end_short_row, fill_table
from albert_data.kernels import copy_items, helper, kernel, pointer
from albert_data.tokenizer.model import Documents, Specials
from albert_data.tokenizer.words import WordRule

SOP_IN_ORDER, SOP_SWAPPED, SOP_NONE = 0, 1, -1


class Cuts(NamedTuple):
    """Begin, split and end of each row in tokens, and its document: int64; its label: int8, its number: uint32."""

    begins: np.ndarray
    splits: np.ndarray
    ends: np.ndarray
    owners: np.ndarray
    labels: np.ndarray
    indices: np.ndarray


class Scratch(NamedTuple):
    """Scratch buffers for the sentences of a block, all int64 (see row_plan.py)."""

    bounds: np.ndarray
    cost: np.ndarray
    row_ends: np.ndarray
    queue: np.ndarray


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
        languages=None if documents.languages is None else documents.languages[cuts.owners],
    )


def cut_documents(documents: Documents, words: WordRule, config: ExampleConfig, pass_index: int) -> Cuts:
    """Choose the rows, without their special tokens."""
    # Two neighbouring rows of a long sentence hold over max_tokens / 2 together: n tokens, 4 * n / max_tokens + 2 rows.
    num_sentences = len(documents.sentence_offsets)
    bound = num_sentences + 8 * (len(documents.ids) // config.max_tokens)
    begins, splits, ends, owners = (np.empty(bound, np.int64) for _ in range(4))
    cuts = Cuts(begins, splits, ends, owners, np.empty(bound, np.int8), np.empty(bound, np.uint32))
    num_rows = choose_pairs(
        documents.ids,
        documents.sentence_offsets,
        documents.is_heading,
        documents.document_offsets,
        documents.document_keys,
        words.starts,
        words.standalone,
        np.uint64(config.seed),
        pass_index,
        config.max_tokens,
        threshold(config.short_seq_prob),
        np.empty(num_sentences, np.int64),
        Scratch(*(np.empty(num_sentences, np.int64) for _ in range(4))),
        cuts,
    )
    return Cuts(*(array[:num_rows] for array in cuts))


@helper
def copy_edges(sentence_offsets: np.ndarray, is_heading: np.ndarray, first: int, stop: int, edges: np.ndarray) -> int:
    """Write where the sentences number `first` to `stop` - 1 begin and end; returns how many there are.

    Empty ones are left out, and a heading is one with the sentence after it.
    """
    edges[0] = sentence_offsets[first]
    num_sentences = 0
    for sentence in range(first, stop):
        if is_heading[sentence] and sentence + 1 < stop:
            continue
        if sentence_offsets[sentence + 1] > edges[num_sentences]:
            num_sentences += 1
            edges[num_sentences] = sentence_offsets[sentence + 1]
    return num_sentences


@helper
def draw_split(state: np.uint64, edges: np.ndarray, first: int, stop: int, is_first: bool) -> int:
    """Draw the boundary where A and B part, between two of the sentences `first` to `stop` - 1.

    Swapping A and B turns the row on a circle: the split becomes the outer edge, and the outer edge the split. A row's
    probability is proportional to the sum of the lengths of its first and last sentence: one of the two did not fit the
    row before, and either may be it. So each boundary gets an arc on a circle, as long as the two sentences beside it.
    From a random point of the outer edge's arc we go a random distance, never so short as to stay in an arc, and the
    boundary whose arc we reach is the split. To and fro are equally likely, so a row and its swapped twin are too, and
    no length tells the order. In the first row of a block no sentence is one that did not fit (`is_first`).
    """
    if is_first:
        return int(edges[first + 1 + below(draw(state, 2), stop - first - 1)])
    outer = edges[first + 1] - edges[first] + edges[stop] - edges[stop - 1]
    longest = outer
    for sentence in range(first, stop - 1):
        longest = max(longest, edges[sentence + 2] - edges[sentence])
    circle = 2 * (edges[stop] - edges[first])
    left = below(draw(state, 2), outer) + longest + below(draw(state, 5), circle - 2 * longest + 1) - outer
    sentence = first
    while left >= edges[sentence + 2] - edges[sentence]:
        left -= edges[sentence + 2] - edges[sentence]
        sentence += 1
    return int(edges[sentence + 1])


@helper
def put_row(cuts: Cuts, row: int, begin: int, split: int, end: int, document: int, index: int, label: int) -> None:
    cuts.begins[row], cuts.splits[row], cuts.ends[row] = begin, split, end
    cuts.owners[row], cuts.indices[row], cuts.labels[row] = document, index, label


@helper
def choose_block(
    edges: np.ndarray,
    first: int,
    stop: int,
    seed: np.uint64,
    key: np.uint64,
    pass_index: int,
    max_tokens: int,
    short_threshold: np.uint64,
    scratch: Scratch,
    document: int,
    row: int,
    index: int,
    cuts: Cuts,
) -> int:
    """Fill in the rows of the sentences `first` to `stop` - 1, none longer than a row. Returns how many there are."""
    num_sentences, bounds = stop - first, scratch.bounds
    is_backward = draw(stream(seed, PAIRING, key, pass_index, index), 4) >> np.uint64(63)
    for i in range(num_sentences + 1):
        bounds[i] = edges[stop] - edges[stop - i] if is_backward else edges[first + i] - edges[first]
    fill_table(bounds, num_sentences, max_tokens, scratch.cost, scratch.row_ends, scratch.queue)
    taken = num_rows = 0
    while taken < num_sentences:
        state = stream(seed, PAIRING, key, pass_index, index + num_rows)
        end = scratch.row_ends[taken]
        if draw(state, 0) < short_threshold:
            target = 2 + int(below(draw(state, 1), max_tokens - 1))
            end = end_short_row(bounds, taken, target, scratch.cost, scratch.row_ends)
        low, high = (stop - end, stop - taken) if is_backward else (first + taken, first + end)
        split, label = edges[high], SOP_NONE
        if high - low > 1:
            split = draw_split(state, edges, low, high, taken == 0)
            label = SOP_SWAPPED if draw(state, 3) >> np.uint64(63) else SOP_IN_ORDER
        put_row(cuts, row + num_rows, edges[low], split, edges[high], document, index + num_rows, label)
        taken, num_rows = end, num_rows + 1
    return num_rows


@kernel
def choose_pairs(
    ids: np.ndarray,
    sentence_offsets: np.ndarray,
    is_heading: np.ndarray,
    document_offsets: np.ndarray,
    document_keys: np.ndarray,
    starts: np.ndarray,
    standalone: np.ndarray,
    seed: np.uint64,
    pass_index: int,
    max_tokens: int,
    short_threshold: np.uint64,
    edges: np.ndarray,
    scratch: Scratch,
    cuts: Cuts,
) -> int:
    """Fill in the cuts of every row. edges: int64, room for those of the sentences. Returns how many rows there are."""
    row = 0
    for document in range(len(document_offsets) - 1):
        low, index = 0, 0
        first, stop = document_offsets[document], document_offsets[document + 1]
        num_sentences = copy_edges(sentence_offsets, is_heading, first, stop, edges)
        while low < num_sentences:
            high = low
            while high < num_sentences and edges[high + 1] - edges[high] <= max_tokens:
                high += 1
            if high > low:
                num_rows = choose_block(
                    edges,
                    low,
                    high,
                    seed,
                    document_keys[document],
                    pass_index,
                    max_tokens,
                    short_threshold,
                    scratch,
                    document,
                    row,
                    index,
                    cuts,
                )
                row, index, low = row + num_rows, index + num_rows, high
                continue
            begin = edges[low]
            while begin < edges[low + 1]:
                end = cut_long_sentence(ids, begin, edges[low + 1], max_tokens, starts, standalone)
                put_row(cuts, row, begin, end, end, document, index, SOP_NONE)
                row, index, begin = row + 1, index + 1, end
            low += 1
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
