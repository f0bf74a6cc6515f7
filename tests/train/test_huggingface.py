"""A model gives the same results here and in transformers; an exported folder loads without a network."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import toy_rows
from refusals import check_refused, refused

from albert_data.cli.main import run as run_command
from albert_data.errors import CheckpointError, ConfigError, OutputError
from albert_data.shards.manifest_file import read_manifest
from albert_data.tokenizer.model import load_tokenizer
from albert_data.train.batch import collate
from albert_data.train.config import AlbertConfig
from albert_data.train.model import Albert
from albert_data.version import __version__

pytest.importorskip("safetensors", reason="the train extra is not installed")
transformers = pytest.importorskip("transformers", reason="the huggingface extra is not installed")

huggingface = pytest.importorskip("albert_data.interop.huggingface")

SAMPLES = Path(__file__).parent.parent.parent / "sample_corpus"
SMALL = dataclasses.replace(toy_rows.SMALL, vocab_size=40, max_positions=32, num_layers=4, num_heads=4)
SHAPES = {
    "base": {},
    "groups": {"num_groups": 2},
    "inner groups": {"num_inner_groups": 2},
    "groups and inner groups": {"num_groups": 2, "num_inner_groups": 3},
    "E = H": {"embedding_size": 32},
    "none": {"share": "none", "num_inner_groups": 2},
    "attention": {"share": "attention"},
    "attention in groups": {"share": "attention", "num_groups": 2, "num_inner_groups": 2},
    "ffn": {"share": "ffn", "num_groups": 2},
    "dropout": {"dropout": 0.1},
}
FILES = ("config.json", "model.safetensors", "spiece.model", "tokenizer.json", "tokenizer_config.json")


@torch.no_grad()
def disturb(model: torch.nn.Module) -> None:
    """With weights from N(0, 0.02) attention is nearly uniform, and biases are 0."""
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.2)


def random_model(config: AlbertConfig) -> Albert:
    torch.manual_seed(1)
    model = Albert(config).eval()
    disturb(model)
    return model


def write_with_transformers(folder: Path, kind: str = "AlbertForPreTraining", **settings: object):
    """Save a random model as transformers does, and return it."""
    torch.manual_seed(2)
    sizes = {
        **{"vocab_size": 40, "max_position_embeddings": 32, "embedding_size": 16, "hidden_size": 32},
        **{"num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 64},
    }
    model = getattr(transformers, kind)(transformers.AlbertConfig(**{**sizes, **settings})).eval()
    disturb(model)
    model.save_pretrained(folder)
    return model


@pytest.fixture(params=SHAPES)
def config(request) -> AlbertConfig:
    return dataclasses.replace(SMALL, **SHAPES[request.param])


@pytest.fixture
def batch(toys):
    made = collate(toys.make_shards(10).rows(np.arange(10)), pad_id=0)
    assert not made.valid_BT.all(), "the batch has padding"
    return made


@torch.no_grad()
def check_equal_logits(ours: Albert, theirs, batch) -> None:
    """Compare MLM at the masked tokens and SOP: to 1e-5 in float32, to 1e-11 in float64, which shows smaller errors."""
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-11)):
        here = ours.to(dtype)(batch)
        there = theirs.to(dtype)(
            input_ids=batch.input_ids_BT,
            attention_mask=batch.valid_BT.long(),
            token_type_ids=batch.segment_ids_BT,
        )
        masked = there.prediction_logits.flatten(0, 1)[batch.masked_indices_N]
        assert here.mlm_logits_NV.abs().max() > 1
        torch.testing.assert_close(here.mlm_logits_NV, masked, atol=tolerance, rtol=0)
        torch.testing.assert_close(here.sop_logits_BK, there.sop_logits, atol=tolerance, rtol=0)


# ---- weights ----


def test_a_model_of_ours_gives_transformers_the_same_logits(config, batch):
    ours = random_model(config)
    theirs = transformers.AlbertForPreTraining(
        transformers.AlbertConfig(**huggingface.config_to_huggingface(config))
    ).eval()
    found = theirs.load_state_dict(huggingface.to_huggingface(ours), strict=False)
    assert set(found.missing_keys) <= {"predictions.decoder.weight", "predictions.decoder.bias"}
    assert not found.unexpected_keys
    check_equal_logits(ours, theirs, batch)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_hidden_groups": 2, "inner_group_num": 2},
        {"num_hidden_groups": 4},
        {"embedding_size": 32},
        {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
    ],
    ids=str,
)
def test_a_model_of_transformers_gives_us_the_same_logits_and_one_of_16_bits_is_read(settings, tmp_path, batch):
    theirs = write_with_transformers(tmp_path, **settings)
    ours = huggingface.import_model(tmp_path)
    assert not ours.training
    check_equal_logits(ours, theirs, batch)
    theirs.half().save_pretrained(tmp_path)
    assert {p.dtype for p in huggingface.import_model(tmp_path).parameters()} == {torch.float32}


def test_a_model_carried_there_and_back_is_the_same_to_the_bit(config, tokenizer, tmp_path):
    ours = random_model(dataclasses.replace(config, vocab_size=tokenizer.vocab_size))
    huggingface.write_folder(ours, tokenizer, tmp_path / "model")
    back = huggingface.import_model(str(tmp_path / "model"))
    if config.share == "all":
        assert back.config == ours.config
        assert all(torch.equal(value, back.state_dict()[name]) for name, value in ours.state_dict().items())
    written, again = huggingface.to_huggingface(ours), huggingface.to_huggingface(back)
    assert written.keys() == again.keys()
    assert all(torch.equal(value, again[name]) for name, value in written.items())


# ---- a folder, with the network off ----


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*arguments, **_):
        raise AssertionError(f"a connection to {arguments[1:]} was tried")

    monkeypatch.setattr("socket.socket.connect", refuse)


def test_transformers_loads_every_weight_and_the_tokenizer_of_a_folder(tokenizer, tmp_path, batch):
    config = dataclasses.replace(SMALL, vocab_size=tokenizer.vocab_size)
    huggingface.write_folder(random_model(config), tokenizer, tmp_path)
    assert tuple(sorted(path.name for path in tmp_path.iterdir())) == FILES
    assert (tmp_path / "spiece.model").read_bytes() == tokenizer.model
    model, report = transformers.AlbertForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[f"{what}_keys"] for what in ("missing", "unexpected", "mismatched"))
    check_equal_logits(huggingface.import_model(tmp_path), model.eval(), batch)
    assert transformers.AutoTokenizer.from_pretrained(tmp_path).model_max_length == SMALL.max_positions


# ---- from the command line ----


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with shards of the sample corpus and a run of two steps on them."""
    folder = tmp_path_factory.mktemp("trained")
    shards, run, vocab = (str(folder / name) for name in ("shards", "run", "vocab"))
    assert run_command(["vocab", str(SAMPLES), "--vocab-size", "4000", "--workers", "1", "-o", vocab]) == 0
    arguments = ["--max-seq-len", "64", "--workers", "1", "--license", "CC0-1.0", "--language", "en", "-o", shards]
    assert run_command(["build", str(SAMPLES), "--tokenizer", vocab, *arguments]) == 0
    assert run_command(["train", shards, "--preset", "tiny", "--steps", "2", "--device", "cpu", "-o", run]) == 0
    return folder


