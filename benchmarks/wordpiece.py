"""Compares WordPiece and byte-level BPE with other libraries: differing ids, and rates on one core.

    python -m benchmarks.wordpiece CORPUS... --vocab vocab.txt --model spiece.model --random-strings 100000

--vocab also takes a tokenizer.json of byte-level BPE, --model a SentencePiece model to time beside it. The contenders
take turns on the same lines, and a rate is the median of the runs. `tokenizers` is slow, so it reads the first 4 MB. A
library that is not installed is left out.
"""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np

from albert_data import load_tokenizer
from albert_data.tokenizer.model import Tokenizer
from benchmarks import rivals  # noqa: F401  # one thread for libraries of Rust, before they are imported
from benchmarks.corpora import count_bytes, read_texts, split_lines, take_bytes
from benchmarks.oddities import make_strings
from benchmarks.tokenising import TOKENIZERS_BYTES, alternate, time_call, time_ours

_BATCH = 20_000  # lines
_MAX_SHOWN = 5


def load_reference(tokenizer: Tokenizer) -> Any:
    """The library's own tokenizer, of WordPiece its BertWordPieceTokenizer.

    It takes text that spells a special piece for text, as ours does.
    """
    values, library = json.loads(tokenizer.model), importlib.import_module("tokenizers")
    if values["model"]["type"] != "WordPiece":
        reference = library.Tokenizer.from_str(tokenizer.model.decode())
        reference.encode_special_tokens = True
        return reference
    reference = library.BertWordPieceTokenizer(
        vocab={piece: i for i, piece in enumerate(tokenizer.pieces)},
        **{name: value for name, value in values["normalizer"].items() if name != "type"},
    )
    reference._tokenizer.encode_special_tokens = True
    return reference


def find_differences(tokenizer: Tokenizer, reference: Any, lines: list[str]) -> Iterator[str]:
    """Yield the lines whose ids differ."""
    for begin in range(0, len(lines), _BATCH):
        batch = lines[begin : begin + _BATCH]
        ids, offsets = tokenizer.encode(batch)
        for line, ours in zip(batch, np.split(ids, offsets[1:-1]), strict=True):
            if reference.encode(line, add_special_tokens=False).ids != ours.tolist():
                yield line


def find_rivals(model: bytes, lines: list[str]) -> Iterator[tuple[str, Callable[[], float], int]]:
    """Yield the name of each library, a call that times how it encodes lines, and the bytes of these lines."""
    few, size = take_bytes(lines, TOKENIZERS_BYTES), count_bytes(lines)
    library = importlib.import_module("tokenizers").Tokenizer.from_str(model.decode())
    encode = partial(library.encode_batch_fast, add_special_tokens=False)
    yield "tokenizers", lambda: time_call(lambda: encode(few)), count_bytes(few)
    with suppress(ImportError), tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tokenizer.json")
        path.write_bytes(model)
        tokie = importlib.import_module("tokie").Tokenizer.from_json(str(path))
        yield "tokie", lambda: time_call(lambda: tokie.encode_batch_flat(lines, add_special_tokens=False)), size
    if json.loads(model)["model"]["type"] == "BPE":  # gigatoken has no WordPiece
        with suppress(ImportError):
            make = partial(importlib.import_module("gigatoken").Tokenizer, library)
            used = make()
            used.encode_batch(lines, parallel=False)

            def encode_by(rival: Any) -> float:
                return time_call(lambda: rival.encode_batch(lines, parallel=False))

            yield "gigatoken, cold", lambda: encode_by(make()), size
            yield "gigatoken, warm", lambda: encode_by(used), size


def measure_rates(vocab: Path, model: Path | None, lines: list[str], runs: int) -> Iterator[tuple[str, float]]:
    """Yield the name of each contender and its rate in MB a second."""
    size = count_bytes(lines)
    ours = {
        json.loads(load_tokenizer(vocab, to_encode=False).model)["model"]["type"]: vocab,
        **({} if model is None else {"SentencePiece": model}),
    }
    contenders: dict[str, Callable[[], float]] = {
        f"{name}, table {state}": partial(time_ours, path, lines, warm=state == "warm")
        for name, path in ours.items()
        for state in ("cold", "warm")
    }
    sizes = dict.fromkeys(contenders, size)
    for name, call, num_bytes in find_rivals(load_tokenizer(vocab, to_encode=False).model, lines):
        contenders[name], sizes[name] = call, num_bytes
    for name, seconds in alternate(contenders, runs).items():
        yield name, sizes[name] / 1e6 / median(seconds)


@click.command()
@click.argument("corpora", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--vocab", multiple=True, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--model", type=click.Path(exists=True, path_type=Path), help="A SentencePiece model to time beside it.")
@click.option("--runs", default=5, show_default=True)
@click.option("--random-strings", default=0, show_default=True)
def main(
    corpora: tuple[Path, ...], vocab: tuple[Path, ...], model: Path | None, runs: int, random_strings: int
) -> None:
    texts = {path.name: [line for text in read_texts(path) for line in split_lines(text)] for path in corpora}
    samples = [line for lines in texts.values() for line in take_bytes(lines, TOKENIZERS_BYTES)]
    for path in vocab:
        tokenizer = load_tokenizer(path)
        reference = load_reference(tokenizer)
        strings = {"random strings": make_strings(random_strings, samples, seed=0)} if random_strings else {}
        for name, lines in {**texts, **strings}.items():
            differing = list(find_differences(tokenizer, reference, lines))
            click.echo(f"{path}: {name}: {len(differing):,} of {len(lines):,} lines differ")
            for line in differing[:_MAX_SHOWN]:
                click.echo(f"  {line!r:.200}")
        for name, lines in texts.items() if runs else ():
            for contender, rate in measure_rates(path, model, lines, runs):
                click.echo(f"{path}: {name}: {contender}: {rate:.1f} MB/s")


if __name__ == "__main__":
    main()
