"""Reads files of a training run that may be cut short, changed, or not files at all, and says why one fails.

Imports no torch.

In: a path. Out: its bytes or its JSON object, or an error that `explain` turns into one line. Only regular files are
opened: reading a FIFO waits for a writer, and a device may have no end.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from albert_data.errors import CheckpointError, OutputError
from albert_data.storage.files import read_json

_MAX_BYTES = 1 << 22  # of a JSON file: a run.json has 3 KB
_SHOWN_LEN, _EXPLAINED_LEN = 80, 300
_NO_FILE = (None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.EFBIG)  # EINVAL: no regular file
FREE_SPACE = "free some space, then --resume"


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises OSError and ValueError; see `explain`."""
    return read_json(path, _MAX_BYTES)


def load_object(path: Path, advice: str) -> dict[str, Any]:
    """As `read_object`, but raises CheckpointError, with advice."""
    try:
        return read_object(path)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} can't be read ({explain(error)}); {advise(error, advice)}") from error


@contextmanager
def explain_writing(what: str, advice: str) -> Iterator[None]:
    """Turn an OSError of the block into an OutputError of one line: `what: why; advice`."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{what}: {explain(error)}; {advice}") from error


def explain(error: Exception) -> str:
    """The message of an error in one line of at most a few hundred characters."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return _shorten(" ".join(text.split()), _EXPLAINED_LEN)


def advise(error: Exception, advice: str) -> str:
    """The advice for a damaged file, or another one if the system does not open or read it: it may be whole."""
    is_refused = isinstance(error, OSError) and error.errno not in _NO_FILE
    return "it may be whole: make it readable, and give the command again" if is_refused else advice


def show(value: object) -> str:
    """A value from a file, shortened to fit in a line."""
    return _shorten(repr(value), _SHOWN_LEN)


def _shorten(text: str, max_len: int) -> str:
    return text if len(text) <= max_len else f"{text[: max_len - 3]}..."


def check_number(name: str, value: Any, *, most: float, is_whole: bool = False) -> None:
    """Raise ValueError for a value that is not a number from 0 to `most`."""
    is_number = isinstance(value, int if is_whole else int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= most:
        raise ValueError(f"{name} is {show(value)}; a {'whole ' * is_whole}number from 0 to {most:g} is needed")
