"""`albert-data train`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from albert_data.cli.options import MODEL, PATH, shards_argument, take_given
from albert_data.train.config import DEFAULT_RECIPE, OPTIMIZERS, PRECISIONS, RECIPES, WEIGHT_INITS

Command = TypeVar("Command", bound=Callable[..., Any])
PRESETS = ("base", "mini")  # --help shows the defaults of these two


def _default(field: str) -> str | None:
    """The default of a setting in the default recipe, as --help shows it: one value, or one for each preset."""
    values = {name: getattr(RECIPES[DEFAULT_RECIPE][name], field) for name in PRESETS}
    if len(set(values.values())) == 1:
        value = values[PRESETS[0]]
        return None if value is None else str(value)
    return ", ".join(f"{name}: {value}" for name, value in values.items() if value is not None)


def _setting(flag: str, kind: Any, metavar: str, text: str, default: str | None = None) -> Callable[[Command], Command]:
    """An option for the field of TrainConfig with the same name. Its value is None if it is not given.

    default: as --help shows it, where the length of the run decides.
    """
    field = flag.removeprefix("--").replace("-", "_")
    shown = default or _default(field) or False
    return click.option(flag, field, type=kind, default=None, metavar=metavar, show_default=shown, help=text)


def _switch(flag: str, field: str, text: str, *, value: bool) -> Callable[[Command], Command]:
    """An option without a value that sets a field of TrainConfig to `value`."""
    return click.option(flag, field, flag_value=value, default=None, help=text)


def _parse_mask_prob(
    context: click.Context, option: click.Parameter, value: str | None
) -> tuple[float, float | None] | None:
    """Read 0.15, or 0.45:0.15 for the first and the last of a run."""
    if value is None:
        return None
    first, colon, last = value.partition(":")
    try:
        return float(first), float(last) if colon else None
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is neither a number nor two, as 0.45:0.15") from error


@click.command()
@shards_argument
@click.option(
    "-o",
    "--output",
    type=PATH,
    metavar="RUN",
    show_default="SHARDS-run",
    help="Folder for checkpoints, metrics and a page of learning curves.",
)
@click.option("--resume", is_flag=True, help="Resume from the newest checkpoint in RUN, with its settings.")
@click.option(
    "--init-from",
    type=MODEL,
    metavar="PATH",
    help="Start with the weights and size of a run, a checkpoint, a Hugging Face folder or a name on the Hub. The "
    "shards' tokenizer may have more pieces after the model's.",
)
@click.option(
    "--preset",
    type=click.Choice(list(RECIPES[DEFAULT_RECIPE])),
    default=None,
    metavar="NAME",
    show_default="mini on a CPU, base on a GPU or with --init-from",
    help="Size of the model: tiny or mini for a CPU; base, large, xlarge or xxlarge as in the paper; base-v1 to "
    "xxlarge-v1 as ALBERT version 1.",
)
@click.option(
    "--recipe",
    type=click.Choice(list(RECIPES)),
    default=None,
    show_default=f"{DEFAULT_RECIPE}, or gpu for mini on a GPU",
    help="Settings to start from: for short runs (quick, gpu), mini's for larger models (muon), or ALBERT's (paper).",
)
@_setting("--steps", int, "N", "Number of updates.")
@_setting("--epochs", float, "N", "Instead of --steps: number of epochs.")
@_setting("--minutes", float, "N", "Instead of --steps: duration, compiling and evaluations included.")
@_setting("--batch-tokens", int, "N", "Tokens per update over all GPUs, padding included.")
@_setting(
    "--micro-tokens",
    int,
    "N",
    "Most tokens computed at once.",
    "131072 on a GPU, less if memory runs out; 8192 on a CPU",
)
@_setting(
    "--optimizer",
    click.Choice(OPTIMIZERS),
    "|".join(OPTIMIZERS),
    "lamb is for very large batches, muon for short runs.",
)
@_setting("--lr", float, "RATE", "Highest learning rate.")
@_setting("--warmup-share", float, "SHARE", "Share of the run in which the learning rate rises; then it falls to 0.")
@_setting("--weight-decay", float, "DECAY", "Weight decay of matrices.")
@_setting("--beta2", float, "BETA", "Decay of the optimizer's mean of squared gradients.")
@_setting("--epsilon", float, "EPSILON", "Added to the denominator of an update.")
@_setting("--max-grad-norm", float, "NORM", "Norm that larger gradients are scaled down to.")
@_setting("--dropout", float, "PROB", "Probability of dropout.", "that of the model")
@_switch("--static-masks", "remask", "Use the shards' masks in every epoch, instead of new ones.", value=False)
@click.option(
    "--mask-prob",
    callback=_parse_mask_prob,
    metavar="P[:P]",
    show_default="mini: 0.45:0.15, others: that of the shards",
    help="Share of tokens to mask, or the first and the last of a run, with new masks.",
)
@_setting(
    "--weight-init",
    click.Choice(WEIGHT_INITS),
    "|".join(WEIGHT_INITS),
    "First weights: the paper's, or with sinusoids as positions.",
)
@_setting(
    "--first-window",
    int,
    "N",
    "Tokens to each side that attention reaches at first; doubled until --window-share. 0, as with --init-from: the "
    "whole row.",
)
@_setting("--window-share", float, "SHARE", "Share of the run after which attention reaches the whole row.")
@_setting("--sentence-weight", float, "WEIGHT", "Weight of the sentence task's loss beside that of the masks.")
@_setting(
    "--precision",
    click.Choice(PRECISIONS),
    "|".join(PRECISIONS),
    "Number format of the computation; auto: bf16 where it is fast, else fp16 on a GPU and fp32 on a CPU.",
)
@_setting("--device", str, "auto|cpu|cuda[:N]", "Device to compute on.")
@_switch("--recompute", "recompute", "Use less memory: compute layers again in the backward pass.", value=True)
@click.option(
    "--compile/--no-compile",
    "compile",
    default=None,
    show_default="on a GPU, and on a CPU with --minutes 10 or more",
    help="Use torch.compile.",
)
@click.option(
    "--graphs/--no-graphs",
    "graphs",
    default=None,
    show_default="on a GPU, for models that take longer to launch than to compute",
    help="Launch whole updates as CUDA graphs.",
)
@_setting("--seed", int, "SEED", "Seed of the weights, the order of rows and dropout.")
@_setting("--log-every", int, "STEPS", "Steps between lines of metrics.", "50, or less for 50 lines in a run")
@_setting("--eval-every", int, "STEPS", "Steps between evaluations.", "1000, or less for 10 in a run")
@_setting("--eval-rows", int, "ROWS", "Most validation rows of an evaluation.", "by the length of the run")
@_setting(
    "--save-every", int, "STEPS", "Steps between checkpoints.", "1000, or less for 10 in a run; 5 % of the time at most"
)
@_switch("--no-guesses", "guesses", "Record no guesses for masked words: they quote validation text.", value=False)
@_switch("--profile", "profile", "Write PyTorch's profile of five steps to RUN/trace.json.gz.", value=True)
@_setting("--keep", int, "N", "How many of the newest checkpoints to keep.")
def train(shards: Path, output: Path | None, **settings: Any) -> int:
    """Pretrain an ALBERT on the shards.

    Ctrl-C (exit code 130), SIGTERM (143) and SIGHUP (129) save a checkpoint; --resume continues from there. Needs
    PyTorch. On N GPUs:
    torchrun --nproc-per-node N -m albert_data train SHARDS

    \b
    Example:
      albert-data train shards --minutes 10
      albert-data train shards --resume
      albert-data train shards --preset base -o base-run
    """
    from albert_data.library.models import train_model
    from albert_data.train.interrupt import Interrupt

    given, interrupt = take_given(settings), Interrupt()
    if (shares := given.pop("mask_prob", None)) is not None:
        given["mask_prob"], given["last_mask_prob"] = shares
    made = train_model(shards, output, progress=True, interrupt=interrupt, **given)
    return interrupt.exit_code if made.checkpoint is None else 0
