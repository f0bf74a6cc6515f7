"""The errors that a user can cause.

Each message says what is wrong, where, the value found, what is allowed and what to do next. The command line prints it
as one line and exits with 1. An OSError is a failure of the system. A wrong argument of a public function is a
ConfigError; methods and smaller functions raise TypeError and IndexError, as Python does. Any other exception is a bug.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


class AlbertDataError(Exception):
    """Base of the errors that a user's files, settings or machine cause."""


class ConfigError(AlbertDataError):
    """A setting is out of range, or two settings contradict each other."""


class ArgumentError(ConfigError):
    """Arguments contradict each other, or one is unknown or missing. The command line exits with 2, not with 1."""


class InputError(AlbertDataError):
    """A corpus is missing, empty, unreadable or (with --strict) damaged."""


class StorageError(AlbertDataError):
    """A path is a URL that can't be used, or a store refuses or gives no answer."""


class TokenizerError(AlbertDataError):
    """A tokenizer can't be loaded or trained."""


class OutputError(AlbertDataError):
    """A result can't be written, or something that another program or build made is in its place."""


class ShardError(AlbertDataError):
    """A shard folder is missing, unfinished, damaged or of another version."""


class WorkerError(AlbertDataError):
    """A worker process died on a task more than once."""


class CheckpointError(AlbertDataError):
    """A training run can't be resumed from the files on the disk."""


def explain_os_error(error: OSError, where: str = "") -> str:
    """Return the system's message and the file's name; `where` is used if the error has no name."""
    name = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else where
    what = error.strerror or str(error)
    return f"{name}: {what}" if name else what


def explain_disk_error(error: OSError, where: str = "") -> AlbertDataError:
    """An error of ours with the message of the system. where: used if the error names no file."""
    return AlbertDataError(f"{explain_os_error(error, where)}; fix that and give the same command again")


@contextmanager
def readable(what: str, next_step: str, kind: type[AlbertDataError] = InputError) -> Iterator[None]:
    """Say of what is read here that it can't be, if the system fails."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what} can't be read: {error.strerror}; {next_step}") from error
