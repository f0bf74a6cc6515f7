"""`albert-data build`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from albert_data.cli.loading import load_lightly
from albert_data.cli.options import default_of, input_arguments, text_options, workers_option
from albert_data.cli.output import show, tell
from albert_data.config import COMPRESSIONS, BuildConfig, ExampleConfig


@click.command()
@input_arguments
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, metavar="OUT", help="Folder to write.")
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="SentencePiece model, or a folder with one. Left out: a vocabulary is trained first.",
)
@click.option(
    "--max-seq-len",
    type=int,
    default=default_of(ExampleConfig, "max_seq_len"),
    show_default=True,
    help="Tokens an example, [CLS] and [SEP] included.",
)
@click.option(
    "--ngram",
    type=int,
    default=default_of(ExampleConfig, "ngram"),
    show_default=True,
    help="Longest masked span in words; spans of n words have the share (1/n) / sum(1/k).",
)
@click.option(
    "--mask-prob",
    type=float,
    default=default_of(ExampleConfig, "mask_prob"),
    show_default=True,
    help="Share of the tokens to mask.",
)
@click.option(
    "--short-seq-prob",
    type=float,
    default=default_of(ExampleConfig, "short_seq_prob"),
    show_default=True,
    help="Share of examples of a random shorter length.",
)
@click.option(
    "--whole-word/--pieces",
    default=default_of(ExampleConfig, "whole_word"),
    show_default=True,
    help="Mask whole words, or count each piece as a word.",
)
@click.option(
    "--dupe-factor",
    type=int,
    default=default_of(ExampleConfig, "dupe_factor"),
    show_default=True,
    help="Passes over the corpus, each with other pairs and masks.",
)
@click.option(
    "--validation-fraction",
    type=float,
    default=default_of(BuildConfig, "validation_fraction"),
    show_default=True,
    help="Share of the documents kept out of training.",
)
@click.option(
    "--keep-duplicates",
    is_flag=True,
    help="Keep all copies of equal documents. By default one is kept.",
)
@click.option("--num-shards", type=int, help="Training shards.  [default: one for about 32 MiB]")
@click.option(
    "--compression",
    type=click.Choice(COMPRESSIONS),
    default=default_of(BuildConfig, "compression"),
    show_default=True,
    help="Compression of the shards; none lets training map them into memory.",
)
@click.option(
    "--seed",
    type=int,
    default=default_of(ExampleConfig, "seed"),
    show_default=True,
    help="Seed of all random draws.",
)
@text_options
@workers_option
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace another build in OUT; a finished one stays until the new one is.",
)
@click.option("--profile", is_flag=True, help="Show at the end how long each stage took.")
@click.option("--dry-run", is_flag=True, help="Show what would be read and with which settings, and stop.")
def build(
    inputs: tuple[str, ...],
    output: Path,
    tokenizer: Path | None,
    workers: int,
    overwrite: bool,
    profile: bool,
    dry_run: bool,
    **settings: Any,
) -> None:
    """Turn text into ALBERT pretraining shards.

    INPUT is a file, a folder, a glob in quotes, or - for stdin; .txt (a blank line ends a document,
    or see --documents) and .jsonl, plain, .gz or .zst. INPUT:de is an input in German.
    The shards depend on the documents, the tokenizer and the settings alone: workers, file layout
    and order change no byte. The same command goes on with a build that was killed.

    \b
    albert-data build corpus/ --tokenizer vocab -o shards
    zstdcat *.jsonl.zst | albert-data build - --tokenizer vocab --text-field body -o shards
    """
    with load_lightly():
        from albert_data.cli.settings import build_config

        config = build_config(settings)
        from albert_data.cli.entry import INTERRUPTED
        from albert_data.cli.progress import Bar
        from albert_data.cli.summary import describe_build, describe_plan, describe_stages
        from albert_data.corpus.inputs import find_inputs
        from albert_data.pipeline.build import build as build_shards
        from albert_data.pipeline.engine import MultiprocessEngine
        from albert_data.pipeline.times import save_times
        from albert_data.pipeline.warming import compile_ahead, load_to_encode
        from albert_data.tokenizer.model import load_tokenizer

        bar = Bar()
        found = find_inputs(inputs, bar.say, config.text)
        if dry_run:
            show(describe_plan(found, output, load_tokenizer(tokenizer) if tokenizer else None, config))
            return
        with compile_ahead(bar):
            loaded = load_to_encode(tokenizer) if tokenizer else None
    try:
        report = build_shards(found, output, loaded, config, MultiprocessEngine(workers), bar, overwrite=overwrite)
    except KeyboardInterrupt:
        bar.close()
        tell("\nInterrupted; the same command goes on from here.")
        raise click.exceptions.Exit(INTERRUPTED) from None
    finally:
        bar.close()
    show(describe_build(report, output))
    if report.was_finished:
        return
    if profile:
        show(describe_stages(report))
    if fault := save_times(report, workers):
        tell(f"Its times are not kept for `inspect`: {fault}")
