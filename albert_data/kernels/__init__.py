"""Compile inner loops with Numba.

A kernel is a short loop over flat arrays, without policy: random state, limits and tables are arguments. Python calls
kernels; kernels call helpers. The machine code is kept on the disk (kernels/cache.py), so each machine compiles once. A
build loads all its kernels before it forks workers, which inherit them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pickle import UnpicklingError
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import raw_memcpy
from numba.extending import intrinsic, register_jitable

from albert_data.kernels.cache import CompiledMeanwhile, compile_lock, config, drop, find_folder

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile on the first call for each combination of argument types. Python's lock is released while it runs."""
    # Of a function outside this package it is not known what it imports, so it is not kept.
    folder = find_folder() if function.__module__.startswith("albert_data.") else None
    if folder is None:
        return cast(Function, numba.njit(nogil=True)(function))
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
    try:
        compiled: Any = numba.njit(nogil=True, cache=True)(function)  # it reads the setting only here
    finally:
        config.CACHE_DIR = before
    compile_lock.kernels.add(compiled)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            try:
                return compiled(*arguments)
            except CompiledMeanwhile:
                compile_lock.free()
                return call(*arguments)
            except (EOFError, UnpicklingError):  # a file there is cut short: the power failed, or the disk was full
                drop(folder)
                return compiled(*arguments)  # it finds nothing and compiles
        except OSError:  # the disk is full, say: what it compiled is in memory alone
            return compiled(*arguments)
        finally:
            compile_lock.free()

    vars(call)["compiled"] = compiled  # for tests: Numba's statistics
    return cast(Function, call)


def helper(function: Function, *, inline: bool = False) -> Function:
    """Let kernels call a function. Python can call it too, uncompiled, unless it takes pointers.

    inline: insert it into its callers although it is long: then no call passes its arguments over the stack. Not by
    `njit`: it compiles a function once for each constant that kernels pass, `register_jitable` once for the type.
    """
    compiled: Function = register_jitable(forceinline=inline)(function)
    return compiled


# Casts in kernels. They are NumPy's types, but its stubs do not let values of them be used as an int.
I64: Any = np.int64
U64: Any = np.uint64


Pointer = Any  # what `pointer` returns

# Pointers are for the innermost loops. Numba counts references, atomically, to each array that it hands to a function,
# even to one that is inlined; and it tests each index for being negative. With a pointer it does neither. Nothing
# checks a pointer's bounds or keeps its array alive: an array that Python passed lives until the kernel returns, but
# one that the kernel made is freed right after the last use of its name, even if a pointer to it is used later.
#
# Each function below returns the types of its result and arguments, and a function that writes LLVM's instructions.
_intrinsic = cast(Callable[[Any], Any], intrinsic)  # by its own type, callers would pass `context`; they do not
_pointer_type: Any = types.CPointer


def _write(code: Callable[..., Any]) -> Callable[..., Any]:
    """The function that Numba wants, from one that takes the builder of instructions and the arguments of the call."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        result = code(builder, *arguments)
        return context.get_dummy_value() if signature.return_type == types.void else result

    return generate


def _find_item(builder: Any, pointer: Any, at: Any) -> Any:
    """The address of item `at`."""
    return builder.gep(pointer, [at])


def _find_u64(builder: Any, pointer: Any, at: Any) -> Any:
    """The address of item `at` as a pointer to a uint64. It need not be a multiple of eight (`align=1`)."""
    return builder.bitcast(_find_item(builder, pointer, at), ir.IntType(64).as_pointer())


@_intrinsic
def pointer(context: Any, array: Any) -> Any:
    """Return a pointer to the first item of an array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return _pointer_type(array.dtype)(array), generate


@_intrinsic
def pointer_at(context: Any, like: Any, address: Any) -> Any:
    """Return a pointer to an address, of the same type as the pointer `like`: for memory that is not a NumPy array."""
    return like(like, types.int64), _write(lambda builder, like, address: builder.inttoptr(address, like.type))


@_intrinsic
def item(context: Any, pointer: Any, at: Any) -> Any:
    """Read item `at`."""
    code = _write(lambda builder, pointer, at: builder.load(_find_item(builder, pointer, at)))
    return pointer.dtype(pointer, types.int64), code


@_intrinsic
def put(context: Any, pointer: Any, at: Any, value: Any) -> Any:
    """Write item `at`."""
    code = _write(lambda builder, pointer, at, value: builder.store(value, _find_item(builder, pointer, at)))
    return types.void(pointer, types.int64, pointer.dtype), code


@_intrinsic
def load_u64(context: Any, pointer: Any, at: Any) -> Any:
    """Read eight bytes from item `at` on as one uint64, the first byte lowest."""
    code = _write(lambda builder, pointer, at: builder.load(_find_u64(builder, pointer, at), align=1))
    return types.uint64(pointer, types.int64), code


