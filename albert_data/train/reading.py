"""Files of a run as anybody may have left them: cut short, changed, or no files at all. Imports no torch.

In: a path. Out: its bytes or its JSON object, or an error to be told in one line. What is no regular file is never
opened: a FIFO waits for a writer, a device may have no end.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, cast

MOST_BYTES = 1 << 22  # of a JSON file: a run.json has 3 KB
MOST_LEVELS = 32  # of lists and objects in one another
_SHOWN_LEN, _EXPLAINED_LEN = 80, 300


def check_regular(path: Path) -> None:
    """Raise OSError for a path that is missing or no regular file. A link to one is one."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(None, "is no regular file", str(path))


def read_bytes(path: Path) -> bytes:
    """Raises OSError for what `check_regular` refuses."""
    check_regular(path)
    return path.read_bytes()


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises OSError and ValueError, for which `explain` has the words."""
    check_regular(path)
    if (num_bytes := path.stat().st_size) > MOST_BYTES:
        raise ValueError(f"it has {num_bytes:,} bytes; allowed are {MOST_BYTES:,}")
    value = parse_json(path.read_bytes())
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object")
    _check_levels(value)
    return cast(dict[str, Any], value)


def parse_json(text: bytes) -> Any:
    """Raises ValueError for anything that is no JSON in UTF-8."""
    try:
        return json.loads(text.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("its lists and objects lie too deep in one another") from error


def _check_levels(value: Any) -> None:
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [part for one in level for part in _parts(one)]
    if level:
        raise ValueError(f"its lists and objects lie more than {MOST_LEVELS} deep in one another")


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def explain(error: Exception) -> str:
    """What an error says, in one line of a few hundred characters at most."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return _shorten(" ".join(text.split()), _EXPLAINED_LEN)


def show(value: object) -> str:
    """A value found in a file, cut short enough for one line."""
    return _shorten(repr(value), _SHOWN_LEN)


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def check_number(name: str, value: Any, *, most: float, is_whole: bool = False) -> None:
    """Raise ValueError for what is no number from 0 to `most`."""
    is_number = isinstance(value, int if is_whole else int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= most:
        raise ValueError(f"{name} is {show(value)}; a {'whole ' * is_whole}number from 0 to {most:g} is needed")
