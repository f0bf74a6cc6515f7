"""`albert-data vocab`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from albert_data.cli.options import (
    default_of,
    input_arguments,
    parse_size,
    text_options,
    workers_option,
)
from albert_data.cli.output import show
from albert_data.config import MODEL_TYPES, VocabConfig


@click.command()
@input_arguments
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Folder to write.")
@click.option(
    "--vocab-size",
    type=int,
    default=default_of(VocabConfig, "vocab_size"),
    show_default=True,
    help="Pieces, the special ones included.",
)
@click.option(
    "--model-type",
    type=click.Choice(MODEL_TYPES),
    default=default_of(VocabConfig, "model_type"),
    show_default=True,
    help="Kind of SentencePiece model.",
)
@click.option(
    "--character-coverage",
    type=float,
    default=default_of(VocabConfig, "character_coverage"),
    show_default=True,
    help="Share of the text's characters that get a piece. Printable ASCII does in any case.",
)
@click.option(
    "--required-chars",
    metavar="TEXT",
    default=default_of(VocabConfig, "required_chars"),
    help="More characters that get a piece, however rare they are.",
)
@click.option(
    "--cased/--uncased",
    default=default_of(VocabConfig, "cased"),
    show_default=True,
    help="Keep case, or fold it.",
)
@click.option(
    "--dummy-prefix/--no-dummy-prefix",
    default=default_of(VocabConfig, "dummy_prefix"),
    help="Begin each sentence with a space, so that its first word is as inside a sentence.  "
    "[default: unless most letters are in scripts without spaces]",
)
@click.option(
    "--sample-bytes",
    type=parse_size,
    metavar="SIZE",
    default=default_of(VocabConfig, "sample_bytes"),
    show_default=True,
    help="Most text to learn pieces from, each sentence once; bounds the memory.",
)
@click.option(
    "--seed", type=int, default=default_of(VocabConfig, "seed"), show_default=True, help="Seed of the sample."
)
@text_options
@workers_option
def vocab(inputs: tuple[str, ...], output: Path, workers: int, **settings: Any) -> None:
    """Train a SentencePiece vocabulary on text.

    INPUT is a file, a folder, a glob in quotes, or - for stdin; .txt (a blank line ends a document,
    or see --documents) and .jsonl, plain, .gz or .zst. INPUT:de is an input in German.
    The vocabulary depends on the text and these options alone.

    \b
    albert-data vocab corpus/ --vocab-size 8000 -o vocab
    """
    from albert_data.cli.progress import Bar
    from albert_data.cli.settings import text_config
    from albert_data.cli.summary import describe_vocabulary
    from albert_data.corpus.inputs import find_inputs
    from albert_data.pipeline.engine import MultiprocessEngine
    from albert_data.pipeline.vocabulary import claim_folder, learn_vocabulary, save_vocabulary
    from albert_data.tokenizer.model import MODEL_NAME

    text = text_config(settings)
    config = VocabConfig(**settings)
    bar = Bar()
    found = find_inputs(inputs, bar.say, text)
    claim_folder(output)
    try:
        report = learn_vocabulary(found, text, config, MultiprocessEngine(workers), bar)
    finally:
        bar.close()
    save_vocabulary(output, report)
    show("\n".join([describe_vocabulary(report, output / MODEL_NAME), *report.describe_choices()]))
