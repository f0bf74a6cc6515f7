"""The entry point of `albert-data`.

It imports almost nothing before the handler for Ctrl-C is set; click and the commands are imported afterwards.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from albert_data.storage.interrupts import exit_at_interrupts

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def main() -> None:
    """Run the command line: 0 success, 1 an error, 2 a usage error, 70 a bug, 130 interrupted.

    `audit --fail-on` also ends with 3. `train` also ends with 129 after SIGHUP and 143 after SIGTERM.
    """
    exit_at_interrupts()
    open_standard_streams()
    from albert_data.cli.main import run

    code = run(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the work is done: Ctrl-C must not report it as interrupted
    sys.exit(code)


def open_standard_streams() -> None:
    """Open the null device in place of a standard stream that is closed.

    Otherwise the next file that is opened, a shard for example, gets the stream's file descriptor, and what a library
    prints ends up in that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # number: the lowest free one
            if number:  # sys.stdin stays None, so that a command that reads it reports that it is closed
                setattr(sys, name, os.fdopen(number, "w"))


@contextmanager
def fast_imports() -> Iterator[None]:
    """Import Numba, NumPy and Arrow without garbage collection and without starting threads.

    Numba alone makes 200,000 objects. Collections during the imports took 0.09 s, and the last one, as Python ends,
    0.15 s: so these objects are also exempt from later collections. OpenBLAS, which NumPy loads, starts a thread
    for each core to multiply large matrices, which costs 0.16 s of processor time. Of the commands that use this
    function only `audit` and `inspect --html` multiply matrices, of at most some hundred columns.
    """
    is_set = _BLAS_THREADS in os.environ
    os.environ.setdefault(_BLAS_THREADS, "1")
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        if not is_set:  # what is loaded later may start threads
            del os.environ[_BLAS_THREADS]
