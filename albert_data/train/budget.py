"""Measures the progress of a training run by steps, epochs or the clock, and gives the learning rate."""

from __future__ import annotations

import time

from albert_data.train.config import TrainConfig
from albert_data.train.optimizer import lr_at

SAFETY_FACTOR = 1.25  # the last evaluation and checkpoint may be slower than the ones before
MIN_SECONDS = 1.0  # the least that each of the two is assumed to take


class Budget:
    """The share of a run that is done, 0 to 1.

    began: time.perf_counter() at the start of this process; seconds: spent on the run by earlier processes.
    With `minutes`, the share is 0 until the end of the first update. That update compiles, and the learning rate
    would otherwise skip a part of its warm-up. schedule_begin: the seconds of the run at the end of the first update;
    None before it.
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
        self._end_seconds = {"evaluation": MIN_SECONDS, "checkpoint": MIN_SECONDS}
        self._last_share: float | None = None
        self.schedule_begin = schedule_begin
        self.steps_per_epoch = steps_per_epoch
        self.num_steps = config.steps
        if config.epochs is not None:
            self.num_steps = max(1, round(config.epochs * steps_per_epoch))

    @property
    def seconds(self) -> float:
        """The seconds spent on the run so far."""
        return self._seconds_before + time.perf_counter() - self._began

    @property
    def is_timed(self) -> bool:
        return self._config.minutes is not None

    @property
    def end_seconds(self) -> float:
        """The seconds to keep free for the evaluation and the checkpoint at the end."""
        return SAFETY_FACTOR * sum(self._end_seconds.values())

    def note(self, work: str, seconds: float) -> None:
        """Remember how long an "evaluation" or a "checkpoint" took, as an estimate for the last one."""
        self._end_seconds[work] = max(MIN_SECONDS, seconds)

    def begin(self) -> None:
        """Begin the schedule of a run with `minutes`, unless it has begun."""
        if self.is_timed and self.schedule_begin is None:
            self.schedule_begin = self.seconds

    def share_done(self, step: int) -> float:
        """The share of the run done before update `step`. With `minutes`, all ranks use the first rank's share."""
        if self.num_steps is not None:
            return step / self.num_steps
        assert self._config.minutes is not None
        end, now = self._config.minutes * 60 - self.end_seconds, self.seconds
        begin = now if self.schedule_begin is None else self.schedule_begin
        return (now - begin) / (end - begin) if end > now else 1.0

    def steps_left(self, step: int, seconds_per_step: float) -> int:
        """The updates from `step` to the end; with `minutes`, how many the time that is left allows."""
        if self.num_steps is not None:
            return self.num_steps - step
        assert self._config.minutes is not None
        seconds = self._config.minutes * 60 - self.end_seconds - self.seconds
        return max(0, round(seconds / seconds_per_step))

    def rate(self, step: int, share: float) -> float:
        """The learning rate of update `step`, counted from 0, with `share` of the run done."""
        if self.num_steps is not None:
            return lr_at(step, self.num_steps, self._config)
        return lr_at(share, 1.0, self._config, per_step=self._share_per_step(share))

    def finish_update(self, step: int, share: float) -> bool:
        """Record that update `step` began with `share` of the run done. Returns whether it is the last update.

        Call it once for each update, after `rate`: it replaces the share of the update before, which `rate` needs.
        """
        if self.num_steps is not None:
            return step + 1 >= self.num_steps
        per_step, self._last_share = self._share_per_step(share), share
        return share + per_step >= 1

    def _share_per_step(self, share: float) -> float:
        """The share of the run that the previous update of this process took.

        1e-9 if there is none: `lr_at` divides by it. So the warm-up of a run with `minutes` begins with almost 0.
        """
        return max(1e-9, share - self._last_share) if self._last_share is not None else 1e-9
