"""Ctrl-C at the moments that can't bear it: it is neither lost nor a crash, and comes once they are over.

No test waits for a moment: each sends the signal from inside it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import numpy as np
import pytest

from albert_data.interrupts import hold_interrupts
from albert_data.kernels import kernel
from albert_data.pipeline.engine import MultiprocessEngine
from albert_data.pipeline.progress import NullProgress
from albert_data.pipeline.warming import compile_ahead, run_once
from albert_data.tokenizer.model import Tokenizer

ENDS = ("Interrupted.", "Interrupted; the same command goes on from here.")

# Each sends a Ctrl-C once, from inside what it names.
LOADING = """
from numba.core import codegen
give_code = codegen.JITCodeLibrary._object_getbuffer_hook
def interrupt_and_give(module):
    interrupt()
    return give_code(module)
codegen.JITCodeLibrary._object_getbuffer_hook = interrupt_and_give
"""
RETURNING = """
from albert_data import interrupts
from numba.core import serialize
interrupts._AGAIN_SECONDS = 0.001  # an audit of few rows ends 0.01 s later
serialize.interrupt, serialize.calls = interrupt, []
exec('''
unpickle = _numba_unpickle
def _numba_unpickle(*packed):
    if packed in calls:  # in the midst of a tuple of arrays: there it was a crash
        interrupt()
    calls.append(packed)
    return unpickle(*packed)
''', vars(serialize))
"""
IMPORTING = """
class Finder:
    def find_spec(self, name, path, target=None):
        if name == {name!r}:
            interrupt()
sys.meta_path.insert(0, Finder())
"""
FORKING = "os.register_at_fork(after_in_parent=interrupt)\n"
ENDING = "atexit.register(interrupt)\n"


def run_interrupted(moment: str, *arguments: str) -> tuple[int, str, str]:
    """The exit code of a command and what it printed."""
    script = f"""
import atexit, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it
sent = []
def interrupt():
    if not sent:
        sent.append(1)
        signal.raise_signal(signal.SIGINT)
{moment}
from albert_data.cli.entry import main
main()
"""
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def check_ended(code: int, printed: str, shown: str) -> None:
    """By Ctrl-C, and told so in one line after what was told before."""
    assert (code, printed) == (130, "")
    assert shown.splitlines()[-1] in ENDS
    assert "Traceback" not in shown
    assert "ignored" not in shown


def send() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def pythons_handler() -> Iterator[None]:
    """What a program at a terminal begins with, and what must be there again at the end."""
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    now = signal.signal(signal.SIGINT, old)
    assert now is signal.default_int_handler


@pytest.fixture
def here(tmp_path: Path, tokenizer_model: bytes, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: corpus.txt and a tokenizer's model.model."""
    (tmp_path / "corpus.txt").write_text("\n\n".join(fixtures.make_documents(60, seed=6)))
    (tmp_path / "model.model").write_bytes(tokenizer_model)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> str:
    folder = tmp_path_factory.mktemp("shards")
    fixtures.write_corpus(folder / "in", fixtures.CORPUS_DOCUMENTS, "txt", random.Random(0))
    fixtures.run_build(folder / "in", folder / "out", tokenizer)
    return str(folder / "out")


BUILD = ["build", "corpus.txt", "--tokenizer", "model.model", "--max-seq-len", "64", "--workers", "2", "-o", "out"]
VOCAB = ["vocab", "corpus.txt", "--vocab-size", "140", "-o", "vocab"]


in_numba = pytest.mark.parametrize("moment", [LOADING, RETURNING], ids=["loading", "returning"])


@in_numba
@pytest.mark.parametrize("command", [BUILD, VOCAB], ids=lambda command: command[0])
def test_ctrl_c_while_a_kernel_is_loaded_or_returns_ends_the_command_and_it_can_be_given_again(
    command: list[str], moment: str, here: Path
):
    check_ended(*run_interrupted(moment, *command))
    assert run_interrupted("", *command)[0] == 0


@in_numba
@pytest.mark.parametrize("command", [["verify"], ["audit"]], ids=" ".join)
def test_ctrl_c_while_what_reads_shards_is_at_its_kernels_ends_it(command: list[str], moment: str, shards: str):
    check_ended(*run_interrupted(moment, *command, shards))
    code, _, shown = run_interrupted("", *command, shards)
    assert (code, shown) == (0, "")


@pytest.mark.parametrize("name", ["click", "albert_data.cli.build", "numpy", "numba", "pyarrow", "sentencepiece"])
def test_ctrl_c_in_an_import_ends_the_command_without_a_traceback(name: str, here: Path):
    check_ended(*run_interrupted(IMPORTING.format(name=name), *BUILD))


def test_ctrl_c_while_workers_are_forked_ends_the_build_and_it_goes_on(here: Path):
    check_ended(*run_interrupted(FORKING, *BUILD))
    assert run_interrupted("", *BUILD)[0] == 0


def test_ctrl_c_when_all_is_printed_changes_nothing():
    code, printed, shown = run_interrupted(ENDING, "--version")
    assert (code, shown) == (0, "")
    assert printed.startswith("albert-data")


def test_ctrl_c_in_an_import_just_before_the_end_is_heeded_or_comes_too_late():
    code, _, shown = run_interrupted(IMPORTING.format(name="click"), "--version")
    assert (code, shown.strip()) in [(0, ""), (130, ENDS[0])]


