"""One trial: lay out a folder, disturb a command, give it again, and compare what is there with an undisturbed run.

In: a scene and a plan of what befalls it. Out: what went wrong, a line each, and a log.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from reliability.belongings import BESIDE, COMMON, Belongings
from reliability.disks import ROOMY_BYTES, measure_disk, measure_peak, mount_disk, resize_disk
from reliability.processes import SIGNALS, TARGETS, Ended, Strike, run
from reliability.scenes import OUT, Result, Scene

# Exit codes of a command that a signal ended; 0 is allowed where all was done already.
CODES = {"KILL": (-9,), "TERM": (143, -15), "INT": (130, -2), "HUP": (129, -1), "STOP": ()}
MOST_RERUNS = 3
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)|Exception ignored|Fatal Python error")
_FULL = ("No space left", "File too large")


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A run that nothing disturbed: its result, how long it took, what of a disk it needed beyond what it found."""

    result: Result
    seconds: float
    disk_bytes: int


@dataclass(kw_only=True)
class Trial:
    """What is known of a trial when it is over."""

    scene: str
    label: str
    number: int
    is_equal: bool = False
    faults: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def note(self, ended: Ended) -> None:
        """Log a command, and look at what no command may do."""
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
    """Run a scene's command, and those that follow it, with nothing in the way. Raises RuntimeError where it fails."""
    folder.mkdir(parents=True)
    if not has_disks:
        return _measure(scene, folder, logs)
    with mount_disk(folder), measure_peak(folder) as peak:
        found = _measure(scene, folder, logs)
        return Reference(result=found.result, seconds=found.seconds, disk_bytes=peak[0] - found.disk_bytes)


def _measure(scene: Scene, folder: Path, logs: Path) -> Reference:
    """disk_bytes: what was there at the start."""
    scene.prepare(folder)
    before = measure_disk(folder)
    first = run(scene.command, folder, logs)
    last = first
    for ended in _give_again(scene, folder, logs, first):
        last = ended
    if first.code or last.code:
        raise RuntimeError(f"{scene.name} fails with nothing in its way:\n{first.describe()}\n{last.describe()}")
    return Reference(result=scene.result(folder, last), seconds=first.seconds, disk_bytes=before)


def _give_again(scene: Scene, folder: Path, logs: Path, ended: Ended) -> Iterator[Ended]:
    """The commands that follow, until nothing is left to do."""
    for _ in range(MOST_RERUNS):
        command = scene.again(folder, ended)
        if command is None:
            return
        ended = run(command, folder, logs)
        yield ended


def choose_strike(scene: Scene, reference: Reference, folder: Path, rng: Random) -> Strike:
    """A signal at a random moment, or soon after one of the scene's stages is reached."""
    name, target = rng.choice(tuple(SIGNALS)), rng.choice(TARGETS)
    is_due: Callable[[float], bool]
    if scene.stages and rng.random() < 0.5:
        pattern, comes = rng.choice(scene.stages)
        delay = rng.choice((0.0, 0.0, 0.003, 0.02, 0.1))
        is_due = _Stage(folder, pattern, comes, delay)
    else:
        moment = rng.uniform(0.0, 1.05 * reference.seconds)
        is_due = lambda seconds: seconds >= moment  # noqa: E731
    return Strike(name=name, target=target, is_due=is_due, pause_seconds=rng.choice((0.1, 0.5)))


class _Stage:
    """Due a moment after files come to be, or are gone."""

    def __init__(self, folder: Path, pattern: str, comes: bool, delay: float) -> None:
        self._folder, self._pattern, self._comes, self._delay = folder, pattern, comes, delay
        self._seen: float | None = None

    def __call__(self, seconds: float) -> bool:
        if self._seen is None and any(self._folder.glob(self._pattern)) == self._comes:
            self._seen = seconds
        return self._seen is not None and seconds >= self._seen + self._delay


def try_signal(scene: Scene, reference: Reference, folder: Path, rng: Random, number: int) -> Trial:
    """Strike a command, give it again, compare."""
    work, logs = folder / "work", folder / "logs"
    work.mkdir(parents=True)
    scene.prepare(work)
    belongings = plant(scene, work, rng)
    strike = choose_strike(scene, reference, work, rng)
    trial = Trial(scene=scene.name, label=strike.label, number=number)
    ended = run(scene.command, work, logs, strike)
    trial.note(ended)
    check_code(trial, scene, reference, work, strike, ended)
    finish(trial, scene, reference, work, logs, ended, belongings)
    return trial


