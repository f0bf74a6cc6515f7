"""Ctrl-C where it does harm: it waits for the end of what can't bear it.

Python raises KeyboardInterrupt between any two lines of the main thread. Inside what C code called and a destructor it
is printed and dropped ("Exception ignored in"), and a half-done import leaves modules broken. Numba loads machine code
through such a call: it ends up without the code and jumps to address 0. And when a kernel returns an array, Numba runs
some Python to learn the array's class, and takes no note if that fails.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_AGAIN_SECONDS = 0.01
_FRAGILE_MODULES = frozenset({"_frozen_importlib", "importlib._bootstrap", "weakref", "_weakrefset"})
_FRAGILE_PACKAGES = frozenset({"numba", "llvmlite"})


@contextmanager
def hold_interrupts() -> Iterator[None]:
    """Let a Ctrl-C wait for the end of the block.

    Only where Python's own KeyboardInterrupt would come of it: in the main thread, in a program that does not handle
    Ctrl-C in its own way.
    """
    handler = signal.getsignal(signal.SIGINT)
    if (
        handler not in (signal.default_int_handler, _interrupt_soon)
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    held: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if held:
            signal.raise_signal(signal.SIGINT)


def spare_fragile() -> None:
    """Let every Ctrl-C from now on wait for the end of an import, a destructor, a weak reference's callback, and Numba.

    For a process that is all ours: it takes SIGALRM.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        signal.signal(signal.SIGINT, _interrupt_soon)


def ignore_interrupts() -> None:
    """Let no Ctrl-C disturb the end of the process: nothing is left to stop, but tracebacks to be printed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0)  # the interpreter drops its handlers, and SIGALRM would kill


def _interrupt_soon(number: int, frame: FrameType | None) -> None:
    if _is_fragile(frame):
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)  # no thread: what is interrupted may hold its locks
    else:
        raise KeyboardInterrupt


def _is_fragile(frame: FrameType | None) -> bool:
    """Whether something is going on that can't bear an exception."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module in _FRAGILE_MODULES or module.partition(".")[0] in _FRAGILE_PACKAGES:
            return True
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
