"""Receipts: a JSON file for each finished task, kept until the job is finished.

A receipt whose SHA-256 does not match its values counts as missing, and its task is done again. Receipts are not
synced by an engine of one machine, so a crash of it may leave damaged ones.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from albert_data.files import read_json, write_json


def write_receipt(path: Path, values: dict[str, Any], *, sync: bool = False) -> None:
    write_json(path, {"values": values, "sha256": _hash(values)}, sync=sync)


def read_receipt(path: Path) -> dict[str, Any] | None:
    """The values of a receipt; None where it is missing or damaged."""
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
