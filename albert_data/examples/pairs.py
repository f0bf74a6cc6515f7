"""Documents into rows, for one of the sentence tasks (pair_tasks.py); mostly ALBERT's sentence order prediction.

In: token ids with the offsets of sentences and documents. Out: rows `[CLS] A [SEP] B [SEP]`.
Whole consecutive sentences fill a row; a boundary between two of them splits A from B; half of the pairs are swapped.
Every token is in exactly one row per pass, and both segments are always of one document. A row of one sentence has no
order: it is `[CLS] A [SEP]`, with label -1. A heading and the sentence after it count as one sentence, unless each fits
a row and both do not. A later pass avoids the rows of earlier ones.

For next sentence prediction no pair is swapped. The label says in which pairs B is to be exchanged: the merge
does that (exchange.py), when it has the rows of all documents. Without a sentence task every row is `[CLS] A [SEP]`.

docs/explanation/fidelity.md has the deviations, and what could give the order away: above all the lengths of sentences.
So the rows of a document are filled from its front or from its back, at random, and the split is drawn such that the
sentences at the inner edges are as long as those at the outer edges (see `draw_split`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from albert_data.config import ExampleConfig
from albert_data.data import Documents, Pairs, Specials
from albert_data.examples.pair_tasks import NO_LABEL, SWAPPED
from albert_data.examples.row_plan import (
    GROUP_SIZE,
    PairRule,
    Passage,
    PlanScratch,
    cut_long_sentence,
    end_short_row,
    fill_table,
    locate,
)
from albert_data.kernels import copy_items, helper, kernel, pointer
from albert_data.kernels.draws import PAIRING, below, draw, stream, threshold
from albert_data.tokenizer.words import WordRule

SOP_IN_ORDER, SOP_SWAPPED, SOP_NONE = 0, 1, NO_LABEL
_IS_SHORT, _SHORT_LEN, _SPLIT, _LABEL, _DIRECTION, _DISTANCE = range(6)  # the counters of a row's draws


class RowCuts(NamedTuple):
    """Rows without their special tokens.

    begins, splits, ends: int64 [R], in tokens; A is begin .. split, B is split .. end
    owners: int64 [R], the document's number
    labels: int8 [R]
    indices: uint32 [R], the number of the row in its document and pass
    """

    begins: np.ndarray
    splits: np.ndarray
    ends: np.ndarray
    owners: np.ndarray
    labels: np.ndarray
    indices: np.ndarray


class DocumentArrays(NamedTuple):
    """The arrays of `Documents` as the kernel takes them."""

    ids: np.ndarray
    sentence_offsets: np.ndarray
    is_heading: np.ndarray
    document_offsets: np.ndarray
    document_keys: np.ndarray


def make_pairs(
    documents: Documents, specials: Specials, words: WordRule, config: ExampleConfig, pass_index: int
) -> Pairs:
    """Cut documents into rows; a pure function of each document, the config and the pass."""
    rows = cut_documents(documents, words, config, pass_index)
    lengths = rows.ends - rows.begins + np.where(rows.labels == SOP_NONE, 2, 3)
    offsets = np.append(0, np.cumsum(lengths))
    ids = np.empty(offsets[-1], documents.ids.dtype)
    swapped = config.task.label_of(SWAPPED)
    lay_out_pairs(documents.ids, rows, specials.cls_id, specials.sep_id, swapped, offsets, ids)
    is_swapped = rows.labels == swapped
    return Pairs(
        ids=ids,
        offsets=offsets,
        segment_a_len=np.where(is_swapped, rows.ends - rows.splits, rows.splits - rows.begins).astype(np.int32),
        sop_label=rows.labels,
        indices=rows.indices,
        columns=documents.columns.take(rows.owners),
    )


def cut_documents(documents: Documents, words: WordRule, config: ExampleConfig, pass_index: int) -> RowCuts:
    """Choose the rows, without their special tokens."""
    arrays = DocumentArrays(*(getattr(documents, name) for name in DocumentArrays._fields))
    seed, short, num_labels = np.uint64(config.seed), threshold(config.short_seq_prob), len(config.task.orders)
    rule = PairRule(words.starts, words.standalone, seed, pass_index, config.max_tokens, short, num_labels)
    # Each row of whole sentences has a sentence that no other row has. Of a longer sentence an equal share of what is
    # left is max_tokens / 2 or more, and a row that ends at a clause is half of that or more. Other rows are a share or
    # more; or they end before a word that reaches beyond it, and hold a share together with the next one, which ends
    # after that word, is an equal share itself, or is all of the rest. So a sentence of x max_tokens tokens, x > 1, has
    # fewer than 4 x + 1 rows: at most 4 floor(x) + 4, which is at most 8 floor(x).
    num_offsets = len(documents.sentence_offsets)
    capacity = num_offsets + 8 * (len(documents.ids) // config.max_tokens)
    begins, splits, ends, owners = (np.empty(capacity, np.int64) for _ in range(4))
    rows = RowCuts(begins, splits, ends, owners, np.empty(capacity, np.int8), np.empty(capacity, np.uint32))
    edges, bounds, cost, row_ends = (np.empty(num_offsets, np.int64) for _ in range(4))
    earlier = np.empty((pass_index % GROUP_SIZE, num_offsets), np.int64)
    scratch = PlanScratch(edges, np.empty(num_offsets, bool), bounds, cost, row_ends, earlier)
    num_rows = choose_pairs(arrays, rule, scratch, rows)
    return RowCuts(*(array[:num_rows] for array in rows))


@helper
def copy_edges(documents: DocumentArrays, document: int, max_tokens: int, scratch: PlanScratch) -> int:
    """Write where the sentences of a document begin and end; returns how many there are.

    Empty sentences are left out, and a heading counts as one with the sentence after it. But where only both together
    are longer than a row, as few headings as possible are taken off, the first ones, to a row of their own.
    """
    offsets, is_heading = documents.sentence_offsets, documents.is_heading
    edges, is_alone = scratch.edges, scratch.is_alone
    first, stop = documents.document_offsets[document], documents.document_offsets[document + 1]
    num_sentences, heading = 0, first  # heading: the first sentence of those that are one with the present one
    edges[0] = offsets[first]
    for sentence in range(first, stop):
        if is_heading[sentence] and sentence + 1 < stop:
            continue  # no edge after it: it belongs to the next sentence
        end = offsets[sentence + 1]
        while heading < sentence and end - offsets[heading] > max_tokens:
            heading += 1
        if edges[num_sentences] < offsets[heading] < end and end - offsets[heading] <= max_tokens:
            is_alone[num_sentences] = True
            num_sentences += 1
            edges[num_sentences] = offsets[heading]
        if end > edges[num_sentences]:
            is_alone[num_sentences] = False
            num_sentences += 1
            edges[num_sentences] = end
        heading = sentence + 1
    return num_sentences


@helper
def draw_split(state: np.uint64, edges: np.ndarray, first: int, stop: int, is_even: bool) -> int:
    """Draw the boundary between A and B, one of those between the sentences `first` to `stop` - 1.

    The aim: P(row) P(split | row) is the same for a row and its swapped twin, so that no length tells the order. On a
    circle both are the same sentences. Only the outer edge, where the row ends and begins, and the split change places.

    P(row): the sentence that did not fit the row before is the first or the last one, as rows are filled from either
    end. The longer a sentence, the likelier it did not fit, so P(row) is proportional to the lengths of the first and
    the last sentence together.

    P(split | row): each boundary gets an arc on a circle, as long as the two sentences beside it; all arcs together are
    twice as long as the row. From a random point in the arc of the outer edge we move by a random distance, which
    always leaves the arc, and the boundary whose arc we reach is the split. The length of the outer arc cancels out of
    the product, which is then proportional to the number of moves from one arc to the other. Each of them can be
    reversed, so the twin has as many.

    In the first row of a passage no sentence is there because it did not fit before, nor where a row of a later pass
    ended earlier than it had to. There all boundaries are equally likely (`is_even`).
    """
    if is_even:  # n sentences have n - 1 inner boundaries
        return int(edges[first + 1 + below(draw(state, _SPLIT), stop - first - 1)])
    # The arc of the outer edge is [0, outer) of the circle, and those of the inner boundaries follow in order.
    outer = edges[first + 1] - edges[first] + edges[stop] - edges[stop - 1]
    longest = outer
    for sentence in range(first, stop - 1):
        longest = max(longest, edges[sentence + 2] - edges[sentence])
    circle = 2 * (edges[stop] - edges[first])
    # A distance of longest .. circle - longest leaves every arc in both directions. An arc is at most half the circle.
    start = below(draw(state, _SPLIT), outer)
    distance = longest + below(draw(state, _DISTANCE), circle - 2 * longest + 1)
    remaining, sentence = start + distance - outer, first
    while remaining >= edges[sentence + 2] - edges[sentence]:
        remaining -= edges[sentence + 2] - edges[sentence]
        sentence += 1
    return int(edges[sentence + 1])


@helper
def put_row(rows: RowCuts, row: int, begin: int, split: int, end: int, label: int) -> None:
    rows.begins[row], rows.splits[row], rows.ends[row], rows.labels[row] = begin, split, end, label


@helper
def cut_passage(passage: Passage, row: int, rule: PairRule, scratch: PlanScratch, rows: RowCuts) -> int:
    """Write the rows of a passage, from number `row` on. Returns the number of the row after them."""
    first, stop, key, pass_index, first_row = passage
    edges, bounds, num_sentences = scratch.edges, scratch.bounds, stop - first
    wants_pairs, is_later = rule.num_labels > 0, pass_index % GROUP_SIZE > 0
    state = stream(rule.seed, PAIRING, key, pass_index, first_row)
    # A passage that is filled from its back is planned in reverse: bounds[i] counts from its end.
    is_backward = draw(state, _DIRECTION) >> np.uint64(63) != 0  # the highest bit: a fair coin
    for i in range(num_sentences + 1):
        bounds[i] = edges[stop] - edges[stop - i] if is_backward else edges[first + i] - edges[first]
    fill_table(scratch, passage, is_backward, rule.max_tokens, wants_pairs)
    taken = num_rows = 0
    had_room = True  # at the beginning of the passage, too, no sentence is there because it did not fit before
    while taken < num_sentences:
        # Each row has its own draws, so that neither the workers nor the other documents decide about it.
        state = stream(rule.seed, PAIRING, key, pass_index, first_row + num_rows)
        end = scratch.row_ends[taken]
        # In a later pass a row may end earlier so that it is another one.
        has_room = is_later and end < num_sentences and bounds[end + 1] - bounds[taken] <= rule.max_tokens
        if draw(state, _IS_SHORT) < rule.short_threshold:
            # At least two tokens, one for each segment.
            target = 2 + int(below(draw(state, _SHORT_LEN), rule.max_tokens - 1))
            end, has_room = end_short_row(scratch, taken, target, wants_pairs), False
        low, high = locate(passage, is_backward, taken, end)
        split, label = edges[high], SOP_NONE
        if wants_pairs and high - low > 1:  # a single sentence has no boundary to split at
            split = draw_split(state, edges, low, high, had_room or has_room)
            label = int(below(draw(state, _LABEL), rule.num_labels))
        put_row(rows, row + num_rows, edges[low], split, edges[high], label)
        if pass_index < rule.pass_index:
            scratch.earlier[pass_index % GROUP_SIZE, low] = high
        taken, num_rows, had_room = end, num_rows + 1, has_room
    return row + num_rows


@helper
def cut_document(
    documents: DocumentArrays, document: int, rule: PairRule, scratch: PlanScratch, rows: RowCuts, first_row: int
) -> int:
    """Write the rows of a document, from number `first_row` on. Returns the number of the row after them."""
    edges, is_alone = scratch.edges, scratch.is_alone
    key, max_tokens = documents.document_keys[document], rule.max_tokens
    num_sentences = copy_edges(documents, document, max_tokens, scratch)
    scratch.earlier[:, :num_sentences] = 0
    row = first_row
    # The passes that this one avoids come first, and their rows are overwritten.
    for pass_index in range(rule.pass_index - rule.pass_index % GROUP_SIZE, rule.pass_index + 1):
        row, low = first_row, 0
        while low < num_sentences:
            high = low  # the next sentences that are neither longer than a row nor alone are a passage
            while high < num_sentences and edges[high + 1] - edges[high] <= max_tokens and not is_alone[high]:
                high += 1
            if high > low:
                passage = Passage(low, high, key, pass_index, row - first_row)
                row, low = cut_passage(passage, row, rule, scratch, rows), high
                continue
            begin = edges[low]
            while begin < edges[low + 1]:  # a sentence that is longer than a row, or alone
                end = cut_long_sentence(documents.ids, begin, edges[low + 1], rule, pass_index % GROUP_SIZE)
                put_row(rows, row, begin, end, end, SOP_NONE)  # B is empty
                row, begin = row + 1, end
            low += 1
    return row


@kernel
def choose_pairs(documents: DocumentArrays, rule: PairRule, scratch: PlanScratch, rows: RowCuts) -> int:
    """Fill in all rows. Returns how many there are."""
    row = 0
    for document in range(len(documents.document_offsets) - 1):
        first_row = row
        row = cut_document(documents, document, rule, scratch, rows, first_row)
        # All rows of the document, of passages and of long sentences, are numbered consecutively.
        for i in range(first_row, row):
            rows.owners[i], rows.indices[i] = document, i - first_row
    return row


@kernel
def lay_out_pairs(
    ids: np.ndarray, rows: RowCuts, cls_id: int, sep_id: int, swapped: int, offsets: np.ndarray, out: np.ndarray
) -> None:
    """Write every row with its special tokens, from its offset on. swapped: the label of swapped pairs."""
    source, target = pointer(ids), pointer(out)
    for row in range(len(rows.labels)):
        begin, split, end, label = rows.begins[row], rows.splits[row], rows.ends[row], rows.labels[row]
        a_begin, a_end, b_begin, b_end = begin, split, split, end  # for SOP_NONE, B is empty
        if label == swapped:
            a_begin, a_end, b_begin, b_end = split, end, begin, split
        # [CLS] is at `at`, A after it, then its [SEP], then B; the last [SEP] is before the next row.
        at, a_len = offsets[row], a_end - a_begin
        out[at] = cls_id
        copy_items(target, at + 1, source, a_begin, a_len)
        out[at + 1 + a_len] = sep_id
        if label != SOP_NONE:
            copy_items(target, at + 2 + a_len, source, b_begin, b_end - b_begin)
            out[offsets[row + 1] - 1] = sep_id
