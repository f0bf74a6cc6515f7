"""Which rows to show: drawn at random, given by number, or found by their text.

In: a split of a shard folder. Out: row numbers. A search joins the pieces of each row, as they were before masking and
as the tokenizer normalised them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from albert_data.errors import ConfigError, ShardError
from albert_data.shards.decoding import read_byte
from albert_data.shards.reader import Shards
from albert_data.shards.rows import restore_ids
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE


@dataclass(frozen=True, kw_only=True)
class RowChoice:
    """Which rows to show."""

    count: int  # the most rows
    seed: int = 0  # they are drawn with it
    numbers: tuple[int, ...] = ()  # these rows instead
    text: str | None = None  # the first rows that hold it instead

    def __post_init__(self) -> None:
        if self.text is not None and not self.text.strip():
            raise ConfigError("the text to look for is empty; give a word or a phrase")
        if self.text is not None and any("\ud800" <= character <= "\udfff" for character in self.text):
            raise ConfigError("the text to look for is not UTF-8; check the terminal's encoding")


def choose_rows(shards: Shards, choice: RowChoice) -> list[int]:
    """The numbers of the rows to show; given numbers keep their order. Raises ShardError at one that no row has."""
    if choice.numbers:
        for number in choice.numbers:
            if not 0 <= number < len(shards):
                where = f"{shards.folder}, split {shards.split}"
                raise ShardError(f"{where} has no row {number}; it has {len(shards)} rows, counted from 0")
        return list(dict.fromkeys(choice.numbers))
    if choice.text is not None:
        return list(islice(find_text(shards, choice.text), choice.count))
    return draw_rows(len(shards), choice.count, choice.seed)


def draw_rows(num_rows: int, count: int, seed: int) -> list[int]:
    """Draw `count` rows, or all if there are fewer. With a smaller count, the rows are a prefix of these."""
    rng, chosen = random.Random(seed), dict[int, None]()
    while len(chosen) < min(count, num_rows):
        chosen[rng.randrange(num_rows)] = None
    return list(chosen)


def find_text(shards: Shards, text: str) -> Iterator[int]:
    """The rows, in order, that have `text` in a segment before masking. Upper and lower case differ."""
    needle = _normalise(text, shards.tokenizer).encode()
    table, first = [_to_bytes(piece) for piece in shards.tokenizer.piece_texts], 0
    for i in np.flatnonzero(shards.tokenizer.specials.is_special):
        table[i] = b"\0"  # no match crosses [SEP] or [CLS]: a command-line argument can't hold NUL
    for batch in shards.batches():
        for row, ids in enumerate(np.split(restore_ids(batch), batch.offsets[1:-1]) if len(batch) else ()):
            if needle in b"".join(map(table.__getitem__, ids.tolist())):
                yield first + row
        first += len(batch)


def _normalise(text: str, tokenizer: Tokenizer) -> str:
    """The text as rows have it. The tokenizer drops spaces at both ends; here they matter, as they end words."""
    inner = tokenizer.normalise(text).replace(VISIBLE_SPACE, " ").strip(" ")
    if not inner:
        raise ConfigError(f"the tokenizer leaves nothing of the text {text!r}; give another word or phrase")
    return f"{' ' * text.startswith(' ')}{inner}{' ' * text.endswith(' ')}"


def _to_bytes(piece: str) -> bytes:
    byte = read_byte(piece)
    return piece.replace(VISIBLE_SPACE, " ").encode() if byte is None else bytes([byte])
