"""Makes small disks that can be full: a tmpfs in a mount namespace that ends with this process.

If mounting is not allowed, a limit on the size of files replaces them: another error, raised at the same calls.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CLONE_NEWNS = 0x00020000
PAGE_BYTES = 4096
ROOMY_BYTES = 512 << 20
_POLL_SECONDS = 0.002


def enter_namespace(folder: Path) -> str | None:
    """Give this process and its children their own mounts. Returns the reason if that is not allowed.

    folder: an empty folder, for a test mount. Call it before threads are started: a thread keeps the mounts of the
    thread that started it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS):
        return f"unshare: {os.strerror(ctypes.get_errno())}"
    for command in (["mount", "--make-rprivate", "/"], ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(folder)]):
        if fault := _try(command):
            return fault
    return _try(["umount", str(folder)])


def _try(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    return done.stderr.strip() or f"{command[0]} failed" if done.returncode else None


@contextmanager
def mount_disk(folder: Path) -> Iterator[None]:
    """Mount a large disk at a folder until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={ROOMY_BYTES}", "tmpfs", str(folder))
    try:
        yield
    finally:
        _run("umount", "--lazy", str(folder))


def resize_disk(folder: Path, num_bytes: int) -> None:
    """Set the size of a disk; it must not hold more already."""
    size = max(PAGE_BYTES, num_bytes // PAGE_BYTES * PAGE_BYTES)  # 0 would mean no limit
    _run("mount", "-o", f"remount,size={size}", str(folder))


def measure_disk(folder: Path) -> int:
    """Return the bytes in use."""
    found = os.statvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


@contextmanager
def measure_peak(folder: Path) -> Iterator[list[int]]:
    """Keep the maximal bytes in use in the list's only item until the block ends."""
    peak, over = [measure_disk(folder)], threading.Event()

    def watch() -> None:
        while not over.wait(_POLL_SECONDS):
            peak[0] = max(peak[0], measure_disk(folder))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def _run(*command: str) -> None:
    if fault := _try(list(command)):
        raise OSError(f"{' '.join(command)}: {fault}")
