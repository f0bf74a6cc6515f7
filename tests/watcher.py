"""Cleans up after a run of the tests that is killed, also by SIGKILL.

`python watcher.py PID MARK FOLDER` waits until process PID ends, kills all processes whose environment has MARK, and
removes FOLDER. A run that ends by itself ends its watcher first.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path


def start_watcher(folder: Path) -> subprocess.Popen[bytes] | None:
    """Watch this process and all that it starts from now on. None where processes can't be watched."""
    if not hasattr(os, "pidfd_open"):
        return None
    mark = f"ALBERT_DATA_TESTS={folder}"
    command = [sys.executable, __file__, str(os.getpid()), mark, str(folder)]
    watcher = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    os.environ.update([mark.split("=", 1)])
    return watcher


def kill_marked(mark: str) -> None:
    """Kill until none is left: a process may start another meanwhile."""
    while marked := [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if has_mark(pid, mark)]:
        for pid in marked:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def has_mark(pid: int, mark: str) -> bool:
    try:
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


if __name__ == "__main__":
    with suppress(ProcessLookupError):  # it has ended already
        select.select([os.pidfd_open(int(sys.argv[1]))], [], [])
    kill_marked(sys.argv[2])
    shutil.rmtree(sys.argv[3], ignore_errors=True)
