"""What a worker's memory allocator does with memory that is freed."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of glibc's mallopt
_LARGE, _FREE = 32 << 20, 256 << 20


def keep_memory() -> None:
    """Take arrays of up to 32 MB from memory that was freed before, where the allocator is glibc's.

    A worker makes and frees arrays of some MB over and over. Left alone, glibc gives such memory back to the system or
    keeps it, as the layout of its heap happens to be; and the system clears each page that it gives out anew: half a
    million pages and 0.9 s for a gigabyte of text.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE)
        mallopt(_TRIM_THRESHOLD, _FREE)
