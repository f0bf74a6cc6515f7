"""The harness finds what it looks for: planted crashes, hangs, memory hogs and changed files."""

from __future__ import annotations

import ast
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from albert_data.errors import InputError
from albert_data.storage.files import read_json
from reliability import format_mutators, mutants, trials
from reliability.belongings import BESIDE, COMMON, Belongings
from reliability.cases import Case, Fault, Reader
from reliability.children import Children, Limits
from reliability.findings import Findings, load_case
from reliability.fuzz import Tally, make_batches
from reliability.json_mutators import mutate_json
from reliability.mutators import mutate_bytes
from reliability.processes import Ended, Strike
from reliability.scenes import Scene

ROOT = Path(__file__).parent.parent
QUICK = Limits(seconds=0.5, memory_bytes=100 << 20)
JSON = b'{"step": 2, "split": "train", "losses": [1.5, null], "names": {"a": "b"}}\n'


def make_reader(read: Callable[[bytes], object]) -> Reader:
    return Reader(name="fake", share=1, seeds=[b"some bytes", b"others"], read=lambda case, data, folder: read(data))


def find_faults(tmp_path: Path, read: Callable[[bytes], object], *inputs: bytes) -> list[Fault | None]:
    """What was found of each input, read in a child."""
    reader = make_reader(read)
    batch = [Case(reader=reader, seed=0, number=number, given=data) for number, data in enumerate(inputs)]
    found = list(Children(scratch=tmp_path, limits=QUICK).run([batch]))
    assert sorted(outcome.case.number for outcome in found) == list(range(len(inputs))), "each case has one outcome"
    return [outcome.fault for outcome in sorted(found, key=lambda outcome: outcome.case.number)]


# ---- inputs ----


@pytest.mark.parametrize(
    "mutate", [mutate_bytes, format_mutators.mutate_lines, lambda rng, data, others: mutate_json(rng, data)]
)
def test_a_mutator_makes_other_bytes_and_the_same_again(mutate):
    made = [mutate(Random(seed), JSON, [JSON]) for seed in range(200)]
    assert made == [mutate(Random(seed), JSON, [JSON]) for seed in range(200)]
    assert len(set(made)) > 150
    assert sum(data == JSON for data in made) < 20


# ---- children ----


def break_down(data: bytes, folder: Path) -> object:
    """What befalls a child that reads these bytes."""
    if data == b"bad":
        raise InputError("it is bad")
    if data == b"missing":
        read_json(folder / "missing")
    if data == b"crash":
        ctypes.string_at(0)
    if data == b"print":
        os.write(2, b"Exception ignored in: <something>\nKeyError: 'x'\n")
    if data == b"hog":
        return len(bytearray(200 << 20))
    if data == b"wait":
        time.sleep(60)
    return sum(range(1 << 62)) if data == b"work" else 0


@pytest.mark.parametrize(
    ("data", "what", "place"),
    [
        (b"bad", None, ""),
        (b"missing", "FileNotFoundError", "storage/disk.py:status"),
        (b"crash", "signal 11", ""),
        (b"print", "printed traceback", ""),
        (b"hog", "memory", ""),
        (b"wait", "hang", ""),
        pytest.param(b"work", "hang", "", marks=pytest.mark.slow),
    ],
)
def test_what_befalls_a_child_is_found_and_the_cases_after_it_are_tried(data, what, place, tmp_path):
    before, fault, after = find_faults(tmp_path, lambda given: break_down(given, tmp_path), b"good", data, b"good")
    assert before is after is None
    assert (fault.what if fault else None) == what
    assert not place or (fault.place, "Traceback" in fault.trace) == (place, True)


# ---- findings ----


def test_a_finding_is_kept_once_with_its_smallest_input_and_replayed(tmp_path):
    def read(data: bytes) -> None:
        raise KeyError(data[:1])

    reader = make_reader(read)
    tally = Tally([reader], Findings(folder=tmp_path / "findings"))
    children = Children(scratch=tmp_path, num_workers=1)
    tally.run(children, make_batches([reader], seed=0, limit=30))
    (folder,) = (tmp_path / "findings").iterdir()
    saved = (folder / "input").read_bytes()
    assert len(saved) == min(len(Case(reader=reader, seed=0, number=number).make()) for number in range(30))
    assert tally.findings.counts.total() == 30
    case = load_case(folder / "input", [reader], None)
    assert case.make() == saved
    (again,) = children.run([[case]])
    assert again.fault is not None
    assert again.fault.what == "KeyError"
    assert "30" in tally.to_table()


