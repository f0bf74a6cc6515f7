"""What may name a row: integers of any kind, and nothing that only looks like one."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np


def to_row_number(index: SupportsIndex, num_rows: int) -> int:
    """A row from 0 on. index: an integer of any kind; a negative one counts from the end."""
    row = _to_int(index)
    if not -num_rows <= row < num_rows:
        allowed = f"; allowed are {-num_rows} to {num_rows - 1}" if num_rows else ""
        raise IndexError(f"row {row} of a split of {num_rows} rows{allowed}")
    return row % num_rows


def _to_int(index: SupportsIndex) -> int:
    try:
        if not isinstance(index, bool):
            return operator.index(index)
    except TypeError:
        pass
    raise TypeError(f"a row is named by {index!r:.40}, of {_name_type(index)}; an integer is needed")


def to_row_numbers(indices: np.ndarray | Sequence[SupportsIndex], num_rows: int) -> np.ndarray:
    """Rows from 0 on, int64. indices: integers of any kind, in one dimension; none at all may be of any type."""
    found = _to_integers(indices)
    outside = found[(found < 0) | (found >= num_rows)]  # before the cast: a large uint64 would turn negative
    if len(outside):
        allowed = f"; allowed are 0 to {num_rows - 1}" if num_rows else ""
        raise IndexError(f"row {outside[0]} of a split of {num_rows} rows{allowed}")
    return found.astype(np.int64, copy=False)


def _to_integers(indices: Any) -> np.ndarray:
    try:
        found = np.asarray(indices)
    except ValueError as error:  # lists of several lengths
        raise TypeError(f"rows are named by {indices!r:.40}; integers in one dimension are needed") from error
    if found.ndim == 1 and found.dtype.kind in "fO" and not isinstance(indices, np.ndarray):
        return np.array([_to_int(index) for index in indices], object)  # numpy makes floats of some mixed integers
    if found.ndim == 1 and (found.dtype.kind in "iu" or (len(found) == 0 and found.dtype.kind != "b")):
        return found
    raise TypeError(
        f"rows are named by {found.dtype}, in {found.ndim} dimensions; integers in one dimension are needed, such as "
        "np.flatnonzero(mask) for a mask"
    )


def _name_type(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
