"""The files of a run read back: its settings, the figures of each line, and which curves these make.

In: RUN/run.json and RUN/metrics.jsonl, of a finished or a stopped run. Out: `RunFigures`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from albert_data.errors import CheckpointError
from albert_data.examples.pair_tasks import PAIR_TASKS, PairTask
from albert_data.storage.files import parse_json, read_bytes
from albert_data.text.wording import format_share
from albert_data.train.folder import METRICS_FILE, RUN_FILE
from albert_data.train.reading import explain, load_object, show

SPLITS = ("train", "validation")
MAX_EXACT = 2**53  # the largest step or figure that is read: beyond it a float does not hold every integer
_BEGIN = b'{"step"'  # of a line
_MAX_BYTES = 128 << 20  # of metrics.jsonl: 400,000 lines; as objects of Python they take ten times as much
_LINE_BYTES = 1 << 17  # a line that `train` writes has about 400, and 300 for each source

Line = dict[str, Any]
Point = tuple[float, float]
Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A figure over the steps."""

    key: str  # its name in metrics.jsonl
    title: str  # its name and unit for readers
    form: Callable[[float], str]  # formats a value
    baseline_name: str = ""  # what `RunFigures.baseline` is the value of


LOSS, COUNT, RATE = "{:.3f}".format, "{:,.0f}".format, "{:.2e}".format
SHARE = partial(format_share, digits=1)
CURVES = (
    Curve(key="mlm_loss", title="MLM loss, nats", form=LOSS, baseline_name="frequencies alone"),
    Curve(key="mlm_accuracy", title="MLM accuracy", form=SHARE),
    Curve(key="sop_loss", title="SOP loss, nats", form=LOSS, baseline_name="frequencies of the labels"),
    Curve(key="sop_accuracy", title="SOP accuracy", form=SHARE, baseline_name="most frequent label"),
    Curve(key="lr", title="Learning rate", form=RATE),
    Curve(key="tokens_per_second", title="Tokens a second", form=COUNT),
    Curve(key="mfu", title="Model FLOPs utilisation", form=SHARE),
    Curve(key="peak_gb", title="Peak of GPU memory, GB", form="{:,.1f}".format),
)


def name_curves(task: PairTask) -> list[Curve]:
    """CURVES, with the name of a sentence task."""
    return [replace(curve, title=curve.title.replace("SOP", task.title)) for curve in CURVES]


@dataclass(frozen=True, kw_only=True)
class RunFigures:
    """What run.json and metrics.jsonl of a run hold."""

    name: str  # of the folder
    sections: dict[str, dict[str, Any]]  # the objects of run.json by name; `read_run_file` checks their values
    lines: list[Line]  # those of metrics.jsonl, in order

    @property
    def last_step(self) -> int:
        return max((int(line["step"]) for line in self.lines), default=0)

    def of_split(self, split: str) -> list[Line]:
        return [line for line in self.lines if line["split"] == split]

    @property
    def last_validation(self) -> Line:
        """The newest line of a validation; empty if there is none."""
        return (self.of_split("validation") or [{}])[-1]

    @property
    def task(self) -> PairTask:
        """The sentence task of the run."""
        return PAIR_TASKS.get(str(self.sections.get("model", {}).get("sentence_task")), PAIR_TASKS["sop"])

    @property
    def chance(self) -> tuple[float, float] | None:
        """Loss and accuracy of a model that knows only how frequent each label is; None without a sentence task.

        In the rows of the last validation. Before it, labels count as equally likely.
        """
        num_labels = len(self.task.orders)
        if not num_labels:
            return None
        loss, share = (self._newest(name) for name in ("sop_entropy", "sop_majority"))
        return (math.log(num_labels), 1 / num_labels) if loss is None or share is None else (loss, share)

    def _newest(self, key: str) -> float | None:
        return next((value for line in reversed(self.lines) if (value := number(line, key)) is not None), None)

    @property
    def unigram_loss(self) -> float | None:
        """The MLM loss of frequencies alone; measured at the end of a run, so None in one that was stopped."""
        return self._newest("unigram_loss")

    def baseline(self, key: str) -> float | None:
        """What a model that learnt nothing from context would reach, where that is known."""
        sop_loss, sop_accuracy = self.chance or (None, None)
        return {"mlm_loss": self.unigram_loss, "sop_loss": sop_loss, "sop_accuracy": sop_accuracy}.get(key)

    def points(self, key: str, split: str) -> list[Point]:
        """(step, value) of each line of the split that has the figure."""
        return [(line["step"], value) for line in self.of_split(split) if (value := number(line, key)) is not None]


def number(line: Line, key: str) -> float | None:
    """A figure of a line; None if the line lacks it or has no number there."""
    value = line.get(key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_EXACT
    return float(value) if is_number and value is not None else None


def thin(items: list[Item], most: int) -> list[Item]:
    """At most `most` of the items, evenly spaced, the last one among them."""
    if len(items) <= most:
        return items
    return [items[round((i + 1) * len(items) / most) - 1] for i in range(most)]


def read_run(run: Path) -> RunFigures:
    """Raises CheckpointError where there is no run, or where a file holds something else."""
    if not (run / RUN_FILE).exists():
        raise CheckpointError(f"{run}: there is no run ({RUN_FILE} is missing); name the --output of one")
    content = load_object(run / RUN_FILE, "put the run's own file back")
    sections = {name: value for name, value in content.items() if isinstance(value, dict)}
    loose = {name: value for name, value in content.items() if not isinstance(value, dict)}
    if loose:  # `train` writes none; those that others added are shown in a section of their own
        sections["run"] = loose | sections.get("run", {})
    return RunFigures(name=run.resolve().name, sections=sections, lines=read_lines(run / METRICS_FILE))


def read_lines(path: Path) -> list[Line]:
    """The lines of metrics.jsonl, without the last if it is torn: the run was killed while writing it."""
    *texts, rest = split_lines(path)
    # An editor may leave out the line feed at the end. After a crash there are also bytes that were never written.
    is_torn = rest.startswith(_BEGIN) or _BEGIN.startswith(rest) or not rest.strip(b"\0")
    if parse_line(rest) is not None or not is_torn:
        texts.append(rest)
    lines = []
    for line_number, text in enumerate(texts, 1):
        line = parse_line(text)
        if line is not None:
            lines.append(line)
        elif text.strip():
            raise CheckpointError(
                f"{path}, line {line_number} is no line of metrics: {show(text.decode('utf-8', 'replace'))}; "
                "remove that line"
            )
    return lines


def split_lines(path: Path) -> list[bytes]:
    """The lines of a file, and then what follows the last line end. Raises CheckpointError for no regular file."""
    try:
        return read_bytes(path, _MAX_BYTES).split(b"\n")
    except FileNotFoundError:
        return [b""]
    except OSError as error:
        raise CheckpointError(f"{path} can't be read ({explain(error)})") from error


def parse_line(text: bytes) -> Line | None:
    """A line of metrics, an object with a step, a split, single values and `by_source`; None for anything else."""
    try:
        line = parse_json(text) if len(text) <= _LINE_BYTES else None
    except ValueError:
        return None
    if not isinstance(line, dict) or line.get("split") not in SPLITS or type(line.get("step")) is not int:
        return None
    sources = line.get("by_source", [])
    is_plain = isinstance(sources, list) and all(isinstance(one, dict) for one in sources)
    is_plain &= not any(isinstance(value, dict | list) for key, value in line.items() if key != "by_source")
    return line if is_plain and 0 <= line["step"] <= MAX_EXACT else None
