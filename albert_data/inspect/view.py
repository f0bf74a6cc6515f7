"""Rows decoded for the eye: the text of each segment, and what became of each masked token.

In: rows of a shard. Out: lines, with or without colour; the markers alone tell the kinds apart. A marker
stands for one token. It is unambiguous: where the text itself holds a character that would read as one,
a backslash stands before it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np

from albert_data.examples.pairs import SOP_IN_ORDER, SOP_NONE, SOP_SWAPPED
from albert_data.inspect.terminal import Run, count_noun, escape_controls, paint, wrap
from albert_data.shards.reader import Example
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.words import SPACE

MIN_WIDTH = 24
ORDERS = {
    SOP_IN_ORDER: "in order",
    SOP_SWAPPED: "swapped: A followed B in the document",
    SOP_NONE: "no segment B",
}
PALETTE = {"masked": "\x1b[1;34m", "random": "\x1b[1;31m", "kept": "\x1b[1;32m", "label": "\x1b[1m"}

_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")
_OUTSIDE = re.compile(r"[\\={]|\[(?=MASK:)")
_INSIDE = re.compile(r"[\\={}\]]|<(?=-)")
_LEGEND = (
    ("masked", "[MASK:x]", "shows [MASK]; x is to be predicted"),
    ("random", "{y<-x}", "shows y, drawn at random; x is to be predicted"),
    ("kept", "=x=", "shows x unchanged; x is to be predicted"),
    ("", "\\", "comes before a character of the text that is no marker or can't be shown"),
)


def choose_rows(num_rows: int, count: int, seed: int) -> list[int]:
    """Draw `count` rows, or all there are; a smaller count draws the first of the same rows."""
    rng, chosen = random.Random(seed), dict[int, None]()
    while len(chosen) < min(count, num_rows):
        chosen[rng.randrange(num_rows)] = None
    return list(chosen)


def show_legend(width: int = 80, *, colour: bool = False) -> str:
    lines = (_show_labelled(f"{mark:10}", style, text, width, colour) for style, mark, text in _LEGEND)
    return "\n".join(lines)


def _show_labelled(label: str, style: str, text: str, width: int, colour: bool) -> str:
    return _lay_out(Run(text=label, style=style), [Run(text=text)], width, colour)


def show_example(example: Example, row: int, tokenizer: Tokenizer, width: int = 80, *, colour: bool = False) -> str:
    """One row: a line about it, then its segments, in lines of at most max(width, MIN_WIDTH) columns."""
    parts = (
        f"row {row:,}: {ORDERS.get(example.sop_label, f'sop_label {example.sop_label}')}",
        count_noun(len(example.input_ids), "token"),
        f"{len(example.masked_positions):,} masked",
        f"document {example.document_key:016x}",
    )
    lines = [_lay_out(Run(text=""), [Run(text=", ".join(parts), style="label")], width, colour)]
    for name, begin, end in _find_segments(example):
        runs = _render(example, begin, end, tokenizer)
        lines.append(_lay_out(Run(text=f"  {name}  ", style="label"), runs, width, colour))
    return "\n".join(lines)


def _lay_out(label: Run, runs: list[Run], width: int, colour: bool) -> str:
    """Runs beside their label, in lines as wide as the terminal."""
    palette = PALETTE if colour else {}
    wrapped = wrap(runs, max(width, MIN_WIDTH) - len(label.text)) or [[]]
    indent = Run(text=" " * len(label.text))
    lines = [[label if i == 0 else indent, *line] for i, line in enumerate(wrapped)]
    return "\n".join(paint(line, palette).rstrip() for line in lines)


def _find_segments(example: Example) -> Iterator[tuple[str, int, int]]:
    sep, end = 1 + example.segment_a_len, len(example.input_ids) - 1
    yield "A", 1, sep
    if sep + 1 < end:
        yield "B", sep + 1, end


def _render(example: Example, begin: int, end: int, tokenizer: Tokenizer) -> list[Run]:
    """The runs of one segment; the spaces between words are those of the original."""
    original = example.original_ids
    is_masked = np.zeros(len(original), bool)
    is_masked[example.masked_positions] = True
    runs: list[Run] = []
    for masked, group in groupby(range(begin, end), key=lambda at: bool(is_masked[at])):
        places = list(group)
        if not masked:
            text = _join_pieces([tokenizer.pieces[original[at]] for at in places])
            runs.append(Run(text=_protect(text, _OUTSIDE)))
            continue
        for at in places:
            piece = tokenizer.pieces[original[at]]
            runs.append(Run(text=" " if piece.startswith(SPACE) else ""))
            runs.append(_mark(piece, int(original[at]), int(example.input_ids[at]), tokenizer))
    return runs


def _mark(piece: str, original: int, standing: int, tokenizer: Tokenizer) -> Run:
    if standing == tokenizer.mask_id:
        return Run(text=f"[MASK:{_name(piece)}]", style="masked")
    if standing == original:
        return Run(text=f"={_name(piece)}=", style="kept")
    other = tokenizer.pieces[standing]
    if other.startswith(SPACE) == piece.startswith(SPACE):
        return Run(text=f"{{{_name(other)}<-{_name(piece)}}}", style="random")
    return Run(text=f"{{{_protect(other, _INSIDE)}<-{_protect(piece, _INSIDE)}}}", style="random")


def _name(piece: str) -> str:
    """A piece as it reads in a marker: without its space in front, unless it is nothing else."""
    return _protect(piece.removeprefix(SPACE).replace(SPACE, " ") or SPACE, _INSIDE)


def _protect(text: str, marks: re.Pattern[str]) -> str:
    return escape_controls(marks.sub(r"\\\g<0>", text))


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


def to_dict(example: Example, row: int, tokenizer: Tokenizer) -> dict[str, Any]:
    """A row for JSON: pieces as the model sees them, and what it is to predict."""
    return {
        "row": row,
        "document_key": f"{example.document_key:016x}",
        "sop_label": example.sop_label,
        "segment_a_len": example.segment_a_len,
        "pieces": [tokenizer.pieces[i] for i in example.input_ids],
        "masked_positions": example.masked_positions.tolist(),
        "masked_pieces": [tokenizer.pieces[i] for i in example.masked_ids],
    }
