"""A run, or several side by side, for the terminal: parameters, learning curves, and what each layer does.

In: the files of a run and, for the layers, `Layers`. Out: lines of at most 80 columns, or values that JSON can hold.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from albert_data.train.config import AlbertConfig, TrainConfig
from albert_data.train.folder import read_run_file
from albert_data.train.history.figures import RunFigures, judge_run, number, read_run, thin
from albert_data.train.model.sizes import describe_parts, parts_to_dict
from albert_data.wording import format_share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from albert_data.train.history.comparison import Difference
    from albert_data.train.history.layers import Layers

MOST_LINES = 12
_FIGURES = ("mlm_loss", "mlm_accuracy", "sop_loss", "sop_accuracy")


def describe_run(run: Path) -> str:
    """The text about one run: what it is, its curves, its parameters."""
    figures, settings = read_run(run), read_run_file(run)
    head = f"Run {run}, preset {TrainConfig(**settings['config']).preset}, step {figures.last_step:,}"
    return "\n\n".join([head, _describe_curves(figures), describe_parts(AlbertConfig(**settings["model"]))])


def run_to_dict(run: Path) -> dict[str, Any]:
    """The same as values that JSON can hold."""
    figures, settings = read_run(run), read_run_file(run)
    config = AlbertConfig(**settings["model"])
    return {
        "run": str(run),
        "config": settings["config"],
        "model": asdict(config),
        "parameters": parts_to_dict(config),
        "metrics": [{key: _finite(value) for key, value in line.items()} for line in figures.lines],
    }


def _finite(value: Any) -> Any:
    """JSON has no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _describe_curves(figures: RunFigures) -> str:
    title, chance = figures.task.title, figures.chance
    lines = ["Validation      step   MLM loss   right" + (f"{title:>6} loss   right   error" if chance else "")]
    found = [line for line in figures.lines if line["split"] == "validation"]
    for line in thin(found, MOST_LINES):
        loss, right, sop_loss, sop_right = (number(line, name) for name in _FIGURES)
        error = _percent(number(line, "sop_error"))
        sentence_task = f"{_number(sop_loss, '11.3f')}{_percent(sop_right)}{error}" if chance else ""
        lines.append(f"{line['step']:>20,}{_number(loss, '11.3f')}{_percent(right)}{sentence_task}")
    if not found:
        lines.append("  none: the shards have no validation rows, or none was read yet")
    if figures.unigram_loss is not None:
        alone = f"{figures.unigram_loss:11.3f}"
        by_chance = f"{'':8}{chance[0]:11.3f}{_percent(chance[1])}" if chance else ""
        lines.append(f"  {'without context':<18}{alone}{by_chance}")
    for text in judge_run(figures):
        lines += wrap(text, 80, initial_indent="  ", subsequent_indent="  ")
    training = [line for line in figures.lines if line["split"] == "train"]
    if training:
        speeds = sorted(value for _, value in figures.points("tokens_per_second", "train"))
        lines.append(f"  training: MLM loss {_number(number(training[-1], 'mlm_loss'), '.3f')} at the last line")
        lines[-1] += f", {speeds[len(speeds) // 2]:,.0f} tokens/s" if speeds else ""
    return "\n".join(lines)


def _number(value: float | None, form: str) -> str:
    return f"{value:{form}}" if value is not None else "-".rjust(int(form.split(".")[0] or 1))


def _percent(share: float | None) -> str:
    return f"{'-' if share is None else format_share(share, 1):>8}"


def describe_differences(differences: Sequence[Difference]) -> list[str]:
    """A text on what keeps figures of these runs from being compared; none if nothing does."""
    lines = [line for one in differences for line in wrap(one.describe(), 78)]
    return ["\n  ".join(["Not measured alike", *lines])] if lines else []


def describe_layers(measured: list[Layers]) -> str:
    """Tables of the layers of each run, three side by side: more take over 80 columns."""
    return "\n\n".join(_describe_some(measured[begin : begin + 3]) for begin in range(0, len(measured), 3))


def _describe_some(measured: list[Layers]) -> str:
    names = [one.name[-20:] for one in measured]
    head = "Layers  " + "".join(f"{name:>24}" for name in names)
    lines = [head, "        " + "          L2      cosine  " * len(measured)]
    for layer in range(max(len(one.distances) for one in measured)):
        cells = []
        for one in measured:
            inside = layer < len(one.distances)
            cells.append(f"{one.distances[layer]:12.3f}{one.similarities[layer]:12.3f}" if inside else " " * 24)
        lines.append(f"  {layer + 1:>4}  " + "".join(cells))
    return "\n".join(line.rstrip() for line in lines)
