"""Python can't call the helpers of kernels; tests can, through a kernel around one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

from albert_data.compilers import KernelCompiler


def around(helper: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled function that does nothing but call a helper."""
    caller: Callable[..., Any] = numba.njit(lambda *arguments: helper(*arguments), pipeline_class=KernelCompiler)
    return caller
