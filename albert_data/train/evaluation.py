"""Measures how well a model predicts validation rows, and how well token frequencies alone would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np
import torch

from albert_data.data import Examples
from albert_data.errors import ShardError
from albert_data.shards.reader import Shards
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE, num_bytes
from albert_data.train.batch import NO_LABEL
from albert_data.train.device import ALONE, Precision, Ranks
from albert_data.train.loader import fixed_batches
from albert_data.train.metrics import Figures, figures, measure
from albert_data.train.model import Albert
from albert_data.train.order import Pack

# About 19 labels in a row of 128 tokens, so over a million: a piece that is one label in a thousand is then counted a
# thousand times, and its frequency known to about 3 %.
BASELINE_ROWS = 65_536
ROWS_PER_READ = 4096


@torch.no_grad()
def evaluate(
    model: Albert,
    shards: Shards,
    precision: Precision,
    *,
    num_rows: int,
    batch_tokens: int,
    pack: Pack | None = None,
    ranks: Ranks = ALONE,
    must_stop: Callable[[], bool] = lambda: False,
) -> Figures:
    """Return means over the first `num_rows` rows, whose batches are divided among the ranks, and `judge_accuracy`.

    pack: of which size packs are; None: rows are padded.
    must_stop: called before each batch; when it returns True, the evaluation stops and the figures are not valid.
    Draws no random number. Leaves the model in training mode. If memory runs out on any rank, all raise
    torch.cuda.OutOfMemoryError.
    """
    sums_F = torch.zeros(6, dtype=torch.float64, device=precision.device)
    model.eval()
    batches = fixed_batches(shards, num_rows=num_rows, batch_tokens=batch_tokens, pack=pack)
    with ranks.share_out_of_memory():
        for number, batch in enumerate(batches):
            if must_stop():
                break
            if number % ranks.num_ranks == ranks.rank:
                moved = batch.to(precision.device)
                with precision.autocast():
                    output = model(moved)
                sums_F += measure(output, moved)
    model.train()
    found = figures(ranks.sum(sums_F.tolist()))
    return found | judge_accuracy(shards, num_rows, found["sop_accuracy"])


def judge_accuracy(shards: Shards, num_rows: int, accuracy: float | None) -> Figures:
    """What the accuracy of the sentence task on the first rows is to be compared with; without labels, `num_documents`.

    sop_majority: the share of the most frequent label, which a model that learnt nothing reaches.
    sop_entropy: the loss of predicting by the frequencies of the labels.
    sop_error: the standard error of the accuracy, with rows taken as independent, as their labels are.
    num_documents: of all these rows.
    """
    parts = list(_read_rows(shards, num_rows))
    labels, keys = (np.concatenate([getattr(part, name) for part in parts]) for name in ("sop_label", "document_keys"))
    counts = np.bincount(labels[labels != NO_LABEL])
    found: Figures = {"num_documents": len(np.unique(keys))}
    if accuracy is not None:
        shares = counts[counts > 0] / counts.sum()
        found["sop_majority"] = float(shares.max())
        found["sop_entropy"] = float(-(shares * np.log(shares)).sum())
        found["sop_error"] = float(np.sqrt(accuracy * (1 - accuracy) / counts.sum()))
    return found


def measure_baseline(train: Shards, validation: Shards, *, num_rows: int, loss: float) -> Figures:
    """What to write beside a model's MLM loss on the rows that `evaluate` reads; there are labels in them.

    unigram_loss: that of predicting by the frequencies of the training rows' labels. A model that does not beat it has
    learnt nothing from context.
    mlm_nats_per_byte: the model's loss by the mean length of a label in UTF-8. Absent without the shards' tokenizer.
    """
    wanted_V, seen_V = _count_labels(validation, num_rows), _count_labels(train, BASELINE_ROWS)
    nats_V = -np.log((seen_V + 1) / (seen_V + 1).sum())  # 1: unseen pieces have a probability above 0
    found: Figures = {"unigram_loss": float(wanted_V @ nats_V / wanted_V.sum())}
    with suppress(ShardError):
        texts = validation.tokenizer.piece_texts
        bytes_V = [num_bytes(text) or len(text.replace(VISIBLE_SPACE, " ").encode(errors="replace")) for text in texts]
        found["mlm_nats_per_byte"] = loss * float(wanted_V.sum() / (wanted_V @ np.array(bytes_V)))
    return found


def _count_labels(shards: Shards, num_rows: int) -> np.ndarray:
    """How often each piece is a label in the first rows: int64 [V]."""
    size = shards.manifest.tokenizer.vocab_size
    counts_V = np.zeros(size, np.int64)
    for part in _read_rows(shards, num_rows):
        counts_V += np.bincount(part.masked_ids, minlength=size)
    return counts_V


def _read_rows(shards: Shards, num_rows: int) -> Iterator[Examples]:
    """The first rows, in parts; an empty part if there are none."""
    num_rows = min(num_rows, len(shards))
    for begin in range(0, max(1, num_rows), ROWS_PER_READ):
        yield shards.rows(np.arange(begin, min(begin + ROWS_PER_READ, num_rows)))
