"""Ctrl-C ends a command at any moment: exit code 130, one line, and the command can be given again.

No test waits for a moment: each sends the signal from inside it.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest

from albert_data.cli.main import run

ENDS = ("Interrupted.", "Interrupted; the same command resumes the build.")

# Each sends a Ctrl-C once, from inside what it names.
IMPORTING = """
class Finder:
    def find_spec(self, name, path, target=None):
        if name == {name!r}:
            interrupt()
sys.meta_path.insert(0, Finder())
"""
DESTROYING = """
class Loud:
    def __del__(self):
        interrupt()
Loud()
"""
LOADING = """
import pickle
load = pickle.loads
def interrupt_and_load(*arguments):
    if any(name.endswith("caching.py") for name in [sys._getframe(1).f_code.co_filename]):
        interrupt()
    return load(*arguments)
pickle.loads = interrupt_and_load
"""
FORKING = "os.register_at_fork(after_in_parent=interrupt)\n"
WRITING = """
rename = os.replace
def interrupt_and_rename(*arguments):
    if {name!r} in str(arguments[1]):
        interrupt()
    rename(*arguments)
os.replace = interrupt_and_rename
"""
ENDING = "atexit.register(interrupt)\n"


def run_interrupted(moment: str, *arguments: str, times: int = 1) -> tuple[int, str, str]:
    """The exit code of a command and what it printed."""
    script = f"""
import atexit, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it
sent = []
def interrupt():
    if not sent:
        sent.append(1)
        for _ in range({times}):
            os.kill(os.getpid(), signal.SIGINT)
{moment}
from albert_data.cli.entry import main
main()
"""
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def check_ended(code: int, printed: str, shown: str) -> None:
    assert (code, printed) == (130, "")
    assert shown.splitlines()[-1] in ENDS
    assert shown.count("Interrupted") == 1
    assert "Traceback" not in shown
    assert "ignored" not in shown


BUILD = ["build", "corpus.txt", "--tokenizer", "model.model", "--max-seq-len", "64", "--workers", "2", "-o", "out"]
VOCAB = ["vocab", "corpus.txt", "--vocab-size", "140", "-o", "vocab"]


slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.parametrize("name", ["numba", slow("click"), slow("sentencepiece")])
def test_ctrl_c_in_an_import_ends_the_command(name, here):
    check_ended(*run_interrupted(IMPORTING.format(name=name) + "from albert_data.storage import interrupts\n", *BUILD))


@pytest.mark.parametrize("command", [BUILD, slow(VOCAB)], ids=lambda command: command[0])
def test_ctrl_c_while_a_kernel_is_loaded_ends_the_command_and_it_can_be_given_again(command, here):
    check_ended(*run_interrupted(LOADING, *command))
    assert run(command) == 0


@pytest.mark.parametrize("command", ["verify", slow("audit")])
def test_ctrl_c_while_shards_are_read_ends_the_command(command, finished):
    assert run([command, str(finished)]) == 0  # its kernels are compiled
    check_ended(*run_interrupted(LOADING, command, str(finished)))


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_while_workers_are_forked_ends_the_build_and_all_workers(times, here):
    check_ended(*run_interrupted(FORKING, *BUILD, times=times))  # it waits until no process holds stderr
    assert run(BUILD) == 0


@pytest.mark.parametrize("name", [slow("manifests"), ".arrow", slow("manifest.json")])
def test_ctrl_c_while_shards_are_published_loses_nothing_and_leaves_no_temporary(name, here):
    check_ended(*run_interrupted(WRITING.format(name=name), *BUILD))
    assert not list(here.rglob(".albert-data-*.tmp"))
    assert run(BUILD) == 0
    assert run(["verify", "out"]) == 0


def test_ctrl_c_when_all_is_printed_changes_nothing():
    code, printed, shown = run_interrupted(ENDING, "--version")
    assert (code, shown) == (0, "")
    assert printed.startswith("albert-data")


def test_ctrl_c_in_a_destructor_is_not_lost():
    started = "from albert_data.storage import interrupts\ninterrupts.exit_at_interrupts()\n"
    check_ended(*run_interrupted(started + DESTROYING, "--version"))


def test_a_command_that_ignores_ctrl_c_goes_on_ignoring_it(here):
    ignoring = "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"  # as a shell's `command &` does
    assert run_interrupted(ignoring + FORKING, *BUILD)[0] == 0
