"""Measures how well a model predicts validation rows, and how well token frequencies alone would."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from albert_data.data import Examples
from albert_data.errors import ShardError
from albert_data.runs.verdicts import is_known
from albert_data.shards.reader import Shards
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE, num_bytes
from albert_data.train.batch import NO_LABEL, Batch
from albert_data.train.device import ALONE, Precision, Ranks
from albert_data.train.loader import choose_rows, fixed_batches
from albert_data.train.metrics import Figures, figures, measure
from albert_data.train.model import Albert, Output
from albert_data.train.order import Pack

# About 19 labels in a row of 128 tokens, so over a million: a piece that is one label in a thousand is then counted a
# thousand times, and its frequency known to about 3 %.
BASELINE_ROWS = 65_536
ROWS_PER_READ = 4096
_MIN_ROWS = 10  # of a source that is judged


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
) -> dict[str, Any]:
    """Return means over the first `num_rows` rows, whose batches are divided among the ranks, and `judge_accuracy`.

    Of several sources also what `describe_sources` says of the rows of `choose_rows`.
    pack: of which size packs are; None: rows are padded.
    must_stop: called before each batch; when it returns True, the evaluation stops and the figures are not valid.
    Draws no random number. Leaves the model in training mode. If memory runs out on any rank, all raise
    torch.cuda.OutOfMemoryError.
    """
    rows = choose_rows(shards, num_rows) if shards.rows_by_source else np.zeros(0, np.int64)
    examples = shards.rows(rows)
    # Without sources the sums of all; else of each row, and a line for what is no label.
    sums_RF = torch.zeros((len(rows) + 1, 6), dtype=torch.float64, device=precision.device)
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
                if len(rows):
                    add_rows(sums_RF, output, moved, batch, examples, np.searchsorted(rows, batch.rows))
                else:
                    sums_RF += measure(output, moved)
    model.train()
    found_RF = np.array(ranks.sum(sums_RF.flatten().tolist())).reshape(-1, 6)
    found = figures(found_RF[: np.searchsorted(rows, num_rows) or 1].sum(axis=0).tolist())
    found |= judge_accuracy(shards, num_rows, found["sop_accuracy"])
    return found | (describe_sources(examples, found_RF[:-1], shards.manifest.sources or ()) if len(rows) else {})


def add_rows(sums_RF: torch.Tensor, output: Output, moved: Batch, batch: Batch, rows: Examples, at: np.ndarray) -> None:
    """Add what `measure` returns, by row. moved, batch: on device and host; at: their rows in `rows`, in order.

    Copies logits as float32, of 1,024 labels at once. Does not wait for the device.
    """
    of_masks, of_pairs = np.repeat(at, np.diff(rows.mask_offsets)[at]), at[rows.sop_label[at] != NO_LABEL]
    mlm, pair = (output.mlm_logits_NV, "masked_labels_N", of_masks), (output.sop_logits_BK, "sop_labels_B", of_pairs)
    for column, (logits_NV, name, own) in ((0, mlm), (3, pair)):
        if logits_NV is not None:
            row_N = np.full(len(logits_NV), len(sums_RF) - 1)
            row_N[getattr(batch, name).numpy() != NO_LABEL] = own
            labels_N = getattr(moved, name)
            parts = zip(torch.split(logits_NV, 1024), torch.split(labels_N, 1024), strict=True)
            nats = [F.cross_entropy(one.float(), own, ignore_index=NO_LABEL, reduction="none") for one, own in parts]
            nats_N = torch.cat(nats).double().mul(2**20).round() / 2**20  # so that a sum is exact, in whatever order
            found_NF = torch.stack((nats_N, torch.ones_like(nats_N), logits_NV.max(-1).indices == labels_N), dim=1)
            sums_RF[:, column : column + 3].index_add_(0, torch.from_numpy(row_N).to(labels_N.device), found_NF)


def describe_sources(examples: Examples, sums_RF: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """`num_sources`, and `by_source`: figures of at most 50, the worst first, but few labels last.

    The labels of a row are alike, so the standard error of an accuracy is computed from rows. It is None for under 10
    rows. It is at least the error of independent labels with two right and two wrong ones added (Agresti and Coull
    1998), because rows without a hit would have an error of 0.
    """
    sources_R, found = np.asarray(examples.sources), list[dict[str, Any]]()
    for source in np.unique(sources_R[sums_RF.any(axis=1)]).tolist():
        own_RF = sums_RF[sources_R == source]
        found.append({"name": names[source], **figures(own_RF.sum(axis=0).tolist())})
        for head, column in (("mlm", 1), ("sop", 4)):
            labels_R, hits_R = own_RF[own_RF[:, column] > 0, column : column + 2].T
            count, hits, num_rows = labels_R.sum(), hits_R.sum(), len(labels_R)
            error = None
            if num_rows >= _MIN_ROWS:
                spread = float(((hits_R - labels_R * hits / count) ** 2).sum()) * num_rows / (num_rows - 1)
                least = (hits + 2) * (count - hits + 2) / (count + 4) ** 3
                error = max(spread / count**2, least) ** 0.5
            found[-1] |= {f"{head}_labels": int(count), f"{head}_error": error}
    found.sort(key=lambda one: (not is_known(one), -(one["mlm_loss"] or 0)))
    return {"num_sources": len(found), "by_source": found[:50]}


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
