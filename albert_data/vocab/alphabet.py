"""Choose the characters of a vocabulary from those of the whole corpus.

In: how often each character occurs, after normalisation. Out: the characters that get a piece of their own, and the
lost ones, which become unknown tokens. Printable ASCII and the characters that the user names are required. The
most frequent characters follow, until all of them cover the share that `character_coverage` asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from albert_data.config import VocabConfig
from albert_data.errors import TokenizerError
from albert_data.text.unicode_tables import categories, scripts
from albert_data.text.wording import format_share, list_some
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE, is_unspaced
from albert_data.vocab.counting import CharacterCounts, NormalRule

PRINTABLE_ASCII = "".join(map(chr, range(0x20, 0x7F)))
_UNUSABLE = {0x0000, 0x2585}  # SentencePiece ends strings at U+0000, and writes U+2585 for unknown characters
_NUM_SHOWN = 12
_NUM_SCRIPTS, _NUM_LETTERS = 5, 5  # shown, of scripts that lose much, and of each
_MUCH, _FEWEST = 0.001, 1000  # share of a script's letters and marks, and how many it has at least


@dataclass(frozen=True, kw_only=True)
class Alphabet:
    """The characters of a vocabulary, as codes."""

    codes: tuple[int, ...]  # those that get a piece, ascending
    num_required: int  # how many of them are required
    lost: dict[int, int]  # the others of the corpus, most frequent first, and how often each occurs
    num_characters: int  # of the corpus, spaces included
    # Those that lose much, worst first: the share of letters and marks that is lost, and the first of these.
    lost_scripts: tuple[tuple[str, float, str], ...] = ()

    @property
    def characters(self) -> str:
        """The characters that get a piece."""
        return "".join(map(chr, self.codes))

    @property
    def num_lost(self) -> int:
        """How often lost characters occur."""
        return sum(self.lost.values())

    def describe(self) -> list[str]:
        """Lines of text on what is lost, and on the options that keep it, to be shown after the word "characters"."""
        head = f"{len(self.codes):,} have a piece"
        if not self.lost:
            return [f"{head}; after normalisation no character is lost"]
        share = 100 * self.num_lost / self.num_characters
        first = [f"{chr(code)} {count:,}" for code, count in islice(self.lost.items(), _NUM_SHOWN)]
        return [
            f"{head}; {len(self.lost):,} others are lost, {self.num_lost:,} times ({share:.2g} % of the text):",
            list_some(first, _NUM_SHOWN, len(self.lost)),
            *(
                f"{script.title()} loses {format_share(lost)}: {', '.join(first)}"
                for script, lost, first in self.lost_scripts[:_NUM_SCRIPTS]
            ),
            "--character-coverage 1.0 keeps all, --required-chars those that you name, --alpha more of small languages",
        ]


def choose_alphabet(counts: CharacterCounts, config: VocabConfig, weighted: CharacterCounts | None = None) -> Alphabet:
    """weighted: what characters are chosen by. Raises TokenizerError for a required one that no vocabulary can hold."""
    occurring, counts = counts, weighted or counts
    normalised = NormalRule(config.cased).normalise(PRINTABLE_ASCII + config.required_chars)
    required = sorted(set(map(ord, normalised.replace(" ", VISIBLE_SPACE))))
    if unusable := sorted(_UNUSABLE.intersection(required)):
        raise TokenizerError(
            f"required_chars holds U+{unusable[0]:04X}, which SentencePiece reserves for itself; leave it out"
        )
    is_required = np.isin(counts.codes, required)
    covered, num_characters = int(counts.counts[is_required].sum()), int(counts.counts.sum())
    order = np.lexsort((counts.codes, -counts.counts))  # most frequent first, equally frequent ones by code
    order = order[~(is_required | np.isin(counts.codes, list(_UNUSABLE)))[order]]
    covered_before = covered + np.cumsum(counts.counts[order]) - counts.counts[order]  # without the character itself
    num_kept = int(np.searchsorted(covered_before, config.character_coverage * num_characters))
    codes = sorted([*required, *counts.codes[order[:num_kept]].tolist()])
    found = dict(zip(occurring.codes.tolist(), occurring.counts.tolist(), strict=True))
    lost = sorted(found.keys() - set(codes), key=lambda code: (-found[code], code))
    return Alphabet(
        codes=tuple(codes),
        num_required=len(required),
        lost={code: found[code] for code in lost},
        num_characters=sum(found.values()),
        lost_scripts=tuple(find_lost_scripts(occurring, lost)),
    )


def find_lost_scripts(counts: CharacterCounts, lost: Iterable[int]) -> Iterator[tuple[str, float, str]]:
    """See `Alphabet`; scripts with few letters are left out. lost: codes, most frequent first."""
    (of_code, names), (kinds, kind_names) = scripts(), categories()
    numbers = counts.counts * np.array([name[0] in "LM" for name in kind_names])[kinds[counts.codes]]
    own, lost = of_code[counts.codes], [code for code in lost if kind_names[kinds[code]][0] in "LM"]
    every = np.bincount(own, numbers, len(names))
    shares = np.bincount(own, numbers * np.isin(counts.codes, lost), len(names)) / np.maximum(every, _FEWEST)
    for script in sorted(np.flatnonzero((shares > _MUCH) & (every >= _FEWEST)).tolist(), key=lambda one: -shares[one]):
        first = islice((chr(code) for code in lost if of_code[code] == script), _NUM_LETTERS)
        yield names[script], round(float(shares[script]), 6), "".join(first)


def measure_unspaced(counts: CharacterCounts) -> float:
    """The share of the letters that is in scripts without spaces; 0 for a corpus without letters."""
    numbers, names = categories()
    is_letter = np.array([name[0] == "L" for name in names])[numbers[counts.codes]]
    codes, letters = counts.codes[is_letter], counts.counts[is_letter]
    unspaced = np.array([is_unspaced(chr(code)) for code in codes.tolist()], bool)
    return float(letters[unspaced].sum() / letters.sum()) if len(letters) else 0.0
