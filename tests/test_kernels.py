"""Compiled kernels are kept on the disk, and what is kept there is not trusted blindly."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from callable_helpers import around
from numba.core.compiler import Compiler, Flags
from numba.core.registry import cpu_target

from albert_data import kernels
from albert_data.compilers import UNUSED_PASSES, KernelCompiler
from albert_data.tokenizer.encoding import fill_in

PROGRAM = """
import sys
import numpy as np
from albert_data.tokenizer.encoding import fill_in
lengths = np.array([1, -1])
out = fill_in(np.array([7], np.uint16), lengths, np.array([8, 9], np.uint16), np.array([2]))
assert out.tolist() == [7, 8, 9], out
print(sum(fill_in.stats.cache_hits.values()))
"""


FAULTY = """
import numpy as np
from numba.core.environment import Environment
from albert_data.kernels import helper, kernel

@helper
def check(size):
    if size == 7:
        raise KeyError("seven", np.arange(size))

@kernel
def make_bytes(size):
    check(size)
    return np.full(size, size, np.uint8)

def main():
    assert make_bytes(3).tolist() == [3, 3, 3]
    for size in (7, -1, 1 << 62):
        try:
            make_bytes(size)
        except (KeyError, ValueError, MemoryError) as error:
            print(repr(error))
    modules = {environment.globals["__name__"] for environment in Environment._memo.values()}
    assert "numba.np.arrayobj" in modules and "albert_data.kernels" not in modules  # a user's own cache may name them
    print(sum(make_bytes.stats.cache_hits.values()))
"""


WORK = """
import gc
import sys
from pathlib import Path

from numba.core.dispatcher import Dispatcher

from albert_data.pipeline.mapping import MapJob
from albert_data.pipeline.plan import plan_tasks
from albert_data.pipeline.progress import NullProgress
from albert_data.pipeline.receipts import TaskReceipt
from albert_data.pipeline.reducing import ReduceJob, make_rules, plan_reduce
from albert_data.pipeline.warming import compile_kernels, load_to_encode
from albert_data.config import BuildConfig
from albert_data.corpus.inputs import find_inputs


def list_compiled():
    found = [thing for thing in gc.get_objects() if isinstance(thing, Dispatcher)]
    return {(kernel.py_func.__qualname__, str(types)) for kernel in found for types in kernel.overloads}


model, text, folder = map(Path, sys.argv[1:])
tokenizer = load_to_encode(model)
job = MapJob(BuildConfig(), tokenizer, folder, folder)
compile_kernels(job, tokenizer, NullProgress())
before = list_compiled()
total = TaskReceipt()
for task in plan_tasks(find_inputs([str(text), str(text.with_suffix(".jsonl"))])):
    total.add(job(task))
(folder / "train").mkdir()
(folder / "receipts").mkdir()
rules = make_rules(total, BuildConfig(), tokenizer.id_dtype)
runs = [folder / name for name in total.runs]
ReduceJob(runs, folder, rules)(plan_reduce(total, BuildConfig(), rules)[0])
assert len(tokenizer._chunks._table.slots) > 1 << 20, "the table did not grow"
print({name for name, _ in list_compiled() - before})
"""


def run(cache: Path, program: str = PROGRAM) -> int:
    """Call a kernel in a process of its own; returns how often it was found compiled."""
    return int(run_program(cache, program))


def run_program(cache: Path, program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": os.pathsep.join([str(cache), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_a_kept_kernel_that_is_damaged_is_compiled_anew(tmp_path: Path, ending: str):
    assert run(tmp_path) == 0
    assert run(tmp_path) == 1
    files = list(tmp_path.rglob(f"encoding.fill_in*.{ending}"))
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert run(tmp_path) == 0
    assert run(tmp_path) == 1


def test_a_kernel_is_compiled_anew_where_a_file_changed_that_its_own_imports_from(monkeypatch: pytest.MonkeyPatch):
    modules = ("albert_data.examples.masks", "albert_data.corpus.utf8")
    before = [kernels._stamp_sources(module) for module in modules]
    read = kernels._read_source

    def read_changed(module: str) -> str:
        return read(module) + "#" * (module == "albert_data.examples.spans")

    monkeypatch.setattr(kernels, "_read_source", read_changed)
    masks, utf8 = (kernels._stamp_sources(module) for module in modules)
    assert masks != before[0], "it imports spans.py"
    assert utf8 == before[1], "it does not"


def test_a_kernel_that_can_be_kept_nowhere_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch):
    def find_no_folder(self: object, function: object) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(kernels._Cache, "__init__", find_no_folder)

    @kernels.kernel
    def double(values: np.ndarray) -> np.ndarray:
        return values * 2

    assert double(np.array([3])).tolist() == [6]


def test_another_numba_loads_in_its_own_way(monkeypatch: pytest.MonkeyPatch):
    """Where its private parts have other names, a kernel that is kept is loaded, if slower, and not compiled anew."""
    cache, loaded = kernels._Cache(fill_in.py_func), []
    monkeypatch.setattr(kernels._Cache, "_load_overload", None)  # calling it is a TypeError
    monkeypatch.setattr(kernels.FunctionCache, "load_overload", lambda *arguments: loaded.append(arguments[1:]) or "it")
    assert cache.load_overload("signature", "context") == "it"
    assert loaded == [("signature", "context")]


def test_a_kept_kernel_may_be_loaded_as_numba_does(tmp_path: Path):
    assert run(tmp_path) == 0
    assert run(tmp_path, "from albert_data import kernels; kernels._rebuild = None" + PROGRAM) == 1


def test_a_kept_kernel_raises_what_a_compiled_one_does(tmp_path: Path):
    """What Numba's own functions in it raise too, though their modules are not imported."""
    (tmp_path / "faulty.py").write_text(FAULTY)
    compiled, loaded = (run_program(tmp_path, "import faulty; faulty.main()").splitlines() for _ in range(2))
    assert (compiled[:-1], compiled[-1], loaded[-1]) == (loaded[:-1], "0", "1")
    assert [line.partition("(")[0] for line in loaded[:-1]] == ["KeyError", "ValueError", "MemoryError"]


