"""Estimates, after a few updates, how long a run will take; with --minutes, how many steps it will make."""

from __future__ import annotations

from datetime import datetime, timedelta
from statistics import median

import torch

from albert_data.train.budget import Budget
from albert_data.wording import format_duration

# Enough updates for a median that those which compile, one for each length of rows, do not change; but no more than
# five minutes of them, because a run that would take weeks should not hide that for hours.
MIN_UPDATES, MIN_SECONDS, MAX_SECONDS = 30, 10.0, 300.0
_DAY = 86_400


class Estimate:
    """Times the updates of this process, except the first, which compiles and fills caches."""

    def __init__(self, budget: Budget, device: torch.device) -> None:
        self._budget, self._device = budget, device
        self._last: float | None = None
        self._laps: list[float] = []
        self._num_tokens = 0
        self._is_told = False

    def note(self, step: int, num_tokens: int) -> str | None:
        """Record that an update of `num_tokens` has ended as number `step`. Returns the estimate, once.

        Until then it waits for the GPU at each update.
        """
        if self._is_told:
            return None
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = self._budget.seconds
        if self._last is not None:
            self._laps.append(now - self._last)
            self._num_tokens += num_tokens
        self._last, spent = now, sum(self._laps)
        if spent < MAX_SECONDS and (spent < MIN_SECONDS or len(self._laps) < MIN_UPDATES):
            return None
        self._is_told = True
        return self._describe(step, median(self._laps), self._num_tokens / len(self._laps))

    def _describe(self, step: int, lap: float, num_tokens: float) -> str:
        left, speed = self._budget.steps_left(step, lap), f"({num_tokens / lap:,.0f} tokens/s)"
        if self._budget.is_timed:
            num_steps = step + left
            return f"about {num_steps:,} steps in all, {num_steps / self._budget.steps_per_epoch:,.2f} epochs {speed}"
        seconds = left * lap
        text = f"about {format_duration(seconds)} for {left:,} steps {speed}"
        if seconds > _DAY:
            return f"{text}; for a shorter run, start another one with a smaller --preset or with --minutes"
        return f"{text}, until {datetime.now() + timedelta(seconds=seconds):%H:%M}"
