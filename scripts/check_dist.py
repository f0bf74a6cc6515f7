"""Check what `make dist` made: the files in wheel and sdist, and the wheel alone in an empty environment.

    python scripts/check_dist.py dist            the package without extras, and no training
    python scripts/check_dist.py dist train      with the extra `train`, and a training of 30 seconds

What belongs into the package is what git tracks in albert_data/. `twine check` looks at the metadata. The wheel runs
quickstart, and docs/guides/python.md as a notebook; cells that are tagged with another extra are left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterable
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

ROOT = Path(__file__).parent.parent
_DIST_INFO = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt", "licenses/LICENSE"}
_BESIDE = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "MANIFEST.in", "README.md", "SECURITY.md", "pyproject.toml"}
_NOTEBOOK = ROOT / "docs" / "guides" / "python.md"
_SHOWN = {"": {"Audit", "Example", "Inspection", "Shards"}, "train": {"TrainedRun"}}  # as HTML, by extra
_MADE = {"PKG-INFO", "setup.cfg"}  # by setuptools, in an sdist
_MADE |= {f"albert_data.egg-info/{name}" for name in ("PKG-INFO", "SOURCES.txt", "dependency_links.txt")}
_MADE |= {f"albert_data.egg-info/{name}" for name in ("entry_points.txt", "requires.txt", "top_level.txt")}


def main(folder: Path, extras: list[str]) -> None:
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    run = subprocess.run(["git", "ls-files", "albert_data"], cwd=ROOT, capture_output=True, text=True, check=True)
    package = set(run.stdout.split("\n")) - {""}
    head = "-".join(wheel.name.split("-")[:2])
    with ZipFile(wheel) as file:
        compare(wheel.name, file.namelist(), package | {f"{head}.dist-info/{name}" for name in _DIST_INFO})
    with tarfile.open(sdist) as tar:
        names = [one.name.partition("/")[2] for one in tar if not one.isdir()]
    compare(sdist.name, names, package | _BESIDE | _MADE)
    try_wheel(wheel.resolve(), extras)


def compare(name: str, found: Iterable[str], wanted: set[str]) -> None:
    """End with an error if an archive lacks a file, or has one too many."""
    missing, stray = sorted(wanted - set(found)), sorted(set(found) - wanted)
    if missing or stray:
        sys.exit(f"{name} lacks {missing} and has {stray}, which git does not track or nobody needs")
    print(f"{name}: {len(wanted)} files, none missing, none too many")


def try_wheel(wheel: Path, extras: list[str]) -> None:
    """Install it into a new environment; run quickstart and the notebook in a folder with only the sample corpus."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        copytree(ROOT / "sample_corpus", folder / "sample_corpus")
        venv.create(folder / "env", with_pip=True)
        packages = next((folder / "env").glob("lib/*/site-packages"))
        before = count_bytes(packages)
        seconds = install(folder, wheel, extras)
        print(f"installed {(count_bytes(packages) - before) / 1e6:.0f} MB: {seconds}", flush=True)
        call(folder, "python", "-m", "pip", "check")
        for code in ("import albert_data", "from albert_data import *"):
            print(f"{code}, with the start of Python: {call(folder, 'python', '-c', code)}", flush=True)
        minutes = "0.5" if "train" in extras else "0"
        seconds = call(folder, "albert-data", "quickstart", "sample_corpus", "-o", "first", "--minutes", minutes)
        made = ["shards/manifest.json", "report.html"] + (["run/report.html"] if "train" in extras else [])
        for file in made:
            assert (folder / "first" / file).is_file(), f"quickstart made no {file}"
        print(f"quickstart: {seconds}", flush=True)
        install(folder, wheel, ["notebook"])
        run_notebook(folder, extras)


def install(folder: Path, wheel: Path, extras: list[str]) -> str:
    """Install the wheel with extras into the environment. Returns how long it took."""
    what = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    lock = str(ROOT / "constraints.txt")
    return call(folder, "python", "-m", "pip", "install", "--quiet", "--constraint", lock, what)


def run_notebook(folder: Path, extras: list[str]) -> None:
    """Execute the page's cells, and end with an error if one fails or what a notebook should show is not shown."""
    path = folder / "python.ipynb"
    call(folder, "jupytext", "--quiet", "--to", "ipynb", "--output", path.name, str(_NOTEBOOK))
    notebook = json.loads(path.read_text(encoding="utf-8"))
    left_out = leave_out(notebook, extras)
    path.write_text(json.dumps(notebook), encoding="utf-8")
    seconds = call(folder, "jupyter-execute", "--inplace", path.name)
    shown = list_shown(json.loads(path.read_text(encoding="utf-8")))
    wanted = set().union(*(names for extra, names in _SHOWN.items() if extra in ("", *extras)))
    assert wanted <= shown, f"a notebook shows only the text of {wanted - shown}"
    num_cells = sum(cell["cell_type"] == "code" for cell in notebook["cells"])
    print(f"{_NOTEBOOK.name} as a notebook, {num_cells} cells: {seconds}")
    print(f"left out: {len(left_out)} cells; need {', '.join(sorted(set(left_out)))}" if left_out else "none left out")


def leave_out(notebook: dict[str, Any], extras: list[str]) -> list[str]:
    """Remove the cells that are tagged with an extra that is not installed. Returns these extras, one for each cell."""
    missing = [set(cell["metadata"].get("tags", ())) - set(extras) for cell in notebook["cells"]]
    notebook["cells"] = [cell for cell, names in zip(notebook["cells"], missing, strict=True) if not names]
    return [", ".join(sorted(names)) for names in missing if names]


def list_shown(notebook: dict[str, Any]) -> set[str]:
    """The classes of the results that an executed notebook shows as HTML."""
    outputs = (output.get("data", {}) for cell in notebook["cells"] for output in cell.get("outputs", ()))
    return {"".join(data["text/plain"]).partition("(")[0] for data in outputs if "text/html" in data}


def call(folder: Path, program: str, *arguments: str) -> str:
    """Run a program of the environment, which sees nothing of this checkout. Returns how long it took."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    before = os.times()
    subprocess.run([folder / "env" / "bin" / program, *arguments], cwd=folder, env=environment, check=True)
    _, _, user, system, elapsed = (end - begin for begin, end in zip(before, os.times(), strict=True))
    return f"{elapsed:.1f} s, {user + system:.1f} s of processor time"


def count_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
