"""Documents from memory, as inputs that are read like any others.

In: an iterable of str or dicts, a table, a stream of record batches, or a Dataset of the library `datasets`. Out:
inputs. They are stored first, in a folder of TMPDIR: as JSON lines or an Arrow stream, a document or some rows at a
time. The file is named by a hash of its content. So the same documents in the same order are the same corpus: they can
be read twice, and a killed build resumes.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from albert_data.config import AUTO, DOCUMENT_RULES, TextConfig
from albert_data.corpus.fields import look_up, name_field, split_names
from albert_data.corpus.inputs import Input, list_unmatched
from albert_data.corpus.layout import advise_on_beginnings
from albert_data.corpus.mixtures import Names, find_sources
from albert_data.errors import ArgumentError, InputError
from albert_data.jobs.progress import Progress
from albert_data.storage.files import hash_file
from albert_data.storage.scratch import machine_scratch
from albert_data.text.wording import count_of

_BATCH_ROWS = 1000  # of a record batch: workers share a table between its batches
_HASH_LEN = 16


def take_documents(settings: dict[str, Any]) -> Any:
    """Remove documents in memory from settings; None if there are none. A str is the setting of that name."""
    given = settings.get("documents")
    if not isinstance(given, str):
        return settings.pop("documents", None)
    if given not in DOCUMENT_RULES:
        rules = " or ".join(map(repr, DOCUMENT_RULES))
        raise ArgumentError(f"documents is the str {given!r:.40}; give a list of texts, or for .txt files {rules}")
    return None


@contextmanager
def open_corpus(
    inputs: Names | None, documents: Any, progress: Progress, text: TextConfig, validation: Names = ()
) -> Iterator[list[Input]]:
    """The inputs of a corpus: of files if `documents` is None. What was stored for them is removed afterwards.

    Raises ArgumentError and InputError.
    """
    if documents is None:
        if inputs is None:
            raise ArgumentError("no corpus is given; name files, folders or globs, or give documents=")
        found = find_sources(inputs, progress.say, text, validation)
        for line in (*list_unmatched(found, text), *advise_on_beginnings(found, text)):
            progress.say(line)
        yield found
        return
    _check(inputs, documents, text)
    with machine_scratch() as folder:
        progress.start("storing documents", None, "")
        stored = _store(documents, folder, text)
        name = f"documents-{hash_file(stored)[:_HASH_LEN]}{stored.suffix}"
        changes: dict[str, Any] = {"path": name, "place": str(stored), "modified_ns": 0}
        found = find_sources([str(stored)], progress.say, text, validation)
        yield [dataclasses.replace(item, **changes) if item.path == str(stored) else item for item in found]


def _check(inputs: Names | None, documents: Any, text: TextConfig) -> None:
    if inputs is not None:
        raise ArgumentError("documents are given, and names of files too; leave one out")
    if isinstance(documents, bytes | Mapping) or not (isinstance(documents, Iterable) or _is_table(documents)):
        raise ArgumentError(
            f"documents is of the type {type(documents).__name__}; give a list or another iterable of str or dicts, a "
            "table, or one split of a data set"
        )
    if text.encoding is not None or text.format != AUTO:
        option = "--format" if text.encoding is None else "--encoding"
        raise ArgumentError(f"{option} is for files, and documents from memory have none; leave it out")


def _is_table(documents: Any) -> bool:
    """Whether it is a table, or a stream of record batches. A single column is a stream too, but has a length."""
    is_column = isinstance(documents, Sized) and not hasattr(documents, "columns")
    return (hasattr(documents, "__arrow_c_stream__") and not is_column) or _is_dataset(documents)


def _is_dataset(documents: Any) -> bool:
    # Nobody has a Dataset who did not import it.
    return isinstance(documents, getattr(sys.modules.get("datasets"), "Dataset", ()))


def _has_transform(documents: Any) -> bool:
    """Whether it is a Dataset that changes each row as it gives it (`with_transform`): its tables lack the changes."""
    return _is_dataset(documents) and documents.format["type"] == "custom"


def _store(documents: Any, folder: Path, text: TextConfig) -> Path:
    """Write the documents to a file in a folder."""
    if _is_table(documents) and not _has_transform(documents):
        path = folder / "documents.arrows"
        _write_table(documents, path)
        return path
    path, others = folder / "documents.jsonl", (text.language_field, text.group_field)
    used = (*split_names(text.text_field), *filter(None, others), *(one.field for one in text.conditions))
    with open(path, "wb") as file:
        for number, document in enumerate(_guard(documents, "document"), 1):
            file.write(_make_line({text.text_field: document} if isinstance(document, str) else document, number, used))
    if not path.stat().st_size:
        raise InputError("documents ended without a document; is it an iterator that was read before?")
    return path


def _write_table(documents: Any, path: Path) -> None:
    import pyarrow.ipc

    try:
        if _is_dataset(documents):
            tables = documents.with_format("arrow").iter(_BATCH_ROWS)
            batches = chain.from_iterable(table.to_batches() for table in tables)
            reader = pyarrow.RecordBatchReader.from_batches(documents.data.schema, batches)
        else:
            reader = pyarrow.RecordBatchReader.from_stream(documents)
        with pyarrow.ipc.new_stream(str(path), reader.schema) as writer:
            for batch in _guard(reader, "batch", "batches"):
                for at in range(0, len(batch), _BATCH_ROWS):
                    writer.write_batch(batch.slice(at, _BATCH_ROWS))
    except (InputError, OSError):  # of a batch, which says its number; of the disk
        raise
    except Exception as error:  # the class is not ours, and may raise anything
        raise InputError(
            f"documents, a {type(documents).__name__}, can't be read as Arrow: {' '.join(str(error).split())}; keep "
            "only the columns that are needed"
        ) from error


def _guard(documents: Iterable[Any], *noun: str) -> Iterator[Any]:
    """The documents. Raises InputError if they end with an error. noun: what they are, for `count_of`."""
    number = 0
    try:
        for document in documents:
            yield document
            number += 1
    except Exception as error:
        raise InputError(
            f"documents ended with an error after {count_of(number, *noun)}: {error!r:.200}; nothing was published"
        ) from error


def _make_line(document: Any, number: int, used: tuple[str, ...]) -> bytes:
    """A document as a line of JSON. number: of the document, for errors; used: the names of fields that are read."""
    if not isinstance(document, dict):
        raise InputError(f"document {number:,} is of the type {type(document).__name__}; give str or dicts")
    for name in used:
        value = look_up(document, name)[0]
        if not isinstance(value, str | int | float | list | tuple | dict | None) and _to_plain(value) is None:
            raise InputError(
                f"document {number:,}: the field {name_field(name)} is of the type {type(value).__name__}, which JSON "
                "lacks; give it as a str or a number, or give the documents as a table"
            )
    try:
        # A lone surrogate, which UTF-8 lacks, becomes an escape of JSON.
        return _encode(document).encode(errors="backslashreplace") + b"\n"
    except Exception as error:  # its class, or that of a value, may not be ours
        raise InputError(
            f"document {number:,} can't be written as JSON: {error}; keep only the fields that are needed"
        ) from error


def _to_plain(value: Any) -> Any:
    """What JSON has in place of a value that it lacks; None, as for a field that no setting names, if nothing."""
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    is_day = isinstance(value, date) and not isinstance(value, datetime)
    return str(value) if is_day or isinstance(value, Decimal) else None


_encode = json.JSONEncoder(ensure_ascii=False, skipkeys=True, default=_to_plain).encode
