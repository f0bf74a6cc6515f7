"""The texts of JSON lines: the text fields of each line that is an object, and its language field.

In: a block of JSON lines. Out: UTF-8. A text is a string, or a list of strings, which are joined. msgspec builds the
wanted fields, and checks and skips the others: json.loads takes up to 45 bytes of memory for a byte of nested lists.
What msgspec refuses of valid UTF-8, and Python accepts, json.loads reads in lines of up to 8 MiB: NaN, Infinity,
escaped lone surrogates, and numbers out of range in a wanted field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, TypedDict

import msgspec
import numpy as np

from albert_data.config import TextConfig
from albert_data.corpus import blocks
from albert_data.corpus.conditions import parse_where
from albert_data.corpus.damage import Damage
from albert_data.corpus.fields import hash_group, list_names, look_up, read_id, split_names
from albert_data.corpus.lines.valid_utf8 import is_utf8, repair
from albert_data.corpus.lines.white_space import has_text
from albert_data.corpus.sources import Labels
from albert_data.errors import InputError

LARGE_LINE = 8 << 20
_DEEPEST = 200  # brackets; parsers stop at about 1,000, less where the stack is already deep
_PIECE = 1 << 20
_BOM = b"\xef\xbb\xbf"
_STRING_OR_BRACKETS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[{]++|[\]}]++')
_Array = msgspec.defstruct("list", [], array_like=True)  # stands for any array, whose items are skipped


def parse_lines(
    block: blocks.Block, config: TextConfig, damage: Damage
) -> tuple[list[bytes], np.ndarray | None, np.ndarray | None, np.ndarray | None]:
    """The text of every line that has one, and what the fields of the settings hold: source code, group and id.

    Lines without text are counted.
    """
    reader, begin, texts, source_codes, groups, ids = _LineReader(block, config, damage), 0, [], [], [], []
    while begin < len(block.data):
        end = block.data.find(b"\n", begin) + 1 or len(block.data)
        text = reader.read(begin, end)
        if text is not None:
            texts.append(text)
            source_codes.append(reader.source_code)
            groups.append(reader.group)
            ids.append(reader.id)
        begin = end
    return (
        texts,
        np.array(source_codes, np.uint32) if config.language_field else None,
        np.array(groups, np.uint64) if config.group_field else None,
        np.array(ids, object) if config.id_field else None,
    )


class _LineReader:
    """Reads the texts of the lines of a block, and counts the lines without one.

    source_code, group, id: of the last line that had a text.
    """

    def __init__(self, block: blocks.Block, config: TextConfig, damage: Damage) -> None:
        self._block, self._data, self._damage = block, memoryview(block.data), damage
        self._is_utf8 = is_utf8(np.frombuffer(block.data, np.uint8))
        self._config, self._names, self.group, self.id = config, split_names(config.text_field), 0, ""
        self._text_field, self._where = config.text_field, parse_where(config.where)
        others = (
            config.language_field,
            config.group_field,
            config.id_field,
            *(one.field for one in self._where.conditions),
        )
        self._decoder = make_decoder((config.text_field, *self._names, *filter(None, others)))
        self._labels = Labels(config, block.origin.language, block.origin.path, damage)
        self.source_code = self._labels.default

    def read(self, begin: int, end: int) -> bytes | None:
        """The text of the line begin .. end of the block; None if it has none."""
        self._start, line = self._block.start + begin, self._data[begin:end]
        if not self._is_utf8 and len(line) <= blocks.MAX_JSON_LINE:
            line = self._repair(line)
        if len(line) > blocks.MAX_JSON_LINE:
            return self._count("line_too_long", f"over {blocks.MAX_JSON_LINE} bytes")
        # Any line may begin with a byte order mark: in joined files each file may have one.
        self._line = line[len(_BOM) :] if line[: len(_BOM)] == _BOM else line
        try:
            record = self._decoder.decode(self._line)
        except (msgspec.DecodeError, RecursionError):
            return self._read_odd(str(self._line, "utf-8"))
        return self._take_text(record)

    def _repair(self, line: memoryview) -> memoryview:
        """The line as valid UTF-8, or as much of it as is too long."""
        pieces = (bytes(line[at : at + _PIECE]) for at in range(0, len(line), _PIECE))
        repaired = bytearray()
        for part in repair(pieces, self._block.origin.path, self._start, self._damage):
            repaired += part
            if len(repaired) > blocks.MAX_JSON_LINE:
                break
        return memoryview(repaired)

    def _read_odd(self, line: str) -> bytes | None:
        """The text of a line that msgspec refuses."""
        if line.isspace():
            return None
        try:
            record = self._load(line)
        except (msgspec.DecodeError, json.JSONDecodeError) as error:
            return self._count("malformed_json", str(error))
        if not isinstance(record, dict):
            return self._count("malformed_json", f"a JSON object is needed, found {type(record).__name__}")
        return self._take_text(record)

    def _load(self, line: str) -> Any:
        """All that a line holds; the wanted fields of a large one."""
        try:
            return self._parse(line)
        except (msgspec.DecodeError, json.JSONDecodeError, RecursionError):
            # Also a line with an error deep inside is read without what is there. Otherwise the stack, which depends on
            # Python's version and on the caller, would decide whether the error is met before the stack ends.
            if len(cut := cut_deep(line)) == len(line):
                raise
            return self._parse(cut)

    def _parse(self, line: str) -> Any:
        if len(line) > LARGE_LINE:
            return self._decoder.decode(line)
        # int refuses more than 4,300 digits, and more than 300 are beyond float
        return json.loads(line, parse_int=lambda text: int(text) if len(text) <= 300 else float(text))

    def _take_text(self, record: dict[str, Any]) -> bytes | None:
        if self._where.conditions and (reason := self._find_exclusion(record)):
            return self._count(reason)
        text = record.get(self._text_field)
        if not isinstance(text, str):
            text = self._join(record)
        if text is None:
            return None
        found = self._encode(text)
        if not has_text(found):
            return self._count("empty_document")
        if (name := self._config.language_field) is not None:
            value, is_there = look_up(record, name)
            self.source_code = self._labels.read(value, is_there, self._start)
        if (name := self._config.group_field) is not None:
            self.group = hash_group(look_up(record, name)[0], self._block.origin.path, f"byte {self._start}")
        if (name := self._config.id_field) is not None:
            self.id = read_id(look_up(record, name)[0], self._block.origin.path, f"byte {self._start}")
        return found

    def _find_exclusion(self, record: dict[str, Any]) -> str | None:
        values = [look_up(record, condition.field)[0] for condition in self._where.conditions]
        try:
            return self._damage.find_exclusion(self._where, values)
        except InputError as error:
            raise InputError(f"{self._block.origin.path}, byte {self._start}: {error}") from error

    def _join(self, record: dict[str, Any]) -> str | None:
        """The text of several or of nested fields; None, which is counted, if there is none."""
        names = (self._text_field,) if self._text_field in record else self._names
        found = [look_up(record, name) for name in names]
        read = [(value, _as_text(value)) for value, _ in found]
        texts = [text for _, text in read if text is not None]
        odd = [_name_type(value) for value, text in read if text is None and value is not None]
        if odd or not texts:
            names_found = self._find_fields(record)
            self._damage.add_fields(self._block.origin.path, names_found)
            if any(is_there for _, is_there in found):
                kind = odd[0] if odd else "NoneType"
                self._count("field_not_text", f"field {self._text_field!r} holds {kind}, not a string or strings")
            else:
                shown = f"; the fields are {list_names(names_found)}" if names_found else ""
                self._count("missing_field", f"no field {self._text_field!r}{shown}")
            return None
        if not all(is_there for _, is_there in found):
            self._count("missing_part", f"not all of the fields {self._text_field!r}")
        return "\n".join(texts)

    def _find_fields(self, record: dict[str, Any]) -> Mapping[str, object]:
        """All fields of a record; of a large line only the wanted ones."""
        return record if len(self._line) > LARGE_LINE else dict(self._load(str(self._line, "utf-8")))

    def _encode(self, text: str) -> bytes:
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            where = f"U+{ord(text[error.start]):04X}"
            self._damage.add("lone_surrogate", self._block.origin.path, self._start, where)
            # By way of UTF-16, because text.encode(errors="replace") would make a lone surrogate a ?, not U+FFFD.
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()

    def _count(self, reason: str, detail: str = "") -> bytes | None:
        """Count a case of damage. Returns None, which stands for a line without text."""
        self._damage.add(reason, self._block.origin.path, self._start, detail)
        return None


def _as_text(value: Any) -> str | None:
    """A string, or those of a list, joined by line feeds; null in a list is none of them."""
    if isinstance(value, list) and all(isinstance(one, str | None) for one in value):
        return "\n".join(one for one in value if one is not None)
    return value if isinstance(value, str) else None


def _name_type(value: Any) -> str:
    odd = [one for one in value if not isinstance(one, str | None)] if isinstance(value, list) else []
    return f"list of {type(odd[0]).__name__}" if odd else type(value).__name__


@cache
def make_decoder(names: tuple[str, ...]) -> msgspec.json.Decoder[dict[str, Any]]:
    """Decodes the fields of these names in an object, and no others; points in the names lead into its objects."""
    tree: dict[str, Any] = {}
    for name in names:
        tree.setdefault(name, {})
        inner = tree
        for part in name.split("."):
            inner = inner.setdefault(part, {})
    return msgspec.json.Decoder(_make_type(tree))


def _make_type(tree: dict[str, Any]) -> Any:
    """The type of an object with fields that may hold anything. tree: by name, the fields of the object in each."""
    typed_dict: Any = TypedDict
    plain_dict: Any = dict
    typed_list: Any = list
    scalar = str | int | float | bool | None
    other: Any = scalar | typed_list[scalar | _Array | typed_dict("dict", {}, total=False)]
    if all(name.isascii() for name in tree):
        return typed_dict("dict", {name: other | _make_type(inner) for name, inner in tree.items()}, total=False)
    # msgspec 0.22 does not find a key beyond ASCII in a TypedDict, so all fields are built here.
    return plain_dict[str, other | (dict[str, Any] if any(tree.values()) else _make_type({}))]


def cut_deep(line: str) -> str:
    """A line with null for each array and object inside of 199 others, so that parsers have the stack for it.

    What was there is not checked.
    """
    depth, begin, parts = 0, 0, []
    for found in _STRING_OR_BRACKETS.finditer(line):
        outside, start = depth, found.start()
        if line[start] in "[{":
            depth += found.end() - start
            if outside < _DEEPEST <= depth:
                parts.append(line[begin : start + _DEEPEST - 1 - outside])
        elif line[start] in "]}":
            depth -= found.end() - start
            if depth < _DEEPEST <= outside:
                parts.append("null")
                begin = start + outside - _DEEPEST + 1
    if depth < _DEEPEST:
        parts.append(line[begin:])
    return "".join(parts)
