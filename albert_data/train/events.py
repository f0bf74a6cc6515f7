"""The figures of a run as TensorBoard events, to watch several runs at once. Extra: tensorboard."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from albert_data.errors import ConfigError, OutputError
from albert_data.train.folder import EVENTS_FOLDER
from albert_data.train.reading import explain

MISSING = "--tensorboard needs TensorBoard; install it with: pip install 'albert-data[tensorboard]'"


def require_tensorboard() -> None:
    """Raise ConfigError where TensorBoard is not installed."""
    try:
        importlib.import_module("torch.utils.tensorboard")
    except ImportError as error:
        raise ConfigError(MISSING) from error


class TensorBoardWriter:
    """RUN/tensorboard/, a curve for each figure and split: `mlm_loss/train`, `mlm_loss/validation`."""

    def __init__(self, run: Path, *, step: int = 0) -> None:
        """Open for a run that begins, or resumes, after `step`: later events of a stopped run are hidden.

        Raises ConfigError where TensorBoard is not installed.
        """
        require_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        self._folder = run / EVENTS_FOLDER
        self._writer = SummaryWriter(log_dir=str(self._folder), purge_step=step + 1 if step else None)

    def write(self, split: str, step: int, figures: Mapping[str, object]) -> None:
        """Add a point to each curve; None and text have none."""
        with self._explain_failure():
            for name, value in figures.items():
                if isinstance(value, int | float):
                    self._writer.add_scalar(f"{name}/{split}", value, step)

    def close(self) -> None:
        """Write the buffered events; without this, up to two minutes of them are lost."""
        with self._explain_failure():
            self._writer.close()

    @contextmanager
    def _explain_failure(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(
                f"{self._folder}: can't write the events: {explain(error)}; free some space, then --resume"
            ) from error
