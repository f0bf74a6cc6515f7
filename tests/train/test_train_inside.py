"""Imports inside train/ run towards the top of its table in docs/architecture.md, and no files import in a circle."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import albert_data

PACKAGE = Path(albert_data.__file__).parent
GROUND = ("config", "folder", "reading", "distributed", "__init__")
PARTS = ("data", "model", "history", "run")


def list_imports() -> dict[str, set[str]]:
    """The modules of train/ and interop/ that each of them imports, in functions and under TYPE_CHECKING too."""
    paths = [path for room in ("train", "interop") for path in (PACKAGE / room).rglob("*.py")]
    names = {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in paths}
    found: dict[str, set[str]] = {name: set() for name in names}
    for name, path in names.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                known = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                found[name] |= {one.removeprefix("albert_data.") for one in known} & names.keys()
    return found


@pytest.mark.parametrize("part", PARTS)
def test_a_part_imports_only_from_the_ground_and_from_parts_above_it(part: str):
    allowed = {*GROUND, *PARTS[: PARTS.index(part) + 1]}
    for name, imported in list_imports().items():
        if name.startswith(f"train.{part}."):
            assert {other.split(".")[1] for other in imported} <= allowed, name


def test_no_files_import_in_a_circle():
    TopologicalSorter(list_imports()).prepare()  # raises CycleError
