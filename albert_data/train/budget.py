"""How far a run has come: by steps, epochs or the clock, and the learning rate there."""

from __future__ import annotations

import time

from albert_data.train.config import TrainConfig
from albert_data.train.optimizer import lr_at

SPARE = 1.25  # the end takes an evaluation and a checkpoint, which may be slower than the ones before
LEAST_SECONDS = 1.0


class Budget:
    """The share of a run that is done, 0 to 1.

    began: time.perf_counter() at the start of this process's work; seconds: spent on the run by others before it.
    By the clock, the share counts from the end of the first update on, since that compiles: what lies before it
    would be taken from the warm-up. schedule_begin: when that was, in seconds of the run; None before.
    """

    def __init__(
        self,
        config: TrainConfig,
        steps_per_epoch: int,
        *,
        began: float,
        seconds: float = 0.0,
        schedule_begin: float | None = None,
    ) -> None:
        self._config = config
        self._began, self._seconds_before = began, seconds
        self._end_seconds = {"evaluation": LEAST_SECONDS, "checkpoint": LEAST_SECONDS}
        self._last_share: float | None = None
        self.schedule_begin = schedule_begin
        self.num_steps = config.steps
        if config.epochs is not None:
            self.num_steps = max(1, round(config.epochs * steps_per_epoch))

    @property
    def seconds(self) -> float:
        """Spent on the run so far."""
        return self._seconds_before + time.perf_counter() - self._began

    @property
    def is_timed(self) -> bool:
        return self._config.minutes is not None

    @property
    def end_seconds(self) -> float:
        """What the evaluation and the checkpoint at the end will take."""
        return SPARE * sum(self._end_seconds.values())

    def note(self, work: str, seconds: float) -> None:
        """Remember how long an "evaluation" or a "checkpoint" took, for the last ones have to fit in."""
        self._end_seconds[work] = max(LEAST_SECONDS, seconds)

    def begin(self) -> None:
        """Let the schedule of a run by the clock begin, if it has not."""
        if self.is_timed and self.schedule_begin is None:
            self.schedule_begin = self.seconds

    def share_done(self, step: int) -> float:
        """Of the run, by this process's clock where the clock counts: the ranks go by that of the first."""
        if self.num_steps is not None:
            return step / self.num_steps
        assert self._config.minutes is not None
        end, now = self._config.minutes * 60 - self.end_seconds, self.seconds
        begin = now if self.schedule_begin is None else self.schedule_begin
        return (now - begin) / (end - begin) if end > now else 1.0

    def rate(self, step: int, share: float) -> float:
        """The learning rate of update `step`, counted from 0, with `share` of the run done."""
        if self.num_steps is not None:
            return lr_at(step, self.num_steps, self._config)
        return lr_at(share, 1.0, self._config, stride=self._stride(share))

    def is_last(self, step: int, share: float) -> bool:
        """Whether the run is over after update `step`, before which `share` of it was done."""
        if self.num_steps is not None:
            return step + 1 >= self.num_steps
        stride, self._last_share = self._stride(share), share
        return share + stride >= 1

    def _stride(self, share: float) -> float:
        """What the last step took of the run; nothing is known of the first."""
        return max(1e-9, share - self._last_share) if self._last_share is not None else 1e-9
