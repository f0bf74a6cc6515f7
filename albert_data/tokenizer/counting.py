"""Count the characters of text as SentencePiece's normaliser leaves them.

In: sentences. Out: how often each character occurs in them after normalisation, so that the characters of a vocabulary
can be chosen from the whole corpus and not from a sample of it. Counts are added up, so they do not depend on how the
corpus is split. Memory: 11 MB, whatever the corpus.

At each place the normaliser replaces the longest string that its table (a double-array trie) holds. So the kernel
counts replacements, and characters that stay as they are; the few different replacements are written out at the end.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import sentencepiece

from albert_data.kernels import I64, Pointer, helper, item, kernel, pointer
from albert_data.sentences.text import Text
from albert_data.tokenizer.cuts import find_base
from albert_data.tokenizer.proto import read_settings
from albert_data.tokenizer.words import SPACE
from albert_data.utf8 import read_character

NUM_CODES = 0x110000


@dataclass(frozen=True)
class NormalRule:
    """The normalisation that a vocabulary is trained with: NFKC with a few repairs, and folded case where not cased."""

    cased: bool

    @property
    def name(self) -> str:
        """SentencePiece's name of it."""
        return "nmt_nfkc" if self.cased else "nmt_nfkc_cf"

    def normalise(self, text: str) -> str:
        """Make the replacements. Spaces stay as they are."""
        return str(self._normaliser.Normalize(text))

    @cached_property
    def _normaliser(self) -> sentencepiece.SentencePieceNormalizer:
        return sentencepiece.SentencePieceNormalizer(
            rule_name=self.name, add_dummy_prefix=False, escape_whitespaces=False, remove_extra_whitespaces=False
        )

    def read_table(self) -> tuple[np.ndarray, bytes]:
        """The units of the trie (int64), and the strings that its values point to, each with a 0 behind it."""
        charsmap = read_settings(self._normaliser.serialized_model_proto()).charsmap
        end = 4 + int.from_bytes(charsmap[:4], "little")
        return np.frombuffer(charsmap[4:end], "<u4").astype(np.int64), charsmap[end:]


@dataclass(frozen=True, kw_only=True)
class CharacterCounts:
    """codes: uint32, ascending; counts: int64, how often each occurs: once or more. A space counts as "▁"."""

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
        self._plain, self._replaced = np.zeros(NUM_CODES, np.int64), np.zeros(len(self._strings), np.int64)

    def add(self, text: Text) -> None:
        count_characters(text.utf8, text.sentence_begins, text.sentence_ends, self._units, self._plain, self._replaced)

    def finish(self) -> CharacterCounts:
        """All that was counted."""
        totals = self._plain.copy()
        totals[:128] = 0
        for code in np.flatnonzero(self._plain[:128]).tolist():
            _add_each(totals, self._rule.normalise(chr(code)), self._plain[code])
        for begin in np.flatnonzero(self._replaced).tolist():
            end = self._strings.index(b"\0", begin)
            _add_each(totals, self._strings[begin:end].decode(), self._replaced[begin])
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
        self._plain, self._replaced = np.zeros(NUM_CODES, bool), np.zeros(len(strings), bool)
        self._plain[list(codes)] = True
        self._plain[:128] = [any(self._plain[ord(c)] for c in rule.normalise(chr(code))) for code in range(128)]
        begin = 0
        for replacement in strings.split(b"\0"):
            # A value of the trie may point into a string: the end of one serves as another.
            text = replacement.decode()
            for at in range(len(text)):
                here = begin + len(text[:at].encode())
                self._replaced[here] = any(self._plain[ord(character)] for character in text[at:])
            begin += len(replacement) + 1

    def find(self, utf8: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Whether each slice of text holds one (bool)."""
        found = np.zeros(len(begins), bool)
        find_characters(utf8, begins, ends, self._units, self._plain, self._replaced, found)
        return found


@kernel
def count_characters(
    utf8: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
    units: np.ndarray,
    plain: np.ndarray,
    replaced: np.ndarray,
) -> None:
    """Count the characters of slices: in `plain` by code, in `replaced` by where in the table their replacement is.

    ASCII before ASCII or an end is counted in `plain` even if it is replaced: no longer string of the table begins so.
    """
    text = pointer(utf8)
    for i in range(len(begins)):
        at, end = begins[i], ends[i]
        while at < end:
            byte = I64(item(text, at))
            if byte < 0x80 and (at + 1 == end or I64(item(text, at + 1)) < 0x80):
                plain[byte] += 1
                at += 1
                continue
            value, after = find_replacement(text, at, end, units)
            if value >= 0:
                replaced[value] += 1
            else:
                code, after = read_character(text, at)
                plain[code] += 1
            at = after


@kernel
def find_characters(
    utf8: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
    units: np.ndarray,
    plain: np.ndarray,
    replaced: np.ndarray,
    found: np.ndarray,
) -> None:
    """Note which slices hold a character of `plain` (bool, by code) or of `replaced` (bool, by place in the table)."""
    text = pointer(utf8)
    for i in range(len(begins)):
        at, end = begins[i], ends[i]
        while at < end and not found[i]:
            byte = I64(item(text, at))
            if byte < 0x80 and (at + 1 == end or I64(item(text, at + 1)) < 0x80):
                found[i] = plain[byte]
                at += 1
                continue
            value, after = find_replacement(text, at, end, units)
            if value >= 0:
                found[i] = replaced[value]
            else:
                code, after = read_character(text, at)
                found[i] = plain[code]
            at = after


@helper
def find_replacement(text: Pointer, at: int, end: int, units: np.ndarray) -> tuple[int, int]:
    """Where in the table the replacement of the longest string at a place is, -1 for none, and its end."""
    base = find_base(units, 0)
    value, after = -1, at
    while at < end:
        byte = I64(item(text, at))
        node = base ^ byte
        if units[node] & 0x800000FF != byte:  # no child by this byte
            break
        at, base = at + 1, find_base(units, node)
        if units[node] >> 8 & 1:
            value, after = units[base] & 0x7FFFFFFF, at
    return value, after
