"""Where this user's caches are."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def find_cache_folder(name: str) -> Path:
    """A folder for what can be made again, among this user's caches. Raises RuntimeError for a user without a home."""
    asked = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(asked):  # the XDG base directory specification says to ignore a relative one
        root = Path(asked)
    else:
        root = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return root / "albert-data" / name
