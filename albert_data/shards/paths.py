"""Finds the files of a shard folder, and checks that they can be opened.

In: a folder, and a name that its manifest gives. Out: a path inside the folder, and the size of the file there. A
manifest may come from anywhere, so each name is checked before the file is opened: opening a FIFO waits for a writer.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

from albert_data.errors import ShardError
from albert_data.shards.schema import explain_damage
from albert_data.storage import FOLDER, KIND_NAMES, find_storage, make_path
from albert_data.storage.status import check_regular

CARD_NAME = "README.md"


def find_file(folder: Path, name: str) -> tuple[Path, int]:
    """The path and size in bytes of a file that a manifest names.

    Raises OSError where there is nothing, and where the name leads out of the folder, even through a link, or to
    anything but a regular file; ValueError for a zero byte in it.
    """
    storage = find_storage(folder)
    path = make_path(storage.resolve(folder / name))
    if not path.is_relative_to(storage.resolve(folder)):
        what = "it lies outside the folder; the manifest may only name files inside it"
        raise OSError(errno.EINVAL, what, str(path))
    status = storage.status(path)
    check_regular(path, status)
    return path, status.num_bytes


def check_folder(folder: Path) -> None:
    """Raise ShardError unless there is a folder."""
    try:
        kind = find_storage(folder).status(folder).kind
    except (OSError, ValueError) as error:  # ValueError: a zero byte
        raise ShardError(
            f"shard folder {folder} can't be read: {explain_damage(error)}; name one that `albert-data build` made"
        ) from error
    if kind != FOLDER:
        raise ShardError(
            f"{folder} is no folder but {KIND_NAMES.get(kind, 'a file')}; name one that `albert-data build` made"
        )


def list_files(folder: Path) -> Iterator[Path]:
    """The files and folders that a build may own in a shard folder, whether they exist or not."""
    names = ("manifest.json", CARD_NAME, "tokenizer", "train", "validation", "ids", ".build")
    yield from (folder / name for name in names)
