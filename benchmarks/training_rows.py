"""The rows of the training benchmark, a dataclass for each kind, and how they are read from JSON. Imports no torch."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field, fields
from typing import Any

OURS, PACKED = "albert-data", "albert-data, packed"
WHOLE = "albert-data train"
TRANSFORMERS, FUSED_GELU = "transformers", "transformers, fused gelu"


def format_teraflops(flops: float) -> str:
    """Write FLOPs a second in units of 10^12, for GPUs with hundreds of them and for a core with less than one."""
    return f"{flops / 1e12:,.0f}" if flops > 1e13 else f"{flops / 1e12:.3f}"


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """Products of two matrices.

    shape: rows, inner size and columns.
    peak_flops: the published peak; None if it is unknown.
    """

    where: str
    precision: str
    shape: tuple[int, ...]
    seconds: tuple[float, ...]
    peak_flops: float | None = None

    @property
    def flops_per_second(self) -> float:
        return 2 * math.prod(self.shape) / statistics.median(self.seconds)

    def __str__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        return f"{self.precision} product of {shape}: {format_teraflops(self.flops_per_second)} TFLOP/s"


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Updates of one contender on one batch. seconds: of an update, one for each turn; missing: why there are none.

    num_tokens: without padding. flops: of one update of our model, even if the contender computes more.
    first_seconds: of the first update, which compiles. num_graphs: graphs compiled during the timing, ideally 0.
    """

    where: str
    precision: str
    model: str
    row_len: int
    num_rows: int
    contender: str
    num_tokens: int
    flops: int
    is_compiled: bool
    seconds: tuple[float, ...] = ()
    first_seconds: float = 0.0
    num_graphs: int = 0
    peak_bytes: int = 0
    missing: str = ""

    @property
    def tokens_per_second(self) -> float | None:
        return self.num_tokens / statistics.median(self.seconds) if self.seconds else None

    @property
    def flops_per_second(self) -> float | None:
        return self.flops / statistics.median(self.seconds) if self.seconds else None

    def __str__(self) -> str:
        speed = f"{self.tokens_per_second:,.0f} tokens/s" if self.tokens_per_second else self.missing
        return f"{self.model}, {self.num_rows} rows of {self.row_len}, {self.contender}: {speed}"


@dataclass(frozen=True, kw_only=True)
class Training:
    """A run of `albert-data train`. wall_seconds: of the whole process; curve: its validation lines."""

    where: str
    precision: str
    preset: str
    minutes: float
    wall_seconds: float
    last_step: int
    tokens_per_second: float | None
    mfu: float | None
    unigram_loss: float | None
    curve: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        final = self.curve[-1] if self.curve else {}
        return f"{self.preset}, {self.last_step:,} steps in {self.wall_seconds:,.0f} s: {final}"


Row = Ceiling | Speed | Training


def read_row(saved: dict[str, Any]) -> Row:
    """Make a row from its fields in JSON. Its class is the one that has exactly these fields."""
    for kind in (Ceiling, Speed, Training):
        if saved.keys() == {one.name for one in fields(kind)}:
            return kind(
                **{name: tuple(value) if name in ("seconds", "shape") else value for name, value in saved.items()}
            )
    raise ValueError(f"no row has the fields {', '.join(saved)}")
