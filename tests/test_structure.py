"""What holds of all modules: no circles of imports, no class name used twice, and examples that give what they show."""

from __future__ import annotations

import ast
import doctest
import importlib
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import albert_data

PACKAGE = Path(albert_data.__file__).parent
# By their names with dots, without `albert_data.`; the package itself is left out, which loads its names lazily.
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path != PACKAGE / "__init__.py"
}


def list_imports(path: Path) -> set[str]:
    """The modules of the package that a module imports, in functions and under TYPE_CHECKING too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name.removeprefix("albert_data.") for name in found} & MODULES.keys()


def test_no_files_import_in_a_circle():
    TopologicalSorter({name: list_imports(path) for name, path in MODULES.items()}).prepare()  # raises CycleError


def test_no_two_classes_have_one_name():
    places = defaultdict(list)
    for name, path in MODULES.items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.parametrize("name", [name for name, path in MODULES.items() if ">>>" in path.read_text()])
def test_examples_in_docstrings_give_what_they_show(name):
    if name.startswith("train."):
        pytest.importorskip("torch", reason="the train extra is not installed")
    result = doctest.testmod(importlib.import_module(f"albert_data.{name}"))
    assert result.attempted
    assert not result.failed
