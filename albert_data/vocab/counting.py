"""Count the characters of text as SentencePiece's normaliser leaves them.

In: sentences. Out: how often each character occurs in them after normalisation, so that the characters of a vocabulary
can be chosen from the whole corpus and not from a sample of it. Counts are added up, so they do not depend on how the
corpus is split. Memory: 10 MB, 19 MB at the end, whatever the corpus.

At each position the normaliser replaces the longest string of its table (charsmap.py). So the kernel counts *symbols*,
without writing normalised text: a character that stays as it is has its code as its symbol; a replaced string has
NUM_CODES + where its replacement begins in the table. The characters of the replacements are added up at the end.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import sentencepiece

from albert_data.data import Text
from albert_data.kernels import I64, Pointer, helper, item, kernel, pointer
from albert_data.tokenizer.buffers import Sentences
from albert_data.tokenizer.sentencepiece.charsmap import find_base, split_charsmap
from albert_data.tokenizer.sentencepiece.proto import read_settings
from albert_data.tokenizer.words import SPACE
from albert_data.utf8 import read_character

NUM_CODES = 0x110000  # of Unicode
_NUM_ASCII = 128


@dataclass(frozen=True)
class NormalRule:
    """The normalisation that a vocabulary is trained with: NFKC with a few changes, and case folding unless cased."""

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

    def read_table(self) -> tuple[np.ndarray, bytes]:
        """The units of the trie (int64), and the replacements, each with a 0 after it."""
        return split_charsmap(read_settings(self._normaliser.serialized_model_proto()).charsmap)


@dataclass(frozen=True, kw_only=True)
class CharacterCounts:
    """codes: uint32, ascending; counts: int64, how often each occurs, at least once. A space counts as "▁"."""

    codes: np.ndarray
    counts: np.ndarray


class CharacterTotals:
    """Adds up counts."""

    def __init__(self) -> None:
        self._totals = np.zeros(NUM_CODES, np.int64)

    def add(self, part: CharacterCounts) -> None:
        self._totals[part.codes] += part.counts

    def finish(self) -> CharacterCounts:
        return _list_counts(self._totals)


def _list_counts(totals: np.ndarray) -> CharacterCounts:
    codes = np.flatnonzero(totals)
    return CharacterCounts(codes=codes.astype(np.uint32), counts=totals[codes])


class CharacterCounter:
    """Counts the characters of one `Text` after another."""

    def __init__(self, rule: NormalRule) -> None:
        self._rule, (self._units, self._strings) = rule, rule.read_table()
        self._counts = np.zeros(NUM_CODES + len(self._strings), np.int64)

    def add(self, text: Text) -> None:
        sentences = Sentences(text.utf8, text.sentence_begins, text.sentence_ends)
        count_symbols(sentences, self._units, self._counts)

    def finish(self) -> CharacterCounts:
        """All that was counted."""
        totals = self._counts[:NUM_CODES].copy()
        totals[:_NUM_ASCII] = 0  # the kernel counts ASCII without looking for replacements (find_symbol)
        for code in np.flatnonzero(self._counts[:_NUM_ASCII]).tolist():
            _add_each(totals, self._rule.normalise(chr(code)), self._counts[code])
        for begin in np.flatnonzero(self._counts[NUM_CODES:]).tolist():
            end = self._strings.index(b"\0", begin)
            _add_each(totals, self._strings[begin:end].decode(), self._counts[NUM_CODES + begin])
        totals[ord(SPACE)] += totals[ord(" ")]
        totals[ord(" ")] = 0
        return _list_counts(totals)


def _add_each(totals: np.ndarray, characters: str, count: int) -> None:
    for character in characters:
        totals[ord(character)] += count


class CharacterFinder:
    """Finds the sentences that hold one of some characters after normalisation."""

    def __init__(self, rule: NormalRule, codes: Collection[int]) -> None:
        self._units, strings = rule.read_table()
        self._is_wanted = np.zeros(NUM_CODES + len(strings), bool)
        self._is_wanted[list(codes)] = True
        is_wanted = self._is_wanted[:NUM_CODES].copy()
        self._is_wanted[:_NUM_ASCII] = [
            any(is_wanted[ord(c)] for c in rule.normalise(chr(code))) for code in range(_NUM_ASCII)
        ]  # ASCII is its own symbol (find_symbol)
        begin = NUM_CODES
        for replacement in strings.split(b"\0"):
            # A replacement may begin inside another one: "bc" is stored as the end of "abc".
            text = replacement.decode()
            for i in range(len(text)):
                here = begin + len(text[:i].encode())
                self._is_wanted[here] = any(is_wanted[ord(character)] for character in text[i:])
            begin += len(replacement) + 1

    def find(self, sentences: Sentences) -> np.ndarray:
        """Whether each sentence holds one (bool)."""
        found = np.zeros(len(sentences.begins), bool)
        find_symbols(sentences, self._units, self._is_wanted, found)
        return found


@kernel
def count_symbols(sentences: Sentences, units: np.ndarray, counts: np.ndarray) -> None:
    """Count the symbols of sentences."""
    text = pointer(sentences.utf8)
    for i in range(len(sentences.begins)):
        position, end = sentences.begins[i], sentences.ends[i]
        while position < end:
            symbol, position = find_symbol(text, position, end, units)
            counts[symbol] += 1


@kernel
def find_symbols(sentences: Sentences, units: np.ndarray, is_wanted: np.ndarray, found: np.ndarray) -> None:
    """Mark the sentences that hold a wanted symbol."""
    text = pointer(sentences.utf8)
    for i in range(len(sentences.begins)):
        position, end = sentences.begins[i], sentences.ends[i]
        while position < end and not found[i]:
            symbol, position = find_symbol(text, position, end, units)
            found[i] = is_wanted[symbol]


@helper
def find_symbol(text: Pointer, position: int, end: int, units: np.ndarray) -> tuple[int, int]:
    """The symbol at a position, and where the next one begins.

    ASCII before ASCII or an end is its own symbol even if the table replaces it: CharacterCounter.finish and
    CharacterFinder replace it. No replaced string of nmt_nfkc and nmt_nfkc_cf begins with two ASCII characters.
    """
    byte = I64(item(text, position))
    if byte < _NUM_ASCII and (position + 1 == end or I64(item(text, position + 1)) < _NUM_ASCII):
        return byte, position + 1
    base = find_base(units, 0)
    found, after, at = I64(-1), position, position
    while at < end:
        byte = I64(item(text, at))
        node = base ^ byte  # the child by this byte, if it has its label
        if units[node] & 0x800000FF != byte:  # a leaf (bit 31), or of another label
            break
        at, base = at + 1, find_base(units, node)
        if units[node] >> 8 & 1:
            found, after = units[base] & 0x7FFFFFFF, at  # the longest so far
    if found >= 0:  # where its replacement begins
        return NUM_CODES + found, after
    code, after = read_character(text, position)  # nothing replaces it
    return code, after
