"""A storage as unlike a disk as a store of objects: whole objects under flat keys, in memory.

It has no folders, links, renames, descriptors or paths that the system could open.
"""

from __future__ import annotations

import errno
import fnmatch
import io
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow

from albert_data.storage import FILE, FOLDER, Address, Disk, Status


class Died(BaseException):
    """What a process does that is killed: nothing more."""


class FlatStore(Disk):
    """Holds all below some folders; the rest is on the disk.

    changes_left: how many objects are written or removed before the process dies.
    """

    def __init__(self, *roots: Path) -> None:
        self._roots, self._objects, self._versions = roots, dict[str, tuple[bytes, Status]](), count()
        self.changes_left = 1 << 30

    def take(self, folder: Path) -> None:
        """Move the files of a folder from the disk to here."""
        for path in folder.rglob("*"):
            if path.is_file():
                self._objects[str(path)] = path.read_bytes(), Disk().status(path)
                path.unlink()

    def files(self, folder: Path) -> dict[str, bytes]:
        return {key.removeprefix(f"{folder}/"): data for key, (data, _) in self._objects.items() if _is_in(key, folder)}

    def _is_here(self, path: Address) -> bool:
        return any(path == root or _is_in(os.fspath(path), root) for root in self._roots)

    def _get(self, path: Address) -> tuple[bytes, Status]:
        if (found := self._objects.get(os.fspath(path))) is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", os.fspath(path))
        return found

    def _change(self) -> None:
        if not self.changes_left:
            raise Died
        self.changes_left -= 1

    def _put(self, path: Path, data: bytes) -> None:
        self._change()
        self._objects[str(path)] = data, Status(FILE, len(data), 0, next(self._versions))

    def status(self, path: Address, *, follow: bool = True) -> Status:
        if not self._is_here(path):
            return super().status(path, follow=follow)
        if any(_is_in(key, path) for key in self._objects):
            return Status(FOLDER, 0, 0, 0)
        return self._get(path)[1]

    def resolve(self, path: Address) -> str:
        return os.path.normpath(path)

    def list_names(self, folder: Path) -> list[str]:
        return list({name.split("/")[0] for name in self.files(folder)})

    def walk(self, folder: Address, refuse: Callable[[OSError], object]) -> Iterator[tuple[str, list[str], list[str]]]:
        names = self.list_names(Path(folder))
        folders = [name for name in names if self.status(Path(folder, name)).kind == FOLDER]
        yield os.fspath(folder), folders, [name for name in names if name not in folders]
        for name in folders:
            yield from self.walk(Path(folder, name), refuse)

    def glob(self, pattern: str) -> Iterator[str]:
        yield from fnmatch.filter(self._objects, pattern)

    def open(self, path: Address, known: Status | None = None) -> io.BufferedReader:
        return io.BufferedReader(io.BytesIO(self._get(path)[0])) if self._is_here(path) else super().open(path, known)

    def read_with_status(self, path: Path, most: int) -> tuple[bytes, Status]:
        return self._get(path) if self._is_here(path) else super().read_with_status(path, most)

    def read_into(self, path: Path, begin: int, buffer: memoryview) -> int:
        data = self._get(path)[0][begin : begin + len(buffer)]
        buffer[: len(data)] = data
        return len(data)

    def map(self, path: Path, sha256: str | None = None) -> pyarrow.Buffer:
        return pyarrow.py_buffer(self._get(path)[0]) if self._is_here(path) else super().map(path)

    @contextmanager
    def create(self, path: Path, *, sync: bool = True) -> Iterator[Any]:
        file = io.BytesIO()
        yield file
        self._put(path, file.getvalue())

    def replace_together(self, folder: Path, files: Mapping[str, bytes]) -> None:
        for name in reversed(list(files)):
            self.remove(folder / name)
        for name, data in files.items():
            self._put(folder / name, data)

    def place(self, folder: Path, files: Mapping[str, Path]) -> None:
        for name, made in files.items():
            if str(made) in self._objects:
                self._put(folder / name, self._get(made)[0])  # a copy within the store
                self.remove(made)
            else:
                self._get(folder / name)

    def sync(self, path: Path) -> None:
        pass

    def remove(self, path: Path) -> None:
        if str(path) in self._objects:
            self._change()
            del self._objects[str(path)]

    def remove_leftovers(self, folder: Path) -> None:
        pass

    def make_folder(self, path: Path) -> None:
        pass

    def remove_empty(self, folder: Path) -> None:
        pass

    def lock(self, path: Path, mark: bytes, seconds: float) -> Callable[[], None]:
        self._put(path, mark)
        return lambda: None


def _is_in(key: str, folder: Address) -> bool:
    return key.startswith(f"{os.fspath(folder)}/")
