"""The fields of records: how the settings name them, and which there are where a wanted one is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import isfinite
from typing import Any

from xxhash import xxh3_64_intdigest

from albert_data.errors import InputError
from albert_data.text.escaping import escape_controls
from albert_data.text.wording import list_some

# ---- how the settings name fields: one, or several joined by commas; a point leads into an object ----
#
# A field whose own name is the whole of that, with its comma or points, comes first.


MAX_ID_BYTES = 1 << 10


def split_names(field: str, known: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of the fields that are joined, or the whole name if it is one of those that are known.

    >>> split_names("title, article.text")
    ('title', 'article.text')
    """
    return (field,) if field in known else tuple(name.strip() for name in field.split(","))


def look_up(record: Mapping[str, Any], name: str) -> tuple[Any, bool]:
    """The value of a field, and whether the record has it.

    >>> look_up({"article": {"text": "a"}}, "article.text")
    ('a', True)
    """
    if name in record:
        return record[name], True
    value: Any = record
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            return None, False
        value = value[part]
    return value, True


def hash_group(value: Any, path: str = "", place: str = "") -> int:
    """A hash of the group that a field names, 64 bits; 0 where it names none. Raises what `_read_name` raises.

    >>> hash_group(7) == hash_group("7") == hash_group(7.0), hash_group(["7"]), hash_group(float("nan"))
    (True, 0, 0)
    """
    name = _read_name(value, path, place, "group")
    return 0 if name is None else xxh3_64_intdigest(name.encode(errors="replace"))


def read_id(value: Any, path: str = "", place: str = "") -> str:
    """The id that a field holds, without white space around it; "" where it holds none. Raises InputError.

    >>> read_id(7.0), read_id(" a b "), read_id(None)
    ('7', 'a b', '')
    """
    name = (_read_name(value, path, place, "id") or "").strip().encode(errors="backslashreplace")
    if len(name) > MAX_ID_BYTES:
        what = f"the id field holds {len(name):,} bytes; allowed are {MAX_ID_BYTES:,}"
        raise InputError(f"{path}, {place}: {what}; name another with --id-field")
    return name.decode()


def _read_name(value: Any, path: str, place: str, what: str) -> str | None:
    """A string, or the digits of a whole number; None for what is neither. Raises InputError for other numbers."""
    if isinstance(value, float | Decimal) and isfinite(value):
        if value != int(value):
            raise InputError(f"{path}, {place}: the {what} field holds {value}; a string or a whole number is needed")
        value = int(value)
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None


# ---- the fields of records without a wanted one, to suggest another ----

MAX_NAMES = 100  # names that are kept: the first in the alphabet, so that the order of records does not matter
_SHOWN_NAMES, _SHOWN_LEN = 8, 40
_DEEPEST = 4


def name_field(name: str) -> str:
    """A field's name in quotes, with controls escaped and cut at 40 characters."""
    shown = name if len(name) <= _SHOWN_LEN else name[: _SHOWN_LEN - 3] + "..."
    return f'"{escape_controls(shown)}"'


def list_names(names: Iterable[str]) -> str:
    """Some names in alphabetical order."""
    return list_some(list(map(name_field, sorted(names))), _SHOWN_NAMES) or "none"


@dataclass(kw_only=True)
class Fields:
    """The fields of records without a wanted field: the text field with a string in it, or the language field.

    Of names only the first 100 in alphabetical order are kept, and the first 41 characters of each.

    num_records: how many such records
    counts: how many of them have a field, by its name
    """

    num_records: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, record: Mapping[str, object], count: int = 1) -> None:
        """Add a record, or several with the same fields."""
        self.num_records += count
        for name in _flatten("", record):
            # JSON can escape a lone surrogate ("\\ud800"), which UTF-8 can't hold.
            self._count(name[: _SHOWN_LEN + 1].encode(errors="backslashreplace").decode(), count)

    def merge(self, other: Fields) -> None:
        self.num_records += other.num_records
        for name in other.counts:
            self._count(name, other.counts[name])

    def _count(self, name: str, count: int) -> None:
        if name not in self.counts and len(self.counts) == MAX_NAMES:
            if name > (last := max(self.counts)):
                return
            del self.counts[last]
        self.counts[name] += count

    def describe(self) -> str:
        """Which fields the records have, and what to do; empty if none was seen."""
        if not self.counts:
            return ""
        kind = "field" if len(self.counts) == 1 else "fields"
        records = "the record has" if self.num_records == 1 else f"the {self.num_records:,} records have"
        names = list_some([f"{name_field(name)} ({self.counts[name]:,})" for name in self.rank()], _SHOWN_NAMES)
        return f"{records} the {kind} {names}; pass --text-field NAME with the one that holds the text"

    def rank(self) -> list[str]:
        """The names, the most frequent first."""
        return sorted(self.counts, key=lambda name: (-self.counts[name], name))


def _flatten(prefix: str, record: Mapping[str, object]) -> Iterator[str]:
    """The names of the fields of a record, and of those of its objects at most four deep."""
    for name, value in record.items():
        if isinstance(value, dict) and value and prefix.count(".") < _DEEPEST:
            yield from _flatten(f"{prefix}{name}.", value)
        else:
            yield prefix + name
