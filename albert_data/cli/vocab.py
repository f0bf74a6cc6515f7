"""`albert-data vocab`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from albert_data.cli.options import (
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
@setting(
    VocabConfig,
    "--model-type",
    "Kind of SentencePiece model: unigram or bpe.",
    type=click.Choice(MODEL_TYPES),
)
@setting(
    VocabConfig,
    "--character-coverage",
    "Share of the characters of the text that get a piece. Printable ASCII always does.",
)
@setting(VocabConfig, "--required-chars", "Further characters that get a piece, however rare they are.", metavar="TEXT")
@setting(VocabConfig, "--cased/--uncased", "Keep upper case, or turn all text into lower case.")
@normalization_option
@setting(
    VocabConfig,
    "--dummy-prefix/--no-dummy-prefix",
    "Start each sentence with a space, so that its first word has the same pieces as inside a sentence.  "
    "[default: yes, unless most letters are in scripts without spaces]",
)
@setting(
    VocabConfig,
    "--sample-bytes",
    "Maximum bytes of text to learn the pieces from, each sentence once. Limits the memory too.",
    type=parse_size,
    metavar="SIZE",
)
@setting(
    VocabConfig,
    "--alpha",
    "Give each language or source a share of that by its size to this power, 0 to 1.  [default: a mixture's, or none]",
    type=float,
    metavar="A",
)
@setting(VocabConfig, "--max-passes", "Maximum number of times that text is repeated for --alpha.")
@setting(VocabConfig, "--seed", "Seed of the choice of sentences.")
@text_options
@allow_loss_option
@engine_options
@click.option("--overwrite", is_flag=True, help="Replace another vocabulary in DIR.")
@json_option
def vocab(inputs: tuple[str, ...], output: Path, as_json: bool, **settings: Any) -> None:
    """Train a vocabulary on text.

    INPUT is a file, a folder, a glob in quotes, @FILE with a path on each line, or - for stdin. Readable are .txt (a
    blank line ends a document, or see --documents), .md, .jsonl, .json, .csv, .tsv, also compressed, .parquet, .arrow,
    folders of datasets and the output of WikiExtractor. A suffix names the language: INPUT:de is German. A single
    .toml file is a mixture of sources, whose weights do not matter here, but its alpha does.

    The vocabulary depends only on the text and these options; --workers changes nothing.

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
