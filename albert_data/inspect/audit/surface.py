"""The surface of segments, and features of it by which a model could guess the order of a pair without reading.

In: the rows of splits. Out: for each segment of each pair, from the ids before masking, how it begins and ends, what it
leaves open, and how long its outer sentences are; and of these features. What a piece shows (its first character, its
quotation marks) is found once for each piece of the vocabulary, not for each token.

Here a sentence ends at a piece whose last character, except closing marks, is a stop. So "Mr." ends one: lengths of
sentences are distances between stops, measured alike in both segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from albert_data.examples.pairs import SOP_IN_ORDER, SOP_SWAPPED
from albert_data.inspect.audit.rows import read_batches
from albert_data.shards.decoding import find_byte_pieces
from albert_data.shards.reader import Shards
from albert_data.shards.rows import restore_ids
from albert_data.text.unicode_tables import category
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE

MAX_PAIRS = 100_000  # gives a standard error of 0.2 points, at best
STOPS = ".!?…‥。．！？؟۔।॥།༎။።፧፨។៕։⸮"
_QUOTES, STRAIGHT_QUOTES = ("“„「『《〈﹁﹃", "”」』》〉﹂﹄"), "\"＂'＇"
_GUILLEMETS = "«‹", "»›"  # in French; in German and Danish the other way round, so the balance leaves them out
_BRACKETS = "([{（［｛〔【〖", ")]}）］｝〕】〗"
CLOSERS = _QUOTES[1] + _BRACKETS[1] + "".join(_GUILLEMETS) + STRAIGHT_QUOTES + "’"
_MARKS = {
    "an opening quotation mark": _QUOTES[0] + _GUILLEMETS[0],
    "a closing quotation mark": _QUOTES[1] + _GUILLEMETS[1],
    "a straight quotation mark": STRAIGHT_QUOTES,
    "an apostrophe": "‘’",  # may be quotation marks or not, so the balance leaves them out
    "an opening bracket": _BRACKETS[0],
    "a closing bracket": _BRACKETS[1],
    "a stop": STOPS,
    "an unknown piece": "\ufffd",
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
_OTHER, _NOTHING = "a symbol", "nothing visible"
KINDS = (*_MARKS, *dict.fromkeys(_CATEGORIES.values()), _OTHER, _NOTHING)  # of a segment's first or last character
# What a piece shows. begin, end: the numbers in KINDS of its first and last character; quotes, brackets: the first and
# the last of its marks, 1 where that opens, -1 where it closes, 0 without one.
_PIECE = np.dtype(
    [(name, bool) for name in ("is_visible", "has_letter", "is_lower", "is_stop", "is_closer")]
    + [("begin", "i1"), ("end", "i1"), ("quotes", "i1", 2), ("brackets", "i1", 2)]
)
_SEGMENT = np.dtype(
    [
        ("len", "i4"),  # tokens
        ("first_len", "i4"),  # of the first sentence
        ("last_len", "i4"),  # of the last sentence
        ("first", "i4"),  # the first piece that shows a character
        ("last", "i4"),
        ("is_lower", bool),  # the first letter or digit is a letter in lower case
        ("is_open", bool),  # no stop ends it
        ("opens", bool, 2),  # leaves quotation marks open; brackets
        ("closes", bool, 2),  # closes quotation marks that it did not open; brackets
    ]
)
LENGTHS, FRAGMENTS, STYLE = "lengths", "fragments", "style"  # groups of features
_NUM_PIECES = 50


def tabulate_pieces(tokenizer: Tokenizer) -> tuple[list[str], np.ndarray]:
    """The text of each piece without its space, and what it shows: _PIECE. The last entry stands for no piece.

    An unknown, special or byte piece shows U+FFFD. A build writes U+FFFD in place of invalid bytes too: a piece of that
    is taken for an unknown one.
    """
    is_hidden = tokenizer.specials.is_special | find_byte_pieces(tokenizer)
    is_hidden[tokenizer.unk_id] = True
    shown = zip(tokenizer.piece_texts, is_hidden.tolist(), strict=True)
    texts = [*("\ufffd" if hides else piece.replace(VISIBLE_SPACE, "") for piece, hides in shown), ""]
    return texts, np.array(list(map(_describe, texts)), _PIECE)


def _describe(text: str) -> tuple[object, ...]:
    letters = [found for character in text if (found := category(character))[0] in "LN"]
    body = text.rstrip(CLOSERS)
    ends_in_stop = bool(body) and body[-1] in STOPS
    marks = []
    for opening, closing in (_QUOTES, _BRACKETS):
        signs = [1 if character in opening else -1 for character in text if character in opening + closing]
        marks.append((signs[0], signs[-1]) if signs else (0, 0))
    kinds = (KINDS.index(find_kind(character)) for character in (text[:1], text[-1:]))
    traits = (bool(text), bool(letters), letters[:1] == ["Ll"], ends_in_stop, bool(text) and not body)
    return (*traits, *kinds, *marks)


def find_kind(character: str) -> str:
    """Which of KINDS a character is; "" is nothing visible."""
    if not character:
        return _NOTHING
    for kind, marks in _MARKS.items():
        if character in marks:
            return kind
    found = category(character)
    return _CATEGORIES.get(found) or _CATEGORIES.get(found[0], _OTHER)


class Surface(NamedTuple):
    """Pairs, measured."""

    segments: np.ndarray  # _SEGMENT [pairs, 2], of A and B
    is_swapped: np.ndarray  # bool [pairs]
    keys: np.ndarray  # uint64 [pairs], of the documents
    rows: np.ndarray  # int64 [pairs], of all splits


def gather_surface(opened: Sequence[Shards], table: np.ndarray) -> Surface:
    """Measure the first pairs of these splits, at most MAX_PAIRS: rows are shuffled, so they are a random sample.

    Pairs of two documents have no order and are left out. table: by tabulate_pieces.
    """
    parts, num_left, num_before = [], MAX_PAIRS, 0
    for batch in read_batches(opened):
        is_ordered = (batch.sop_label == SOP_IN_ORDER) | (batch.sop_label == SOP_SWAPPED)
        rows = np.flatnonzero(is_ordered)[:num_left]
        begins, seps = batch.offsets[rows] + 1, batch.offsets[rows] + 1 + batch.segment_a_len[rows]
        firsts, ends = np.stack([begins, seps + 1], axis=1), np.stack([seps, batch.offsets[rows + 1] - 1], axis=1)
        segments = measure_segments(restore_ids(batch), firsts.ravel(), (ends - firsts).ravel(), table)
        is_swapped = batch.sop_label[rows] == SOP_SWAPPED
        parts.append((segments.reshape(-1, 2), is_swapped, batch.document_keys[rows], rows + num_before))
        num_left, num_before = num_left - len(rows), num_before + len(batch)
        if num_left == 0:
            break
    return Surface(*map(np.concatenate, zip(*parts, strict=True)))


def measure_segments(ids: np.ndarray, firsts: np.ndarray, lens: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Measure segments: _SEGMENT, of each. firsts: the index of its first token in `ids`; lens: its tokens."""
    stops = np.cumsum(lens)
    begins, owners = stops - lens, np.repeat(np.arange(len(lens)), lens)
    places = np.arange(len(owners)) + np.repeat(firsts - begins, lens)
    tokens = np.append(ids[places], len(table) - 1)  # an index of -1 stands for no token

    def find_ends(indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first and the last of these tokens in each segment, -1 where it has none."""
        first, last = np.full((2, len(lens)), -1)
        first[owners[indices[::-1]]] = indices[::-1]  # of several values the last is kept
        last[owners[indices]] = indices
        return first, last

    out = np.zeros(len(lens), _SEGMENT)
    first, last = find_ends(np.flatnonzero(table["is_visible"][tokens]))
    out["first"], out["last"] = tokens[first], tokens[last]
    first, _ = find_ends(np.flatnonzero(table["has_letter"][tokens]))
    out["is_lower"] = table["is_lower"][tokens[first]]
    for number, marks in enumerate(("quotes", "brackets")):
        first, last = find_ends(np.flatnonzero(table[marks][:, 0][tokens]))
        out["closes"][:, number] = table[marks][tokens[first], 0] < 0
        out["opens"][:, number] = table[marks][tokens[last], 1] > 0
    body = np.flatnonzero((table["is_visible"] & ~table["is_closer"])[tokens])
    is_stop, is_same = table["is_stop"][tokens[body]], owners[body[1:]] == owners[body[:-1]]
    out["is_open"] = ~table["is_stop"][tokens[find_ends(body)[1]]]
    # The first token after a stop and its closing marks begins a sentence.
    first, last = find_ends(body[1:][is_stop[:-1] & ~is_stop[1:] & is_same])
    out["len"] = lens
    out["first_len"] = np.where(first < 0, lens, first - begins)
    out["last_len"] = np.where(last < 0, lens, stops - last)
    return out


class Features(NamedTuple):
    """A column for each feature: its value for A less that for B. So exchanging the segments negates a guess."""

    groups: Sequence[str]
    names: Sequence[str]  # what a segment has or does
    columns: np.ndarray  # float32 [pairs, features]


def make_features(segments: np.ndarray, texts: Sequence[str], table: np.ndarray) -> Features:
    """All features of these pairs. texts, table: by tabulate_pieces."""
    groups, names, columns = zip(*_list_features(segments, texts, table), strict=True)
    differences = [column[:, 0] - column[:, 1] for column in (values.astype(np.float32) for values in columns)]
    return Features(groups, names, np.stack(differences, axis=1))


def _list_features(
    segments: np.ndarray, texts: Sequence[str], table: np.ndarray
) -> Iterator[tuple[str, str, np.ndarray]]:
    """Group, name and value of each feature: the values have the shape of `segments`."""
    for verb, pieces, kinds in (("begins", segments["first"], "begin"), ("ends", segments["last"], "end")):
        for number, kind in enumerate(KINDS):
            yield STYLE, f"{verb} with {kind}", table[kinds][pieces] == number
        for piece in np.argsort(-np.bincount(pieces.ravel()), kind="stable")[:_NUM_PIECES].tolist():
            yield STYLE, f"{verb} with the piece “{texts[piece]}”", pieces == piece
    yield FRAGMENTS, "begins in lower case", segments["is_lower"]
    yield FRAGMENTS, "ends without a stop", segments["is_open"]
    for number, (group, noun) in enumerate(((STYLE, "quotation mark"), (FRAGMENTS, "bracket"))):
        yield group, f"leaves a {noun} open", segments["opens"][:, :, number]
        yield group, f"closes a {noun} that it did not open", segments["closes"][:, :, number]
    for field, name in (
        ("len", "is longer"),
        ("first_len", "has the longer first sentence"),
        ("last_len", "has the longer last sentence"),
    ):
        yield LENGTHS, name, segments[field] > segments[field][:, ::-1]
        yield LENGTHS, name, np.log1p(segments[field])
