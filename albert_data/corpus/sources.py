"""Sources: those of a mixture, and those that records name in a field."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from albert_data.config import BuildConfig, TextConfig, check_range, check_types
from albert_data.corpus.damage import Damage
from albert_data.corpus.fields import list_names
from albert_data.errors import ConfigError
from albert_data.text.languages import encode_source, is_language, normalise_source
from albert_data.text.wording import count_of

MAX_PASSES = 1000  # over one document, by weight and --dupe-factor together
ONE_PASS = 2**64  # see `MixtureSource.count_limit`
_MAX_TOKENS = 10**15
_NAME = re.compile(r"\w[\w .-]{0,63}")


@dataclass(frozen=True, kw_only=True)
class MixtureSource:
    """Documents that are read alike, and how often they are used.

    number: from 0, in the order of the mixture; a document in several sources belongs to the first of them
    paths: as the mixture names them; none for a language that records or inputs name
    text: how they are read
    weight: passes over the documents, for each pass of --dupe-factor; 0.5 is one pass over half of them
    tokens: a budget in place of a weight: as large a share of the documents as has about so many tokens of text
    alpha, max_passes: in place of a weight, the share by size, see `share_tokens`
    limit: of a share by size, once it is known, see `count_limit`
    """

    number: int
    name: str
    paths: tuple[str, ...]
    text: TextConfig
    weight: float | None = None
    tokens: int | None = None
    alpha: float | None = None
    max_passes: float = BuildConfig.max_passes
    limit: int | None = None

    def __post_init__(self) -> None:
        check_types(self)
        if self.paths and not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"name is {self.name!r:.80}; use up to 64 letters, digits, spaces, dots, hyphens and underscores"
            )
        if self.weight is not None and self.tokens is not None:
            raise ConfigError("has both a weight and a budget of tokens; leave one out")
        if self.alpha is not None and (self.weight is not None or self.tokens is not None):
            raise ConfigError("has a weight or tokens, but alpha gives each source its share; leave one of them out")
        if self.weight is not None:
            check_range("weight", self.weight, 0, MAX_PASSES)
        if self.tokens is not None:
            check_range("tokens", self.tokens, 1, _MAX_TOKENS)
        for name in ("weight", "alpha", "max_passes"):
            if isinstance(value := getattr(self, name), int):
                object.__setattr__(self, name, float(value))

    @property
    def code(self) -> int:
        """The source code that map tasks list its documents by."""
        return self.number if self.paths else encode_source(self.name)

    def count_limit(self, dupe_factor: int) -> int:
        """How often documents are used, as a limit: pass p uses those with p * ONE_PASS + choice key < limit.

        So a limit of 2.5 * ONE_PASS is two passes over all documents, and one over those with the lower half of the
        keys. That of a budget or share is not known before the tokens are counted: here it is the largest that is
        possible.
        """
        if self.limit is not None:
            return self.limit
        weight = self.weight if self.weight is not None else 1 if self.alpha is None else self.max_passes
        return int(Fraction(str(weight)) * dupe_factor * ONE_PASS)


def share_tokens(sizes: Mapping[MixtureSource, float], most: float = float("inf")) -> dict[MixtureSource, int]:
    """How many tokens each source gives, in one pass as many as all have: its share is as size ** alpha.

    No source gives more than max_passes times its size; the others share what it leaves. sizes: of sources with one
    alpha, in tokens; most: of all. Source: UniMax (Chung et al. 2023), with alpha in place of equal shares.
    """
    left, wanted = min(sum(sizes.values()), most), dict[MixtureSource, int]()
    powers = {source: size ** (source.alpha or 0.0) if size else 0.0 for source, size in sizes.items()}
    power = sum(powers.values())
    # The smallest have the most passes, as alpha is at most 1.
    for source, size in sorted(sizes.items(), key=lambda item: (item[1], item[0].number)):
        share = left * powers[source] / power if power > 0 else 0.0
        wanted[source] = round(min(share, source.max_passes * size))
        left, power = left - wanted[source], power - powers[source]
    return wanted


# ---- the sources that records name in the language field, as source codes (albert_data.text.languages) ----


def advise_names(names: Iterable[str]) -> list[str]:
    """A sentence on the sources that are no languages; none if all are."""
    if not (others := [name for name in names if not is_language(name)]):
        return []
    return [
        f"the language field names {count_of(len(others), 'source')} without an ISO 639 code: {list_names(others)}; "
        "sentences there are found by the rule without words"
    ]


class Labels:
    """Reads the values of the language field. default: the source code where they name none; names: of those read."""

    def __init__(self, config: TextConfig, language: str | None, path: str, damage: Damage) -> None:
        self._field, self._path, self._damage = config.language_field or "", path, damage
        self._known: dict[str, int] = {}
        self.default = encode_source(language or config.language)
        self.names = {self.default: language or config.language}

    def read(self, value: Any, is_there: bool, place: int | str) -> int:
        """The source code of one record. is_there: whether it has the field; place: as for Damage.add.

        Raises InputError where a name is one too many.
        """
        self._damage.look_for(self._field, is_there)
        if isinstance(value, str):
            if value in self._known:
                return self._known[value]
            if (name := normalise_source(value)) is not None:
                if not is_language(name):
                    self._damage.add_names({name})
                code = self._known[value] = encode_source(name)
                self.names[code] = name
                return code
        detail = f"holds {value!r:.40}, no ISO 639 code or other name" if is_there else "is missing"
        self._damage.add("unknown_language", self._path, place, f"field {self._field!r} {detail}")
        return self.default
