"""A row as text: runs of plain text, and each masked token with what stood there and what stands there now.

In: a row of a shard. Out: its segments as tokens, for the terminal (view.py) and for the report (browser.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from albert_data.shards.reader import Example
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.words import SPACE

PLAIN, MASKED, RANDOM, KEPT = "", "masked", "random", "kept"

_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")


@dataclass(frozen=True, kw_only=True)
class Token:
    """kind PLAIN: `original` is the text of neighbouring tokens. Else it is a piece, and so is `shown`."""

    kind: str
    original: str
    shown: str = ""

    @property
    def starts_word(self) -> bool:
        return self.original.startswith(SPACE)


@dataclass(frozen=True, kw_only=True)
class Segment:
    name: str
    tokens: list[Token]


def decode_segments(example: Example, tokenizer: Tokenizer) -> Iterator[Segment]:
    """Segment A, and B where the row has one. The spaces between words are those of the original."""
    sep, end = 1 + example.segment_a_len, len(example.input_ids) - 1
    yield Segment(name="A", tokens=list(_decode(example, 1, sep, tokenizer)))
    if sep + 1 < end:
        yield Segment(name="B", tokens=list(_decode(example, sep + 1, end, tokenizer)))


def _decode(example: Example, begin: int, end: int, tokenizer: Tokenizer) -> Iterator[Token]:
    original, pieces = example.original_ids, tokenizer.pieces
    is_masked = np.zeros(len(original), bool)
    is_masked[example.masked_positions] = True
    for masked, group in groupby(range(begin, end), key=lambda at: bool(is_masked[at])):
        places = list(group)
        if not masked:
            yield Token(kind=PLAIN, original=_join_pieces([pieces[original[at]] for at in places]))
            continue
        for at in places:
            standing = int(example.input_ids[at])
            kind = MASKED if standing == tokenizer.mask_id else KEPT if standing == original[at] else RANDOM
            yield Token(kind=kind, original=pieces[original[at]], shown=pieces[standing])


def name_piece(piece: str) -> str:
    """A piece without its space in front, unless it is nothing else."""
    return piece.removeprefix(SPACE).replace(SPACE, " ") or SPACE


def name_pair(token: Token) -> tuple[str, str]:
    """The names of what stood and what stands there, told apart where they differ in the space alone."""
    if token.kind == RANDOM and token.shown.startswith(SPACE) != token.starts_word:
        return token.original, token.shown
    return name_piece(token.original), name_piece(token.shown)


def _join_pieces(pieces: list[str]) -> str:
    """The text of neighbouring tokens; byte pieces that make no whole character stay as they are."""
    text = ""
    for is_byte, group in groupby(pieces, key=lambda piece: _BYTE_PIECE.fullmatch(piece) is not None):
        if is_byte:
            data = bytes(int(piece[3:5], 16) for piece in group)
            text += "".join(map(_show_byte, data.decode("utf-8", errors="surrogateescape")))
        else:
            text += "".join(group).replace(SPACE, " ")
    return text


def _show_byte(character: str) -> str:
    """A stray byte, which the decoder leaves as a lone surrogate, by its piece's name."""
    is_stray = 0xDC80 <= ord(character) <= 0xDCFF
    return f"<0x{ord(character) - 0xDC00:02X}>" if is_stray else character
