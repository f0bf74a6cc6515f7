"""Measures how well a model predicts validation rows, and how well token frequencies alone would.

Shape letters beside those of batch.py: R evaluated rows, S scripts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from albert_data.errors import ShardError
from albert_data.shards.reader import Shards
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE, find_script, num_bytes
from albert_data.train.batch import NO_LABEL, Batch
from albert_data.train.device import ALONE, Precision, Ranks
from albert_data.train.loader import fixed_batches
from albert_data.train.metrics import Figures, figures, measure
from albert_data.train.model import Albert
from albert_data.train.order import Pack

# About 19 labels in a row of 128 tokens, so over a million: a piece that is one label in a thousand is then counted a
# thousand times, and its frequency known to about 3 %.
BASELINE_ROWS = 65_536
ROWS_PER_READ = 4096
LABELS_AT_ONCE = 1024
MIN_SHARE = 0.01  # of the rows; a script of less is hardly part of the text


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
    nats_R: np.ndarray | None = None,
) -> Figures:
    """Return means over the first `num_rows` rows, whose batches are divided among the ranks, and `judge_accuracy`.

    pack: of which size packs are; None: rows are padded.
    nats_R: float64; if given, filled with the MLM losses of each row's labels together.
    must_stop: called before each batch; when it returns True, the evaluation stops and the figures are not valid.
    Draws no random number. Leaves the model in training mode. If memory runs out on any rank, all raise
    torch.cuda.OutOfMemoryError.
    """
    sums_F = torch.zeros(6, dtype=torch.float64, device=precision.device)
    right_R = torch.zeros(min(num_rows, len(shards)), dtype=torch.float64, device=precision.device)  # of each row
    lost_R = torch.zeros_like(right_R)
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
                rows, (entries, owners_N) = torch.from_numpy(batch.rows), moved.find_rows()
                if nats_R is not None:
                    lost_R[rows] = _add_by_row(output.mlm_logits_NV, moved, owners_N)[entries]
                if output.sop_logits_BK is not None:
                    is_right_B = output.sop_logits_BK.max(-1).indices == moved.sop_labels_B
                    right_R[rows] = is_right_B[entries].double()
    model.train()
    if nats_R is not None:
        nats_R[:] = ranks.sum(lost_R.tolist())
    right = np.array(ranks.sum(right_R.tolist()))
    return {**figures(ranks.sum(sums_F.tolist())), **judge_accuracy(shards, right)}


def _add_by_row(logits_NV: Tensor, batch: Batch, owners_N: Tensor) -> Tensor:
    """The MLM losses of each row's labels together: float64. In parts, because logits in float32 may fill a GPU.

    owners_N: int64, the row of each label.
    """
    labels_N = batch.masked_labels_N
    parts = zip(*(torch.split(part, LABELS_AT_ONCE) for part in (logits_NV, labels_N)), strict=True)
    nats_N = [F.cross_entropy(a.float(), b, reduction="none", ignore_index=NO_LABEL) for a, b in parts]
    nats_B = torch.zeros(len(batch.sop_labels_B), dtype=torch.float64, device=labels_N.device)
    return nats_B.index_add_(0, owners_N, torch.cat(nats_N).double())


def judge_accuracy(shards: Shards, right: np.ndarray) -> Figures:
    """What the accuracy of the sentence task on the first rows is to be compared with; without labels, `num_documents`.

    right: float64, 1 for each row whose label was predicted.
    sop_majority: the share of the most frequent label, which a model that learnt nothing reaches.
    sop_entropy: the loss of predicting by the frequencies of the labels.
    sop_error: the standard error of the accuracy, for documents drawn at random, since rows of one document are alike;
    it is at least that of independent rows, since few documents show little of their spread.
    num_documents: of all these rows.
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


