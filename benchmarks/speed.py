"""Compares the speed on your own corpora with the rivals, and writes a page about it.

    python -m benchmarks --english BOOKS.jsonl.gz --chinese CLASSICS.jsonl.gz --languages UDHR.jsonl.gz -o speed.md

The figures (.json) and a plot (.png) are written beside the page. `python -m benchmarks.main_job` checks the other
promises of a build (purity, fidelity, memory); `python -m benchmarks train` measures the speed of training.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
@click.option("--chinese", type=FILE, metavar="CORPUS", help="As --english.")
@click.option("--languages", type=FILE, metavar="CORPUS", help="A corpus in many languages; only for exactness.")
@click.option("--english-tokenizer", type=FILE, metavar="DIR", help="By default a vocabulary is trained.")
@click.option("--chinese-tokenizer", type=FILE, metavar="DIR", help="As --english-tokenizer.")
@click.option("--vocab-size", type=COUNT, default=30_000, show_default=True, help="Pieces of a trained vocabulary.")
@click.option("--runs", type=COUNT, default=3, show_default=True, help="Repetitions; the page shows medians.")
@click.option("--megabytes", type=click.FloatRange(min=0, min_open=True), help="Use so much text of each corpus.")
@click.option("--build-megabytes", type=COUNT, default=1000, show_default=True, help="Minimal text of a build.")
@click.option("--random-strings", type=COUNT, default=1_000_000, show_default=True, help="For exactness.")
@click.option("--only", callback=parse_parts, metavar="PART,..", help=f"Of {', '.join(PARTS)}.")
@click.option("--work", type=FILE, metavar="DIR", help="Keep the vocabularies here for the next time.")
@click.option("-o", "--output", type=FILE, default=Path("speed.md"), show_default=True, metavar="PAGE")
def main(**given: Any) -> None:
    """Compare the speed on your own corpora with the rivals, and write a page about it.

    For the speed of training see `python -m benchmarks train --help`.
    If there are earlier results next to PAGE, only the figures of the parts that are measured now are replaced.
    """
    options = Options(**given)
    if options.english is None and options.chinese is None:
        raise click.UsageError("give a corpus: --english, --chinese or both")
    if not options.output.parent.is_dir():
        raise click.ClickException(f"{options.output.parent} is not a folder; make it, or name another page with -o")
    results = Results(options.output.with_suffix(".json"))
    with ExitStack() as stack:
        work = options.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        work.mkdir(parents=True, exist_ok=True)
        setup = options.open(work)
        try:
            for name in options.only:
                click.echo(f"{name}:")
                results.record(name, describe_command(click.get_current_context()), PARTS[name](setup))
        finally:  # an interrupted benchmark shows the results so far
            write_report(results, options.output)
            click.echo(f"{options.output} is written, with the figures in {results.path}")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of the command."""

    english: Path | None
    chinese: Path | None
    languages: Path | None
    english_tokenizer: Path | None
    chinese_tokenizer: Path | None
    vocab_size: int
    runs: int
    megabytes: float | None
    build_megabytes: int
    random_strings: int
    only: list[str]
    work: Path | None
    output: Path

    def open(self, work: Path) -> Setup:
        """Read the corpora; vocabularies that are missing are trained in `work`."""
        corpora = [
            self._open_corpus("English", "en", self.english, self.english_tokenizer, work),
            self._open_corpus("Chinese", "zh", self.chinese, self.chinese_tokenizer, work),
        ]
        languages = None
        if self.languages is not None:
            texts = read_texts(self.languages, self._max_bytes)
            languages = Corpus(name="languages", language="en", path=self.languages, texts=texts)
        return Setup(
            corpora=[corpus for corpus in corpora if corpus is not None],
            languages=languages,
            runs=self.runs,
            build_bytes=self.build_megabytes * MEGABYTE,
            random_strings=self.random_strings,
            work=work,
        )

    @property
    def _max_bytes(self) -> int:
        return sys.maxsize if self.megabytes is None else int(self.megabytes * MEGABYTE)

    def _open_corpus(
        self, name: str, language: str, path: Path | None, tokenizer: Path | None, work: Path
    ) -> Corpus | None:
        if path is None:
            return None
        texts = read_texts(path, self._max_bytes)
        if tokenizer is None:
            click.echo(f"a vocabulary of {self.vocab_size:,} pieces for {name}")
            tokenizer = train_vocabulary(path, language, self.vocab_size, work)
        corpus = Corpus(name=name, language=language, path=path, texts=texts, tokenizer=tokenizer)
        check_tokenizer(corpus)
        return corpus
