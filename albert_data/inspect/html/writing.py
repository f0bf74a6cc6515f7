"""What a report needs besides the rows."""

from __future__ import annotations

from importlib.util import find_spec

from albert_data.errors import OutputError


def check_charts() -> None:
    """Raise OutputError where the library that draws the charts is not installed."""
    if find_spec("matplotlib") is None:
        raise OutputError("--html draws its charts with matplotlib; install it: pip install 'matplotlib>=3.8'")
