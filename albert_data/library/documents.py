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
from contextlib import ExitStack, contextmanager
from datetime import date, datetime
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any, Unpack, get_type_hints

import numpy as np

from albert_data.clean.documents import clean_documents
from albert_data.config import AUTO, TextConfig, swap_documents, take_settings
from albert_data.corpus.blocks import Origin
from albert_data.corpus.damage import Damage
from albert_data.corpus.fields import look_up, name_field, split_names
from albert_data.corpus.formats.records import Records, make_blocks
from albert_data.corpus.inputs import Input, list_unmatched
from albert_data.corpus.layout import advise_on_beginnings
from albert_data.corpus.mixtures import Names, check_keys, find_mixture, find_sources, list_names, make_sources
from albert_data.corpus.sources import MixtureSource
from albert_data.errors import ArgumentError, ConfigError, InputError
from albert_data.jobs.progress import Progress
from albert_data.library.arguments import public
from albert_data.library.settings import Source, TextSettings
from albert_data.storage.files import hash_file
from albert_data.storage.scratch import machine_scratch
from albert_data.text.wording import count_of

_BATCH_ROWS = 1000  # of a record batch: workers share a table between its batches
_HASH_LEN = 16


@public(TextConfig)
def document_keys(text: str, *, config: TextConfig | None = None, **settings: Unpack[TextSettings]) -> list[int]:
    """The keys that a document has in a build: one, or several if it is cut because it has over 4 MiB.

    settings: those of TextConfig by which the build reads. They change `config`. Raises ConfigError for
    drop_repeated_lines, as only the whole corpus tells which lines these are.
    """
    how, damage = take_settings(TextConfig, {**settings}, config), Damage()
    if how.drop_repeated_lines is not None:
        raise ConfigError("drop_repeated_lines depends on the whole corpus, so a text alone has no key; leave it out")
    how = dataclasses.replace(how, strict=False, language_field=None, min_chars=None)
    records = Records(rows=[(0, (text.encode(),), (), None, None, None)], unit="text")
    blocks = make_blocks([records], Origin("text", "jsonl"), how, damage)
    return [key for block in blocks for key in clean_documents(block, how, damage).document_keys.tolist()]


@contextmanager
def open_corpus(
    inputs: Names | None,
    documents: Any,
    progress: Progress,
    text: TextConfig,
    validation: Names = (),
    *,
    sources: Any = None,
    sharing: Mapping[str, Any] | None = None,
    validation_documents: Any = None,
) -> Iterator[list[Input]]:
    """The inputs of a corpus. What was stored for documents from memory is removed afterwards.

    sharing: `alpha` and `max_passes` of the sources. Raises ArgumentError and InputError.
    """
    if sum(one is not None for one in (inputs, documents, sources)) != 1:
        raise ArgumentError("give the corpus as one of inputs (names of files, folders, globs), documents and sources")
    if sum((bool(validation), validation_documents is not None, sources is not None)) > 1:
        raise ArgumentError("give one of validation, validation_documents and sources, of which a share is drawn")
    with ExitStack() as stack:
        keep = _Keeper(stack, progress)
        if sources is not None:
            found = find_mixture("sources", _read_sources(sources, keep, text, sharing or {}), progress.say)
        else:
            if validation_documents is not None:
                validation = keep(validation_documents, "validation_documents", text)
            names = keep(documents, "documents", text) if inputs is None else inputs
            found = find_sources(names, progress.say, text, validation)
        for line in (*list_unmatched(found, text), *advise_on_beginnings(found, text)) if documents is None else ():
            progress.say(line)
        yield [keep.rename(item) for item in found]


class _Keeper:
    """Stores documents in a folder, which `stack` removes, and renames the inputs that lie there."""

    def __init__(self, stack: ExitStack, progress: Progress) -> None:
        self._stack, self._progress, self._names = stack, progress, dict[str, str]()

    def __call__(self, documents: Any, what: str, text: TextConfig) -> str:
        """Store documents, and return the path. what: they are, for messages and the name of the file."""
        _check(documents, what, text)
        self._progress.start("storing documents", None, "")
        stored = _store(documents, self._stack.enter_context(machine_scratch()) / what, text)
        self._names[str(stored)] = f"documents-{hash_file(stored)[:_HASH_LEN]}{stored.suffix}"
        return str(stored)

    def rename(self, item: Input) -> Input:
        if (name := self._names.get(item.path)) is None:
            return item
        source = item.source and dataclasses.replace(item.source, paths=(name,))
        return dataclasses.replace(item, path=name, place=item.path, modified_ns=0, source=source)


