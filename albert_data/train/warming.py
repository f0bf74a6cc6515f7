"""Computes every shape of batch once before a timed run begins its schedule, because compiling takes minutes.

Otherwise most of the compiling would happen in the first updates, and the learning rate, which follows the clock, would
rise to its peak in a few of them. The first evaluation would tell a wrong time for the last one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from albert_data.train.batch import BatchShape, empty_batch
from albert_data.train.evaluation import fixed_shapes
from albert_data.train.loader import Rows, ShardLoader
from albert_data.train.memory import halve_batches
from albert_data.train.session import Session


def warm_up(
    session: Session,
    loader: ShardLoader,
    validation: Rows | None,
    *,
    must_stop: Callable[[], bool],
    say: Callable[[str], None],
) -> None:
    """Compute batches of zeros: forward and backward as an update does, or forward alone as an evaluation does.

    Changes no weight, gradient, random state or figure, and the ranks do not wait for each other. If memory runs out,
    the loader's micro-batches are halved. must_stop: called before each shape; when it returns True, the rest is left
    out.
    """
    work = [(shape, True) for shape in loader.shapes()]
    if validation is not None:
        num_rows = session.config.eval_rows
        shapes = fixed_shapes(validation, num_rows=num_rows, batch_tokens=loader.tokens_at_once)
        work += [(shape, False) for shape in shapes]
    say(f"compiling for {len(work)} shapes of batches, before the learning rate begins to rise")
    for shape, is_update in work:
        if must_stop():
            break
        try:
            _compute(session, shape, is_update=is_update)
        except torch.cuda.OutOfMemoryError as error:
            say(halve_batches(session, loader, (shape.num_rows, shape.row_len), error))
            return warm_up(session, loader, validation, must_stop=must_stop, say=say)


def _compute(session: Session, shape: BatchShape, *, is_update: bool) -> None:
    device = session.precision.device
    session.model.train(is_update)
    with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.set_grad_enabled(is_update):
        with session.precision.autocast():
            output = session.model(empty_batch(shape).to(device))
        if is_update:
            torch.autograd.grad(output.mlm_nats + output.sop_nats, list(session.model.parameters()))
    session.model.train()
