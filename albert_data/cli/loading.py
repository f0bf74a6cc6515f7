"""How a command loads what it needs: Numba, NumPy, Arrow."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def load_lightly() -> Iterator[None]:
    """Load without collecting garbage, never look again for any among what is loaded, and start no threads of BLAS.

    Numba alone makes 200,000 objects. Collections during their making took 0.09 s, and the last one, as Python ends,
    0.15 s. OpenBLAS, which NumPy brings, has a thread for each core look out for products of matrices; there are none.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
