"""Receipts: what a task or a shard came to, kept in JSON until the build is finished.

A receipt whose hash is not that of its values counts as none, and its task is done again: a disk may have lost a part.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from albert_data.files import read_json, write_json


def write_receipt(path: Path, values: dict[str, Any]) -> None:
    write_json(path, {"values": values, "sha256": _hash(values)}, sync=False)


def read_receipt(path: Path) -> dict[str, Any] | None:
    """The values of a receipt; None where there is none, or not as it was written."""
    try:
        found = read_json(path)
        values = found.get("values")
        if isinstance(values, dict) and found.get("sha256") == _hash(values):
            return cast(dict[str, Any], values)
    except (OSError, ValueError, RecursionError):
        pass
    return None


def _hash(values: dict[str, Any]) -> str:
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
