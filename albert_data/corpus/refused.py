"""Files that can't be read as they are expected, so that one message names them all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from albert_data.errors import InputError
from albert_data.text.wording import list_some

_GROUPS, _SHOWN = 5, 3  # kinds of files in one message, and names of each


class RefusedInput(InputError):
    """A file can't be read as it is expected. what: it is, as in "no text"."""

    def __init__(self, path: str, what: str, next_step: str) -> None:
        super().__init__(f"input {path} is {what}; {next_step}")
        self.path, self.what, self.next_step = path, what, next_step


class RefusedInputs(InputError):
    """All files that are refused, in one message."""

    def __init__(self, refused: Sequence[RefusedInput]) -> None:
        self.refused = refused
        super().__init__(str(refused[0]) if len(refused) == 1 else _join(refused))


def _join(refused: Sequence[RefusedInput]) -> str:
    groups = group_paths((error.what, error.path) for error in refused)
    parts = [
        f"{len(paths):,} {'is' if len(paths) == 1 else 'are'} {what}: {list_some(paths, _SHOWN)}"
        for what, paths in groups.items()
    ]
    listed = "; ".join(parts[:_GROUPS]) + (f"; and {len(parts) - _GROUPS:,} more kinds" if parts[_GROUPS:] else "")
    return f"{len(refused):,} inputs can't be read: {listed}; {'; '.join({one.next_step: 0 for one in refused})}"


def group_paths(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The second of each pair by the first, in alphabetical order."""
    groups: dict[str, list[str]] = {}
    for name, path in sorted(pairs):
        groups.setdefault(name, []).append(path)
    return groups
