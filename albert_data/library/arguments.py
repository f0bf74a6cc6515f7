"""What all public functions do with their arguments: settings as keywords, paths, optional packages, errors."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import math
import os
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

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
        classes = {name: _list_classes(hint) for name, hint in get_type_hints(function).items() if name in own}
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
            bound = signature.bind_partial(*given, **named)
            for name in bound.arguments.keys() & classes.keys():
                are_names = "Names" in str(own[name].annotation)
                bound.arguments[name] = _take(name, bound.arguments[name], classes[name], are_names=are_names)
            try:
                return function(*bound.args, **bound.kwargs)
            except BrokenPipeError:  # nobody reads what is printed any more
                raise
            except OSError as error:
                raise explain_disk_error(error) from error

        call.__signature__ = signature.replace(parameters=list(own.values()))  # type: ignore[attr-defined]
        return cast(Function, call)

    return decorate


def _list_classes(hint: Any) -> tuple[type[Any], ...]:
    """The classes of a union, without what is in them: (str, Mapping, NoneType) of str | Mapping[str, str] | None."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return tuple(get_origin(kind) or kind for kind in kinds)


def _take(name: str, value: Any, classes: tuple[type[Any], ...], *, are_names: bool) -> Any:
    """The value of an argument: a whole number as an int, several of them as a tuple, names as a list.

    Raises ConfigError for a value of none of these classes.
    """
    are_several = isinstance(value, Iterable) and not isinstance(value, _ITEMS) and not hasattr(value, "columns")
    if are_names and not (value is None and type(None) in classes):
        return [] if value is None else list(value) if are_several else [value]
    if int in classes and value is not None:
        is_sequence = Sequence in classes and are_several
        return tuple(_take_number(name, one) for one in value) if is_sequence else _take_number(name, value)
    if Any not in classes and not isinstance(value, classes):
        what = " or ".join(kind.__name__ for kind in classes if kind is not type(None))
        raise ConfigError(f"{name} is {value!r:.80}, of the type {type(value).__name__}; {what} is needed")
    return value


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
