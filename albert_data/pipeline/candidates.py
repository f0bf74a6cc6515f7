"""Files in which the tasks of a cluster leave the sentences that may be in the sample of a vocabulary.

Ray carries names and counts, no text. Each file is an Arrow stream of one batch: hashes (uint64), sentences (binary).
The process that trains the vocabulary removes a file once it has read it.

    OUT/.build/candidates/   of a build without --tokenizer
    DIR/.vocab/              of `vocab`
        lock                 locked by the running command; its text marks the folder as one of `vocab`
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow

from albert_data.errors import OutputError
from albert_data.files import is_regular, is_there, read_bytes, write_bytes
from albert_data.pipeline.workdir import LOCK_SECONDS
from albert_data.storage import FOLDER, find_kind, find_storage

_SUFFIX = ".candidates"
_WORK, _LOCK, _MARK = ".vocab", "lock", b"albert-data vocab\n"


class CandidateFiles:
    """The files of one reading of the corpus. It can be pickled.

    Their names are new for each reading: a task that was given up may still run, and write what was asked for before.
    place: a file that every machine has to see.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._reading = folder, os.urandom(8).hex()
        find_storage(folder).make_folder(folder)
        self.place = self.write("begin", {})

    def write(self, task_name: str, sentences: dict[bytes, int]) -> Path:
        """Write the candidates of a task, with their hashes."""
        path = self._folder / f"{task_name}-{self._reading}{_SUFFIX}"
        columns = [
            pyarrow.array(sentences.values(), pyarrow.uint64()),
            pyarrow.array(sentences, pyarrow.large_binary()),
        ]
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


def remove_candidates(folder: Path) -> None:
    """Remove the files that were never read: of tasks that ran twice, and of a command that was killed."""
    storage = find_storage(folder)
    for name in storage.list_names(folder):
        if name.endswith(_SUFFIX) and is_regular(folder / name):
            storage.remove(folder / name)
    storage.remove_leftovers(folder)


@contextmanager
def lock_folder(parent: Path) -> Iterator[Path]:
    """The folder for the candidates of `vocab`, in its DIR. It is removed at the end.

    Raises OutputError if another command uses it, or if it is not ours.
    """
    folder, storage = parent / _WORK, find_storage(parent)
    lock = folder / _LOCK
    if find_kind(folder, follow=False) not in (None, FOLDER) or (is_there(lock) and not _is_ours(lock)):
        raise OutputError(f"{folder} was not made by `vocab`; move it away, or name another folder")
    storage.make_folder(folder)
    try:
        unlock = storage.lock(lock, _MARK, LOCK_SECONDS)
    except BlockingIOError as error:
        raise OutputError(f"another `vocab` is writing to {parent}; wait for it to end") from error
    try:
        remove_candidates(folder)
        yield folder
    finally:
        remove_candidates(folder)
        storage.remove(lock)
        storage.remove_empty(folder)
        unlock()


def _is_ours(lock: Path) -> bool:
    return is_regular(lock) and _MARK.startswith(find_storage(lock).read_mark(lock))  # a kill may leave a part of it
