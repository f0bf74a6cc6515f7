"""The entry point of `albert-data`.

It imports almost nothing before the handler for Ctrl-C is set; click and the commands are imported afterwards.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

# Objects from one garbage collection to the next. Numba alone makes 200,000 while it is imported: with Python's own
# threshold collections took 0.09 s then, and the last one, as Python ends, 0.15 s.
_GARBAGE = 100_000


def main() -> None:
    """Run the command line: 0 success, 1 an error, 2 a usage error, 70 a bug, 130 interrupted.

    `audit --fail-on` also ends with 3. `train` also ends with 129 after SIGHUP and 143 after SIGTERM.
    """
    if sys.platform == "win32":
        sys.exit("Error: albert-data does not run on Windows itself; install it in WSL, the Linux of Windows")
    from albert_data.storage.interrupts import exit_at_interrupts

    exit_at_interrupts()
    open_standard_streams()
    gc.set_threshold(_GARBAGE)
    from albert_data.cli.main import run

    code = run(sys.argv[1:])
    gc.freeze()
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
