"""A stopped run resumes as if it had not stopped, bit for bit, or says why it can't."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import signal

import pytest
import torch
from safetensors.torch import load_file, save_file

from albert_data.errors import CheckpointError, OutputError
from albert_data.files import read_json, write_json
from albert_data.train.config import TrainConfig
from albert_data.train.data.loader import ShardLoader
from albert_data.train.folder import load_config
from albert_data.train.model.checkpoint import list_checkpoints, load_checkpoint
from albert_data.train.run import loop

# With dropout, so that random states matter; a window that grows; lines of metrics span checkpoints; two and a half
# epochs.
CONFIG = TrainConfig(
    preset="tiny",
    lr=1e-3,
    steps=10,
    batch_tokens=8 * 64,
    log_every=4,
    eval_every=3,
    eval_rows=512,
    save_every=3,
    dropout=0.1,
    first_window=8,
    window_share=0.9,
    device="cpu",
    precision="fp32",
    remask=False,
)
TIMES = ("seconds", "tokens_per_second", "work_seconds")


@pytest.fixture
def finished(toys, use_shards, tmp_path):
    use_shards(toys.make_shards(30), toys.make_shards(12, seed=1))
    loop.train(tmp_path / "out", tmp_path / "whole", CONFIG)
    return tmp_path / "whole"


def without_times(lines):
    return [{k: v for k, v in line.items() if k not in TIMES} for line in lines]


def assert_same_run(toys, one, other):
    assert without_times(toys.read_metrics(one)) == without_times(toys.read_metrics(other))
    assert_same(*(load_checkpoint(list_checkpoints(run)[-1]) for run in (one, other)))


def assert_same(one, other):
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            if key not in TIMES:
                assert_same(one[key], other[key])
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for part, other_part in zip(one, other, strict=True):
            assert_same(part, other_part)
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    else:
        assert one == other


def interrupt_at(monkeypatch, step, number=signal.SIGINT):
    """Send this process a signal while the batch of this step is read."""
    stream = ShardLoader.stream

    def stream_and_interrupt(self, *arguments, **options):
        for at, batches in enumerate(stream(self, *arguments, **options)):
            if at == step:
                os.kill(os.getpid(), number)
            yield batches

    monkeypatch.setattr(ShardLoader, "stream", stream_and_interrupt)


def test_a_killed_run_resumes_from_its_newest_checkpoint_bit_for_bit(toys, finished, tmp_path):
    killed = tmp_path / "killed"
    shutil.copytree(finished, killed)
    shutil.rmtree(list_checkpoints(killed)[-1])
    assert list_checkpoints(killed)[-1].name == "step-00000009"
    loop.train(tmp_path / "out", killed, CONFIG, resume=True)
    assert_same_run(toys, finished, killed)


@pytest.mark.parametrize(("step", "number"), [(0, signal.SIGINT), (4, signal.SIGINT), (5, signal.SIGTERM)])
def test_a_signal_saves_says_how_to_resume_and_loses_nothing(
    toys, finished, tmp_path, monkeypatch, capsys, step, number
):
    run = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        interrupt_at(patch, step, number)
        assert loop.train(tmp_path / "out", run, CONFIG) is None
    assert list_checkpoints(run)[-1].name == f"step-{step + 1:08d}"
    assert f"albert-data train {tmp_path / 'out'} --output {run} --resume" in capsys.readouterr().err
    loop.train(tmp_path / "out", run, CONFIG, resume=True)
    assert_same_run(toys, finished, run)


def test_ctrl_c_works_as_before_once_the_run_is_over(finished):
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_run_stopped_before_its_first_checkpoint_starts_anew(toys, finished, tmp_path):
    run = tmp_path / "early"
    shutil.copytree(finished, run)
    shutil.rmtree(run / "checkpoints")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 11, "spl')  # torn by a power cut
    loop.train(tmp_path / "out", run, CONFIG, resume=True)
    assert_same_run(toys, finished, run)


def test_resuming_a_finished_run_changes_nothing(finished, tmp_path, capsys):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    loop.train(tmp_path / "out", finished, CONFIG, resume=True)
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before
    assert "nothing is left to do" in capsys.readouterr().err


@pytest.mark.parametrize("lacks", ["page", "validation"])
def test_resuming_a_run_that_was_killed_at_its_end_writes_what_is_missing(toys, finished, tmp_path, capsys, lacks):
    whole, page = (finished / "metrics.jsonl").read_text(), (finished / "report.html").read_text()
    (finished / "report.html").unlink()
    lines = whole.splitlines(keepends=True)
    if lacks == "validation":
        (finished / "metrics.jsonl").write_text("".join(lines[:-1]))
    assert loop.train(tmp_path / "out", finished, CONFIG, resume=True) is not None
    assert (finished / "metrics.jsonl").read_text() == whole
    assert (finished / "report.html").read_text() == page
    shown = capsys.readouterr().err
    assert "the run was over, but not all of its files were written" in shown
    assert f"the curves of the run: {finished / 'report.html'}" in shown


def test_a_folder_with_a_run_is_refused_without_resume(finished, tmp_path):
    with pytest.raises(OutputError, match=r"holds a run already.*--resume"):
        loop.train(tmp_path / "out", finished, CONFIG)


def test_a_folder_with_shards_is_refused(finished, tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(OutputError, match=r"manifest\.json"):
        loop.train(tmp_path / "out", tmp_path, CONFIG)


def test_a_file_in_place_of_the_folder_is_refused(finished, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is a file"):
        loop.train(tmp_path / "out", tmp_path / "file", CONFIG)


def test_resume_without_a_run_folder_is_refused(finished, tmp_path):
    with pytest.raises(CheckpointError, match="no run to resume"):
        loop.train(tmp_path / "out", tmp_path / "new", CONFIG, resume=True)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [("lr", 0.5), ("steps", 20), ("seed", 9), ("batch_tokens", 4), ("preset", "base"), ("precision", "bf16")],
)
def test_resume_with_other_settings_is_refused_by_name(finished, tmp_path, field, value):
    with pytest.raises(CheckpointError, match=f"can't resume: {field} is '?{value}"):
        loop.train(tmp_path / "out", finished, dataclasses.replace(CONFIG, **{field: value}), resume=True)
    assert load_config(finished) == CONFIG


@pytest.mark.parametrize("budget", [{"steps": 20}, {"steps": None, "minutes": 9}, {"steps": None, "epochs": 9}])
def test_more_than_the_length_of_a_run_names_the_way_to_train_further(finished, tmp_path, budget):
    advice = f"or train its weights further with --init-from {finished} and a new --output: the learning rate"
    with pytest.raises(CheckpointError, match=re.escape(advice)):
        loop.train(tmp_path / "out", finished, dataclasses.replace(CONFIG, **budget), resume=True)


@pytest.mark.parametrize("is_same_tokenizer", [True, False])
def test_resume_with_other_shards_names_the_way_to_train_on_them(
    is_same_tokenizer, toys, use_shards, finished, tmp_path
):
    rows = toys.make_shards(31)
    if not is_same_tokenizer:
        other = dataclasses.replace(rows.manifest.tokenizer, sha256="f" * 64)
        rows.manifest = dataclasses.replace(rows.manifest, tokenizer=other)
    use_shards(rows, toys.make_shards(12, seed=1))
    way = (
        f"train its weights on these with --init-from {finished} and" if is_same_tokenizer else "start another run with"
    )
    advice = f"give the run's own shards, or {way} a new --output"
    with pytest.raises(CheckpointError, match=f"can't resume: shards' digest is .*; {advice}"):
        loop.train(tmp_path / "out", finished, CONFIG, resume=True)


def test_a_checkpoint_of_another_run_is_refused(finished, tmp_path):
    loop.train(tmp_path / "out", tmp_path / "other", dataclasses.replace(CONFIG, seed=1))
    for path in list_checkpoints(tmp_path / "other"):
        shutil.copytree(path, finished / "checkpoints" / path.name, dirs_exist_ok=True)
    with pytest.raises(CheckpointError, match=r"can't resume: seed is 0, but .*step-00000010 has 1"):
        loop.train(tmp_path / "out", finished, CONFIG, resume=True)


def test_a_run_from_before_a_setting_was_there_resumes_with_what_it_did_then(toys, use_shards, tmp_path):
    use_shards(toys.make_shards(30))
    config = dataclasses.replace(CONFIG, first_window=0, window_share=TrainConfig.window_share)
    finished = tmp_path / "whole"
    loop.train(tmp_path / "out", finished, config)
    shutil.rmtree(list_checkpoints(finished)[-1])
    for path, key in (
        (finished / "run.json", "config"),
        (list_checkpoints(finished)[-1] / "state.json", "train_config"),
    ):
        stored = read_json(path)
        for later in ("weight_init", "sentence_weight", "first_window", "window_share"):
            del stored["identity"][later], stored[key][later]
        write_json(path, stored)
    loop.train(tmp_path / "out", finished, load_config(finished), resume=True)
    with pytest.raises(CheckpointError, match="weight_init is 'scaled', but .* has 'paper'"):
        loop.train(tmp_path / "out", finished, dataclasses.replace(config, weight_init="scaled"), resume=True)


def test_settings_that_only_affect_the_records_may_change_on_resume(toys, finished, tmp_path):
    shutil.rmtree(list_checkpoints(finished)[-1])
    loop.train(tmp_path / "out", finished, dataclasses.replace(CONFIG, log_every=1, eval_every=1), resume=True)
    assert toys.read_metrics(finished)[-1]["step"] == 10


def test_a_run_may_resume_with_smaller_micro_batches(toys, finished, tmp_path):
    shutil.rmtree(list_checkpoints(finished)[-1])
    loop.train(tmp_path / "out", finished, dataclasses.replace(CONFIG, micro_tokens=64), resume=True)
    assert toys.read_metrics(finished)[-1]["step"] == 10


@pytest.mark.parametrize("file", ["model.safetensors", "training.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_a_damaged_checkpoint_is_named_with_the_next_step(finished, tmp_path, file, damage):
    newest = list_checkpoints(finished)[-1]
    (newest / file).unlink() if damage == "missing" else (newest / file).write_bytes((newest / file).read_bytes()[:99])
    with pytest.raises(CheckpointError, match=rf"{newest.name} can't be read.*delete it"):
        loop.train(tmp_path / "out", finished, CONFIG, resume=True)
    shutil.rmtree(newest)
    loop.train(tmp_path / "out", finished, CONFIG, resume=True)


def test_a_checkpoint_without_its_optimiser_is_refused(finished, tmp_path):
    newest = list_checkpoints(finished)[-1]
    state = read_json(newest / "state.json")
    del state["loader"]
    write_json(newest / "state.json", state)
    with pytest.raises(CheckpointError, match=r"lacks what a run needs.*'loader'"):
        loop.train(tmp_path / "out", finished, CONFIG, resume=True)


def test_a_run_of_a_version_that_read_rows_in_another_order_is_not_continued(finished, tmp_path):
    newest = list_checkpoints(finished)[-1]
    state = read_json(newest / "state.json")
    del state["loader"]["order"]
    write_json(newest / "state.json", state)
    with pytest.raises(CheckpointError, match=r"another version.*resume with the version that saved it"):
        loop.train(tmp_path / "out", finished, CONFIG, resume=True)


@pytest.mark.parametrize("damage", ["shape", "missing part", "missing parameter", "all"])
def test_an_optimiser_of_other_shapes_is_refused(finished, tmp_path, damage):
    """PyTorch's fused kernels would read beyond a tensor that is too small."""
    newest = list_checkpoints(finished)[-1]
    tensors = load_file(newest / "training.safetensors")
    if damage == "shape":
        tensors["optimizer.0.exp_avg"] = tensors["optimizer.0.exp_avg"][:1].clone()
    elif damage == "missing part":
        del tensors["optimizer.0.exp_avg"]
    else:
        gone = "optimizer.0." if damage == "missing parameter" else "optimizer."
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(gone)}
    save_file(tensors, newest / "training.safetensors")
    with pytest.raises(CheckpointError, match="lacks what a run needs.*optimiser's state"):
        loop.train(tmp_path / "out", finished, CONFIG, resume=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [("identity", None), ("loader", {}), ("loader", "x"), ("step", "x"), ("tally", []), ("seconds", {})],
)
def test_a_damaged_state_is_refused_in_one_line(finished, tmp_path, key, value):
    newest = list_checkpoints(finished)[-1]
    state = read_json(newest / "state.json")
    write_json(newest / "state.json", {**state, key: value})
    with pytest.raises(CheckpointError):
        loop.train(tmp_path / "out", finished, CONFIG, resume=True)
