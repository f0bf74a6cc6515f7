"""Where the process of `albert-data` begins and ends.

It imports next to nothing before Ctrl-C is taken care of; the command line itself, and click, come after.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from albert_data.interrupts import exit_at_interrupts

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def main() -> None:
    """Run the command line: 0 success, 1 an error, 2 a usage error, 70 a bug, 130 interrupted."""
    exit_at_interrupts()
    open_standard_streams()
    from albert_data.cli.main import run

    code = run(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the work is done: let Python end in peace
    sys.exit(code)


def open_standard_streams() -> None:
    """Open the null device in place of a standard stream that is closed.

    Otherwise the next file that is opened, a shard say, gets the stream's number, and what a library prints goes into
    that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free
            if number:  # a command that reads a closed stdin says so
                setattr(sys, name, os.fdopen(number, "w"))


@contextmanager
def load_lightly() -> Iterator[None]:
    """Import Numba, NumPy and Arrow without garbage collection, now or later, and without starting threads.

    Numba alone makes 200,000 objects. Collections during the imports took 0.09 s, and the last one, as Python ends,
    0.15 s. OpenBLAS, which NumPy loads, starts a thread for each core to multiply large matrices; the commands that use
    this function multiply none.
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
