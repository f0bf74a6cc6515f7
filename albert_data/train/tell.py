"""What a run tells while it works: lines on stderr, and a trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.profiler import profile, schedule

from albert_data.examples.pair_tasks import PairTask
from albert_data.runs.figures import RunFigures
from albert_data.runs.verdicts import describe_sources, judge_run
from albert_data.text.output import tell
from albert_data.text.wording import count_of, format_duration, format_share, wrap_words
from albert_data.train.config import name_preset
from albert_data.train.loader import ShardLoader, Splits, choose_rows
from albert_data.train.reading import explain
from albert_data.train.schedule import POINTS, Budget
from albert_data.train.state import Session

WARM_UP, RECORDED = 5, 5  # steps of a trace; the first ones compile, allocate memory and fill caches
Item = TypeVar("Item")


class Report:
    """Lines on stderr, of the first of several ranks: one for each interval of a run, and what else it has to say."""

    def __init__(self, budget: Budget, task: PairTask, *, is_shown: bool = True) -> None:
        self._budget, self._task, self._is_shown = budget, task, is_shown

    def say(self, *lines: str) -> None:
        if self._is_shown and lines:
            tell(*lines)

    def show(self, step: int, line: dict[str, Any]) -> None:
        """Show a line of metrics of the training."""
        speed = f"{line['tokens_per_second']:,.0f} tokens/s"
        if "mfu" in line:
            speed += f", MFU {format_share(line['mfu'], 1)}"
        if line.get("skipped_steps"):
            speed += f", {count_of(line['skipped_steps'], 'update')} skipped"
        if "peak_gb" in line:
            speed += f", at most {line['peak_gb']:.1f} GB"
        of_all = f" of {self._budget.num_steps:,}" if self._budget.num_steps is not None else ""
        left = format_duration(self._budget.seconds_left(step))
        self.say(f"step {step:,}{of_all}: {describe(line, self._task)}, {speed}, about {left} left")


def describe_start(
    session: Session, loader: ShardLoader, pack_obstacle: str | None, splits: Splits, budget: Budget
) -> list[str]:
    """The device, the precision, the model, the data and the length of the run, with reasons.

    pack_obstacle: why rows can't be packed here; None if they can, but a run that resumes keeps what it began with.
    """
    config, model, precision, ranks = session.config, session.model, session.precision, session.ranks
    device, per_epoch = precision.device, loader.steps_per_epoch
    num_tokens = int(splits.train.lengths.sum(dtype="int64"))
    threads = f", threads: {torch.get_num_threads()}" if device.type == "cpu" else ""
    beside = f", {ranks.num_ranks} processes" if ranks.num_ranks > 1 else ""
    masks = "other masks each epoch" if config.remask else "the stored masks"
    if (first := config.mask_prob) is not None:
        last = config.last_mask_prob or first
        masks = f"new masks, {format_share(first, 0)} to {format_share(last, 0)} of the tokens"
    validation = "none: the shards have no validation rows (build --validation-fraction)"
    if splits.validation is not None:
        total = len(splits.validation)
        when = f"every {config.eval_every:,} steps" if config.eval_every else f"{POINTS['evaluation']} times or more"
        validation = f"{len(choose_rows(splits.validation, config.eval_rows or total)):,} of {total:,} rows, {when}"
    length = f"{config.minutes:g} minutes" if budget.num_steps is None else f"{budget.num_steps:,} steps"
    epochs = "" if budget.num_steps is None else f", {budget.num_steps / per_epoch:,.2f} epochs"
    rows = "packed, without padding" if loader.is_packed else f"padded ({pack_obstacle or 'as when the run began'})"
    not_compiled = f"compiled    no: {session.compile_obstacle}; install that, or --no-compile"
    return [
        f"device      {device} ({precision.device_info}{threads}{beside})",
        f"precision   {precision.format} ({precision.format_reason})",
        *([not_compiled] if session.compile_obstacle else []),
        f"preset      {name_preset(config.preset, model.config)}",
        f"model       {model.config.num_layers} layers of {model.config.hidden_size}, "
        f"{model.num_parameters():,} parameters, vocabulary of {model.config.vocab_size:,}",
        f"data        {len(splits.train):,} rows, {num_tokens:,} tokens an epoch, {per_epoch:,} steps an epoch",
        f"training    {length} of {config.batch_tokens:,} tokens by {config.optimizer}{epochs}, {masks}",
        f"validation  {validation}",
        *([f"rows        {rows}"] if device.type == "cuda" else []),
    ]


def describe(values: Mapping[str, Any], task: PairTask) -> str:
    """Losses in nats and accuracies in percent, in one line."""
    parts = []
    for head, name in (("mlm", "MLM"), ("sop", task.title)):
        loss, accuracy = values[f"{head}_loss"], values[f"{head}_accuracy"]
        if loss is None or accuracy is None:
            continue
        beside = ""  # what an accuracy is to be compared with, of the sentence task in validation rows
        if head == "sop" and values.get("sop_error") is not None:
            error, majority = (format_share(values[key], 1) for key in ("sop_error", "sop_majority"))
            beside = f", standard error {error}; the most frequent label alone: {majority}"
        if head == "mlm" and (per_byte := values.get("mlm_nats_per_byte")) is not None:
            beside = f"; {per_byte:.3f} nats a byte"
        parts.append(f"{name} loss {loss:.3f} ({format_share(accuracy, 1)} right{beside})")
    return ", ".join(parts) or "nothing to predict"


def describe_end(run: RunFigures) -> list[str]:
    """The last validation figures, and what they say."""
    found = describe_sources(run.last_validation, run.task)
    found += [line for text in judge_run(run) for line in wrap_words(text, 80)]
    return [f"validation at the end: {describe(run.last_validation, run.task)}", *found]


# ---- PyTorch's profiler ----


def profile_steps(steps: Iterator[Item], path: Path, report: Report) -> Iterator[Item]:
    """Yield what `steps` yields, and write a trace of the work after the 6th to the 10th item to `path`.

    ui.perfetto.dev and Chrome show it. If the run ends before, the trace has fewer steps or is not written.
    """

    def write(profiler: profile) -> None:
        try:
            path.unlink(missing_ok=True)
            profiler.export_chrome_trace(str(path))  # gzipped by its name
            path.stat()  # the profiler may report no error
        except OSError as error:
            return report.say(f"{path} can't be written: {explain(error)}")
        report.say(f"{path} is written: open it at ui.perfetto.dev")

    cycle = schedule(wait=WARM_UP - 1, warmup=1, active=RECORDED, repeat=1)
    with profile(schedule=cycle, on_trace_ready=write) as profiler:
        for item in islice(steps, WARM_UP + RECORDED):
            yield item
            profiler.step()
    yield from steps
