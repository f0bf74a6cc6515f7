"""The surface of segments, and features of it by which a model could guess the order of a pair.

In: the rows of splits. Out: for each segment of each pair a few numbers, from the ids before masking (how it begins and
ends, what it leaves open, how long its outer sentences are), and of these features. What a piece shows (its first
character, its quotation marks) is found once for each piece of the vocabulary, not for each token.

Here a sentence ends at a piece whose last character, except closing marks, is a stop. So "Mr." ends one: lengths of
sentences are distances between stops, measured alike in both segments.

A feature, such as the first character, has states, each named in words ("begins with a capital"); a segment is in one
of them. A group is a set of features that are tested together. The states of all features are numbered in one sequence.
A state of A has a weight w, the same state of B has -w, so exchanging the segments negates a guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from albert_data.data import ExampleArrays
from albert_data.examples.pairs import SOP_IN_ORDER, SOP_SWAPPED
from albert_data.inspect.audit.rows import read_batches
from albert_data.kernels import kernel
from albert_data.shards.decoding import find_byte_pieces
from albert_data.shards.reader import Shards
from albert_data.shards.rows import restore_ids
from albert_data.text.unicode_tables import category
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE

MAX_PAIRS = 200_000  # gives a standard error of 0.15 points, at best, in a few seconds
STOPS = ".!?…‥。．！？؟۔।॥།༎။።፧፨។៕։⸮"
OPENING_QUOTES, CLOSING_QUOTES, STRAIGHT_QUOTES = "“„「『《〈﹁﹃", "”」』》〉﹂﹄", "\"＂'＇"
OPENING_GUILLEMETS, CLOSING_GUILLEMETS = "«‹", "»›"  # in French; in German and Danish the other way round
OPENING_BRACKETS, CLOSING_BRACKETS = "([{（［｛〔【〖", ")]}）］｝〕】〗"
APOSTROPHES = "‘’"  # may be quotation marks or not, so the balance leaves them out
# Both guillemets, as in German « closes.
CLOSERS = CLOSING_QUOTES + CLOSING_BRACKETS + OPENING_GUILLEMETS + CLOSING_GUILLEMETS + STRAIGHT_QUOTES + "’"
_PAIRS = (  # the order of the depths in marks
    (OPENING_QUOTES, CLOSING_QUOTES),
    (OPENING_BRACKETS, CLOSING_BRACKETS),
    (OPENING_GUILLEMETS, CLOSING_GUILLEMETS),
)
_VISIBLE, _HAS_LETTER, _IS_STOP, _IS_CLOSER = 1, 2, 4, 8


def tabulate_pieces(tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """What each piece of a vocabulary shows.

    traits: uint8 [vocabulary], whether it shows a character, a letter or digit, ends in a stop, is all closing marks
    marks: int8 [vocabulary, 7], by how much it changes the depth of quotation marks, and the lowest depth within it;
        the same for brackets, then for guillemets; the number of its straight double quotation marks
    """
    texts = show_pieces(tokenizer)
    traits, marks = list(map(_find_traits, texts)), list(map(_count_marks, texts))
    return np.array(traits, np.uint8), np.array(marks, np.int8).reshape(len(texts), 7)


def show_pieces(tokenizer: Tokenizer) -> list[str]:
    """The text of each piece without its space; an unknown, special or byte piece shows U+FFFD.

    A build writes U+FFFD in place of invalid bytes too: a piece of that is taken for an unknown one.
    """
    hidden = tokenizer.specials.is_special | find_byte_pieces(tokenizer)
    hidden[tokenizer.unk_id] = True
    return [
        "\ufffd" if is_hidden else piece.replace(VISIBLE_SPACE, "")
        for piece, is_hidden in zip(tokenizer.piece_texts, hidden.tolist(), strict=True)
    ]


@cache
def is_letter_or_digit(character: str) -> bool:
    return category(character)[0] in "LN"


def _find_traits(text: str) -> int:
    body = text.rstrip(CLOSERS)
    shows = (bool(text), any(map(is_letter_or_digit, text)), bool(body) and body[-1] in STOPS, bool(text) and not body)
    return sum(trait for trait, has in zip((_VISIBLE, _HAS_LETTER, _IS_STOP, _IS_CLOSER), shows, strict=True) if has)


def _count_marks(text: str) -> list[int]:
    counts = []
    for opening, closing in _PAIRS:
        steps = ((character in opening) - (character in closing) for character in text)
        depths = list(accumulate(steps, initial=0))
        counts += [depths[-1], min(depths)]
    return [*counts, sum(text.count(mark) for mark in '"＂')]


@dataclass(frozen=True, kw_only=True)
class Surface:
    """Pairs, measured. All but the last two are int32 [pairs, 2], for A and B."""

    lens: np.ndarray  # tokens
    first_pieces: np.ndarray  # the first piece that shows a character; -1 where there is none
    last_pieces: np.ndarray  # the last one
    letter_pieces: np.ndarray  # the first one with a letter or digit
    unopened: np.ndarray  # quotation marks that are closed and not opened in the segment
    unclosed: np.ndarray  # those that are opened and not closed
    unopened_brackets: np.ndarray
    unclosed_brackets: np.ndarray
    unopened_guillemets: np.ndarray
    unclosed_guillemets: np.ndarray
    straight: np.ndarray  # straight double quotation marks
    first_lens: np.ndarray  # tokens of the first sentence
    last_lens: np.ndarray  # tokens of the last sentence
    ends_open: np.ndarray  # 1 where no stop ends the segment
    is_swapped: np.ndarray  # bool [pairs]
    keys: np.ndarray  # uint64 [pairs], of the documents

    def __len__(self) -> int:
        return len(self.keys)


MEASURES = [field.name for field in fields(Surface)][:-2]  # without is_swapped and keys


def gather_surface(opened: Sequence[Shards]) -> Surface:
    """Measure the first pairs of these splits, at most MAX_PAIRS: rows are shuffled, so they are a random sample.

    Pairs of two documents have no order and are left out.
    """
    traits, marks = tabulate_pieces(opened[0].tokenizer)
    measured, labels, keys, num_left = [], [], [], MAX_PAIRS
    for batch in read_batches(opened):
        is_ordered = (batch.sop_label == SOP_IN_ORDER) | (batch.sop_label == SOP_SWAPPED)
        rows = np.flatnonzero(is_ordered)[:num_left]
        ids = restore_ids(batch)
        out = np.empty((len(rows), 2, len(MEASURES)), np.int32)
        measure_surface(batch.arrays, ids, rows, traits, marks, out)
        measured.append(out)
        labels.append(batch.sop_label[rows] == SOP_SWAPPED)
        keys.append(batch.document_keys[rows])
        num_left -= len(rows)
        if num_left == 0:
            break
    values = np.concatenate(measured)
    return Surface(
        **{name: values[:, :, i] for i, name in enumerate(MEASURES)},
        is_swapped=np.concatenate(labels),
        keys=np.concatenate(keys),
    )


@kernel
def measure_surface(
    batch: ExampleArrays, original: np.ndarray, rows: np.ndarray, traits: np.ndarray, marks: np.ndarray, out: np.ndarray
) -> None:
    """Measure both segments of the given rows. original: the ids before masking.

    out: int32, (rows, 2, MEASURES), in the order of Surface's fields. Kinds of marks are in the order of
    tabulate_pieces: quotation marks, brackets, guillemets.
    """
    depths, lowest = np.empty(3, np.int64), np.empty(3, np.int64)
    for i in range(len(rows)):
        begin, end = batch.offsets[rows[i]], batch.offsets[rows[i] + 1]
        sep = begin + 1 + batch.segment_a_len[rows[i]]
        for segment in range(2):
            first, stop = (begin + 1, sep) if segment == 0 else (sep + 1, end - 1)
            first_piece = last_piece = letter_piece = -1
            depths[:], lowest[:] = 0, 0
            straight, first_len, last_begin, is_over = 0, 0, first, False
            for at in range(first, stop):
                piece = original[at]
                trait = traits[piece]
                if not trait & _VISIBLE:
                    continue
                if first_piece < 0:
                    first_piece = piece
                last_piece = piece
                if letter_piece < 0 and trait & _HAS_LETTER:
                    letter_piece = piece
                for kind in range(3):  # e.g. "(a)) (": depth 1, 0, -1, 0, so one is unopened and one unclosed
                    lowest[kind] = min(lowest[kind], depths[kind] + marks[piece, 2 * kind + 1])
                    depths[kind] += marks[piece, 2 * kind]
                straight += marks[piece, 6]
                if trait & _IS_STOP:
                    is_over = True
                elif is_over and not trait & _IS_CLOSER:  # the first token after a stop and its closing marks
                    if first_len == 0:
                        first_len = at - first
                    last_begin, is_over = at, False
            out[i, segment, 0] = stop - first
            out[i, segment, 1] = first_piece
            out[i, segment, 2] = last_piece
            out[i, segment, 3] = letter_piece
            for kind in range(3):
                out[i, segment, 4 + 2 * kind] = -lowest[kind]
                out[i, segment, 5 + 2 * kind] = depths[kind] - lowest[kind]
            out[i, segment, 10] = straight
            out[i, segment, 11] = first_len if first_len > 0 else stop - first
            out[i, segment, 12] = stop - last_begin
            out[i, segment, 13] = not is_over


NUM_CHARACTERS, NUM_PIECES = 60, 100
HEADING_LEN = 12  # a segment of so few tokens without a stop looks like a heading
_LENGTH_EDGES = np.unique(np.round(2.0 ** np.arange(0, 10, 0.5)).astype(int))
_LETTERS = {  # general categories of Unicode, or their first letter
    "Ll": "a lower-case letter",
    "Lu": "a capital",
    "Lt": "a capital",
    "L": "a letter without case",
    "M": "a letter without case",
    "N": "a digit",
}
_MARKS = {
    "an opening quotation mark": OPENING_QUOTES + OPENING_GUILLEMETS,
    "a closing quotation mark": CLOSING_QUOTES + CLOSING_GUILLEMETS,
    "a straight quotation mark": STRAIGHT_QUOTES,
    "an apostrophe": APOSTROPHES,
    "an opening bracket": OPENING_BRACKETS,
    "a closing bracket": CLOSING_BRACKETS,
    "a stop": STOPS,
}
_OTHERS = {"Pd": "a dash", "P": "other punctuation", "S": "a symbol"}
_CATEGORIES = {**_LETTERS, **_OTHERS}
KINDS = (*dict.fromkeys(_LETTERS.values()), *_MARKS, *_OTHERS.values(), "an unknown piece", "nothing visible")
_STOP = KINDS.index("a stop")
CASES = ("a letter in lower case", "a capital", "a word in capitals", "a letter without case", "a digit", "none")


class Feature(NamedTuple):
    """values: int [pairs, 2], the states of A and B, from 0 on; names: of these states."""

    group: str
    names: Sequence[str]
    values: np.ndarray


class Features:
    """Features with their states numbered in one sequence.

    names, groups: of each state
    states_a, states_b: int16 [pairs, features]
    """

    def __init__(self, parts: Sequence[Feature]) -> None:
        self._parts = parts
        self.names = [name for part in parts for name in part.names]
        self.groups = [part.group for part in parts for _ in part.names]
        firsts = np.cumsum([0, *(len(part.names) for part in parts)])[:-1]
        shifted = [part.values + first for part, first in zip(parts, firsts, strict=True)]
        self.states_a, self.states_b = (
            np.stack([values[:, segment] for values in shifted], axis=1).astype(np.int16) for segment in range(2)
        )

    @property
    def all_groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.groups))

    def choose(self, groups: tuple[str, ...]) -> Features:
        """Only the features of these groups, with their states numbered anew."""
        return Features([part for part in self._parts if part.group in groups])


@cache
def find_kind(character: str) -> int:
    """The number in KINDS of what a segment begins or ends with; "" is nothing visible."""
    if not character:
        return KINDS.index("nothing visible")
    if character == "\ufffd":
        return KINDS.index("an unknown piece")
    for kind, marks in _MARKS.items():
        if character in marks:
            return KINDS.index(kind)
    found = category(character)
    return KINDS.index(_CATEGORIES.get(found) or _CATEGORIES.get(found[0], "a symbol"))


def find_case(text: str) -> int:
    """The number in CASES of the first letter or digit of a piece."""
    letters = list(filter(is_letter_or_digit, text))
    if not letters:
        return CASES.index("none")
    if len(letters) > 1 and all(category(letter) == "Lu" for letter in letters):
        return CASES.index("a word in capitals")
    kind = KINDS[find_kind(letters[0])]
    return CASES.index("a letter in lower case" if kind == "a lower-case letter" else kind)


def make_features(surface: Surface, tokenizer: Tokenizer) -> Features:
    """All features of these pairs."""
    parts = [*_describe_ends(surface, show_pieces(tokenizer)), *_describe_balance(surface), *_describe_lengths(surface)]
    return Features([part._replace(values=part.values.astype(np.int16)) for part in parts])


def _describe_ends(surface: Surface, texts: Sequence[str]) -> Iterator[Feature]:
    # Where a segment shows no piece, the surface has -1: the index of the "" at the end.
    first, last = [*(text[:1] for text in texts), ""], [*(text[-1:] for text in texts), ""]
    begins = np.array(list(map(find_kind, first)))[surface.first_pieces]
    ends = np.array(list(map(find_kind, last)))[surface.last_pieces]
    yield Feature("marks", [f"begins with {kind}" for kind in KINDS], begins)
    yield Feature("marks", [f"ends with {kind}" for kind in KINDS], ends)
    # All segments that end with a stop are in the state _STOP, whatever marks follow it.
    stops = [f"ends with {kind} and without a stop" for kind in KINDS]
    stops[_STOP] = "ends with a stop, closing marks aside"
    yield Feature("stops", stops, np.where(surface.ends_open, ends, _STOP))
    joins = [f"ends with {end} where the other begins with {begin}" for end in KINDS for begin in KINDS]
    yield Feature("joins", joins, len(KINDS) * ends + begins[:, ::-1])
    cases = np.array([*map(find_case, texts), CASES.index("none")])[surface.letter_pieces]
    yield Feature("case", [f"has {case} as its first letter" for case in CASES], cases)
    lowers = ["begins in lower case", "begins not in lower case"]
    yield Feature("lower case", lowers, (cases != CASES.index("a letter in lower case")).astype(int))
    whole = [*texts, ""]
    yield _choose_frequent("begins with {} “{}”", "character", first, surface.first_pieces, NUM_CHARACTERS)
    yield _choose_frequent("ends with {} “{}”", "character", last, surface.last_pieces, NUM_CHARACTERS)
    yield _choose_frequent("begins with {} “{}”", "piece", whole, surface.first_pieces, NUM_PIECES)
    yield _choose_frequent("ends with {} “{}”", "piece", whole, surface.last_pieces, NUM_PIECES)


def _choose_frequent(words: str, noun: str, texts: list[str], pieces: np.ndarray, count: int) -> Feature:
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
    return Feature("words", [*shown, rare], states[which][pieces])


def _describe_balance(surface: Surface) -> Iterator[Feature]:
    yield _balance("quotes", "quotation mark", surface.unopened, surface.unclosed)
    yield _balance("quotes", "guillemet", surface.unopened_guillemets, surface.unclosed_guillemets)
    yield _balance("brackets", "bracket", surface.unopened_brackets, surface.unclosed_brackets)
    names = ["has an odd number of straight quotation marks", "has an even number of straight quotation marks"]
    yield Feature("quotes", names, 1 - surface.straight % 2)
    yield Feature("stops", ["ends without a stop", "ends with a stop"], 1 - surface.ends_open)
    is_heading = surface.ends_open.astype(bool) & (surface.lens <= HEADING_LEN)
    names = ["is short and without a stop, like a heading", "is no heading"]
    yield Feature("headings", names, 1 - is_heading)


def _balance(group: str, noun: str, unopened: np.ndarray, unclosed: np.ndarray) -> Feature:
    names = [
        f"has each {noun} in its pair",
        f"closes a {noun} that it did not open",
        f"leaves a {noun} open",
        f"closes a {noun} that it did not open and leaves one open",
    ]
    return Feature(group, names, (unopened > 0) + 2 * (unclosed > 0))


def _describe_lengths(surface: Surface) -> Iterator[Feature]:
    bounds = [f"{a} to {b - 1} tokens" for a, b in zip(_LENGTH_EDGES, _LENGTH_EDGES[1:], strict=False)]
    names = ["no token", *bounds, f"{_LENGTH_EDGES[-1]} tokens and more"]
    for which, lens in (("first", surface.first_lens), ("last", surface.last_lens)):
        binned = np.searchsorted(_LENGTH_EDGES, lens, side="right")
        shown = [f"has a {which} sentence of {name}" for name in names]
        yield Feature("lengths", shown, binned)
        is_longer = np.sign(lens - lens[:, ::-1]) + 1
        shown = [f"has the {degree} {which} sentence" for degree in ("shorter", "equal", "longer")]
        yield Feature("lengths", shown, is_longer)
