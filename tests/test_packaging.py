"""constraints.txt is a lock, with a version of each package that some extra installs; the named Pythons are tested."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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
def test_every_package_that_is_installed_has_a_version_in_the_lock(extra):
    new = list_packages(EXTRAS[extra] if extra else PROJECT["dependencies"])
    seen = set(new)
    while new:
        name, extras = new.pop()
        try:
            new |= list_packages(requires(name) or (), {"", *extras}) - seen
        except PackageNotFoundError:  # make installs not every extra; then only the package itself is looked up
            continue
        seen |= new
    # The lock names the torch for a CPU; that for a GPU brings these.
    of_gpu = {name for name, _ in seen if name.startswith(("nvidia-", "cuda-", "triton"))}
    assert {name for name, _ in seen} - of_gpu <= set(PINNED)


def test_the_lock_has_one_version_of_each_package():
    assert sorted(set(PINNED)) == sorted(PINNED)


def test_a_cell_of_the_notebook_is_tagged_with_an_extra():
    page = (ROOT / "docs" / "guides" / "python.md").read_text(encoding="utf-8")
    tags = re.findall(r"^```python tags=(.*)$", page, re.MULTILINE)
    assert {name for one in tags for name in json.loads(one)} == {"train"} <= EXTRAS.keys()


def test_the_pythons_that_are_named_are_those_that_the_workflow_tests():
    named = [found[1] for one in PROJECT["classifiers"] if (found := re.search(r"Python :: (3\.\d+)$", one))]
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    assert re.search(r"python: \[(.*)\]", workflow)[1] == ", ".join(f'"{one}"' for one in named)
    first, last = named[0], int(named[-1].partition(".")[2])
    assert PROJECT["requires-python"] == f">={first},<3.{last + 1}"


def test_the_image_has_a_python_that_is_tested_and_all_that_its_build_reads():
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (python,) = re.findall(r"^FROM python:(3\.\d+)-slim$", dockerfile, re.MULTILINE)
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]
    sent = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"/src/([\w.]+)", dockerfile)) | {"albert_data", "pyproject.toml", PROJECT["readme"]} <= sent
    assert not [name for name in sent if not (ROOT / name).exists()]
