"""Read an open file of any text format as blocks of whole documents."""

from __future__ import annotations

import io
from collections.abc import Iterator

from albert_data.config import TextConfig
from albert_data.corpus.blocks import BLOCK_BYTES, Block, BlockBytes, Origin, read_blocks
from albert_data.corpus.damage import Damage
from albert_data.corpus.formats.csv_files import read_rows
from albert_data.corpus.formats.json_arrays import JsonLines
from albert_data.corpus.formats.wiki import read_wiki


def read_stream(
    stream: io.BufferedIOBase,
    origin: Origin,
    text: TextConfig,
    damage: Damage,
    block_bytes: BlockBytes = lambda position: BLOCK_BYTES,
) -> Iterator[Block]:
    """Yield all documents of a stream as blocks.

    block_bytes: gives, for the position of a block, the size that it should have.
    """
    if origin.format in ("csv", "tsv"):
        yield from read_rows(stream, origin, text, damage, block_bytes)
        return
    if origin.format == "wiki":
        yield from read_wiki(stream, origin, text, damage, block_bytes)
        return
    if origin.format == "json":
        stream = io.BufferedReader(JsonLines(stream, text.text_field))
        origin = origin._replace(format="jsonl")
    yield from read_blocks(stream, origin, damage, block_bytes=block_bytes, text=text)
