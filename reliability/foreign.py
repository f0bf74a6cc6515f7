"""Puts files of the user where a command writes its own files. The command must not change them.

Each is put into an output or instead of it. The command must then end with 0, or with 1 and one line that says why. If
OUT of a build is not ours, or a name of ours is taken, that must be 1, and nothing else in OUT may change either.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reliability.belongings import Belongings
from reliability.processes import run
from reliability.scenes import OUT, PAGE, Inputs, digest_all
from reliability.trials import Trial, last_line

Lay = Callable[[Path, Belongings], None]
MINE = b"The user's own, and nobody else's.\n"
# What stops no build in a folder of ours.
STAYS = {"README.md", "README.md is a link", "a shard of others", "a temporary file", "a temporary model", "notes"}


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """name: what is there; lay: puts it there; command: runs then; code: with which it must end, None for 0 or 1."""

    name: str
    lay: Lay
    command: list[str]
    code: int | None = None


def list_foreign(inputs: Inputs) -> list[Foreign]:
    """Return all trials, in order."""
    build, over = inputs.small_build(), inputs.small_build(OUT, "--overwrite")
    found = []
    for name, lay in _in_out().items():
        ours, code = _in_ours(inputs, lay), 0 if name in STAYS else 1
        ways = (("build", lay, build, 1), ("over", lay, over, 1), ("over ours", ours, over, code))
        found += [Foreign(name=f"{name}, {how}", lay=put, command=do, code=code) for how, put, do, code in ways]
    inspect = ["inspect", OUT, "--html"]

    def finished(folder: Path, belongings: Belongings) -> None:
        shutil.copytree(inputs.small_shards, folder / OUT)

    def through_link(folder: Path, belongings: Belongings) -> None:
        finished(folder, belongings)
        (folder / "target.html").write_bytes(MINE)  # the command writes through the link
        belongings.link(folder / PAGE, folder / "target.html")

    def onto_device(folder: Path, belongings: Belongings) -> None:
        finished(folder, belongings)
        with suppress(PermissionError):  # only root can make a device; without it the page is a new file
            belongings.make_device(folder / PAGE)

    def over_ours(folder: Path, belongings: Belongings) -> None:
        finished(folder, belongings)
        for name in ("manifest.json", "train/shard-00000.arrow", "tokenizer/spiece.model"):
            belongings.files[folder / OUT / name] = (folder / OUT / name).read_bytes()

    manifest, shard = f"{OUT}/manifest.json", f"{OUT}/train/shard-00000.arrow"
    return [
        *found,
        Foreign(name="a page onto the manifest", lay=over_ours, command=[*inspect, manifest]),
        Foreign(name="a page onto a shard", lay=over_ours, command=[*inspect, shard]),
        Foreign(name="a page through a link onto the manifest", lay=_link_page(over_ours), command=[*inspect, PAGE]),
        Foreign(name="a page through a link", lay=through_link, command=[*inspect, PAGE]),
        Foreign(name="a page onto a device", lay=onto_device, command=[*inspect, PAGE]),
    ]


def _link_page(lay: Lay) -> Lay:
    def do(folder: Path, belongings: Belongings) -> None:
        lay(folder, belongings)
        belongings.link(folder / PAGE, folder / OUT / "manifest.json")

    return do


def _in_ours(inputs: Inputs, lay: Lay) -> Lay:
    """Into a finished build, in place of what has the same name there."""

    def do(folder: Path, belongings: Belongings) -> None:
        lay(folder, belongings)
        for path in filter(Path.is_file, inputs.shards.rglob("*")):
            copy = folder / OUT / path.relative_to(inputs.shards)
            if not (copy.is_symlink() or copy.exists() or copy.parent.is_symlink() or copy.parent.is_file()):
                copy.parent.mkdir(exist_ok=True)
                shutil.copy(path, copy)

    return do


def _in_out() -> dict[str, Lay]:
    """Return, by name, what is put into OUT, or instead of it, before a build."""
    names = {
        "README.md": "README.md",
        "a model": "tokenizer/spiece.model",
        "a shard of others": "train/data-00000-of-00001.arrow",
        "a shard of our name": "train/shard-00000.arrow",
        "a shard of a high number": "train/shard-00099.arrow",
        "a work folder": ".build/notes.txt",
        "a plan": ".build/plan.json",
        "sorted runs in a work folder": ".build/runs/mine.run",
        "a manifest": "manifest.json",
        "a temporary file": "manifest.json.tmp",
        "a temporary model": "tokenizer/spiece.model.tmp",
        "validation as a file": "validation",
        "notes": "notes.txt",
    }
    folders, files = (
        ("train", ".build", "tokenizer", "validation"),
        ("README.md", "manifest.json", "tokenizer/spiece.model"),
    )
    return {
        **{name: _put_file(path) for name, path in names.items()},
        **{f"{name} is a link": _link_folder(name) for name in folders},
        **{f"{name} is a link": _link_file(name) for name in files},
    }


def _put_file(name: str) -> Lay:
    def lay(folder: Path, belongings: Belongings) -> None:
        data = b'{"name": "mine"}\n' if name.endswith(".json") else MINE
        belongings.write(folder / OUT / name, data)

    return lay


def _link_folder(name: str) -> Lay:
    def lay(folder: Path, belongings: Belongings) -> None:
        for file in ("shard-00000.arrow", "mine.arrow", "plan.json", "spiece.model", "runs/mine.run", "notes.txt"):
            belongings.write(folder / "elsewhere" / file, MINE)
        (folder / OUT).mkdir(exist_ok=True)
        belongings.link(folder / OUT / name, folder / "elsewhere")

    return lay


def _link_file(name: str) -> Lay:
    def lay(folder: Path, belongings: Belongings) -> None:
        belongings.write(folder / "elsewhere.txt", MINE)
        belongings.link(folder / OUT / name, folder / "elsewhere.txt")

    return lay


def try_foreign(foreign: Foreign, folder: Path, number: int) -> Trial:
    """Run the command, and check that the user's files are unchanged."""
    trial = Trial(scene="the user's own files", label=foreign.name, number=number)
    work, belongings = folder / "work", Belongings()
    work.mkdir(parents=True)
    foreign.lay(work, belongings)
    before = digest_all(work / OUT)
    ended = run(foreign.command, work, folder / "logs")
    trial.note(ended)
    if ended.code not in (0, 1):
        trial.blame(f"exit code {ended.code}: {last_line(ended)}")
    if ended.code == 1 and not last_line(ended).startswith("Error: "):
        trial.blame(f"no line says why: {last_line(ended)}")
    if foreign.code not in (None, ended.code):
        trial.blame(f"exit code {ended.code}, needed is {foreign.code}: {last_line(ended)}")
    if foreign.code == 1 and digest_all(work / OUT) != before:
        trial.blame("the command changed the folder although it was refused")
    for fault in belongings.find_faults():
        trial.blame(fault)
    trial.is_equal = not trial.faults
    return trial
