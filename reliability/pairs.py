"""Runs two commands at once in one folder. One may refuse to run; the result must be that of a single command."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from reliability.processes import Command, Ended, Strike
from reliability.scenes import OUT, PAGE, Scene
from reliability.trials import CODES, Bench, Reference, Trial, finish, last_line

READING = (["verify", OUT], ["inspect", OUT], ["inspect", OUT, "--html", PAGE])


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A scene and a second command that runs at the same time."""

    scene: Scene
    other: list[str]

    @property
    def label(self) -> str:
        return "the same again" if self.other == self.scene.command else " ".join(self.other)


def list_pairs(scenes: list[Scene]) -> list[Pair]:
    """Return each writing command with itself, and each reading command with an overwrite."""
    writing = [scene for scene in scenes if scene.name in ("vocab", "build", "overwrite", "train")]
    over = [scene for scene in writing if scene.name == "overwrite"]
    return [
        *(Pair(scene=scene, other=scene.command) for scene in writing),
        *(Pair(scene=scene, other=other) for scene in over for other in READING * 2),
    ]


def try_pair(pair: Pair, reference: Reference, folder: Path, rng: Random, number: int) -> Trial:
    """Start the second while the first runs; in 30 % of the trials kill the first."""
    scene, bench = pair.scene, Bench.lay_out(pair.scene, reference, folder, rng)
    trial = Trial(scene=f"two at once: {scene.name}", label=pair.label, number=number)
    first = Command(scene.command, bench.work, bench.logs)
    time.sleep(rng.choice((0.0, rng.uniform(0, reference.seconds))))
    second = Command(pair.other, bench.work, folder / "other-logs")
    strike = None
    if rng.random() < 0.3:
        pause = rng.uniform(0, reference.seconds)
        strike = Strike(
            name=rng.choice(("KILL", "TERM", "INT")), target="group", is_due=lambda seconds: seconds > pause
        )
        first.strike(strike)
    ended, other = first.wait(), second.wait()
    for one in (ended, other):
        trial.note(one)
    check_one(trial, ended, CODES[strike.name] if strike else ())
    check_one(trial, other, ())
    finish(trial, bench, ended)
    return trial


def check_one(trial: Trial, ended: Ended, allowed: tuple[int, ...]) -> None:
    """Check that a command does its work or says in one line why it can't, and that verify finds no false fault."""
    name = ended.arguments[0]
    if ended.code in (0, *allowed):
        return
    if ended.code != 1 or not last_line(ended).startswith("Error: "):
        trial.blame(f"{name} ends with {ended.code}: {last_line(ended)}")
    elif name == "verify" and ended.stdout.strip():
        trial.blame(f"verify finds a false fault: {ended.stdout.strip().splitlines()[0]}")
