"""Computes every shape of batch once before a timed run begins its schedule, because compiling takes minutes.

Otherwise most of the compiling would happen in the first updates, and the learning rate, which follows the clock, would
rise to its peak in a few of them. The first evaluation would tell a wrong time for the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from albert_data.train.batch import BatchShape, make_blank
from albert_data.train.session import Session, explain_out_of_memory


def warm_up(
    session: Session, training: Sequence[BatchShape], evaluation: Sequence[BatchShape], must_stop: Callable[[], bool]
) -> None:
    """Compute batches of zeros: forward and backward as an update does, or forward alone as an evaluation does.

    Changes no weight, gradient, random state or figure, and the ranks do not wait for each other.
    must_stop: called before each shape; when it returns True, the rest is left out.
    """
    device, parameters = session.precision.device, list(session.model.parameters())
    work = [*((shape, True) for shape in training), *((shape, False) for shape in evaluation)]
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        for shape, is_update in work:
            if must_stop():
                break
            session.model.train(is_update)
            num_cells = shape.num_rows * shape.row_len
            with explain_out_of_memory(session, shape.row_len, num_cells), torch.set_grad_enabled(is_update):
                with session.precision.autocast():
                    output = session.model(make_blank(shape, device))
                if is_update:
                    torch.autograd.grad(output.mlm_nats + output.sop_nats, parameters)
    session.model.train()
