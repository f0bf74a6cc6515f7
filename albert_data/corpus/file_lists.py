"""Lists of inputs: `@files.txt` stands for the names in files.txt, a path or glob on each line."""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Iterator

from albert_data.errors import InputError
from albert_data.storage import FILE, find_kind, find_storage, is_remote, strip_file_scheme

_MAX_BYTES = 64 << 20


def is_list(name: str) -> bool:
    """Whether a name of the user stands for a list: it begins with @, and no file has it as a whole."""
    return name.startswith("@") and find_kind(name, follow=False) is None


def read_list(path: str) -> Iterator[str]:
    """Yield the names in a list, relative to the folder of the list; to the present folder if the list is a pipe.

    Raises InputError if it can't be read, or names nothing.
    """
    try:
        is_file = find_kind(path) == FILE
        with find_storage(path).open(path) if is_file else open(path, "rb") as file:
            folder = os.path.dirname(path) if is_file else ""
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"list {path} can't be read: {error.strerror}; give a file with a path on each line"
        ) from error
    if len(data) > _MAX_BYTES:
        raise InputError(
            f"list {path} has over 64 MiB; give a file with a path on each line, or name the input without @"
        )
    is_empty = True
    for line in io.BytesIO(data):
        name = os.fsdecode(line.strip(b"\r\n"))
        if name.strip():
            is_empty = False
            yield place_name(folder, name)
    if is_empty:
        raise InputError(f"list {path} names no input; write a path or glob on each line")


def place_name(folder: str, name: str) -> str:
    """The path of a name that is relative to a folder; in a glob, the folder stands for itself even if it holds `[`."""
    name = strip_file_scheme(name)
    if is_remote(name):
        return name
    path = os.path.join(folder, name)
    if glob.has_magic(name) and find_kind(path, follow=False) is None:
        return os.path.join(glob.escape(folder), name)
    return path
