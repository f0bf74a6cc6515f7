"""The harness finds what it looks for: planted crashes, hangs, memory hogs and changed files."""

from __future__ import annotations

import ast
import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from albert_data.errors import InputError
from albert_data.files import read_json
from reliability import chaos, foreign, format_mutators, mutants, processes, trials
from reliability.belongings import BESIDE, COMMON, Belongings
from reliability.cases import Case, Fault, Oddity, Reader
from reliability.children import Children, Limits
from reliability.findings import Findings, load_case
from reliability.fuzz import Tally, make_batches
from reliability.json_mutators import mutate_json
from reliability.mutators import STEPS, mutate_bytes
from reliability.oddities import PLAIN, frame_zst
from reliability.processes import Command, Ended, Strike
from reliability.scenes import Scene

ROOT = Path(__file__).parent.parent
QUICK = Limits(seconds=0.5, memory_bytes=100 << 20)
JSON = b'{"step": 2, "split": "train", "losses": [1.5, null], "names": {"a": "b"}}\n'


def make_reader(read: Callable[[bytes], object], name: str = "fake", oddities: tuple[Oddity, ...] = ()) -> Reader:
    return Reader(
        name=name,
        share=1,
        seeds=[b"some bytes", b"others"],
        read=lambda case, data, folder: read(data),
        oddities=oddities,
    )


def find_faults(tmp_path: Path, read: Callable[[bytes], object], *inputs: bytes) -> list[Fault | None]:
    """What was found of each input, read in a child."""
    reader = make_reader(read)
    batch = [Case(reader=reader, seed=0, number=number, given=data) for number, data in enumerate(inputs)]
    found = list(Children(scratch=tmp_path, limits=QUICK).run([batch]))
    assert sorted(outcome.case.number for outcome in found) == list(range(len(inputs))), "each case has one outcome"
    return [outcome.fault for outcome in sorted(found, key=lambda outcome: outcome.case.number)]


# ---- inputs ----


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_every_step_makes_the_same_bytes_again_and_bears_no_bytes_at_all(step: Callable[[Random, bytes], bytes]):
    for seed in range(20):
        for data in (b"", b"x", JSON, bytes(range(256))):
            assert step(Random(seed), data) == step(Random(seed), data)


@pytest.mark.parametrize(
    "mutate", [mutate_bytes, format_mutators.mutate_lines, lambda rng, data, others: mutate_json(rng, data)]
)
def test_a_mutator_makes_other_bytes_and_the_same_again(mutate: Callable[..., bytes]):
    made = [mutate(Random(seed), JSON, [JSON]) for seed in range(200)]
    assert made == [mutate(Random(seed), JSON, [JSON]) for seed in range(200)]
    assert len(set(made)) > 150
    assert sum(data == JSON for data in made) < 20


def test_mutated_json_mostly_is_json():
    num_parsed = 0
    for seed in range(200):
        with suppress(ValueError, RecursionError):
            json.loads(mutate_json(Random(seed), JSON))
            num_parsed += 1
    assert num_parsed > 100


def test_a_case_is_made_of_seed_reader_and_number():
    reader, places = make_reader(len), [(0, 0), (0, 1), (1, 0), (1, 1)]
    made = [[Case(reader=reader, seed=seed, number=number).make() for seed, number in places] for _ in range(2)]
    assert made[0] == made[1]
    assert len(set(made[0])) == 4


def test_a_model_is_taken_apart_and_put_together(tokenizer_model: bytes):
    assert format_mutators.write_fields(format_mutators.read_fields(tokenizer_model)) == tokenizer_model
    assert format_mutators.mutate_model(Random(1), tokenizer_model, [tokenizer_model]) != tokenizer_model


def test_a_frame_that_asks_for_a_large_window_is_sound():
    assert format_mutators.from_zst(frame_zst(PLAIN, window_log=20)) == PLAIN
    assert format_mutators.from_zst(format_mutators.to_zst(PLAIN)) == PLAIN


