"""Checks the promises of a build on your own corpus: purity, fidelity, bounded memory, speed.

    python -m benchmarks.main_job purity   CORPUS.jsonl.gz --tokenizer DIR
    python -m benchmarks.main_job fidelity CORPUS.jsonl.gz --tokenizer DIR
    python -m benchmarks.main_job memory   CORPUS.jsonl.gz --tokenizer DIR
    python -m benchmarks.main_job speed    CORPUS.jsonl.gz --tokenizer DIR
    python -m benchmarks.main_job scaling  CORPUS.jsonl.gz --tokenizer DIR
    python -m benchmarks.main_job everything CORPUS.jsonl.gz --tokenizer DIR

CORPUS is JSON lines with a field `text`. The figures are printed as rows of Markdown tables.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import click
import numpy as np
from xxhash import xxh3_64_intdigest

from albert_data import load_tokenizer, open_shards
from albert_data.shards.manifest_file import read_manifest
from benchmarks.corpora import count_bytes, read_texts, repeat_documents, split_lines
from benchmarks.jobs import build, command, peak_of_workers

KILLS = 10


def hashes(out: Path) -> list[str]:
    return [shard.sha256 for shard in read_manifest(out).shards]


def row(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def write_layouts(texts: list[str], folder: Path) -> dict[str, list[Path]]:
    """Write the same documents as 40 plain .jsonl files in reversed order, and as one .txt."""
    backwards = texts[::-1]
    many = folder / "many"
    many.mkdir()
    for number in range(40):
        lines = [json.dumps({"text": text}) + "\n" for text in backwards[number::40]]
        (many / f"part-{number:02d}.jsonl").write_text("".join(lines))
    (folder / "all.txt").write_text("\n\n".join("\n".join(split_lines(text)) for text in texts))
    return {"40 plain .jsonl, reversed": [many], "one .txt": [folder / "all.txt"]}


def kill_and_resume(inputs: list[Path], out: Path, tokenizer: Path, moment: float, options: list[str]) -> None:
    """Start a build, kill -9 its process group after `moment` seconds, and run the build again to its end."""
    child = subprocess.Popen(
        command(inputs, out, tokenizer, *options),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(moment)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    build(inputs, out, tokenizer, *options)


@click.group()
def main() -> None:
    """Measure what a build promises."""


def corpus_command(function: Callable[..., None]) -> click.Command:
    for option in (
        click.option("--language", default="en"),
        click.option("--tokenizer", type=click.Path(path_type=Path, exists=True), required=True),
        click.argument("corpus", type=click.Path(path_type=Path, exists=True)),
    ):
        function = option(function)
    return main.command()(function)


@corpus_command
def purity(corpus: Path, tokenizer: Path, language: str) -> None:
    """Compare the bytes of builds with other workers, layouts and kills."""
    options = ["--language", language, "--num-shards", "4"]
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        seconds = build([corpus], base / "reference", tokenizer, *options, "--workers", "2")
        reference = hashes(base / "reference")
        row("build", "shards equal")
        row("---", "---")

        def compare(name: str, run: Callable[[Path], object]) -> None:
            out = base / "out"
            run(out)
            row(name, "yes" if hashes(out) == reference else "NO")
            shutil.rmtree(out)

        for workers in ("1", "4"):
            compare(
                f"{workers} workers", lambda out, w=workers: build([corpus], out, tokenizer, *options, "--workers", w)
            )
        for name, inputs in write_layouts(read_texts(corpus), base).items():
            compare(name, lambda out, i=inputs: build(i, out, tokenizer, *options))
        moments = random.Random(0)
        for _ in range(KILLS):
            at = moments.uniform(0.5, seconds)
            compare(
                f"killed after {at:.1f} of {seconds:.1f} s, run again",
                lambda out, at=at: kill_and_resume([corpus], out, tokenizer, at, options),
            )


@corpus_command
def fidelity(corpus: Path, tokenizer: Path, language: str) -> None:
    """Compare the figures of a build with the intended ones, and each document's tokens with its text."""
    with tempfile.TemporaryDirectory() as folder:
        for length in ("128", "512"):
            out = Path(folder) / length
            options = ["--max-seq-len", length, "--language", language, "--validation-fraction", "0"]
            build([corpus], out, tokenizer, *options, "--dupe-factor", "2")
            report = subprocess.run(
                ["albert-data", "inspect", str(out), "--json"], check=True, capture_output=True, text=True
            )
            print(f"\nlength {length}\n{report.stdout}")
            shutil.rmtree(out)
            build([corpus], out, tokenizer, *options, "--sentences", "lines")
            wrong = count_wrong_documents(out, read_texts(corpus), tokenizer)
            print(f"documents whose tokens are not each in exactly one row: {wrong}")


