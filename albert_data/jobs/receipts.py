"""Receipts: a JSON file for each finished task, kept until the job is finished.

A receipt whose SHA-256 does not match its values counts as missing, and its task is done again. Receipts are not
synced by an engine of one machine, so a crash of it may leave damaged ones.

Their values are dataclasses, named tuples, lists, sets, dictionaries of any class, and arrays of uint64. The types of
their fields say what is made of the JSON.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import msgspec
import numpy as np

from albert_data.storage.files import read_json, write_json

Kind = TypeVar("Kind")
_U64 = np.dtype("<u8")  # arrays are stored, so the byte order is fixed


def write_receipt(path: Path, found: object, *, sync: bool = False) -> None:
    values = to_values(found)
    write_json(path, {"values": values, "sha256": _hash(values)}, sync=sync)


def read_receipt(path: Path, kind: type[Kind]) -> Kind | None:
    """What was written; None where the receipt is missing or damaged, or holds another kind."""
    try:
        read = read_json(path)
        values = read.get("values")
        return from_values(values, kind) if read.get("sha256") == _hash(values) else None
    except (OSError, ValueError, RecursionError, msgspec.ValidationError):
        return None


def _hash(values: Any) -> str:
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def to_values(found: object) -> Any:
    """As JSON has it."""
    return msgspec.to_builtins(
        found, str_keys=True, order="deterministic", enc_hook=lambda array: array.astype(_U64).tobytes().hex()
    )


def from_values(values: Any, kind: type[Kind]) -> Kind:
    """What `to_values` was given. Raises msgspec.ValidationError for values of another kind."""
    return msgspec.convert(values, kind, str_keys=True, dec_hook=_make)


def _make(kind: Any, value: Any) -> Any:
    """An array, or a dictionary of a class of its own."""
    if kind is np.ndarray:
        return np.frombuffer(bytes.fromhex(value), _U64)
    make, arguments = get_origin(kind) or kind, get_args(kind)  # of Counter[int]: Counter, and int for its keys
    key = arguments[0] if arguments else str
    return make(from_values(value, dict[key, Any]))  # type: ignore[valid-type]  # a type that is made here
