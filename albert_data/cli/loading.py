"""How a command loads what it needs: Numba, NumPy, Arrow."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


@contextmanager
def load_lightly() -> Iterator[None]:
    """Load without collecting garbage, never look again for any among what is loaded, and start no threads of BLAS.

    Numba alone makes 200,000 objects. Collections during their making took 0.09 s, and the last one, as Python ends,
    0.15 s. OpenBLAS, which NumPy loads, has a thread for each core look out for large products of matrices; the
    commands that load by this have none.
    """
    is_set = _BLAS_THREADS in os.environ
    os.environ.setdefault(_BLAS_THREADS, "1")
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        if not is_set:  # nothing that is loaded later is meant
            del os.environ[_BLAS_THREADS]
