"""Folders that `save_to_disk` of the library `datasets` wrote: which of their files are data, and which rows count.

`state.json` names the data files of a folder; older versions also name a file of indices, which selects rows in any
order. `dataset_dict.json` names the folders of splits. Caches (cache-*.arrow) lie beside them and are not named.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from albert_data.errors import InputError
from albert_data.storage import FILE, find_kind, find_storage, make_path
from albert_data.storage.files import read_json

STATE, SPLITS = "state.json", "dataset_dict.json"
DESCRIPTIONS = (STATE, SPLITS, "dataset_info.json", "dataset_infos.json")
_MAX_ROWS = 2**62


def list_other_splits(folder: str) -> list[str]:
    """The names of the folders of other splits beside a split `train`; none if there is no such split.

    Raises InputError if a split that dataset_dict.json names is missing.
    """
    found = _read(folder, SPLITS).get("splits")
    splits = list(map(str, found)) if isinstance(found, list) else []
    for split in splits:
        if find_kind(os.path.join(folder, split, STATE)) != FILE:
            raise InputError(
                f"data set {folder} has no split {split}, which {SPLITS} names; restore it, or name other folders"
            )
    return [split for split in splits if split != "train"] if "train" in splits else []


def list_data_files(folder: str) -> list[str] | None:
    """The paths of the data files of a saved data set; None if the folder is none. Raises InputError if one is missing.

    Splits are folders of their own.
    """
    names = _list_names(_read(folder, STATE), "_data_files")
    return None if names is None else [_find(folder, name) for name in names]


def find_indices(path: str) -> str | None:
    """The file of indices that selects rows of a data file; None where all of its rows count."""
    folder = os.path.dirname(path)
    state = _read(folder, STATE)
    data, indices = _list_names(state, "_data_files"), _list_names(state, "_indices_data_files")
    if not data or not indices or os.path.basename(path) not in data:
        return None
    if len(data) > 1 or len(indices) > 1:
        raise InputError(
            f"data set {folder} has indices for several files, which is not supported; load it with datasets, and save "
            "it again"
        )
    return _find(folder, indices[0])


def read_indices(path: str) -> np.ndarray:
    """The numbers of rows in a file of indices: int64, ascending. Raises InputError if it can't be read."""
    import pyarrow.ipc

    found = [np.zeros(0, np.int64)]
    try:
        for batch in pyarrow.ipc.open_stream(find_storage(path).map(make_path(path))):
            column = batch.column(0)
            column.validate()
            if not pyarrow.types.is_integer(column.type) or column.null_count:
                raise refuse_indices(path, f"they are {column.type} with {column.null_count} nulls, not whole numbers")
            found.append(column.to_numpy())
            if len(column) and not 0 <= found[-1].min() <= found[-1].max() < _MAX_ROWS:
                raise refuse_indices(path, f"they hold {found[-1].min()} to {found[-1].max()}, which number no rows")
    except (pyarrow.ArrowException, OSError, ValueError, IndexError) as error:
        raise refuse_indices(path, error) from error
    return np.sort(np.concatenate(found, dtype=np.int64, casting="unsafe"))


def refuse_indices(path: str, what: object) -> InputError:
    return InputError(f"indices {path} can't be read: {what}; save the data set again")


def _list_names(state: dict[str, Any], key: str) -> list[str] | None:
    """The names of files in a state, None where there are none."""
    files = state.get(key)
    if not isinstance(files, list):
        return None
    return [file["filename"] for file in files if isinstance(file, dict) and isinstance(file.get("filename"), str)]


def _read(folder: str, name: str) -> dict[str, Any]:
    """A JSON object of a folder; empty if the file is none, or missing."""
    try:
        return read_json(make_path(os.path.join(folder, name)))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    except OSError as error:
        raise InputError(
            f"data set {folder} has a {name} that can't be read: {error.strerror}; restore it, or name other inputs"
        ) from error


def _find(folder: str, name: str) -> str:
    path = os.path.join(folder, name)
    if os.path.basename(name) != name or find_kind(path) != FILE:
        raise InputError(f"data set {folder} has no file {name}, which {STATE} names; restore it, or name other inputs")
    return path
