"""The figures of a run as TensorBoard events, for those who watch several runs at once. Extra: tensorboard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from albert_data.train.metrics import Figures
from albert_data.train.run_page import say_on_stderr

EVENTS_FOLDER = "tensorboard"
MISSING = "no TensorBoard events are written: install it with: pip install 'albert-data[tensorboard]'"


class TensorBoardWriter:
    """RUN/tensorboard/, a curve for each figure and split: `mlm_loss/train`, `mlm_loss/validation`."""

    def __init__(self, run: Path, *, step: int = 0) -> None:
        """Open for a run that begins, or goes on, after `step`: later events that a stopped run left are hidden.

        Raises ImportError where TensorBoard is not installed.
        """
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(log_dir=str(run / EVENTS_FOLDER), purge_step=step + 1 if step else None)

    def write(self, split: str, step: int, figures: Figures) -> None:
        """Add a point to each curve; a figure that is None has none."""
        for name, value in figures.items():
            if value is not None:
                self._writer.add_scalar(f"{name}/{split}", value, step)

    def close(self) -> None:
        """Write out what is held; without it, up to two minutes of events are lost."""
        self._writer.close()


def open_tensorboard(
    run: Path, *, step: int = 0, say: Callable[[str], None] = say_on_stderr
) -> TensorBoardWriter | None:
    """Return None, and say in one line how to change that, where TensorBoard is not installed."""
    try:
        return TensorBoardWriter(run, step=step)
    except ImportError:
        say(MISSING)
        return None
