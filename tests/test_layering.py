"""Imports run towards the left of DESIGN.md's table only, and torch stays in the rooms that train."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import albert_data

PACKAGE = Path(albert_data.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
ROOMS = (
    "corpus",
    "sentences",
    "tokenizer",
    "examples",
    "shards",
    "pipeline",
    "report",
    "inspect",
    "convert",
    "train",
    "interop",
    "cli",
)
# What any room may import, and the order among them.
COMMON = (
    "wording",
    "errors",
    "languages",
    "config",
    "interrupts",
    "files",
    "sharing",
    "escaping",
    "kernel_cache",
    "kernels",
    "draws",
    "ascii",
    "utf8",
    "fnv",
    "unicode_tables",
    "rules",
)
MAY_IMPORT = {
    "corpus": (),
    "sentences": ("corpus",),
    "tokenizer": ("corpus", "sentences"),
    "examples": ("corpus", "sentences", "tokenizer"),
    "shards": ("corpus", "sentences", "tokenizer", "examples"),
    "pipeline": ("corpus", "sentences", "tokenizer", "examples", "shards"),
    "report": (),
    "inspect": ("corpus", "sentences", "tokenizer", "examples", "shards", "pipeline", "report"),
    "convert": ("corpus", "sentences", "tokenizer", "examples", "shards", "pipeline"),
    "train": ("corpus", "sentences", "tokenizer", "examples", "shards", "report"),
    "interop": ("corpus", "sentences", "tokenizer", "examples", "shards", "train"),
    "cli": ROOMS,
}


def room_of(path: Path) -> str:
    """The folder of a module below albert_data/, or its own name if it lies there directly."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """All modules that a module imports, wherever in it, and the lines."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            yield node.module or "", node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def ours(path: Path) -> Iterator[tuple[str, int]]:
    """The rooms and common modules that a module imports from."""
    for name, line in imports_of(path):
        package, _, rest = name.partition(".")
        if package == "albert_data" and rest and not rest.startswith("__"):
            yield rest.split(".")[0], line


def test_every_module_is_in_a_room_or_common():
    assert {room_of(path) for path in MODULES} <= {"__init__", "__main__", *COMMON, *ROOMS}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_from_rooms_to_its_left(room: str):
    allowed = {room, *COMMON, *MAY_IMPORT[room]}
    for path in MODULES:
        if room_of(path) == room:
            wrong = [f"{path}:{line} imports {found}" for found, line in ours(path) if found not in allowed]
            assert not wrong


@pytest.mark.parametrize("name", COMMON)
def test_common_modules_import_no_room(name: str):
    wrong = [found for found, _ in ours(PACKAGE / f"{name}.py") if found not in COMMON[: COMMON.index(name)]]
    assert not wrong


def test_the_rooms_that_may_be_imported_lie_to_the_left():
    for room, allowed in MAY_IMPORT.items():
        if room != "cli":
            assert set(allowed) <= set(ROOMS[: ROOMS.index(room)])


def test_torch_is_imported_by_train_and_interop_alone():
    found = {
        room_of(path)
        for path in MODULES
        for name, _ in imports_of(path)
        if name.split(".")[0] in ("torch", "transformers", "tensorflow", "safetensors")
    }
    assert found <= {"train", "interop"}


def test_no_room_imports_a_private_name_of_another():
    for path in MODULES:
        for name, line in imports_of(path):
            if name.startswith("albert_data."):
                assert not re.search(r"\._[^_]", name), f"{path}:{line} imports {name}"
