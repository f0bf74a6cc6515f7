"""The format of a file: by the endings of its name, or by its first bytes if the name has none (AA/wiki_00)."""

from __future__ import annotations

import io
import os

from albert_data.corpus.formats.wiki import BEGINNING
from albert_data.corpus.streams import STREAM_ERRORS, decompress
from albert_data.storage import FILE, find_kind, find_storage

# A *table* is a binary file of records in columns: Parquet or Arrow. All other formats are text. The output of
# WikiExtractor ("wiki") has names without an ending.
_FORMATS = {
    ".txt": "txt",
    ".jsonl": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
}
TABLES = ("parquet", "arrow")
SPLIT = ("txt", "jsonl", *TABLES)  # those that can be cut into parts between documents
_RECORD = b'{"'  # how JSON lines begin
_SAMPLE_BYTES = 256
COMPRESSIONS = {".gz": "gz", ".bz2": "bz2", ".xz": "xz", ".zst": "zst", ".lz4": "lz4"}
ALLOWED_NAMES = (
    ".txt, .jsonl, .json, .csv and .tsv, plain or with .gz, .bz2, .xz, .zst or .lz4, .parquet, .arrow and .feather"
)


def match_name(name: str) -> tuple[str, str | None] | None:
    """Format and compression by a name's endings; None if they are not known. A table is never compressed.

    >>> match_name("a.jsonl.gz")
    ('jsonl', 'gz')
    """
    stem, ending = os.path.splitext(name.lower())
    compression = COMPRESSIONS.get(ending)
    if compression is not None:
        ending = os.path.splitext(stem)[1]
    format = _FORMATS.get(ending)
    return None if format is None or (compression and format in TABLES) else (format, compression)


def has_fields(format: str) -> bool:
    """Whether inputs of a format are records with named fields; a stream of unknown format may be."""
    return format not in ("txt", "wiki")


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
