"""Features by which a model could guess the order of a pair.

In: the surface of pairs. Out: for each pair and each feature the state of A and the state of B. A feature, such as the
first character, has states, each named in words ("begins with a capital"); a segment is in one of them. A group is a
set of features that are tested together. The states of all features are numbered in one sequence. A state of A
has a weight w, the same state of B has -w, so exchanging the segments negates a guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from albert_data.inspect.audit.surface import (
    APOSTROPHES,
    CLOSING_BRACKETS,
    CLOSING_GUILLEMETS,
    CLOSING_QUOTES,
    OPENING_BRACKETS,
    OPENING_GUILLEMETS,
    OPENING_QUOTES,
    STOPS,
    STRAIGHT_QUOTES,
    Surface,
    show_pieces,
)
from albert_data.tokenizer.model import Tokenizer
from albert_data.unicode_tables import category

NUM_CHARACTERS, NUM_PIECES = 60, 100
HEADING_LEN = 12  # a segment of so few tokens without a stop looks like a heading
_LENGTH_EDGES = np.unique(np.round(2.0 ** np.arange(0, 10, 0.5)).astype(int))
KINDS = (
    "a lower-case letter",
    "a capital",
    "a letter without case",
    "a digit",
    "an opening quotation mark",
    "a closing quotation mark",
    "a straight quotation mark",
    "an apostrophe",
    "an opening bracket",
    "a closing bracket",
    "a stop",
    "a dash",
    "other punctuation",
    "a symbol",
    "an unknown piece",
    "nothing visible",
)
_STOP = KINDS.index("a stop")
_MARKS = (  # in the order of KINDS, from "an opening quotation mark" on
    OPENING_QUOTES + OPENING_GUILLEMETS,
    CLOSING_QUOTES + CLOSING_GUILLEMETS,
    STRAIGHT_QUOTES,
    APOSTROPHES,
    OPENING_BRACKETS,
    CLOSING_BRACKETS,
    STOPS,
)
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
CASES = ("a letter in lower case", "a capital", "a word in capitals", "a letter without case", "a digit", "none")


@dataclass(frozen=True, kw_only=True)
class Features:
    """states_a, states_b: int16, (pairs, features). names, groups: of each state; firsts: the first state of each
    feature, and the number of all states.
    """

    states_a: np.ndarray
    states_b: np.ndarray
    names: list[str]
    groups: list[str]
    firsts: list[int]

    @property
    def all_groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.groups))

    def choose(self, groups: tuple[str, ...]) -> Features:
        """Only the features of these groups, with their states numbered anew."""
        chosen = [i for i, first in enumerate(self.firsts[:-1]) if self.groups[first] in groups]
        sizes = np.diff(self.firsts)[chosen]
        firsts = np.cumsum([0, *sizes])
        shift = (firsts[:-1] - np.array(self.firsts)[chosen]).astype(np.int16)
        states = [i for feature in chosen for i in range(self.firsts[feature], self.firsts[feature + 1])]
        return Features(
            states_a=self.states_a[:, chosen] + shift,
            states_b=self.states_b[:, chosen] + shift,
            names=[self.names[i] for i in states],
            groups=[self.groups[i] for i in states],
            firsts=firsts.tolist(),
        )


@dataclass(frozen=True, kw_only=True)
class _Feature:
    """values: of (pairs, 2), states from 0 on, named by `names`."""

    group: str
    names: Sequence[str]
    values: np.ndarray


@cache
def find_kind(character: str) -> int:
    """The number in KINDS of what a segment begins or ends with; "" is nothing visible."""
    if not character:
        return KINDS.index("nothing visible")
    if character == "\ufffd":
        return KINDS.index("an unknown piece")
    for kind, marks in enumerate(_MARKS, KINDS.index("an opening quotation mark")):
        if character in marks:
            return kind
    found = category(character)
    return KINDS.index(_CATEGORIES.get(found) or _CATEGORIES.get(found[0], "a symbol"))


def find_case(text: str) -> int:
    """The number in CASES of the first letter or digit of a piece."""
    letters = [character for character in text if category(character)[0] in "LN"]
    if not letters:
        return CASES.index("none")
    if len(letters) > 1 and all(category(letter) == "Lu" for letter in letters):
        return CASES.index("a word in capitals")
    kind = KINDS[find_kind(letters[0])]
    return CASES.index("a letter in lower case" if kind == "a lower-case letter" else kind)


def make_features(surface: Surface, tokenizer: Tokenizer) -> Features:
    """All features of these pairs."""
    features = [*_describe_ends(surface, show_pieces(tokenizer)), *_describe_balance(surface)]
    features += [*_describe_lengths(surface)]
    firsts = np.cumsum([0, *(len(feature.names) for feature in features)]).tolist()
    shifted = [feature.values + first for feature, first in zip(features, firsts, strict=False)]
    return Features(
        states_a=np.stack([values[:, 0] for values in shifted], axis=1).astype(np.int16),
        states_b=np.stack([values[:, 1] for values in shifted], axis=1).astype(np.int16),
        names=[name for feature in features for name in feature.names],
        groups=[feature.group for feature in features for _ in feature.names],
        firsts=firsts,
    )


def _describe_ends(surface: Surface, texts: Sequence[str]) -> Iterator[_Feature]:
    # Where a segment shows no piece, the surface has -1: the index of the "" at the end.
    first, last = [*(text[:1] for text in texts), ""], [*(text[-1:] for text in texts), ""]
    begins = np.array(list(map(find_kind, first)))[surface.first_pieces]
    ends = np.array(list(map(find_kind, last)))[surface.last_pieces]
    yield _Feature(group="marks", names=[f"begins with {kind}" for kind in KINDS], values=begins)
    yield _Feature(group="marks", names=[f"ends with {kind}" for kind in KINDS], values=ends)
    # All segments that end with a stop are in the state _STOP, whatever marks follow it.
    stops = [f"ends with {kind} and without a stop" for kind in KINDS]
    stops[_STOP] = "ends with a stop, closing marks aside"
    yield _Feature(group="stops", names=stops, values=np.where(surface.ends_open, ends, _STOP))
    joins = [f"ends with {end} where the other begins with {begin}" for end in KINDS for begin in KINDS]
    yield _Feature(group="joins", names=joins, values=len(KINDS) * ends + begins[:, ::-1])
    cases = np.array([*map(find_case, texts), CASES.index("none")])[surface.letter_pieces]
    yield _Feature(group="case", names=[f"has {case} as its first letter" for case in CASES], values=cases)
    lowers = ["begins in lower case", "begins not in lower case"]
    yield _Feature(
        group="lower case", names=lowers, values=(cases != CASES.index("a letter in lower case")).astype(int)
    )
    whole = [*texts, ""]
    yield _choose_frequent("begins with {} “{}”", "character", first, surface.first_pieces, NUM_CHARACTERS)
    yield _choose_frequent("ends with {} “{}”", "character", last, surface.last_pieces, NUM_CHARACTERS)
    yield _choose_frequent("begins with {} “{}”", "piece", whole, surface.first_pieces, NUM_PIECES)
    yield _choose_frequent("ends with {} “{}”", "piece", whole, surface.last_pieces, NUM_PIECES)


def _choose_frequent(words: str, noun: str, texts: list[str], pieces: np.ndarray, count: int) -> _Feature:
    """A state for each of the most frequent texts, and one for the others.

    texts: one for each piece, and "" at the end for the index -1, where no piece shows.
    """
    names, which = np.unique(np.array(texts), return_inverse=True)
    found = np.bincount(which[pieces].ravel(), minlength=len(names))
    chosen = np.argsort(-found, kind="stable")[:count]
    states = np.full(len(names), len(chosen))
    states[chosen] = np.arange(len(chosen))
    shown = [words.format(f"the {noun}", name) for name in names[chosen].tolist()]
    rare = words.replace(" “{}”", "").format(f"a rare {noun}")
    return _Feature(group="words", names=[*shown, rare], values=states[which][pieces])


def _describe_balance(surface: Surface) -> Iterator[_Feature]:
    yield _balance("quotes", "quotation mark", surface.unopened, surface.unclosed)
    yield _balance("quotes", "guillemet", surface.unopened_guillemets, surface.unclosed_guillemets)
    yield _balance("brackets", "bracket", surface.unopened_brackets, surface.unclosed_brackets)
    names = ["has an odd number of straight quotation marks", "has an even number of straight quotation marks"]
    yield _Feature(group="quotes", names=names, values=1 - surface.straight % 2)
    yield _Feature(group="stops", names=["ends without a stop", "ends with a stop"], values=1 - surface.ends_open)
    is_heading = surface.ends_open.astype(bool) & (surface.lens <= HEADING_LEN)
    names = ["is short and without a stop, like a heading", "is no heading"]
    yield _Feature(group="headings", names=names, values=1 - is_heading)


def _balance(group: str, noun: str, unopened: np.ndarray, unclosed: np.ndarray) -> _Feature:
    names = [
        f"has each {noun} in its pair",
        f"closes a {noun} that it did not open",
        f"leaves a {noun} open",
        f"closes a {noun} that it did not open and leaves one open",
    ]
    return _Feature(group=group, names=names, values=(unopened > 0) + 2 * (unclosed > 0))


def _describe_lengths(surface: Surface) -> Iterator[_Feature]:
    bounds = [f"{a} to {b - 1} tokens" for a, b in zip(_LENGTH_EDGES, _LENGTH_EDGES[1:], strict=False)]
    names = ["no token", *bounds, f"{_LENGTH_EDGES[-1]} tokens and more"]
    for which, lens in (("first", surface.first_lens), ("last", surface.last_lens)):
        binned = np.searchsorted(_LENGTH_EDGES, lens, side="right")
        shown = [f"has a {which} sentence of {name}" for name in names]
        yield _Feature(group="lengths", names=shown, values=binned)
        is_longer = np.sign(lens - lens[:, ::-1]) + 1
        shown = [f"has the {degree} {which} sentence" for degree in ("shorter", "equal", "longer")]
        yield _Feature(group="lengths", names=shown, values=is_longer)
