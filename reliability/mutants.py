"""`python -m reliability mutants`: breaks one place of the package at a time, and runs the tests that should notice.

A mutant is the package with one expression changed: `<` is `<=`, `and` is `or`, `3` is `4`, a call is left out. Places
are drawn by a seed, as many of each room. A mutant that no test notices shows a hole in the net, or a change that
changes nothing, such as another size of a buffer.
"""

from __future__ import annotations

import ast
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, islice, pairwise
from pathlib import Path
from queue import SimpleQueue

import click

ROOT = Path(__file__).parent.parent
OPERATORS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "in": "not in", "not in": "in", "is": "is not",
    "is not": "is", "and": "or", "or": "and", "+": "-", "-": "+", "*": "//", "//": "*", "/": "*", "%": "//",
    "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "|",
}  # fmt: skip
# A mutant may loop for ever. The first test may compile all kernels.
HANG_SECONDS = 240
_SKIPPED = (ast.Assert, ast.Raise, ast.JoinedStr, ast.ImportFrom, ast.Import)


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change of a source. start: its first byte in the file. killed_by: the test that noticed; None before the run
    and if none did."""

    room: str
    path: str
    line: int
    start: int
    before: str
    after: str
    killed_by: str | None = None

    def __str__(self) -> str:
        return f"{self.path}:{self.line}  {' '.join(self.before.split())} -> {self.after or 'nothing'}"

    def apply(self, source: bytes) -> bytes:
        """Raises ValueError if the source no longer has what the mutant changes."""
        end = self.start + len(self.before.encode())
        if source[self.start : end] != self.before.encode():
            raise ValueError(f"{self}: the source has changed")
        return source[: self.start] + self.after.encode() + source[end:]


@click.command()
@click.option("--number", type=click.IntRange(1), default=60, show_default=True, help="Mutants to draw.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Decides the places.")
@click.option("--room", "rooms", multiple=True, metavar="ROOM", help="Only of this room. May be repeated.")
@click.option("--files", type=click.IntRange(1), metavar="N", help="Run only the N closest test files.")
@click.option("--again", type=click.Path(path_type=Path, exists=True), help="Those that this -o says were killed.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write mutants and what killed them, as JSON.")
@click.option("--workers", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True)
def mutants(
    number: int,
    seed: int,
    rooms: tuple[str, ...],
    files: int | None,
    again: Path | None,
    output: Path | None,
    workers: int,
) -> None:
    """Break one place of the package at a time, and run the fast tests until one fails.

    Works on copies of what is committed. Exit code 1 means that a mutant of --again survives.
    """
    chosen = list(islice(draw_mutants(ROOT, seed, rooms), number))
    if again is not None:
        chosen = [replace(known, killed_by=None) for known in _load(again) if known.killed_by]
    with tempfile.TemporaryDirectory(prefix="reliability-") as scratch:
        copies: SimpleQueue[Path] = SimpleQueue()
        for worker in range(workers):
            copies.put(copy_checkout(Path(scratch) / str(worker)))
        with ThreadPoolExecutor(workers) as pool:
            done = []
            for mutant in pool.map(lambda mutant: try_mutant(mutant, copies, files), chosen):
                done.append(mutant)
                click.echo(f"{mutant.room:10} {mutant}  {mutant.killed_by or 'SURVIVES'}")
                if output is not None:
                    output.write_text("\n".join(json.dumps(asdict(each)) for each in done) + "\n")
        sound = {mutant.killed_by.partition(": ")[0] for mutant in done if mutant.killed_by}
        if failing := run_tests(copies.get(), sorted(sound)):
            raise click.ClickException(f"a test fails without any mutant: {failing}")
    survivors = sum(mutant.killed_by is None for mutant in done)
    click.echo(f"{len(done)} mutants, {len(done) - survivors} killed, {survivors} survive")
    sys.exit(bool(again and survivors))


def _load(path: Path) -> list[Mutant]:
    return [Mutant(**json.loads(line)) for line in path.read_text().splitlines()]


def draw_mutants(root: Path, seed: int, rooms: tuple[str, ...] = ()) -> Iterator[Mutant]:
    """Yield mutants of each room in turn, from places drawn by the seed. Modules outside the rooms are the ground."""
    places: dict[str, list[Mutant]] = {}
    for path in sorted((root / "albert_data").rglob("*.py")):
        parts = path.relative_to(root).parts
        room = parts[1] if len(parts) > 2 else "ground"
        places.setdefault(room, []).extend(list_mutants(path.read_bytes(), room, "/".join(parts)))
    if unknown := set(rooms) - set(places):
        raise click.UsageError(f"there is no room {sorted(unknown)[0]!r}; there are {', '.join(sorted(places))}")
    drawn = [random.Random(f"{seed} {room}").sample(places[room], len(places[room])) for room in sorted(places)
             if not rooms or room in rooms]  # fmt: skip
    for turn in range(max(map(len, drawn))):
        yield from (of_room[turn] for of_room in drawn if turn < len(of_room))


def list_mutants(source: bytes, room: str, path: str) -> Iterator[Mutant]:
    """Yield a mutant for each operator, number, truth value and plain call; not of messages, types and decorators."""
    places = _Places(source)
    for node in _walk(ast.parse(source)):
        for start, end, after in _list_changes(node, places):
            before, line = source[start:end].decode(), source.count(b"\n", 0, start) + 1
            yield Mutant(room=room, path=path, line=line, start=start, before=before, after=after)


class _Places:
    """Where nodes begin and end in a source, in bytes."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self._lines = [0, *accumulate(map(len, source.splitlines(keepends=True)))]

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run and decide something."""
    if isinstance(node, _SKIPPED):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child)


def _list_changes(node: ast.AST, places: _Places) -> Iterator[tuple[int, int, str]]:
    """Yield where a change of a node begins and ends in the source, and what stands there afterwards."""
    if isinstance(node, ast.Compare):
        yield from _change_operators([node.left, *node.comparators], places)
    elif isinstance(node, ast.BoolOp):
        yield from _change_operators(node.values, places)
    elif isinstance(node, ast.BinOp):
        yield from _change_operators([node.left, node.right], places)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield places.start(node), places.start(node.operand), ""
    elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
        after = str(not node.value if isinstance(node.value, bool) else node.value + 1)
        yield places.start(node), places.end(node), after
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield places.start(node), places.end(node), "pass"


def _change_operators(operands: list[ast.expr], places: _Places) -> Iterator[tuple[int, int, str]]:
    """Yield a change of each operator between operands. Parentheses and line ends may stand beside it."""
    for left, right in pairwise(operands):
        between = places.source[places.end(left) : places.start(right)].decode()
        found = re.search(r"not\s+in|is\s+not|in|is|and|or|[<>=!+\-*/%&|^]+", between)
        if found and (after := OPERATORS.get(" ".join(found[0].split()))):
            start = places.end(left) + len(between[: found.start()].encode())
            yield start, start + len(found[0].encode()), after


def copy_checkout(folder: Path) -> Path:
    """Clone what is committed."""
    command = ["git", "clone", "--quiet", "--shared", str(ROOT), str(folder)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return folder


def try_mutant(mutant: Mutant, copies: SimpleQueue[Path], num_files: int | None) -> Mutant:
    """Run the tests on the mutant in one of the copies, the closest files first; returns it with what killed it."""
    copy = copies.get()
    try:
        path = copy / mutant.path
        source = path.read_bytes()
        path.write_bytes(mutant.apply(source))
        files = rank_tests(copy, source.decode(), mutant.path)[:num_files]
        try:
            return replace(mutant, killed_by=run_tests(copy, files))
        finally:
            path.write_bytes(source)
    finally:
        copies.put(copy)


def rank_tests(root: Path, source: str, path: str) -> list[str]:
    """Return the test files, those first that name most of what a module defines and others don't."""
    texts = {str(file.relative_to(root)): file.read_text() for file in sorted((root / "tests").rglob("test_*.py"))}
    words = {name: set(re.findall(r"\w+", text)) for name, text in texts.items()}
    defined = {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    counts = Counter(word for found in words.values() for word in found)
    module = path.removesuffix(".py").replace("/", ".")

    def score(name: str) -> float:
        return 2.0 * (module in texts[name]) + math.fsum(1 / counts[word] for word in defined & words[name])

    return sorted(texts, key=lambda name: (-score(name), name))


def run_tests(copy: Path, tests: list[str]) -> str | None:
    """Run the fast tests of a copy until one fails, and return it. None if all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=line"]
    command += ["-o", f"faulthandler_timeout={HANG_SECONDS}", "-m", "(not slow or quick) and not gpu", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy), "NUMBA_CACHE_DIR": f"{copy}-kernels"}
    ended = subprocess.run(
        command, cwd=copy, env=environment, text=True, errors="replace", stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    if ended.returncode in (0, 5):  # 5: no test is fast
        return None
    if ended.returncode == 4:
        raise click.ClickException(f"pytest does not run: {ended.stdout}")
    failed = re.search(r"^(?:FAILED|ERROR) ([^\s\[]+)", ended.stdout, re.MULTILINE)
    return failed[1] if failed else f"{tests[0]}: pytest ended with {ended.returncode}"
