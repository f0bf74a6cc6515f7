"""Python's garbage collector, and what a command loads to stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def keep_garbage() -> Iterator[None]:
    """Load without collecting, and never look again for garbage among what is loaded.

    Numba alone makes 200,000 objects. Collections during their making took 0.09 s, and the last one, as Python ends,
    0.15 s.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