def test_safetensors_are_damaged_behind_their_header_too():
    header = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    sound = len(header).to_bytes(8, "little") + header + bytes(8)
    made = [format_mutators.mutate_safetensors(Random(seed), sound, [sound]) for seed in range(100)]
    assert any(data.startswith(sound[: 8 + len(header)]) and data != sound for data in made)


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
def test_what_befalls_a_child_is_found_and_the_cases_after_it_are_tried(
    data: bytes, what: str | None, place: str, tmp_path: Path
):
    before, fault, after = find_faults(tmp_path, lambda given: break_down(given, tmp_path), b"good", data, b"good")
    assert before is after is None
    assert (fault.what if fault else None) == what
    assert not place or (fault.place, "Traceback" in fault.trace) == (place, True)


# ---- findings ----


def test_a_finding_is_kept_once_with_its_smallest_input_and_replayed(tmp_path: Path):
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


def test_each_reader_has_its_share_and_its_oddities():
    one, two = make_reader(len, "one", (Oddity(name="odd", make=lambda: b"odd"),)), make_reader(len, "two")
    cases = [case for batch in make_batches([one, two], seed=0, limit=201 + 4000) for case in batch]
    assert len({(case.reader.name, case.number) for case in cases}) == 201 + 4000
    assert sum(case.reader.name == "two" for case in cases) == 2100
    assert cases[200].make() == b"odd"


@pytest.mark.slow
def test_the_fuzzer_finds_nothing_where_nothing_can_be_wrong(tmp_path: Path):
    command = [sys.executable, "-m", "reliability", "fuzz", "--cases", "60", "--reader", "vocab.json"]
    command += ["--findings", str(tmp_path / "findings")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "60 cases" in done.stdout


# ---- chaos ----


def plant(tmp_path: Path) -> Belongings:
    belongings = Belongings()
    belongings.plant(tmp_path, BESIDE)
    belongings.plant(tmp_path / "out", COMMON)
    (tmp_path / "elsewhere").mkdir()
    belongings.link(tmp_path / "out" / "link", tmp_path / "elsewhere")
    assert belongings.find_faults() == []
    return belongings


def test_a_users_file_that_is_changed_and_what_is_gone_are_found(tmp_path: Path):
    belongings = plant(tmp_path)
    (tmp_path / "out/train/notes.txt").write_bytes(b"the user's own train/notes.txt.\n")
    assert belongings.find_faults() == ["the user's file notes.txt in train has changed"]
    (tmp_path / "out/.DS_Store").unlink()
    (tmp_path / "out/lost+found").rmdir()
    (tmp_path / "out/link").unlink()
    (tmp_path / "out/link").mkdir()
    assert len(belongings.find_faults()) == 4


def test_what_is_left_behind_is_found_unless_it_is_the_users(tmp_path: Path):
    belongings = plant(tmp_path)
    assert trials.find_left(tmp_path, belongings) == []
    (tmp_path / "out/.build").mkdir()
    (tmp_path / "out/manifest.json.1f.tmp").touch()
    assert trials.find_left(tmp_path, belongings) == ["out/.build", "out/manifest.json.1f.tmp"]


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
        ("TERM", "parent", 1, True),
        ("INT", "group", 130, False),
        ("INT", "group", 0, True),
        ("STOP", "group", 0, False),
        ("KILL", "worker", 0, False),
        ("KILL", "worker", -9, True),
        ("HUP", "parent", None, True),
    ],
)
def test_exit_codes_are_judged_by_what_befell_the_command(
    name: str, target: str, code: int, is_fault: bool, tmp_path: Path
):
    trial = trials.Trial(scene="fake", label="", number=0)
    strike = Strike(name=name, target=target, is_due=lambda seconds: True)
    trials.check_code(trial, make_bench(tmp_path, "unfinished"), strike, make_ended(code))
    assert bool(trial.faults) == is_fault


