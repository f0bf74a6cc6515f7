"""A stopped run resumes as if it had not stopped, bit for bit, or says why it can't.

A signal at any moment ends a run with a checkpoint and the signal's exit code.
"""

from __future__ import annotations

import dataclasses
import shutil
import signal
import threading
from contextlib import nullcontext
from itertools import cycle
from pathlib import Path

import pytest
import torch
from build_fixtures import digest_folder
from refusals import check_refused, refused
from toy_rows import TINY

from albert_data.cli.main import run as run_command
from albert_data.errors import CheckpointError, ConfigError, OutputError
from albert_data.storage.files import read_json, write_json
from albert_data.train import evaluation, loop
from albert_data.train import state as session
from albert_data.train.attention import AttentionChoice
from albert_data.train.checkpoint import list_checkpoints, load_checkpoint
from albert_data.train.interrupt import SIGNALS, Interrupt
from albert_data.train.loader import ShardLoader

# With dropout, so that random states matter; a window that grows; a line for each step; two and a half epochs.
CONFIG = dataclasses.replace(
    TINY,
    **{"steps": 10, "log_every": 1, "eval_every": 3, "eval_rows": 512, "save_every": 3},
    **{"dropout": 0.1, "first_window": 8, "window_share": 0.9, "remask": False},
)
OWN = {"seconds", "tokens_per_second", "work_seconds", "train_config"}  # of equal runs: times, settings that may change


def assert_same_run(toys, one, other):
    assert_same(*(toys.read_metrics(run) for run in (one, other)))
    assert_same(*(load_checkpoint(list_checkpoints(run)[-1]) for run in (one, other)))


