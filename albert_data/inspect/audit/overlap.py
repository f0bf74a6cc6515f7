"""Text that stands in several places: rows of validation seen in training, and windows that many documents have.

In: rows, and the document of each. Out: the rows of validation that were found; a check of windows. Training is
streamed; of it, only the row in which each gram of validation was seen last is kept.

A row is seen if half of its 13-grams stand in training. Where a tenth of the words were changed, only a third of these
are left. But half of the 8-grams are, and in one document, while those of idioms and quotations are in many. So a row
is altered if a fifth of its 8-grams were seen last in one document. In a row mostly of scripts without spaces 5-grams
take their place, which hold about eight characters: a longer one would rarely have none that was changed.

Windows are grams of WINDOW tokens, of a sample of documents. A window's hash decides whether it is in the sample, so a
header that documents share is taken from all of them or from none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from albert_data.data import Examples
from albert_data.examples.pair_tasks import SWAPPED
from albert_data.inspect.audit import rules
from albert_data.inspect.audit.grams import RowGrams, read_grams
from albert_data.inspect.audit.rows import Subject, read_batches
from albert_data.inspect.audit.rules import Check
from albert_data.kernels import kernel
from albert_data.kernels.draws import mix, threshold
from albert_data.shards.reader import Shards
from albert_data.survey.gram_index import GramIndex, find_gram, index_grams, sort_grams
from albert_data.text.wording import count_of, format_share

LONG, SHORT, SHORT_UNSPACED = 13, 8, 5  # tokens of a gram
SEEN_SHARE, ALTERED_SHARE = 0.5, 0.2
MIN_GRAMS = 12  # long ones: a row of under 24 tokens is not judged, as it may be one idiom
MAX_TOKENS = 4_000_000  # of validation, about; rows are shuffled, so its first ones are a random sample
WINDOW = 12
MAX_WINDOWS = 1_000_000  # the sample of windows; sorting them takes half a second
MIN_DOCUMENTS = 1_000  # so that 1 % of the sampled documents are ten
_SAMPLING = np.uint64(0xD1B54A32D192ED03)  # any constant: makes the order of the sample independent of the keys
MANY_DOCUMENTS, MANY_SHARE = 5, 0.01  # a window in at least as many documents, and this share, is boilerplate


class Overlap(NamedTuple):
    """The rows of validation, arrays of one value a row.

    is_judged, is_seen, is_altered: bool; shares: float64, of the grams that say so
    training_rows: int64, a row of training that has most of them
    """

    is_judged: np.ndarray
    is_seen: np.ndarray
    is_altered: np.ndarray
    shares: np.ndarray
    training_rows: np.ndarray


def find_overlap(subject: Subject) -> Overlap:
    """Compare the rows of validation with those of training. subject: of both splits."""
    num_long, num_seen, *_ = _count_seen(subject, (LONG, LONG))
    num_short, _, most, training_rows = _count_seen(subject, (SHORT, SHORT_UNSPACED))
    is_judged = num_long >= MIN_GRAMS
    seen_shares, altered_shares = num_seen / np.maximum(num_long, 1), most / np.maximum(num_short, 1)
    is_seen = is_judged & (seen_shares >= SEEN_SHARE)
    is_altered = is_judged & ~is_seen & (altered_shares >= ALTERED_SHARE)
    return Overlap(is_judged, is_seen, is_altered, np.where(is_seen, seen_shares, altered_shares), training_rows)


def _count_seen(subject: Subject, gram_lens: tuple[int, int]) -> tuple[np.ndarray, ...]:
    """What `count_seen` returns, for the rows of validation. gram_lens: see `read_grams`."""
    train, validation = subject.shards
    grams = [part.hashes.copy() for part in read_grams(subject, _take_first(validation), gram_lens)]
    index, row = index_grams(sort_grams(np.concatenate(grams))), 0
    last_rows = np.full(len(index.hashes), -1)
    for part in read_grams(subject, read_batches([train]), gram_lens):
        mark_seen(index, last_rows, part, row)
        row += len(part.offsets) - 1
    counts = [
        count_seen(index, last_rows, part, subject.owners)
        for part in read_grams(subject, _take_first(validation), gram_lens)
    ]
    return tuple(map(np.concatenate, zip(*counts, strict=True)))


def _take_first(shards: Shards) -> Iterator[Examples]:
    num_tokens = 0
    for batch in shards.batches():
        if num_tokens >= MAX_TOKENS:
            return
        yield batch
        num_tokens += len(batch.input_ids)


@kernel
def mark_seen(index: GramIndex, last_rows: np.ndarray, grams: RowGrams, first_row: int) -> None:
    """Enter the rows of training that have grams of validation. first_row: the number of the first.

    last_rows: int64, of each gram of the index, the last row that has it, -1 where none has.
    """
    for row in range(len(grams.offsets) - 1):
        for i in range(grams.offsets[row], grams.offsets[row + 1]):
            at = find_gram(index, grams.hashes[i])
            if at >= 0:
                last_rows[at] = first_row + row


@kernel
def count_seen(
    index: GramIndex, last_rows: np.ndarray, grams: RowGrams, owners: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """For each row of validation: its grams, those seen, the most seen last in one document, and a row of that.

    owners: int64, the document of each row of training. The row is -1 if no gram was seen.
    """
    num_rows = len(grams.offsets) - 1
    num_grams, num_seen = np.diff(grams.offsets), np.zeros(num_rows, np.int64)
    most, rows = np.zeros(num_rows, np.int64), np.full(num_rows, -1)
    for row in range(num_rows):
        found = np.empty(num_grams[row], np.int64)
        for i in range(num_grams[row]):
            at = find_gram(index, grams.hashes[grams.offsets[row] + i])
            if last_rows[at] >= 0:
                found[num_seen[row]] = last_rows[at]
                num_seen[row] += 1
        found = found[: num_seen[row]]
        found = found[np.argsort(owners[found])]
        count = 0
        for i in range(len(found)):
            count = count + 1 if i > 0 and owners[found[i]] == owners[found[i - 1]] else 1
            if count > most[row]:
                most[row], rows[row] = count, found[i]
    return num_grams, num_seen, most, rows


# ---- windows ----


class Windows(NamedTuple):
    """Sampled windows."""

    hashes: np.ndarray  # uint64
    rows: np.ndarray  # int64, of all splits
    places: np.ndarray  # int32, of the first token in the row's text


def check_boilerplate(subject: Subject) -> Check:
    """Check how much of the text stands in many documents."""
    is_chosen, part = choose_documents(subject.documents, subject.add_by_document(subject.facts.num_text))
    windows, num_chosen = gather_windows(subject, is_chosen[subject.owners], part), int(is_chosen.sum())
    if len(windows.hashes) == 0:
        return Check(rules.BOILERPLATE, None, f"no row has {WINDOW} tokens")
    num_documents = count_documents(windows.hashes, subject.owners[windows.rows])
    least = max(MANY_DOCUMENTS, int(np.ceil(MANY_SHARE * num_chosen)))
    share = float(np.mean(num_documents >= least))
    most = int(np.argmax(num_documents))
    documents = count_of(num_chosen, "document" if num_chosen == len(is_chosen) else "sampled document")
    finding = f"{format_share(share)} of the windows of {WINDOW} tokens occur in at least {least:,} of {documents}"
    details: dict[str, Any] = {
        "share": share,
        "in_documents": least,
        "window_tokens": WINDOW,
        "num_sampled": len(num_documents),
        "num_documents_sampled": num_chosen,
    }
    if share > 0:
        text = _show_window(subject, int(windows.rows[most]), int(windows.places[most]))
        finding += f'; the most frequent: "{text}", in {num_documents[most]:,}'
        details |= {"example": text, "example_documents": int(num_documents[most])}
    return Check(rules.BOILERPLATE, share, finding, details)


def count_documents(hashes: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """In how many different documents each hash occurs: int64, for each element of `hashes`."""
    _, which = np.unique(hashes, return_inverse=True)
    num_owners = int(owners.max(initial=0)) + 1
    pairs = np.unique(which.astype(np.int64) * num_owners + owners)  # below 2**63 for a billion of each
    counts: np.ndarray = np.bincount(pairs // num_owners)[which]
    return counts


def choose_documents(keys: np.ndarray, lens: np.ndarray) -> tuple[np.ndarray, float]:
    """A sample of documents with about MAX_WINDOWS tokens, and the share of their windows to take, at most 1.

    lens: tokens of each document. Out: bool, for each. Where documents are long, at least MIN_DOCUMENTS are taken, or
    all, with a smaller share of their windows.
    """
    ranks: Any = keys ^ _SAMPLING  # mixed, they are random numbers that the keys alone decide
    order = np.argsort(mix(ranks))
    sizes = np.cumsum(lens[order])
    count = max(int(np.searchsorted(sizes, MAX_WINDOWS, side="right")), min(MIN_DOCUMENTS, len(keys)))
    is_chosen = np.zeros(len(keys), np.bool_)
    is_chosen[order[:count]] = True
    return is_chosen, min(1.0, MAX_WINDOWS / max(float(sizes[count - 1]), 1.0))


def gather_windows(subject: Subject, is_chosen: np.ndarray, share: float) -> Windows:
    """A share of the windows of the chosen rows. is_chosen: bool, for each row of all splits, one after another."""
    parts, first = [], 0
    for grams in read_grams(subject, read_batches(subject.shards), (WINDOW, WINDOW)):
        rows = first + np.repeat(np.arange(len(grams.offsets) - 1), np.diff(grams.offsets))
        taken = is_chosen[rows] & (grams.hashes <= threshold(share))
        parts.append((grams.hashes[taken], rows[taken], grams.places[taken]))
        first += len(grams.offsets) - 1
    return Windows(*map(np.concatenate, zip(*parts, strict=True)))


def _show_window(subject: Subject, row: int, place: int) -> str:
    """The text of the window that begins at this token of the row's text, in the order of the document."""
    example = subject.read_row(row)
    sep = 1 + example.segment_a_len
    parts = [example.original_ids[1:sep], example.original_ids[sep + 1 : -1]]
    if example.sop_label == subject.config.task.label_of(SWAPPED):
        parts.reverse()
    return subject.tokenizer.decode(np.concatenate(parts)[place : place + WINDOW])
