"""`albert-data score`: which of two sentences a trained model finds likelier."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albert_data.cli.options import PATH, checkpoint_option, json_option, setting, take_given
from albert_data.inspect.terminal import count_columns
from albert_data.interop.sentence_pairs import ScoreConfig
from albert_data.text.escaping import escape_controls
from albert_data.text.output import show, show_json
from albert_data.text.wording import format_share
from albert_data.train.config import PRECISIONS

if TYPE_CHECKING:
    from albert_data.interop.sentence_pairs import ScoredPairs

_NAME_COLUMNS = 48


@click.command()
@click.argument("model", metavar="RUN", type=PATH)
@click.argument("pairs", metavar="PAIRS")
@click.option("-o", "--output", type=PATH, metavar="PATH", help="File for each pair with its two scores (.jsonl).")
@checkpoint_option
@setting(ScoreConfig, "--batch-tokens", "Most tokens computed at once.", metavar="N")
@setting(ScoreConfig, "--device", "Device to compute on.", metavar="auto|cpu|cuda[:N]")
@setting(ScoreConfig, "--precision", "Number format of the computation.", type=click.Choice(PRECISIONS))
@json_option
def score(model: Path, pairs: str, as_json: bool, **settings: Any) -> None:
    """Measure how often a model finds the good sentence of a pair likelier.

    RUN is a training run, or the Hugging Face folder of an ALBERT. PAIRS is a file of JSON lines with the fields good
    and bad, and optionally group. A sentence's score is its pseudo-log-likelihood. Needs PyTorch.

    \b
    Example:
      albert-data score run pairs.jsonl
      albert-data score model pairs.jsonl -o scores.jsonl --json
    """
    from albert_data.library.models import score_model

    scored = score_model(model, pairs, progress=True, **take_given(settings))
    if as_json:
        show_json(scored.to_dict())
    else:
        show(*_describe(scored))


def _describe(scored: ScoredPairs) -> list[str]:
    """A table of at most 80 columns, except for a long path."""
    groups, overall = scored.groups(), scored.overall
    mean, mean_error = scored.mean_of_groups()
    rows = [(name, group.num_pairs, group.share, group.standard_error) for name, group in groups.items()]
    rows.append(("all pairs", overall.num_pairs, overall.share, overall.standard_error))
    if len(groups) > 1:
        rows.append((f"mean of {len(groups):,} groups", overall.num_pairs, mean, mean_error))
    return [
        f"Model {scored.model}",
        f"{'Group':<{_NAME_COLUMNS}}{'pairs':>9}{'right':>11}{'error':>9}",
        *(_describe_row(*row) for row in rows),
        f"{scored.num_sentences:,} distinct sentences of {scored.num_pieces / scored.num_sentences:.1f} pieces in "
        f"{scored.seconds:.1f} s: {scored.num_sentences / max(scored.seconds, 1e-9):,.0f} a second",
    ]


def _describe_row(name: str, num_pairs: int, share: float, error: float) -> str:
    name = escape_controls(name)
    if count_columns(name) > _NAME_COLUMNS - 3:
        while count_columns(name) > _NAME_COLUMNS - 6:
            name = name[:-1]
        name += "..."
    padding = " " * (_NAME_COLUMNS - 2 - count_columns(name))
    shown = "-" if num_pairs == 1 else format_share(error, 1)
    return f"  {name}{padding}{num_pairs:>9,}{format_share(share, 1):>11}{shown:>9}"
