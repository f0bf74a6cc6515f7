"""Files in RUN that are not of the run stay as they are, or stop the run before it begins."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import stat
import threading
from pathlib import Path

import pytest
from refusals import check_refused
from test_train_stop import drop_last_checkpoint
from toy_rows import TINY

from albert_data.errors import CheckpointError, OutputError
from albert_data.storage.disk import Disk
from albert_data.train import checkpoint, loop
from albert_data.train.checkpoint import FILES, list_checkpoints
from albert_data.train.config import RECIPES, TrainConfig
from albert_data.train.folder import lock_folder
from albert_data.train.loader import ShardLoader
from albert_data.train.metrics import MetricsFile


@pytest.fixture
def run(finished_run, toys, use_shards, tmp_path) -> Path:
    """Where the runs of a test are. The shards are those of `finished_run`, with a tokenizer."""
    use_shards(toys.make_shards(40), toys.make_shards(10, seed=1))
    (tmp_path / "out" / "tokenizer").mkdir(parents=True)
    (tmp_path / "out" / "tokenizer" / "spiece.model").write_bytes(b"a model")
    return tmp_path / "run"


@pytest.fixture
def over(finished_run, run) -> Path:
    """A copy of the finished run by TINY: checkpoints of steps 2 and 4."""
    shutil.copytree(finished_run, run)
    shutil.copytree(run.with_name("out") / "tokenizer", run / "tokenizer")
    return run


def train(run: Path, *, resume: bool = False, **settings):
    return loop.train(run.with_name("out"), run, dataclasses.replace(TINY, **settings), resume=resume)


def names_of(folder) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


# ---- before it begins ----


@pytest.mark.parametrize(
    "name",
    [
        *("run.json", "metrics.jsonl", "report.html", "trace.json.gz"),
        *("tokenizer/spiece.model", "checkpoints/step-00000001/notes"),
    ],
)
def test_files_that_a_run_would_replace_stop_it_before_it_begins(run, name):
    path = run / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    before = names_of(run)
    with pytest.raises(OutputError, match="holds .*another --output"):
        train(run, profile=True)
    assert path.read_text() == "mine"
    assert names_of(run) - {".lock"} == before


@pytest.mark.parametrize("name", ["metrics.jsonl", "report.html"])
def test_a_broken_link_stops_a_run_too(run, name):
    run.mkdir()
    (run / name).symlink_to(run / "nowhere")
    with pytest.raises(OutputError, match=f"holds {name}"):
        train(run)


def test_other_files_do_not_stop_a_run_and_stay_and_an_equal_tokenizer_is_not_written_again(run):
    (run / "notes").mkdir(parents=True)
    others = (".DS_Store", "notes/mine.txt", "plan.json")
    for name in others:
        (run / name).write_text("mine")
    shutil.copytree(run.with_name("out") / "tokenizer", run / "tokenizer")
    before = (run / "tokenizer" / "spiece.model").stat().st_ino
    assert train(run) is not None
    assert [(run / name).read_text() for name in others] == ["mine"] * 3
    assert (run / "tokenizer" / "spiece.model").stat().st_ino == before


@pytest.mark.parametrize("name", ["metrics.jsonl", "report.html", "checkpoints", "tokenizer"])
@pytest.mark.parametrize("kind", ["FIFO", "other"])
def test_a_wrong_kind_of_file_stops_a_resumed_run_before_it_begins(over, name, kind):
    path = over / name
    is_folder = path.is_dir()
    shutil.rmtree(path) if is_folder else path.unlink()
    if kind == "FIFO":
        os.mkfifo(path)
    else:
        path.write_text("mine") if is_folder else path.mkdir()
    with pytest.raises(OutputError, match=f"{name} is (not a|no) (folder|regular file).*move it away"):
        train(over, resume=True)


def test_what_a_user_added_to_the_run_file_stays(over):
    content = json.loads((over / "run.json").read_text())
    (over / "run.json").write_text(json.dumps({**content, "notes": {"why": "mine"}}))
    drop_last_checkpoint(over)
    train(over, keep=3, resume=True)
    after = json.loads((over / "run.json").read_text())
    assert after["notes"] == {"why": "mine"}
    assert after["config"]["keep"] == 3


@pytest.mark.parametrize("is_compiled", [None, True, False])
def test_all_settings_that_a_run_file_can_have_are_read_back(is_compiled):
    for recipes in RECIPES.values():
        for config in recipes.values():
            settings = {**dataclasses.asdict(config), "compile": is_compiled}
            assert TrainConfig(**json.loads(json.dumps(settings))) == TrainConfig(**settings)


# ---- two at once ----


def test_a_second_training_in_the_same_folder_is_refused(over, monkeypatch):
    drop_last_checkpoint(over)
    first_has_begun, second_is_done = threading.Event(), threading.Event()
    stream = ShardLoader.stream

    def wait(self, *arguments, **options):
        first_has_begun.set()
        second_is_done.wait(60)
        return stream(self, *arguments, **options)

    monkeypatch.setattr(ShardLoader, "stream", wait)
    first = threading.Thread(target=train, args=[over], kwargs={"resume": True})
    first.start()
    first_has_begun.wait(60)
    before = (over / "metrics.jsonl").read_bytes()
    with pytest.raises(OutputError, match="another training writes there now"):
        train(over, resume=True)
    assert (over / "metrics.jsonl").read_bytes() == before
    second_is_done.set()
    first.join()
    assert list_checkpoints(over)[-1].name == "step-00000004"


def test_what_a_killed_run_left_of_a_file_is_removed_and_a_failure_frees_the_lock(run, monkeypatch):
    run.mkdir()
    left, mine = run / f".albert-data-{'0' * 16}.tmp", run / ".albert-data-mine.tmp"
    left.touch()
    mine.touch()

    def fail(self, folder):
        raise OSError(errno.EIO, "Input/output error", str(folder))

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "remove_leftovers", fail)
        with pytest.raises(OutputError, match="can't write there"), lock_folder(run):
            pass
    with lock_folder(run):
        assert mine.exists()
        assert not left.exists()


def test_the_lock_ends_with_the_process(run):
    run.mkdir()
    if (child := os.fork()) == 0:
        with lock_folder(run):
            os._exit(0)
    os.waitpid(child, 0)
    with lock_folder(run):
        pass


# ---- checkpoints ----


def test_pruning_keeps_a_folder_with_other_files_and_follows_no_link(over, tmp_path):
    folder = over / "checkpoints"
    first, last = list_checkpoints(over)
    shutil.move(first, tmp_path / "elsewhere")
    first.symlink_to(tmp_path / "elsewhere")
    mine = Path(shutil.copytree(last, folder / "step-00000003"))
    (mine / "notes.txt").write_text("mine")
    best = Path(shutil.copytree(mine, folder / "step-00000002-best"))  # not the name of a checkpoint
    checkpoint.prune_checkpoints(over, keep=1)
    assert names_of(mine) == {"notes.txt"}
    assert names_of(best) == {*FILES, "notes.txt"}
    assert names_of(tmp_path / "elsewhere") == set(FILES)
    assert first.is_symlink()
    assert list_checkpoints(over)[-1] == last


def test_only_remains_of_a_killed_save_are_removed(over, tmp_path):
    folder = over / "checkpoints"
    drop_last_checkpoint(over)
    before = names_of(folder)
    others = ("mine.tmp", "step-x.tmp", "step-00000003.ab.tmp", "step-00000008.ab.tmp", "file.tmp")
    for name in ("step-00000009.12ab34cd.tmp", *others[:3]):
        shutil.copytree(list_checkpoints(over)[0], folder / name)
    (folder / "step-00000003.ab.tmp" / "notes.txt").write_text("mine")
    (folder / "step-00000008.ab.tmp").symlink_to(tmp_path / "out")
    (folder / "file.tmp").write_text("mine")
    checkpoint.save_checkpoint(over, 5, weights={}, tensors={}, state={})
    assert {name for name in names_of(folder) - before if "/" not in name} == {"step-00000005", *others}
    assert (tmp_path / "out" / "tokenizer" / "spiece.model").exists()


LINKS = [
    *("run.json", "metrics.jsonl", "report.html", ".lock", "tokenizer", "tokenizer/spiece.model", "checkpoints"),
    *("checkpoints/step-00000004", "checkpoints/step-00000004/state.json"),
]


@pytest.mark.parametrize("name", LINKS)
def test_a_resumed_run_writes_through_no_link(over, tmp_path, name):
    path, elsewhere = over / name, tmp_path / "elsewhere"
    shutil.move(path, elsewhere) if path.exists() else elsewhere.mkdir()
    path.symlink_to(elsewhere)
    before = names_of(elsewhere) if elsewhere.is_dir() else elsewhere.read_bytes()
    with pytest.raises(OutputError, match=f"{name} is a link, and a run would write there"):
        train(over, resume=True)
    assert (names_of(elsewhere) if elsewhere.is_dir() else elsewhere.read_bytes()) == before


def test_a_new_run_writes_through_no_link_and_may_itself_be_one(run, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    run.mkdir()
    (run / "tokenizer").symlink_to(elsewhere)
    with pytest.raises(OutputError, match="tokenizer is a link, and a run would write there"):
        train(run)
    assert list(elsewhere.iterdir()) == []
    shutil.rmtree(run)
    run.symlink_to(elsewhere)
    train(run)
    assert (elsewhere / "run.json").is_file()


def test_the_files_of_a_checkpoint_have_the_usual_mode(run):
    old = os.umask(0o027)
    try:
        train(run)
    finally:
        os.umask(old)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in list_checkpoints(run)[-1].iterdir()}
    assert modes == dict.fromkeys(FILES, 0o640)


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), OSError(28, "No space left on device")], ids=repr)
def test_an_interrupted_save_leaves_only_the_complete_older_checkpoints(run, monkeypatch, fault):
    def fail_late(tensors, path):
        path.write_bytes(b"half")
        if "step-00000004" in str(path):
            raise fault
        save(tensors, path)

    save = checkpoint.save_file
    monkeypatch.setattr(checkpoint, "save_file", fail_late)
    message = "step-00000004.*No space left.*--resume" if isinstance(fault, OSError) else None
    with pytest.raises((KeyboardInterrupt, OutputError), match=message):
        train(run)
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000002"]
    checkpoint.load_checkpoint(list_checkpoints(run)[0])


# ---- metrics ----


def line_of(step: int, split: str = "train") -> str:
    return json.dumps({"step": step, "split": split, "mlm_loss": 1.0}) + "\n"


@pytest.fixture
def metrics(tmp_path):
    """Open metrics.jsonl with this content, to continue after step 2."""

    def make(content: str | bytes) -> MetricsFile:
        path = tmp_path / "metrics.jsonl"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return MetricsFile(path, keep_until_step=2)

    return make


def test_a_run_that_fails_before_its_first_line_loses_no_line(over, monkeypatch):
    drop_last_checkpoint(over)
    before = (over / "metrics.jsonl").read_bytes()
    monkeypatch.setattr(loop, "update", lambda *given, **counts: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(over, resume=True)
    assert (over / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("torn", ["", '{"step": 3, "spl', '{"st', "\0" * 20], ids=repr)
def test_lines_that_a_resumed_run_writes_again_are_removed(metrics, tmp_path, torn):
    file = metrics(line_of(1) + line_of(2) + line_of(3) + line_of(4) + torn)
    file.write(step=3, split="train")
    file.write(step=4, split="train")
    expected = line_of(1) + line_of(2) + '{"step": 3, "split": "train"}\n{"step": 4, "split": "train"}\n'
    assert (tmp_path / "metrics.jsonl").read_text() == expected


@pytest.mark.parametrize(
    "strange", [b"my notes\n", b"\xff\xfe\n", b"[" * 100_000 + b"\n", b'{"step": "x"}\n', b"my last words"], ids=len
)
def test_lines_that_are_not_metrics_are_named_and_stay(metrics, tmp_path, strange):
    content = line_of(1).encode() + (strange if strange.endswith(b"\n") else line_of(2).encode() + strange)
    check_refused(lambda: metrics(content), CheckpointError, "is no line of metrics: & remove that line")
    assert (tmp_path / "metrics.jsonl").read_bytes() == content


def test_on_a_full_disk_the_error_names_the_metrics(metrics, tmp_path):
    file = metrics(line_of(1))
    file.write(step=3, split="train")
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(OutputError, match=r"metrics\.jsonl: can't write the metrics: No space left.*--resume"):
        file.write(step=4, split="train")