@pytest.fixture(scope="module")
def exported(trained) -> Path:
    out = trained / "model"
    assert run_command(["export", str(trained / "run"), "-o", str(out)]) == 0
    return out


def test_the_exported_tokenizer_gives_our_ids_of_the_sample_corpus(exported):
    names = ("chinese.txt", "english-1.txt")
    texts = [line for name in names for line in (SAMPLES / name).read_text().splitlines() if line]
    tokenizer, theirs = load_tokenizer(exported), transformers.AlbertTokenizer.from_pretrained(exported)
    ids, offsets = tokenizer.encode(texts)
    ours = [ids[begin:end].tolist() for begin, end in zip(offsets[:-1], offsets[1:], strict=True)]
    assert theirs(texts, add_special_tokens=False)["input_ids"] == ours


# ---- what can't be done, in one line ----


def fails(capsys, *arguments: object) -> str:
    """Return the line of an export that fails with exit code 1."""
    capsys.readouterr()
    assert run_command(["export", *map(str, arguments)]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("Error: ")
    assert shown.count("\n") == 1
    return shown


@pytest.mark.parametrize(
    ("lacks", "options", "words"),
    [
        ("run.json", "", "run is not a training run (run.json is missing)"),
        ("checkpoints", "", "the run has no checkpoint yet; continue it with"),
        ("", "--checkpoint other.model", "other.model"),
        ("", "--checkpoint missing", "no such checkpoint"),
        ("tokenizer", "", "run holds no tokenizer (tokenizer/spiece.model is missing); copy"),
        ("tokenizer/spiece.model", "", "spiece.model is not the tokenizer"),
        ("", "-o other.model", "is a file"),
    ],
)
def test_an_export_that_can_not_be_done_writes_nothing(trained, here, tokenizer_model, capsys, lacks, options, words):
    run = Path(shutil.copytree(trained / "run", "run"))
    Path("other.model").write_bytes(tokenizer_model)
    if (run / lacks).is_dir() and lacks:
        shutil.rmtree(run / lacks)
    elif lacks:
        (run / lacks).unlink()
    if lacks == "tokenizer/spiece.model":
        shutil.copy("other.model", run / lacks)
    shown = fails(capsys, "run", "-o", "model", *options.split())
    assert all(part in shown for part in words.split(" & "))
    assert not Path("model").exists()


def test_a_model_and_a_tokenizer_of_other_sizes_are_refused(tokenizer, tmp_path):
    model = random_model(SMALL)
    with pytest.raises(ConfigError, match="pieces, but the model has 40; give the tokenizer of the shards"):
        huggingface.write_folder(model, tokenizer, tmp_path / "model")


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        *(
            (kind, name, "another ")
            for kind, name in zip(("file", "folder", "link", "FIFO", "link"), FILES, strict=True)
        ),
        *(("file", name, "") for name in ("added_tokens.json", "special_tokens_map.json", "adapter_config.json")),
    ],
)
def test_a_file_of_somebody_else_is_never_replaced_nor_read(trained, tmp_path, capsys, kind, name, words):
    out, other = tmp_path / "model", tmp_path / "other"
    out.mkdir()
    other.write_text("mine")
    make = {"file": lambda path: path.write_text("mine"), "folder": Path.mkdir, "FIFO": os.mkfifo}
    make["link"] = lambda path: path.symlink_to(other)
    make[kind](out / name)
    shown = fails(capsys, trained / "run", "-o", out)
    assert f"{out} holds {words}{name}" in shown
    assert "choose another --output" in shown
    assert [path.name for path in out.iterdir()] == [name]
    assert other.read_text() == "mine"
    assert kind != "file" or (out / name).read_text() == "mine"


