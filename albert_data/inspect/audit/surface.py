"""The surface of segments: how each begins and ends, what it leaves open, how long its outer sentences are.

In: the rows of splits. Out: for each segment of each pair a few numbers, from the ids before masking; features.py makes
features of them. What a piece shows (its first character, its quotation marks) is found once for each piece of the
vocabulary, not for each token.

Here a sentence ends at a piece whose last character, except closing marks, is a stop. So "Mr." ends one: lengths of
sentences are distances between stops, measured alike in both segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache

import numpy as np

from albert_data.data import ExampleArrays, Examples
from albert_data.examples.pairs import SOP_IN_ORDER, SOP_SWAPPED
from albert_data.inspect.decoding import find_byte_pieces
from albert_data.kernels import kernel
from albert_data.shards.reader import Shards
from albert_data.shards.rows import restore_ids
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.words import SPACE
from albert_data.unicode_tables import category

MAX_PAIRS = 200_000  # gives a standard error of 0.15 points, at best, in a few seconds
STOPS = ".!?…‥。．！？؟۔।॥།༎။።፧፨។៕։⸮"
OPENING_QUOTES, CLOSING_QUOTES, STRAIGHT_QUOTES = "“„「『《〈﹁﹃", "”」』》〉﹂﹄", "\"＂'＇"
OPENING_GUILLEMETS, CLOSING_GUILLEMETS = "«‹", "»›"  # in French; in German and Danish the other way round
OPENING_BRACKETS, CLOSING_BRACKETS = "([{（［｛〔【〖", ")]}）］｝〕】〗"
APOSTROPHES = "‘’"  # may be quotation marks or not, so the balance leaves them out
# Both guillemets, as in German « closes.
CLOSERS = CLOSING_QUOTES + CLOSING_BRACKETS + OPENING_GUILLEMETS + CLOSING_GUILLEMETS + STRAIGHT_QUOTES + "’"
_VISIBLE, _HAS_LETTER, _IS_STOP, _IS_CLOSER = 1, 2, 4, 8


@dataclass(frozen=True, kw_only=True)
class PieceTable:
    """What each piece of a vocabulary shows.

    traits: uint8, whether it shows a character, a letter or digit, ends in a stop, consists of closing marks.
    marks: int8, (vocabulary, 7): by how much it changes the depth of quotation marks, and the lowest depth within it;
    the same for brackets, then for guillemets; the number of its straight double quotation marks.
    """

    traits: np.ndarray
    marks: np.ndarray

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer) -> PieceTable:
        texts = show_pieces(tokenizer)
        return cls(
            traits=np.array([_find_traits(text) for text in texts], np.uint8),
            marks=np.array([_count_marks(text) for text in texts], np.int8).reshape(len(texts), 7),
        )


def show_pieces(tokenizer: Tokenizer) -> list[str]:
    """The text of each piece without its space; an unknown, special or byte piece shows U+FFFD.

    A build writes U+FFFD in place of invalid bytes too: a piece of that is taken for an unknown one.
    """
    hidden = tokenizer.specials.is_special | find_byte_pieces(tokenizer)
    hidden[tokenizer.unk_id] = True
    return [
        "\ufffd" if is_hidden else piece.replace(SPACE, "")
        for piece, is_hidden in zip(tokenizer.piece_texts, hidden.tolist(), strict=True)
    ]


@cache
def is_letter_or_digit(character: str) -> bool:
    return category(character)[0] in "LN"


def _find_traits(text: str) -> int:
    body = text.rstrip(CLOSERS)
    traits = _VISIBLE * bool(text) | _IS_CLOSER * (bool(text) and not body)
    return int(
        traits | _HAS_LETTER * any(map(is_letter_or_digit, text)) | _IS_STOP * (body[-1:] in STOPS and bool(body))
    )


def _count_marks(text: str) -> list[int]:
    quotes = _follow_depth(text, OPENING_QUOTES, CLOSING_QUOTES)
    brackets = _follow_depth(text, OPENING_BRACKETS, CLOSING_BRACKETS)
    guillemets = _follow_depth(text, OPENING_GUILLEMETS, CLOSING_GUILLEMETS)
    return [*quotes, *brackets, *guillemets, sum(text.count(mark) for mark in '"＂')]


def _follow_depth(text: str, opening: str, closing: str) -> tuple[int, int]:
    """The change of depth, and the lowest that it reaches."""
    depth = lowest = 0
    for character in text:
        depth += (character in opening) - (character in closing)
        lowest = min(lowest, depth)
    return depth, lowest


@dataclass(frozen=True, kw_only=True)
class Surface:
    """Arrays of (pairs, 2), for A and B: int32.

    lens: tokens. first_pieces, last_pieces: the first and last piece that shows a character; letter_pieces: the first
    one with a letter or digit; each -1 where there is none. unopened, unclosed: quotation marks that are closed and
    not opened in the segment, or opened and not closed; the same of brackets and of guillemets; straight: its straight
    double quotation marks. first_lens, last_lens: tokens of the first and the last sentence.
    ends_open: 1 where no stop ends the segment.
    is_swapped: bool, keys: uint64, of each pair.
    """

    lens: np.ndarray
    first_pieces: np.ndarray
    last_pieces: np.ndarray
    letter_pieces: np.ndarray
    unopened: np.ndarray
    unclosed: np.ndarray
    unopened_brackets: np.ndarray
    unclosed_brackets: np.ndarray
    unopened_guillemets: np.ndarray
    unclosed_guillemets: np.ndarray
    straight: np.ndarray
    first_lens: np.ndarray
    last_lens: np.ndarray
    ends_open: np.ndarray
    is_swapped: np.ndarray
    keys: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)


MEASURES = [field.name for field in fields(Surface)][:-2]  # without is_swapped and keys


def gather_surface(opened: Sequence[Shards]) -> Surface:
    """Measure the first pairs of these splits, at most MAX_PAIRS: rows are shuffled, so they are a random sample.

    Pairs of two documents have no order and are left out.
    """
    table = PieceTable.from_tokenizer(opened[0].tokenizer)
    measured, labels, keys, num_left = [], [], [], MAX_PAIRS
    for batch in _read_batches(opened):
        is_ordered = (batch.sop_label == SOP_IN_ORDER) | (batch.sop_label == SOP_SWAPPED)
        rows = np.flatnonzero(is_ordered)[:num_left]
        ids = restore_ids(batch)
        out = np.empty((len(rows), 2, len(MEASURES)), np.int32)
        measure_surface(batch.arrays, ids, rows, table.traits, table.marks, out)
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


def _read_batches(opened: Sequence[Shards]) -> Iterator[Examples]:
    for shards in opened:
        yield from shards.batches()


@kernel
def measure_surface(
    batch: ExampleArrays,
    original: np.ndarray,
    rows: np.ndarray,
    traits: np.ndarray,
    marks: np.ndarray,
    out: np.ndarray,
) -> None:
    """Measure both segments of the given rows. original: the ids before masking.

    out: int32, (rows, 2, MEASURES), in the order of Surface's fields. Kinds of marks are in the order of
    PieceTable.marks: quotation marks, brackets, guillemets.
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
