"""Sums over steps, the figures made of them, and the file that keeps these.

The sums stay on the device and are read only when a line is due, so that a GPU need not wait at each step.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from albert_data.files import write_bytes
from albert_data.train.batch import NO_LABEL, Batch
from albert_data.train.distributed import Ranks
from albert_data.train.model import Output

Figures = dict[str, float | None]


@torch.no_grad()
def measure(output: Output, batch: Batch) -> Tensor:
    """Return float64 [6]: MLM nats, masked tokens, MLM hits, SOP nats, rows with an order, SOP hits."""
    labels_N, labels_B = batch.masked_labels_N, batch.sop_labels_B
    sums = (
        output.mlm_nats,
        (labels_N != NO_LABEL).sum(),
        (output.mlm_logits_NV.argmax(-1) == labels_N).sum(),
        output.sop_nats,
        (labels_B != NO_LABEL).sum(),
        (output.sop_logits_B2.argmax(-1) == labels_B).sum(),
    )
    return torch.stack([figure.double() for figure in sums])


def figures(sums: Sequence[float]) -> Figures:
    """Return means over what was measured; None where nothing was."""
    nats, num_masked, hits, sop_nats, num_ordered, sop_hits = sums
    return {
        "mlm_loss": nats / num_masked if num_masked else None,
        "mlm_accuracy": hits / num_masked if num_masked else None,
        "sop_loss": sop_nats / num_ordered if num_ordered else None,
        "sop_accuracy": sop_hits / num_ordered if num_ordered else None,
    }


class Tally:
    """What one rank summed up since the last line of metrics; part of a checkpoint, so that a line may span one."""

    def __init__(self, device: torch.device) -> None:
        self._sums_F = torch.zeros(6, dtype=torch.float64, device=device)
        self._num_bad_steps = torch.zeros((), dtype=torch.int64, device=device)
        self._first_bad_step = torch.full((), -1, dtype=torch.int64, device=device)
        self.num_tokens = 0
        self.num_cells = 0
        self.num_flops = 0
        self.seconds = 0.0

    def add(self, output: Output, batch: Batch) -> None:
        self._sums_F += measure(output, batch)
        self.num_tokens += batch.num_tokens
        self.num_cells += batch.input_ids_BT.numel()

    def check(self, gradient_norm: Tensor, step: int) -> None:
        """Note a gradient that is not finite, without waiting for the device."""
        is_bad = ~gradient_norm.isfinite()
        is_first = is_bad & (self._first_bad_step < 0)
        self._first_bad_step = torch.where(is_first, step, self._first_bad_step)
        self._num_bad_steps += is_bad

    def read(self, ranks: Ranks) -> Figures:
        """Return the figures of the interval over all ranks. Waits for the device."""
        return figures(ranks.sum(self._sums_F.tolist()))

    def num_bad_steps(self) -> int:
        """Steps whose gradient was not finite."""
        return int(self._num_bad_steps.item())

    def first_bad_step(self) -> int:
        """The first of them, counted from 0; -1 if there is none."""
        return int(self._first_bad_step.item())

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The tensors, by "tally.NAME", and the numbers."""
        tensors = {"tally.sums": self._sums_F, "tally.num_bad_steps": self._num_bad_steps}
        return tensors, {name: getattr(self, name) for name in _NUMBERS}

    def load_state_dict(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        self._sums_F.copy_(tensors["tally.sums"])
        self._num_bad_steps.copy_(tensors["tally.num_bad_steps"])
        for name in _NUMBERS:
            setattr(self, name, numbers[name])


_NUMBERS = ("num_tokens", "num_cells", "num_flops", "seconds")


def all_finite(values: Figures) -> bool:
    return all(value is None or math.isfinite(value) for value in values.values())


class MetricsFile:
    """metrics.jsonl: a JSON object a line, each with `step` and `split`, "train" or "validation"."""

    def __init__(self, path: Path, *, keep_until_step: int) -> None:
        """Open for appending, without the lines after `keep_until_step`: the run will write those again."""
        self._path = path
        old = path.read_text("utf-8").splitlines() if path.exists() else []
        # The last line may be torn where the machine died while writing it; then its step comes again too.
        kept = [line for line in old if _step_of(line) <= keep_until_step]
        write_bytes(path, "".join(line + "\n" for line in kept).encode())

    def write(self, **line: Any) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf
