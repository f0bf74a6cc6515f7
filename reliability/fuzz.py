"""`python -m reliability fuzz`: gives mutated files to every reader of files from outside.

Whatever a file contains, it must be read, or refused with an AlbertDataError that says what is wrong. Everything else
is a finding: another exception, a traceback on stderr, a signal, more than ten seconds, more than 1 GB.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import click

from albert_data.storage.files import find_cache_folder
from reliability.cases import Case, Outcome, Reader
from reliability.children import Children
from reliability.findings import FINDINGS, Findings, describe, find_memory, load_case
from reliability.sound import make_sound

ROUNDS = (200, 4000)  # cases of all readers in the first round, and in each later one
BATCH = 200  # cases of a child


@click.command()
@click.option("--cases", type=click.IntRange(1), metavar="N", help="Cases to run.  [default: 10000]")
@click.option("--seconds", type=click.FloatRange(0), metavar="S", help="Instead: run for so many seconds.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides the cases.")
@click.option("--reader", "names", multiple=True, metavar="NAME", help="Only this reader. May be repeated.")
@click.option("--replay", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Only this saved input.")
@click.option("--findings", "folder", type=click.Path(path_type=Path), default=FINDINGS, show_default=True)
@click.option("--workers", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True)
def fuzz(
    cases: int | None,
    seconds: float | None,
    seed: int,
    names: tuple[str, ...],
    replay: Path | None,
    folder: Path,
    workers: int,
) -> None:
    """Give mutated files to every reader of files from outside.

    Exit code 1 means that there are findings; each is saved with its input and traceback.
    """
    if cases and seconds:
        raise click.UsageError("--cases and --seconds exclude one another")
    with tempfile.TemporaryDirectory(dir=find_memory(), prefix="reliability-") as scratch:
        readers = load_readers(Path(scratch))
        children = Children(scratch=Path(scratch), num_workers=workers)
        if replay is not None:
            sys.exit(replay_one(replay, readers, names, children))
        tally = Tally(readers=choose_readers(readers, names), findings=Findings(folder=folder))
        limit = None if seconds else cases or 10_000
        tally.run(children, make_batches(tally.readers, seed, limit, seconds))
    click.echo(tally.to_table())
    sys.exit(bool(tally.findings.counts))


def load_readers(scratch: Path) -> list[Reader]:
    """Return all readers. Each has read its valid files once, so that all code is loaded and compiled."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # a process with threads can't be forked safely
    os.environ.setdefault("NUMBA_CACHE_DIR", str(find_cache_folder("kernels")))  # compiled before
    os.environ["XDG_CACHE_HOME"] = str(scratch / "cache")
    import torch

    from reliability.read_builds import build_readers
    from reliability.read_found import found_readers
    from reliability.read_models import model_readers
    from reliability.read_runs import run_readers
    from reliability.read_shards import shard_readers
    from reliability.read_text import text_readers

    torch.set_num_threads(1)
    sound = make_sound(scratch / "sound")
    makers = (text_readers, shard_readers, model_readers, found_readers, run_readers, build_readers)
    readers = [reader for make in makers for reader in make(sound)]
    for reader in readers:
        warm(reader, scratch / "warm")
    gc.freeze()  # otherwise a garbage collection in a child would copy all memory of this process
    return readers


def warm(reader: Reader, folder: Path) -> None:
    """Read each valid file of a reader a few times, so that most of its code is compiled before children are forked."""
    for data in reader.seeds:
        for number in range(len(reader.oddities), len(reader.oddities) + 5):
            folder.mkdir()
            reader.read(Case(reader=reader, seed=0, number=number), data, folder)
            shutil.rmtree(folder)


def choose_readers(readers: list[Reader], names: tuple[str, ...]) -> list[Reader]:
    if unknown := set(names) - {reader.name for reader in readers}:
        known = ", ".join(reader.name for reader in readers)
        raise click.UsageError(f"there is no reader {sorted(unknown)[0]!r}; there are {known}")
    return [reader for reader in readers if not names or reader.name in names]


def make_batches(
    readers: list[Reader], seed: int, limit: int | None, seconds: float | None = None
) -> Iterator[list[Case]]:
    """Yield cases in batches, each of one reader: a short round, the oddities, then long rounds."""
    end = None if seconds is None else time.monotonic() + seconds
    for batch in _list_batches(readers, seed):
        batch = batch if limit is None else batch[:limit]
        if not batch or (end is not None and time.monotonic() > end):
            return
        limit = None if limit is None else limit - len(batch)
        yield batch


