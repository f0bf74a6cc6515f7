"""How this project compiles its inner loops.

A kernel is a short loop over flat arrays, without policy: random state, limits and tables are arguments.
Numba keeps the machine code beside the source, or in the user's cache folder where that is read-only,
so a machine compiles once. The parent compiles before workers are forked, so that they inherit it.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.cgutils import raw_memcpy
from numba.core.compiler import CompileResult
from numba.core.environment import Environment, lookup_environment
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps
from numba.extending import intrinsic

from albert_data.compilers import HelperCompiler, KernelCompiler
from albert_data.interrupts import hold_interrupts

Function = TypeVar("Function", bound=Callable[..., Any])
_IMPORTED = re.compile(r"^from (albert_data[.\w]*) import", re.MULTILINE)


def kernel(function: Function, *, nogil: bool = True) -> Function:
    """Compile on the first call for each combination of argument types. nogil: whether other threads run beside it."""
    compiled: Any = numba.njit(nogil=nogil, pipeline_class=KernelCompiler)(function)
    with suppress(RuntimeError):  # no folder to keep it in can be written: each process compiles
        compiled._cache = _Cache(function)
    compiled._compile_for_args = hold_interrupts()(compiled._compile_for_args)  # first calls alone come through it
    return cast(Function, compiled)


def helper(function: Function) -> Function:
    """The same for what kernels call, and Python can't: it is compiled into them and need not be kept by itself.

    It is compiled once for all constants, which are types of their own to Numba, and without what Python and C would
    call.
    """
    options: Any = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # not in Numba's stubs
    compiled: Any = numba.njit(pipeline_class=HelperCompiler, **options)(function)
    compiled.add_overload = lambda result: compiled.overloads.update({tuple(result.signature.args): result})
    compiled._compile_for_args = lambda *_, **__: _refuse(function.__name__)
    template = compiled.get_call_template
    compiled.get_call_template = lambda args, names: template([types.unliteral(arg) for arg in args], names)
    return cast(Function, compiled)


def _refuse(name: str) -> None:
    """Numba's own answer to such a call would be a segmentation fault, for there is nothing made for Python to call."""
    raise TypeError(f"{name} is a helper: kernels can call it, Python can't")


class _Kept(CompileResultCacheImpl):
    """What is kept of a kernel: what calling it takes, beside Numba's own account of it.

    Numba's takes twice as long to load, for it is meant for linking other functions with this one: its bitcode and all
    its symbols, and of each environment of Numba's functions in it the module with all that this imports. No kernel
    calls another, helpers are compiled into each.
    """

    def reduce(self, result: Any) -> Any:
        whole = super().reduce(result)
        try:
            (name, _, (code, _)), *parts, _, _, _, reload, others = whole
            described = [(other.env_name, other.globals["__name__"], list(other.consts)) for other in others]
            part = () if reload else (name, code, *parts, described)
        except Exception:  # another Numba than this was written for
            part = ()
        return part, dumps(whole)

    def rebuild(self, context: Any, kept: Any) -> Any:
        part, whole = kept
        try:
            return _rebuild(context, *part)
        except Exception:  # whatever another Numba makes of it
            context.refresh()
            return super().rebuild(context, pickle.loads(whole))


def _rebuild(
    context: Any,
    name: str,
    code: bytes,
    description: Any,
    environment: Any,
    signature: Any,
    others: list[tuple[str, str, list[Any]]],
) -> CompileResult:
    codegen = context.codegen()
    library = codegen.create_library(name)
    library.enable_object_caching()
    library._set_compiled_object(code)
    library._finalize_final_module()
    codegen._engine._defined_symbols.add(description.llvm_cpython_wrapper_name)
    environments = []
    for other, module, consts in others:
        found = lookup_environment(other)
        if found is None:
            found = Environment({"__name__": module})  # of the module no more is needed, so it is not imported
            found.env_name, found.consts[:] = other, consts
            Environment._memo[other] = found
        codegen.set_env(other, found)
        environments.append(found)  # which Numba refers to weakly
    known = {
        "target_context": context,
        "typing_context": context.typing_context,
        "library": library,
        "entry_point": context.get_executable(library, description, environment),
        "fndesc": description,
        "environment": environment,
        "signature": signature,
        "objectmode": False,
        "lifted": (),
        "reload_init": [],
        "referenced_envs": environments,
    }
    return CompileResult(**dict.fromkeys(CompileResult._fields) | known)


class _Cache(FunctionCache):
    """Numba's own, but for four faults.

    It overlooks changes in other files, fails on a file that is cut short, loads what only compiling takes (see _Kept),
    and before that takes 150 ms to learn how to compile (`refresh`): Numba does that anyway before it compiles, and
    kernels that are loaded need nothing of it but the counters of references.
    """

    _impl_class = _Kept

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        own: Any = self._cache_file._source_stamp
        self._cache_file._source_stamp = (own, _stamp_sources(function.__module__))

    def load_overload(self, signature: Any, context: Any) -> Any:
        try:
            return self._load(signature, context)
        except Exception:  # whatever unpickling comes upon
            with suppress(OSError):
                self.flush()
            return None

    def _load(self, signature: Any, context: Any) -> Any:
        try:
            rtsys.initialize(context)
            return self._load_overload(signature, context)
        except (AttributeError, TypeError):  # another Numba than this was written for
            return super().load_overload(signature, context)


