"""Runs a trial: prepares a folder, disturbs a command, runs it again, and compares the result with an undisturbed one.

In: a scene and the kind of disturbance. Out: the faults, a line each, and a log.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from reliability.belongings import BESIDE, COMMON, HIDDEN, Belongings
from reliability.disks import ROOMY_BYTES, measure_disk, measure_peak, mount_disk, resize_disk
from reliability.processes import SIGNALS, TARGETS, Ended, Strike, run
from reliability.scenes import OUT, PAGE, RUN, VOCAB, Result, Scene

# Exit codes of a command that a signal ended. 0 is allowed if its work was done before.
CODES = {"KILL": (-9,), "TERM": (143, -15), "INT": (130, -2), "HUP": (129, -1), "STOP": ()}
MOST_RERUNS = 3
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)|Exception ignored|Fatal Python error")
_FULL = ("No space left", "File too large")
_OWN_PATH = rf"(^|[\s:'\"(])({{work}}/|({OUT}|{RUN}|{VOCAB}|{re.escape(PAGE)})\b)"  # absolute, or as the command has it
MOST_FILE_BYTES = 16 << 20


@dataclass(frozen=True, kw_only=True)
class Reference:
    """An undisturbed command: its result, its seconds, and the disk space that it needed (0: not measured)."""

    result: Result
    seconds: float
    disk_bytes: int


@dataclass(kw_only=True)
class Trial:
    """The outcome of a trial."""

    scene: str
    label: str
    number: int
    is_equal: bool = False
    faults: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def note(self, ended: Ended) -> None:
        """Log a command, and note what no command may do."""
        self.log.append(ended.describe())
        name = ended.arguments[0]
        if ended.code is None:
            self.faults.append(f"{name} does not end")
        if ended.orphans:
            self.faults.append(f"{name} leaves {ended.orphans} processes")
        if found := _TRACEBACK.search(ended.stderr):
            self.faults.append(f"{name} prints: {found[0]}")

    def blame(self, fault: str) -> None:
        self.faults.append(fault)


def make_reference(scene: Scene, folder: Path, logs: Path, *, has_disks: bool) -> Reference:
    """Run a scene's command, and those that follow it, undisturbed. Raises RuntimeError if one fails."""
    folder.mkdir(parents=True)
    if not has_disks:
        scene.prepare(folder)
        return _measure(scene, folder, logs)
    with mount_disk(folder):
        scene.prepare(folder)
        begin = measure_disk(folder)
        with measure_peak(folder) as peak:
            found = _measure(scene, folder, logs)
    return dataclasses.replace(found, disk_bytes=peak[0] - begin)


def _measure(scene: Scene, folder: Path, logs: Path) -> Reference:
    first = run(scene.command, folder, logs)
    last = first
    for ended in _give_again(scene, folder, logs, first):
        last = ended
    if first.code or last.code:
        raise RuntimeError(f"{scene.name} fails undisturbed:\n{first.describe()}\n{last.describe()}")
    return Reference(result=scene.result(folder, last), seconds=first.seconds, disk_bytes=0)


def _give_again(scene: Scene, folder: Path, logs: Path, ended: Ended) -> Iterator[Ended]:
    """Run the commands that follow, until nothing is left to do."""
    for _ in range(MOST_RERUNS):
        command = scene.again(folder, ended)
        if command is None:
            return
        ended = run(command, folder, logs)
        yield ended


def choose_strike(scene: Scene, reference: Reference, folder: Path, rng: Random) -> Strike:
    """Choose a signal at a random moment, or shortly after a stage of the scene."""
    targets = TARGETS if scene.has_workers else ("parent", "group")
    name, target = rng.choice(tuple(SIGNALS)), rng.choice(targets)
    if scene.stages and rng.random() < 0.5:
        pattern, comes = rng.choice(scene.stages)
        is_due = _Stage(folder, pattern, comes, delay=rng.choice((0.0, 0.0, 0.003, 0.02, 0.1)))
    else:
        is_due = _Stage(folder, "", True, delay=rng.uniform(0.0, 1.05 * reference.seconds))
    return Strike(name=name, target=target, is_due=is_due, pause_seconds=rng.choice((0.1, 0.5)))


class _Stage:
    """Becomes due some time after files of a pattern appear or disappear; without a pattern, after the start."""

    def __init__(self, folder: Path, pattern: str, comes: bool, delay: float) -> None:
        self._folder, self._pattern, self._comes, self._delay = folder, pattern, comes, delay
        self._seen: float | None = None

    def __call__(self, seconds: float) -> bool:
        if self._seen is None and self._is_reached():
            self._seen = seconds if self._pattern else 0.0
        return self._seen is not None and seconds >= self._seen + self._delay

    def _is_reached(self) -> bool:
        return not self._pattern or any(self._folder.glob(self._pattern)) == self._comes


