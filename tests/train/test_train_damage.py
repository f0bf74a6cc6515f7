"""Damaged files of a run are read or refused in one line, without a traceback and without waiting."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from refusals import check_refused
from safetensors.torch import load_file, save_file
from toy_rows import TINY

from albert_data.cli.main import run as run_command
from albert_data.errors import AlbertDataError, CheckpointError
from albert_data.interop.huggingface import config_to_huggingface, import_model, to_huggingface
from albert_data.interop.initial import load_initial
from albert_data.runs.figures import read_run
from albert_data.runs.page import write_run_page
from albert_data.runs.view import describe_run, run_to_dict
from albert_data.storage import Disk
from albert_data.train import loop
from albert_data.train.checkpoint import list_checkpoints, load_checkpoint, load_model

DEEP = b"[" * 100_000
HUGE = b"9" * 5000
RAW = (b"", b"\0" * 50, b"\xff\xfe{}", DEEP, b'{"a":' * 100_000, b"[]", b"null", b"\x1f\x8b\x08", HUGE, b"{}")


@pytest.fixture(scope="module")
def trained(finished_run, tmp_path_factory) -> Path:
    """A finished run, the same without its last checkpoint, and a folder of transformers; trained on toys."""
    folder = tmp_path_factory.mktemp("damage")
    for name in ("finished", "stopped"):
        shutil.copytree(finished_run, folder / name)
    shutil.rmtree(folder / "stopped" / "checkpoints" / "step-00000004")
    model = load_model(list_checkpoints(finished_run)[-1])
    (folder / "theirs").mkdir()
    save_file(to_huggingface(model), folder / "theirs" / "model.safetensors")
    (folder / "theirs" / "config.json").write_text(json.dumps(config_to_huggingface(model.config)))
    return folder


@pytest.fixture
def copy(trained, tmp_path):
    """copy(source): a copy of one of the folders of `trained`, to be damaged."""
    return lambda source, name="run": Path(shutil.copytree(trained / source, tmp_path / name))


@pytest.fixture
def readers(toys, use_shards, tmp_path):
    """Return all functions that read a run, by name."""
    use_shards(toys.make_shards(40), toys.make_shards(10, seed=1))
    return {
        "resume": lambda run: loop.train(tmp_path / "out", run, TINY, resume=True),
        "inspect": lambda run: (describe_run(run), json.dumps(run_to_dict(run))),
        "page": write_run_page,
        "init": load_initial,
        "import": import_model,
    }


CHECKPOINT = "checkpoints/step-00000002"
JSON_FILES = (
    *(("stopped", "resume", name) for name in ("run.json", "metrics.jsonl", f"{CHECKPOINT}/state.json")),
    *(("finished", reader, name) for reader in ("inspect", "page") for name in ("run.json", "metrics.jsonl")),
    ("stopped", "init", f"{CHECKPOINT}/state.json"),
    ("theirs", "import", "config.json"),
)
TENSOR_FILES = (
    *(("stopped", "resume", f"{CHECKPOINT}/{name}") for name in ("model.safetensors", "training.safetensors")),
    ("stopped", "init", f"{CHECKPOINT}/model.safetensors"),
    ("theirs", "import", "model.safetensors"),
)


@pytest.mark.parametrize(("source", "reader", "name"), [*JSON_FILES, *TENSOR_FILES])
@pytest.mark.parametrize("kind", ["FIFO", "device", "folder", "loop"])
def test_a_path_that_is_not_a_file_is_refused_without_waiting(copy, readers, source, reader, name, kind):
    run = copy(source)
    path = run / name
    path.unlink()
    make = {"FIFO": os.mkfifo, "folder": Path.mkdir, "device": lambda path: path.symlink_to("/dev/zero")}
    make.get(kind, lambda path: path.symlink_to(path))(path)
    with pytest.raises(AlbertDataError) as caught:
        readers[reader](run)
    assert "\n" not in str(caught.value)
    if reader == "resume" and name.endswith(("run.json", "state.json")) and kind in ("FIFO", "folder"):
        assert f"it is a {kind}; a regular file is needed" in str(caught.value)


@pytest.mark.parametrize("content", RAW, ids=lambda content: repr(content[:8]))
@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl"])
def test_runs_says_in_one_line_what_is_wrong_with_a_file(copy, capsys, name, content):
    run = copy("finished")
    (run / name).write_bytes(content + b"\n" + (run / name).read_bytes())
    code = run_command(["runs", str(run)])
    shown = capsys.readouterr().err
    assert code == 0 or (code == 1 and shown.startswith("Error: ") and shown.count("\n") == 1)


def test_a_number_too_large_for_a_float_is_left_out_of_a_curve(copy):
    run = copy("finished")
    lines = [{"step": step, "split": "train", "mlm_loss": loss} for step, loss in enumerate((10**400, 1e308, 2.5), 1)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_run(run).points("mlm_loss", "train") == [(3, 2.5)]
    assert write_run_page(run) is not None


# ---- tensors ----


@pytest.mark.parametrize(
    ("source", "reader"),
    [("stopped", "resume"), ("stopped", "init"), ("theirs", "init"), ("finished", "page"), ("finished", "inspect")],
)
def test_a_run_or_a_model_is_read_under_a_name_that_is_not_utf_8(copy, readers, source, reader):
    readers[reader](copy(source, os.fsdecode(b"run-\xff")))


@pytest.mark.parametrize(("source", "reader"), [("stopped", "resume"), ("theirs", "init")])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EMFILE])
def test_a_file_that_cannot_be_opened_is_not_called_damaged(trained, readers, monkeypatch, source, reader, number):
    def refuse(disk, path, opened=Disk.open):
        if path.suffix == ".safetensors":
            raise OSError(number, os.strerror(number))
        return opened(disk, path)

    monkeypatch.setattr(Disk, "open", refuse)
    with pytest.raises(CheckpointError, match=f"{os.strerror(number)}.*; it may be whole: make it readable") as error:
        readers[reader](trained / source)
    assert "delete" not in str(error.value)


@pytest.mark.parametrize("dtype", [torch.int32, torch.float16])
def test_weights_of_another_type_are_refused(copy, dtype):
    path = list_checkpoints(copy("stopped"))[-1]
    weights = load_file(path / "model.safetensors")
    save_file({**weights, "pooler.bias": weights["pooler.bias"].to(dtype)}, path / "model.safetensors")
    with pytest.raises(CheckpointError, match=rf"pooler.bias is of {dtype}; torch.float32 is needed"):
        load_checkpoint(path)


def test_integer_tensors_of_a_folder_of_transformers_are_refused(copy):
    path = copy("theirs") / "model.safetensors"
    weights = load_file(path)
    save_file({**weights, "albert.pooler.bias": weights["albert.pooler.bias"].to(torch.int32)}, path)
    with pytest.raises(CheckpointError, match=r"albert.pooler.bias' is of torch.int32; floats"):
        import_model(path.parent)


@pytest.fixture
def newest(copy) -> Path:
    """The newest checkpoint of a copy of the stopped run."""
    return list_checkpoints(copy("stopped"))[-1]


@pytest.mark.parametrize("file", ["model.safetensors", "training.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_a_damaged_checkpoint_is_named_with_the_next_step(readers, newest, file, damage):
    (newest / file).unlink() if damage == "missing" else (newest / file).write_bytes((newest / file).read_bytes()[:99])
    named = f"{newest.name} can't be read & delete it"
    check_refused(lambda: readers["resume"](newest.parents[1]), CheckpointError, named)


@pytest.mark.parametrize("damage", ["shape", "missing part", "missing parameter", "all"])
def test_an_optimiser_of_other_shapes_is_refused(readers, newest, damage):
    """PyTorch's fused kernels would read beyond a tensor that is too small."""
    tensors = load_file(newest / "training.safetensors")
    if damage == "shape":
        tensors["optimizer.0.exp_avg"] = tensors["optimizer.0.exp_avg"][:1].clone()
    else:
        gone = {"missing part": "optimizer.0.exp_avg", "missing parameter": "optimizer.0.", "all": "optimizer."}[damage]
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(gone)}
    save_file(tensors, newest / "training.safetensors")
    named = "lacks what a run needs & optimiser's state"
    check_refused(lambda: readers["resume"](newest.parents[1]), CheckpointError, named)


