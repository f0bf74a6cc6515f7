"""Compares tokenising on one core with SentencePiece and tokenizers, all on the same sentences.

The contenders take turns, so that other load of the machine affects all of them. Only the call is timed that turns a
list of str, or for ours also a buffer, into ids. Python's garbage collector stays on, as in any program. SentencePiece
makes a list for each sentence, so it is timed with the collector off too.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import sentencepiece

from albert_data import load_tokenizer
from albert_data.data import DocumentColumns, Text
from benchmarks import rivals
from benchmarks.corpora import Corpus, Setup, count_bytes, take_bytes
from benchmarks.results import OURS, SENTENCEPIECE, TOKENIZERS, UNCOLLECTED, Measurement, Timing

TOKENIZERS_BYTES = 4_000_000  # tokenizers is slow: this takes two seconds


def measure(setup: Setup) -> Iterator[Measurement]:
    for corpus in setup.corpora:
        yield from measure_corpus(corpus, setup.runs)


def measure_corpus(corpus: Corpus, runs: int) -> Iterator[Measurement]:
    """Measure a list and a buffer, each with a cold and a warm chunk table, and SentencePiece once."""
    sentences = corpus.sentences
    few = take_bytes(sentences, TOKENIZERS_BYTES)
    load_tokenizer(corpus.model).encode(sentences[:100])  # compiles the kernels
    inputs: dict[str, list[str] | Text] = {corpus.name: sentences, f"{corpus.name} from a buffer": as_text(sentences)}
    contenders: dict[str, Callable[[], float]] = {
        f"{name}, table {state}": partial(time_ours, corpus.model, texts, warm=state == "warm")
        for name, texts in inputs.items()
        for state in ("cold", "warm")
    }
    ours = list(contenders)
    contenders |= time_both_ways(corpus)
    encode, missing = rivals.find_tokenizers(corpus.model)
    if encode is not None:
        contenders[TOKENIZERS] = lambda: time_call(lambda: encode(few))
    seconds = alternate(contenders, runs)
    size, few_size = count_bytes(sentences), count_bytes(few)
    for number, name in enumerate(ours):
        timings = {OURS: Timing(num_bytes=size, seconds=seconds[name])}
        timings |= {name: Timing(num_bytes=size, seconds=seconds[name]) for name in (SENTENCEPIECE, UNCOLLECTED)}
        if number == 0:
            timings[TOKENIZERS] = Timing(num_bytes=few_size, seconds=seconds.get(TOKENIZERS, ()), missing=missing)
        yield Measurement(work=f"tokenising {name}", timings=timings)


def as_text(sentences: list[str]) -> Text:
    """Return the sentences as one document in the form that a build passes to the tokenizer."""
    utf8 = [sentence.encode() for sentence in sentences]
    offsets = np.cumsum([0, *map(len, utf8)])
    return Text(
        utf8=np.frombuffer(b"".join(utf8), np.uint8),
        sentence_begins=offsets[:-1],
        sentence_ends=offsets[1:],
        is_heading=np.zeros(len(utf8), bool),
        document_offsets=np.array([0, len(sentences)]),
        columns=DocumentColumns(keys=np.zeros(1, np.uint64)),
    )


def alternate(contenders: dict[str, Callable[[], float]], runs: int) -> dict[str, tuple[float, ...]]:
    """Let the contenders take turns, `runs` times, and return the seconds of each."""
    rounds = [{name: contender() for name, contender in contenders.items()} for _ in range(runs)]
    return {name: tuple(seconds[name] for seconds in rounds) for name in contenders}


def time_call(function: Callable[[], object], *, collect: bool = True) -> float:
    """Return the seconds of a call, without freeing its result. collect: whether the garbage collector is on."""
    gc.collect()
    if not collect:
        gc.disable()
    try:
        begin = time.perf_counter()
        result = function()
        seconds = time.perf_counter() - begin
    finally:
        gc.enable()
    del result
    return seconds


def time_ours(tokenizer: Path, texts: list[str] | Text, *, warm: bool) -> float:
    """Time a newly loaded tokenizer. warm: after it has encoded these sentences once."""
    loaded = load_tokenizer(tokenizer)
    if warm:
        loaded.encode(texts)
    return time_call(lambda: loaded.encode(texts))


def time_both_ways(corpus: Corpus) -> dict[str, Callable[[], float]]:
    """Return calls that time SentencePiece with the garbage collector on and off."""
    return {
        name: partial(time_sentencepiece, corpus.model, corpus.sentences, collect=name == SENTENCEPIECE)
        for name in (SENTENCEPIECE, UNCOLLECTED)
    }


def time_sentencepiece(tokenizer: Path, sentences: list[str], *, collect: bool) -> float:
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(load_tokenizer(tokenizer).model)
    processor.encode(sentences[:100], num_threads=1)
    return time_call(lambda: processor.encode(sentences, num_threads=1), collect=collect)
