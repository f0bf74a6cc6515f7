"""`albert-data export`: one call into the library, which imports torch no earlier than here it must."""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from albert_data.cli.output import show
from albert_data.errors import ConfigError


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    "out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Folder to write; what else it holds stays as it is.",
)
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A checkpoint of RUN; without it, the newest.",
)
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="SentencePiece model of the shards, or its folder, where RUN holds none.",
)
def export(run: Path, out: Path, checkpoint: Path | None, tokenizer: Path | None) -> None:
    """Write a model that `train` made as a folder that Hugging Face transformers loads.

    AlbertForPreTraining, AutoTokenizer and pipeline("fill-mask") read DIR without a network. Needs PyTorch
    and safetensors.

    \b
    Example:
      albert-data export run -o model
      albert-data export run -o model --tokenizer shards/tokenizer
    """
    for module in ("torch", "safetensors"):
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise ConfigError(f"export needs {module}; install it with: pip install 'albert-data[train]'") from error
    from albert_data.interop.huggingface import export_model

    path = export_model(run, out, checkpoint=checkpoint, tokenizer=tokenizer)
    show(f"{out}: {path.name} of {run}, for transformers' AlbertForPreTraining and AutoTokenizer")
