"""Tokenising on one core, beside SentencePiece and tokenizers: a line a sentence, the same list for all.

The contenders take turns, so that what else the machine does falls on all of them. Timed is the call that turns
a list of str into ids, nothing else; collecting of garbage is off, as timeit has it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import sentencepiece

from albert_data import load_tokenizer
from benchmarks import rivals
from benchmarks.corpora import Corpus, Setup, count_bytes, take_bytes
from benchmarks.results import OURS, SENTENCEPIECE, TOKENIZERS, Measurement, Timing

TOKENIZERS_BYTES = 4_000_000  # tokenizers is slow: two seconds a run on these


def measure(setup: Setup) -> Iterator[Measurement]:
    for corpus in setup.corpora:
        yield from measure_corpus(corpus, setup.runs)


def measure_corpus(corpus: Corpus, runs: int) -> Iterator[Measurement]:
    """With the chunk table cold and warm; the rivals' figures are the same in both."""
    sentences = corpus.sentences
    few = take_bytes(sentences, TOKENIZERS_BYTES)
    load_tokenizer(corpus.model).encode(sentences[:100])  # compiles the kernels
    contenders = {
        "cold": lambda: time_ours(corpus.model, sentences, warm=False),
        "warm": lambda: time_ours(corpus.model, sentences, warm=True),
        SENTENCEPIECE: lambda: time_sentencepiece(corpus.model, sentences),
    }
    encode, missing = rivals.find_tokenizers(corpus.model)
    if encode is not None:
        contenders[TOKENIZERS] = lambda: time_call(lambda: encode(few))
    seconds = alternate(contenders, runs)
    size, few_size = count_bytes(sentences), count_bytes(few)
    beside = {
        SENTENCEPIECE: Timing(num_bytes=size, seconds=seconds[SENTENCEPIECE]),
        TOKENIZERS: Timing(num_bytes=few_size, seconds=seconds.get(TOKENIZERS, ()), missing=missing),
    }
    for state in ("cold", "warm"):
        ours = {OURS: Timing(num_bytes=size, seconds=seconds[state])}
        yield Measurement(work=f"tokenising {corpus.name}, table {state}", timings=ours | beside)


def alternate(contenders: dict[str, Callable[[], float]], runs: int) -> dict[str, tuple[float, ...]]:
    """Let the contenders take turns, and return the seconds of each."""
    rounds = [{name: contender() for name, contender in contenders.items()} for _ in range(runs)]
    return {name: tuple(seconds[name] for seconds in rounds) for name in contenders}


def time_call(function: Callable[[], object]) -> float:
    """Seconds until the result is there; letting go of it is not timed."""
    gc.collect()
    gc.disable()
    try:
        begin = time.perf_counter()
        result = function()
        seconds = time.perf_counter() - begin
    finally:
        gc.enable()
    del result
    return seconds


def time_ours(tokenizer: Path, sentences: list[str], *, warm: bool) -> float:
    """A fresh tokenizer each time; warm: it has seen these sentences once."""
    fresh = load_tokenizer(tokenizer)
    if warm:
        fresh.encode(sentences)
    return time_call(lambda: fresh.encode(sentences))


def time_sentencepiece(tokenizer: Path, sentences: list[str]) -> float:
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(load_tokenizer(tokenizer).model)
    processor.encode(sentences[:100], num_threads=1)
    return time_call(lambda: processor.encode(sentences, num_threads=1))
