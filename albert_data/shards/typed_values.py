"""JSON values into frozen dataclasses and back, by the annotations of their fields.

In: a dataclass and a value from a file, in any state. Out: an object of the class; or faults, one for each value that
is missing, of another type or out of range, with its path, as in "splits.train.shards[1].sha256". A key that the class
lacks is no fault. A field with a default may be missing, and one that is None is not written.

Only a BuildConfig is written in another form: as one flat object of all settings, in which null stands for None.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, cast, get_args, get_origin, get_type_hints

from albert_data.config import BuildConfig, ExampleConfig, TextConfig
from albert_data.errors import AlbertDataError

Count = Annotated[int, "from 0 on"]
# What a JSON value of each kind is in Python, and in words. A boolean is no number.
_KINDS: dict[Any, tuple[Any, str]] = {
    int: (int, "a whole number"),
    Count: (int, "a whole number from 0 on"),
    float: ((int, float), "a number"),
    bool: (bool, "true or false"),
    str: (str, "a string"),
    dict: (dict, "an object"),
    tuple: (list, "a list"),
}


def read(kind: Any, value: object, where: str, faults: list[str]) -> Any:
    """Convert a value to a type or annotation. where: its path in the file; the result means nothing if faults grew."""
    if kind is Any:
        return value
    base = _find_base(kind)
    if not _is_kind(value, base):
        faults.append(f"{where or 'it'} is {value!r:.40}; {_KINDS[base][1]} is needed")
        return None
    if kind is base:
        return value
    if isinstance(value, list):
        inner = _drop_none(get_args(kind)[0])
        return tuple([read(inner, item, f"{where}[{i}]", faults) for i, item in enumerate(value)])
    values = cast(dict[str, Any], value)
    if kind is BuildConfig:
        return _read_object(BuildConfig.from_settings, _list_settings(), values, where, faults)
    if dataclasses.is_dataclass(kind):
        return _read_object(cast(Any, kind), _list_fields(cast(Hashable, kind)), values, where, faults)
    return _read_mapping(kind, values, where, faults)


def _find_base(kind: Any) -> Any:
    """The JSON type of a kind: one of the keys of _KINDS."""
    return kind if kind in _KINDS else tuple if get_origin(kind) is tuple else dict


def _is_kind(value: object, base: Any) -> bool:
    if isinstance(value, bool):
        return base is bool
    return isinstance(value, _KINDS[base][0]) and (base != Count or cast(int, value) >= 0)


def _read_mapping(kind: Any, values: dict[str, Any], where: str, faults: list[str]) -> dict[str, Any]:
    """kind: Mapping[str, X], or Annotated[Mapping[str, X], (the keys that are allowed)]."""
    kind, allowed = get_args(kind) if get_origin(kind) is Annotated else (kind, values)
    for name in values.keys() - set(allowed):
        faults.append(f"{where} holds {name!a:.40}; allowed are {', '.join(allowed)}")
    inner = _drop_none(get_args(kind)[1])
    return {name: read(inner, value, f"{where}.{name}", faults) for name, value in values.items() if name in allowed}


class _Field(NamedTuple):
    """kind: X where the annotation is X | None; takes_null: whether null is a value."""

    name: str
    kind: Any
    is_needed: bool
    takes_null: bool = False


@cache
def _list_fields(kind: Any) -> tuple[_Field, ...]:
    kinds = get_type_hints(kind, include_extras=True)
    fields = dataclasses.fields(kind)
    return tuple(_Field(one.name, _drop_none(kinds[one.name]), one.default is dataclasses.MISSING) for one in fields)


@cache
def _list_settings() -> tuple[_Field, ...]:
    """The fields of a flat BuildConfig. Each has a key."""
    kinds = get_type_hints(TextConfig) | get_type_hints(ExampleConfig) | get_type_hints(BuildConfig)
    del kinds["text"], kinds["examples"]
    return tuple(_Field(name, _drop_none(kind), True, takes_null=_is_union(kind)) for name, kind in kinds.items())


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType)


def _drop_none(kind: Any) -> Any:
    """X for X | None: the key may be missing, but a value that is there must be an X."""
    return get_args(kind)[0] if _is_union(kind) else kind


def _read_object(
    make: Callable[..., Any], fields: tuple[_Field, ...], values: dict[str, Any], where: str, faults: list[str]
) -> Any:
    num_faults, prefix, found = len(faults), f"{where}." if where else "", {}
    for field in fields:
        if field.name in values:
            item = values[field.name]
            # A shortcut, which most values of a large manifest take.
            is_plain = type(item) is field.kind or (item is None and field.takes_null)
            found[field.name] = item if is_plain else read(field.kind, item, prefix + field.name, faults)
        elif field.is_needed:
            faults.append(f"{prefix}{field.name} is missing; {_KINDS[_find_base(field.kind)][1]} is needed")
    if len(faults) == num_faults:
        try:
            return make(**found)
        except AlbertDataError as error:
            faults.append(f"{prefix}{error}")
    return None


def to_value(value: Any) -> Any:
    """The JSON value of an object."""
    if isinstance(value, BuildConfig):
        return value.to_flat_dict()
    if dataclasses.is_dataclass(value):
        return {name: to_value(item) for name, item in vars(value).items() if item is not None}
    if isinstance(value, Mapping):
        return {name: to_value(item) for name, item in value.items()}
    return [to_value(item) for item in value] if isinstance(value, tuple) else value