@_intrinsic
def store_u64(context: Any, pointer: Any, at: Any, value: Any) -> Any:
    """Write a uint64 over eight bytes from item `at` on."""
    code = _write(lambda builder, pointer, at, value: builder.store(value, _find_u64(builder, pointer, at), align=1))
    return types.void(pointer, types.int64, types.uint64), code


@_intrinsic
def prefetch(context: Any, pointer: Any, at: Any) -> Any:
    """Ask for the cache line of item `at`, which will be read soon. Any address is allowed: a prefetch never faults."""

    def write(builder: Any, pointer: Any, at: Any) -> None:
        bits, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, bits, bits, bits])
        # declare_intrinsic would name it after the pointer's type; since version 15 LLVM's pointers have none.
        name = "llvm.prefetch.p0"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        address = builder.bitcast(_find_item(builder, pointer, at), byte)
        builder.call(function, [address, bits(0), bits(3), bits(1)])  # for reading; keep in all caches; data, no code

    return types.void(pointer, types.int64), _write(write)


@_intrinsic
def copy_items(context: Any, target: Any, target_at: Any, source: Any, source_at: Any, count: Any) -> Any:
    """Copy `count` items from one pointer to another of the same type. The two ranges do not overlap."""
    if target != source:
        raise TypeError(f"items of {source} are copied to {target}")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        out, out_at, data, at, length = arguments
        item_bytes = context.get_abi_sizeof(context.get_data_type(signature.args[0].dtype))
        raw_memcpy(builder, _find_item(builder, out, out_at), _find_item(builder, data, at), length, item_bytes)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


@_intrinsic
def find_bytes(context: Any, pointer: Any, at: Any, fold: Any, low: Any, width: Any) -> Any:
    """Find which of the 64 bytes from `at` on are in [low, low + width), after setting the bits of `fold` in each.

    Returns a uint64 with a bit for each byte, the first one lowest. fold, low, width: uint8. A fold of 0x20 makes ASCII
    letters lower case, so (0x20, ord("a"), 26) finds letters of either case.
    """

    def write(builder: Any, pointer: Any, at: Any, fold: Any, low: Any, width: Any) -> Any:
        vector = ir.VectorType(ir.IntType(8), 64)
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)

        def spread(byte: Any) -> Any:  # 64 copies: put it into lane 0, then take lane 0 for each lane
            one = builder.insert_element(ir.Constant(vector, ir.Undefined), byte, ir.Constant(ir.IntType(32), 0))
            return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)

        address = builder.bitcast(_find_item(builder, pointer, at), vector.as_pointer())
        folded = builder.or_(builder.load(address, align=1), spread(fold))
        # One comparison for both bounds: a byte below `low` wraps around to a large one.
        found = builder.icmp_unsigned("<", builder.sub(folded, spread(low)), spread(width))
        return builder.bitcast(found, ir.IntType(64))

    return types.uint64(pointer, types.int64, types.uint8, types.uint8, types.uint8), _write(write)


@_intrinsic
def rarely(context: Any, condition: Any) -> Any:
    """Return a condition that is mostly false; LLVM moves the code for when it is true out of the way."""

    def write(builder: Any, condition: Any) -> Any:
        bit = ir.IntType(1)
        expect = builder.module.declare_intrinsic("llvm.expect", [bit], ir.FunctionType(bit, [bit, bit]))
        return builder.call(expect, [condition, bit(0)])

    return types.boolean(types.boolean), _write(write)


@_intrinsic
def count_trailing_zeros(context: Any, bits: Any) -> Any:
    """Count the zero bits below the lowest set bit of a uint64; 64 if none is set."""
    code = _write(lambda builder, bits: builder.cttz(bits, ir.IntType(1)(0)))  # 0: the answer for no bits is defined
    return types.int64(types.uint64), code


@_intrinsic
def count_ones(context: Any, bits: Any) -> Any:
    """Count the set bits of a uint64."""
    return types.int64(types.uint64), _write(lambda builder, bits: builder.ctpop(bits))


@_intrinsic
def multiply_and_fold(context: Any, a: Any, b: Any) -> Any:
    """Multiply two uint64 and combine the halves of the 128 bits by exclusive or, so that each bit of both counts."""

    def write(builder: Any, a: Any, b: Any) -> Any:
        half, whole = ir.IntType(64), ir.IntType(128)
        product = builder.mul(builder.zext(a, whole), builder.zext(b, whole))
        high = builder.trunc(builder.lshr(product, whole(64)), half)
        return builder.xor(builder.trunc(product, half), high)

    return types.uint64(types.uint64, types.uint64), _write(write)
