"""Candidates for the sample of a vocabulary, in files: the tasks of a cluster leave them there, as Ray carries no text.

A file is an Arrow stream of one batch: hashes (uint64), sentences (binary). The process that trains the vocabulary
removes each as it reads it. Every attempt of a task writes a file of its own, because an attempt that Ray has given up
may still run, and write late.

    OUT/.build/candidates/   of a build without --tokenizer
    DIR/.vocab/              of `vocab`
        lock                 locked by the running command; its text marks the folder as one of `vocab`
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow

from albert_data.errors import OutputError, StorageError
from albert_data.files import is_regular, is_there, read_bytes, remove_files, write_bytes
from albert_data.jobs.work_folder import LOCK_SECONDS
from albert_data.storage import FOLDER, find_kind, find_storage

_NAME = re.compile(r".+-[0-9a-f]{16}\.candidates")
_WORK, _LOCK, _MARK = ".vocab", "lock", b"albert-data vocab\n"


def write_candidates(folder: Path, task_name: str, sentences: dict[bytes, int]) -> Path:
    """Write the candidates of a task, with their hashes, to a new file."""
    path = folder / f"{task_name}-{secrets.token_hex(8)}.candidates"
    columns = [pyarrow.array(sentences.values(), pyarrow.uint64()), pyarrow.array(sentences, pyarrow.large_binary())]
    batch = pyarrow.record_batch(columns, ["hash", "sentence"])
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    write_bytes(path, sink.getvalue())
    return path


def take_candidates(path: Path) -> dict[bytes, int]:
    """Read the candidates of a task and remove the file."""
    hashes, sentences = pyarrow.ipc.open_stream(read_bytes(path)).read_all().columns
    find_storage(path).remove(path)
    return dict(zip(sentences.to_pylist(), hashes.to_pylist(), strict=True))


@contextmanager
def lock_folder(parent: Path) -> Iterator[Path]:
    """The folder for the candidates of `vocab`, in its DIR. What is left in it is removed before and after.

    Raises OutputError if another command uses it, or if it is not ours.
    """
    folder, storage = parent / _WORK, find_storage(parent)
    lock = folder / _LOCK
    if find_kind(folder, follow=False) not in (None, FOLDER) or (is_there(lock) and not _is_ours(lock)):
        raise OutputError(f"{folder} was not made by `vocab`; move it away, or name another folder")
    try:
        storage.make_folder(folder)
        unlock = storage.lock(lock, _MARK, LOCK_SECONDS)
    except BlockingIOError as error:
        raise OutputError(f"another `vocab` is writing to {parent}; wait for it to end") from error
    except OSError as error:
        raise OutputError(f"output {parent} can't be written: {error.strerror}; name another folder") from error
    try:
        remove_files(folder, _NAME.fullmatch)  # a command was killed
        yield folder
    finally:
        # What can't be removed now is removed by the next `vocab`. If another has taken the lock, all is its own.
        with suppress(OSError, StorageError):
            storage.check_lock(lock)
            remove_files(folder, _NAME.fullmatch)  # attempts ran late
            storage.remove(lock)
        unlock()  # before the folder is removed: NFS keeps a file that is open
        storage.remove_empty(folder)


def sweep(parent: Path) -> None:
    """Remove what a killed `vocab` of a cluster left in DIR, unless another is at work there."""
    lock = parent / _WORK / _LOCK
    if is_regular(lock) and find_storage(lock).read_mark(lock) == _MARK:
        with suppress(OutputError), lock_folder(parent):
            pass


def _is_ours(lock: Path) -> bool:
    return is_regular(lock) and _MARK.startswith(find_storage(lock).read_mark(lock))  # a kill may leave a part of it
