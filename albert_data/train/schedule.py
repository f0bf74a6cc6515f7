"""The length of a run: how much of it is done, by steps, epochs or the clock; the learning rate; and what is due when.

What the settings leave open follows the length of the run, so that a short one has curves too. In a run of a given
number of steps, lines of metrics, evaluations and checkpoints come after so many steps; with `minutes` the number of
steps is not known, and each comes after a share of the time. Imports no torch.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

from albert_data.train.config import TrainConfig

# What comes between updates, and the setting that says how often.
WORK = {"log": "log_every", "evaluation": "eval_every", "checkpoint": "save_every"}
POINTS = {"log": 50, "evaluation": 10, "checkpoint": 10}  # at least so many in a run
MOST_STEPS = {"log": 50, "evaluation": 1000, "checkpoint": 1000}  # at most so many from one to the next
# Rows of an evaluation. 128 have about 2,400 labels, which give a loss to 0.05 nats; 2,048 give it to 0.013.
LEAST_ROWS, MOST_ROWS = 128, 2048
# Ten evaluations of 100 rows take a minute of two cores a tenth or less of that minute (preset mini, rows of 128).
ROWS_PER_MINUTE = 100
EVALUATION_SHARE = 0.1  # of the products that a run computes
UPDATE_COST = 3  # how many times the products of reading a row an update computes for it
SAFETY_FACTOR = 1.25  # the last evaluation and checkpoint may be slower than the ones before
MIN_SECONDS = 1.0  # the least that each of the two is assumed to take
REST = {"evaluation": 4, "checkpoint": 19}  # times the seconds of one: updates before the next. So 20 and 5 % of all
FIRST_SHARE = 1e-3  # what the first update is assumed to take of a run with `minutes`: no update was timed before it


def count_steps(config: TrainConfig, steps_per_epoch: int) -> int | None:
    """The updates of a run; None with `minutes`."""
    return config.steps if config.epochs is None else max(1, round(config.epochs * steps_per_epoch))


def choose_intervals(config: TrainConfig, num_steps: int | None, max_seq_len: int) -> TrainConfig:
    """Fill in what is None, except save_every. num_steps: of the run; None with `minutes`: then only eval_rows."""
    chosen: dict[str, Any] = {}
    if config.eval_rows is None:
        if num_steps is None:
            rows = (config.minutes or 0) * ROWS_PER_MINUTE
        else:
            tokens = UPDATE_COST * EVALUATION_SHARE * num_steps * config.batch_tokens
            rows = tokens / (POINTS["evaluation"] * max_seq_len)
        chosen["eval_rows"] = int(min(MOST_ROWS, max(LEAST_ROWS, rows)))
    if num_steps is not None:
        for work in ("log", "evaluation"):
            if getattr(config, field := WORK[work]) is None:
                chosen[field] = min(MOST_STEPS[work], max(1, num_steps // POINTS[work]))
    return dataclasses.replace(config, **chosen)


class Intervals:
    """Which work of WORK is due. step, share: the updates that are made, and the share of the run that is done."""

    def __init__(self, config: TrainConfig, step: int, share: float) -> None:
        self._given: dict[str, int | None] = {work: getattr(config, field) for work, field in WORK.items()}
        self._last = dict.fromkeys(WORK, (step, share))

    def is_due(self, work: str, step: int, share: float) -> bool:
        """Stays True until `note` is called, if the interval is a share of the run."""
        if (every := self._given[work]) is not None:
            return step % every == 0
        last_step, last_share = self._last[work]
        return step - last_step >= MOST_STEPS[work] or share - last_share >= 1 / POINTS[work] - 1e-9  # of rounding

    def note(self, work: str, step: int, share: float) -> None:
        self._last[work] = step, share


class Budget:
    """The share of a run that is done, 0 to 1. With `minutes`, all ranks use what the first rank's clock says.

    began: by `clock`, in seconds, at the start of this process.
    seconds: spent on the run by earlier processes.
    schedule_begin: the seconds of the run at which `begin` was first called; None before. With `minutes` the share is 0
    until then: the learning rate would otherwise skip a part of its warm-up while the model is compiled.
    work_seconds: how long the latest "evaluation" and "checkpoint" took.
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
        self.num_steps = count_steps(config, steps_per_epoch)
        self._last_end: dict[str, float] = {}  # of an evaluation or a checkpoint, by `seconds`

    @property
    def seconds(self) -> float:
        """The seconds spent on the run so far."""
        return self._seconds_before + self._clock() - self._began

    @property
    def end_seconds(self) -> float:
        """The seconds to keep free for the evaluation and the checkpoint at the end."""
        return SAFETY_FACTOR * (self._expect("evaluation") + self._expect("checkpoint"))

    def _expect(self, work: str) -> float:
        return max(MIN_SECONDS, self.work_seconds.get(work, 0.0))

    @property
    def _updates_end(self) -> float:
        """The seconds of the run at which the last update of a run with `minutes` ends."""
        return (self._config.minutes or 0) * 60 - self.end_seconds

    def note(self, work: str, seconds: float) -> None:
        """Remember how long an "evaluation" or a "checkpoint" took, as an estimate for the last one."""
        self.work_seconds[work] = seconds
        self._pause_seconds += seconds
        self._last_end[work] = self.seconds

    def has_time(self, *works: str) -> bool:
        """Whether an "evaluation", a "checkpoint" or both that begin now end before the last ones begin."""
        return self.num_steps is not None or self.seconds + sum(map(self._expect, works)) <= self._updates_end

    def is_rested(self, work: str) -> bool:
        """Whether enough time passed since the last "evaluation" or "checkpoint" for the next one: see REST."""
        rest = self.seconds - self._last_end.get(work, self._first_seconds)
        return rest >= REST[work] * self.work_seconds.get(work, 0.0)

    def is_free(self, work: str, *others: str) -> bool:
        """Whether a due "evaluation" or "checkpoint" may come now. One whose interval is given need not be rested.

        others: what else comes now.
        """
        is_given = getattr(self._config, WORK[work]) is not None
        return self.has_time(work, *others) and (is_given or self.is_rested(work))

    def begin(self, step: int) -> None:
        """Begin the updates of this process, and the schedule of a run with `minutes`, unless it has begun."""
        self._first_step, self._first_seconds, self._pause_seconds = step, self.seconds, 0.0
        if self.num_steps is None and self.schedule_begin is None:
            self.schedule_begin = self._first_seconds

    def share_done(self, step: int) -> float:
        """The share of the run done before update `step`."""
        if self.num_steps is not None:
            return step / self.num_steps
        end, now = self._updates_end, self.seconds
        begin = now if self.schedule_begin is None else self.schedule_begin
        return (now - begin) / (end - begin) if end > now else 1.0

    def share_per_step(self, step: int) -> float:
        """The share that an update takes, above 0: the mean of this process, without evaluations and checkpoints."""
        if self.num_steps is not None:
            return 1 / self.num_steps
        if step == self._first_step or self.schedule_begin is None:
            return FIRST_SHARE
        seconds = (self.seconds - self._first_seconds - self._pause_seconds) / (step - self._first_step)
        return max(1e-9, seconds / max(MIN_SECONDS, self._updates_end - self.schedule_begin))

    def seconds_left(self, step: int) -> float:
        """About how long the run takes after `step` updates."""
        if self.num_steps is None:
            return max(0.0, 60 * (self._config.minutes or 0) - self.seconds)
        return (self.num_steps - step) * (self.seconds - self._first_seconds) / max(1, step - self._first_step)

    def rate(self, step: int, share: float, per_step: float) -> float:
        """The learning rate of update `step`, counted from 0, with `share` of the run done."""
        if self.num_steps is not None:
            return lr_at(step, self.num_steps, self._config)
        return lr_at(share, 1.0, self._config, per_step=per_step)

    def mask_prob(self, step: int) -> float:
        """The share of tokens that update `step` masks, in hundredths, if the settings have `mask_prob`.

        With `minutes` it follows the clock of this rank alone.
        """
        first = self._config.mask_prob or 0.0
        last = self._config.last_mask_prob or first
        return round(first + (last - first) * min(1.0, self.share_done(step)), 2)

    def window(self, share: float, row_len: int) -> int:
        """How many tokens to each side attention reaches with `share` of the run done; 0: whole rows from the start.

        row_len: of the longest rows.
        """
        windows, end = list_windows(self._config, row_len), self._config.window_share
        return windows[int((len(windows) - 1) * share / end)] if share < end else windows[-1]

    def is_last(self, step: int, share: float, per_step: float) -> bool:
        """Whether update `step`, which begins with `share` of the run done, is the last."""
        return step + 1 >= self.num_steps if self.num_steps is not None else share + per_step >= 1


def list_windows(config: TrainConfig, row_len: int) -> list[int]:
    """The windows of a run, one after another; see `Budget.window`."""
    if not (first := config.first_window):
        return [0]
    return [min(row_len, first << doublings) for doublings in range(math.ceil(math.log2(max(1, row_len / first))) + 1)]


def lr_at(done: float, total: float, config: TrainConfig, *, per_step: float = 1) -> float:
    """The learning rate of the step that begins when `done` of `total` is done. per_step: what one step adds to `done`.

    It rises to `lr` in the warm-up, a whole number of steps, then falls linearly to 0. A step of the warm-up uses the
    rate of its end, so that the rate of the first step is not 0.
    """
    warmup = round(config.warmup_share * total / per_step) * per_step
    if done < warmup:
        return config.lr * min(1.0, (done + per_step) / warmup)
    return config.lr * max(0.0, (total - done) / (total - warmup)) if total > warmup else config.lr
