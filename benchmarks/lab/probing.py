"""What a model knows without having been asked: a classifier is trained on its frozen [CLS], and tested.

The rows are those of a set built for the question, with their original tokens instead of the masks. The classifier is
logistic regression, which finds only what the hidden state shows directly.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from albert_data.shards.reader import Shards
from albert_data.train.loader import fixed_batches
from albert_data.train.model import Albert

_BATCH_TOKENS = 8192
_DECAY = 1e-3  # of the weights, which keeps them finite where a plane divides the classes perfectly
_ITERATIONS = 200


def probe(model: Albert, train: Shards, test: Shards, *, num_rows: int) -> float:
    """The share of labels of `test` that a classifier trained on `train` gets right. num_rows: at most, of each."""
    train_NH, train_N = read_features(model, train, num_rows=num_rows)
    test_NH, test_N = read_features(model, test, num_rows=num_rows)
    mean_H, spread_H = train_NH.mean(0), train_NH.std(0) + 1e-6
    weights_HK, bias_K = fit_classifier((train_NH - mean_H) / spread_H, train_N)
    right_N = ((test_NH - mean_H) / spread_H @ weights_HK + bias_K).argmax(1) == test_N
    return float(right_N.float().mean())


@torch.no_grad()
def read_features(model: Albert, rows: Shards, *, num_rows: int) -> tuple[Tensor, Tensor]:
    """The last hidden state of [CLS], float32 [N, H], and the label, int64 [N], of each row that has a label."""
    device = next(model.parameters()).device
    model.eval()
    features, labels = [], []
    for batch in fixed_batches(rows, num_rows=num_rows, batch_tokens=_BATCH_TOKENS):
        is_label_N = batch.masked_labels_N >= 0
        original = batch.input_ids_BT.flatten()
        original[batch.masked_indices_N[is_label_N]] = batch.masked_labels_N[is_label_N].to(original.dtype)
        has_label_B = batch.sop_labels_B >= 0
        features.append(model.encode(batch.to(device))[:, 0].float().cpu()[has_label_B])
        labels.append(batch.sop_labels_B[has_label_B])
    return torch.cat(features), torch.cat(labels)


def fit_classifier(features_NH: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
    """Logistic regression: weights [H, K] and biases [K] of the least loss. Draws no random number."""
    num_labels = int(labels_N.max()) + 1
    weights_HK = torch.zeros(features_NH.shape[1], num_labels, requires_grad=True)
    bias_K = torch.zeros(num_labels, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights_HK, bias_K], max_iter=_ITERATIONS, line_search_fn="strong_wolfe")

    def measure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(features_NH @ weights_HK + bias_K, labels_N) + _DECAY * weights_HK.square().sum()
        loss.backward()
        return loss

    optimizer.step(measure)
    return weights_HK.detach(), bias_K.detach()