IMPOSSIBLE = {
    "step": (-1, True, 2.5, 10**400, None, "x"),
    "seconds": (-1, float("nan"), float("inf"), 10**400, "1", {}),
    "schedule_begin": (float("nan"), []),
    "identity": (None,),
    "loader": ("x", *({"epoch": value} for value in (2**40, -1, True, 0.5, 10**400, "0", None))),
    "work_seconds": ([], *({"evaluation": value} for value in (-1, float("nan"), "1"))),
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key in IMPOSSIBLE for value in IMPOSSIBLE[key]], ids=repr)
def test_an_impossible_value_in_a_run_is_refused(readers, newest, key, value):
    state = json.loads((newest / "state.json").read_text())
    state[key] = {**state[key], **value} if isinstance(value, dict) and key != "seconds" else value
    (newest / "state.json").write_text(json.dumps(state))
    check_refused(lambda: readers["resume"](newest.parents[1]), CheckpointError, "")


def test_a_state_that_lacks_a_part_is_refused(readers, newest):
    state = json.loads((newest / "state.json").read_text())
    del state["loader"]["order"]
    named = "another version & resume with the version that saved it"
    for changed in (state, {name: value for name, value in state.items() if name != "loader"}):
        (newest / "state.json").write_text(json.dumps(changed))
        check_refused(lambda: readers["resume"](newest.parents[1]), CheckpointError, named)
        named = "lacks what a run needs & 'loader'"


@pytest.mark.parametrize("lacking", ["hidden_size", "dropout"])
def test_a_shape_without_a_size_is_refused_and_gets_no_default(copy, lacking):
    run = copy("finished")
    content = json.loads((run / "run.json").read_text())
    del content["model"][lacking]
    (run / "run.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=f"the model's shape lacks {lacking}"):
        describe_run(run)
