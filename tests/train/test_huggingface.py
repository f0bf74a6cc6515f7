"""A model gives the same results here and in transformers; an exported folder loads without a network."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from toy_language import train_model

from albert_data.cli.main import run as run_command
from albert_data.errors import CheckpointError, ConfigError, OutputError, TokenizerError
from albert_data.shards.manifest_file import read_manifest
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from albert_data.tokenizer.sentencepiece.proto import read_settings
from albert_data.train.config import AlbertConfig
from albert_data.train.data.batch import collate
from albert_data.train.model.checkpoint import list_checkpoints, load_model
from albert_data.train.model.model import Albert
from albert_data.train.model.sizes import count_parameters
from albert_data.wording import format_share

pytest.importorskip("safetensors", reason="the train extra is not installed")
transformers = pytest.importorskip("transformers", reason="the huggingface extra is not installed")

huggingface = pytest.importorskip("albert_data.interop.huggingface")
huggingface_tokenizer = pytest.importorskip("albert_data.interop.huggingface_tokenizer")

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "docs" / "examples"
SMALL = AlbertConfig(
    vocab_size=40, max_positions=32, embedding_size=16, hidden_size=32, num_layers=4, num_heads=4, ffn_size=64
)
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
TEXTS = [
    "The water of the long river is very little.",
    "we find their PEOPLE, and they call; do they?",
    "naïve Café Ünïcode — émigré",
    "ｆｕｌｌ ｗｉｄｔｈ １２３ ﬁne",
    "今天天气很好，我们去学习语言。",
    "  white\tspace   all  over\u00a0it \u3000 ",
    'numbers 1,234.5 and ("quoted") words',
    "mixed 中文 and English 文字",
    "unknown 🙂 signs ☃☃ here",
    "don't can't it's",
    "",
]


def random_model(config: AlbertConfig, seed: int = 1) -> Albert:
    torch.manual_seed(seed)
    model = Albert(config).eval()
    with torch.no_grad():  # with weights from N(0, 0.02) attention is nearly uniform, and biases are 0
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
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


def write_with_transformers(folder: Path, **settings: object):
    torch.manual_seed(2)
    sizes = {
        **{"vocab_size": 40, "max_position_embeddings": 32, "embedding_size": 16, "hidden_size": 32},
        **{"num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 64},
    }
    model = transformers.AlbertForPreTraining(transformers.AlbertConfig(**{**sizes, **settings})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    return model


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
def test_a_model_of_transformers_gives_us_the_same_logits(settings, tmp_path, batch):
    theirs = write_with_transformers(tmp_path, **settings)
    ours = huggingface.import_model(tmp_path)
    assert not ours.training
    check_equal_logits(ours, theirs, batch)


def test_a_model_carried_there_and_back_is_the_same_to_the_bit(config, tokenizer, tmp_path):
    ours = random_model(dataclasses.replace(config, vocab_size=tokenizer.vocab_size))
    huggingface.write_folder(ours, tokenizer, tmp_path / "model")
    back = huggingface.import_model(str(tmp_path / "model"))
    if config.share == "all":
        assert back.config == ours.config
        assert all(torch.equal(value, back.state_dict()[name]) for name, value in ours.state_dict().items())
    pairs = zip(ours.config.inner_layers(), back.config.inner_layers(), strict=True)
    for (attention, ffn), (other_attention, other_ffn) in pairs:
        for one, other in (
            (ours.encoder.attentions[attention], back.encoder.attentions[other_attention]),
            (ours.encoder.ffns[ffn], back.encoder.ffns[other_ffn]),
        ):
            assert all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


def test_weights_in_16_bits_are_read_as_float32(tmp_path):
    theirs = write_with_transformers(tmp_path)
    theirs.half().save_pretrained(tmp_path)
    assert {p.dtype for p in huggingface.import_model(tmp_path).parameters()} == {torch.float32}


# ---- a folder, with the network off ----


@pytest.fixture
def folder(tokenizer, tmp_path) -> Path:
    config = dataclasses.replace(SMALL, vocab_size=tokenizer.vocab_size)
    huggingface.write_folder(random_model(config), tokenizer, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*arguments, **_):
        raise AssertionError(f"a connection to {arguments[1:]} was tried")

    monkeypatch.setattr("socket.socket.connect", refuse)


def test_transformers_loads_every_weight_of_the_folder(folder, batch):
    model, report = transformers.AlbertForPreTraining.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert not report["mismatched_keys"]
    check_equal_logits(huggingface.import_model(folder), model.eval(), batch)


def test_the_folder_has_the_tokenizer_unchanged(folder, tokenizer_model):
    assert sorted(path.name for path in folder.iterdir()) == [
        *("config.json", "model.safetensors", "spiece.model", "tokenizer.json", "tokenizer_config.json")
    ]
    assert (folder / "spiece.model").read_bytes() == tokenizer_model


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("auto", [False, True], ids=["AlbertTokenizer", "AutoTokenizer"])
def test_the_exported_tokenizer_gives_our_ids(folder, tokenizer, text, auto):
    theirs = (transformers.AutoTokenizer if auto else transformers.AlbertTokenizer).from_pretrained(folder)
    ids, _ = tokenizer.encode([text])
    assert theirs(text)["input_ids"] == [tokenizer.cls_id, *ids.tolist(), tokenizer.sep_id]


def test_the_exported_tokenizer_gives_our_ids_of_ordinary_sentences(folder, tokenizer, sentences):
    theirs = transformers.AlbertTokenizer.from_pretrained(folder)
    ids, offsets = tokenizer.encode(sentences)
    ours = [ids[begin:end].tolist() for begin, end in zip(offsets[:-1], offsets[1:], strict=True)]
    assert theirs(sentences, add_special_tokens=False)["input_ids"] == ours


def test_the_exported_tokenizer_supports_the_mask_and_two_segments(folder, tokenizer):
    theirs = transformers.AlbertTokenizer.from_pretrained(folder)
    (left, right), cls, sep = [tokenizer.encode([t])[0].tolist() for t in ("the long", "river.")], 2, 3
    assert theirs("the long [MASK] river.")["input_ids"] == [cls, *left, tokenizer.mask_id, *right, sep]
    pair = theirs("the long", "river.")
    assert pair["input_ids"] == [cls, *left, sep, *right, sep]
    assert pair["token_type_ids"] == [0] * (len(left) + 2) + [1] * (len(right) + 1)
    for name, value in tokenizer.specials.to_dict().items():
        assert getattr(theirs, f"{name.removesuffix('_id')}_token_id") == value
    assert theirs.model_max_length == SMALL.max_positions
    assert theirs.decode(left + right) == "the long river."


def test_an_uncased_tokenizer_stays_uncased(tmp_path):
    model = train_model(normalization_rule_name="nmt_nfkc_cf")
    tokenizer = Tokenizer(model, "an uncased tokenizer")
    config = dataclasses.replace(SMALL, vocab_size=tokenizer.vocab_size)
    huggingface.write_folder(random_model(config), tokenizer, tmp_path)
    theirs = transformers.AlbertTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert theirs(text, add_special_tokens=False)["input_ids"] == tokenizer.encode([text])[0].tolist()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"model_type": "bpe"}, "not a unigram model"),
        ({"byte_fallback": True, "vocab_size": 700}, "as bytes"),
        ({"unk_id": 0, "pad_id": 1}, "id 0, where 1 is needed"),
        ({"remove_extra_whitespaces": False}, "white space"),
        ({"treat_whitespace_as_suffix": True}, "a space after each word"),
        ({"split_by_whitespace": False}, "more than one word"),
    ],
)
def test_a_tokenizer_that_transformers_would_read_differently_is_refused(settings, reason, tmp_path):
    tokenizer = Tokenizer(train_model(**settings), "a tokenizer")
    model = random_model(dataclasses.replace(SMALL, vocab_size=tokenizer.vocab_size))
    with pytest.raises(TokenizerError, match=reason):
        huggingface.write_folder(model, tokenizer, tmp_path / "model")
    assert not (tmp_path / "model").exists()


# ---- from the command line ----


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with shards of the sample corpus and a run of two steps on them."""
    folder = tmp_path_factory.mktemp("trained")
    corpus = str(ROOT / "sample_corpus")
    shards, run = str(folder / "shards"), str(folder / "run")
    vocab = str(folder / "vocab")
    assert run_command(["vocab", corpus, "--vocab-size", "4000", "--workers", "1", "-o", vocab]) == 0
    arguments = ["--max-seq-len", "64", "--workers", "1", "--license", "CC0-1.0", "--language", "en", "-o", shards]
    assert run_command(["build", corpus, "--tokenizer", vocab, *arguments]) == 0
    assert run_command(["train", shards, "--preset", "tiny", "--steps", "2", "--device", "cpu", "-o", run]) == 0
    return folder


