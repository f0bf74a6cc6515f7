"""Measures the progress of a training run by steps, epochs or the clock, and gives the learning rate."""

from __future__ import annotations

import time
from collections.abc import Callable

from albert_data.train.config import TrainConfig
from albert_data.train.optimizer import lr_at

SAFETY_FACTOR = 1.25  # the last evaluation and checkpoint may be slower than the ones before
MIN_SECONDS = 1.0  # the least that each of the two is assumed to take
REST = 4  # times the seconds of an evaluation or a checkpoint: updates before the next one
FIRST_SHARE = 1e-3  # what the first update is assumed to take of a run with `minutes`: no update was timed before it


def count_steps(config: TrainConfig, steps_per_epoch: int) -> int | None:
    """The updates of a run; None with `minutes`."""
    return config.steps if config.epochs is None else max(1, round(config.epochs * steps_per_epoch))


class Budget:
    """The share of a run that is done, 0 to 1.

    began: by `clock`, in seconds, at the start of this process; seconds: spent on the run by earlier processes.
    With `minutes`, the share is 0 until `begin`: the learning rate would otherwise skip a part of its warm-up while
    the model is compiled. schedule_begin: the seconds of the run at that moment; None before it.
    work_seconds: how long the latest evaluation and checkpoint took.
    A checkpoint keeps the seconds, schedule_begin and work_seconds.
    """

    def __init__(
        self,
        config: TrainConfig,
        steps_per_epoch: int,
        *,
        began: float,
        seconds: float = 0.0,
        schedule_begin: float | None = None,
        work_seconds: dict[str, float] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._config, self._clock = config, clock
        self._began, self._seconds_before = began, seconds
        self.work_seconds = dict(work_seconds or {})
        self._first_step, self._first_seconds, self._pause_seconds = 0, 0.0, 0.0
        self.schedule_begin = schedule_begin
        self.steps_per_epoch = steps_per_epoch
        self.num_steps = count_steps(config, steps_per_epoch)
        self._last_end: dict[str, float] = {}  # of an evaluation or a checkpoint, by `seconds`

    @property
    def seconds(self) -> float:
        """The seconds spent on the run so far."""
        return self._seconds_before + self._clock() - self._began

    @property
    def is_timed(self) -> bool:
        return self._config.minutes is not None

    @property
    def end_seconds(self) -> float:
        """The seconds to keep free for the evaluation and the checkpoint at the end."""
        return SAFETY_FACTOR * (self._expect("evaluation") + self._expect("checkpoint"))

    def _expect(self, work: str) -> float:
        return max(MIN_SECONDS, self.work_seconds.get(work, 0.0))

    @property
    def _updates_end(self) -> float:
        """The seconds of the run at which the last update of a run with `minutes` ends."""
        assert self._config.minutes is not None
        return self._config.minutes * 60 - self.end_seconds

    def note(self, work: str, seconds: float) -> None:
        """Remember how long an "evaluation" or a "checkpoint" took, as an estimate for the last one."""
        self.work_seconds[work] = seconds
        self._pause_seconds += seconds
        self._last_end[work] = self.seconds

    def has_time(self, work: str) -> bool:
        """Whether an "evaluation" or a "checkpoint" that begins now ends before the last ones begin."""
        return not self.is_timed or self.seconds + self._expect(work) <= self._updates_end

    def is_rested(self, work: str) -> bool:
        """Whether so long passed since the last "evaluation" or "checkpoint" that one takes a fifth of the time."""
        rest = self.seconds - self._last_end.get(work, self._first_seconds)
        return not self.is_timed or rest >= REST * self.work_seconds.get(work, 0.0)

    def begin(self, step: int) -> None:
        """Begin the updates of this process, and the schedule of a run with `minutes`, unless it has begun."""
        self._first_step, self._first_seconds, self._pause_seconds = step, self.seconds, 0.0
        if self.is_timed and self.schedule_begin is None:
            self.schedule_begin = self._first_seconds

    def share_done(self, step: int) -> float:
        """The share of the run done before update `step`. With `minutes`, all ranks use the first rank's share."""
        if self.num_steps is not None:
            return step / self.num_steps
        end, now = self._updates_end, self.seconds
        begin = now if self.schedule_begin is None else self.schedule_begin
        return (now - begin) / (end - begin) if end > now else 1.0

    def steps_left(self, step: int, seconds_per_step: float) -> int:
        """The updates from `step` to the end; with `minutes`, how many the time that is left allows."""
        if self.num_steps is not None:
            return self.num_steps - step
        return max(0, round((self._updates_end - self.seconds) / seconds_per_step))

    def share_per_step(self, step: int) -> float:
        """The share that an update takes, above 0: the mean of this process, without evaluations and checkpoints.

        With `minutes`, all ranks use the first rank's.
        """
        if self.num_steps is not None:
            return 1 / self.num_steps
        if step == self._first_step or self.schedule_begin is None:
            return FIRST_SHARE
        seconds = (self.seconds - self._first_seconds - self._pause_seconds) / (step - self._first_step)
        return max(1e-9, seconds / max(MIN_SECONDS, self._updates_end - self.schedule_begin))

    def rate(self, step: int, share: float, per_step: float) -> float:
        """The learning rate of update `step`, counted from 0, with `share` of the run done."""
        if self.num_steps is not None:
            return lr_at(step, self.num_steps, self._config)
        return lr_at(share, 1.0, self._config, per_step=per_step)

    def mask_prob(self, step: int) -> float:
        """The share of tokens that update `step` masks, in hundredths, if the settings have `mask_prob`.

        With `minutes` it follows the clock of this rank alone.
        """
        first, last = self._config.mask_prob, self._config.last_mask_prob
        assert first is not None
        return round(first + (0 if last is None else last - first) * min(1.0, self.share_done(step)), 2)

    def is_last(self, step: int, share: float, per_step: float) -> bool:
        """Whether update `step`, which begins with `share` of the run done, is the last."""
        return step + 1 >= self.num_steps if self.num_steps is not None else share + per_step >= 1
