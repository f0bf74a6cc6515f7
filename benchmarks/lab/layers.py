"""How far each layer moves the hidden states (figure 1 of the paper)."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from albert_data.shards.reader import Shards
from albert_data.train.loader import fixed_batches
from albert_data.train.model import Albert

_ROWS, _BATCH_TOKENS = 64, 16_384


@torch.no_grad()
def measure_layers(model: Albert, rows: Shards) -> dict[str, list[float]]:
    """Of input and output of each layer: the L2 distance and the cosine, each a mean over the tokens of some rows."""
    device = next(model.parameters()).device
    model.eval()
    found: dict[str, list[float]] = {"distance": [], "cosine": []}
    batch = next(iter(fixed_batches(rows, num_rows=_ROWS, batch_tokens=_BATCH_TOKENS))).to(device)
    valid_BT, x_BTH = batch.valid_BT, model.embeddings(batch.input_ids_BT, batch.segment_ids_BT, batch.positions_BT)
    for attention, ffn in model.encoder.inner_layers:
        y_BTH = model.encoder.run_inner_layer(attention, ffn, x_BTH, valid_BT[:, None, None, :])
        found["distance"].append(float((y_BTH - x_BTH).norm(dim=-1)[valid_BT].mean()))
        found["cosine"].append(float(F.cosine_similarity(y_BTH, x_BTH, dim=-1)[valid_BT].mean()))
        x_BTH = y_BTH
    return found
