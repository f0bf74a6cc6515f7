"""Counts the sentences whose ids differ from SentencePiece's, for models of every kind.

Models are trained here on a sample of the corpora; the vocabularies of the other measurements are compared too. A
unigram model sums scores in float32, so two segmentations of a sentence can have equal scores. A difference of that
kind is a tie, and is counted separately.
"""

from __future__ import annotations

import io
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Any

import click
import numpy as np
import sentencepiece

from albert_data import load_tokenizer
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.sentencepiece.proto import UNIGRAM, read_settings
from albert_data.vocab.sampling import MAX_SENTENCE_BYTES
from albert_data.vocab.training import CONTROL_SYMBOLS
from benchmarks.corpora import Corpus, Setup, take_bytes
from benchmarks.oddities import make_strings
from benchmarks.results import Comparison

VOCAB_SIZE = 8000
SAMPLE_BYTES = 1_500_000  # of each corpus, to train on
SLOW_BYTES = 5_000_000  # of each text, for models that fall back to SentencePiece itself
NUM_EXAMPLES = 5
RANDOM, DECOMPOSED = "random strings", "languages, NFD"
_BATCH = 20_000  # sentences
_UNKNOWN_PENALTY = 10.0  # SentencePiece's: how much less an unknown character scores than the worst piece

_BPE: dict[str, Any] = {"model_type": "bpe"}
_USER_DEFINED = {"user_defined_symbols": "foo,中国,<sep>"}
_RELEASED = {"user_defined_symbols": '(,),",-,.,–,£,€'}  # those of Google's English models
MODELS: dict[str, dict[str, Any]] = {
    "unigram": {},
    "unigram, coverage 0.98": {"character_coverage": 0.98},
    "unigram, uncased (nmt_nfkc_cf)": {"normalization_rule_name": "nmt_nfkc_cf"},
    "unigram, nfkc": {"normalization_rule_name": "nfkc"},
    "unigram, identity": {"normalization_rule_name": "identity"},
    "unigram, byte fallback": {"byte_fallback": True},
    "BPE": _BPE,
    "BPE, uncased (nmt_nfkc_cf)": _BPE | {"normalization_rule_name": "nmt_nfkc_cf"},
    "BPE, nfkc": _BPE | {"normalization_rule_name": "nfkc"},
    "BPE, identity": _BPE | {"normalization_rule_name": "identity"},
    "BPE, byte fallback": _BPE | {"byte_fallback": True},
    "unigram, add_dummy_prefix off": {"add_dummy_prefix": False},
    "BPE, add_dummy_prefix off": _BPE | {"add_dummy_prefix": False},
    "unigram, user-defined symbols": _USER_DEFINED,
    "BPE, user-defined symbols": _BPE | _USER_DEFINED,
    "unigram, user-defined as released": _RELEASED,
    "BPE, user-defined as released": _BPE | _RELEASED,
    "unigram, remove_extra_whitespaces off": {"remove_extra_whitespaces": False},
    "unigram, split_by_whitespace off": {"split_by_whitespace": False},
    "unigram, treat_whitespace_as_suffix": {"treat_whitespace_as_suffix": True},
}
MODELS_OF_LANGUAGES: dict[str, dict[str, Any]] = {"unigram of the languages": {}, "BPE of the languages": _BPE}


def measure(setup: Setup) -> Iterator[Comparison]:
    """Compare every model on every text."""
    corpora, languages = setup.corpora, [setup.languages] if setup.languages else []
    texts = {corpus.name: corpus.sentences for corpus in [*corpora, *languages]}
    for corpus in languages:
        texts[DECOMPOSED] = [unicodedata.normalize("NFD", sentence) for sentence in corpus.sentences]
    texts[RANDOM] = make_strings(setup.random_strings, take_samples([*corpora, *languages]), seed=0)
    for corpus in corpora:
        yield from compare_texts(f"vocabulary of {corpus.name}", load_tokenizer(corpus.model), texts)
    for models, sources in ((MODELS, corpora), (MODELS_OF_LANGUAGES, languages)):
        for name, settings in models.items() if sources else ():
            yield from compare_texts(name, Tokenizer(train(take_samples(sources), settings), name), texts)


def take_samples(corpora: list[Corpus]) -> list[str]:
    """Return sentences from all parts of each corpus."""
    samples = []
    for corpus in corpora:
        stride = max(1, len(corpus.sentences) // 10_000)
        samples += take_bytes(corpus.sentences[::stride], SAMPLE_BYTES)
    return [sentence for sentence in samples if len(sentence.encode()) <= MAX_SENTENCE_BYTES]


def train(sentences: list[str], settings: dict[str, Any], vocab_size: int = VOCAB_SIZE) -> bytes:
    """Train a SentencePiece model with ALBERT's special pieces; of another size if the text needs one."""
    model = io.BytesIO()
    options: dict[str, Any] = {"character_coverage": 0.9995, "hard_vocab_limit": False} | settings
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            vocab_size=vocab_size,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols=",".join(CONTROL_SYMBOLS),
            minloglevel=2,
            **options,
        )
    except RuntimeError as error:
        size = find_size(str(error))
        if size is None or size == vocab_size:
            raise click.ClickException(f"SentencePiece can't train on this text: {str(error).strip()}") from error
        return train(sentences, settings, size)
    return model.getvalue()


