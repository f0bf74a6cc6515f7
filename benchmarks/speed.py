"""Measure the speed on corpora of your own, beside the rivals, and write a page of it.

    python -m benchmarks --english BOOKS.jsonl.gz --chinese CLASSICS.jsonl.gz --languages UDHR.jsonl.gz -o speed.md

Beside the page go the figures (.json) and a plot (.png). What else is promised of a build, purity, fidelity,
training, is measured by `python -m benchmarks.main_job`; how fast training is, by `python -m benchmarks train`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import click

from benchmarks import building, exactness, loading, tokenising
from benchmarks.corpora import MEGABYTE, Corpus, Setup, check_tokenizer, read_texts, train_vocabulary
from benchmarks.report import write_report
from benchmarks.results import Comparison, Measurement, Results, describe_command

PARTS: dict[str, Callable[[Setup], Iterator[Measurement] | Iterator[Comparison]]] = {
    "tokenising": tokenising.measure,
    "build": building.measure,
    "passes": building.measure_passes,
    "scaling": building.measure_scaling,
    "startup": building.measure_startup,
    "memory": building.measure_memory,
    "exactness": exactness.measure,
    "loading": loading.measure,
}
FILE = click.Path(path_type=Path)
COUNT = click.IntRange(min=1)


def parse_parts(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str]:
    names = value.split(",") if value else list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        raise click.BadParameter(f"{', '.join(unknown)}; the parts are {', '.join(PARTS)}")
    return names


@click.command()
@click.option("--english", type=FILE, metavar="CORPUS", help="JSON lines with a field `text`, plain or .gz.")
@click.option("--chinese", type=FILE, metavar="CORPUS", help="Likewise.")
@click.option("--languages", type=FILE, metavar="CORPUS", help="In many languages; for exactness alone.")
@click.option("--english-tokenizer", type=FILE, metavar="DIR", help="Left out: a vocabulary is trained.")
@click.option("--chinese-tokenizer", type=FILE, metavar="DIR", help="Likewise.")
@click.option("--vocab-size", type=COUNT, default=30_000, show_default=True, help="Pieces of those trained.")
@click.option("--runs", type=COUNT, default=3, show_default=True, help="Runs that the medians are of.")
@click.option("--megabytes", type=click.FloatRange(min=0, min_open=True), help="Most text of a corpus; else all of it.")
@click.option("--build-megabytes", type=COUNT, default=1000, show_default=True, help="Least text of a build.")
@click.option("--random-strings", type=COUNT, default=1_000_000, show_default=True, help="For exactness.")
@click.option("--only", callback=parse_parts, metavar="PART,..", help=f"Of {', '.join(PARTS)}.")
@click.option("--work", type=FILE, metavar="DIR", help="Keeps the vocabularies for the next run; else a temporary one.")
@click.option("-o", "--output", type=FILE, default=Path("speed.md"), show_default=True, metavar="PAGE")
def main(
    english: Path | None,
    chinese: Path | None,
    languages: Path | None,
    english_tokenizer: Path | None,
    chinese_tokenizer: Path | None,
    vocab_size: int,
    runs: int,
    megabytes: float | None,
    build_megabytes: int,
    random_strings: int,
    only: list[str],
    work: Path | None,
    output: Path,
) -> None:
    """Measure the speed on corpora of your own, beside the rivals, and write a page of it.

    `python -m benchmarks train --help` tells of the speed of training.
    With the results of an earlier run beside PAGE, the parts that are measured now replace their old figures.
    """
    if english is None and chinese is None:
        raise click.UsageError("give a corpus: --english, --chinese or both")
    if not output.parent.is_dir():
        raise click.ClickException(f"{output.parent} is no folder; make it, or name another page with -o")
    results = Results(output.with_suffix(".json"))
    max_bytes = sys.maxsize if megabytes is None else int(megabytes * MEGABYTE)
    given = [("English", "en", english, english_tokenizer), ("Chinese", "zh", chinese, chinese_tokenizer)]
    with ExitStack() as stack:
        if work is None:
            work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        work.mkdir(parents=True, exist_ok=True)
        setup = Setup(
            corpora=[
                open_corpus(name, language, path, max_bytes, tokenizer, vocab_size, work)
                for name, language, path, tokenizer in given
                if path is not None
            ],
            languages=open_languages(languages, max_bytes),
            runs=runs,
            build_bytes=build_megabytes * MEGABYTE,
            random_strings=random_strings,
            work=work,
        )
        try:
            for name in only:
                click.echo(f"{name}:")
                results.record(name, describe_command(click.get_current_context()), PARTS[name](setup))
        finally:  # a run cut short shows what it has
            write_report(results, output)
            click.echo(f"{output} is written, with the figures in {results.path}")


def open_corpus(
    name: str, language: str, path: Path, max_bytes: int, tokenizer: Path | None, vocab_size: int, work: Path
) -> Corpus:
    texts = read_texts(path, max_bytes)
    if tokenizer is None:
        click.echo(f"a vocabulary of {vocab_size:,} pieces for {name}")
        tokenizer = train_vocabulary(path, language, vocab_size, work)
    corpus = Corpus(name=name, language=language, path=path, texts=texts, tokenizer=tokenizer)
    check_tokenizer(corpus)
    return corpus


def open_languages(path: Path | None, max_bytes: int) -> Corpus | None:
    if path is None:
        return None
    return Corpus(name="languages", language="en", path=path, texts=read_texts(path, max_bytes))
