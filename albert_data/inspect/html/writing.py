"""The report onto the disk, whole or not at all."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from albert_data.errors import OutputError
from albert_data.files import write_bytes


def check_charts() -> None:
    """Raise OutputError where the library that draws the charts is not installed."""
    if find_spec("matplotlib") is None:
        raise OutputError("--html draws its charts with matplotlib; install it: pip install 'matplotlib>=3.8'")


def write_page(path: Path, page: str) -> None:
    """Write a page. Raises OutputError where the path can't be written; what stood there before then stays."""
    if path.is_dir():
        raise OutputError(f"{path} is a folder; name the file that the report is to be")
    try:
        write_bytes(path, page.encode())
    except OSError as error:
        raise OutputError(f"report {path} can't be written: {error.strerror}; name another file") from error
