"""How the settings name fields of records: one, or several joined by commas; a point leads into an object.

"title,article.text" is the field `title` and the field `text` in the object `article`. A field whose own name is the
whole of that, with its comma or points, comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def split_names(field: str) -> tuple[str, ...]:
    """The names of the fields that are joined."""
    return tuple(name.strip() for name in field.split(","))


def look_up(record: Mapping[str, Any], name: str) -> tuple[Any, bool]:
    """The value of a field, and whether the record has it."""
    if name in record:
        return record[name], True
    value: Any = record
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            return None, False
        value = value[part]
    return value, True
