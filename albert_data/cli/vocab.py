"""`albert-data vocab`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from albert_data.cli.options import (
    ALPHA,
    PLACE,
    allow_loss_option,
    engine_options,
    inputs_argument,
    json_option,
    normalization_option,
    open_engine,
    parse_size,
    setting,
    text_options,
)
from albert_data.config import MODEL_TYPES, VocabConfig
from albert_data.text.output import show, show_json


@click.command()
@inputs_argument
@click.option("-o", "--output", type=PLACE, required=True, metavar="DIR", help="Folder to write.")
@setting(VocabConfig, "--vocab-size", "Number of pieces, special ones included.")
@setting(VocabConfig, "--model-type", "Kind of SentencePiece model.", type=click.Choice(MODEL_TYPES))
@setting(
    VocabConfig, "--character-coverage", "Share of the text's characters that get a piece; printable ASCII always does."
)
@setting(VocabConfig, "--required-chars", "Further characters that get a piece, however rare.", metavar="TEXT")
@setting(VocabConfig, "--cased/--uncased", "Keep upper case, or turn all text into lower case.")
@normalization_option
@setting(
    VocabConfig,
    "--dummy-prefix/--no-dummy-prefix",
    "Start sentences with a space, so that their first word has the same pieces as elsewhere.  [default: yes, unless "
    "most letters are in scripts without spaces]",
)
@setting(
    VocabConfig,
    "--sample-bytes",
    "Most bytes of text to learn from; limits the memory too.",
    type=parse_size,
    metavar="SIZE",
)
@setting(VocabConfig, "--alpha", ALPHA, type=float, metavar="A")
@setting(VocabConfig, "--max-passes", "Most passes over a language with --alpha.")
@setting(VocabConfig, "--seed", "Seed of the choice of sentences.")
@text_options
@allow_loss_option
@engine_options
@click.option("--overwrite", is_flag=True, help="Replace another vocabulary in DIR.")
@json_option
def vocab(inputs: tuple[str, ...], output: Path, as_json: bool, **settings: Any) -> None:
    """Train a vocabulary on text.

    INPUT is a file, a folder, a glob in quotes, @FILE with a path on each line, or - for stdin. Readable are .txt, .md,
    .jsonl, .json, .csv, .tsv, also compressed, .parquet, .arrow, folders of datasets and the output of WikiExtractor.
    INPUT:de is German text. A single .toml file is a mixture of sources; its alpha counts, not the weights.

    The vocabulary depends only on the text and these options, not on --workers.

    \b
    Example:
      albert-data vocab corpus/ --vocab-size 8000 -o vocab
    """
    from albert_data.cli.summary import describe_vocabulary
    from albert_data.library.building import train_vocab
    from albert_data.tokenizer.model import find_model

    with open_engine(settings) as given:
        report = train_vocab(inputs, output, progress=True, **given)
    if as_json:
        show_json(report.to_dict())
        return
    show(*describe_vocabulary(report, find_model(output)), *report.describe_choices(), fits=True)