def test_the_card_of_a_run_has_its_figures_and_no_markup_of_its_name(trained, tmp_path, golden):
    run = Path(shutil.copytree(trained / "run", tmp_path / "`<b>x\n# y\x1b[31m"))
    known = {"mlm_loss": 8.25, "mlm_accuracy": 0.125, "sop_loss": 0.75, "sop_accuracy": 0.5, "sop_error": 0.1}
    lines = [known | {"step": 2, "split": split} for split in ("validation", "train")]
    lines.append({"step": 3, "split": "validation", "mlm_loss": 1.5})
    cards = []
    for number, metrics in enumerate(("".join(json.dumps(line) + "\n" for line in lines), "not metrics\n", None)):
        (run / "metrics.jsonl").unlink() if metrics is None else (run / "metrics.jsonl").write_text(metrics)
        assert run_command(["export", str(run), "-o", str(tmp_path / f"{number}")]) == 0
        cards.append((tmp_path / f"{number}" / "README.md").read_text())
    digest = read_manifest(trained / "shards").digest
    golden("model_card.md", cards[0].replace(digest, "DIGEST").replace(__version__, "VERSION"))
    bare = [line for line in cards[0].splitlines() if "validation" not in line]
    assert cards[1].splitlines() == cards[2].splitlines() == bare


