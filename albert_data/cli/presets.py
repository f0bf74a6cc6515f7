"""`albert-data presets`: how many parameters the model of a preset has."""

from __future__ import annotations

import click

from albert_data.cli.options import json_option
from albert_data.text.output import show_json, show_text
from albert_data.train.config import MODEL_PRESETS


@click.command()
@click.argument("name", type=click.Choice(list(MODEL_PRESETS)), metavar="[NAME]", required=False)
@json_option
def presets(name: str | None, as_json: bool) -> None:
    """Count the parameters of a model preset by part.

    NAME is tiny, mini, base, large, xlarge or xxlarge, or a preset of ALBERT version 1: base-v1, large-v1, xlarge-v1
    or xxlarge-v1. Without NAME all are listed.

    \b
    Example:
      albert-data presets base
      albert-data presets xxlarge-v1 --json
    """
    from albert_data.train.sizes import count_parameters, describe_sizes, sizes_to_dict

    if name is None:
        sizes = {preset: count_parameters(shape).all for preset, shape in MODEL_PRESETS.items()}
        lines = [f"{preset:<11} {count:>11,} parameters" for preset, count in sizes.items()]
        found, page = sizes, "\n".join(lines)
    else:
        found, page = sizes_to_dict(name), describe_sizes(name)
    if as_json:
        show_json(found)
    else:
        show_text(page)
