"""Train a WordPiece vocabulary on a sample of sentences.

In: sentences as bytes of UTF-8, in a fixed order, and the characters that get a piece. Out: a tokenizer.json. Ids:
[PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4; then the characters, their forms inside words ("##a"), and the pieces that
the trainer joins.

A character that is always a word, as an ideograph, gets no form inside words: BERT's own Chinese vocabulary has 7,000
of these, and text never gives one. A character without a piece divides words, so that no piece is learnt across it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from albert_data.config import VocabConfig
from albert_data.data import Text
from albert_data.errors import TokenizerError
from albert_data.tokenizer.tokenizer_json import CONTINUING, ROLES, BertRules, import_tokenizers, make_wordpiece
from albert_data.tokenizer.wordpiece import find_alone
from albert_data.vocab.alphabet import Alphabet
from albert_data.vocab.counting import NUM_CODES, CharacterCounts, CharacterTotals
from albert_data.vocab.sentencepiece_training import TrainedModel, VocabularyTooLarge, choose_sentences
from albert_data.vocab.trainer import Trainer

_SPECIALS = tuple(names[0] for names in ROLES.values())
_NEEDED_BY = "--model-type wordpiece"


class BertNormalRule:
    """What BERT does to text before it divides words: control characters, case and accents; ideographs stay."""

    def __init__(self, cased: bool) -> None:
        """Raises TokenizerError if the library is not installed."""
        self._library = import_tokenizers(_NEEDED_BY)
        self._normaliser = self._library.normalizers.BertNormalizer(lowercase=not cased)

    def normalise(self, text: str) -> str:
        """The text without spaces: they get no piece."""
        return str(self._normaliser.normalize_str(text)).replace(" ", "")

    def split(self, text: str) -> list[str]:
        words = self._library.pre_tokenizers.BertPreTokenizer()
        return [word for word, _ in words.pre_tokenize_str(self._normaliser.normalize_str(text))]

    def count(self, raw: CharacterCounts) -> CharacterCounts:
        """The counts after normalisation, of those before it: the rule replaces each character alone."""
        totals = np.zeros(NUM_CODES, np.int64)
        for code, count in zip(raw.codes.tolist(), raw.counts.tolist(), strict=True):
            for character in self.normalise(chr(code)):
                totals[ord(character)] += count
        codes = np.flatnonzero(totals)
        return CharacterCounts(codes=codes.astype(np.uint32), counts=totals[codes])


class RawCounter:
    """Counts the characters of one `Text` after another as they are."""

    def __init__(self) -> None:
        self._totals = CharacterTotals()

    def add(self, text: Text) -> None:
        codes = np.frombuffer(text.utf8.tobytes().decode().encode("utf-32-le"), np.uint32)
        counts = np.bincount(codes)
        found = np.flatnonzero(counts)
        self._totals.add(CharacterCounts(codes=found.astype(np.uint32), counts=counts[found]))

    def finish(self) -> CharacterCounts:
        return self._totals.finish()


def train_wordpiece_model(
    sentences: list[bytes], config: VocabConfig, alphabet: Alphabet, trainer: Trainer
) -> TrainedModel:
    """Train on the sentences. Raises TokenizerError where they don't support the vocabulary."""
    used = choose_sentences(sentences)
    rule, codes = BertNormalRule(config.cased), list(alphabet.codes)
    joined = [chr(code) for code, alone in zip(codes, find_alone(codes, rule.split), strict=True) if not alone]
    symbols = [*_SPECIALS, *map(chr, codes), *(CONTINUING + character for character in joined)]
    if config.vocab_size < len(symbols):
        raise TokenizerError(
            f"a vocabulary of {config.vocab_size:,} pieces is smaller than the {len(symbols):,} that the special "
            f"pieces and {len(codes):,} characters need, most of them at the beginning of a word and inside one; "
            "raise --vocab-size or lower --character-coverage"
        )
    options: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "symbols": symbols,
        "lowercase": not config.cased,
        "lost": "".join(map(chr, alphabet.lost)),
    }
    pieces = trainer(used, options).decode().split("\n")
    if len(pieces) < config.vocab_size:
        raise VocabularyTooLarge(config.vocab_size, len(pieces))
    model = make_wordpiece(pieces, BertRules(lowercase=not config.cased))
    return TrainedModel.of(model, used, sentences)
