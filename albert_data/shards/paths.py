"""Finds the files of a shard folder, and checks that they can be opened.

In: a folder, and a name that its manifest gives. Out: a path inside the folder, and the size of the file there. A
manifest may come from anywhere, so each name is checked before the file is opened: opening a FIFO waits for a writer.

Where the message of an error begins with a verb ("is a FIFO; ..."), the caller puts the name of the file in front.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from albert_data.errors import ShardError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def find_file(folder: Path, name: str) -> tuple[Path, int]:
    """The path and size in bytes of a file that a manifest names.

    Raises ShardError where the name leads out of the folder, even through a link, or to anything but a regular file,
    and OSError where there is nothing.
    """
    try:
        path = (folder / name).resolve()
        is_inside = path.is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError) as error:  # a zero byte in the name, a loop of links
        raise ShardError(f"is no file name: {error}") from error
    if not is_inside:
        raise ShardError("lies outside the folder; the manifest may only name files inside it")
    return path, measure_file(path)


def measure_file(path: Path) -> int:
    """The size of a regular file in bytes. Raises ShardError for anything else, and OSError where there is nothing."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ShardError(f"is {_KINDS.get(stat.S_IFMT(found.st_mode), 'of another kind')}; a regular file is needed")
    return found.st_size


def check_folder(folder: Path) -> None:
    """Raise ShardError unless there is a folder."""
    try:
        mode = folder.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ShardError(f"shard folder {folder} does not exist; make one with `albert-data build`") from error
    except (OSError, ValueError) as error:  # ValueError: a zero byte
        why = error.strerror if isinstance(error, OSError) else error
        raise ShardError(
            f"shard folder {folder} can't be read: {why}; name one that `albert-data build` made"
        ) from error
    if not stat.S_ISDIR(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "a file")
        raise ShardError(f"{folder} is no folder but {kind}; name one that `albert-data build` made")


def list_files(folder: Path) -> Iterator[Path]:
    """All paths that a build may own in a shard folder, folders included.

    A command that writes another file into the folder must not write to one of these.
    """
    # README.md is the card; its name is defined in pipeline/card.py, which imports from this package.
    yield from (folder / name for name in ("manifest.json", "README.md"))
    for name in ("tokenizer", "train", "validation"):
        yield from (folder / name).rglob("*")