def plant(scene: Scene, work: Path, rng: Random) -> Belongings:
    """Files of the user, in half of the trials, in the output folder too."""
    belongings = Belongings()
    belongings.plant(work, BESIDE)
    if scene.holds == OUT and rng.random() < 0.5:
        belongings.plant(work / scene.holds, COMMON)
    return belongings


def check_code(trial: Trial, scene: Scene, reference: Reference, work: Path, strike: Strike, ended: Ended) -> None:
    """Whether a command that was struck ends with the code that tells of it."""
    allowed = CODES[strike.name] if ended.is_struck and strike.target != "worker" else ()
    if ended.code in allowed:
        return
    if ended.code != 0:
        trial.blame(
            f"exit code {ended.code} after {strike.label}; allowed are 0 for a finished one, {allowed or 'none'}"
        )
    elif allowed and not is_complete(scene, reference, work, ended):
        trial.blame(f"exit code 0 after {strike.label}, and the work is not done")


def is_complete(scene: Scene, reference: Reference, work: Path, ended: Ended) -> bool:
    """Whether all of the first command's own work is done."""
    return scene.result(work, ended) == reference.result if scene.is_done is None else scene.is_done(work)


def finish(
    trial: Trial,
    scene: Scene,
    reference: Reference,
    work: Path,
    logs: Path,
    ended: Ended,
    belongings: Belongings,
) -> None:
    """Give the command again, and compare all that is there then."""
    for again in _give_again(scene, work, logs, ended):
        trial.note(again)
        ended = again
    if ended.code != 0:
        trial.blame(f"the command that is given again ends with {ended.code}: {last_line(ended)}")
    found = scene.result(work, ended)
    different = sorted(
        name for name in found.keys() | reference.result.keys() if found.get(name) != reference.result.get(name)
    )
    trial.is_equal = not different
    if different:
        trial.blame(f"others than undisturbed: {', '.join(different[:4])}")
    for path in find_left(work, belongings, scene.allowed_left):
        trial.blame(f"{path} is left behind")
    for fault in belongings.find_faults():
        trial.blame(fault)


def last_line(ended: Ended) -> str:
    lines = ended.stderr.strip().splitlines()
    return lines[-1][:200] if lines else "nothing on stderr"


def find_left(work: Path, belongings: Belongings, allowed: tuple[str, ...] = ()) -> list[str]:
    """Temporary files and folders that should be gone."""
    found = (path for path in work.rglob("*") if path.name.endswith(".tmp") or path.name == ".build")
    return [
        path.relative_to(work).as_posix()
        for path in sorted(found)
        if not belongings.holds(path) and not any(part in allowed for part in path.relative_to(work).parts)
    ]


def try_full_disk(
    scene: Scene, reference: Reference, folder: Path, rng: Random, number: int, *, has_disks: bool
) -> Trial:
    """Let a command have less room than it needs; then enough."""
    share = rng.random() * 0.98
    trial = Trial(scene=scene.name, label="a full disk" if has_disks else "a limit on files", number=number)
    work, logs = folder / "work", folder / "logs"
    work.mkdir(parents=True)
    if not has_disks:
        scene.prepare(work)
        ended = run(scene.command, work, logs, most_file_bytes=int(share * reference.disk_bytes))
        check_full(trial, ended, work)
        finish(trial, scene, reference, work, logs, ended, Belongings())
        return trial
    with mount_disk(work):
        scene.prepare(work)
        belongings = plant(scene, work, rng)
        resize_disk(work, measure_disk(work) + int(share * reference.disk_bytes))
        ended = run(scene.command, work, logs)
        check_full(trial, ended, work)
        resize_disk(work, ROOMY_BYTES)
        finish(trial, scene, reference, work, logs, ended, belongings)
    return trial


def check_full(trial: Trial, ended: Ended, work: Path) -> None:
    """A command that ran out of room says so in one line, with a path on that disk."""
    trial.note(ended)
    if ended.code == 0:
        return
    if ended.code != 1:
        trial.blame(f"exit code {ended.code} on a full disk; 1 is needed")
    line = last_line(ended)
    if not any(word in line for word in _FULL):
        trial.blame(f"does not tell of the full disk: {line}")
    if not re.search(
        rf"(^|[\s:'\"(])({re.escape(str(work))}/|({OUT}|run|vocab|page\.html)\b)", line.removeprefix("Error: ")
    ):
        trial.blame(f"names no path on the full disk: {line}")


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
