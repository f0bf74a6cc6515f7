"""The surface of segments: what could tell a model the order of a pair without reading it.

In: the rows of splits. Out: a table with a column for each feature of a segment: its first and last character and
piece, what it leaves open, how long it and its outer sentences are.

Here a sentence ends at any stop, so "Mr." ends one: lengths are distances between stops, alike in both segments.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from albert_data.examples.pairs import SOP_IN_ORDER, SOP_SWAPPED
from albert_data.inspect.audit.rows import Subject, read_batches
from albert_data.shards.decoding import find_byte_pieces
from albert_data.shards.rows import restore_ids
from albert_data.text.character_bits import FULL_STOPS
from albert_data.text.unicode_tables import category
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE

MAX_PAIRS = 40_000  # a standard error of 0.3 points, at best
_MAX_NAMES = 150  # columns for the most frequent features
STOPS = ".!?…‥" + FULL_STOPS
_QUOTES, _BRACKETS = ("“„「『《〈﹁﹃", "”」』》〉﹂﹄"), ("([{（［｛〔【〖", ")]}）］｝〕】〗")
_GUILLEMETS = "«‹", "»›"  # in French; in German and Danish the other way round, so they leave nothing open
_STRAIGHT, _UNKNOWN = "\"＂'＇", "\ufffd"
CLOSERS = _QUOTES[1] + _BRACKETS[1] + "".join(_GUILLEMETS) + _STRAIGHT + "’"
_AFTER = re.escape(STOPS + CLOSERS) + r"\s"  # what may stand between a stop and the next sentence
_END = re.compile(f"[{re.escape(STOPS)}][{_AFTER}]*(?=[^{_AFTER}])")
_MARKS = {
    "an opening quotation mark": _QUOTES[0] + _GUILLEMETS[0],
    "a closing quotation mark": _QUOTES[1] + _GUILLEMETS[1],
    "a straight quotation mark": _STRAIGHT,
    "an apostrophe": "‘’",  # may be quotation marks or not
    "an opening bracket": _BRACKETS[0],
    "a closing bracket": _BRACKETS[1],
    "a stop": STOPS,
    "an unknown piece": _UNKNOWN,
}
_CATEGORIES = {  # general categories of Unicode, or their first letter
    "Ll": "a lower-case letter",
    "Lu": "a capital",
    "Lt": "a capital",
    "L": "a letter without case",
    "M": "a letter without case",
    "N": "a digit",
    "Pd": "a dash",
    "P": "other punctuation",
}
LENGTHS = ("is longer", "has the longer first sentence", "has the longer last sentence")
QUOTES = ("leaves a quotation mark open", "closes a quotation mark that it did not open")
BRACKETS = ("leaves a bracket open", "closes a bracket that it did not open")
FRAGMENTS = ("begins in lower case", "ends without a stop", *BRACKETS)


@cache
def find_kind(character: str) -> str:
    """What a character is, in words; "" is nothing visible."""
    if not character:
        return "nothing visible"
    found = category(character)
    marks = (kind for kind, marks in _MARKS.items() if character in marks)
    return next(marks, None) or _CATEGORIES.get(found) or _CATEGORIES.get(found[0], "a symbol")


class SegmentSurface(NamedTuple):
    """features: what it has or does; lengths: the values of LENGTHS, for sentences in characters."""

    features: list[str]
    lengths: tuple[int, int, int]


def measure_segment(pieces: Sequence[str]) -> SegmentSurface:
    """What is seen of a segment. pieces: its tokens as text.

    >>> measure_segment(["▁So", ".", "▁He", "▁le", "ft"]).lengths
    (5, 4, 7)
    """
    text = "".join(pieces).replace(VISIBLE_SPACE, " ").strip()
    shown = [name for piece in (*pieces[:2], *pieces[-2:]) if (name := piece.strip(VISIBLE_SPACE))] or [""]
    features = []
    for verb, character, piece in (("begins", text[:1], shown[0]), ("ends", text[-1:], shown[-1])):
        features.append(f"{verb} with {find_kind(character)}")
        features.append(f"{verb} with the piece “{piece}”")
    if next((character for character in text if character.isalnum()), "").islower():
        features.append(FRAGMENTS[0])
    if not text.rstrip(f"{CLOSERS} ").endswith(tuple(STOPS)):
        features.append(FRAGMENTS[1])
    for (opening, closing), names in ((_QUOTES, QUOTES), (_BRACKETS, BRACKETS)):
        marks = [mark in closing for mark in re.findall(f"[{re.escape(opening + closing)}]", text)]
        if marks and marks[0] == marks[-1]:  # otherwise it leaves none open, or closes one and leaves another open
            features.append(names[marks[0]])
    ends = [0, *(found.end() for found in _END.finditer(text)), len(text)]
    return SegmentSurface(features, (len(pieces), ends[1], len(text) - ends[-2]))


class Surface(NamedTuple):
    """Pairs, measured. A column holds the value of A less that of B: exchanging the segments negates a guess."""

    names: list[str]  # [features] what a segment has or does; each of LENGTHS has two columns
    columns: np.ndarray  # float32 [pairs, features]
    is_swapped: np.ndarray  # bool [pairs]
    keys: np.ndarray  # uint64 [pairs], of the documents
    rows: np.ndarray  # int64 [pairs], of all splits

    def take(self, names: Sequence[str]) -> Surface:
        """The same pairs with these features alone."""
        chosen = [i for i, name in enumerate(self.names) if name in names]
        return self._replace(names=[self.names[i] for i in chosen], columns=self.columns[:, chosen])

    def pick(self, is_chosen: np.ndarray) -> Surface:
        """Some of the pairs with all features. is_chosen: bool [pairs]."""
        return Surface(self.names, *(values[is_chosen] for values in self[1:]))


def measure_pairs(subject: Subject) -> Surface:
    """Measure the first MAX_PAIRS pairs of a folder: rows are shuffled, so they are a random sample.

    Pairs of two documents have no order and are left out.
    """
    pieces, first = _name_pieces(subject.tokenizer), 0
    pairs, segments = list[tuple[bool, int, int]](), list[SegmentSurface]()
    for batch in read_batches(subject.shards):
        is_ordered = (batch.sop_label == SOP_IN_ORDER) | (batch.sop_label == SOP_SWAPPED)
        original = restore_ids(batch)
        for row in np.flatnonzero(is_ordered)[: MAX_PAIRS - len(pairs)].tolist():
            begin, end = batch.offsets[row : row + 2].tolist()
            sep = begin + 1 + int(batch.segment_a_len[row])
            for ids in (original[begin + 1 : sep], original[sep + 1 : end - 1]):
                segments.append(measure_segment([pieces[i] for i in ids.tolist()]))
            pairs.append((batch.sop_label[row] == SOP_SWAPPED, int(batch.document_keys[row]), first + row))
        first += len(batch)
        if len(pairs) == MAX_PAIRS:
            break
    is_swapped, keys, rows = zip(*pairs, strict=True) if pairs else ((), (), ())
    return Surface(
        *_tabulate(segments), np.array(is_swapped, bool), np.array(keys, np.uint64), np.array(rows, np.int64)
    )


def _name_pieces(tokenizer: Tokenizer) -> list[str]:
    """The text of each piece. An unknown, special or byte piece shows U+FFFD, as invalid bytes of a corpus do."""
    is_hidden = tokenizer.specials.is_special | find_byte_pieces(tokenizer)
    is_hidden[tokenizer.unk_id] = True
    pairs = zip(tokenizer.piece_texts, is_hidden.tolist(), strict=True)
    return [_UNKNOWN if hides else piece for piece, hides in pairs]


def _tabulate(segments: Sequence[SegmentSurface]) -> tuple[list[str], np.ndarray]:
    """The first two fields of Surface. segments: A and B of each pair."""
    counts = Counter(name for segment in segments for name in segment.features)
    most_frequent = sorted(counts, key=lambda name: (-counts[name], name))[:_MAX_NAMES]
    names = list(dict.fromkeys([*FRAGMENTS, *most_frequent]))
    numbers = {name: number for number, name in enumerate(names)}
    values = np.zeros((len(segments), len(names)), np.float32)
    for row, segment in zip(values, segments, strict=True):
        row[[numbers[name] for name in segment.features if name in numbers]] = 1
    lengths = np.array([segment.lengths for segment in segments], np.float32).reshape(-1, len(LENGTHS))
    logs = np.log1p(lengths)
    values, logs = (table[::2] - table[1::2] for table in (values, logs))
    return [*names, *LENGTHS, *LENGTHS], np.concatenate([values, np.sign(logs), logs], axis=1)
