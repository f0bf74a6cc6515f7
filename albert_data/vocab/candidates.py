"""Candidates for the sample of a vocabulary, in files: the tasks of a cluster leave them there, as Ray carries no text.

A file is an Arrow stream of one batch: hashes (uint64), sentences (binary). The process that trains the vocabulary
removes each as it reads it. Every attempt of a task writes a file of its own, because an attempt that Ray has given up
may still run, and write late.

    OUT/.build/candidates/   of a build without --tokenizer
    DIR/.vocab/              of `vocab`, see jobs/work_folder.py; its lock keeps other `vocab` out of DIR, on any engine
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow

from albert_data.errors import StorageError
from albert_data.jobs.work_folder import WorkFolder
from albert_data.storage import find_storage
from albert_data.storage.files import read_bytes, write_bytes

_FILES = ("*.candidates", "*.lines", "*.hashes")


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
    """Lock DIR of `vocab`. Yields the folder in it for candidates; what is left there is removed before and after.

    Raises OutputError if another command uses it, or if it is not ours.
    """
    folder = WorkFolder(parent, ".vocab", "`vocab`", _FILES)
    folder.lock()
    try:
        folder.drop()  # a command was killed
        yield folder.path
    finally:
        # Attempts ran late. What can't be removed now is removed by the next `vocab`. If another has taken the lock,
        # all is its own.
        with suppress(OSError, StorageError):
            folder.remove()
        folder.unlock()