def is_kept(kernel: Callable[..., Any]) -> bool:
    """Whether a kernel has been compiled on this machine."""
    cache = cast(Any, kernel)._cache
    try:
        return isinstance(cache, _Cache) and len(cache._cache_file._load_index()) > 0
    except Exception:  # whatever unpickling comes upon
        return False


def _stamp_sources(module: str) -> str:
    """A hash of the source of a module and of all modules of this package that it imports, directly or not.

    Kernels take functions and constants from other modules. Numba itself looks at the kernel's own file alone.
    """
    digest = sha256()
    found, waiting = {module}, [module]
    while waiting:
        source = _read_source(waiting.pop())
        for name in _IMPORTED.findall(source):
            if name not in found:
                found.add(name)
                waiting.append(name)
    for name in sorted(found):
        digest.update(_read_source(name).encode())
    return digest.hexdigest()


@cache
def _read_source(module: str) -> str:
    """The source of a module of this package, or of all modules of a package."""
    path = Path(__file__).parent.parent.joinpath(*module.split("."))
    files = [path.with_suffix(".py")] if not path.is_dir() else sorted(path.glob("*.py"))
    return "".join(file.read_text("utf-8") for file in files if file.is_file())


_intrinsic = cast(Callable[[Any], Any], intrinsic)  # or its typing would ask callers for the context

# Casts of kernels. NumPy's types, but its stubs take their values for no ints.
I64: Any = np.int64
U64: Any = np.uint64
_pointer_type: Any = types.CPointer
Pointer = Any  # what `pointer` gives; a type of Numba's own


# Pointers are for the innermost loops. An array that is handed to a function, even to one that is inlined, is
# counted up and down, atomically; and its indices are looked at lest they be negative. Nothing checks the bounds
# of a pointer, nor keeps its array alive, and an array that a kernel makes is freed after its last use: a kernel
# takes arrays, and hands pointers to these on to its helpers.


@_intrinsic
def pointer(context: Any, array: Any) -> Any:
    """Where an array begins."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return _pointer_type(array.dtype)(array), generate


@_intrinsic
def pointer_at(context: Any, like: Any, address: Any) -> Any:
    """A pointer of the type of another one, to an address: what lies there is not an array of Python's."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[1], arguments[0].type)

    return like(like, types.int64), generate


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
def load_u64(context: Any, pointer: Any, at: Any) -> Any:
    """Eight bytes of an array from item `at` on, as one uint64, the first byte lowest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_point_to_u64(builder, arguments), align=1)

    return types.uint64(pointer, types.int64), generate


@_intrinsic
def store_u64(context: Any, pointer: Any, at: Any, word: Any) -> Any:
    """Write a uint64 over eight bytes of an array, from item `at` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _point_to_u64(builder, arguments), align=1)
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


@_intrinsic
def find_bytes(context: Any, pointer: Any, at: Any, fold: Any, low: Any, span: Any) -> Any:
    """Which of 64 bytes from `at` on, with the bits of `fold` set, are in low .. low + span - 1: a uint64, a bit each.

    fold, low, span: uint8.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.IntType(8), 64)
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)

        def spread(byte: Any) -> Any:
            one = builder.insert_element(ir.Constant(vector, ir.Undefined), byte, ir.Constant(ir.IntType(32), 0))
            return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)

        place = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), vector.as_pointer())
        folded = builder.or_(builder.load(place, align=1), spread(arguments[2]))
        found = builder.icmp_unsigned("<", builder.sub(folded, spread(arguments[3])), spread(arguments[4]))
        return builder.bitcast(found, ir.IntType(64))

    return types.uint64(pointer, types.int64, types.uint8, types.uint8, types.uint8), generate


@_intrinsic
def copy_items(context: Any, target: Any, target_at: Any, source: Any, source_at: Any, count: Any) -> Any:
    """Copy `count` items of an array to another place, of the same type; the two don't overlap."""
    if target != source:
        raise TypeError(f"items of {source} are copied to {target}")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        out, out_at, data, at, length = arguments
        size = context.get_abi_sizeof(context.get_data_type(signature.args[0].dtype))
        target_place, place = builder.gep(out, [out_at]), builder.gep(data, [at])
        raw_memcpy(builder, target_place, place, length, size)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


def _point_to_u64(builder: Any, arguments: Any) -> Any:
    return builder.bitcast(builder.gep(arguments[0], [arguments[1]]), ir.IntType(64).as_pointer())


@_intrinsic
def rarely(context: Any, condition: Any) -> Any:
    """The condition itself, which is mostly false: what is done then is compiled out of the way of the rest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bit = ir.IntType(1)
        expect = builder.module.declare_intrinsic("llvm.expect", [bit], ir.FunctionType(bit, [bit, bit]))
        return builder.call(expect, [arguments[0], ir.Constant(bit, 0)])

    return types.boolean(types.boolean), generate


@_intrinsic
def count_trailing_zeros(context: Any, word: Any) -> Any:
    """The number of zero bits below the lowest one of a uint64; 64 for none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@_intrinsic
def count_ones(context: Any, word: Any) -> Any:
    """The number of set bits of a uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@_intrinsic
def multiply_and_fold(context: Any, a: Any, b: Any) -> Any:
    """The product of two uint64, 128 bits, its halves combined by exclusive or."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, long = ir.IntType(64), ir.IntType(128)
        product = builder.mul(*(builder.zext(argument, long) for argument in arguments))
        high = builder.trunc(builder.lshr(product, ir.Constant(long, 64)), word)
        return builder.xor(builder.trunc(product, word), high)

    return types.uint64(types.uint64, types.uint64), generate
