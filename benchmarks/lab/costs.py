"""What an update of a model costs: parameters, time and memory. Ids are random, since only shapes matter."""

from __future__ import annotations

import dataclasses
import resource

import torch

from albert_data.train.config import AlbertConfig
from albert_data.train.device import choose_precision
from albert_data.train.model import Albert
from benchmarks.lab.tables import EXECUTED, MEMORY, SPEED
from benchmarks.training import Contender, Machine, make_examples, start, take_turns
from benchmarks.training_rows import OURS

_ROWS, _ROW_LEN = {"cpu": 8, "cuda": 256}, 128
_ROUND_SECONDS = 5.0


def count_parameters(shape: AlbertConfig) -> int:
    with torch.device("meta"):
        return Albert(shape).num_parameters()


def measure_costs(shape: AlbertConfig, seed: int, *, compile: bool | None) -> dict[str, float]:
    """SPEED: tokens a second in training; MEMORY: of the process, or on the GPU, in bytes, at its peak.

    EXECUTED: parameters, each counted as often as a pass through the model uses it. compile: as in TrainConfig.
    """
    torch.manual_seed(seed)
    device = choose_precision("auto", "auto").device
    is_compiled = device.type == "cuda" if compile is None else compile
    machine = Machine(device=device, runs=1, round_seconds=_ROUND_SECONDS, is_compiled=is_compiled)
    examples = make_examples(shape, _ROWS[machine.device.type], _ROW_LEN)
    contender = Contender(name=OURS, precision=machine.precision, is_compiled=is_compiled)
    step, _, peak_bytes = start(contender, shape, examples, machine)
    [seconds] = take_turns({OURS: step}, machine)[OURS]
    return {
        SPEED: int(examples.offsets[-1]) / seconds,
        MEMORY: peak_bytes or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        EXECUTED: count_parameters(dataclasses.replace(shape, share="none", num_groups=1)),
    }
