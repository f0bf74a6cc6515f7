"""What a process of the laboratory is told to do. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

VALUES = "values"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to train and measure. train, shape: what differs from the preset's recipe and shape; steps: updates, 0 to
    measure the costs of one and train nothing; compile: as in TrainConfig. before: see `Row`.

    measures: for each key, the kind (tables.py) and the shards that it is measured on; num_rows: the most rows that a
    measure reads. The figures are written to `result`: VALUES, one for each key, "parameters", "layers" (layers.py),
    "curve", the validation losses over the updates, and "seconds" of training.
    """

    shards: str
    run: str
    result: str
    preset: str
    train: dict[str, Any]
    shape: dict[str, Any]
    before: dict[str, Any] | None
    steps: int
    seed: int
    compile: bool | None
    measures: dict[str, tuple[str, str]]
    num_rows: int
