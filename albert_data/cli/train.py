"""`albert-data train`: one call into the library, which imports torch no earlier than here it must."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from albert_data.errors import ConfigError
from albert_data.train.config import PRECISIONS, TRAIN_PRESETS, TrainConfig
from albert_data.train.folder import load_config

Command = TypeVar("Command", bound=Callable[..., Any])


def _default(field: str) -> str:
    """The default of a setting, or, where the presets differ, that of each."""
    values = {name: getattr(preset, field) for name, preset in TRAIN_PRESETS.items()}
    if len(set(values.values())) == 1:
        return str(values["base"])
    return ", ".join(f"{name}: {value}" for name, value in values.items())


def _setting(flag: str, field: str, kind: Any, metavar: str, text: str) -> Callable[[Command], Command]:
    return click.option(flag, field, type=kind, default=None, metavar=metavar, show_default=_default(field), help=text)


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    "run",
    type=click.Path(path_type=Path),
    required=True,
    metavar="RUN",
    help="Folder for metrics.jsonl and the checkpoints.",
)
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint in RUN, with RUN's settings.")
@click.option(
    "--preset",
    type=click.Choice(list(TRAIN_PRESETS)),
    default=None,
    show_default=TrainConfig.preset,
    help="Size of the model and settings to match: base is ALBERT base, tiny is for minutes on a CPU.",
)
@_setting("--steps", "steps", int, "N", "Updates of the weights; the learning rate falls to 0 at the last.")
@_setting("--batch-size", "batch_size", int, "ROWS", "Rows an update.")
@_setting("--lr", "lr", float, "RATE", "Highest learning rate.")
@_setting("--warmup-share", "warmup_share", float, "SHARE", "Share of the steps in which the rate rises.")
@_setting("--weight-decay", "weight_decay", float, "DECAY", "Of matrices; biases and LayerNorms have none.")
@_setting("--dropout", "dropout", float, "PROB", "0.1 helps against many epochs over little text.")
@_setting("--precision", "precision", click.Choice(PRECISIONS), "|".join(PRECISIONS), "Number format.")
@_setting("--device", "device", str, "auto|cpu|cuda[:N]", "Where to compute.")
@_setting("--seed", "seed", int, "SEED", "Decides the first weights, the order of rows and the dropout.")
@_setting("--log-every", "log_every", int, "STEPS", "Steps a line of metrics.")
@_setting("--eval-every", "eval_every", int, "STEPS", "Steps from one evaluation to the next.")
@_setting("--eval-rows", "eval_rows", int, "ROWS", "Validation rows an evaluation reads at most.")
@_setting("--save-every", "save_every", int, "STEPS", "Steps a checkpoint; the last two are kept.")
def train(out: Path, run: Path, resume: bool, preset: str | None, **settings: Any) -> None:
    """Pretrain an ALBERT on the shards in OUT.

    Ctrl-C saves a checkpoint; the same command with --resume goes on from there. Needs PyTorch.

    \b
    Example:
      albert-data train shards -o run --preset tiny
      albert-data train shards -o run --resume
    """
    try:
        importlib.import_module("torch")
    except ModuleNotFoundError as error:
        raise ConfigError("train needs PyTorch; install it with: pip install 'albert-data[train]'") from error
    from albert_data.train import loop

    given = {name: value for name, value in settings.items() if value is not None}
    if resume:
        stored = load_config(run)
        config = dataclasses.replace(stored, preset=preset or stored.preset, **given)
    else:
        config = dataclasses.replace(TRAIN_PRESETS[preset or TrainConfig.preset], **given)
    loop.train(out, run, config, resume=resume)
