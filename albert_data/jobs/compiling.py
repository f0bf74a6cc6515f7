"""Compile before the work starts, with a notice to the user where that takes long.

Numba compiles a kernel when it is first called with arguments of some types. That takes half a minute for all of a
build, once on each machine; later, loading them takes 0.25 s. Forked workers inherit the machine code, others load it
from the disk. On a cluster each machine compiles once (ray_worker.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
_PATIENCE_SECONDS = 1.5  # loading compiled kernels takes less, compiling them more
_NOTICE = "compiling the kernels, once on each machine, for up to half a minute"


def compile_with_notice(work: Callable[[], Result], say: Callable[[str], object], line: str = _NOTICE) -> Result:
    """Call what may compile, as kernels do, and say so if it takes as long. Returns what it returns."""
    notice = threading.Timer(_PATIENCE_SECONDS, say, [line])
    notice.daemon = True
    notice.start()
    try:
        return work()
    finally:
        notice.cancel()
