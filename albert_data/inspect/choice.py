"""Which rows to show: drawn, named by number, or found by what they hold.

In: a split of a shard folder. Out: row numbers. A search joins the pieces of some thousand rows at a time and
looks into a single row only where their joint text holds what is sought, so it runs at some 12 million tokens a
second and core; what it finds is the text before masking, as the tokenizer left it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from albert_data.errors import ConfigError, ShardError
from albert_data.examples.ragged import Examples
from albert_data.shards.reader import Shards
from albert_data.shards.rows import restore_ids
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.words import SPACE

_ROWS_AT_ONCE = 1024
_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """count: rows at most, drawn by `seed`. numbers: these rows and no others. text: the first rows that hold it.

    label: rows of this sop_label alone.
    """

    count: int
    seed: int = 0
    numbers: tuple[int, ...] = ()
    text: str | None = None
    label: int | None = None

    def __post_init__(self) -> None:
        if self.text is not None and not self.text.strip():
            raise ConfigError("the text to look for is empty; give a word or a phrase")
        if self.text is not None and any("\ud800" <= character <= "\udfff" for character in self.text):
            raise ConfigError("the text to look for is not UTF-8; check the terminal's encoding")


def choose_rows(shards: Shards, choice: Choice) -> list[int]:
    """The rows to show, those asked for by number in that order. Raises ShardError at a number that is no row's."""
    if choice.numbers:
        for number in choice.numbers:
            if not 0 <= number < len(shards):
                place = f"{shards.folder}, split {shards.split}"
                raise ShardError(f"{place} has no row {number}; it has {len(shards)} rows, counted from 0")
        return list(dict.fromkeys(choice.numbers))
    if choice.text is not None:
        return list(islice(find_text(shards, choice.text, choice.label), choice.count))
    if choice.label is None:
        return draw_rows(len(shards), choice.count, choice.seed)
    labels = [batch.sop_label for batch in shards.batches()]
    rows = np.flatnonzero(np.concatenate([np.zeros(0, np.int8), *labels]) == choice.label)
    return [int(rows[i]) for i in draw_rows(len(rows), choice.count, choice.seed)]


def draw_rows(num_rows: int, count: int, seed: int) -> list[int]:
    """Draw `count` rows, or all there are; a smaller count draws the first of the same rows."""
    rng, chosen = random.Random(seed), dict[int, None]()
    while len(chosen) < min(count, num_rows):
        chosen[rng.randrange(num_rows)] = None
    return list(chosen)


def find_text(shards: Shards, text: str, label: int | None = None) -> Iterator[int]:
    """The rows, in order, that hold `text` in a segment before masking; upper and lower case differ."""
    needle = _normalise(text, shards.tokenizer).encode()
    table, first = [_to_bytes(piece) for piece in shards.tokenizer.pieces], 0
    for i in np.flatnonzero(shards.tokenizer.specials.is_special):
        table[i] = b"\0"  # parts segments and rows; no argument of a command holds it
    for batch in shards.batches():
        for row in _search_batch(batch, needle, table):
            if label is None or batch.sop_label[row] == label:
                yield first + row
        first += len(batch)


def _normalise(text: str, tokenizer: Tokenizer) -> str:
    """As the text of a row reads; the tokenizer drops spaces at either end, which part words here."""
    inner = tokenizer.normalise(text).replace(SPACE, " ").strip(" ")
    if not inner:
        raise ConfigError(f"the tokenizer leaves nothing of the text {text!r}; give another word or phrase")
    return f"{' ' * text.startswith(' ')}{inner}{' ' * text.endswith(' ')}"


def _to_bytes(piece: str) -> bytes:
    match = _BYTE_PIECE.fullmatch(piece)
    return bytes([int(match[1], 16)]) if match else piece.replace(SPACE, " ").encode()


def _search_batch(batch: Examples, needle: bytes, table: list[bytes]) -> Iterator[int]:
    original = restore_ids(batch)

    def holds(begin: int, end: int) -> bool:
        ids = original[batch.offsets[begin] : batch.offsets[end]]
        return needle in b"".join(map(table.__getitem__, ids.tolist()))

    for begin in range(0, len(batch), _ROWS_AT_ONCE):
        end = min(begin + _ROWS_AT_ONCE, len(batch))
        if holds(begin, end):
            yield from (row for row in range(begin, end) if holds(row, row + 1))
