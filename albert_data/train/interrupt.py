"""Holds back Ctrl-C, SIGTERM and SIGHUP until the end of a step, so that a checkpoint never has half an update."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Interrupt:
    """While entered, keeps the first signal in `number`, 0 before; a Ctrl-C after it raises KeyboardInterrupt at once.

    Signals that the process ignores (SIGHUP under nohup) stay ignored.
    Python lets only the main thread handle signals: in any other thread this does nothing.
    """

    def __init__(self) -> None:
        self.number = 0
        self._old: dict[int, signal._HANDLER] = {}

    @property
    def exit_code(self) -> int:
        """128 + the number of the signal, as a shell reports it; 0 if none came."""
        return 128 + self.number if self.number else 0

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                old = signal.getsignal(number)
                if old not in (signal.SIG_IGN, None):
                    self._old[number] = old
                    signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.number:
            self.number = number
        elif number == signal.SIGINT:
            raise KeyboardInterrupt

    def flags(self) -> list[float]:
        """For each of SIGNALS, 1 if it is the first that this rank received, else 0. The ranks exchange the sums."""
        return [float(self.number == number) for number in SIGNALS]

    def agree(self, counts: Sequence[float]) -> bool:
        """Adopt a signal that any rank received, from the sums of their flags. Returns whether there is one.

        If ranks received different signals, all adopt the same one: the first in SIGNALS.
        """
        found = [int(number) for number, count in zip(SIGNALS, counts, strict=True) if count]
        self.number = found[0] if found else self.number
        return bool(found)