@pytest.fixture(scope="module")
def exported(trained) -> Path:
    out, pieces = trained / "model", str(trained / "shards" / "tokenizer")
    assert run_command(["export", str(trained / "run"), "-o", str(out), "--tokenizer", pieces]) == 0
    return out


def run_example(name: str, *arguments: str) -> str:
    """Run an example as a user does, without a network."""
    code = (
        "import runpy, socket, sys\n"
        "def refuse(*_): raise AssertionError('a connection was tried')\n"
        "socket.socket.connect = refuse\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-c", code, str(EXAMPLES / name), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES)}  # as `python EXAMPLE` has
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_trained_run_gives_transformers_the_same_hidden_states(trained, exported):
    ours = load_model(list_checkpoints(trained / "run")[-1])
    theirs = transformers.AlbertForPreTraining.from_pretrained(exported).eval()
    ids_BT = torch.randint(5, 4000, (3, 20), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        pooled_BH = torch.tanh(ours.pooler(ours.encoder(ours.embeddings(ids_BT, torch.zeros_like(ids_BT)), None)[:, 0]))
        torch.testing.assert_close(theirs.albert(ids_BT).pooler_output, pooled_BH, atol=1e-5, rtol=0)


def test_the_exported_tokenizer_gives_our_ids_of_the_sample_corpus(exported):
    texts = [line for line in (ROOT / "sample_corpus" / "chinese.txt").read_text().splitlines() if line]
    texts += [line for line in (ROOT / "sample_corpus" / "english-1.txt").read_text().splitlines() if line]
    tokenizer, theirs = load_tokenizer(exported), transformers.AlbertTokenizer.from_pretrained(exported)
    ids, offsets = tokenizer.encode(texts)
    wrong = [
        text
        for text, there, begin, end in zip(
            texts, theirs(texts, add_special_tokens=False)["input_ids"], offsets[:-1], offsets[1:], strict=True
        )
        if there != ids[begin:end].tolist()
    ]
    assert not wrong


def test_the_fill_mask_example_runs(exported):
    shown = run_example("fill_mask.py", str(exported), "今天的[MASK]很好。", "--top", "3")
    assert re.fullmatch(r"( *\d+\.\d%  .*\n){3}", shown), shown


def test_the_multiple_choice_example_learns(exported):
    shown = run_example("multiple_choice.py", str(exported))
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", shown)]
    assert losses[0] == pytest.approx(1.386, abs=0.3)  # ln 4
    assert losses[-1] < 0.5
    assert "right: 8 of 8" in shown
    assert len(re.findall(r"^ *\d+\.\d%  ", shown, re.MULTILINE)) == 4


# ---- what can't be done, in one line ----


def fails(capsys, *arguments: object) -> str:
    """Return the line of an export that fails with exit code 1."""
    capsys.readouterr()
    assert run_command(["export", *map(str, arguments)]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("Error: ")
    assert shown.count("\n") == 1
    return shown


def test_a_folder_without_a_run_is_refused_by_export(trained, tmp_path, capsys):
    for path in (tmp_path, tmp_path / "missing", trained / "shards"):
        assert "is not a training run (run.json is missing)" in fails(capsys, path, "-o", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_run_without_a_checkpoint_is_refused(trained, tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(trained / "run" / "run.json", run)
    assert "the run has no checkpoint yet; continue it with" in fails(capsys, run, "-o", tmp_path / "model")


def test_a_damaged_or_missing_checkpoint_is_refused(trained, tmp_path, capsys):
    damaged = tmp_path / "step-00000002.pt"
    damaged.write_bytes(b"no checkpoint")
    options = ["-o", tmp_path / "model", "--tokenizer", trained / "shards" / "tokenizer", "--checkpoint"]
    assert str(damaged) in fails(capsys, trained / "run", *options, damaged)
    assert "no such checkpoint" in fails(capsys, trained / "run", *options, tmp_path / "missing")
    assert not (tmp_path / "model").exists()


FILES = ("config.json", "model.safetensors", "spiece.model", "tokenizer.json", "tokenizer_config.json")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["file", "folder", "link", "FIFO"])
def test_a_file_of_somebody_else_is_never_replaced(trained, tmp_path, capsys, name, kind):
    out, other = tmp_path / "model", tmp_path / "other"
    out.mkdir()
    other.write_text("mine")
    make = {"file": lambda path: path.write_text("mine"), "folder": Path.mkdir, "FIFO": os.mkfifo}
    make["link"] = lambda path: path.symlink_to(other)
    make[kind](out / name)
    assert f"{out} holds another {name}; choose another --output" in fails(capsys, trained / "run", "-o", out)
    assert [path.name for path in out.iterdir()] == [name]
    assert other.read_text() == "mine"
    assert kind != "file" or (out / name).read_text() == "mine"


def test_the_card_says_what_the_model_is_and_how_well_it_predicts(trained, exported):
    card = (exported / "README.md").read_text()
    head = (
        'library_name: "transformers"\npipeline_tag: "fill-mask"\nlicense: "cc0-1.0"\nlanguage: ["en"]\ntags: ["albert"'
    )
    assert card.startswith(f"---\n{head}, ")
    config, line = load_model(list_checkpoints(trained / "run")[-1]).config, read_validation(trained / "run")
    for words in (
        "| layers | 4 of hidden size 128, 4 attention heads, feed-forward size 512, sharing: all |",
        f"| parameters | {count_parameters(config).all:,}, shared ones counted once |",
        "Checkpoint step-00000002 of the run run:",
        "| training | 2,048 tokens a step, optimiser muon, learning rate 0.0015 |",
        f"| shards | digest {read_manifest(trained / 'shards').digest} |\n| language | en |\n| licence | cc0-1.0 |\n",
        f"| validation: MLM accuracy | {format_share(line['mlm_accuracy'], 1)} |\n"
        f"| validation: SOP loss, nats | {line['sop_loss']:.3f} |\n",
    ):
        assert words in card


def read_validation(run: Path) -> dict:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["split"] == "validation"][-1]


@pytest.mark.parametrize("metrics", [None, b"not metrics\n"], ids=["missing", "damaged"])
def test_the_card_of_a_run_has_no_figures_without_metrics_and_no_markup_of_its_name(trained, tmp_path, metrics):
    run = Path(shutil.copytree(trained / "run", tmp_path / "`<b>x\n# y\x1b[31m"))
    (run / "metrics.jsonl").unlink()
    if metrics is not None:
        (run / "metrics.jsonl").write_bytes(metrics)
    assert run_command(["export", str(run), "-o", str(tmp_path / "model")]) == 0
    card = (tmp_path / "model" / "README.md").read_text()
    assert "of the run &#96;&#60;b&#62;x&#92;n&#35; y&#92;x1b&#91;31m:" in card
    assert "validation" not in card


def test_export_says_how_to_load_the_model(trained, tmp_path, capsys):
    out = tmp_path / "model"
    assert run_command(["export", str(trained / "run"), "-o", str(out)]) == 0
    assert f"transformers.pipeline('fill-mask', model='{out}')" in capsys.readouterr().out


def test_other_files_in_the_folder_do_not_stop_an_export_and_stay(trained, exported, tmp_path, capsys):
    names = (".DS_Store", "README.md", "notes/todo.txt")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    assert run_command(["export", str(trained / "run"), "-o", str(tmp_path)]) == 0
    assert [(tmp_path / name).read_text() for name in names] == ["mine"] * 3
    assert all((tmp_path / name).read_bytes() == (exported / name).read_bytes() for name in FILES)
    assert "is a file" in fails(capsys, trained / "run", "-o", tmp_path / "README.md")


@pytest.mark.parametrize("name", ["added_tokens.json", "special_tokens_map.json", "adapter_config.json"])
def test_files_that_would_change_the_model_in_transformers_stop_an_export(trained, tmp_path, capsys, name):
    (tmp_path / name).write_text("{}")
    assert f"holds {name}, which transformers would read too" in fails(capsys, trained / "run", "-o", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_export_that_was_killed_is_completed_by_the_same_command(trained, exported, tmp_path):
    shutil.copytree(exported, tmp_path / "model")
    (tmp_path / "model" / "config.json").unlink()
    before = (tmp_path / "model" / "model.safetensors").stat().st_ino
    assert run_command(["export", str(trained / "run"), "-o", str(tmp_path / "model")]) == 0
    assert (tmp_path / "model" / "config.json").read_bytes() == (exported / "config.json").read_bytes()
    assert (tmp_path / "model" / "model.safetensors").stat().st_ino == before


def copy_without_tokenizer(run: Path, to: Path) -> Path:
    shutil.copytree(run, to)
    shutil.rmtree(to / "tokenizer", ignore_errors=True)
    return to


def test_a_run_without_its_tokenizer_asks_for_one(trained, tmp_path, capsys):
    run = copy_without_tokenizer(trained / "run", tmp_path / "run")
    assert "--tokenizer" in fails(capsys, run, "-o", tmp_path / "model")


def test_the_tokenizer_of_the_run_is_found_and_another_refused(trained, tmp_path, tokenizer_model, capsys):
    run = copy_without_tokenizer(trained / "run", tmp_path / "run")
    shutil.copytree(trained / "shards" / "tokenizer", run / "tokenizer")
    assert run_command(["export", str(run), "-o", str(tmp_path / "model")]) == 0
    (tmp_path / "other.model").write_bytes(tokenizer_model)
    options = ["-o", tmp_path / "another", "--tokenizer", tmp_path / "other.model"]
    assert "differs from" in fails(capsys, run, *options)


def test_a_tokenizer_of_another_size_is_refused(trained, tmp_path, tokenizer_model, capsys):
    run = copy_without_tokenizer(trained / "run", tmp_path / "run")
    (tmp_path / "other.model").write_bytes(tokenizer_model)
    shown = fails(capsys, run, "-o", tmp_path / "model", "--tokenizer", tmp_path / "other.model")
    assert f"other.model is not the tokenizer that {run} was trained with" in shown
    model, other = load_model(list_checkpoints(run)[-1]), load_tokenizer(tmp_path / "other.model")
    with pytest.raises(ConfigError, match="pieces, but the model has 4,000"):
        huggingface.write_folder(model, other, tmp_path / "model")


def test_a_tokenizer_changed_in_the_run_is_refused(trained, tmp_path, tokenizer_model, capsys):
    shutil.copytree(trained / "run", tmp_path / "run")
    (tmp_path / "run" / "tokenizer" / "spiece.model").write_bytes(tokenizer_model)
    shown = fails(capsys, tmp_path / "run", "-o", tmp_path / "model")
    assert "spiece.model is not the tokenizer" in shown
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("own", [None, "notes.txt"])
def test_an_export_that_fails_leaves_the_folder_unchanged(tokenizer, tmp_path, monkeypatch, fault, own):
    def fill(path, data, **_):
        if path.name == "model.safetensors":
            raise fault
        path.write_bytes(data)

    out = tmp_path / "model"
    if own is not None:
        out.mkdir()
        (out / own).write_text("mine")
    monkeypatch.setattr(huggingface, "write_bytes", fill)
    model = random_model(dataclasses.replace(SMALL, vocab_size=tokenizer.vocab_size))
    with pytest.raises(KeyboardInterrupt if isinstance(fault, KeyboardInterrupt) else OutputError):
        huggingface.write_folder(model, tokenizer, out)
    assert out.exists() == (own is not None)
    assert own is None or [path.name for path in out.iterdir()] == [own]


@pytest.mark.parametrize(
    ("piece", "score", "words"),
    [
        ("a\udcff", -1.0, r"piece 7, 'a\\udcff', is not valid text"),
        ("a", math.nan, "score of its piece 7, 'a', is nan"),
    ],
)
def test_a_piece_that_json_cannot_hold_is_refused(tokenizer, piece, score, words):
    settings = read_settings(tokenizer.model)
    scores = np.array([*settings.scores[:7], score, *settings.scores[8:]])
    one = SimpleNamespace(unk_id=1, pieces=[*tokenizer.pieces[:7], piece, *tokenizer.pieces[8:]])
    found = huggingface_tokenizer.explain_unsupported(one, dataclasses.replace(settings, scores=scores))
    assert re.search(words, found)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"model_type": "bert"}, ConfigError, "model_type 'bert'"),
        ({"hidden_act": "gelu"}, ConfigError, "hidden_act 'gelu'"),
        ({"type_vocab_size": 3}, ConfigError, "type_vocab_size 3"),
        ({"attention_probs_dropout_prob": 0.5}, ConfigError, "one dropout"),
        ({"num_hidden_groups": 3}, ConfigError, "num_groups is 3"),
        ({"hidden_size": "32"}, ConfigError, "hidden_size is '32', of a wrong type; int is needed"),
        ({"hidden_size": 32.0}, ConfigError, "hidden_size is 32.0, of a wrong type"),
        ({"num_attention_heads": 4.0}, ConfigError, "num_attention_heads is 4.0, of a wrong type"),
        ({"num_hidden_groups": None}, ConfigError, "num_hidden_groups is None, of a wrong type"),
        ({"vocab_size": 2**31 - 1}, CheckpointError, r"word_embeddings.weight has shape \(40, 16\)"),
        ({"vocab_size": 10**4000}, ConfigError, r"config.json: vocab_size is 1000*\.\.\.$"),
        ({"vocab_size": 41}, CheckpointError, r"word_embeddings.weight has shape \(40, 16\).*\(41, 16\)"),
        ({"num_hidden_groups": 2}, CheckpointError, "lack albert.encoder.albert_layer_groups.1"),
        ({"num_hidden_groups": 1, "inner_group_num": 1}, CheckpointError, "hold albert.*albert_layers.1"),
    ],
    ids=str,
)
def test_a_folder_of_another_model_is_refused(changes, error, words, tmp_path):
    write_with_transformers(tmp_path, inner_group_num=2 if "inner_group_num" in changes else 1)
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**settings, **changes}))
    with pytest.raises(error, match=words):
        huggingface.import_model(tmp_path)


def test_a_config_that_lacks_a_setting_is_refused(tmp_path):
    write_with_transformers(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    del settings["hidden_size"]
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match="lacks hidden_size"):
        huggingface.import_model(tmp_path)


def test_a_pickle_is_never_read(tmp_path):
    theirs = write_with_transformers(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="never a pickle"):
        huggingface.import_model(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_damaged_file_of_a_folder_is_named(name, tmp_path):
    write_with_transformers(tmp_path)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:50])
    with pytest.raises(CheckpointError, match=rf"{name} can't be read \("):
        huggingface.import_model(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(CheckpointError, match=name):
        huggingface.import_model(tmp_path)
