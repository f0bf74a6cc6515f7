"""Texts of records into blocks of whole documents, in bounded memory.

In: the values of the fields that the settings name, as a reader of a format yields them. Out: `Block`s. Records without
text and those that `--where` excludes are counted, as for JSON lines. A text of over 16 MiB is read as a text file that
is one document, so it is cut in the same places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from albert_data.config import FILE, TextConfig
from albert_data.corpus import blocks
from albert_data.corpus.blocks import RECORDS, Block, Origin
from albert_data.corpus.conditions import Where, parse_where
from albert_data.corpus.damage import Damage
from albert_data.corpus.fields import MAX_NAMES, hash_group, name_field, read_id, split_names
from albert_data.corpus.lines.white_space import has_text
from albert_data.corpus.refused import RefusedInput
from albert_data.corpus.sources import Labels
from albert_data.corpus.streams import join_parts

Value = bytes | memoryview | None  # UTF-8, or what is damaged of it; None for no text
_SURE_BYTES = 4096  # most texts have some text in so many bytes
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class FieldColumns:
    """Where records have the fields that the settings name; None for those that they lack.

    texts: of the text fields that they have; has_all_texts: whether these are all
    compared: of the fields of the conditions of `where`
    names: of the first 100 fields
    """

    texts: Sequence[Any] = ()
    has_all_texts: bool = True
    language: Any = None
    group: Any = None
    id: Any = None
    compared: Sequence[Any] = ()
    where: Where = Where()
    names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Records:
    """Records of a file.

    rows: of each record its number, its texts, the values that the conditions compare, its language, its group and its
        id; None if no record has a text: then they are counted without being visited
    first, num_rows: the number of the first record, and how many they are; 0 where nobody asks
    unit: what records are numbered by, such as "row"
    reason: why `--where` excludes all of them; None where it does not
    """

    rows: Iterable[tuple[int, Sequence[Value], Sequence[Any], Any, Any, Any]] | None
    first: int = 0
    num_rows: int = 0
    columns: FieldColumns = FieldColumns()
    unit: str
    reason: str | None = None


def find_columns(
    text: TextConfig,
    names: Sequence[str],
    path: str,
    find: Callable[[str, str | None], Any],
    describe: Callable[[], str],
    advice: str = "name fields of text with --text-field",
) -> FieldColumns:
    """The columns of a table with fields of some names. Raises RefusedInput if it has no text field.

    find: where the field of a name is that an option names; describe: the fields that the table has
    """
    wanted = split_names(text.text_field, names)
    texts = [column for name in wanted if (column := find(name, "--text-field")) is not None]
    if not texts:
        missing = " or ".join(map(name_field, wanted))
        raise RefusedInput(path, f"without the field {missing}, with {describe()}", advice)
    return FieldColumns(
        texts=texts,
        has_all_texts=len(texts) == len(wanted),
        language=None if text.language_field is None else find(text.language_field, "--language-field"),
        group=None if text.group_field is None else find(text.group_field, "--group-field"),
        id=None if text.id_field is None else find(text.id_field, "--id-field"),
        compared=[find(one.field, None) for one in text.conditions],
        where=parse_where(text.where),
        names=tuple(names[:MAX_NAMES]),
    )


def make_blocks(
    parts: Iterable[Records],
    origin: Origin,
    text: TextConfig,
    damage: Damage,
    block_bytes: blocks.BlockBytes = lambda position: blocks.BLOCK_BYTES,
) -> Iterator[Block]:
    """Yield the texts of all records as blocks, whose positions are counted in bytes of text."""
    labels, has_labels = Labels(text, origin.language, origin.path, damage), text.language_field is not None
    data, ends, codes, groups, ids = bytearray(), list[int](), list[int](), list[int](), list[str]()
    first_unit, first, num_bytes = "", 0, 0
    want = block_bytes(num_bytes)

    def take() -> Block:
        nonlocal data, ends, codes, groups, ids, num_bytes, want
        block = Block(
            bytes(data),
            origin._replace(format=RECORDS),
            first,
            tuple(ends),
            source_codes=tuple(codes) if has_labels else None,
            groups=tuple(groups) if text.group_field is not None else None,
            ids=tuple(ids) if text.id_field is not None else None,
            unit=first_unit,
        )
        num_bytes += len(data)
        want = block_bytes(num_bytes)
        data, ends, codes, groups, ids = bytearray(), [], [], [], []
        return block

    found = _find_texts(parts, origin.path, labels if has_labels else None, damage)
    for unit, number, value, code, group, id in found:
        if len(value) >= blocks.GIANT_BYTES:
            if data:
                yield take()
            language = labels.names[code] if has_labels else origin.language
            yield from _read_giant(value, origin._replace(language=language, group=group, id=id), text, damage)
            continue
        if not data:
            first_unit, first = unit, number
        data += value
        data += b"\n"
        ends.append(len(data))
        codes.append(code)
        groups.append(group)
        ids.append(id)
        if len(data) >= want:
            yield take()
    if data:
        yield take()


def _find_texts(
    parts: Iterable[Records], path: str, labels: Labels | None, damage: Damage
) -> Iterator[tuple[str, int, bytes | memoryview, int, int, str]]:
    """Unit, number, text, source code, hash of the group and id of each record with text; the others are counted."""
    for records in parts:
        if records.reason is not None:
            damage.add(records.reason, path, records.first, count=records.num_rows)
        elif records.rows is None:
            _count_nulls(records, records.first, records.num_rows, path, damage)
        columns = records.columns
        for number, texts, compared, language, group, id in records.rows or ():
            if compared and (reason := damage.find_exclusion(columns.where, compared)):
                damage.add(reason, path, f"{records.unit} {number}")
                continue
            value = texts[0] if len(texts) == 1 else _join(texts)
            if value is None:
                _count_nulls(records, number, 1, path, damage)
                continue
            if not columns.has_all_texts:
                damage.add("missing_part", path, f"{records.unit} {number}", "not all of the text fields")
            if not _has_text(value):
                damage.add("empty_document", path, f"{records.unit} {number}")
                continue
            code = 0
            if labels is not None:
                code = labels.read(language, columns.language is not None, f"{records.unit} {number}")
            hashed = 0 if group is None else hash_group(group, path, f"{records.unit} {number}")
            named = "" if id is None else read_id(id, path, f"{records.unit} {number}")
            yield records.unit, number, value, code, hashed, named


def _join(texts: Sequence[Value]) -> bytes | None:
    """The texts of a record, joined by line feeds; None where all are null."""
    found = [text for text in texts if text is not None]
    return b"\n".join(found) if found else None


def _count_nulls(records: Records, number: int, count: int, path: str, damage: Damage) -> None:
    damage.add_fields(path, dict.fromkeys(records.columns.names), count)
    damage.add("field_not_text", path, f"{records.unit} {number}", "no text, but null", count)


def _read_giant(value: bytes | memoryview, origin: Origin, text: TextConfig, damage: Damage) -> Iterator[Block]:
    view = memoryview(value)
    stream = join_parts(view[at : at + _CHUNK] for at in range(0, len(view), _CHUNK))
    # A start of 1, because a byte order mark belongs to the text of a record.
    text = replace(text, document_rule=FILE, document_separator=None, where=None)
    yield from blocks.read_blocks(stream, origin._replace(format="txt"), text, damage, start=1)


def _has_text(value: bytes | memoryview) -> bool:
    # The last three bytes may be the beginning of a white or invisible character.
    return has_text(bytes(value[:_SURE_BYTES]), 3) or has_text(bytes(value))