class MaskLabels(NamedTuple):
    """The labels of evaluated rows.

    ids_N: int64, the original ids.
    rows_N: int64, the row of each.
    keys_R: uint64, the document key of each row.
    scripts_R: int64, the number of each row's script.
    """

    ids_N: np.ndarray
    rows_N: np.ndarray
    keys_R: np.ndarray
    scripts_R: np.ndarray

    def count_pieces(self, num_scripts: int, vocab_size: int) -> np.ndarray:
        """How often each piece is a label in rows of each script: int64, S x V."""
        cells_N = self.scripts_R[self.rows_N] * vocab_size + self.ids_N
        return np.bincount(cells_N, minlength=num_scripts * vocab_size).reshape(num_scripts, vocab_size)


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The MLM loss of predicting by token frequencies alone, on the rows that `evaluate` reads, in nats.

    Where rows are of several scripts, the frequencies are those of rows of the same script: which script a row has is
    seen without reading, so a model that learnt only that would beat frequencies of all rows.

    unigram_loss: with the frequencies of the training rows. A model that does not beat it has learnt nothing
    from context.
    unigram_entropy: the entropy of the evaluated labels: the loss of a model that predicts by the frequencies of just
    these labels. No other model of frequencies alone has a lower one. On few rows it is well below unigram_loss.
    unigram_scripts: how many scripts have a hundredth of the rows or more.
    label_bytes: the mean length of a label in UTF-8; None without the shards' tokenizer.
    nats_R: float64, the losses of each row's labels together.
    labels: the labels.
    """

    unigram_loss: float
    unigram_entropy: float
    unigram_scripts: int
    label_bytes: float | None
    nats_R: np.ndarray = field(compare=False, repr=False)
    labels: MaskLabels = field(compare=False, repr=False)

    def compare(self, loss: float, nats_R: np.ndarray) -> Figures:
        """The figures to write beside those of a model. nats_R: its losses of each row's labels together.

        unigram_error: the standard error of the difference of both losses. It is that of documents drawn at random,
        since rows of one document are alike, and at least that of rows.
        """
        labels, difference_R = self.labels, nats_R - self.nats_R
        counts_R = np.bincount(labels.rows_N, minlength=len(nats_R))
        excess_R = difference_R - difference_R.sum() / len(labels.ids_N) * counts_R
        _, documents_R = np.unique(labels.keys_R, return_inverse=True)
        spreads = [(np.bincount(owners, excess_R) ** 2).sum() for owners in (documents_R, np.arange(len(nats_R)))]
        return {
            "unigram_loss": self.unigram_loss,
            "unigram_entropy": self.unigram_entropy,
            "unigram_error": float(np.sqrt(max(spreads)) / len(labels.ids_N)),
            "unigram_scripts": self.unigram_scripts,
            **({} if self.label_bytes is None else {"mlm_nats_per_byte": loss / self.label_bytes}),
        }


def measure_baseline(train: Shards, validation: Shards, *, num_rows: int) -> Baseline | None:
    """Return None if the evaluated rows have no labels."""
    vocab_size, texts = train.manifest.tokenizer.vocab_size, None
    with suppress(ShardError):  # shards without their tokenizer
        texts = list(validation.tokenizer.piece_texts)
    names, scripts_V = np.unique([find_script(text) for text in texts or [""] * vocab_size], return_inverse=True)
    labels = _read_labels(validation, num_rows, names, scripts_V)
    if not len(labels.ids_N):
        return None
    label_bytes = None
    if texts is not None:
        bytes_V = [num_bytes(text) or len(text.replace(VISIBLE_SPACE, " ").encode(errors="replace")) for text in texts]
        label_bytes = float(np.array(bytes_V)[labels.ids_N].mean())
    seen_SV = _read_labels(train, BASELINE_ROWS, names, scripts_V).count_pieces(len(names), vocab_size)
    # The other scripts count as one label for each piece of the vocabulary, which matters for a script of few rows.
    others_SV = seen_SV.sum(0) - seen_SV + 1  # so that unseen tokens have a probability above 0
    seen_SV = seen_SV + vocab_size * others_SV / others_SV.sum(1, keepdims=True)
    nats_SV = -np.log(seen_SV / seen_SV.sum(1, keepdims=True))
    nats_N = nats_SV[labels.scripts_R[labels.rows_N], labels.ids_N]
    wanted_SV = labels.count_pieces(len(names), vocab_size)
    of_script_SV = wanted_SV / np.maximum(wanted_SV.sum(1, keepdims=True), 1)
    return Baseline(
        unigram_loss=float(nats_N.mean()),
        unigram_entropy=float(-(wanted_SV * np.log(np.where(of_script_SV > 0, of_script_SV, 1))).sum() / len(nats_N)),
        unigram_scripts=int((np.bincount(labels.scripts_R) >= MIN_SHARE * len(labels.keys_R)).sum()),
        label_bytes=label_bytes,
        nats_R=np.bincount(labels.rows_N, nats_N, minlength=len(labels.keys_R)),
        labels=labels,
    )


def _read_labels(shards: Shards, num_rows: int, names: np.ndarray, scripts_V: np.ndarray) -> MaskLabels:
    """The labels of the first rows. A row has the script of most of its tokens, without those of none."""
    parts, num_scripts = [], len(names)
    for begin in range(0, min(num_rows, len(shards)), ROWS_PER_READ):
        rows = shards.rows(np.arange(begin, min(begin + ROWS_PER_READ, num_rows, len(shards))))
        cells_R = np.repeat(np.arange(len(rows)) * num_scripts, np.diff(rows.offsets))
        counts_RS = np.bincount(cells_R + scripts_V[rows.input_ids], minlength=len(rows) * num_scripts)
        counts_RS = counts_RS.reshape(len(rows), num_scripts) * (names != "")
        rows_N = np.repeat(np.arange(begin, begin + len(rows)), np.diff(rows.mask_offsets))
        parts.append((rows.masked_ids.astype(np.int64), rows_N, rows.document_keys, counts_RS.argmax(1)))
    if not parts:
        return MaskLabels(*(np.zeros(0, np.int64) for _ in MaskLabels._fields))
    return MaskLabels(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
