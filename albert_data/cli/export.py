"""`albert-data export`."""

from __future__ import annotations

from pathlib import Path

import click

from albert_data.cli.options import PATH, checkpoint_option
from albert_data.text.output import show


@click.command()
@click.argument("run", type=PATH)
@click.option(
    "-o", "--output", type=PATH, required=True, metavar="DIR", help="Folder to write; other files in it stay."
)
@checkpoint_option
def export(run: Path, output: Path, checkpoint: Path | None) -> None:
    """Write a model that `train` made as a folder that Hugging Face transformers loads.

    AlbertForPreTraining, AutoTokenizer and pipeline("fill-mask") read DIR without a network. Needs PyTorch and
    safetensors.

    \b
    Example:
      albert-data export run -o model
    """
    from albert_data.library.models import export_model

    made = export_model(run, output, checkpoint=checkpoint)
    show(f"{output}: {made.checkpoint.name} of {run}, for transformers' {made.architecture} and AutoTokenizer")
    if made.lacks_order:
        show("The head of the sentence task is not in it: AlbertForPreTraining has one of two labels only.")
    show(f"Next, in Python: transformers.pipeline('fill-mask', model={str(output)!r})('A text with one [MASK].')")
    show(f"Before you share it, read {output / 'README.md'}: it says what is not known of the text")
