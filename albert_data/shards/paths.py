"""Finds the files of a shard folder, and checks that they can be opened.

In: a folder, and a name that its manifest gives. Out: a path inside the folder, and the size of the file there. A
manifest may come from anywhere, so each name is checked before the file is opened: opening a FIFO waits for a writer.

Where the message of an error begins with a verb ("is a FIFO; ..."), the caller puts the name of the file in front.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from albert_data.errors import ShardError
from albert_data.shards.schema import explain_damage
from albert_data.storage import FILE, FOLDER, KIND_NAMES, find_storage, make_path

CARD_NAME = "README.md"


def find_file(folder: Path, name: str) -> tuple[Path, int]:
    """The path and size in bytes of a file that a manifest names.

    Raises ShardError where the name leads out of the folder, even through a link, or to anything but a regular file,
    and OSError where there is nothing.
    """
    storage = find_storage(folder)
    try:
        path = make_path(storage.resolve(folder / name))
        is_inside = path.is_relative_to(storage.resolve(folder))
    except (OSError, ValueError) as error:  # a zero byte in the name
        raise ShardError(f"is no file name: {error}") from error
    if not is_inside:
        raise ShardError("lies outside the folder; the manifest may only name files inside it")
    found = storage.status(path)
    if found.kind != FILE:
        raise ShardError(f"is {KIND_NAMES.get(found.kind, 'of another kind')}; a regular file is needed")
    return path, found.num_bytes


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
    yield from (folder / name for name in ("manifest.json", CARD_NAME, "tokenizer", "train", "validation", ".build"))
