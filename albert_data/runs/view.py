"""A run for the terminal: its learning curves.

In: the files of a run. Out: lines of at most 80 columns, or values that JSON can hold.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median_high
from typing import Any

from albert_data.runs.figures import RunFigures, number, read_run, thin
from albert_data.runs.verdicts import describe_sources, judge_run
from albert_data.text.escaping import escape_controls
from albert_data.text.wording import format_share, wrap_words
from albert_data.train.config import AlbertConfig, TrainConfig, name_preset
from albert_data.train.folder import read_run_file

MOST_LINES = 12
_FIGURES = ("mlm_loss", "mlm_accuracy", "sop_loss", "sop_accuracy", "sop_error")


def describe_run(run: Path) -> str:
    """The text about one run: what it is, and its curves."""
    figures, settings = read_run(run), read_run_file(run)
    name, shape = escape_controls(str(run)), AlbertConfig(**settings["model"])
    preset = name_preset(TrainConfig(**settings["config"]).preset, shape)
    head = f"Run {name}, preset {preset}, step {figures.last_step:,}"
    return f"{head}\n\n{_describe_curves(figures)}"


def run_to_dict(run: Path) -> dict[str, Any]:
    """The same as values for JSON."""
    figures, settings = read_run(run), read_run_file(run)
    return {"run": str(run), "config": settings["config"], "model": settings["model"], "metrics": figures.lines}


def _describe_curves(figures: RunFigures) -> str:
    title, chance = figures.task.title, figures.chance
    lines = ["Validation      step   MLM loss   right" + (f"{title:>6} loss   right   error" if chance else "")]
    found, training = figures.of_split("validation"), figures.of_split("train")
    for line in thin(found, MOST_LINES):
        loss, right, sop_loss, sop_right, error = (number(line, name) for name in _FIGURES)
        sentence_task = f"{_number(sop_loss, 11)}{_percent(sop_right)}{_percent(error)}" if chance else ""
        lines.append(f"{line['step']:>20,}{_number(loss, 11)}{_percent(right)}{sentence_task}")
    if not found:
        lines.append("  none: the shards have no validation rows, or none was read yet")
    if figures.unigram_loss is not None:
        by_chance = f"{'':8}{chance[0]:11.3f}{_percent(chance[1])}" if chance else ""
        lines.append(f"  {'without context':<18}{figures.unigram_loss:11.3f}{by_chance}")
    lines += describe_sources(figures.last_validation, figures.task, "  ")
    for text in judge_run(figures):
        lines += wrap_words(text, 80, "  ")
    if training:
        speeds = [value for _, value in figures.points("tokens_per_second", "train")]
        lines.append(f"  training: MLM loss {_number(number(training[-1], 'mlm_loss'), 1)} at the last line")
        lines[-1] += f", {median_high(speeds):,.0f} tokens/s" if speeds else ""
    return "\n".join(lines)


def _number(value: float | None, width: int) -> str:
    return f"{'-' if value is None else f'{value:.3f}':>{width}}"


def _percent(share: float | None) -> str:
    return f"{'-' if share is None else format_share(share, 1):>8}"
