"""Ctrl-C on the command line: it ends the process at once, at any moment.

Python's own answer, KeyboardInterrupt, can be raised between any two lines. In a destructor, or in a function that C
code calls (Numba loads machine code by one), it is printed and dropped, or leaves something half done that crashes
later. So the command line raises nothing: the handler cleans up and ends the process. That is safe, since files are
written under temporary names and a command can be repeated after a kill at any moment.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

INTERRUPTED = 130  # the shell's exit code for a process that Ctrl-C ended

_cleanups: list[Callable[[], object]] = []
_message = "Interrupted."


def on_interrupt(cleanup: Callable[[], object]) -> Callable[[], object]:
    """Have a function called when Ctrl-C ends the process. It must take no lock: the code that it interrupts may."""
    _cleanups.append(cleanup)
    return cleanup


def say_when_interrupted(message: str) -> None:
    """Set the line that Ctrl-C prints."""
    global _message
    _message = message


def exit_at_interrupts() -> None:
    """Let Ctrl-C end this process from now on, unless SIGINT is ignored, as it is in a shell's background job."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    parent = os.getpid()

    def leave(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would disturb the cleaning
        if os.getpid() == parent:  # a forked child inherits the handler, and ends silently: the parent cleans up
            with suppress(OSError):  # stderr may be closed. os.write: `print` raises if it interrupts another `print`
                os.write(2, f"\n{_message}\n".encode())
            for cleanup in _cleanups:
                with suppress(Exception):
                    cleanup()
        os._exit(INTERRUPTED)

    signal.signal(signal.SIGINT, leave)
