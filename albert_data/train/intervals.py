"""When a line of metrics, an evaluation and a checkpoint are due, and how many rows an evaluation reads.

What the settings leave open follows the length of the run, so that a short one has curves too. A run of a given number
of steps gets intervals in steps. In a run with `minutes` the number of steps is not known: there each is due after a
share of the time.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from albert_data.train.config import TrainConfig

FIELDS = {"log": "log_every", "evaluation": "eval_every", "checkpoint": "save_every"}
POINTS = {"log": 50, "evaluation": 10, "checkpoint": 10}  # at least so many in a run
MOST_STEPS = {"log": 50, "evaluation": 1000, "checkpoint": 1000}  # at most so many from one to the next
# Rows of an evaluation. 128 have about 2,400 labels, which give a loss to 0.05 nats; 2,048 give it to 0.013.
LEAST_ROWS, MOST_ROWS = 128, 2048
# Ten evaluations of 100 rows take a minute of two cores a tenth or less of that minute (preset mini, rows of 128).
ROWS_PER_MINUTE = 100
# A model first learns how frequent each piece is. With 8,000 pieces that took presets tiny and mini one to 1.6 million
# tokens, 15 % of them masked: 20 to 30 labels a piece. Half of that is surely too short.
TOKENS_PER_PIECE = 100
EVALUATION_SHARE = 0.1  # of the products that a run computes
UPDATE_COST = 3  # how many times the products of reading a row an update computes for it


def choose_intervals(config: TrainConfig, num_steps: int | None, max_seq_len: int) -> TrainConfig:
    """Fill in what is None. num_steps: of the run, None with `minutes`; then only eval_rows is filled in."""
    chosen: dict[str, Any] = {}
    if config.eval_rows is None:
        if num_steps is None:
            assert config.minutes is not None
            rows = config.minutes * ROWS_PER_MINUTE
        else:
            tokens = UPDATE_COST * EVALUATION_SHARE * num_steps * config.batch_tokens
            rows = tokens / (POINTS["evaluation"] * max_seq_len)
        chosen["eval_rows"] = int(min(MOST_ROWS, max(LEAST_ROWS, rows)))
    if num_steps is not None:
        for work, field in FIELDS.items():
            if getattr(config, field) is None:
                chosen[field] = min(MOST_STEPS[work], max(1, num_steps // POINTS[work]))
    return dataclasses.replace(config, **chosen)


def explain_shortness(num_tokens: float, vocab_size: int) -> str | None:
    """What to do about a run that can learn nothing; None for a longer one. num_tokens: that it will read."""
    per_piece = num_tokens / vocab_size
    if per_piece >= TOKENS_PER_PIECE:
        return None
    return (
        f"too short   the run reads about {num_tokens:,.0f} tokens, {per_piece:,.0f} for each of the {vocab_size:,} "
        f"pieces;\n            a model needs {TOKENS_PER_PIECE} to learn even how frequent each piece is.\n"
        f"            Train {TOKENS_PER_PIECE / max(per_piece, 1e-3):,.0f} times as long or longer, or use fewer pieces"
    )


class Intervals:
    """Which work of FIELDS is due. step, share: the updates that are made, and the share of the run that is done."""

    def __init__(self, config: TrainConfig, step: int, share: float) -> None:
        self._given: dict[str, int | None] = {work: getattr(config, field) for work, field in FIELDS.items()}
        self._last = dict.fromkeys(FIELDS, (step, share))

    def is_due(self, work: str, step: int, share: float) -> bool:
        """Stays True until `note` is called, if the interval is a share of the run."""
        if (every := self._given[work]) is not None:
            return step % every == 0
        last_step, last_share = self._last[work]
        return step - last_step >= MOST_STEPS[work] or share - last_share >= 1 / POINTS[work]

    def note(self, work: str, step: int, share: float) -> None:
        self._last[work] = step, share