def test_other_bytes_a_traceback_and_a_changed_file_are_faults_of_a_trial(tmp_path: Path):
    bench, trial = make_bench(tmp_path, "b"), trials.Trial(scene="fake", label="", number=0)
    bench.belongings.files[tmp_path / "work/notes.txt"] = b"not what is there"
    ended = make_ended(0, "Traceback (most recent call last)\n")
    trial.note(ended)
    trials.finish(trial, bench, ended)
    assert not trial.is_equal
    assert len(trial.faults) == 3


@pytest.mark.parametrize(
    ("line", "num_faults"),
    [
        ("Error: out/.build/runs/x.run: No space left on device; free some", 0),
        ("Error: corpus/in.txt: No space left on device", 1),
        ("Error: out/x: it went wrong", 1),
    ],
)
def test_a_full_disk_must_be_named_by_a_path_on_it(line: str, num_faults: int, tmp_path: Path):
    trial = trials.Trial(scene="fake", label="", number=0)
    trials.check_full(trial, make_ended(1, line + "\n"), tmp_path)
    assert len(trial.faults) == num_faults


def test_a_command_is_struck_and_its_session_is_empty_afterwards(tmp_path: Path):
    strike = Strike(name="KILL", target="group", is_due=lambda seconds: seconds > 0.05)
    ended = processes.run(["--help"], tmp_path, tmp_path / "logs", strike)
    assert ended.code in (0, -9)
    command = Command(["--version"], tmp_path, tmp_path / "logs")
    ended = command.wait()
    assert ended.code == 0
    assert "albert-data" in ended.stdout
    assert ended.orphans == 0
    assert processes.find_session(command._process.pid) == []


def test_trials_are_shared_out_evenly():
    found = chaos._share_out({"a": 3, "b": 1}, 8)
    assert (found.count("a"), found.count("b")) == (6, 2)


def test_a_users_file_that_a_command_replaces_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def overwrite(command: list[str], folder: Path, logs: Path) -> Ended:
        (folder / "out" / "README.md").write_text("ours")
        return make_ended(0)

    monkeypatch.setattr(foreign, "run", overwrite)
    what = foreign.Foreign(
        name="README.md", lay=lambda folder, mine: mine.write(folder / "out" / "README.md", b"mine"), command=["build"]
    )
    trial = foreign.try_foreign(what, tmp_path, 0)
    assert trial.faults == ["the user's file README.md in out has changed"]


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


def test_mutants_are_drawn_by_a_seed_of_all_rooms_in_turn(tmp_path: Path):
    sources = {f"albert_data__{room}__{name}": "x = 1 < 2\n" for room in ("one", "two") for name in ("a", "b")}
    root = write_checkout(tmp_path, **sources, albert_data__config="y = 3\n")
    drawn = list(mutants.draw_mutants(root, seed=1))
    assert [mutant.room for mutant in drawn] == ["ground", *["one", "two"] * 6]
    assert len(set(drawn)) == 13
    assert list(mutants.draw_mutants(root, seed=1)) == drawn != list(mutants.draw_mutants(root, seed=2))
    assert {mutant.room for mutant in mutants.draw_mutants(root, 1, ("two",))} == {"two"}


def test_the_tests_that_name_what_a_module_defines_are_run_first_and_the_one_that_fails_is_named(tmp_path: Path):
    failing = "def test_clip():\n    assert 'clip' == 'cut'\n"
    passing = "def test_other():\n    pass\n"
    root = write_checkout(tmp_path / "copy", tests__test_a=passing, tests__test_b=failing, tests__test_c=passing)
    files = mutants.rank_tests(root, SOURCE.decode(), "albert_data/room/clip.py")
    assert files == ["tests/test_b.py", "tests/test_a.py", "tests/test_c.py"]
    (root / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n    quick\n    gpu\n")
    assert mutants.run_tests(root, files) == "tests/test_b.py::test_clip"
    assert mutants.run_tests(root, files[1:]) is None
