"""Python runs a helper of kernels uncompiled; tests call it compiled, through a kernel around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def around(helper: Callable[..., Any]) -> Callable[..., Any]:
    """Return a compiled function that does nothing but call a helper."""
    caller: Callable[..., Any] = numba.njit(lambda *arguments: helper(*arguments))
    return caller
