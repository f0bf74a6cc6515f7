"""Which scripts the text of a split is written in, from how often each piece occurs.

In: tokens of each piece. Out: letters and tokens of each script. A token counts for the script of most of its
letters, in a tie for the one that comes first in it; one without letters, such as an unknown one, counts for none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from albert_data.tokenizer.piece_texts import count_letters, find_script

MIN_SHARE = 0.01  # of the letters; a script with less is probably loan words and names


@dataclass(frozen=True, kw_only=True)
class ScriptCount:
    """script: as in "Latin"; share: of all letters of the split."""

    script: str
    num_letters: int
    num_tokens: int
    share: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "script": self.script,
            "num_letters": self.num_letters,
            "num_tokens": self.num_tokens,
            "share": self.share,
        }


def count_scripts(piece_counts: Sequence[int], pieces: Sequence[str]) -> list[ScriptCount]:
    """Every script of the text, the one with most letters first. pieces: what each is in text."""
    letters, tokens = Counter[str](), Counter[str]()
    for piece, count in zip(pieces, piece_counts, strict=True):
        if not count:
            continue
        for name, number in count_letters(piece).items():
            letters[name] += number * count
        if name := find_script(piece):
            tokens[name] += count
    total = sum(letters.values())
    return [
        ScriptCount(script=name.capitalize(), num_letters=number, num_tokens=tokens[name], share=number / total)
        for name, number in sorted(letters.items(), key=lambda item: (-item[1], item[0]))
    ]


def choose_scripts(counts: Sequence[ScriptCount]) -> list[ScriptCount]:
    """The scripts for the table: those with over MIN_SHARE of the letters; none if there is only one."""
    chosen = [count for count in counts if count.share > MIN_SHARE]
    return chosen if len(chosen) > 1 else []
