"""A row, and its text: stretches of plain text, and each masked token with its original piece and the piece shown now.

In: a row of a shard. Out: its segments as tokens, for the terminal (view.py) and for the HTML report (html/page.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from albert_data.examples.pair_tasks import PairTask
from albert_data.text.escaping import escape_controls
from albert_data.text.wording import count_of
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE, num_bytes
from albert_data.tokenizer.words import WordRule, find_word_starts

# What a token shows: it is not masked; or masked and shows [MASK], a random piece, its own piece.
PLAIN, MASKED, RANDOM, KEPT = "", "masked", "random", "kept"

_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")


class Token(NamedTuple):
    """If kind is PLAIN, `original` is the text of neighbouring tokens. Otherwise it is one piece, and so is `shown`."""

    kind: str
    original: str
    shown: str = ""

    @property
    def starts_word(self) -> bool:
        return self.original.startswith(VISIBLE_SPACE)


@dataclass(frozen=True, kw_only=True)
class Example:
    """One row.

    input_ids: uint16 or uint32, `[CLS] A [SEP] B [SEP]` with the masks applied
    segment_a_len: tokens of A
    sop_label: -1 no segment B; else of `manifest.config.examples.task.orders`: by default 0 in order, 1 swapped
    masked_positions: uint16
    masked_ids: as input_ids, the originals
    source: index into the manifest's `sources`; None where the shards have none
    document_key_b: of the document of segment B; None where both segments are always of one document
    """

    input_ids: np.ndarray
    segment_a_len: int
    sop_label: int
    masked_positions: np.ndarray
    masked_ids: np.ndarray
    document_key: int
    source: int | None = None
    document_key_b: int | None = None
    _find_words: Callable[[], tuple[Tokenizer, PairTask]] | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_find_words": None}  # a copy is a row alone

    @property
    def original_ids(self) -> np.ndarray:
        """The row as it was before masking."""
        ids = self.input_ids.copy()
        ids[self.masked_positions] = self.masked_ids
        return ids

    def _repr_html_(self) -> str | None:
        """For notebooks: its text, with what the model sees and what it is to predict. None for a copy of a row."""
        if self._find_words is None:
            return None
        tokenizer, task = self._find_words()
        facts = [task.describe(self.sop_label), count_of(len(self.input_ids), "token")]
        lines = [", ".join([*facts, f"{len(self.masked_positions):,} masked", f"document {self.document_key:016x}"])]
        for name, tokens in decode_segments(self, tokenizer):
            lines.append(f"<b>{name}</b> {''.join(map(_mark_token, tokens))}")
        return "".join(f"<p>{line}</p>" for line in lines)


def _mark_token(token: Token) -> str:
    if token.kind == PLAIN:
        return escape(escape_controls(token.original))
    original, shown = (escape(escape_controls(name)) for name in name_pair(token))
    mark = f'<mark style="margin: 0 1px" title="to predict: {original}">{shown} &larr; {original}</mark>'
    return " " * token.starts_word + mark


def find_segments(example: Example) -> list[tuple[str, int, int]]:
    """The name, the first token and the end of segment A, and of B where the row has one."""
    sep, end = 1 + example.segment_a_len, len(example.input_ids) - 1
    return [("A", 1, sep), *([("B", sep + 1, end)] if sep + 1 < end else [])]


def decode_segments(example: Example, tokenizer: Tokenizer) -> list[tuple[str, list[Token]]]:
    """The name and the tokens of each segment. The spaces between words are those of the original."""
    found = find_segments(example)
    return [(name, list(_decode(example, begin, end, tokenizer))) for name, begin, end in found]


def _decode(example: Example, begin: int, end: int, tokenizer: Tokenizer) -> Iterator[Token]:
    original, pieces, masked = example.original_ids, tokenizer.piece_texts, set(example.masked_positions.tolist())
    for is_masked, positions in groupby(range(begin, end), key=masked.__contains__):
        if not is_masked:
            yield Token(PLAIN, _join_pieces([pieces[original[at]] for at in positions]))
            continue
        for at in positions:
            here, shown = int(original[at]), int(example.input_ids[at])
            yield Token(name_kind(here, shown, tokenizer), pieces[here], pieces[shown])


def name_kind(original: int, shown: int, tokenizer: Tokenizer) -> str:
    """What became of a masked token, from its id and the one that is shown."""
    return MASKED if shown == tokenizer.mask_id else KEPT if shown == original else RANDOM


def find_starts(ids: np.ndarray, rule: WordRule, is_special: np.ndarray) -> np.ndarray:
    """Whether each token of one segment begins a word, as each special piece does: bool. is_special: of all pieces."""
    special = is_special[ids]
    starts: np.ndarray = find_word_starts(ids, rule) | special
    starts[1:] |= special[:-1]
    return starts


def read_byte(piece: str) -> int | None:
    """The byte that a piece such as <0xE2> stands for; None for any other piece."""
    match = _BYTE_PIECE.fullmatch(piece)
    return int(match[1], 16) if match else None


def find_byte_pieces(tokenizer: Tokenizer) -> np.ndarray:
    """Which pieces are bytes that are no whole characters: bool, over the vocabulary.

    SentencePiece's byte fallback has one for each byte, as <0xE2>; byte-level BPE may have longer ones.
    """
    return np.array([num_bytes(piece) > 0 for piece in tokenizer.piece_texts])


def name_piece(piece: str) -> str:
    """A piece without the space in front, unless it is only a space."""
    return piece.removeprefix(VISIBLE_SPACE).replace(VISIBLE_SPACE, " ") or VISIBLE_SPACE


def name_pair(token: Token) -> tuple[str, str]:
    """The names of the original and the shown piece. They keep the space in front if only that distinguishes them."""
    if token.kind == RANDOM and token.shown.startswith(VISIBLE_SPACE) != token.starts_word:
        return token.original, token.shown
    return name_piece(token.original), name_piece(token.shown)


def _join_pieces(pieces: list[str]) -> str:
    """The text of neighbouring tokens. Byte pieces that are no whole character stay as they are."""
    text = ""
    for is_byte, group in groupby(pieces, key=lambda piece: read_byte(piece) is not None):
        if is_byte:
            data = bytes(int(piece[3:5], 16) for piece in group)
            text += "".join(map(_show_byte, data.decode("utf-8", errors="surrogateescape")))
        else:
            text += "".join(group).replace(VISIBLE_SPACE, " ")
    return text


def _show_byte(character: str) -> str:
    """A character as it is; a stray byte, which the decoder turns into a lone surrogate, as the name of its piece."""
    is_stray = 0xDC80 <= ord(character) <= 0xDCFF
    return f"<0x{ord(character) - 0xDC00:02X}>" if is_stray else character
