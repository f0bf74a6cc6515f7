"""Train a SentencePiece model on a sample of sentences.

In: sentences as bytes of UTF-8, in a fixed order. Out: the model. Ids: <pad> 0, <unk> 1, [CLS] 2, [SEP] 3,
[MASK] 4. The number of threads is fixed, for the sums of the trainer, and so the pieces, depend on it.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass

import sentencepiece

from albert_data.config import VocabConfig
from albert_data.errors import TokenizerError

CONTROL_SYMBOLS = ("[CLS]", "[SEP]", "[MASK]")
MAX_SENTENCE_BYTES = 4192  # the trainer skips longer ones in silence
_THREADS = 16


class VocabularyTooLarge(TokenizerError):
    """The text has too few different pieces. largest: the size that it supports."""

    def __init__(self, vocab_size: int, largest: int) -> None:
        super().__init__(
            f"a vocabulary of {vocab_size:,} pieces is larger than the text supports; "
            f"the largest possible is {largest:,}: pass --vocab-size {largest}, or more text"
        )
        self.largest = largest


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """model: the serialised SentencePiece model; num_skipped, skipped_bytes: sentences too long to learn from."""

    model: bytes
    num_sentences: int
    num_bytes: int
    num_skipped: int
    skipped_bytes: int


def train_model(sentences: list[bytes], config: VocabConfig) -> TrainedModel:
    """Train on the sentences. Raises TokenizerError where they don't support the vocabulary."""
    used = [sentence for sentence in sentences if len(sentence) <= MAX_SENTENCE_BYTES]
    if not used:
        raise TokenizerError("no sentence to learn a vocabulary from; give more text")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(used),
            model_writer=model,
            vocab_size=config.vocab_size,
            model_type=config.model_type,
            character_coverage=config.character_coverage,
            normalization_rule_name="nmt_nfkc" if config.cased else "nmt_nfkc_cf",
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols=",".join(CONTROL_SYMBOLS),
            max_sentence_length=MAX_SENTENCE_BYTES,
            shuffle_input_sentence=False,
            num_threads=_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explain(error, config) from error
    num_bytes, all_bytes = sum(map(len, used)), sum(map(len, sentences))
    return TrainedModel(
        model=model.getvalue(),
        num_sentences=len(used),
        num_bytes=num_bytes,
        num_skipped=len(sentences) - len(used),
        skipped_bytes=all_bytes - num_bytes,
    )


def _explain(error: RuntimeError, config: VocabConfig) -> TokenizerError:
    message = str(error)
    if found := re.search(r"set it to a value <= (\d+)", message):
        return VocabularyTooLarge(config.vocab_size, int(found.group(1)))
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        return TokenizerError(
            f"a vocabulary of {config.vocab_size:,} pieces is smaller than the {int(found.group(1)):,} that the "
            "characters of the text need; raise --vocab-size or lower --character-coverage"
        )
    return TokenizerError(f"SentencePiece can't train on this text: {message.strip()}")
