"""constraints.txt is a lock, with a version of each package that some extra installs; the named Pythons are tested."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.check_dist import leave_out, list_shown

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
LINES = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
PINNED = [canonicalize_name(line.partition("==")[0]) for line in LINES if "==" in line]


def list_packages(requirements: Iterable[str], extras: Iterable[str] = ("",)) -> set[tuple[str, frozenset[str]]]:
    """The packages that these requirements ask for here, each with its extras."""
    found = [Requirement(one) for one in requirements]
    wanted = [one for one in found if not one.marker or any(one.marker.evaluate({"extra": name}) for name in extras)]
    return {(canonicalize_name(one.name), frozenset(one.extras)) for one in wanted}


@pytest.mark.parametrize("extra", ["", *EXTRAS])
def test_every_package_that_is_installed_has_a_version_in_the_lock(extra: str):
    new = list_packages(EXTRAS[extra] if extra else PROJECT["dependencies"])
    seen = set(new)
    while new:
        name, extras = new.pop()
        try:
            new |= list_packages(requires(name) or (), {"", *extras}) - seen
        except PackageNotFoundError:  # make installs not every extra; then only the package itself is looked up
            continue
        seen |= new
    assert {name for name, _ in seen} <= set(PINNED)


def test_the_lock_has_one_version_of_each_package():
    assert sorted(set(PINNED)) == sorted(PINNED)


def test_the_notebook_is_run_without_the_cells_of_missing_extras():
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "metadata": {}},
        {"cell_type": "code", "metadata": {"tags": ["train"]}},
        {"cell_type": "markdown", "metadata": {}},
        {"cell_type": "code", "metadata": {"tags": ["huggingface"]}},
    ]
    for extras, kept in (([], [0, 2]), (["train"], [0, 1, 2]), (["train", "huggingface"], [0, 1, 2, 3])):
        notebook = {"cells": list(cells)}
        left_out = leave_out(notebook, extras)
        assert notebook["cells"] == [cells[number] for number in kept]
        assert left_out == [one for one in ("train", "huggingface") if one not in extras]


def test_a_cell_of_the_notebook_is_tagged_with_an_extra():
    page = (ROOT / "docs" / "guides" / "python.md").read_text(encoding="utf-8")
    tags = re.findall(r"^```python tags=(.*)$", page, re.MULTILINE)
    assert {name for one in tags for name in json.loads(one)} == {"train", "huggingface"} <= EXTRAS.keys()


def test_what_a_notebook_shows_as_html_is_named_by_its_class():
    html = {"text/html": ["<p>"], "text/plain": ["Audit('a': ", "24 ok)"]}
    outputs: list[dict[str, Any]] = [{"name": "stdout"}, {"data": html}, {"data": {"text/plain": ["Shards('a')"]}}]
    assert list_shown({"cells": [{"outputs": outputs}, {"source": "text"}]}) == {"Audit"}


def test_the_pythons_that_are_named_are_those_that_the_workflow_tests():
    named = [found[1] for one in PROJECT["classifiers"] if (found := re.search(r"Python :: (3\.\d+)$", one))]
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    assert re.search(r"python: \[(.*)\]", workflow)[1] == ", ".join(f'"{one}"' for one in named)
    first, last = named[0], int(named[-1].partition(".")[2])
    assert PROJECT["requires-python"] == f">={first},<3.{last + 1}"
