"""Converts JSON values to frozen dataclasses and back, following the annotations of their fields.

In: a dataclass and a value from a file, in any state. Out: an object of the class; or the values that are missing, of
another type or out of range, each with its path, as in "splits.train.shards[1].sha256". A key that the class lacks is
no fault.

A field with a default may be missing; a field that is `since` a format version may be missing only in older files.
A field that is None is not written, except a setting of a BuildConfig: there None means that the build chooses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

from albert_data.config import BuildConfig, ExampleConfig, TextConfig
from albert_data.errors import AlbertDataError
from albert_data.languages import is_language


class _Count(int):
    """A marker type, so that annotations can say that an integer is not negative."""


_LATER = ("masking", "replace", "pairs")  # settings of ExampleConfig that 0.3.0 did not have; all others it wrote
Count = Annotated[int, _Count]  # an integer from 0 on, and no boolean
_NAMES: dict[Any, str] = {
    int: "a whole number",
    _Count: "a whole number from 0 on",
    float: "a number",
    bool: "true or false",
    str: "a string",
    dict: "an object",
    tuple: "a list",
}


def since(format_version: int, default: Any) -> Any:
    """A field that was added in a format version; in older files it is `default`."""
    return dataclasses.field(default=default, metadata={"since": format_version})


@dataclasses.dataclass(kw_only=True)
class Reading:
    """Reads one file. format_version: of the file; faults: those found so far."""

    format_version: int
    faults: list[str] = dataclasses.field(default_factory=list)

    def read(self, kind: Any, value: object, where: str) -> Any:
        """Convert a value to `kind`, a type or annotation. Where a fault is added, the result has no meaning.

        where: the path of the value in the file.
        """
        if kind in _NAMES:
            return self._check(kind, value, where)
        if kind is BuildConfig:
            return self._read_config(value, where)
        if dataclasses.is_dataclass(kind):
            return self._read_fields(kind, list_fields(cast(Hashable, kind)), value, where)
        if get_origin(kind) is tuple:
            return self._read_items(_simplify(get_args(kind)[0]), value, where)
        return value if kind is Any else self._read_mapping(kind, value, where)

    def _check(self, kind: Any, value: object, where: str) -> Any:
        if not _is_kind(value, kind):
            self.faults.append(f"{where} is {value!r:.40}; {_NAMES[kind]} is needed")
        return value

    def _read_items(self, kind: Any, values: object, where: str) -> tuple[Any, ...]:
        if not isinstance(values, list):
            self._check(tuple, values, where)
            return ()
        return tuple([self.read(kind, value, f"{where}[{i}]") for i, value in enumerate(values)])

    def _read_mapping(self, kind: Any, values: object, where: str) -> dict[str, Any]:
        """kind: Mapping[str, X], or Annotated[Mapping[str, X], (the keys that are allowed)]."""
        if not isinstance(values, dict):
            self._check(dict, values, where)
            return {}
        allowed: tuple[str, ...] = ()
        if get_origin(kind) is Annotated:
            kind, allowed = get_args(kind)
        for name in values:
            if allowed and name not in allowed:
                self.faults.append(f"{where} holds {name!a:.40}; allowed are {', '.join(allowed)}")
        inner = _simplify(get_args(kind)[1])
        return {
            name: self.read(inner, value, f"{where}.{name}")
            for name, value in values.items()
            if not allowed or name in allowed
        }

    def _read_fields(self, kind: Any, fields: Iterable[_Field], value: object, where: str) -> Any:
        if not isinstance(value, dict):
            return self._check(dict, value, where or "it")
        num_faults, prefix, found = len(self.faults), f"{where}." if where else "", {}
        for field in fields:
            if field.name in value:
                item = value[field.name]
                is_plain = type(item) is field.kind  # a shortcut, which most values of a large manifest take
                found[field.name] = item if is_plain else self.read(field.kind, item, prefix + field.name)
            elif not field.may_miss(self.format_version):
                self.faults.append(f"{prefix}{field.name} is missing; {_NAMES[_base(field.kind)]} is needed")
        if len(self.faults) == num_faults:
            try:
                return kind(**found)
            except AlbertDataError as error:
                self.faults.append(f"{prefix}{error}")
        return None

    def _read_config(self, value: object, where: str) -> Any:
        """Read all settings from one flat object. Those of ExampleConfig must be there, except the ones in _LATER."""

        def build(**found: Any) -> BuildConfig:
            text = {name: found.pop(name) for name in _names(TextConfig) if name in found}
            examples = {name: found.pop(name) for name in _names(ExampleConfig) if name in found}
            if self.format_version == 1 and _is_english_in_version_1(text.get("language", "en")):
                text["language"] = "en"
            return BuildConfig(text=TextConfig(**text), examples=ExampleConfig(**examples), **found)

        fields = (
            *(dataclasses.replace(field, is_needed=field.name not in _LATER) for field in list_fields(ExampleConfig)),
            *list_fields(TextConfig),
            *(field for field in list_fields(BuildConfig) if field.name not in ("text", "examples")),
        )
        if isinstance(value, dict):  # null means None, the default, so the key is left out
            may_be_null = {field.name for field in fields if field.may_be_none}
            value = {name: item for name, item in value.items() if item is not None or name not in may_be_null}
        return self._read_fields(build, fields, value, where)


@dataclasses.dataclass(frozen=True)
class _Field:
    """A field of a dataclass.

    kind: X where the annotation is X | None; since: the format version that added it, 0 if it was always there.
    """

    name: str
    kind: Any
    may_be_none: bool
    is_needed: bool
    since: int

    def may_miss(self, format_version: int) -> bool:
        return not self.is_needed or format_version < self.since


@cache
def list_fields(kind: Any) -> tuple[_Field, ...]:
    kinds = get_type_hints(kind, include_extras=True)
    return tuple(
        _Field(
            name=field.name,
            kind=_simplify(kinds[field.name]),
            may_be_none=_is_union(kinds[field.name]),
            is_needed=field.default is dataclasses.MISSING or "since" in field.metadata,
            since=field.metadata.get("since", 0),
        )
        for field in dataclasses.fields(kind)
    )


def _is_english_in_version_1(language: str) -> bool:
    """Whether version 1 accepted this unknown language code. It then used the rules of English."""
    return 2 <= len(language) <= 16 and language.replace("-", "").isalnum() and not is_language(language)


def _names(kind: Any) -> list[str]:
    return [field.name for field in list_fields(kind)]


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType)


def _simplify(kind: Any) -> Any:
    """X for X | None: the key may be missing, but a value that is there must be an X."""
    kind = get_args(kind)[0] if _is_union(kind) else kind
    return _Count if kind == Count else kind


def _base(kind: Any) -> Any:
    """The JSON type of a kind: one of the keys of _NAMES."""
    if kind in _NAMES:
        return kind
    return tuple if get_origin(kind) is tuple else dict


def _is_kind(value: object, kind: Any) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if kind is _Count:
        return isinstance(value, int) and value >= 0
    return isinstance(value, (int, float) if kind is float else kind)


def to_value(value: Any) -> Any:
    """The JSON value of an object."""
    if isinstance(value, BuildConfig):
        return value.to_flat_dict()
    if dataclasses.is_dataclass(value):
        return {name: to_value(item) for name, item in vars(value).items() if item is not None}
    if isinstance(value, Mapping):
        return {name: to_value(item) for name, item in value.items()}
    return [to_value(item) for item in value] if isinstance(value, tuple) else value
