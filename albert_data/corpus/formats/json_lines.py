"""The texts of JSON lines: the text fields of each line that is an object, and its language field.

In: a block of JSON lines. Out: UTF-8. json.loads reads the lines, except those that are large, nested too deeply for
it, or hold an integer that it refuses. These are scanned (json_scanning.py), so that any line takes at most a few times
its bytes of memory.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from albert_data.config import TextConfig
from albert_data.corpus import blocks
from albert_data.corpus.damage import Damage
from albert_data.corpus.fields import list_names, look_up, split_names
from albert_data.corpus.formats.json_arrays import JsonLines
from albert_data.corpus.formats.json_scanning import (
    NOTHING,
    NULL,
    OBJECT,
    STRING,
    WRONG,
    find_field,
    name_kind,
    read_string,
    scan,
)
from albert_data.corpus.lines.valid_utf8 import is_utf8, repair, repair_parts
from albert_data.corpus.lines.white_space import has_text
from albert_data.corpus.sources import Labels

LARGE_LINE = 1 << 20  # json.loads takes thirty times as much memory for nested objects
_LONGEST_NAME = 12 * 129  # bytes of a source that are read; 128 characters of it count, and an escaped one has up to 12
_BOM = b"\xef\xbb\xbf"


def compile_scanner() -> None:
    """Compile the kernels that only few lines need, before workers start."""
    reader = _Reader(blocks.Block(data=b"", format="jsonl", path="", start=0), TextConfig(), Damage())
    JsonLines(io.BytesIO(b"[]"), "text").read()
    reader._scan(np.frombuffer(b'{"text": "\\n"}', np.uint8))


def parse_lines(block: blocks.Block, config: TextConfig, damage: Damage) -> tuple[list[bytes], np.ndarray | None]:
    """The text of every line that has one, and if `config.language_field` is set, its source code (uint32).

    Lines without text are counted.
    """
    reader, begin, texts, source_codes = _Reader(block, config, damage), 0, [], []
    while begin < len(block.data):
        end = block.data.find(b"\n", begin) + 1 or len(block.data)
        text = reader.read(begin, end)
        if text is not None:
            texts.append(text)
            source_codes.append(reader.source_code)
        begin = end
    return texts, np.array(source_codes, np.uint32) if config.language_field else None


class _Reader:
    """Reads the texts of the lines of a block, and counts the lines without one.

    source_code: of the last line that had a text.
    """

    def __init__(self, block: blocks.Block, config: TextConfig, damage: Damage) -> None:
        self._block, self._damage, self._start = block, damage, block.start
        self._text_field, self._language_field = config.text_field, config.language_field
        self._names = split_names(config.text_field)
        self._labels = Labels(config, block.language, damage)
        self.source_code = self._labels.default

    def read(self, begin: int, end: int) -> bytes | None:
        """The text of the line begin .. end of the block; None if it has none."""
        self._start, length = self._block.start + begin, end - begin
        if length > blocks.MAX_JSON_LINE:
            return self._count_too_long()
        if length > LARGE_LINE:
            return self._read_large(np.frombuffer(self._block.data, np.uint8, length, begin))
        line = repair(self._block.data[begin:end], self._block.path, self._start, self._damage)
        line = line.removeprefix("\ufeff")  # on any line: in joined files each file may begin with a byte order mark
        return None if line.isspace() else self._load(line)

    def _load(self, line: str) -> bytes | None:
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            return self._count("malformed_json", str(error))
        except (ValueError, RecursionError):  # an integer of over 4,300 digits, or nested too deep
            return self._scan(np.frombuffer(line.encode(), np.uint8))
        if not isinstance(record, dict):
            return self._count_no_object(type(record).__name__)
        text = record.get(self._text_field)
        if not isinstance(text, str):
            text = self._join(record)
        if text is None:
            return None
        found = self._check_text(self._encode(text))
        if found is not None and self._language_field is not None:
            value, is_there = look_up(record, self._language_field)
            self._read_language(value, is_there)
            if not is_there:
                self._damage.unlabelled.add(record)
        return found

    def _join(self, record: dict[str, Any]) -> str | None:
        """The text of several or of nested fields; None, which is counted, if there is none."""
        names = (self._text_field,) if self._text_field in record else self._names
        found = [look_up(record, name) for name in names]
        texts = [value for value, _ in found if isinstance(value, str)]
        odd = [type(value).__name__ for value, _ in found if value is not None and not isinstance(value, str)]
        if odd or not texts:
            for fields in self._damage.fields_of(self._block.path):
                fields.add(record)
            if any(is_there for _, is_there in found):
                self._count_no_text(odd[0] if odd else "NoneType")
            else:
                self._count("missing_field", f"no field {self._text_field!r}; the fields are {list_names(record)}")
            return None
        self._count_missing(all(is_there for _, is_there in found))
        return "\n".join(texts)

    def _read_large(self, raw: np.ndarray) -> bytes | None:
        if not is_utf8(raw):
            pieces = (raw[at : at + LARGE_LINE].tobytes() for at in range(0, len(raw), LARGE_LINE))
            repaired = repair_parts(pieces, self._block.path, self._start, self._damage)
            raw = _join_some(repaired, blocks.MAX_JSON_LINE)
            if len(raw) > blocks.MAX_JSON_LINE:
                return self._count_too_long()
        return self._scan(raw[3:] if raw[:3].tobytes() == _BOM else raw)

    def _scan(self, raw: np.ndarray) -> bytes | None:
        """The same as `_load`, without building the object."""
        line_kind, kind, begin, end = scan(raw, self._text_field)
        if line_kind == NOTHING:
            return None
        if line_kind == WRONG:
            return self._count("malformed_json", f"no JSON at byte {begin} of the line")
        if line_kind != OBJECT:
            return self._count_no_object(name_kind(line_kind))
        names = () if kind != NOTHING else self._names
        text = self._join_scanned(raw, [find_field(raw, name) for name in names] or [(kind, raw[begin:end])])
        found = None if text is None else self._check_text(text)
        if found is not None and self._language_field is not None:
            self._scan_language(raw, self._language_field)
        return found

    def _join_scanned(self, raw: np.ndarray, values: list[tuple[int, np.ndarray]]) -> bytes | None:
        """The same as `_join`. values: kind and content of each field."""
        strings = [read_string(content) for kind, content in values if kind == STRING]
        odd = [kind for kind, _ in values if kind not in (STRING, NULL, NOTHING)]
        if odd or not strings:
            for fields in self._damage.fields_of(self._block.path):
                fields.add_first(raw)
            if all(kind == NOTHING for kind, _ in values):
                return self._count("missing_field", f"no field {self._text_field!r}")
            return self._count_no_text(name_kind(odd[0] if odd else NULL))
        if lone := next((lone for _, lone in strings if lone), 0):
            self._damage.add("lone_surrogate", self._block.path, self._start, f"U+{lone:04X}")
        self._count_missing(all(kind != NOTHING for kind, _ in values))
        return b"\n".join(text for text, _ in strings)

    def _count_missing(self, has_all: bool) -> None:
        if not has_all:
            self._count("missing_part", f"not all of the fields {self._text_field!r}")

    def _scan_language(self, raw: np.ndarray, field: str) -> None:
        kind, content = find_field(raw, field)
        # A value that is not a string is not read: the message shows the name of its type, in brackets.
        value: object = None if kind == NOTHING else [name_kind(kind)]
        if kind == STRING:
            value = read_string(content[:_LONGEST_NAME])[0].decode(errors="replace")
        self._read_language(value, kind != NOTHING)
        if kind == NOTHING:
            self._damage.unlabelled.add_first(raw)

    def _read_language(self, value: object, is_there: bool) -> None:
        self.source_code = self._labels.read(value, is_there, self._block.path, self._start)

    def _encode(self, text: str) -> bytes:
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            where = f"U+{ord(text[error.start]):04X}"
            self._damage.add("lone_surrogate", self._block.path, self._start, where)
            # By way of UTF-16, because text.encode(errors="replace") would make a lone surrogate a ?, not U+FFFD.
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()

    def _check_text(self, text: bytes) -> bytes | None:
        """The text, or None if it is white space and line ends alone."""
        return text if has_text(text) else self._count("empty_document")

    def _count_too_long(self) -> bytes | None:
        return self._count("line_too_long", f"over {blocks.MAX_JSON_LINE} bytes")

    def _count_no_object(self, found: str) -> bytes | None:
        return self._count("malformed_json", f"a JSON object is needed, found {found}")

    def _count_no_text(self, found: str) -> bytes | None:
        return self._count("field_not_text", f"field {self._text_field!r} holds {found}, not a string")

    def _count(self, reason: str, detail: str = "") -> bytes | None:
        """Count a case of damage. Returns None, which stands for a line without text."""
        self._damage.add(reason, self._block.path, self._start, detail)
        return None


def _join_some(parts: Iterator[bytes], size: int) -> np.ndarray:
    """All parts as one array, or as many as it takes to exceed `size` bytes."""
    joined = bytearray()
    for part in parts:
        joined += part
        if len(joined) > size:
            break
    return np.frombuffer(memoryview(joined).toreadonly(), np.uint8)