@dataclass(kw_only=True)
class Bench:
    """The folders of a trial of a scene."""

    scene: Scene
    reference: Reference
    work: Path
    logs: Path
    belongings: Belongings = field(default_factory=Belongings)

    @classmethod
    def lay_out(cls, scene: Scene, reference: Reference, folder: Path, rng: Random) -> Bench:
        """Make the scene's files, and the user's: always beside the output, in half of the trials also in it.

        A new folder gets hidden files alone, because a build refuses others.
        """
        bench = cls(scene=scene, reference=reference, work=folder / "work", logs=folder / "logs")
        bench.work.mkdir(parents=True, exist_ok=True)
        scene.prepare(bench.work)
        bench.belongings.plant(bench.work, BESIDE)
        if scene.holds == OUT and rng.random() < 0.5:
            out = bench.work / OUT
            bench.belongings.plant(out, COMMON if out.exists() else HIDDEN)
        return bench

    def add_files(self) -> None:
        """Put the user's files into what a killed build left: it is a folder of ours, so they stay."""
        if (self.work / OUT / ".build" / "plan.json").exists():
            self.belongings.plant(self.work / OUT, COMMON)

    def is_complete(self, ended: Ended) -> bool:
        """Whether the first command has finished its work."""
        is_done = self.scene.is_done
        return self.scene.result(self.work, ended) == self.reference.result if is_done is None else is_done(self.work)


def try_signal(scene: Scene, reference: Reference, folder: Path, rng: Random, number: int) -> Trial:
    """Send a signal to a command, run it again, and compare."""
    bench = Bench.lay_out(scene, reference, folder, rng)
    strike = choose_strike(scene, reference, bench.work, rng)
    ended = run(scene.command, bench.work, bench.logs, strike)
    label = strike.label if ended.is_struck else "over before the signal"
    trial = Trial(scene=scene.name, label=label, number=number)
    trial.note(ended)
    check_code(trial, bench, strike, ended)
    if rng.random() < 0.5:
        bench.add_files()
    finish(trial, bench, ended)
    return trial


def check_code(trial: Trial, bench: Bench, strike: Strike, ended: Ended) -> None:
    """Check that a command ends with the exit code of its signal."""
    allowed = CODES[strike.name] if ended.is_struck and strike.target != "worker" else ()
    if ended.code in allowed:
        return
    if ended.code != 0:
        codes = ", ".join(map(str, (0, *allowed)))
        trial.blame(f"exit code {ended.code} after {strike.label}, allowed are {codes}: {last_line(ended)}")
    elif allowed and not bench.is_complete(ended):
        trial.blame(f"exit code 0 after {strike.label}, and the work is not done")


def finish(trial: Trial, bench: Bench, ended: Ended) -> None:
    """Run the command again, and compare the result."""
    scene, expected = bench.scene, bench.reference.result
    for again in _give_again(scene, bench.work, bench.logs, ended):
        trial.note(again)
        ended = again
    if ended.code != 0:
        trial.blame(f"the command that is run again ends with {ended.code}: {last_line(ended)}")
    found = scene.result(bench.work, ended)
    different = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
    trial.is_equal = not different
    if different:
        trial.blame(f"differs from the undisturbed result: {', '.join(different[:4])}")
    for path in find_left(bench.work, bench.belongings, scene.allowed_left):
        trial.blame(f"{path} is left behind")
    for fault in bench.belongings.find_faults():
        trial.blame(fault)


def last_line(ended: Ended) -> str:
    lines = ended.stderr.strip().splitlines()
    return lines[-1][:200] if lines else "nothing on stderr"


def find_left(work: Path, belongings: Belongings, allowed: tuple[str, ...] = ()) -> list[str]:
    """Return temporary files and folders that should be gone."""
    found = (path for path in work.rglob("*") if path.name.endswith(".tmp") or path.name == ".build")
    return [
        path.relative_to(work).as_posix()
        for path in sorted(found)
        if not belongings.holds(path) and not any(part in allowed for part in path.relative_to(work).parts)
    ]


def try_full_disk(scene: Scene, reference: Reference, folder: Path, rng: Random, number: int) -> Trial:
    """Run a command with less disk space than it needs, then with enough."""
    trial = Trial(scene=scene.name, label="a full disk", number=number)
    with mount_disk(folder / "work"):
        bench = Bench.lay_out(scene, reference, folder, rng)
        free_bytes = int(rng.random() * 0.98 * reference.disk_bytes)
        resize_disk(bench.work, measure_disk(bench.work) + free_bytes)
        ended = run(scene.command, bench.work, bench.logs)
        check_full(trial, ended, bench.work)
        resize_disk(bench.work, ROOMY_BYTES)
        finish(trial, bench, ended)
    return trial


def try_file_limit(scene: Scene, reference: Reference, folder: Path, rng: Random, number: int) -> Trial:
    """Run a command with a limit on file sizes, then without. Used if no disk can be mounted."""
    trial = Trial(scene=scene.name, label="a limit on files", number=number)
    bench = Bench.lay_out(scene, reference, folder, rng)
    ended = run(scene.command, bench.work, bench.logs, most_file_bytes=int(rng.random() ** 4 * MOST_FILE_BYTES))
    check_full(trial, ended, bench.work)
    finish(trial, bench, ended)
    return trial


def check_full(trial: Trial, ended: Ended, work: Path) -> None:
    """Check that a command on a full disk says so in one line, with a path on that disk."""
    trial.note(ended)
    if ended.code == 0:
        return
    if ended.code != 1:
        trial.blame(f"exit code {ended.code} on a full disk; 1 is needed")
    line = last_line(ended)
    if not any(word in line for word in _FULL):
        trial.blame(f"does not mention the full disk: {line}")
    if not re.search(_OWN_PATH.format(work=re.escape(str(work))), line):
        trial.blame(f"names no path on the full disk: {line}")


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
