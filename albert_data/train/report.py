"""What a run says while it works: lines on stderr, with a progress bar below them on a terminal."""

from __future__ import annotations

import sys
from types import TracebackType

import torch
from tqdm import tqdm

from albert_data.train.config import TrainConfig
from albert_data.train.evaluation import Baseline
from albert_data.train.loader import Rows, ShardLoader, Splits
from albert_data.train.metrics import Figures
from albert_data.train.model import Albert
from albert_data.train.precision import Precision


class Report:
    """Lines and, on a terminal, a bar with the loss and the speed; elsewhere a line for each interval."""

    def __init__(self, *, num_steps: int, step: int) -> None:
        self._bar = tqdm(
            total=num_steps,
            initial=step,
            unit="step",
            file=sys.stderr,
            disable=not sys.stderr.isatty(),
            dynamic_ncols=True,
        )
        self._num_steps = num_steps

    def __enter__(self) -> Report:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()

    def say(self, line: str) -> None:
        self._bar.write(line, file=sys.stderr)

    def advance(self) -> None:
        self._bar.update()

    def show(self, step: int, values: Figures, tokens_per_second: float) -> None:
        """Show the figures of an interval of training."""
        speed = f"{tokens_per_second:,.0f} tokens/s"
        if self._bar.disable:
            self.say(f"step {step:,} of {self._num_steps:,}: {describe(values)}, {speed}")
        else:
            loss = values["mlm_loss"]
            self._bar.set_postfix_str(speed if loss is None else f"MLM loss {loss:.3f}, {speed}")


def describe_start(
    model: Albert, precision: Precision, config: TrainConfig, loader: ShardLoader, splits: Splits
) -> list[str]:
    """What the run is made of, and why."""
    device, steps_per_epoch = precision.device, loader.steps_per_epoch
    num_tokens = int(splits.train.lengths.sum(dtype="int64"))
    threads = f", threads: {torch.get_num_threads()}" if device.type == "cpu" else ""
    return [
        f"device      {device} ({precision.device_reason}{threads})",
        f"precision   {precision.format} ({precision.format_reason})",
        f"model       {config.preset}, {model.num_parameters():,} parameters, "
        f"vocabulary of {model.config.vocab_size:,}",
        f"data        {len(splits.train):,} rows, {num_tokens:,} tokens an epoch, "
        f"{steps_per_epoch:,} steps an epoch, {loader.padding_share():.1%} padding",
        f"training    {config.steps:,} steps of {config.batch_size:,} rows, "
        f"{config.steps / steps_per_epoch:,.2f} epochs",
        f"validation  {_describe_validation(splits.validation, config)}",
    ]


def _describe_validation(validation: Rows | None, config: TrainConfig) -> str:
    if validation is None:
        return "none: the shards have no validation rows (build --validation-fraction)"
    num_rows = min(len(validation), config.eval_rows)
    return f"{num_rows:,} of {len(validation):,} rows, every {config.eval_every:,} steps"


def describe(values: Figures) -> str:
    """Losses in nats and accuracies in percent, in one line."""
    parts = []
    for task in ("mlm", "sop"):
        loss, accuracy = values[f"{task}_loss"], values[f"{task}_accuracy"]
        if loss is not None and accuracy is not None:
            parts.append(f"{task.upper()} loss {loss:.3f} ({accuracy:.1%} right)")
    return ", ".join(parts) or "nothing to predict"


def describe_end(values: Figures, baseline: Baseline | None) -> str:
    """The last validation figures, beside what knowing frequencies alone would have given."""
    text = f"validation at the end: {describe(values)}"
    loss = values["mlm_loss"]
    if baseline is None or loss is None:
        return text
    learnt = "more than" if loss < baseline.unigram_loss else "no more than"
    return (
        f"{text}\nfrequencies alone, counted in the training rows, give an MLM loss of "
        f"{baseline.unigram_loss:.3f}: the model learnt {learnt} them "
        f"(entropy of the masked tokens evaluated: {baseline.unigram_entropy:.3f})"
    )