def _read_sources(sources: Any, keep: _Keeper, text: TextConfig, sharing: Mapping[str, Any]) -> list[MixtureSource]:
    """The sources of a mixture; the documents of those from memory are stored."""
    tables: list[Any] = list(sources) if isinstance(sources, Iterable) and not isinstance(sources, Mapping) else [None]
    if not all(isinstance(table, Mapping) for table in tables):
        raise ArgumentError(f"sources is of the type {type(sources).__name__}; give a list of Source, each a dict")
    found = make_sources("sources", tables, text, sharing, _to_table)
    for number, source in enumerate(found):
        if (documents := tables[number].get("documents")) is not None:
            path = keep(documents, f"documents of source {number + 1}", source.text)
            found[number] = dataclasses.replace(source, paths=(path,))
    return found


def _to_table(source: Mapping[str, Any]) -> dict[str, Any]:
    """A source with the keys of a file. Raises AlbertDataError."""
    check_keys(source, tuple(get_type_hints(Source)))
    values = {key: value for key, value in source.items() if value is not None}
    names, documents = values.pop("inputs", None), values.pop("documents", None)
    if (names is None) == (documents is None):
        raise ArgumentError("it needs either inputs or documents; give one of them")
    if "where" in values:
        values["where"] = TextConfig(where=values["where"]).where
    return {**swap_documents(values), "paths": ["stored later"] if names is None else list_names(names)}


def _check(documents: Any, what: str, text: TextConfig) -> None:
    if isinstance(documents, str | bytes | Mapping) or not (isinstance(documents, Iterable) or _is_table(documents)):
        raise ArgumentError(
            f"{what} is of the type {type(documents).__name__}; give a list or another iterable of str or dicts, a "
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


def _store(documents: Any, path: Path, text: TextConfig) -> Path:
    """Write the documents to a file. path: without its ending; its name says what they are."""
    what, others = path.name, (text.language_field, text.group_field, text.id_field)
    if _is_table(documents) and not _has_transform(documents):
        path = path.with_name(f"{what}.arrows")
        if not _write_table(documents, path, what):
            raise InputError(f"{what} ended without a document; is it a stream that was read before?")
        return path
    path = path.with_name(f"{what}.jsonl")
    used = (*split_names(text.text_field), *filter(None, others), *(one.field for one in text.conditions))
    with open(path, "wb") as file:
        for number, document in enumerate(_guard(documents, what, "document"), 1):
            file.write(_make_line({text.text_field: document} if isinstance(document, str) else document, number, used))
    if not path.stat().st_size:
        raise InputError(f"{what} ended without a document; is it an iterator that was read before?")
    return path


def _write_table(documents: Any, path: Path, what: str) -> int:
    """Returns the number of rows."""
    import pyarrow.ipc

    num_rows = 0
    try:
        if _is_dataset(documents):
            tables = documents.with_format("arrow").iter(_BATCH_ROWS)
            batches = chain.from_iterable(table.to_batches() for table in tables)
            reader = pyarrow.RecordBatchReader.from_batches(documents.data.schema, batches)
        else:
            reader = pyarrow.RecordBatchReader.from_stream(documents)
        with pyarrow.ipc.new_stream(str(path), reader.schema) as writer:
            for batch in _guard(reader, what, "batch", "batches"):
                for at in range(0, len(batch), _BATCH_ROWS):
                    writer.write_batch(batch.slice(at, _BATCH_ROWS))
                num_rows += len(batch)
    except (InputError, OSError):  # of a batch, which says its number; of the disk
        raise
    except Exception as error:  # the class is not ours, and may raise anything
        raise InputError(
            f"{what}, a {type(documents).__name__}, can't be read as Arrow: {' '.join(str(error).split())}; keep "
            "only the columns that are needed"
        ) from error
    return num_rows


def _guard(documents: Iterable[Any], what: str, *noun: str) -> Iterator[Any]:
    """The documents. Raises InputError if they end with an error. noun: what they are, for `count_of`."""
    number = 0
    try:
        for document in documents:
            yield document
            number += 1
    except Exception as error:
        raise InputError(
            f"{what} ended with an error after {count_of(number, *noun)}: {error!r:.200}; nothing was published"
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
