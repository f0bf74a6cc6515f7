"""Which files of a folder or a glob are not read, and why.

Each reason is one line, with a few names and the number of the others: a folder may hold thousands.
"""

from __future__ import annotations

from collections.abc import Callable

from albert_data.corpus.formats import ALLOWED_NAMES
from albert_data.storage import DEVICE, PIPE, SOCKET
from albert_data.wording import list_some

_SHOWN = 3

HIDDEN, UNKNOWN, FOLDER_LINK, NO_DATA = "hidden", "unknown", "link", "no data"
_TO_READ = "; name {it} as an input to read {it}"
# For each reason: what one file is, what several are, and the advice after their names.
_REASONS = {
    UNKNOWN: ("a file of no known ending", "files of no known ending", f"; readable are {ALLOWED_NAMES}"),
    NO_DATA: ("a file beside the data of a data set", "files beside the data of a data set", ""),
    HIDDEN: ("a hidden file or folder", "hidden files or folders", _TO_READ),
    FOLDER_LINK: ("a link to a folder", "links to folders", _TO_READ),
    PIPE: ("a named pipe, no file", "named pipes, no files", _TO_READ),
    SOCKET: ("a socket, no file", "sockets, no files", ""),
    DEVICE: ("a device, no file", "devices, no files", _TO_READ),
}


class Skipped:
    """Counts the files that are not read, by reason, and keeps some of their names."""

    def __init__(self) -> None:
        self._names: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}

    def add(self, reason: str, path: str) -> None:
        self._counts[reason] = self._counts.get(reason, 0) + 1
        names = self._names.setdefault(reason, [])
        if len(names) < _SHOWN:
            names.append(path)

    def tell(self, say: Callable[[str], None]) -> None:
        """Report a line for each reason."""
        for line in self.describe(with_advice=True):
            say(line)

    def describe(self, *, with_advice: bool = False) -> list[str]:
        """A line for each reason. with_advice: how to read such files."""
        return [
            _describe(reason, self._counts[reason], self._names[reason], with_advice=with_advice)
            for reason in _REASONS
            if reason in self._counts
        ]


def _describe(reason: str, count: int, names: list[str], *, with_advice: bool) -> str:
    one, several, advice = _REASONS[reason]
    advice = advice.format(it="it" if count == 1 else "one") if with_advice else ""
    what = one if count == 1 else f"{count:,} {several}"
    return f"skipped {what}: {list_some(names, _SHOWN, count)}{advice}"
