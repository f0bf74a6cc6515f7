"""A source of a mixture: documents that are read alike, and how often they are used."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from albert_data.config import TextConfig, check_range
from albert_data.errors import ConfigError

MAX_PASSES = 1000  # over one document, by weight and --dupe-factor together
ONE_PASS = 2**64  # see `MixtureSource.count_limit`
_MAX_TOKENS = 10**15
_NAME = re.compile(r"\w[\w .-]{0,63}")


@dataclass(frozen=True, kw_only=True)
class MixtureSource:
    """number: of the source, from 0 in the order of the mixture; a document in several belongs to the first of them.

    paths: as the mixture names them; text: how they are read. weight: passes over the documents, for each pass of
    --dupe-factor; 0.5 is one pass over half of them. tokens: a budget in place of a weight: as large a share of the
    documents as has about so many tokens of text.
    """

    number: int
    name: str
    paths: tuple[str, ...]
    text: TextConfig
    weight: float | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"name is {self.name!r:.80}; use up to 64 letters, digits, spaces, dots, hyphens and underscores"
            )
        if self.weight is not None and self.tokens is not None:
            raise ConfigError("has both a weight and a budget of tokens; leave one out")
        if self.weight is not None:
            check_range("weight", self.weight, 0, MAX_PASSES)
        if self.tokens is not None:
            check_range("tokens", self.tokens, 1, _MAX_TOKENS)

    def count_limit(self, dupe_factor: int) -> int:
        """How often documents are used, as a limit: pass p uses those with p * ONE_PASS + choice key < limit.

        So a limit of 2.5 * ONE_PASS is two passes over all documents, and one over those with the lower half of the
        keys. The limit of a budget is not known before the tokens are counted: here it is that of a weight of 1.
        """
        weight = 1 if self.weight is None else self.weight
        return int(Fraction(str(weight)) * dupe_factor * ONE_PASS)
