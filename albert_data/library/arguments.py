"""What all public functions do with their arguments: settings as keywords, paths, optional packages, errors."""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import os
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_type_hints

from albert_data.config import check_range, take_annotated
from albert_data.errors import ArgumentError, ConfigError, StorageError, explain_disk_error
from albert_data.storage import is_remote, make_path

Function = TypeVar("Function", bound=Callable[..., Any])
PathName = str | os.PathLike[str]
# Of arguments that are whole numbers; the options have them from here. Settings are checked by their classes.
RANGES: dict[str, tuple[int, int | None]] = {
    "workers": (1, 1024),
    "num_examples": (0, None),
    "seed": (0, None),
}
NUM_SHOWN, NUM_IN_HTML = 3, 300  # rows that `inspect` shows


def public(*owners: Callable[..., Any]) -> Callable[[Function], Function]:
    """Mark a public function, whose `**settings` are those of a TypedDict.

    They are in its signature, where `help` and notebooks find them. An unknown keyword is an ArgumentError that names
    similar ones, a flag, number or text of another type and a number that is out of its range a ConfigError, and an
    error of the system an AlbertDataError.
    owners: classes and functions whose parameters have the defaults; None is shown for all others.
    """

    def decorate(function: Function) -> Function:
        signature, types = inspect.signature(function), get_type_hints(function)
        own = {name: one.replace(annotation=types[name]) for name, one in signature.parameters.items()}
        if "settings" in own:
            defaults = {name: one for owner in owners for name, one in inspect.signature(owner).parameters.items()}
            for name, kind in get_type_hints(get_args(own.pop("settings").annotation)[0]).items():
                default = defaults[name].default if name in defaults else None
                own[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        kinds = {name: inspect.formatannotation(one.annotation) for name, one in own.items()}

        @functools.wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            for name in sorted(named.keys() - own.keys()):
                similar = " or ".join(get_close_matches(name, own)) or ", ".join(own)
                raise ArgumentError(f"{function.__name__} has no argument {name!r}; is it one of: {similar}?")
            bound = signature.bind_partial(*given, **named)
            for name in bound.arguments.keys() & own.keys():  # settings are checked by their classes
                value = bound.arguments[name] = take_annotated(name, bound.arguments[name], kinds[name])
                if name in RANGES and value is not None:
                    low, high = RANGES[name]
                    check_range(name, value, low, math.inf if high is None else high)
            try:
                return function(*bound.args, **bound.kwargs)
            except BrokenPipeError:  # nobody reads what is printed any more
                raise
            except OSError as error:
                raise explain_disk_error(error) from error

        shown = signature.replace(parameters=list(own.values()), return_annotation=types["return"])
        call.__signature__ = shown  # type: ignore[attr-defined]
        return cast(Function, call)

    return decorate


def disk_path(name: PathName, what: str) -> Path:
    """A path on a disk. Elsewhere a URL is refused: pathlib would make the folder `s3:`. what: for the message."""
    path = make_path(name)
    if is_remote(path):
        raise StorageError(f"{path} is in a store, but {what} has to be on a disk; name a path there")
    return path


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
