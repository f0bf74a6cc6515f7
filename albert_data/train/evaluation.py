"""Measures how well a model predicts validation rows, and how well token frequencies alone would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from albert_data.train.batch import NO_LABEL, Batch, BatchShape
from albert_data.train.distributed import ALONE, Ranks
from albert_data.train.loader import RowReader, Rows
from albert_data.train.metrics import Figures, figures, measure
from albert_data.train.model import Albert
from albert_data.train.order import RowBatch, cut_batches, rows_per_batch
from albert_data.train.precision import Precision

# About 19 labels in a row of 128 tokens, so over a million: a piece that is one label in a thousand is then counted a
# thousand times, and its frequency known to about 3 %.
BASELINE_ROWS = 65_536
ROWS_PER_READ = 4096


@torch.no_grad()
def evaluate(
    model: Albert,
    shards: Rows,
    precision: Precision,
    *,
    num_rows: int,
    batch_tokens: int,
    ranks: Ranks = ALONE,
    must_stop: Callable[[], bool] = lambda: False,
) -> Figures:
    """Return means over the first `num_rows` rows, whose batches are divided among the ranks, and `judge_accuracy`.

    must_stop: called before each batch; when it returns True, the evaluation stops and the figures are not valid.
    Draws no random number. Leaves the model in training mode.
    """
    sums_F = torch.zeros(6, dtype=torch.float64, device=precision.device)
    right_R = torch.zeros(min(num_rows, len(shards)), dtype=torch.float64, device=precision.device)  # of each row
    model.eval()
    for number, batch in enumerate(fixed_batches(shards, num_rows=num_rows, batch_tokens=batch_tokens)):
        if must_stop():
            break
        if number % ranks.num_ranks == ranks.rank:
            moved = batch.to(precision.device)
            with precision.autocast():
                output = model(moved)
            sums_F += measure(output, moved)
            if output.sop_logits_BK is not None:
                is_right_B = output.sop_logits_BK.max(-1).indices == moved.sop_labels_B
                right_R[torch.from_numpy(batch.rows)] = is_right_B[: len(batch.rows)].double()
    model.train()
    right = np.array(ranks.sum(right_R.tolist()))
    return {**figures(ranks.sum(sums_F.tolist())), **judge_accuracy(shards, right)}


def judge_accuracy(shards: Rows, right: np.ndarray) -> Figures:
    """What the accuracy of the sentence task on the first rows is to be compared with; without labels, `num_documents`.

    right: float64, 1 for each row whose label was predicted.
    sop_majority: the share of the most frequent label, which a model that learnt nothing reaches; sop_entropy: the loss
    of predicting by the frequencies of the labels. sop_error: the standard error of the accuracy, for documents drawn
    at random, since rows of one document are alike; it is at least that of independent rows, since few documents show
    little of their spread. num_documents: of all these rows.
    """
    parts = [shards.rows(rows) for rows in np.array_split(np.arange(len(right)), 1 + len(right) // ROWS_PER_READ)]
    labels, keys = (np.concatenate([getattr(part, name) for part in parts]) for name in ("sop_label", "document_keys"))
    num_documents, is_labelled = len(np.unique(keys)), labels != NO_LABEL
    labels, keys, right = labels[is_labelled], keys[is_labelled], right[is_labelled]
    if not len(labels):
        return {"num_documents": num_documents}
    shares = np.bincount(labels) / len(labels)
    shares, accuracy = shares[shares > 0], right.mean()
    documents, owners = np.unique(keys, return_inverse=True)
    count = len(documents)
    spread = (np.bincount(owners, right - accuracy) ** 2).sum() * (count / (count - 1) if count > 1 else 0)
    independent = accuracy * (1 - accuracy) * len(labels)
    return {
        "sop_majority": float(shares.max()),
        "sop_entropy": float(-(shares * np.log(shares)).sum()),
        "sop_error": float(np.sqrt(max(spread, independent)) / len(labels)),
        "num_documents": num_documents,
    }


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The MLM loss of predicting by token frequencies alone, on the rows that `evaluate` reads, in nats.

    unigram_loss: with the frequencies of the training rows. A model that does not beat it has learnt nothing
    from context.
    unigram_entropy: the entropy of the evaluated labels: the loss of a model that predicts by the frequencies of just
    these labels. No other model of frequencies alone has a lower one. On few rows it is well below unigram_loss.
    """

    unigram_loss: float
    unigram_entropy: float


def measure_baseline(train: Rows, validation: Rows, *, num_rows: int) -> Baseline | None:
    """Return None if the evaluated rows have no labels."""
    vocab_size = train.manifest.tokenizer.vocab_size
    wanted_V = _count_labels(validation, num_rows, vocab_size)
    if not wanted_V.sum():
        return None
    seen_V = _count_labels(train, BASELINE_ROWS, vocab_size) + 1  # so that unseen tokens have a probability above 0
    shares_V = wanted_V / wanted_V.sum()
    return Baseline(
        unigram_loss=float(-(shares_V * np.log(seen_V / seen_V.sum())).sum()),
        unigram_entropy=float(-(shares_V * np.log(np.where(shares_V > 0, shares_V, 1))).sum()),
    )


def _count_labels(shards: Rows, num_rows: int, vocab_size: int) -> np.ndarray:
    counts_V = np.zeros(vocab_size, np.int64)
    for begin in range(0, min(num_rows, len(shards)), ROWS_PER_READ):
        rows = np.arange(begin, min(begin + ROWS_PER_READ, num_rows, len(shards)))
        counts_V += np.bincount(shards.rows(rows).masked_ids, minlength=vocab_size)
    return counts_V


def fixed_batches(shards: Rows, *, num_rows: int, batch_tokens: int) -> Iterator[Batch]:
    """Yield the first `num_rows` rows once, with their stored masks: the same batches of few shapes at each call.

    A build shuffles the rows, so the first ones are a fair sample.
    """
    reader = RowReader(shards)
    for row_batch, shape in _cut_fixed(reader, shards.lengths[:num_rows], batch_tokens):
        yield from reader.read(row_batch, shape)


def fixed_shapes(shards: Rows, *, num_rows: int, batch_tokens: int) -> list[BatchShape]:
    """The shapes of the batches that `fixed_batches` yields, except the rare one with more masked tokens than usual."""
    return sorted({shape for _, shape in _cut_fixed(RowReader(shards), shards.lengths[:num_rows], batch_tokens)})


def _cut_fixed(reader: RowReader, lengths: np.ndarray, batch_tokens: int) -> Iterator[tuple[RowBatch, BatchShape]]:
    for row_batch in cut_batches(np.arange(len(lengths)), lengths, batch_tokens):
        yield row_batch, reader.shape(rows_per_batch(row_batch.row_len, batch_tokens), row_batch.row_len)
