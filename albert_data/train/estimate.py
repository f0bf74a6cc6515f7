"""Estimates, after a few updates, how long a run will take; with --minutes, how many steps it will make."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

import torch

from albert_data.train.budget import Budget
from albert_data.wording import format_duration

# Enough updates that those which compile, one for each length of rows, do not change the median; but no more than five
# minutes of them, because a run that would take weeks should not hide that for hours.
MIN_UPDATES, MIN_SECONDS, MAX_SECONDS = 30, 10.0, 300.0
_DAY = 86_400


class Estimate:
    """Times the updates of this process, except the first, which fills caches."""

    def __init__(self, budget: Budget, device: torch.device) -> None:
        self._budget, self._device = budget, device
        self._ends: list[float] = []
        self._num_tokens = 0

    def note(self, step: int, num_tokens: int) -> str | None:
        """Record the end of update `step`, of `num_tokens`; waits for the GPU. Returns the estimate when known."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._ends.append(self._budget.seconds)
        self._num_tokens += num_tokens
        spent = self._ends[-1] - self._ends[0]
        if spent < MAX_SECONDS and (spent < MIN_SECONDS or len(self._ends) <= MIN_UPDATES):
            return None
        lap = median(end - begin for begin, end in pairwise(self._ends))
        left, speed = self._budget.steps_left(step, lap), self._num_tokens / len(self._ends) / lap
        if self._budget.is_timed:
            epochs = (step + left) / self._budget.steps_per_epoch
            return f"about {step + left:,} steps in all, {epochs:,.2f} epochs ({speed:,.0f} tokens/s)"
        text = f"about {format_duration(left * lap)} for {left:,} steps ({speed:,.0f} tokens/s)"
        if left * lap > _DAY:
            return f"{text}; for a shorter run, start another one with a smaller --preset or with --minutes"
        return f"{text}, until {datetime.now() + timedelta(seconds=left * lap):%H:%M}"
