"""Files that can't be read as they are expected, so that one message names them all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from albert_data.errors import InputError
from albert_data.text.wording import list_some

_SHOWN = 5  # kinds of files in one message


class RefusedInput(InputError):
    """A file can't be read as it is expected. what: it is, as in "no text"."""

    def __init__(self, path: str, what: str, next_step: str) -> None:
        super().__init__(f"input {path} is {what}; {next_step}")
        self.path, self.what, self.next_step = path, what, next_step


class RefusedInputs(InputError):
    """All files that are refused, in one message."""

    def __init__(self, refused: Sequence[RefusedInput]) -> None:
        self.refused = refused
        first = {one.what: one.path for one in sorted(refused, key=lambda one: one.path, reverse=True)}  # of each kind
        listed = list_some([f"{path} ({what})" for what, path in sorted(first.items())], _SHOWN)
        steps = "; ".join(dict.fromkeys(one.next_step for one in refused))
        several = f"{len(refused):,} inputs can't be read: {listed}; {steps}"
        super().__init__(str(refused[0]) if len(refused) == 1 else several)


def group_paths(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The second of each pair by the first, in alphabetical order."""
    groups: dict[str, list[str]] = {}
    for name, path in sorted(pairs):
        groups.setdefault(name, []).append(path)
    return groups