def test_a_command_that_ignores_ctrl_c_goes_on_ignoring_it(here: Path):
    ignoring = "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"  # as a shell's `command &` does
    assert run_interrupted(ignoring + LOADING, *BUILD)[0] == 0


def test_ctrl_c_in_a_destructor_is_not_lost():
    script = """
import signal
from albert_data.interrupts import spare_fragile
signal.signal(signal.SIGINT, signal.default_int_handler)
spare_fragile()
class Loud:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
try:
    Loud()
    signal.pause()
except KeyboardInterrupt:
    print("raised")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("raised\n", "")


def test_a_held_ctrl_c_is_raised_at_the_end_of_the_block():
    steps = []

    @hold_interrupts()
    def work() -> None:
        with hold_interrupts():
            send()
            steps.append("inner")
        steps.append("outer")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert steps == ["inner", "outer"]


def test_a_held_ctrl_c_is_not_lost_to_an_error():
    @hold_interrupts()
    def fail() -> None:
        send()
        raise ValueError("an error")

    with pytest.raises(KeyboardInterrupt) as raised:
        fail()
    assert isinstance(raised.value.__context__, ValueError)


def test_a_block_without_ctrl_c_ends_as_it_would():
    with hold_interrupts():
        pass
    with pytest.raises(ValueError, match="an error"), hold_interrupts():
        raise ValueError("an error")


@pytest.mark.parametrize("handler", [lambda number, frame: None, signal.SIG_IGN], ids=["own", "ignored"])
def test_a_handler_of_the_programs_own_is_left_alone(handler: Any):
    signal.signal(signal.SIGINT, handler)
    with hold_interrupts():
        assert signal.getsignal(signal.SIGINT) is handler
    assert signal.signal(signal.SIGINT, signal.default_int_handler) is handler


def test_a_handler_of_the_programs_own_is_called_while_a_kernel_is_compiled():
    calls: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
    count = interrupt_compiling(count_up, lambda: calls.append(0))
    assert count(np.arange(3)) == 3
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert calls == [signal.SIGINT, 0]


def test_other_threads_hold_nothing_and_compile_as_ever():
    found: list[Any] = []
    count = kernel(count_up)

    def work() -> None:
        with hold_interrupts():
            found.append(signal.getsignal(signal.SIGINT))
        found.append(count(np.arange(3)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler, 3]


def count_up(array: Any) -> int:
    count = 0
    for _ in array:
        count += 1
    return count


def interrupt_compiling(function: Callable[[Any], int], then: Callable[[], object]) -> Any:
    """A kernel whose compilation is interrupted at its beginning."""
    made: Any = kernel(function)
    compile_it = made.compile

    def compile_interrupted(signature: Any) -> Any:
        send()
        then()
        return compile_it(signature)

    made.compile = compile_interrupted
    return made


def test_ctrl_c_while_a_kernel_is_compiled_comes_when_it_is_and_the_next_call_works():
    reached: list[bool] = []
    count = interrupt_compiling(count_up, lambda: reached.append(True))
    with pytest.raises(KeyboardInterrupt):
        count(np.arange(3))
    assert reached == [True]
    assert len(count.signatures) == 1
    assert count(np.arange(3)) == 3


def test_only_the_first_call_of_a_kernel_takes_care_of_ctrl_c(monkeypatch: pytest.MonkeyPatch):
    count: Any = kernel(count_up)
    assert count(np.arange(3)) == 3
    monkeypatch.setattr(count, "_compile_for_args", None)
    assert count(np.arange(4)) == 4


def interrupt_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    fork = os.fork

    def fork_and_interrupt() -> int:
        pid = fork()
        send()  # in the worker too, as a terminal does: to the whole group
        return pid

    monkeypatch.setattr(os, "fork", fork_and_interrupt)


def children() -> set[int]:
    return {process.pid for process in fixtures.running_processes() if process.parent == os.getpid()}


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")
def test_ctrl_c_in_the_midst_of_forking_leaves_no_worker(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    before = children()
    interrupt_forks(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        list(MultiprocessEngine(3).run(str, []))
    assert children() <= before
    assert capfd.readouterr().err == ""


def test_ctrl_c_as_the_notice_begins_to_wait_leaves_no_thread(monkeypatch: pytest.MonkeyPatch):
    before = set(threading.enumerate())
    start = threading.Timer.start

    def start_and_interrupt(timer: threading.Timer) -> None:
        start(timer)
        started.append(timer)
        send()

    started: list[threading.Timer] = []
    monkeypatch.setattr(threading.Timer, "start", start_and_interrupt)
    monkeypatch.setattr("albert_data.pipeline.warming._PATIENCE_SECONDS", 3600)
    with pytest.raises(KeyboardInterrupt):
        run_once(lambda: None, NullProgress())
    started[0].join(60)
    assert set(threading.enumerate()) <= before


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")
def test_ctrl_c_while_compilers_are_forked_leaves_none(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    before = children()
    interrupt_forks(monkeypatch)
    monkeypatch.setattr("albert_data.pipeline.warming.is_kept", lambda kernel: False)
    with pytest.raises(KeyboardInterrupt), compile_ahead(NullProgress()):
        raise AssertionError("the block is not reached")
    assert children() <= before
    assert capfd.readouterr().err == ""
