"""Where the process of `albert-data` begins and ends.

It imports next to nothing before Ctrl-C is taken care of; the command line itself, and click, come after.
"""

from __future__ import annotations

import sys

from albert_data.interrupts import ignore_interrupts, spare_fragile

INTERRUPTED = 130  # the shell's exit code for a process that Ctrl-C ended


def main() -> None:
    """Run the command line: 0 success, 1 an error, 2 a usage error, 130 interrupted."""
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