def assert_same(one, other):
    """Equal, tensors bit for bit, except for OWN."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one.keys() - OWN:
            assert_same(one[key], other[key])
    elif isinstance(one, tuple | list):
        for part, other_part in zip(one, other, strict=True):
            assert_same(part, other_part)
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    else:
        assert one == other


def drop_last_checkpoint(run: Path) -> None:
    shutil.rmtree(list_checkpoints(run)[-1])


@pytest.fixture
def shards(toys, use_shards):
    use_shards(toys.make_shards(30), toys.make_shards(12, seed=1))


# ---- as if it had not stopped ----


# What the run has, what the resumed run has otherwise, and whether rows could be packed when each began, as on a GPU.
MUON = {"optimizer": "muon", "remask": True, "mask_prob": 0.45, "last_mask_prob": 0.15}


@pytest.mark.parametrize(
    ("settings", "later", "can_pack"),
    [
        pytest.param({}, {}, (False, False), id="dropout and a window that grows"),
        pytest.param({"optimizer": "lamb", "remask": True}, {}, (False, False), id="LAMB and new masks"),
        pytest.param(MUON, {}, (False, False), id="Muon and a share of masks that falls"),
        pytest.param({}, {"recompute": True}, (False, False), id="recomputed"),
        pytest.param({"remask": True}, {}, (True, True), id="packed"),
        pytest.param({}, {}, (False, True), id="padded because rows could not be packed then"),
    ],
)
def test_a_killed_run_resumes_from_its_newest_checkpoint_bit_for_bit(
    toys, shards, tmp_path, monkeypatch, settings, later, can_pack
):
    def train(name: str, is_packing: bool, **options) -> None:
        monkeypatch.setattr(
            session, "choose_attention", lambda *given: AttentionChoice(obstacle=None if is_packing else "no kernel")
        )
        loop.train(tmp_path / "out", tmp_path / name, dataclasses.replace(CONFIG, **options), resume=name == "killed")

    train("whole", can_pack[0], **settings)
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    drop_last_checkpoint(tmp_path / "killed")
    assert list_checkpoints(tmp_path / "killed")[-1].name == "step-00000009"
    train("killed", can_pack[1], **settings, **later)
    assert_same_run(toys, tmp_path / "whole", tmp_path / "killed")
    state = load_checkpoint(list_checkpoints(tmp_path / "killed")[-1])[2]
    assert state["loader"]["packed"] == can_pack[0]


def test_a_run_stopped_before_its_first_checkpoint_starts_anew(toys, shards, tmp_path):
    whole, early = tmp_path / "whole", tmp_path / "early"
    loop.train(tmp_path / "out", whole, CONFIG)
    shutil.copytree(whole, early)
    shutil.rmtree(early / "checkpoints")
    with (early / "metrics.jsonl").open("a") as file:
        file.write('{"step": 11, "spl')  # torn by a power cut
    loop.train(tmp_path / "out", early, CONFIG, resume=True)
    assert_same_run(toys, whole, early)


def test_a_run_of_packs_does_not_resume_where_they_cannot_be_computed(shards, tmp_path, monkeypatch):
    monkeypatch.setattr(session, "choose_attention", lambda *given: AttentionChoice())
    loop.train(tmp_path / "out", tmp_path / "run", TINY)
    drop_last_checkpoint(tmp_path / "run")
    monkeypatch.setattr(
        session, "choose_attention", lambda *given: AttentionChoice(obstacle="PyTorch 2.9 has no varlen_attn")
    )
    named = "rows are packed, and PyTorch 2.9 has no varlen_attn; resume where"
    check_refused(lambda: resume(tmp_path / "run"), ConfigError, named)


def test_a_run_does_not_resume_in_another_precision_than_it_asked_for(shards, tmp_path):
    loop.train(tmp_path / "out", tmp_path / "run", dataclasses.replace(TINY, precision="fp32"))
    named = "can't resume: precision is 'bf16'"
    check_refused(lambda: resume(tmp_path / "run", precision="bf16"), CheckpointError, named)


# ---- on a copy of a finished run ----


@pytest.fixture
def run(finished_run, toys, use_shards, tmp_path) -> Path:
    """A finished run by TINY."""
    use_shards(toys.make_shards(40), toys.make_shards(10, seed=1))
    return shutil.copytree(finished_run, tmp_path / "run")


def resume(run: Path, **settings):
    return loop.train(run.with_name("out"), run, dataclasses.replace(TINY, **settings), resume=True)


@pytest.mark.parametrize("lacks", ["nothing", "page", "validation"])
def test_resuming_a_finished_run_writes_what_is_missing_and_changes_nothing_else(run, capsys, lacks):
    before, metrics = digest_folder(run), run / "metrics.jsonl"
    if lacks != "nothing":
        (run / "report.html").unlink()
    if lacks == "validation":
        metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:-1]))
    assert resume(run) is not None
    assert digest_folder(run) == before
    shown = capsys.readouterr().err
    assert "the run is over: nothing is left to train" in shown
    assert f"the curves of the run: {run / 'report.html'}" in shown


@pytest.mark.parametrize("settings", [{"log_every": 1, "eval_every": 1}, {"micro_tokens": 64}])
def test_settings_of_the_records_and_of_the_machine_may_change_on_resume(toys, run, settings):
    drop_last_checkpoint(run)
    resume(run, **settings)
    assert toys.read_metrics(run)[-1]["step"] == 4


def test_a_run_of_another_version_says_what_can_be_done_with_it(run):
    stored = read_json(run / "run.json")
    del stored["identity"]["window_share"]
    write_json(run / "run.json", stored)
    named = "run.json lacks window_share, as another version & resume with that one, or & --init-from"
    check_refused(lambda: resume(run), CheckpointError, named)


LONGER = "or start another run with a new --output: --init-from & trains its weights further"


@refused(
    ({"lr": 0.5}, CheckpointError, "can't resume: lr is 0.5"),
    ({"seed": 9}, CheckpointError, "can't resume: seed is 9"),
    ({"preset": "base"}, CheckpointError, "can't resume: preset is 'base'"),
    ({"steps": 20}, CheckpointError, f"can't resume: steps is 20 & {LONGER}"),
    ({"steps": None, "minutes": 9}, CheckpointError, f"steps is None & has 4; give the run's own value, {LONGER}"),
    ({"steps": None, "epochs": 9}, CheckpointError, f"steps is None & {LONGER}"),
)
def test_resume_with_other_settings_is_refused_by_name(run, call, kind, named):
    before = digest_folder(run)
    check_refused(lambda: resume(run, **call), kind, named)
    assert digest_folder(run) == before


def test_resume_with_other_shards_names_the_way_to_train_on_them(toys, use_shards, run):
    use_shards(toys.make_shards(31), toys.make_shards(12, seed=1))
    check_refused(lambda: resume(run), CheckpointError, f"can't resume: shards' digest is & {LONGER}")


def test_a_checkpoint_of_another_run_is_refused(run):
    path = list_checkpoints(run)[-1] / "state.json"
    state = read_json(path)
    state["identity"]["seed"] = 1
    write_json(path, state)
    check_refused(lambda: resume(run), CheckpointError, "can't resume: seed is 0, but & step-00000004 has 1")


def test_a_folder_that_can_not_be_the_runs_is_refused_and_not_written(run, tmp_path):
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "manifest.json").write_text("{}")
    for name in ("file", "shards/.lock"):
        (tmp_path / name).touch()
    before = digest_folder(tmp_path)
    for name, kind, named in (
        ("run", OutputError, "holds a run already & --resume"),
        ("shards", OutputError, "manifest.json"),
        ("file", OutputError, "is a file"),
    ):
        check_refused(lambda name=name: loop.train(tmp_path / "out", tmp_path / name, TINY), kind, named)
    check_refused(lambda: resume(tmp_path / "new"), CheckpointError, "no run to resume")
    assert digest_folder(tmp_path) == before


# ---- signals ----

SHORT = dataclasses.replace(TINY, steps=6, log_every=1, eval_every=3, dropout=0.1, remask=False)


@pytest.fixture(autouse=True)
def pythons_handlers():
    """Enable Ctrl-C, which tests in the background ignore; all handlers must be restored when a run is over."""
    old = {number: signal.signal(number, signal.default_int_handler) for number in SIGNALS}
    yield
    now = {number: signal.signal(number, handler) for number, handler in old.items()}
    assert set(now.values()) == {signal.default_int_handler}


@pytest.fixture
def train(shards, tmp_path):
    def call(name: str, **options):
        return loop.train(tmp_path / "out", tmp_path / name, SHORT, **options)

    return call


def send_in(monkeypatch, module, name: str, number: int, *, call: int = 1, after: bool = False) -> None:
    """Send a signal before or after the given call of a function."""
    function, calls = getattr(module, name), []

    def work(*args, **kwargs):
        calls.append(1)
        if len(calls) == call and not after:
            signal.raise_signal(number)
        found = function(*args, **kwargs)
        if len(calls) == call and after:
            signal.raise_signal(number)
        return found

    monkeypatch.setattr(module, name, work)


MOMENTS = {
    "before the folder is claimed": (loop, "claim_folder", 1, 0),
    "before the first step": (loop, "describe_start", 1, 0),
    "while the first batch is read": (ShardLoader, "stream", 1, 1),
    "in a step": (loop, "update", 1, 2),  # ranks agree to stop at the next
    "in an evaluation": (evaluation, "measure", 1, 3),
    "in the second evaluation": (evaluation, "measure", 4, 6),
    "in a save": (session, "save_checkpoint", 1, 2),
    "in the baseline of the last evaluation": (loop, "measure_baseline", 1, None),
    "while the page is written": (loop, "write_run_page", 1, None),
}


@pytest.mark.parametrize(("moment", "number"), list(zip(MOMENTS, cycle(SIGNALS), strict=False)))
def test_a_signal_at_any_moment_ends_the_run_and_it_goes_on_as_if_none_had_come(
    toys, train, tmp_path, monkeypatch, capsys, moment, number
):
    train("whole")
    module, name, call, step = MOMENTS[moment]
    interrupt = Interrupt()
    with monkeypatch.context() as patch:
        if name == "measure":
            patch.setattr(evaluation, "evaluate", evaluation.evaluate)
        send_in(patch, module, name, number, call=call)
        last = train("run", interrupt=interrupt)
    assert interrupt.number == number
    assert (last is None) == (step is not None), "a run that is over ends normally"
    if step is not None:
        saved = [path.name for path in list_checkpoints(tmp_path / "run")]
        assert saved[-1:] == ([f"step-{step:08d}"] if step else [])
        assert f"albert-data train {tmp_path / 'out'} --output {tmp_path / 'run'} --resume" in capsys.readouterr().err
        assert train("run", resume=True) is not None
    assert_same_run(toys, tmp_path / "whole", tmp_path / "run")
    assert not list((tmp_path / "run").rglob("*.tmp"))


@pytest.mark.parametrize(
    ("first", "second", "saved"), [(signal.SIGTERM, signal.SIGINT, []), (signal.SIGINT, signal.SIGTERM, [2])]
)
def test_a_second_ctrl_c_ends_the_run_at_once_and_a_second_sigterm_lets_the_save_end(
    train, tmp_path, monkeypatch, first, second, saved
):
    send_in(monkeypatch, loop, "update", first)
    send_in(monkeypatch, session, "save_checkpoint", second)
    with nullcontext() if saved else pytest.raises(KeyboardInterrupt):
        assert train("run") is None
    assert [path.name for path in list_checkpoints(tmp_path / "run")] == [f"step-{step:08d}" for step in saved]


def test_a_signal_that_is_ignored_stays_ignored(train, monkeypatch):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup has it
    send_in(monkeypatch, loop, "update", signal.SIGHUP)
    assert train("run") is not None
    signal.signal(signal.SIGHUP, signal.default_int_handler)


def test_in_another_thread_signals_are_left_to_the_main_one():
    found = []

    def enter() -> None:
        with Interrupt():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


# ---- the command ----


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_the_command_ends_with_the_code_of_the_signal_and_resumed_with_0(
    toys, use_shards, tmp_path, monkeypatch, number, code
):
    use_shards(toys.make_shards(30))
    command = ["train", str(tmp_path / "out"), "-o", str(tmp_path / "run")]
    options = ["--preset", "tiny", "--steps", "3", "--device", "cpu", "--batch-tokens", "512", "--static-masks"]
    with monkeypatch.context() as patch:
        send_in(patch, loop, "update", number)
        assert run_command([*command, *options]) == code
    assert run_command([*command, "--resume"]) == 0
    assert run_command([*command, "--resume"]) == 0
