"""Folders that `save_to_disk` of the library `datasets` wrote: which of their files are data.

`state.json` names the data files of a folder, and `dataset_dict.json` the folders of splits. Caches (cache-*.arrow) lie
beside them and are not named.
"""

from __future__ import annotations

import os
from typing import Any

from albert_data.errors import InputError
from albert_data.storage import FILE, find_kind, make_path
from albert_data.storage.files import read_json

STATE, SPLITS = "state.json", "dataset_dict.json"
DESCRIPTIONS = (STATE, SPLITS, "dataset_info.json", "dataset_infos.json", "README.md")


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
    """The paths of the data files of a saved data set; None if the folder is none.

    Splits are folders of their own. Raises InputError if a file is missing, or others select the rows that count.
    """
    state = _read(folder, STATE)
    if not isinstance(files := state.get("_data_files"), list):
        return None
    if state.get("_indices_data_files"):
        raise InputError(
            f"data set {folder} has files of indices, as old versions of datasets wrote them; load it, and save it "
            "again"
        )
    named = (file.get("filename") for file in files if isinstance(file, dict))
    return [_find(folder, name) for name in named if isinstance(name, str)]


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
