"""The format of a file: by the endings of its name, or by its first bytes if the name has none (AA/wiki_00)."""

from __future__ import annotations

import io
import os

from albert_data.corpus.compression import STREAM_ERRORS, decompress
from albert_data.corpus.formats import COMPRESSIONS, match_name
from albert_data.corpus.wiki import BEGINNING
from albert_data.storage import FILE, find_kind, find_storage

_RECORD = b'{"'
_SAMPLE_BYTES = 256


def recognise(path: str) -> tuple[str, str | None] | None:
    """Format and compression, None if they are not known. Only regular files are opened."""
    name = os.path.basename(path)
    matched = match_name(name)
    if matched is not None:
        return matched
    stem, ending = os.path.splitext(name.lower())
    compression = COMPRESSIONS.get(ending)
    if "." in (name if compression is None else stem):
        return None
    try:
        if find_kind(path) != FILE:
            return None
        file = find_storage(path).open(path).detach()
        with decompress(file, compression, path) if compression else io.BufferedReader(file) as stream:
            beginning = stream.read1(_SAMPLE_BYTES).lstrip()
    except STREAM_ERRORS:
        return None
    if beginning.startswith(BEGINNING):
        return "wiki", compression
    return ("jsonl", compression) if beginning.startswith(_RECORD) else None
