"""The viewer of rows: a form, and the rows as JSON for its script, rows.js.

The JSON holds a row as `{"row", "label", "tokens", "masked", "document", "segments": [{"name", "parts"}]}`, with `b`,
the document of segment B, if that is another one. A part is a string of plain text, or `[kind, original, shown]` of a
masked token. Text of a corpus can't end the element that holds the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from string import Template
from typing import Any

from albert_data.inspect.choice import Choice
from albert_data.inspect.decoding import PLAIN, Token, decode_segments, name_pair
from albert_data.inspect.terminal import escape_controls
from albert_data.pair_tasks import NO_LABEL
from albert_data.report.page import escape, read_asset
from albert_data.shards.reader import Example, Shards
from albert_data.tokenizer.model import Tokenizer
from albert_data.wording import count_of

MAX_BYTES = 3_500_000  # a page of up to 4 MB opens without a delay
# "<" can't end the element nor open a comment; U+2028 and U+2029 end a line in old JavaScript.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def embed_rows(shards: Shards, rows: Iterable[int]) -> tuple[str, int]:
    """The JSON, and how many of the rows it holds: as many as fit into MAX_BYTES."""
    parts: list[str] = []
    size = 0
    for row in rows:
        part = escape_json(_to_dict(shards[row], row, shards.tokenizer))
        size += len(part.encode()) + 2
        if size > MAX_BYTES:
            break
        parts.append(part)
    return f"[{','.join(parts)}]", len(parts)


def escape_json(value: object) -> str:
    """JSON that stands safely inside a `script` element."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES)


def render_viewer(shards: Shards, num_embedded: int, num_chosen: int, choice: Choice) -> str:
    """The form of the viewer, with a sentence that says which rows it holds."""
    says = _describe_rows(shards, num_embedded, num_chosen, choice)
    form, config = Template(read_asset(__package__, "rows.html")), shards.manifest.config
    task, names = config.examples.task, [*enumerate(config.examples.task.orders), (NO_LABEL, "no pair")]
    labels = "".join(
        f'<option value="{label}" title="{escape(task.describe(label))}">{escape(name)}</option>'
        for label, name in names
    )
    return form.substitute(embedded=escape(says), labels=labels, language=escape(config.text.language))


def _describe_rows(shards: Shards, num_embedded: int, num_chosen: int, choice: Choice) -> str:
    rows = f"{count_of(num_embedded, 'row')} of the {len(shards):,} of {shards.split}"
    if choice.numbers:
        how = "asked for by number"
    elif choice.text is not None:
        how = f"the first that hold {choice.text!r}"
    else:
        how = f"drawn at random (seed {choice.seed})"
    label, task = "", shards.manifest.config.examples.task
    if choice.label is not None:
        label = f", with the label {choice.label} ({task.describe(choice.label).split(':')[0]})"
    cut = "" if num_embedded == num_chosen else f"; {num_chosen - num_embedded:,} more would make the page too large"
    return f"{rows}, {how}{label}{cut}."


def _to_dict(example: Example, row: int, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "row": row,
        "label": example.sop_label,
        "tokens": len(example.input_ids),
        "masked": len(example.masked_positions),
        "document": f"{example.document_key:016x}",
        **({} if example.document_key_b in (None, example.document_key) else {"b": f"{example.document_key_b:016x}"}),
        "segments": [_segment_to_dict(*segment) for segment in decode_segments(example, tokenizer)],
    }


def _segment_to_dict(name: str, tokens: list[Token]) -> dict[str, Any]:
    parts: list[str | list[str]] = []
    for token in tokens:
        if token.kind == PLAIN:
            parts.append(escape_controls(token.original))
            continue
        if token.starts_word:
            parts.append(" ")
        parts.append([token.kind, *map(escape_controls, name_pair(token))])
    if parts and isinstance(parts[0], str):
        parts[0] = parts[0].removeprefix(" ")  # of the first word
    return {"name": name, "parts": parts}
