"""Train a SentencePiece model on a sample of sentences.

In: sentences as bytes of UTF-8, in a fixed order, and the characters that get a piece. Out: the model. Ids: <pad> 0,
<unk> 1, [CLS] 2, [SEP] 3, [MASK] 4. The number of threads is fixed, since the sums of the trainer, and so the pieces,
depend on it.

Left to itself, the trainer would choose the characters from the sample, and drop required ones: it takes characters by
frequency, and stops as soon as those taken cover the share asked for. So it is asked for all characters, and the
lost ones are replaced by <unk> beforehand, which it treats as an unknown character. Where little is lost, the covered
share, a float32, would be rounded to 1 before the last rare characters are taken, and the trainer would stop. So
sentences of <unk> are added, at least one <unk> in 1,000,000 characters: as these are never covered, the share stays
below 1 to the end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from albert_data.config import VocabConfig
from albert_data.errors import TokenizerError
from albert_data.tokenizer.buffers import Sentences
from albert_data.vocab.alphabet import Alphabet
from albert_data.vocab.counting import CharacterFinder, NormalRule
from albert_data.vocab.trainer import Trainer, train

CONTROL_SYMBOLS = ("[CLS]", "[SEP]", "[MASK]")
UNKNOWN = "<unk>"
NUM_SPECIALS = 2 + len(CONTROL_SYMBOLS)  # <pad> and <unk>
MAX_SENTENCE_BYTES = 4192  # longer ones are left out; SentencePiece's default
_MAX_REPLACED_BYTES = 1 << 20  # of a sentence that the trainer gets: with <unk> it is longer than before
_BYTES_PER_UNKNOWN = 1_000_000  # float32 can distinguish one in 16,777,216
_UNKNOWN_PER_SENTENCE = 500  # 2,500 bytes: less than MAX_SENTENCE_BYTES
_THREADS = 16


class VocabularyTooLarge(TokenizerError):
    """The text has too few different pieces. largest: the largest size that it supports."""

    def __init__(self, vocab_size: int, largest: int) -> None:
        super().__init__(
            f"a vocabulary of {vocab_size:,} pieces is larger than the text supports; "
            f"the largest possible is {largest:,}: pass --vocab-size {largest}, or more text"
        )
        self.vocab_size, self.largest = vocab_size, largest

    def __reduce__(self) -> tuple[type[VocabularyTooLarge], tuple[int, int]]:
        return type(self), (self.vocab_size, self.largest)


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """model: the serialised SentencePiece model; num_skipped, skipped_bytes: of sentences too long to learn from."""

    model: bytes
    num_sentences: int
    num_bytes: int
    num_skipped: int
    skipped_bytes: int

    @classmethod
    def of(cls, model: bytes, used: list[bytes], sentences: list[bytes]) -> TrainedModel:
        """used: those of the sentences that the trainer got."""
        num_bytes = sum(map(len, used))
        return cls(
            model=model,
            num_sentences=len(used),
            num_bytes=num_bytes,
            num_skipped=len(sentences) - len(used),
            skipped_bytes=sum(map(len, sentences)) - num_bytes,
        )


def choose_sentences(sentences: list[bytes]) -> list[bytes]:
    """Those that are not too long to learn from. Raises TokenizerError if there is none."""
    used = [sentence for sentence in sentences if len(sentence) <= MAX_SENTENCE_BYTES]
    if not used:
        raise TokenizerError("no sentence to learn a vocabulary from; give more text")
    return used


def train_model(
    sentences: list[bytes], config: VocabConfig, alphabet: Alphabet, trainer: Trainer = train
) -> TrainedModel:
    """Train on the sentences.

    config.dummy_prefix must be decided (not None). Raises TokenizerError where the sentences don't support the
    vocabulary.
    """
    assert config.dummy_prefix is not None, "it must be decided before the training"
    used = choose_sentences(sentences)
    _check_size(config, alphabet)
    num_unknown = sum(map(len, used)) // _BYTES_PER_UNKNOWN + 1
    unknown = [UNKNOWN.encode() * _UNKNOWN_PER_SENTENCE] * -(-num_unknown // _UNKNOWN_PER_SENTENCE)
    try:
        model = trainer(replace_lost(used, config, alphabet) + unknown, _make_options(config, alphabet))
    except RuntimeError as error:
        raise _explain(error, config) from error
    return TrainedModel.of(model, used, sentences)


def _make_options(config: VocabConfig, alphabet: Alphabet) -> dict[str, Any]:
    return {
        "vocab_size": config.vocab_size,
        "model_type": config.model_type,
        "character_coverage": 1.0,
        "required_chars": alphabet.characters,
        "normalization_rule_name": NormalRule(config.cased).name,
        "add_dummy_prefix": config.dummy_prefix,
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": -1,
        "eos_id": -1,
        "control_symbols": ",".join(CONTROL_SYMBOLS),
        "max_sentence_length": _MAX_REPLACED_BYTES,
        "shuffle_input_sentence": False,
        "num_threads": _THREADS,
    }


def replace_lost(sentences: list[bytes], config: VocabConfig, alphabet: Alphabet) -> list[bytes]:
    """The sentences with <unk> in place of each lost character. A sentence that holds one is normalised first."""
    if not alphabet.lost:
        return sentences
    rule = NormalRule(config.cased)
    lengths = np.array([len(sentence) for sentence in sentences])
    ends = np.cumsum(lengths)
    text = np.frombuffer(b"".join(sentences), np.uint8)
    chosen = np.flatnonzero(CharacterFinder(rule, alphabet.lost.keys()).find(Sentences(text, ends - lengths, ends)))
    table, replaced = dict.fromkeys(alphabet.lost, UNKNOWN), list(sentences)
    for i in chosen.tolist():
        replaced[i] = rule.normalise(sentences[i].decode()).translate(table).encode()
    return replaced


def _check_size(config: VocabConfig, alphabet: Alphabet) -> None:
    smallest = len(alphabet.codes) + NUM_SPECIALS
    if config.vocab_size < smallest:
        raise TokenizerError(
            f"a vocabulary of {config.vocab_size:,} pieces is smaller than the {smallest:,} that the characters of the "
            f"text need, {alphabet.num_required:,} required ones (printable ASCII, --required-chars) among them; "
            "raise --vocab-size or lower --character-coverage"
        )


def _explain(error: RuntimeError, config: VocabConfig) -> TokenizerError:
    message = str(error)
    if found := re.search(r"set it to a value <= (\d+)", message):
        return VocabularyTooLarge(config.vocab_size, int(found.group(1)))
    return TokenizerError(f"SentencePiece can't train on this text: {message.strip()}")
