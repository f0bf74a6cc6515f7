"""How this project compiles its inner loops.

A kernel is a short loop over flat arrays, without policy: random state, limits and tables are arguments.
Numba keeps the machine code beside the source, or in the user's cache folder where that is read-only,
so a machine compiles once. The parent compiles before workers are forked, so that they inherit it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def inline_kernel(function: Function) -> Function:
    return cast(Function, numba.njit(cache=True, nogil=True, inline="always")(function))


_intrinsic = cast(Callable[[Any], Any], intrinsic)  # or its typing would ask callers for the context

# Casts of kernels. NumPy's types, but its stubs take their values for no ints.
Int: Any = np.int64
Word: Any = np.uint64
_pointer_type: Any = types.CPointer
Pointer = Any  # what `pointer` gives; a type of Numba's own
Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile on the first call for each combination of argument types."""
    return cast(Function, numba.njit(cache=True, nogil=True)(function))


# Pointers are for the innermost loops. An array that is handed to a function, even to one that is inlined, is
# counted up and down, atomically; and its indices are looked at lest they be negative. Nothing checks the bounds
# of a pointer, nor keeps its array alive: a kernel takes arrays, and hands pointers on to its helpers.


@_intrinsic
def pointer(context: Any, array: Any) -> Any:
    """Where an array begins."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return _pointer_type(array.dtype)(array), generate


@_intrinsic
def item(context: Any, pointer: Any, at: Any) -> Any:
    """The item `at` of an array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.gep(arguments[0], [arguments[1]]))

    return pointer.dtype(pointer, types.int64), generate


@_intrinsic
def put(context: Any, pointer: Any, at: Any, value: Any) -> Any:
    """Write the item `at` of an array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], builder.gep(arguments[0], [arguments[1]]))
        return context.get_dummy_value()

    return types.void(pointer, types.int64, pointer.dtype), generate


@_intrinsic
def load_word(context: Any, pointer: Any, at: Any) -> Any:
    """Eight bytes of an array from item `at` on, as one uint64, the first byte lowest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_point_to_word(builder, arguments), align=1)

    return types.uint64(pointer, types.int64), generate


@_intrinsic
def store_word(context: Any, pointer: Any, at: Any, word: Any) -> Any:
    """Write a uint64 over eight bytes of an array, from item `at` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _point_to_word(builder, arguments), align=1)
        return context.get_dummy_value()

    return types.void(pointer, types.int64, types.uint64), generate


@_intrinsic
def prefetch(context: Any, pointer: Any, at: Any) -> Any:
    """Ask for the cache line of an item that will be read soon."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, bits, bits, bits])
        function = builder.module.globals.get("llvm.prefetch.p0") or ir.Function(
            builder.module, kind, "llvm.prefetch.p0"
        )
        place = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), byte)
        builder.call(function, [place, *(ir.Constant(bits, value) for value in (0, 3, 1))])  # read, keep, data
        return context.get_dummy_value()

    return types.void(pointer, types.int64), generate


def _point_to_word(builder: Any, arguments: Any) -> Any:
    return builder.bitcast(builder.gep(arguments[0], [arguments[1]]), ir.IntType(64).as_pointer())


@_intrinsic
def count_trailing_zeros(context: Any, word: Any) -> Any:
    """The number of zero bits below the lowest one of a uint64; 64 for none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate
