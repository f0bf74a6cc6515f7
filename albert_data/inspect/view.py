"""Shows rows in a terminal: the text of each segment, and what became of each masked token.

In: rows of a shard. Out: lines, with or without colour; the markers show the kinds without colour too. A marker
stands for one token. It is unambiguous: a character of the text that looks like a marker has a backslash in front.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from albert_data.examples.pair_tasks import PAIR_TASKS, PairTask
from albert_data.inspect.terminal import StyledText, paint, wrap
from albert_data.shards.decoding import KEPT, MASKED, PLAIN, RANDOM, Example, Token, decode_segments, name_pair
from albert_data.text.escaping import escape_controls
from albert_data.text.wording import count_of
from albert_data.tokenizer.model import Tokenizer

MIN_WIDTH = 24
PALETTE = {"masked": "\x1b[1;34m", "random": "\x1b[1;31m", "kept": "\x1b[1;32m", "label": "\x1b[1m"}

_OUTSIDE = re.compile(r"[\\={]|\[(?=MASK:)")
_INSIDE = re.compile(r"[\\={}\]]|<(?=-)")
_LEGEND = (
    ("masked", "[MASK:x]", "shows [MASK]; x is to be predicted"),
    ("random", "{y<-x}", "shows y, drawn at random; x is to be predicted"),
    ("kept", "=x=", "shows x unchanged; x is to be predicted"),
    ("", "\\", "comes before a character that looks like a marker; \\u202e and the like are invisible characters"),
)


def show_legend(width: int = 80, *, colour: bool = False) -> str:
    marks = ((StyledText(f"{mark:10}", style), [StyledText(text)]) for style, mark, text in _LEGEND)
    return "\n".join(_lay_out(mark, text, width, colour) for mark, text in marks)


def show_example(
    example: Example,
    row: int,
    tokenizer: Tokenizer,
    width: int = 80,
    *,
    colour: bool = False,
    task: PairTask = PAIR_TASKS["sop"],
    sources: Sequence[str] | None = None,
) -> str:
    """One row: a line of facts, then its segments, in lines of at most max(width, MIN_WIDTH) columns.

    sources: the manifest's
    """
    parts = [
        f"row {row:,}: {task.describe(example.sop_label)}",
        count_of(len(example.input_ids), "token"),
        f"{len(example.masked_positions):,} masked",
        f"document {example.document_key:016x}",
    ]
    if example.document_key_b not in (None, example.document_key):
        parts.append(f"B of document {example.document_key_b:016x}")
    if (source := _name_source(example, sources)) is not None:
        parts.append(f"source {escape_controls(source)}")
    lines = [_lay_out(StyledText(""), [StyledText(", ".join(parts), "label")], width, colour)]
    for name, tokens in decode_segments(example, tokenizer):
        texts = [text for token in tokens for text in _style_token(token)]
        lines.append(_lay_out(StyledText(f"  {name}  ", "label"), texts, width, colour))
    return "\n".join(lines)


def _lay_out(label: StyledText, texts: list[StyledText], width: int, colour: bool) -> str:
    """The label, and the text beside it in lines as wide as the terminal."""
    palette = PALETTE if colour else {}
    wrapped = wrap(texts, max(width, MIN_WIDTH) - len(label.text)) or [[]]
    indent = StyledText(" " * len(label.text))
    lines = [[label if i == 0 else indent, *line] for i, line in enumerate(wrapped)]
    return "\n".join(paint(line, palette).rstrip() for line in lines)


def _style_token(token: Token) -> list[StyledText]:
    if token.kind == PLAIN:
        return [StyledText(_protect(token.original, _OUTSIDE))]
    original, shown = (_protect(name, _INSIDE) for name in name_pair(token))
    marks = {MASKED: f"[MASK:{original}]", KEPT: f"={original}=", RANDOM: f"{{{shown}<-{original}}}"}
    return [StyledText(" " if token.starts_word else ""), StyledText(marks[token.kind], token.kind)]


def _protect(text: str, marks: re.Pattern[str]) -> str:
    return escape_controls(marks.sub(r"\\\g<0>", text))


def _name_source(example: Example, sources: Sequence[str] | None) -> str | None:
    return None if sources is None or example.source is None else sources[example.source]


def to_dict(example: Example, row: int, tokenizer: Tokenizer, sources: Sequence[str] | None = None) -> dict[str, Any]:
    """A row for JSON: the pieces as the model sees them, and those that it must predict."""
    source = _name_source(example, sources)
    return {
        "row": row,
        **({} if source is None else {"source": source}),
        "document_key": f"{example.document_key:016x}",
        **({} if example.document_key_b is None else {"document_key_b": f"{example.document_key_b:016x}"}),
        "sop_label": example.sop_label,
        "segment_a_len": example.segment_a_len,
        "pieces": [tokenizer.pieces[i] for i in example.input_ids],
        "masked_positions": example.masked_positions.tolist(),
        "masked_pieces": [tokenizer.pieces[i] for i in example.masked_ids],
    }
