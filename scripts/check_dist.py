"""Check what `make dist` made: the files in wheel and sdist, and a quickstart from the wheel in an empty environment.

    python scripts/check_dist.py dist            the package without extras, and no training
    python scripts/check_dist.py dist train      with the extra `train`, and a training of 12 seconds

What belongs into the package is what git tracks in albert_data/. `twine check` looks at the metadata.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import time
import venv
from collections.abc import Iterable
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from zipfile import ZipFile

ROOT = Path(__file__).parent.parent
_DIST_INFO = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt", "licenses/LICENSE"}
_BESIDE = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "MANIFEST.in", "README.md", "SECURITY.md", "pyproject.toml"}
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
    """Install it into a new environment, and run quickstart in a folder that holds only the sample corpus."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        copytree(ROOT / "sample_corpus", folder / "corpus")
        venv.create(folder / "env", with_pip=True)
        packages = next((folder / "env").glob("lib/*/site-packages"))
        before, started = count_bytes(packages), time.monotonic()
        what = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
        call(folder, "python", "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), what)
        size = (count_bytes(packages) - before) / 1e6
        print(f"installed in {time.monotonic() - started:.0f} s: {size:.0f} MB", flush=True)
        call(folder, "python", "-m", "pip", "check")
        call(folder, "albert-data", "--version")
        minutes = "0.2" if "train" in extras else "0"
        call(folder, "albert-data", "quickstart", "corpus", "-o", "first", "--minutes", minutes)
        made = ["shards/manifest.json", "report.html"] + (["run-0.2-minutes/report.html"] if "train" in extras else [])
        for file in made:
            assert (folder / "first" / file).is_file(), f"quickstart made no {file}"


def call(folder: Path, program: str, *arguments: str) -> None:
    """Run a program of the environment, which sees nothing of this checkout."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    subprocess.run([folder / "env" / "bin" / program, *arguments], cwd=folder, env=environment, check=True)


def count_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
