"""Which rows to show: drawn at random, given by number, or found by their text.

In: a split of a shard folder. Out: row numbers. A search joins the pieces of each row, as they were before masking and
as the tokenizer normalised them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from unicodedata import normalize

import numpy as np

from albert_data.errors import ConfigError, ShardError
from albert_data.shards.decoding import read_byte
from albert_data.shards.reader import Shards
from albert_data.shards.rows import restore_ids
from albert_data.text.escaping import quote
from albert_data.text.wording import list_some
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE

_NAMED = 10  # sources in a message


@dataclass(frozen=True, kw_only=True)
class RowChoice:
    """Which rows to show."""

    count: int  # the most rows
    seed: int = 0  # they are drawn with it
    numbers: tuple[int, ...] = ()  # these rows instead
    text: str | None = None  # the first rows that hold it instead
    source: str | None = None  # only rows of it; None for rows of all sources alike

    def __post_init__(self) -> None:
        if self.text is not None and not self.text.strip():
            raise ConfigError("the text to look for is empty; give a word or a phrase")
        if self.text is not None and any("\ud800" <= character <= "\udfff" for character in self.text):
            raise ConfigError("the text to look for is not UTF-8; check the terminal's encoding")


def choose_rows(shards: Shards, choice: RowChoice) -> list[int]:
    """The numbers of the rows to show; given numbers keep their order.

    Raises ShardError at a number that no row has, and ConfigError at a source that the rows don't have.
    """
    if choice.numbers:
        for number in choice.numbers:
            if not 0 <= number < len(shards):
                where = f"{shards.folder}, split {shards.split}"
                raise ShardError(f"{where} has no row {number}; it has {len(shards)} rows, counted from 0")
        return list(dict.fromkeys(choice.numbers))
    sources = _list_rows(shards, choice.source)
    if choice.text is not None:
        is_wanted = np.zeros(len(shards), bool)
        is_wanted[np.concatenate(sources)] = True
        return list(islice(filter(is_wanted.__getitem__, find_text(shards, choice.text)), choice.count))
    return draw_rows(sources, choice.count, choice.seed)


def _list_rows(shards: Shards, source: str | None) -> list[np.ndarray]:
    """The rows of each source that has any, or of this one. Rows without sources are of one."""
    names, rows = shards.manifest.sources, shards.rows_by_source or [np.arange(len(shards))]
    if source is None:
        return rows
    if source not in (names or ()):
        there = f"; they are {list_some([quote(name) for name in names], _NAMED)}" if names else ": they have none"
        raise ConfigError(f"the rows of {shards.folder} have no source {source!r}{there}")
    number = (names or ()).index(source)
    return [found for found in rows if len(found) and shards[found[0]].source == number] or [rows[0][:0]]


def draw_rows(sources: Sequence[np.ndarray], count: int, seed: int) -> list[int]:
    """Draw `count` rows, or all if there are fewer, in turn from each source, in random order.

    sources: the rows of each. With a smaller count, the rows are a prefix of these.
    """
    rng, chosen = random.Random(seed), dict[int, None]()
    turns = rng.sample(sources, len(sources)) if len(sources) > 1 else list(sources)
    places = [dict[int, None]() for _ in turns]
    while len(chosen) < min(count, sum(map(len, turns))):
        for rows, drawn in zip(turns, places, strict=True):
            if len(chosen) < count and len(drawn) < len(rows):
                while (place := rng.randrange(len(rows))) in drawn:
                    pass
                drawn[place] = chosen[int(rows[place])] = None
    return list(chosen)


def find_text(shards: Shards, text: str) -> Iterator[int]:
    """The rows, in order, that have `text` in a segment before masking, both in NFC. Upper and lower case differ."""
    needle = normalize("NFC", _normalise(text, shards.tokenizer)).encode()
    table, first = [_to_bytes(piece) for piece in shards.tokenizer.piece_texts], 0
    for i in np.flatnonzero(shards.tokenizer.specials.is_special):
        table[i] = b"\0"  # no match crosses [SEP] or [CLS]: a command-line argument can't hold NUL
    for batch in shards.batches():
        for row, ids in enumerate(np.split(restore_ids(batch), batch.offsets[1:-1]) if len(batch) else ()):
            found = b"".join(map(table.__getitem__, ids.tolist()))
            if needle in (found if found.isascii() else normalize("NFC", found.decode(errors="replace")).encode()):
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
