"""Decides whether a run that skips updates can go on.

An update whose gradient is not finite is skipped (session.update). One batch may cause that, and the next updates are
fine. But a run that skips all of them learns nothing, and weights that are not finite never become finite again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from albert_data.train.session import Session

# A gradient that overflows in float16 halves the loss scale. Below this scale the gradient is too large even unscaled.
MIN_SCALE = 1.0
MAX_IN_ROW = 10  # in other formats; in float16 a scale of 65,536 may need 16 skipped updates to get there
_ROWS_NAMED = 8


def explain_stop(session: Session, rows: Sequence[np.ndarray], folder: Path) -> str | None:
    """Return why the run can't go on, and what to do; None if it can. All ranks agree on which. Waits for the device.

    rows: of this rank in the last update, by their numbers in the training split of the shards in `folder`.
    """
    step, num_in_row = session.step, session.tally.num_in_row()
    scale = session.scaler.get_scale()
    if scale < MIN_SCALE:
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
    if session.precision.is_scaled or num_in_row < MAX_IN_ROW:
        return None
    numbers = sorted(row for part in rows for row in part.tolist())
    named = ", ".join(map(str, numbers[:_ROWS_NAMED]))
    more = f" and {len(numbers) - _ROWS_NAMED} more" if len(numbers) > _ROWS_NAMED else ""
    return (
        f"the loss or its gradient stopped being finite: {num_in_row} updates in a row were skipped, the last at step "
        f"{step}, of training rows {named}{more}; look at these rows with `albert-data inspect {folder} --row N`, "
        "or start another run with a lower --lr"
    )
