"""Say where scripts that have few letters of a corpus take many pieces of its vocabulary.

One Chinese file among English books takes thousands of pieces, a character each: 1.4 % of the letters took 39 % of a
vocabulary of 8,000. The other texts are then cut into more tokens.
"""

from __future__ import annotations

import dataclasses
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

from albert_data.config import VocabConfig
from albert_data.text.unicode_tables import category, script
from albert_data.text.wording import format_share, list_some
from albert_data.tokenizer.piece_texts import find_script
from albert_data.vocab.alphabet import choose_alphabet
from albert_data.vocab.counting import CharacterCounts

_FEW_LETTERS, _MANY_PIECES = 0.02, 0.1  # shares
_COVERAGES = (0.9995, 0.999, 0.995, 0.99, 0.98)  # the last is the lowest that is allowed
_SHOWN = 3


def advise_scripts(
    pieces: Sequence[str], counts: CharacterCounts, config: VocabConfig, normalise: Callable[[str], str] | None = None
) -> list[str]:
    """A sentence if scripts with under 2 % of the letters each take over a tenth of the pieces together; else none.

    counts, normalise: as for `choose_alphabet`
    """
    letters = Counter[str]()
    for code, count in zip(counts.codes.tolist(), counts.counts.tolist(), strict=True):
        letters[find_script(chr(code))] += count
    del letters[""]  # no letters
    taken = Counter(map(find_script, pieces))
    rare = {name: taken[name] for name, count in letters.most_common() if count < _FEW_LETTERS * letters.total()}
    if sum(rare.values()) <= _MANY_PIECES * len(pieces):
        return []

    def count_kept(coverage: float) -> int:
        kept = choose_alphabet(counts, dataclasses.replace(config, character_coverage=coverage), normalise)
        return sum(find_script(character) in rare for character in kept.characters)

    most = _MANY_PIECES * len(pieces) / 2
    coverage = next((one for one in _COVERAGES if count_kept(one) <= most), _COVERAGES[-1])
    named = [f"{name.capitalize()} {number:,}" for name, number in Counter(rare).most_common() if number]
    return [
        f"{format_share(sum(rare.values()) / len(pieces))} of the pieces are of scripts that have "
        f"{format_share(sum(letters[name] for name in rare) / letters.total())} of the letters "
        f"({list_some(named, _SHOWN)}): leave that text out, or pass --character-coverage {coverage}, which keeps "
        f"{count_kept(coverage):,} of their characters; the others become unknown tokens"
    ]


def describe_removed(raw: CharacterCounts, normalise: Callable[[str], str], option: str) -> list[str]:
    """A sentence on the accents and other marks that a normalisation removes, by script; none if it removes none.

    raw: of the text before it. option: which asks for it.
    """

    def count_marks(text: str) -> int:
        return sum(category(character)[0] == "M" for character in unicodedata.normalize("NFKD", text))

    counts, removed = Counter[str](), Counter[str]()
    for character, count in zip(map(chr, raw.codes.tolist()), raw.counts.tolist(), strict=True):
        counts[script(character)] += count
        removed[script(character)] += count * (count_marks(character) - count_marks(normalise(character)))
    named = [
        f"{name.capitalize()} {number:,} ({format_share(number / counts[name])} of its characters)"
        for name, number in removed.most_common()
        if number
    ]
    what = f"{removed.total():,} accents, vowel signs, viramas and other marks: {list_some(named, _SHOWN)}"
    return [f"{option} removes {what}; leave it out to keep them"] if named else []
