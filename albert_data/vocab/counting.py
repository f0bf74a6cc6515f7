"""Count the characters of text as normalisation leaves them.

In: sentences. Out: how often each character occurs in them after normalisation, so that the characters of a vocabulary
can be chosen from the whole corpus and not from a sample of it. Counts are added up, so they do not depend on how the
corpus is split. Memory: 10 MB, 19 MB at the end, whatever the corpus.

SentencePiece's normaliser replaces the longest string of its table (charsmap.py). So a kernel finds a *symbol* at each
position, without writing normalised text, and counts symbols:

    0                128                   NUM_CODES            NUM_CODES + bytes of all replacements
    | ASCII          | other characters    | replaced strings   |

A character that stays as it is has its code as its symbol; a replaced string has NUM_CODES + where its replacement
begins in the table. ASCII is its own symbol even if the table replaces it, which saves the kernel most look-ups. At the
end `NormalRule.spell` gives the characters that each symbol becomes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import sentencepiece

from albert_data.data import Text
from albert_data.kernels import I64, item, kernel, pointer
from albert_data.text.utf8 import read_character
from albert_data.tokenizer.buffers import Sentences
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE
from albert_data.tokenizer.sentencepiece.charsmap import match_longest, split_charsmap
from albert_data.tokenizer.sentencepiece.proto import read_settings

NUM_CODES = 0x110000  # of Unicode
_NUM_ASCII = 128


@dataclass(frozen=True)
class NormalRule:
    """What SentencePiece does to text: NFKC with a few changes, and case folding unless cased.

    >>> NormalRule(cased=False).normalise("\ufb01ne  \u00c9")  # a ligature and a capital letter
    'fine  é'
    """

    cased: bool

    @property
    def name(self) -> str:
        """SentencePiece's name for it."""
        return "nmt_nfkc" if self.cased else "nmt_nfkc_cf"

    def normalise(self, text: str) -> str:
        """Make the replacements of the table. Spaces are neither merged nor removed, nor written as "▁"."""
        return str(self._normaliser.Normalize(text))

    @cached_property
    def _normaliser(self) -> sentencepiece.SentencePieceNormalizer:
        return sentencepiece.SentencePieceNormalizer(
            rule_name=self.name, add_dummy_prefix=False, escape_whitespaces=False, remove_extra_whitespaces=False
        )

    @cached_property
    def table(self) -> tuple[np.ndarray, bytes]:
        """The units of the trie (int64), and the replacements, each with a 0 after it."""
        return split_charsmap(read_settings(self._normaliser.serialized_model_proto()).charsmap)

    def spell(self, symbol: int) -> str:
        """The characters that a symbol becomes."""
        if symbol < NUM_CODES:
            return self.normalise(chr(symbol))
        _, strings = self.table
        begin = symbol - NUM_CODES
        return strings[begin : strings.index(b"\0", begin)].decode()


@dataclass(frozen=True, kw_only=True)
class CharacterCounts:
    """How often characters occur."""

    codes: np.ndarray  # uint32, ascending
    counts: np.ndarray  # int64, of each, at least 1

    @classmethod
    def of(cls, totals: np.ndarray) -> CharacterCounts:
        """totals: int64 [NUM_CODES], how often each code occurs."""
        codes = np.flatnonzero(totals)
        return cls(codes=codes.astype(np.uint32), counts=totals[codes])

    def add_to(self, totals: np.ndarray) -> None:
        totals[self.codes] += self.counts


class NormalCounter:
    """Counts the characters of one `Text` after another as SentencePiece's rule leaves them. A space counts as "▁"."""

    def __init__(self, rule: NormalRule) -> None:
        self._rule, (self._units, strings) = rule, rule.table
        self._counts = np.zeros(NUM_CODES + len(strings), np.int64)

    def add(self, text: Text | Sentences) -> None:
        count_symbols(text if isinstance(text, Sentences) else Sentences.of(text), self._units, self._counts)

    def finish(self) -> CharacterCounts:
        """All that was counted."""
        totals = self._counts[:NUM_CODES].copy()
        totals[:_NUM_ASCII] = 0
        symbols = np.flatnonzero(self._counts)
        for symbol in symbols[(symbols < _NUM_ASCII) | (symbols >= NUM_CODES)].tolist():
            for character in self._rule.spell(symbol):
                totals[ord(character)] += self._counts[symbol]
        totals[ord(VISIBLE_SPACE)] += totals[ord(" ")]
        totals[ord(" ")] = 0
        return CharacterCounts.of(totals)


@kernel
def count_symbols(sentences: Sentences, units: np.ndarray, counts: np.ndarray) -> None:
    """Count the symbols of sentences."""
    text = pointer(sentences.utf8)
    for i in range(len(sentences.begins)):
        position, end = sentences.begins[i], sentences.ends[i]
        while position < end:
            byte = I64(item(text, position))
            # ASCII before ASCII or an end: no replaced string of these rules begins with two ASCII characters.
            if byte < _NUM_ASCII and (position + 1 == end or I64(item(text, position + 1)) < _NUM_ASCII):
                symbol, position = byte, position + 1
            else:
                replacement, after = match_longest(text, position, end, units)
                if replacement >= 0:
                    symbol, position = NUM_CODES + replacement, after
                else:
                    symbol, position = read_character(text, position)
            counts[symbol] += 1
