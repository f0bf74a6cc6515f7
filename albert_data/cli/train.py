"""`albert-data train`: one call into the library, which imports torch no earlier than here it must."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from albert_data.errors import ConfigError
from albert_data.train.config import BUDGETS, OPTIMIZERS, PRECISIONS, RECIPES, TrainConfig
from albert_data.train.folder import load_config

Command = TypeVar("Command", bound=Callable[..., Any])
RECIPE, PRESETS = "quick", ("base", "tiny")  # whose settings the help shows


def _default(field: str) -> str | None:
    """The default of a setting, or, where the presets differ, that of each."""
    values = {name: getattr(RECIPES[RECIPE][name], field) for name in PRESETS}
    if len(set(values.values())) == 1:
        value = values[PRESETS[0]]
        return None if value is None else str(value)
    return ", ".join(f"{name}: {value}" for name, value in values.items())


def _setting(flag: str, field: str, kind: Any, metavar: str, text: str) -> Callable[[Command], Command]:
    default = _default(field)
    return click.option(flag, field, type=kind, default=None, metavar=metavar, show_default=default or False, help=text)


def _switch(flag: str, field: str, text: str, *, turns: bool) -> Callable[[Command], Command]:
    return click.option(flag, field, flag_value=turns, default=None, help=text)


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    "run",
    type=click.Path(path_type=Path),
    required=True,
    metavar="RUN",
    help="Folder for the metrics, the checkpoints and a page with the curves.",
)
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint in RUN, with RUN's settings.")
@click.option(
    "--init-from",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Begin with the weights of a run, of a checkpoint or of a Hugging Face folder, whatever the preset.",
)
@click.option(
    "--preset",
    type=click.Choice(list(RECIPES[RECIPE])),
    default=None,
    show_default=TrainConfig.preset,
    help="Size of the model: tiny is for minutes on a CPU, the others are the paper's.",
)
@click.option(
    "--recipe",
    type=click.Choice(list(RECIPES)),
    default=None,
    show_default=RECIPE,
    help="Settings to start from: quick is for one short run, paper is ALBERT's own.",
)
@_setting("--steps", "steps", int, "N", "Updates of the weights; the learning rate falls to 0 at the last.")
@_setting("--epochs", "epochs", float, "N", "Instead: times that all rows are read.")
@_setting("--minutes", "minutes", float, "N", "Instead: the time of the run, its last evaluation included.")
@_setting("--batch-tokens", "batch_tokens", int, "N", "Tokens an update over all GPUs, padding included.")
@_setting("--micro-tokens", "micro_tokens", int, "N", "Tokens that a GPU computes at once; gradients are summed.")
@_setting("--optimizer", "optimizer", click.Choice(OPTIMIZERS), "|".join(OPTIMIZERS), "LAMB is for huge batches.")
@_setting("--lr", "lr", float, "RATE", "Highest learning rate.")
@_setting("--warmup-share", "warmup_share", float, "SHARE", "Share of the run in which the rate rises.")
@_setting("--weight-decay", "weight_decay", float, "DECAY", "Of matrices; biases and LayerNorms have none.")
@_setting("--dropout", "dropout", float, "PROB", "0.1 helps against many epochs over little text.")
@_switch("--static-masks", "remask", "Keep the stored masks in every epoch.", turns=False)
@_setting("--precision", "precision", click.Choice(PRECISIONS), "|".join(PRECISIONS), "Number format.")
@_setting("--device", "device", str, "auto|cpu|cuda[:N]", "Where to compute.")
@_switch("--no-compile", "compile", "Do without torch.compile on a GPU.", turns=False)
@_setting("--seed", "seed", int, "SEED", "Decides the first weights, the order of rows and the dropout.")
@_setting("--log-every", "log_every", int, "STEPS", "Steps a line of metrics.")
@_setting("--eval-every", "eval_every", int, "STEPS", "Steps from one evaluation to the next.")
@_setting("--eval-rows", "eval_rows", int, "ROWS", "Validation rows an evaluation reads at most.")
@_setting("--save-every", "save_every", int, "STEPS", "Steps a checkpoint.")
@_switch("--tensorboard", "tensorboard", "Write the metrics as TensorBoard events too.", turns=True)
@_setting("--keep", "keep", int, "N", "Newest checkpoints that are kept.")
def train(
    out: Path,
    run: Path,
    resume: bool,
    init_from: Path | None,
    preset: str | None,
    recipe: str | None,
    **settings: Any,
) -> int:
    """Pretrain an ALBERT on the shards in OUT.

    Ctrl-C (exit code 130), SIGTERM (143) and SIGHUP (129) save a checkpoint; the same command with --resume goes on
    from there. Needs PyTorch. On several GPUs: torchrun --nproc-per-node N -m albert_data train OUT -o RUN.

    \b
    Example:
      albert-data train shards -o run --preset tiny
      albert-data train shards -o run --resume
    """
    given = {name: value for name, value in settings.items() if value is not None}
    if len(budgets := [f"--{name}" for name in BUDGETS if name in given]) > 1:
        raise click.UsageError(f"{' and '.join(budgets)} exclude one another")
    if resume and (init_from or recipe):
        raise click.UsageError(f"--resume excludes {'--init-from' if init_from else '--recipe'}")
    if budgets:
        given = dict.fromkeys(BUDGETS) | given
    try:
        importlib.import_module("torch")
    except ModuleNotFoundError as error:
        raise ConfigError("train needs PyTorch; install it with: pip install 'albert-data[train]'") from error
    from albert_data.interop.initial import load_initial
    from albert_data.train import loop
    from albert_data.train.interrupt import Interrupt

    if resume:
        stored = load_config(run)
        config = dataclasses.replace(stored, preset=preset or stored.preset, **given)
    else:
        config = dataclasses.replace(RECIPES[recipe or RECIPE][preset or TrainConfig.preset], **given)
    initial = load_initial(init_from) if init_from else None
    interrupt = Interrupt()
    last = loop.train(out, run, config, resume=resume, initial=initial, interrupt=interrupt)
    return interrupt.exit_code if last is None else 0
