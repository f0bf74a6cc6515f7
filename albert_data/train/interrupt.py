"""Ctrl-C that waits for the end of a step, so that what is saved is never half an update."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class Interrupt:
    """While entered, the first Ctrl-C sets `asked`; a second one raises KeyboardInterrupt at once.

    Python lets only the main thread handle signals: in any other, this does nothing.
    """

    def __init__(self) -> None:
        self.asked = False
        self._old: signal._HANDLER = None

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._old = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._old is not None:
            signal.signal(signal.SIGINT, self._old)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