@pytest.mark.slow
def test_the_fuzzer_finds_nothing_where_nothing_can_be_wrong(tmp_path):
    command = [sys.executable, "-m", "reliability", "fuzz", "--cases", "60", "--reader", "vocab.json"]
    command += ["--findings", str(tmp_path / "findings")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "60 cases" in done.stdout


# ---- chaos ----


def test_a_users_file_that_is_changed_and_what_is_gone_are_found(tmp_path):
    belongings = Belongings()
    belongings.plant(tmp_path, BESIDE)
    belongings.plant(tmp_path / "out", COMMON)
    (tmp_path / "elsewhere").mkdir()
    belongings.link(tmp_path / "out" / "link", tmp_path / "elsewhere")
    assert belongings.find_faults() == []
    (tmp_path / "out/train/notes.txt").write_bytes(b"the user's own train/notes.txt.\n")
    assert belongings.find_faults() == ["the user's file notes.txt in train has changed"]
    (tmp_path / "out/.DS_Store").unlink()
    (tmp_path / "out/lost+found").rmdir()
    (tmp_path / "out/link").unlink()
    (tmp_path / "out/link").mkdir()
    assert len(belongings.find_faults()) == 4


def make_ended(code: int | None, stderr: str = "", *, is_struck: bool = True) -> Ended:
    return Ended(arguments=["build"], code=code, stdout="", stderr=stderr, seconds=1.0, is_struck=is_struck, orphans=0)


def make_bench(tmp_path: Path, result: str = "a") -> trials.Bench:
    """A scene that only ever says its result."""
    scene = Scene(
        name="fake",
        share=1,
        command=["build"],
        prepare=lambda folder: None,
        result=lambda folder, ended: {"digest": result},
        stages=[],
        again=lambda folder, ended: None,
    )
    reference = trials.Reference(result={"digest": "a"}, seconds=1.0, disk_bytes=0)
    return trials.Bench.lay_out(scene, reference, tmp_path, Random(1))


@pytest.mark.parametrize(
    ("name", "target", "code", "is_fault"),
    [
        ("KILL", "parent", -9, False),
        ("TERM", "parent", 143, False),
        ("INT", "group", 130, False),
        ("KILL", "worker", 0, False),
        ("KILL", "worker", -9, True),
        ("HUP", "parent", None, True),
    ],
)
def test_exit_codes_are_judged_by_what_befell_the_command(name, target, code, is_fault, tmp_path):
    trial = trials.Trial(scene="fake", label="", number=0)
    strike = Strike(name=name, target=target, is_due=lambda seconds: True)
    trials.check_code(trial, make_bench(tmp_path, "unfinished"), strike, make_ended(code))
    assert bool(trial.faults) == is_fault


def test_other_bytes_a_traceback_and_a_changed_file_are_faults_of_a_trial(tmp_path):
    bench, trial = make_bench(tmp_path, "b"), trials.Trial(scene="fake", label="", number=0)
    bench.belongings.files[tmp_path / "work/notes.txt"] = b"not what is there"
    ended = make_ended(0, "Traceback (most recent call last)\n")
    trial.note(ended)
    trials.finish(trial, bench, ended)
    assert not trial.is_equal
    assert len(trial.faults) == 3


# ---- mutants ----

SOURCE = b"""
import os
def clip(value: int = 3, *, is_open=True) -> "1 + 1":
    assert value > 0
    print(value)
    if value <= 7 and not is_open or "a"  not  in os.sep:
        raise ValueError(f"{value + 1}")
    return (value) << 2  # comment
"""


def test_a_mutant_is_made_of_each_place_that_decides_something():
    made = list(mutants.list_mutants(SOURCE, "room", "albert_data/room/clip.py"))
    assert sorted((mutant.before, mutant.after) for mutant in made) == [
        *(("2", "3"), ("3", "4"), ("7", "8"), ("<<", ">>"), ("<=", "<"), ("True", "False"), ("and", "or")),
        *(("not ", ""), ("not  in", "in"), ("or", "and"), ("print(value)", "pass")),
    ]
    for mutant in made:
        changed = mutant.apply(SOURCE)
        ast.parse(changed)
        assert changed != SOURCE
        assert mutant.before in SOURCE.decode().splitlines()[mutant.line - 1]
    with pytest.raises(ValueError, match="the source has changed"):
        made[0].apply(b"# " + SOURCE)


def write_checkout(root: Path, **files: str) -> Path:
    """Modules of rooms and tests, by their paths with __ between folders and without the ending."""
    for name, text in files.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_mutants_are_drawn_by_a_seed_of_all_rooms_in_turn(tmp_path):
    sources = {f"albert_data__{room}__{name}": "x = 1 < 2\n" for room in ("one", "two") for name in ("a", "b")}
    root = write_checkout(tmp_path, **sources, albert_data__config="y = 3\n")
    drawn = list(mutants.draw_mutants(root, seed=1))
    assert [mutant.room for mutant in drawn] == ["ground", *["one", "two"] * 6]
    assert len(set(drawn)) == 13
    assert list(mutants.draw_mutants(root, seed=1)) == drawn != list(mutants.draw_mutants(root, seed=2))
    assert {mutant.room for mutant in mutants.draw_mutants(root, 1, ("two",))} == {"two"}


def test_the_tests_that_name_what_a_module_defines_are_run_first_and_the_one_that_fails_is_named(tmp_path):
    failing = "def test_clip():\n    assert 'clip' == 'cut'\n"
    passing = "def test_other():\n    pass\n"
    root = write_checkout(tmp_path / "copy", tests__test_a=passing, tests__test_b=failing, tests__test_c=passing)
    files = mutants.rank_tests(root, SOURCE.decode(), "albert_data/room/clip.py")
    assert files == ["tests/test_b.py", "tests/test_a.py", "tests/test_c.py"]
    (root / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n    quick\n    gpu\n")
    assert mutants.run_tests(root, files) == "tests/test_b.py::test_clip"
    assert mutants.run_tests(root, files[1:]) is None
