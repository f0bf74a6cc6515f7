"""Where the process of `albert-data` begins and ends.

It imports next to nothing before Ctrl-C is taken care of; the command line itself, and click, come after.
"""

from __future__ import annotations

import os
import sys

from albert_data.interrupts import ignore_interrupts, spare_fragile

INTERRUPTED = 130  # the shell's exit code for a process that Ctrl-C ended


def main() -> None:
    """Run the command line: 0 success, 1 an error, 2 a usage error, 70 a bug, 130 interrupted."""
    open_standard_streams()
    try:
        try:
            spare_fragile()
            from albert_data.cli.main import run

            code = run(sys.argv[1:])
        finally:
            ignore_interrupts()
    except KeyboardInterrupt:  # before or after `run`, which tells of its own
        print("\nInterrupted.", file=sys.stderr)
        code = INTERRUPTED
    sys.exit(code)


def open_standard_streams() -> None:
    """Put the null device in place of a standard stream that is closed.

    Otherwise the next file that is opened, a shard say, gets its number, and what some library prints goes into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free
            if number:  # a command that reads a closed stdin says so
                setattr(sys, name, os.fdopen(number, "w"))
