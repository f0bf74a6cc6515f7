"""Measures whole builds as processes: one worker, more workers, further passes, start-up, memory.

The time is that of the process from start to end, over a corpus repeated to `build_bytes`; the copies have a line
changed in each document. SentencePiece's rate is for tokenising only, on the sentences of the same corpus.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sentencepiece

from albert_data import load_tokenizer
from benchmarks import jobs, rivals
from benchmarks.corpora import Corpus, Setup, count_bytes, split_lines, take_bytes, write_text
from benchmarks.machine import count_cores
from benchmarks.results import DATASETS, OURS, PASS, SENTENCEPIECE, UNCOLLECTED, Measurement, Timing
from benchmarks.tokenising import alternate, time_both_ways, time_call

SAMPLE_CORPUS = Path(__file__).parent.parent / "sample_corpus"
DATASETS_BYTES = 4_000_000
MORE_PASSES = 5


@dataclass(frozen=True, kw_only=True)
class WrittenCorpus:
    """A .txt file to build from. sentences: "lines" or "prose"; num_bytes: its text without line feeds."""

    corpus: Corpus
    sentences: str
    path: Path
    num_bytes: int

    @property
    def name(self) -> str:
        return f"{self.corpus.name} {self.sentences}"

    def build(self, *options: str) -> float:
        """Build once and return the seconds."""
        return self.build_and_inspect(lambda out: None, *options)

    def build_and_inspect(self, inspect: Callable[[Path], None], *options: str) -> float:
        """Build, and call `inspect` with the folder before it is removed."""
        out = self.path.parent / "out"
        try:
            seconds = jobs.build([self.path], out, self.corpus.model, *self.options, *options)
            inspect(out)
        finally:
            shutil.rmtree(out, ignore_errors=True)
        return seconds

    @property
    def options(self) -> list[str]:
        return ["--sentences", self.sentences, "--language", self.corpus.language, "--max-seq-len", "512"]


@contextmanager
def write_source(setup: Setup, corpus: Corpus, sentences: str) -> Iterator[WrittenCorpus]:
    """Write a corpus as .txt, repeated to `build_bytes`, and make sure that the kernels are compiled."""
    documents = corpus.documents if sentences == "lines" else [split_lines(text) for text in corpus.texts]
    with tempfile.TemporaryDirectory(dir=setup.work) as folder:
        path, few = Path(folder) / "text.txt", Path(folder) / "few.txt"
        size = write_text(documents, path, setup.build_bytes)
        few_size = write_text(documents[:2], few, 0)
        WrittenCorpus(corpus=corpus, sentences=sentences, path=few, num_bytes=few_size).build("--workers", "1")
        yield WrittenCorpus(corpus=corpus, sentences=sentences, path=path, num_bytes=size)


def measure(setup: Setup) -> Iterator[Measurement]:
    """Compare one worker with SentencePiece, and with datasets and transformers on a part of the text."""
    for corpus in setup.corpora:
        for sentences in ("lines", "prose") if corpus.language == "en" else ("prose",):
            with write_source(setup, corpus, sentences) as source:
                yield measure_build(source, setup.runs, with_datasets=sentences == "prose")


def measure_build(source: WrittenCorpus, runs: int, *, with_datasets: bool) -> Measurement:
    corpus, shard_bytes = source.corpus, [0]

    def count_shard_bytes(out: Path) -> None:
        shard_bytes[0] = sum(path.stat().st_size for path in out.rglob("*.arrow"))

    contenders = {OURS: lambda: source.build_and_inspect(count_shard_bytes, "--workers", "1"), **time_both_ways(corpus)}
    sizes, missing = dict.fromkeys(contenders, count_bytes(corpus.sentences)) | {OURS: source.num_bytes}, {}
    if with_datasets:
        few = take_bytes((line for text in corpus.texts for line in split_lines(text)), DATASETS_BYTES)
        encode, missing[DATASETS] = rivals.find_datasets(corpus.model)
        if encode is not None:
            contenders[DATASETS], sizes[DATASETS] = lambda: time_call(lambda: encode(few)), count_bytes(few)
    seconds = alternate(contenders, runs)
    timings = {name: Timing(num_bytes=sizes[name], seconds=taken) for name, taken in seconds.items()}
    timings |= {name: Timing(missing=reason) for name, reason in missing.items() if reason}
    figures = {"text_bytes": source.num_bytes, "shard_bytes": shard_bytes[0]}
    return Measurement(work=f"build of {source.name}", timings=timings, figures=figures)


def measure_passes(setup: Setup) -> Iterator[Measurement]:
    """Measure the cost of each further pass of --dupe-factor: five passes minus one, divided by four."""
    for corpus in setup.corpora:
        with write_source(setup, corpus, "prose") as source:
            contenders: dict[str, Callable[[], float]] = {
                "one": lambda source=source: source.build("--workers", "1"),
                "five": lambda source=source: source.build("--workers", "1", "--dupe-factor", str(MORE_PASSES)),
                **time_both_ways(corpus),
            }
            seconds = alternate(contenders, setup.runs)
            each = tuple(
                (five - one) / (MORE_PASSES - 1) for one, five in zip(seconds["one"], seconds["five"], strict=True)
            )
            size = count_bytes(corpus.sentences)
            timings = {OURS: Timing(num_bytes=source.num_bytes, seconds=each)}
            timings |= {name: Timing(num_bytes=size, seconds=seconds[name]) for name in (SENTENCEPIECE, UNCOLLECTED)}
            yield Measurement(work=f"{PASS} over {source.name}", timings=timings)


def count_workers() -> list[int]:
    """Return 1, 2, 4, ... up to the number of cores, and that number itself."""
    cores = count_cores()
    return sorted({cores, *(1 << power for power in range(cores.bit_length()) if 1 << power <= cores)})


def measure_scaling(setup: Setup) -> Iterator[Measurement]:
    """Measure builds of prose with 1, 2, 4, ... workers, up to the number of cores."""
    for corpus in setup.corpora:
        with write_source(setup, corpus, "prose") as source:
            contenders: dict[str, Callable[[], float]] = {
                str(workers): lambda source=source, workers=workers: source.build("--workers", str(workers))
                for workers in count_workers()
            }
            for workers, seconds in alternate(contenders, setup.runs).items():
                timings = {OURS: Timing(num_bytes=source.num_bytes, seconds=seconds)}
                yield Measurement(work=source.name, timings=timings, figures={"workers": int(workers)})


def measure_startup(setup: Setup) -> Iterator[Measurement]:
    """Measure processes that have almost nothing to do, and loading a model."""
    tokenizer = setup.corpora[0].model
    model = load_tokenizer(tokenizer).model

    def build_sample(**environment: str) -> float:
        with tempfile.TemporaryDirectory(dir=setup.work) as folder:
            return jobs.build([SAMPLE_CORPUS], Path(folder) / "out", tokenizer, **environment)

    def build_uncompiled() -> float:
        with tempfile.TemporaryDirectory(dir=setup.work) as folder:
            return build_sample(NUMBA_CACHE_DIR=folder)

    def load_sentencepiece() -> object:
        return sentencepiece.SentencePieceProcessor().LoadFromSerializedProto(model)

    build_sample()  # compiles the kernels
    works: dict[str, Callable[[], float]] = {
        "albert-data --help": lambda: jobs.run([jobs.find_program(), "--help"]),
        "build of the sample corpus (139 KB)": build_sample,
        "the same with no kernel compiled yet": build_uncompiled,
        "loading the tokenizer": lambda: time_call(lambda: load_tokenizer(tokenizer)),
        "loading its model into SentencePiece": lambda: time_call(load_sentencepiece),
    }
    for work, contender in works.items():
        seconds = tuple(contender() for _ in range(setup.runs))
        yield Measurement(work=work, timings={OURS: Timing(seconds=seconds)})


def measure_memory(setup: Setup) -> Iterator[Measurement]:
    """Measure the peak resident memory of the largest worker."""
    for corpus in setup.corpora:
        with write_source(setup, corpus, "prose") as source:
            out = source.path.parent / "out"
            peak = jobs.peak_of_workers([source.path], out, corpus.model, *source.options, "--workers", "2")
            yield Measurement(work=source.name, figures={"peak_bytes": peak, "text_bytes": source.num_bytes})
