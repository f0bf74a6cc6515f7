"""The examples of near-duplicates, with the words that differ marked."""

from __future__ import annotations

from collections.abc import Callable
from difflib import SequenceMatcher

from albert_data.shards.manifest import NearDuplicate


def mark_differences(pair: NearDuplicate, mark: Callable[[str], str], plain: Callable[[str], str]) -> tuple[str, str]:
    """The text that was dropped and the one that stays. mark, plain: show words that differ, and all others.

    >>> pair = NearDuplicate(dropped="", kept="", similarity=0.9, dropped_text="a b c", kept_text="a x y c")
    >>> mark_differences(pair, "[{}]".format, str)
    ('a [b] c', 'a [x y] c')
    """
    words = pair.dropped_text.split(), pair.kept_text.split()
    shown: tuple[list[str], list[str]] = [], []
    for kind, *bounds in SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        for side, begin, end in zip((0, 1), bounds[::2], bounds[1::2], strict=True):
            if text := " ".join(words[side][begin:end]):
                shown[side].append(plain(text) if kind == "equal" else mark(text))
    return " ".join(shown[0]), " ".join(shown[1])
