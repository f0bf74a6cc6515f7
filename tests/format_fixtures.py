"""Write the same records in every format that is read."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
from collections.abc import Callable, Sequence
from pathlib import Path

import build_fixtures as fixtures
import pyarrow
import pyarrow.feather
import pyarrow.parquet


def as_text(texts: Sequence[str]) -> bytes:
    """Documents of any text, so that a blank line stands between them alone."""
    return b"\n" + b"\n".join(fixtures.canonical(text) for text in texts)


MOST_ROWS = 2**31 - 1  # of a record batch that pyarrow writes


def declare_nulls(num_rows: int) -> pyarrow.Array:
    """A column of nulls that takes no memory."""
    return pyarrow.Array.from_buffers(pyarrow.null(), num_rows, [None])


def write_parquet(path: Path, table: pyarrow.Table, **options: object) -> Path:
    pyarrow.parquet.write_table(table, path, **options)
    return path


def write_arrow(path: Path, table: pyarrow.Table, rows: int = 1000, compression: str | None = None) -> Path:
    options = pyarrow.ipc.IpcWriteOptions(compression=compression)
    with pyarrow.ipc.new_file(path, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def write_stream(path: Path, table: pyarrow.Table, rows: int = 1000) -> Path:
    with pyarrow.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def write_csv(path: Path, texts: Sequence[str], dialect: str, delimiter: str = ",") -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = ([number, text, ""] for number, text in enumerate(texts))
        csv.writer(file, dialect, delimiter=delimiter).writerows([["id", "text", "more"], *rows])
    return path


def write_wiki(path: Path, texts: Sequence[str]) -> None:
    path.write_bytes("".join(f'<doc id="1" url="u" title="t">\n{text}\n</doc>\n' for text in texts).encode())


def write_feather(path: Path, table: pyarrow.Table) -> Path:
    pyarrow.feather.write_feather(table, path)
    return path


def make_table(texts: Sequence[str | None], kind: pyarrow.DataType | None = None) -> pyarrow.Table:
    """The texts in a column of some type, between others."""
    column = pyarrow.array(texts, pyarrow.string()).cast(kind or pyarrow.string())
    return pyarrow.table({"id": range(len(texts)), "text": column, "more": [["x"]] * len(texts)})


def cut(texts: Sequence[str]) -> list[list[str]]:
    """Each text as a list of its lines."""
    return [text.split("\n") for text in texts]


def make_lists(texts: Sequence[str]) -> pyarrow.Table:
    return pyarrow.table({"id": range(len(texts)), "text": cut(texts)})


# How each layout writes documents: the name of a file, and a function that writes it.
LAYOUTS: dict[str, Callable[[Path, list[str]], object]] = {
    "a.jsonl": lambda path, texts: path.write_bytes(fixtures.to_jsonl(texts)),
    "one-group.parquet": lambda path, texts: write_parquet(path, make_table(texts)),
    "groups.parquet": lambda path, texts: write_parquet(path, make_table(texts), row_group_size=7),
    "batches.arrow": lambda path, texts: write_arrow(path, make_table(texts), rows=7),
    "zstd.arrow": lambda path, texts: write_arrow(path, make_table(texts), rows=50, compression="zstd"),
    "stream.arrow": lambda path, texts: write_stream(path, make_table(texts), rows=7),
    "a.txt.xz": lambda path, texts: path.write_bytes(lzma.compress(as_text(texts))),
    "a.jsonl.bz2": lambda path, texts: path.write_bytes(bz2.compress(fixtures.to_jsonl(texts))),
    "a.jsonl.lz4": lambda path, texts: path.write_bytes(
        pyarrow.compress(fixtures.to_jsonl(texts), "lz4", asbytes=True)
    ),
    "array.json": lambda path, texts: path.write_text(json.dumps([{"text": text} for text in texts], indent=1)),
    "strings.json": lambda path, texts: path.write_text(json.dumps(texts), encoding="utf-8"),
    "lines.json.gz": lambda path, texts: path.write_bytes(gzip.compress(fixtures.to_jsonl(texts))),
    "a.csv": lambda path, texts: write_csv(path, texts, "excel"),
    "a.tsv": lambda path, texts: write_csv(path, texts, "unix", "\t"),
    "wiki_00": lambda path, texts: write_wiki(path, texts),
    "lists.jsonl": lambda path, texts: path.write_text("".join(json.dumps({"text": one}) + "\n" for one in cut(texts))),
    "lists.parquet": lambda path, texts: write_parquet(path, make_lists(texts), row_group_size=7),
    "lists.arrow": lambda path, texts: write_arrow(path, make_lists(texts), rows=7),
    "bytes.parquet": lambda path, texts: write_parquet(path, make_table(texts, pyarrow.binary())),
    "bytes.arrow": lambda path, texts: write_stream(path, make_table(texts, pyarrow.large_binary()), rows=7),
    "a.feather": lambda path, texts: write_feather(path, make_table(texts)),
}
