"""The format of a file: by the endings of its name, or by its first bytes if the name has none (AA/wiki_00)."""

from __future__ import annotations

import io
import os
import re

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
# How JSON begins that has no object a line, whatever the name says. An array of arrays is not among them: it may be
# lines with an array each.
_NO_LINES = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:(\x1e)|(\[)\s*\{|\{\s*[\r\n]\s*\")")
_SKIPPED = rb"[\x50-\x5f]\x2a\x4d\x18"  # a frame that zstd and lz4 skip
_BEGINNINGS = {"gz": rb"\x1f\x8b", "bz2": rb"BZh", "xz": rb"\xfd7zXZ\x00"}
_BEGINNINGS |= {"zst": rb"\x28\xb5\x2f\xfd|" + _SKIPPED, "lz4": rb"\x04\x22\x4d\x18|" + _SKIPPED}
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


def find_json(beginning: bytes) -> str | None:
    """What the JSON of a file is that begins so, if it is not an object a line; None if it is, or no JSON.

    >>> find_json(b'[ {"text": "One."},'), find_json(b'{"text": "One."}')
    ('a JSON array', None)
    """
    if (match := _NO_LINES.match(beginning)) is None:
        return None
    return "JSON with record separators" if match[1] else "a JSON array" if match[2] else "JSON over several lines"


def is_compressed(beginning: bytes, compression: str) -> bool:
    """Whether the first bytes of a file are those of its compression. An empty file is taken for one."""
    return not beginning or re.match(_BEGINNINGS[compression], beginning) is not None


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
