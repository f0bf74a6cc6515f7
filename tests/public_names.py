"""Print tests/public_names.txt: what programs and scripts of others rely on. `make docs` writes it; a test compares.

docs/reference/stability.md says what is promised. A line is a version of a format, a public name of Python with its
parameters (one that ends in `=` has a default), or an argument or option of a command with its default.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import textwrap
import typing
from collections.abc import Iterator
from typing import Any

import click

from albert_data.cli.main import COMMANDS, cli
from albert_data.rules import RULES_VERSION
from albert_data.shards.schema import FORMAT_VERSION as SHARDS_VERSION
from albert_data.train.checkpoint import FORMAT_VERSION as CHECKPOINT_VERSION
from albert_data.train.order import ORDER_VERSION

_MODULES = ("albert_data", "albert_data.train", "albert_data.interop")
_INTERNAL = (
    "ShardLoader.longest",
    "ShardLoader.order",
    "Tokenizer.check_words",
    "Tokenizer.encode_documents",
    "Tokenizer.prepare",
    "Tokenizer.word_rule",
)


def render() -> str:
    """The whole list."""
    versions = {
        "rules": RULES_VERSION,
        "shards": SHARDS_VERSION,
        "checkpoint": CHECKPOINT_VERSION,
        "order of rows": ORDER_VERSION,
    }
    lines = [f"version of {name}: {version}" for name, version in versions.items()]
    return "\n".join([*lines, *list_names(), *list_options(), ""])


# ---- Python ----


def list_names() -> Iterator[str]:
    """What the modules export, and what each class has that a program may use."""
    for module in map(importlib.import_module, _MODULES):
        for name in sorted(module.__all__):
            value = getattr(module, name)
            yield f"{module.__name__}.{name}{_describe_parameters(value)}"
            if inspect.isclass(value):
                members = (f"{name}.{member}" for member in _list_members(value))
                yield from (f"{module.__name__}.{one}" for one in members if one.partition("(")[0] not in _INTERNAL)


def _list_members(kind: type) -> list[str]:
    """Methods, properties, fields, and the attributes that __init__ sets, of this package's classes alone."""
    found = {field.name: "" for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else {}
    for ours in (base for base in kind.__mro__ if base.__module__.startswith("albert_data")):
        for name, value in vars(ours).items():
            found.setdefault(name, _describe_parameters(getattr(kind, name)) if inspect.isroutine(value) else "")
        if "__init__" in vars(ours) and not dataclasses.is_dataclass(ours):
            found |= dict.fromkeys(_list_attributes(ours.__init__), "")
    return [name + parameters for name, parameters in sorted(found.items()) if not name.startswith("_")]


def _list_attributes(function: Any) -> set[str]:
    """The names that a method assigns to as self.name."""
    nodes = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function))))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}


def _describe_parameters(value: Any) -> str:
    """`(text, *, language=)` of a function or class; empty for anything else, and for exceptions."""
    if not callable(value) or (inspect.isclass(value) and issubclass(value, Exception)):
        return ""
    if typing.is_typeddict(value):
        keys = typing.get_type_hints(value, include_extras=True).items()
        keys = (f"{name}{'' if typing.get_origin(kind) is typing.Required else '='}" for name, kind in keys)
        return f"(*, {', '.join(sorted(keys))})"
    shown, kinds = [], inspect.Parameter
    for one in inspect.signature(value).parameters.values():
        if one.kind is kinds.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        star = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}.get(one.kind, "")
        if one.name != "self":
            shown.append(f"{star}{one.name}{'' if one.default is one.empty else '='}")
    return f"({', '.join(shown)})"


# ---- the command line ----


def list_options() -> Iterator[str]:
    """Of each command the arguments in their order, then the options."""
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        arguments = [
            one.make_metavar(click.Context(command)) for one in command.params if one.param_type_name == "argument"
        ]
        options = [_describe_option(one) for one in command.params if isinstance(one, click.Option)]
        yield from (f"albert-data {name} {one}" for one in (*arguments, *sorted(options)))


def _describe_option(option: click.Option) -> str:
    words = ["/".join((*option.opts, *option.secondary_opts))]
    if isinstance(option.type, click.Choice):
        words.append(f"{{{'|'.join(map(str, option.type.choices))}}}")
    # Other defaults are computed, none, or that of a flag.
    if isinstance(option.default, int | float | str) and option.default is not False and option.default != "":
        words.append(f"= {option.default}")
    if option.required:
        words.append("(required)")
    return " ".join(words)


if __name__ == "__main__":
    print(render(), end="")
