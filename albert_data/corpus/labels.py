"""The sources that records name in the language field, as source codes (albert_data.languages)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from albert_data.config import TextConfig
from albert_data.corpus.damage import Damage
from albert_data.corpus.fields import list_names
from albert_data.languages import is_language, normalise_source, pack_source
from albert_data.wording import count_of


def advise_names(names: Iterable[str]) -> list[str]:
    """A sentence on the sources that are no languages; none if all are."""
    if not (others := [name for name in names if not is_language(name)]):
        return []
    return [
        f"the language field names {count_of(len(others), 'source')} without an ISO 639 code: {list_names(others)}; "
        "sentences there are found by the rule without words"
    ]


class Labels:
    """Reads the values of the language field. default: the source code where they name none; names: of source codes."""

    def __init__(self, config: TextConfig, language: str | None, damage: Damage) -> None:
        self._field, self._damage = config.language_field, damage
        self._known: dict[str, int] = {}
        self.default = pack_source(language or config.language)
        self.names = {self.default: language or config.language}

    def read(self, value: Any, is_there: bool, path: str, place: int | str) -> int:
        """The source code of one record. is_there: whether the record has the field; place: as for Damage.add.

        Raises InputError where a name is one too many.
        """
        self._damage.num_labelled += is_there
        if isinstance(value, str):
            if value in self._known:
                return self._known[value]
            if (name := normalise_source(value)) is not None:
                if not is_language(name):
                    self._damage.add_names({name})
                code = self._known[value] = pack_source(name)
                self.names[code] = name
                return code
        detail = f"holds {value!r:.40}, no ISO 639 code or other name" if is_there else "is missing"
        self._damage.add("unknown_language", path, place, f"field {self._field!r} {detail}")
        return self.default