def _list_batches(readers: list[Reader], seed: int) -> Iterator[list[Case]]:
    nexts = {reader.name: len(reader.oddities) for reader in readers}
    yield from _list_round(readers, seed, ROUNDS[0], nexts)
    for reader in readers:
        if reader.oddities:
            yield [Case(reader=reader, seed=seed, number=number) for number in range(len(reader.oddities))]
    for size in repeat(ROUNDS[1]):
        yield from _list_round(readers, seed, size, nexts)


def _list_round(readers: list[Reader], seed: int, size: int, nexts: dict[str, int]) -> Iterator[list[Case]]:
    """Yield about `size` cases, divided among the readers by share. nexts: the next number of each; it is advanced."""
    shares = sum(reader.share for reader in readers)
    for reader in readers:
        begin = nexts[reader.name]
        nexts[reader.name] = end = begin + max(1, size * reader.share // shares)
        for at in range(begin, end, BATCH):
            yield [Case(reader=reader, seed=seed, number=number) for number in range(at, min(end, at + BATCH))]


@dataclass(kw_only=True)
class Row:
    """Counts of a reader's cases."""

    cases: int = 0
    refused: int = 0
    slowest: float = 0.0
    peak_bytes: int = 0

    def add(self, outcome: Outcome) -> None:
        self.cases += 1
        self.refused += outcome.is_refused
        self.slowest = max(self.slowest, outcome.seconds)
        self.peak_bytes = max(self.peak_bytes, outcome.peak_bytes)


class Tally:
    """Counts the outcomes, and prints new findings at once."""

    def __init__(self, readers: list[Reader], findings: Findings) -> None:
        self.readers, self.findings = readers, findings
        self.rows = {reader.name: Row() for reader in readers}
        self._faulty = dict.fromkeys(self.rows, 0)
        self._seconds = 0.0

    def run(self, children: Children, batches: Iterable[list[Case]]) -> None:
        begin = time.monotonic()
        for outcome in children.run(batches):
            self.rows[outcome.case.reader.name].add(outcome)
            if outcome.fault is not None:
                self._faulty[outcome.case.reader.name] += 1
                if line := self.findings.add(outcome):
                    click.echo(line)
        self._seconds = time.monotonic() - begin

    def to_table(self) -> str:
        """Return a line for each reader, then the sums."""
        head = f"{'reader':<24}{'cases':>8}{'refused':>9}{'accepted':>9}{'findings':>9}{'slowest s':>10}{'peak MB':>9}"
        lines = [head, *(self._show(name, row, self._faulty[name]) for name, row in self.rows.items())]
        rows = self.rows.values()
        total = Row(
            cases=sum(row.cases for row in rows),
            refused=sum(row.refused for row in rows),
            slowest=max(row.slowest for row in rows),
            peak_bytes=max(row.peak_bytes for row in rows),
        )
        lines.append(self._show("all", total, sum(self._faulty.values())))
        lines.append(
            f"{total.cases:,} cases in {self._seconds:,.0f} s; different findings: {len(self.findings.counts)}"
        )
        lines += [f"  {count:>6} x {' | '.join(key)}" for key, count in self.findings.counts.most_common()]
        return "\n".join(lines)

    def _show(self, name: str, row: Row, faulty: int) -> str:
        accepted = row.cases - row.refused - faulty
        return (
            f"{name:<24}{row.cases:>8,}{row.refused:>9,}{accepted:>9,}{faulty:>9,}"
            f"{row.slowest:>10.2f}{row.peak_bytes / 1e6:>9,.0f}"
        )


def replay_one(path: Path, readers: list[Reader], names: tuple[str, ...], children: Children) -> int:
    """Run one input and show its outcome. Returns the exit code."""
    try:
        case = load_case(path, readers, names[0] if names else None)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    (outcome,) = children.run([[case]])
    if outcome.fault is None:
        how = "refused, as it should be" if outcome.is_refused else "read"
        click.echo(f"{path}: {how}, in {outcome.seconds:.2f} s")
        return 0
    click.echo(f"{outcome.fault.trace}\n{describe(case, outcome.fault)}")
    return 1