def test_python_is_told_that_it_cannot_call_a_helper():
    """Compiled or not: there is nothing made for it to call, and Numba would jump there all the same."""
    helper = kernels.helper(lambda value: value + 1)
    with pytest.raises(TypeError, match="is a helper"):
        cast(Any, helper)(1)
    assert around(helper)(1) == 2
    with pytest.raises(TypeError, match="is a helper"):
        cast(Any, helper)(1)


@pytest.mark.parametrize(("compiler", "expected"), [(Compiler, set(UNUSED_PASSES)), (KernelCompiler, set())])
def test_numba_has_passes_that_kernels_are_compiled_without(compiler: Any, expected: set[str]):
    """A name that Numba doesn't know would leave its pass in, without a word."""
    made = compiler(cpu_target.typing_context, cpu_target.target_context, None, (), None, Flags(), {})
    names = {entry[0].__name__ for pipeline in made.define_pipelines() for entry in pipeline.passes}
    assert names & set(UNUSED_PASSES) == expected


def test_a_helper_has_no_machine_code_of_its_own():
    helper: Any = kernels.helper(lambda value: value + 1)
    caller: Any = around(helper)
    assert caller(1) == 2
    pointers = []
    for compiled in (helper, caller):
        (result,) = compiled.overloads.values()
        pointers.append(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))
    assert pointers[0] == 0 != pointers[1]


def test_a_helper_raises_with_values():
    """They are made by what Numba keeps beside the code of a function, and sets when it makes machine code."""

    def refuse(value):
        raise KeyError("no", value)

    with pytest.raises(KeyError, match=r"'no', 3"):
        around(kernels.helper(refuse))(3)


def test_a_worker_comes_to_no_kernel_that_its_parent_has_not_compiled(tmp_path: Path, tokenizer_model: bytes):
    """Not even where its table of chunks grows, SentencePiece normalises some, and a document comes twice."""
    model, text = tmp_path / "spiece.model", tmp_path / "text.txt"
    model.write_bytes(tokenizer_model)
    numbers = ["".join("abcdefghij"[int(digit)] for digit in str(number)) for number in range(100_000)]
    lines = [*numbers, "¼ a\u0308 ﷺ", "".join(map(chr, range(0x300, 0xD00, 7)))]
    text.write_text("\n".join(lines))
    text.with_suffix(".jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines[-20:] * 2))
    done = subprocess.run(
        [sys.executable, "-c", WORK, str(model), str(text), str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_no_kernel_is_called_by_another():
    """Loaded from the disk, a kernel has no bitcode for another to be linked with."""
    kernels_named, called = set(), set()
    for path in Path(kernels.__file__).parent.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            decorators = " ".join(map(ast.unparse, function.decorator_list))
            if "kernel" in decorators:
                kernels_named.add(function.name)
            if "kernel" in decorators or "helper" in decorators:
                calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
                called |= {ast.unparse(call).rpartition(".")[2] for call in calls}
    assert len(kernels_named) > 20
    assert sorted(kernels_named & called) == []