def find_size(message: str) -> int | None:
    """Return the vocabulary size that the trainer's error message asks for."""
    if found := re.search(r"set it to a value <= (\d+)", message):
        return int(found.group(1))
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return int(found.group(1)) * 3 // 2
    return None


def compare_texts(name: str, tokenizer: Tokenizer, texts: dict[str, list[str]]) -> Iterator[Comparison]:
    for text, sentences in texts.items():
        yield compare(name, tokenizer, text, take_bytes(sentences, SLOW_BYTES) if tokenizer.slow_reason else sentences)


def compare(name: str, tokenizer: Tokenizer, text: str, sentences: list[str]) -> Comparison:
    """Encode sentences with both, and check each difference for a tie."""
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(tokenizer.model)
    is_unigram = read_settings(tokenizer.model).model_type == UNIGRAM
    num_different, num_ties, examples = 0, 0, []
    for begin in range(0, len(sentences), _BATCH):
        batch = sentences[begin : begin + _BATCH]
        ids, offsets = tokenizer.encode(batch)
        expected = processor.encode(batch, out_type="numpy", num_threads=1)
        for i in find_differences(ids, offsets, expected):
            num_different += 1
            ours, theirs = ids[offsets[i] : offsets[i + 1]].tolist(), expected[i].tolist()
            num_ties += is_unigram and is_tie(processor, batch[i], ours, theirs)
            examples += [f"{batch[i]!a}: {ours} for {theirs}"] if len(examples) < NUM_EXAMPLES else []
    return Comparison(
        model=name,
        text=text,
        num_sentences=len(sentences),
        num_different=num_different,
        num_ties=num_ties,
        slow_reason=tokenizer.slow_reason,
        examples=tuple(examples),
    )


def find_differences(ids: np.ndarray, offsets: np.ndarray, expected: list[np.ndarray]) -> list[int]:
    """Return the indices of sentences whose ids differ. ids, offsets: ragged, of all sentences."""
    if len(offsets) != len(expected) + 1 or offsets[-1] != len(ids):
        raise ValueError(f"{len(ids)} ids and {len(offsets)} offsets are not those of {len(expected)} sentences")
    return [i for i, wanted in enumerate(expected) if not np.array_equal(ids[offsets[i] : offsets[i + 1]], wanted)]


def is_tie(processor: sentencepiece.SentencePieceProcessor, sentence: str, ours: list[int], theirs: list[int]) -> bool:
    """Whether the scores of two segmentations, summed in float32, are equal at all boundaries that both have."""
    normal = processor.normalize(sentence)
    our_sums, their_sums = (sum_scores(processor, normal, ids) for ids in (ours, theirs))
    if our_sums is None or their_sums is None:
        return False
    return all(our_sums[at] == their_sums[at] for at in our_sums.keys() & their_sums.keys())


def sum_scores(
    processor: sentencepiece.SentencePieceProcessor, normal: str, ids: list[int]
) -> dict[int, np.float32] | None:
    """Return the float32 sums of the scores at each boundary, by position; None if the ids do not spell the text."""
    unknown = np.float32(find_lowest_score(processor)) - np.float32(_UNKNOWN_PENALTY)
    sums: dict[int, np.float32] = {}
    at, total = 0, np.float32(0)
    for begin, end, piece in align(processor, normal, ids):
        if begin != at:
            return None
        for at in [end] if piece is not None else range(begin + 1, end + 1):
            total += unknown if piece is None else np.float32(processor.get_score(piece))
            sums[at] = total
    return sums if at == len(normal) else None


def align(
    processor: sentencepiece.SentencePieceProcessor, normal: str, ids: list[int]
) -> Iterator[tuple[int, int, int | None]]:
    """Yield begin and end of each piece in the normalised text, in characters, with its id.

    A sequence of unknown characters (one unknown id, or byte pieces) has the id None and ends where the next piece is
    found. A piece that is not found begins at -1.
    """
    at, gap = 0, False
    for i in ids:
        if processor.is_unknown(i) or processor.is_byte(i):
            gap = True
            continue
        piece = processor.id_to_piece(i)
        begin = normal.find(piece, at + 1) if gap else at if normal.startswith(piece, at) else -1
        if gap:
            yield at, begin, None
        at, gap = begin + len(piece), False
        yield begin, at, i
    if gap:
        yield at, len(normal), None


@cache
def find_lowest_score(processor: sentencepiece.SentencePieceProcessor) -> float:
    """Return the lowest score of an ordinary piece."""
    odd = (processor.is_control, processor.is_unknown, processor.is_unused, processor.is_byte)
    return min(
        processor.get_score(i) for i in range(processor.get_piece_size()) if not any(is_kind(i) for is_kind in odd)
    )
