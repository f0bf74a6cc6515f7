"""What the training of a vocabulary reports."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

from albert_data.config import VocabConfig
from albert_data.corpus.damage import RemovedLines
from albert_data.shards.advice import list_notes
from albert_data.text.wording import count_of, wrap_words
from albert_data.vocab.alphabet import Alphabet
from albert_data.vocab.training import TrainedModel

_COLUMNS, _INDENT = 80, 11
_MAX_LISTED = 1000  # lost characters in vocab.json


@dataclass(frozen=True, kw_only=True)
class VocabReport:
    """A trained vocabulary, and what it was learnt from.

    unicode: the form of the text, see TextConfig.
    unspaced_share: of the corpus' letters, the share in scripts without spaces.
    removed: lines that settings removed, by reason.
    advice: options that would read the corpus better, a sentence each.
    """

    trained: TrainedModel
    config: VocabConfig
    alphabet: Alphabet
    unicode: str
    unspaced_share: float
    num_documents: int
    text_bytes: int
    damage: dict[str, int]
    removed: dict[str, RemovedLines]
    advice: list[str]

    def __repr__(self) -> str:
        text = f"{count_of(self.num_documents, 'document')}, {self.text_bytes / 1e6:,.1f} MB"
        head = f"VocabReport({self.config.vocab_size:,} pieces ({self.config.model_type}), learned from {text})"
        return "\n".join([head, *self.list_notes()])

    def list_notes(self) -> list[str]:
        """Lines for people: what was repaired, left out and removed, and the advice."""
        return list_notes(self.damage, self.removed, self.advice)

    def to_dict(self) -> dict[str, Any]:
        """The figures for JSON, by stable names. vocab.json has the same, except the advice."""
        trained, alphabet = self.trained, self.alphabet
        return {
            **self.config.to_dict(),
            "unicode": self.unicode,
            "documents": self.num_documents,
            "text_bytes": self.text_bytes,
            "sampled_sentences": trained.num_sentences,
            "sampled_bytes": trained.num_bytes,
            "characters": {
                "in_corpus": alphabet.num_characters,
                "with_a_piece": len(alphabet.codes),
                "num_lost": len(alphabet.lost),
                "lost_in_corpus": alphabet.num_lost,  # how often those occur in all
                "lost": [[chr(code), count] for code, count in islice(alphabet.lost.items(), _MAX_LISTED)],
                "lost_scripts": list(alphabet.lost_scripts),
            },
            "unspaced_share": round(self.unspaced_share, 6),
            "damage": self.damage,
            "removed": {reason: vars(lines) for reason, lines in sorted(self.removed.items())},
            "advice": self.advice,
        }

    def describe_choices(self) -> list[str]:
        """Lines of 80 columns about the characters that have a piece, and those that are lost."""
        width, sentences = _COLUMNS - _INDENT, self.alphabet.describe()
        lines = [line for sentence in sentences for line in wrap_words(sentence, width)]
        return [f"{'' if number else 'characters':<{_INDENT}}{line}" for number, line in enumerate(lines)]
