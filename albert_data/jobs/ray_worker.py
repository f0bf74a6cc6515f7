"""What the processes of a Ray cluster do: check their machine and prepare it for a job once, and run the job's tasks.

In: a `Shipment` and tasks, both small. Out: results, and what the user is to be told. What another try may not meet is
raised as a NodeError, which Ray tries again. Files are read and written where the task runs.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from typing import Any

from albert_data.errors import AlbertDataError, ConfigError, InputError, StorageError
from albert_data.jobs.engine import PreparedJob, explain_error, keep_memory
from albert_data.rules import current_versions
from albert_data.storage import find_storage
from albert_data.storage.files import find_cache_folder, is_regular, read_bytes, write_bytes
from albert_data.version import __version__

_LOCK, _MARK = "prepare.lock", "prepared"
_LOCK_SECONDS = 600.0

_job: tuple[str, Callable[[Any], Any]] | None = None  # of this process, with its scratch buffers


@dataclass(frozen=True, kw_only=True)
class Shipment:
    """A job on its way to the machines. name: new in each run; content: a pickled PreparedJob.

    versions, places: as `list_versions` and `list_places` give them where the command runs; folder: its own, in which
    relative paths begin.
    """

    name: str
    content: bytes
    packages: tuple[str, ...]
    versions: dict[str, str]
    places: dict[str, tuple[int, int]]
    folder: str


class NodeError(Exception):
    """What another try may not meet, as it is one of the node, its disk or its store."""

    def __init__(self, error: AlbertDataError) -> None:
        super().__init__(error)
        self.error = error


def list_versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Whatever must be equal on all machines, since it affects bytes or what can be unpickled."""
    rules, unicode, libraries = current_versions(packages)
    return {"albert-data": __version__, "rules": str(rules), "Unicode tables": unicode, **libraries}


def list_places(paths: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """The size and the time of files, by which a machine recognises them. Raises FileNotFoundError."""
    found = {path: find_storage(path).status(path) for path in paths}
    return {path: (status.num_bytes, status.modified_ns) for path, status in found.items()}


class _Listener(logging.Handler):
    """Keeps the first line of each wording, for the command: nobody reads what a worker prints."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.setdefault(str(record.msg), f"node {socket.gethostname()}: {record.getMessage()}")


def run_task(name: str, sent: list[Any], task: Any) -> tuple[Any, dict[str, str]]:
    """Run a task. sent: a list of one reference to a Shipment, which Ray fetches only if it is asked to.

    Returns the result, and what there is to say to the user, each line by its wording without the values in it. Raises
    NodeError, or what the job raises.
    """
    log, listener = logging.getLogger("albert_data"), _Listener()
    log.addHandler(listener)
    try:
        return _load(name, sent)(task), listener.lines
    except Exception as error:
        told = explain_error(error, task.describe())
        if told is None or (told is error and not is_of_node(told)):
            raise
        told.args = (f"node {socket.gethostname()}: {told}",)
        raise NodeError(told) from None
    finally:
        log.removeHandler(listener)


def is_of_node(error: AlbertDataError) -> bool:
    """Whether another node may not meet this error: it is one of a store, or the system's, as of a file to read.

    An OSError that a library raises without a number is about what a file holds.
    """
    cause = error.__cause__
    return isinstance(error, StorageError) or (isinstance(cause, OSError) and cause.errno is not None)


def _load(name: str, sent: list[Any]) -> Callable[[Any], Any]:
    """The job of this process: unpickled once, since it holds a tokenizer and scratch buffers."""
    global _job
    if _job is None or _job[0] != name:
        _job = None  # frees the buffers of the job before
        keep_memory()
        shipment: Shipment = import_module("ray").get(sent[0])
        check_versions(shipment)  # before anything is unpickled that another version may not know
        with suppress(OSError):  # where it is missing, relative paths are not seen, and `_check_places` says so
            os.chdir(shipment.folder)
        _check_places(shipment.places)
        prepared: PreparedJob[Any, Any] = pickle.loads(shipment.content)
        _prepare_once(shipment, prepared)
        _job = name, prepared.job
    return _job[1]


def check_versions(shipment: Shipment) -> None:
    try:
        here = list_versions(shipment.packages)
    except PackageNotFoundError as error:
        raise ConfigError(f"node {socket.gethostname()} lacks the package {error.name}; install it there") from error
    for package, version in shipment.versions.items():
        if here[package] != version:
            raise ConfigError(
                f"node {socket.gethostname()} has {package} {here[package]}, and this command {version}; "
                "install the same versions on all nodes"
            )


def _prepare_once(shipment: Shipment, prepared: PreparedJob[Any, Any]) -> None:
    """Compile the kernels, once for each machine: the first process does it, the others wait.

    Without a folder for the cache, as for a user without a home, each process does it.
    """
    try:
        folder = find_cache_folder("kernels")
        host = socket.gethostname()  # nodes may share the folder
        storage, mark = find_storage(folder), folder / f"{_MARK}-{host}"
        storage.make_folder(folder)
        unlock = storage.lock(folder / f"{_LOCK}-{host}", b"", _LOCK_SECONDS)
    except (OSError, RuntimeError):
        prepared.prepare()
        return
    try:
        if not is_regular(mark) or read_bytes(mark) != shipment.name.encode():
            prepared.prepare()
            write_bytes(mark, shipment.name.encode(), sync=False)
    finally:
        unlock()


def _check_places(places: dict[str, tuple[int, int]]) -> None:
    for path, expected in places.items():
        try:
            found = list_places((path,))[path]
        except OSError:
            found = None
        if found != expected:
            what = "does not see" if found is None else "sees another file at"
            raise InputError(
                f"node {socket.gethostname()} {what} {path}; inputs and output must lie where all nodes see them, "
                "as on a shared file system or in a store"
            )
