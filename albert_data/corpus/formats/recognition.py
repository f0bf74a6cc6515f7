"""The format of a file: by the endings of its name, or by its first bytes if the name has none (AA/wiki_00).

Also which command makes text of other files, and whether a file can be of a format that the user names.
"""

from __future__ import annotations

import io
import os
import re

from albert_data.config import AUTO
from albert_data.corpus.formats.wiki import BEGINNING
from albert_data.corpus.lines.encodings import find_no_text
from albert_data.corpus.streams import STREAM_ERRORS, decompress
from albert_data.storage import FILE, find_kind, find_storage
from albert_data.text.escaping import quote

# A *table* is a binary file of records in columns: Parquet or Arrow. All other formats are text. The output of
# WikiExtractor ("wiki") has names without an ending.
_FORMATS = {
    **dict.fromkeys((".txt", ".md", ".raw"), "txt"),  # .raw is that of WikiText
    **dict.fromkeys((".jsonl", ".ndjson", ".jl"), "jsonl"),
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".arrows", ".feather"), "arrow"),
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
    ".txt, .md, .jsonl, .json, .csv and .tsv, plain or with .gz, .bz2, .xz, .zst or .lz4, .parquet, .arrow and .feather"
)

# What makes text of a file that is not read: {0} is the file, {1} its name without the ending. pdftotext belongs to
# poppler, xmllint to libxml2.
_CONVERTERS = (
    ((".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst"), "mkdir {1} && tar -xf {0} -C {1}"),
    ((".zip",), "unzip {0} -d {1}"),
    ((".7z",), "7z x {0} -o{1}"),
    ((".docx", ".odt", ".epub", ".html", ".htm"), "pandoc {0} -t plain --wrap=none -o {1}.txt"),
    ((".pdf",), "pdftotext {0} {1}.txt"),
    ((".xml",), "xmllint --xpath 'string(/)' {0} > {1}.txt"),
    ((".warc", ".warc.gz", ".wet", ".wet.gz"), "docs/reference/input.md#archives has a script for {0}"),
)


def find_command(path: str) -> tuple[str, str]:
    """The kind of a file that is not read, by its ending, and what makes text of it; empty where nothing is known.

    >>> find_command("a.tgz")
    ('.tar', 'unpack or convert such a file first: mkdir a && tar -xf a.tgz -C a')
    """
    for endings, command in _CONVERTERS:
        for ending in endings:
            if path.lower().endswith(ending):
                step = command.format(quote(path), quote(path[: -len(ending)]))
                return endings[0], f"unpack or convert such a file first: {step}"
    return "", ""


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


# How a format begins behind white space; others may begin in any way. Old Arrow streams begin with a length.
_STARTS = {"jsonl": rb"[\[{\x1e]", "json": rb"[\[{\x1e\"]", "wiki": BEGINNING, "parquet": rb"PAR[1E]"}
_STARTS["arrow"] = rb"(?s:ARROW1|\xff{4}|...\0)"


def find_contradiction(format: str, beginning: bytes) -> str | None:
    """What a file is that does not begin as a format; None if it does, or is empty.

    >>> find_contradiction("parquet", b"Once upon a time"), find_contradiction("jsonl", b'{"text": ""}')
    ('plain text', None)
    """
    start = beginning.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start or re.match(_STARTS.get(format, b""), beginning if format in TABLES else start):
        return None
    if no_text := find_no_text(beginning):
        return no_text.name.split(",")[0]
    return "WikiExtractor's" if start.startswith(BEGINNING) else "JSON" if start[:1] in b"[{" else "plain text"


def is_compressed(beginning: bytes, compression: str) -> bool:
    """Whether the first bytes of a file are those of its compression. An empty file is taken for one."""
    return not beginning or re.match(_BEGINNINGS[compression], beginning) is not None


def recognise(path: str, format: str = AUTO) -> tuple[str, str | None] | None:
    """Format and compression, None if they are not known. Only regular files are opened.

    format: that the user names for all
    """
    name = os.path.basename(path)
    if format != AUTO:
        return format, None if format in TABLES else COMPRESSIONS.get(os.path.splitext(name.lower())[1])
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