def test_other_files_in_the_folder_do_not_stop_an_export_and_stay(trained, exported, tmp_path, capsys):
    names = (".DS_Store", "README.md", "notes/todo.txt")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    assert run_command(["export", str(trained / "run"), "-o", str(tmp_path)]) == 0
    assert f"transformers.pipeline('fill-mask', model='{tmp_path}')" in capsys.readouterr().out
    assert [(tmp_path / name).read_text() for name in names] == ["mine"] * 3
    assert all((tmp_path / name).read_bytes() == (exported / name).read_bytes() for name in FILES)


def test_an_export_that_was_killed_is_completed_by_the_same_command(trained, exported, tmp_path):
    shutil.copytree(exported, tmp_path / "model")
    (tmp_path / "model" / "config.json").unlink()
    before = (tmp_path / "model" / "model.safetensors").stat().st_ino
    assert run_command(["export", str(trained / "run"), "-o", str(tmp_path / "model")]) == 0
    assert (tmp_path / "model" / "config.json").read_bytes() == (exported / "config.json").read_bytes()
    assert (tmp_path / "model" / "model.safetensors").stat().st_ino == before


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("own", [None, "notes.txt"])
def test_an_export_that_fails_leaves_the_folder_unchanged(tokenizer, tmp_path, monkeypatch, fault, own):
    out = tmp_path / "model"
    if own is not None:
        out.mkdir()
        (out / own).write_text("mine")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=[None, fault]))
    model = random_model(dataclasses.replace(SMALL, vocab_size=tokenizer.vocab_size))
    with pytest.raises(KeyboardInterrupt if isinstance(fault, KeyboardInterrupt) else OutputError):
        huggingface.write_folder(model, tokenizer, out)
    assert out.exists() == (own is not None)
    assert own is None or [path.name for path in out.iterdir()] == [own]


# ---- folders of other models ----


@refused(
    ({"model_type": "bert"}, ConfigError, "model_type 'bert'"),
    ({"hidden_act": "gelu"}, ConfigError, "hidden_act 'gelu'"),
    ({"type_vocab_size": 3}, ConfigError, "type_vocab_size 3"),
    ({"attention_probs_dropout_prob": 0.5}, ConfigError, "one dropout & config.json"),
    ({"hidden_size": ...}, ConfigError, "lacks hidden_size"),
    ({"num_hidden_groups": 3}, ConfigError, "num_groups is 3"),
    ({"hidden_size": "32"}, ConfigError, "hidden_size is '32', of the type str; a whole number is needed"),
    ({"hidden_size": 32.0}, ConfigError, "hidden_size is 32.0, of the type float"),
    ({"num_attention_heads": 4.0}, ConfigError, "num_heads is 4.0, of the type float"),
    ({"num_hidden_groups": None}, ConfigError, "num_groups is None, of the type NoneType"),
    ({"vocab_size": 2**31 - 1}, CheckpointError, "word_embeddings.weight has shape (40, 16)"),
    ({"vocab_size": 10**4000}, ConfigError, "config.json: vocab_size is 1000 & 00..."),
    ({"vocab_size": 41}, CheckpointError, "word_embeddings.weight has shape (40, 16) & (41, 16)"),
    ({"num_hidden_groups": 2}, CheckpointError, "lack albert.encoder.albert_layer_groups.1"),
    ({"inner_group_num": 1}, CheckpointError, "hold albert & albert_layers.1"),
)
def test_a_folder_of_another_model_is_refused(call, kind, named, tmp_path):
    write_with_transformers(tmp_path, inner_group_num=2 if "inner_group_num" in call else 1)
    settings = json.loads((tmp_path / "config.json").read_text()) | call
    settings = {name: value for name, value in settings.items() if value is not ...}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    assert len(check_refused(lambda: huggingface.import_model(tmp_path), kind, named)) < 500


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_damaged_file_of_a_folder_is_named(name, tmp_path):
    write_with_transformers(tmp_path)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:50])
    check_refused(lambda: huggingface.import_model(tmp_path), CheckpointError, f"{name} can't be read (")
    (tmp_path / name).unlink()
    check_refused(lambda: huggingface.import_model(tmp_path), CheckpointError, name)
