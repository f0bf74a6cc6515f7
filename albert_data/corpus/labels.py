"""The languages that records name, packed; a missing or unknown one is counted."""

from __future__ import annotations

from typing import Any

from albert_data.config import TextConfig
from albert_data.corpus.damage import Damage
from albert_data.languages import is_language, normalise_language, pack_language


class Labels:
    """Reads the values of the language field. default: what they stand for where they name no language, packed."""

    def __init__(self, config: TextConfig, language: str | None, damage: Damage) -> None:
        self._field, self._damage = config.language_field, damage
        self._known: dict[str, int] = {}
        self.default = pack_language(language or config.language)

    def read(self, value: Any, is_there: bool, path: str, place: int | str) -> int:
        """The language of one record, packed. is_there: whether the record has the field; place: as for Damage.add."""
        self._damage.num_labelled += is_there
        if isinstance(value, str):
            if value in self._known:
                return self._known[value]
            if is_language(value):
                self._known[value] = pack_language(normalise_language(value))
                return self._known[value]
        detail = f"holds {value!r:.40}, no ISO 639 code" if is_there else "is missing"
        self._damage.add("unknown_language", path, place, f"field {self._field!r} {detail}")
        return self.default
