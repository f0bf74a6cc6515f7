"""Train a vocabulary on a sample of sentences.

In: sentences as bytes of UTF-8, in a fixed order, and the characters that get a piece. Out: a SentencePiece model. Ids:
padding 0, unknown text 1, [CLS] 2, [SEP] 3, [MASK] 4.

Left to itself, the trainer would choose the characters from the sample, and drop required ones: it
takes characters by frequency, and stops as soon as those taken cover the share asked for. So it is asked for all
characters, and the lost ones are replaced by <unk> beforehand, which it treats as an unknown character. Where little is
lost, the covered share, a float32, would be rounded to 1 before the last rare characters are taken, and the trainer
would stop. So sentences of <unk> are added, at least one <unk> in 1,000,000 characters: as these are never covered, the
share stays below 1 to the end. The number of threads is fixed, since the sums of the trainer, and so the pieces, depend
on it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from albert_data.config import VocabConfig
from albert_data.errors import TokenizerError
from albert_data.vocab.alphabet import Alphabet
from albert_data.vocab.counting import NormalRule
from albert_data.vocab.process import Trainer, train

CONTROL_SYMBOLS = ("[CLS]", "[SEP]", "[MASK]")
UNKNOWN = "<unk>"
_NUM_SPECIALS = 2 + len(CONTROL_SYMBOLS)  # <pad> and <unk>
_MAX_REPLACED_BYTES = 1 << 20  # of a sentence that the trainer gets: with <unk> it is longer than before
_BYTES_PER_UNKNOWN = 1_000_000  # float32 can distinguish one in 16,777,216
_UNKNOWN_PER_SENTENCE = 500  # 2,500 bytes
_THREADS = 16


class VocabularyTooLarge(TokenizerError):
    """The text has too few different pieces. largest: the largest size that it supports."""

    def __init__(self, message: str, largest: int = 0) -> None:
        super().__init__(message)
        self.largest = largest


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """A model, and what it was learnt from."""

    model: bytes  # what a spiece.model holds
    num_sentences: int  # of those that the trainer got
    num_bytes: int  # of these sentences


def train_model(
    sentences: list[bytes], config: VocabConfig, alphabet: Alphabet, trainer: Trainer = train
) -> TrainedModel:
    """Train on the sentences. Raises TokenizerError where they don't support the vocabulary."""
    assert config.dummy_prefix is not None, "it must be decided before the training"
    if not sentences:
        raise TokenizerError(
            f"no sentence to learn a vocabulary from in {config.sample_bytes:,} bytes; give more text or --sample-bytes"
        )
    if config.vocab_size < (smallest := len(alphabet.codes) + _NUM_SPECIALS):
        raise TokenizerError(
            f"a vocabulary of {config.vocab_size:,} pieces is smaller than the {smallest:,} that the characters of the "
            f"text need, {alphabet.num_required:,} required ones (printable ASCII, --required-chars) among them; "
            "raise --vocab-size or lower --character-coverage"
        )
    num_bytes = sum(map(len, sentences))
    num_unknown = num_bytes // _BYTES_PER_UNKNOWN + 1
    unknown = [UNKNOWN.encode() * _UNKNOWN_PER_SENTENCE] * -(-num_unknown // _UNKNOWN_PER_SENTENCE)
    options = {
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
    try:
        model = trainer(_replace_lost(sentences, config, alphabet) + unknown, options)
        return TrainedModel(model=model, num_sentences=len(sentences), num_bytes=num_bytes)
    except RuntimeError as error:
        if found := re.search(r"set it to a value <= (\d+)", str(error)):
            largest = int(found.group(1))
            raise VocabularyTooLarge(
                f"a vocabulary of {config.vocab_size:,} pieces is larger than the text supports; the largest possible "
                f"is {largest:,}: pass --vocab-size {largest}, or more text",
                largest,
            ) from error
        raise TokenizerError(f"SentencePiece can't train on this text: {str(error).strip()}") from error


def _replace_lost(sentences: list[bytes], config: VocabConfig, alphabet: Alphabet) -> list[bytes]:
    """The sentences with <unk> in place of each lost character. Only those that hold one are normalised."""
    if not alphabet.lost:
        return sentences
    rule, table, replaced = NormalRule(config.cased), dict.fromkeys(alphabet.lost, UNKNOWN), list[bytes]()
    for sentence in sentences:
        text = rule.normalise(sentence.decode())
        without = text.translate(table)
        replaced.append(sentence if without == text else without.encode())
    return replaced
