"""How this project compiles its inner loops.

A kernel is a short loop over flat arrays, without policy: random state, limits and tables are arguments.
Numba keeps the machine code beside the source, or in the user's cache folder where that is read-only,
so a machine compiles once. The parent compiles before workers are forked, so that they inherit it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile on the first call for each combination of argument types."""
    return cast(Function, numba.njit(cache=True, nogil=True)(function))


def inline_kernel(function: Function) -> Function:
    """Compile into its callers: for what a loop calls for each byte or word with arrays as arguments.

    A call counts the references of each array up and down, atomically: 80 ns for ten arrays.
    """
    return cast(Function, numba.njit(cache=True, nogil=True, inline="always")(function))
