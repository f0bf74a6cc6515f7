"""What all public functions do with their arguments: settings as keywords, paths, optional packages, errors."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, cast

from albert_data.config import check_range, take_value
from albert_data.errors import ArgumentError, ConfigError, StorageError, explain_disk_error
from albert_data.storage import is_remote, make_path

Function = TypeVar("Function", bound=Callable[..., Any])
PathName = str | os.PathLike[str]
# Of arguments that are whole numbers; the options have them from here. Settings are checked by their classes.
RANGES: dict[str, tuple[int, int | None]] = {
    "workers": (1, 1024),
    "num_examples": (0, None),
    "seed": (0, None),
    "row": (0, None),
    "accumulate": (1, None),
    "pack": (1, None),
}
NUM_SHOWN, NUM_IN_HTML = 3, 300  # rows that `inspect` shows
_ITEMS = (str, bytes, os.PathLike)  # each is one value, and not several
# By annotation, which values an argument may have, and their type in words. Those of other annotations are checked
# where they are used.
_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "PathName": (lambda value: isinstance(value, str | os.PathLike), "a str or a Path"),
    "str": (lambda value: isinstance(value, str), "a str"),
    "os.PathLike[str]": (lambda value: isinstance(value, os.PathLike), "a Path"),
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "Sequence[str]": (lambda value: isinstance(value, Collection) and _are_str(value), "a list of them"),
    "Mapping[str, str]": (lambda value: isinstance(value, Mapping) and _are_str(value.values()), "a dict of str"),
    "Callable[[Fault], object]": (callable, "a function"),
    "Engine": (lambda value: hasattr(value, "run"), "an engine"),
    "Progress": (
        lambda value: all(hasattr(value, name) for name in ("start", "advance", "say")),
        "an object with start, advance and say",
    ),
}
_NESTED = ("text", "examples")  # fields of BuildConfig whose settings are keywords of their own


def public(*kinds: type[Any], has_defaults: bool = True) -> Callable[[Function], Function]:
    """Mark a public function, whose `**settings` are the settings of these classes.

    They are in its signature with their defaults, where `help` and notebooks find them. An unknown keyword is an
    ArgumentError that names similar ones, a value of another type or a number that is out of its range a ConfigError,
    and an error of the system an AlbertDataError.
    has_defaults: False if the defaults are not those of the classes; then None is shown.
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        own = {name: one for name, one in signature.parameters.items() if one.kind is not one.VAR_KEYWORD}
        types = {name: str(one.annotation).split(" | ") for name, one in own.items()}
        fields = (field for kind in kinds for field in dataclasses.fields(kind) if field.name not in (*own, *_NESTED))
        own |= {
            field.name: inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default if has_defaults else None,
                annotation=field.type,
            )
            for field in fields
        }

        @functools.wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            for name in sorted(named.keys() - own.keys()):
                similar = " or ".join(get_close_matches(name, own)) or ", ".join(own)
                raise ArgumentError(f"{function.__name__} has no argument {name!r}; is it one of: {similar}?")
            by_place = [_take(name, value, types[name]) for name, value in zip(types, given, strict=False)]
            named |= {name: _take(name, named[name], types[name]) for name in types if name in named}
            try:
                return function(*by_place, *given[len(by_place) :], **named)
            except BrokenPipeError:  # nobody reads what is printed any more
                raise
            except OSError as error:
                raise explain_disk_error(error) from error

        call.__signature__ = signature.replace(parameters=list(own.values()))  # type: ignore[attr-defined]
        return cast(Function, call)

    return decorate


def _take(name: str, value: Any, types: list[str]) -> Any:
    """The value of an argument: a whole number as an int, several of them as a tuple, names as a list.

    types: the alternatives in its annotation. Raises ConfigError for a value of none of them.
    """
    if value is None and "None" in types:
        return None
    are_several = isinstance(value, Iterable) and not isinstance(value, _ITEMS) and not hasattr(value, "columns")
    if "Names" in types:
        return [] if value is None else list(value) if are_several else [value]
    if "Sequence[int]" in types and are_several:
        return tuple(_take_number(name, one) for one in value)
    if "int" in types:
        return _take_number(name, value)
    known = [_TYPES[one] for one in types if one in _TYPES]
    if len(known) == len(types) - types.count("None") and not any(is_of(value) for is_of, _ in known):
        what = " or ".join(what for _, what in known)
        raise ConfigError(f"{name} is {value!r:.80}, of the type {type(value).__name__}; {what} is needed")
    return value


def _are_str(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _take_number(name: str, value: Any) -> int:
    number, (low, high) = take_value(name, value, "int"), RANGES[name]
    check_range(name, number, low, math.inf if high is None else high)
    return cast(int, number)


def disk_path(name: PathName, what: str) -> Path:
    """A path on a disk. Elsewhere a URL is refused: pathlib would make the folder `s3:`. what: for the message."""
    if is_remote(name):
        raise StorageError(f"{make_path(name)} is in a store, but {what} has to be on a disk; name a path there")
    return make_path(name)


def require_output(output: PathName | None) -> Path:
    """The folder of a result, which has to be named although what comes before it may be left out."""
    if output is None:
        raise ArgumentError("output is missing; name the folder of the result")
    return make_path(output)


def require_packages(command: str, *names: str, extra: str) -> None:
    """Raise ConfigError if a package of an optional extra is not installed."""
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise ConfigError(f"{command} needs {name}; install it with: pip install 'albert-data[{extra}]'") from error
