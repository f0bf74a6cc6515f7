"""Where the harness keeps its files."""

from __future__ import annotations

import os
from pathlib import Path

FINDINGS = Path("reliability-findings")  # of the folder that the command is given in; git ignores it


def find_memory() -> str | None:
    """Where files are kept in memory, if there is such a place: a case writes dozens."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