def count_wrong_documents(out: Path, texts: list[str], tokenizer: Path) -> int:
    """Count documents whose tokens in the shards are not those that SentencePiece gives for their lines.

    Needs a build with `--sentences lines`. Compares how often each id comes, not the order.
    """
    processor = load_tokenizer(tokenizer)
    want: Counter[int] = Counter()
    for text in texts:
        lines = [" ".join(line.split()) for line in text.split("\n") if line.split()]
        ids, _ = processor.encode(lines)
        key = xxh3_64_intdigest("".join(line + "\n" for line in lines))
        want[key] += checksum(ids)
    found: Counter[int] = Counter()
    special = processor.specials.is_special
    for example in open_shards(out):
        ids = example.original_ids
        found[example.document_key] += checksum(ids[~special[ids]])
    return sum(want[key] != found[key] for key in want.keys() | found.keys())


def checksum(ids: np.ndarray) -> int:
    """Sum up hashes of the tokens: the order does not matter, and other tokens hardly ever have the same sum."""
    return int(mix_all(ids.astype(np.uint64)).sum(dtype=np.uint64)) % 2**62


def mix_all(values: np.ndarray) -> np.ndarray:
    values = (values + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    return (values ^ (values >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(20)


@corpus_command
def memory(corpus: Path, tokenizer: Path, language: str) -> None:
    """Measure the peak RSS of a worker, on the corpus and on three times as much text."""
    with tempfile.TemporaryDirectory() as folder:
        base, texts = Path(folder), read_texts(corpus)
        thrice = base / "thrice.jsonl.gz"
        with gzip.open(thrice, "wt", compresslevel=1) as file:
            documents = [split_lines(text) for text in texts]
            for lines in repeat_documents(documents, 3 * count_bytes(chain.from_iterable(documents))):
                file.write(json.dumps({"text": "\n".join(lines)}) + "\n")
        row("corpus", "peak RSS of a worker")
        row("---", "---")
        for name, path in (("once", corpus), ("three times", thrice)):
            peak = peak_of_workers([path], base / name, tokenizer, "--language", language, "--workers", "2")
            row(name, f"{peak / 1e6:.0f} MB")


@corpus_command
def speed(corpus: Path, tokenizer: Path, language: str) -> None:
    """Measure MB of text a second with two workers: medians of three."""
    with tempfile.TemporaryDirectory() as folder:
        base, texts = Path(folder), read_texts(corpus)
        size = sum(len(text.encode()) for text in texts) / 1e6
        layouts = {"one .jsonl.gz": [corpus], **write_layouts(texts, base)}
        row("input", "MB/s with two workers")
        row("---", "---")
        for name, inputs in layouts.items():
            seconds = []
            for _ in range(3):
                seconds.append(build(inputs, base / "out", tokenizer, "--language", language, "--workers", "2"))
                shutil.rmtree(base / "out")
            row(name, f"{size / statistics.median(seconds):.1f}")


@corpus_command
def scaling(corpus: Path, tokenizer: Path, language: str) -> None:
    """Measure MB of text a second with 1, 2, 4, ... workers on four copies of the corpus as plain files."""
    with tempfile.TemporaryDirectory() as folder:
        base, texts = Path(folder), read_texts(corpus)
        inputs = write_layouts(texts, base)["40 plain .jsonl, reversed"]
        for copy in range(3):
            shutil.copytree(inputs[0], base / f"copy-{copy}")
            inputs.append(base / f"copy-{copy}")
        size = 4 * sum(len(text.encode()) for text in texts) / 1e6
        row("workers", "MB/s", "against one")
        row("---", "---", "---")
        first, workers = 0.0, 1
        while workers <= (os.cpu_count() or 1):
            options = ["--language", language, "--workers", str(workers), "--keep-duplicates"]
            rate = size / build(inputs, base / "out", tokenizer, *options)
            shutil.rmtree(base / "out")
            first = first or rate
            row(workers, f"{rate:.1f}", f"{rate / first:.2f}")
            workers *= 2


@corpus_command
def everything(corpus: Path, tokenizer: Path, language: str) -> None:
    """Run all of these one after another; takes about an hour."""
    context = click.get_current_context()
    for measure in (speed, scaling, memory, purity, fidelity):
        print(f"\n## {measure.name}\n", flush=True)
        context.invoke(measure, corpus=corpus, tokenizer=tokenizer, language=language)


if __name__ == "__main__":
    main()
