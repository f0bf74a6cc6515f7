"""`python -m reliability chaos`: kills commands, stops them, runs two at once, fills disks, at random moments.

After each trial the command runs again. Its result must be, byte for byte, that of an undisturbed command. No temporary
file may be left, no file of the user changed, and no traceback printed.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from random import Random

import click

from reliability.disks import enter_namespace
from reliability.findings import FINDINGS, find_memory
from reliability.foreign import list_foreign, try_foreign
from reliability.pairs import Pair, list_pairs, try_pair
from reliability.processes import run
from reliability.scenes import VOCAB, Inputs, Scene, make_scenes, write_corpus
from reliability.trials import Reference, Trial, make_reference, remove, try_file_limit, try_full_disk, try_signal

Attempt = Callable[[Path, int], Trial]
DISKS, PAIRS, FOREIGN = "full disks", "two at once", "the user's own files"
SHARES = {"signals": 50, DISKS: 15, PAIRS: 10, FOREIGN: 25}  # of a hundred trials
NOT_ON_FULL_DISKS = ("verify", "overwrite, then back")  # one writes nothing, the other is the same as "overwrite"


@click.command()
@click.option("--trials", type=click.IntRange(1), default=100, show_default=True, metavar="N")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides what happens in each trial."
)
@click.option("--only", metavar="NAME", help=f"One command, or one of: {DISKS}, {PAIRS}, {FOREIGN}.")
@click.option("--findings", "folder", type=click.Path(path_type=Path), default=FINDINGS, show_default=True)
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Trials at once.")
def chaos(trials: int, seed: int, only: str | None, folder: Path, workers: int) -> None:
    """Send signals to commands, fill their disks, and compare the results of a rerun.

    Exit code 1 means that there are faults; each is saved with the log of its trial.
    """
    restore_signals()
    with tempfile.TemporaryDirectory(dir=find_memory(), prefix="reliability-") as scratch:
        base = Path(scratch)
        (base / "empty").mkdir()
        reason = enter_namespace(base / "empty")
        if reason:
            click.echo(f"no disk can be mounted ({reason}): a limit on the size of files replaces full disks")
        stage = Stage(base=base, seed=seed, has_disks=reason is None)
        attempts = stage.plan(trials, only)
        table = Table(folder=folder / "chaos")
        table.run(attempts, base / "trials", workers)
    click.echo(table.to_text())
    sys.exit(table.num_faulty > 0)


def restore_signals() -> None:
    """Stop ignoring Ctrl-C and SIGHUP, which a background job of a shell ignores, so that our commands receive them."""
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


class Stage:
    """Inputs, scenes and the results of undisturbed commands, which are made when they are first needed."""

    def __init__(self, *, base: Path, seed: int, has_disks: bool) -> None:
        self._base, self._seed, self._has_disks = base, seed, has_disks
        self._inputs = Inputs(folder=base / "inputs")
        self._scenes = make_scenes(self._inputs)
        self._references: dict[str, Reference] = {}

    def plan(self, trials: int, only: str | None) -> list[Attempt]:
        """Return the trials in random order. Raises UsageError for an unknown name."""
        makers = {
            **{scene.name: self._signals([scene]) for scene in self._scenes},
            "signals": self._signals(self._scenes),
            DISKS: self._disks(),
            PAIRS: self._pairs(),
            FOREIGN: self._foreign(),
        }
        if only is not None and only not in makers:
            raise click.UsageError(f"there is no trial {only!r}; there are {', '.join(makers)}")
        make_inputs(self._inputs, self._base / "inputs-logs")
        rng = Random(f"{self._seed} plan")
        kinds = [only] * trials if only else _share_out(SHARES, trials)
        attempts = [next(makers[kind]) for kind in kinds]
        rng.shuffle(attempts)
        return attempts

    def _signals(self, scenes: list[Scene]) -> Iterator[Attempt]:
        names = {scene.name: scene for scene in scenes}
        shares = {scene.name: scene.share for scene in scenes}
        for name in cycle(_share_out(shares, sum(shares.values()))):
            yield partial(self._try_signal, names[name], self._reference(names[name]))

    def _disks(self) -> Iterator[Attempt]:
        for scene in cycle(scene for scene in self._scenes if scene.name not in NOT_ON_FULL_DISKS):
            yield partial(self._try_full_disk, scene, self._reference(scene))

    def _pairs(self) -> Iterator[Attempt]:
        for pair in cycle(list_pairs(self._scenes)):
            yield partial(self._try_pair, pair, self._reference(pair.scene))

    def _foreign(self) -> Iterator[Attempt]:
        for foreign in cycle(list_foreign(self._inputs)):
            yield partial(try_foreign, foreign)

    def _try_signal(self, scene: Scene, reference: Reference, folder: Path, number: int) -> Trial:
        return try_signal(scene, reference, folder, self._rng(number), number)

    def _try_full_disk(self, scene: Scene, reference: Reference, folder: Path, number: int) -> Trial:
        try_room = try_full_disk if self._has_disks else try_file_limit
        return try_room(scene, reference, folder, self._rng(number), number)

    def _try_pair(self, pair: Pair, reference: Reference, folder: Path, number: int) -> Trial:
        return try_pair(pair, reference, folder, self._rng(number), number)

    def _rng(self, number: int) -> Random:
        return Random(f"{self._seed} trial {number}")

    def _reference(self, scene: Scene) -> Reference:
        if scene.name not in self._references:
            folder = self._base / f"undisturbed-{len(self._references)}"
            found = make_reference(scene, folder / "work", folder / "logs", has_disks=self._has_disks)
            disk = f", {found.disk_bytes / 1e6:.1f} MB of disk" if self._has_disks else ""
            click.echo(f"undisturbed: {scene.name}, {found.seconds:.1f} s{disk}")
            self._references[scene.name] = found
            remove(folder)
        return self._references[scene.name]


def _share_out(shares: dict[str, int], count: int) -> list[str]:
    """Return `count` names, each as often as its share says, evenly distributed."""
    total = sum(shares.values())
    owed, found = dict.fromkeys(shares, 0.0), []
    for _ in range(count):
        for name, share in shares.items():
            owed[name] += share / total
        name = max(owed, key=lambda key: owed[key])
        owed[name] -= 1
        found.append(name)
    return found


def make_inputs(inputs: Inputs, logs: Path) -> None:
    """Write the corpus, and make a vocabulary and shards from it. Raises RuntimeError if a command fails."""
    write_corpus(inputs.folder / "corpus")
    vocab = ["vocab", inputs.sample, "--vocab-size", "2000", "-o", VOCAB]
    for command in (vocab, inputs.build("shards"), inputs.small_build("small-shards")):
        ended = run(command, inputs.folder, logs)
        if ended.code:
            raise RuntimeError(f"the inputs can't be made:\n{ended.describe()}")


@dataclass(kw_only=True)
class Count:
    trials: int = 0
    equal: int = 0
    faulty: int = 0


class Table:
    """Counts trials by command and by what happened to it, and keeps the logs of those with a fault."""

    def __init__(self, *, folder: Path) -> None:
        self._folder = folder
        self._counts: dict[tuple[str, str], Count] = {}
        self._seconds = 0.0
        self.num_faulty = 0

    def run(self, attempts: list[Attempt], scratch: Path, workers: int) -> None:
        """Run all attempts, several at once."""
        begin = time.monotonic()
        with ThreadPoolExecutor(workers) as pool:
            waiting = [pool.submit(attempt, scratch / str(i), i) for i, attempt in enumerate(attempts)]
            for done in as_completed(waiting):
                trial = done.result()
                self.add(trial)
                remove(scratch / str(trial.number))
        self._seconds = time.monotonic() - begin

    def add(self, trial: Trial) -> None:
        count = self._counts.setdefault((trial.scene, trial.label), Count())
        count.trials += 1
        count.equal += trial.is_equal
        count.faulty += bool(trial.faults)
        if trial.faults:
            self.num_faulty += 1
            click.echo(f"FAULT {trial.scene}, {trial.label}: {trial.faults[0]} ({self._save(trial)})")

    def _save(self, trial: Trial) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"trial-{trial.number:05d}.log"
        text = "\n".join([f"{trial.scene}, {trial.label}", *(f"FAULT {fault}" for fault in trial.faults), *trial.log])
        path.write_text(text + "\n", errors="backslashreplace")
        return path

    def to_text(self) -> str:
        lines = [f"{'command':<28}{'what happened to it':<48}{'trials':>8}{'equal':>8}{'faulty':>8}"]
        for (scene, label), count in sorted(self._counts.items()):
            lines.append(f"{scene[:27]:<28}{label[:47]:<48}{count.trials:>8}{count.equal:>8}{count.faulty:>8}")
        trials, equal = (sum(getattr(count, name) for count in self._counts.values()) for name in ("trials", "equal"))
        lines.append(f"{'all':<28}{'':<48}{trials:>8}{equal:>8}{self.num_faulty:>8}")
        lines.append(f"{trials} trials in {self._seconds:,.0f} s")
        return "\n".join(lines)
