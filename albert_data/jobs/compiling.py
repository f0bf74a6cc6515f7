"""Compile kernels before workers start, with a notice to the user where that takes long.

Numba compiles a kernel when it is first called with arguments of some types. That takes half a minute for all of a
build, once on each machine; later, loading them takes 0.25 s. Forked workers inherit the machine code, others load it
from the disk. On a cluster each machine compiles once (ray_worker.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from albert_data.jobs.progress import Progress

_PATIENCE_SECONDS = 1.5  # loading compiled kernels takes less, compiling them more
_NOTICE = "compiling the kernels, once on each machine"


def compile_with_notice(work: Callable[[], object], progress: Progress) -> None:
    """Call what runs kernels, and say so if it takes as long as compiling."""
    notice = threading.Timer(_PATIENCE_SECONDS, progress.say, [_NOTICE])
    notice.daemon = True
    notice.start()
    try:
        work()
    finally:
        notice.cancel()
