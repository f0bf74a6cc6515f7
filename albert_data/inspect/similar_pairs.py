"""The examples of near-duplicates, with the words that differ marked."""

from __future__ import annotations

from collections.abc import Callable
from difflib import SequenceMatcher

from albert_data.dedup.shingles import divide_text
from albert_data.shards.manifest import NearDuplicate


def mark_differences(pair: NearDuplicate, mark: Callable[[str], str], plain: Callable[[str], str]) -> tuple[str, str]:
    """The text that was dropped and the one that stays. mark, plain: show words that differ, and all others.

    >>> pair = NearDuplicate(dropped="", kept="", similarity=0.9, dropped_text="a b c", kept_text="a x y c")
    >>> mark_differences(pair, "[{}]".format, str)
    ('a [b] c', 'a [x y] c')
    >>> pair = NearDuplicate(dropped="", kept="", similarity=0.9, dropped_text="漢字 a", kept_text="漢語字 a")
    >>> mark_differences(pair, "[{}]".format, str)
    ('漢字 a', '漢[語]字 a')
    """
    words = divide_text(pair.dropped_text), divide_text(pair.kept_text)
    letters, others = ([word.strip() for word in side] for side in words)
    shown = ["", ""]
    for kind, *bounds in SequenceMatcher(None, letters, others, autojunk=False).get_opcodes():
        for side, begin, end in zip((0, 1), bounds[::2], bounds[1::2], strict=True):
            if text := "".join(words[side][begin:end]):
                shown[side] += " " * text.startswith(" ")
                shown[side] += plain(text.strip()) if kind == "equal" else mark(text.strip())
    return shown[0], shown[1]
