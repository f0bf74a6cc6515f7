"""CUDA graphs: an update of a small model in one launch.

An update of a small model is some hundred kernels of a few microseconds each, and a CPU needs longer to launch them
than a GPU to run them. A graph of CUDA is a recording of them all: one for each shape of a batch and window of
attention, from the batch to the new weights. It reads the batch, the rate and the counts of labels from tensors that
stay where they are. The first update of a shape has none: it makes the state of the optimiser, and compiles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from albert_data.train.batch import Batch
from albert_data.train.flops import batch_flops
from albert_data.train.reading import explain
from albert_data.train.state import Session
from albert_data.train.update import Numbers, compute_update

MOST_FLOPS = (
    6e12  # of an update that launches may hold up: what a large GPU computes in 20 ms, the time of launching one
)
Work = Callable[[], object]


class _Recorded(NamedTuple):
    batch: Batch
    numbers: Numbers
    replay: Work


def record(work: Work, pool: Any) -> Work:
    """Record the kernels of some work, which does not run now, and return what runs them."""
    graph = torch.cuda.CUDAGraph()
    # The thread that reads ahead may use the device meanwhile.
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        work()
    return graph.replay


def explain_no_graphs(session: Session, *, is_divided: bool) -> str | None:
    """Why updates can't be graphs; None if they can. is_divided: whether a step has several micro-batches."""
    if session.precision.device.type != "cuda":
        return "they are for CUDA GPUs"
    if session.ranks.num_ranks > 1 or is_divided:
        return "they are for one process, and steps of one micro-batch"
    if session.scaler is not None or session.model.config.dropout:
        return "they are for bf16 and fp32, without dropout"
    return None


class Graphs:
    """The graphs of a run. say: told why there are none any more."""

    def __init__(
        self, session: Session, say: Callable[[str], object], record: Callable[[Work, object], Work] = record
    ) -> None:
        self._session, self._say, self._record = session, say, record
        self._recorded: dict[object, _Recorded | None] = {}  # None after the first update of a shape
        self._window, self._is_off = -1, False
        self._pool = torch.cuda.graph_pool_handle() if session.precision.device.type == "cuda" else None

    def replay(self, batches: Sequence[Batch], numbers: Numbers, window: int) -> bool:
        """Make an update by a graph. Returns False if it has to be made without."""
        (batch, *others) = batches
        is_large = batch_flops(self._session.model.config, batch) > MOST_FLOPS and not self._session.config.graphs
        if self._is_off or others or is_large:
            return False
        if window != self._window:  # it grows, and smaller ones do not come again
            self._recorded, self._window = {}, window
        tensors = _list_tensors(batch)
        key = tuple(tensor.shape for tensor in tensors)
        if key not in self._recorded:
            self._recorded[key] = None
            return False
        if (recorded := self._recorded[key]) is None and (recorded := self._try_to_record(batch, window)) is None:
            return False
        self._recorded[key] = recorded
        for static, given in zip(_list_tensors(recorded.batch), tensors, strict=True):
            static.copy_(given)
        for name, number in numbers._asdict().items():
            getattr(recorded.numbers, name).fill_(number)
        recorded.replay()
        return True

    def _try_to_record(self, batch: Batch, window: int) -> _Recorded | None:
        named: dict[str, Any] = {
            name: value.clone() for name, value in vars(batch).items() if isinstance(value, Tensor)
        }
        batch = dataclasses.replace(batch, **named)
        numbers = Numbers(*(torch.ones((), device=batch.input_ids_BT.device) for _ in Numbers._fields))
        try:
            replay = self._record(lambda: compute_update(self._session, [batch], numbers, window), self._pool)
            return _Recorded(batch, numbers, replay)
        except Exception as error:  # of any type: memory that runs out, an operation that no graph can hold
            self._is_off, self._recorded = True, {}
            self._session.optimizer.zero_grad()
            self._say(f"graphs      none: {explain(error)}")
            return None


def _list_tensors(batch: Batch) -> list[Tensor]:
    return [value for value in vars(batch).values() if isinstance(value, Tensor)]
