"""One update of the weights; and after it, whether the run can go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from albert_data.train.batch import Batch
from albert_data.train.device import explain_out_of_memory
from albert_data.train.metrics import measure
from albert_data.train.order import derive_keys
from albert_data.train.state import Session

# A gradient that overflows in float16 halves the loss scale. Below this scale the gradient is too large even unscaled.
MIN_SCALE = 1.0
MAX_IN_ROW = 10  # in other formats; in float16 a scale of 65,536 may need 16 skipped updates to get there


class Numbers(NamedTuple):
    """What an update is given beside its batch: numbers, or tensors [] on the device in a CUDA graph.

    num_masked, num_pairs: the labels of the step over all ranks, at least 1.
    """

    lr: float | Tensor
    num_masked: float | Tensor
    num_pairs: float | Tensor


def update(
    session: Session, batches: Sequence[Batch], *, lr: float, num_masked: float, num_pairs: float, window: int = 0
) -> None:
    """Make one step of the optimiser. If a gradient is not finite, weights and moments stay as they are.

    batches: this rank's micro-batches of the step.
    num_masked, num_pairs: the labels of the step over all ranks.
    window: how many tokens to each side attention reaches; 0: the whole row.
    If memory runs out on any rank, all raise torch.cuda.OutOfMemoryError, and nothing but gradients has changed.
    """
    numbers = Numbers(lr, max(num_masked, 1), max(num_pairs, 1))
    if session.replay is None or not session.replay(batches, numbers, window):
        compute_update(session, batches, numbers, window)
    for batch in batches:
        session.tally.count(batch)
    session.step += 1


def compute_update(session: Session, batches: Sequence[Batch], numbers: Numbers, window: int) -> None:
    """What an update does on the device; see `update`."""
    model, scaler = session.model, session.scaler
    if model.config.dropout:
        key = derive_keys(session.config.seed, session.step, session.ranks.rank, num=1)[0]
        torch.manual_seed(int(key >> 1))  # 63 bits: never negative as int64
    session.optimizer.zero_grad()
    measured = []
    with session.ranks.share_out_of_memory():
        for batch in batches:
            with session.precision.autocast():
                output = model(batch, window)
            # The sum over all batches and ranks is the mean over all labels of the step.
            order_loss = session.config.sentence_weight * output.sop_nats / numbers.num_pairs
            loss = output.mlm_nats / numbers.num_masked + order_loss
            (loss if scaler is None else scaler.scale(loss)).backward()
            measured.append(measure(output, batch))
            del output, loss, order_loss  # the logits, before the next batch needs as much
    for sums_F in measured:
        session.tally.add(sums_F)
    with explain_out_of_memory(session.precision.device_info):  # the first step makes the optimiser's state
        _apply(session, numbers.lr)


def _apply(session: Session, lr: float | Tensor) -> None:
    """Add up the gradients of all ranks, clip them and make the step; skip it on the device if they are not finite."""
    optimizer, scaler, precision = session.optimizer, session.scaler, session.precision
    parameters = list(session.model.parameters())
    is_halved = precision.device.type == "cuda" and precision.format != "fp32"  # half the bytes to send
    gradients = [p.grad for p in parameters if p.grad is not None]
    session.ranks.add_up(gradients, torch.bfloat16 if is_halved else torch.float32)
    if scaler is not None:
        scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(parameters, session.config.max_grad_norm, foreach=True)
    session.tally.count_update(norm)
    optimizer.found_inf = (~norm.isfinite()).float()
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()
    if scaler is not None:
        scaler.update()


def explain_stop(session: Session) -> str | None:
    """Return why the run can't go on, and what to do; None if it can. All ranks agree on which. Waits for the device.

    One batch may cause a skipped update, and the next ones are fine. But a run that skips all of them learns nothing,
    and weights that are not finite never become finite again.
    """
    step, num_in_row = session.step, session.tally.num_in_row()
    if session.scaler is not None and (scale := session.scaler.get_scale()) < MIN_SCALE:
        return (
            f"float16 can't hold the gradients: the loss scale fell to {scale:g} by step {step}; start another run "
            "with --precision bf16 or fp32, or with a lower --lr"
        )
    with torch.no_grad():
        norms = torch.stack([torch.linalg.vector_norm(p) for p in session.model.parameters()])
    if not norms.isfinite().all():
        return (
            f"the weights are not finite at step {step}; no checkpoint has such weights; "
            "start another run with a lower --lr"
        )
    if session.scaler is not None or num_in_row < MAX_IN_ROW:
        return None
    return (
        f"the loss or its gradient stopped being finite: {num_in_row} updates in a row were skipped, the last at step "
        f"{step}; start another run with a lower --lr"
    )
