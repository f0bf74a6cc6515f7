"""A run can begin with other weights: of a run, or of an ALBERT as published, with the shards' vocabulary or a part."""

from __future__ import annotations

import dataclasses
import json
import random
import re
import shutil
import struct
import subprocess
import sys
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from build_fixtures import run_build, write_corpus
from refusals import check_refused
from safetensors.torch import load_file, save_file
from test_huggingface import write_with_transformers
from toy_language import make_sentences, train_model
from toy_rows import TINY
from wordpiece_fixtures import make_pieces, write_vocab

from albert_data.cli.main import run as run_command
from albert_data.errors import AlbertDataError, CheckpointError, ConfigError, OutputError, TokenizerError
from albert_data.interop.initial import load_initial
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from albert_data.train import loop
from albert_data.train.checkpoint import list_checkpoints, load_model
from albert_data.train.model import INIT_STD

transformers = pytest.importorskip("transformers", reason="the huggingface extra is not installed")

STILL = dataclasses.replace(TINY, steps=2, lr=1e-12, weight_decay=0.0, seed=7)
NO_SOP = "the folder lacks the SOP head, which is drawn anew"
NO_MLM = "the folder lacks the MLM head, which is drawn anew"
NO_POOLER = "the folder lacks the pooler, which is drawn anew"
THREE_MORE = "the shards' tokenizer has 3 more pieces; their embeddings are drawn anew"

# ---- the weights of a run ----


@pytest.fixture
def first(finished_run, tmp_path) -> Path:
    return Path(shutil.copytree(finished_run, tmp_path / "first"))


@pytest.fixture
def train(toys, use_shards, tmp_path):
    """Train a second run, whose two steps hardly change its weights."""
    use_shards(toys.make_shards(30))
    return partial(loop.train, tmp_path / "out", tmp_path / "second", STILL)


def check_same_weights(one: Path, other: Path) -> None:
    weights = [load_model(list_checkpoints(run)[-1]).state_dict() for run in (one, other)]
    for name in weights[0]:
        torch.testing.assert_close(weights[0][name], weights[1][name], rtol=0, atol=1e-9)


@pytest.mark.parametrize("what", ["run", "checkpoint"])
def test_a_run_with_initial_weights_begins_with_these_weights_only(first, train, tmp_path, what):
    train(initial=load_initial(first if what == "run" else list_checkpoints(first)[-1]))
    check_same_weights(first, tmp_path / "second")
    assert list_checkpoints(tmp_path / "second")[-1].name == "step-00000002", "the step begins at 0"
    shutil.rmtree(first)
    shutil.rmtree(list_checkpoints(tmp_path / "second")[-1])
    last = train(resume=True)
    assert last is not None
    assert last.name == "step-00000002", "it resumes without them"


@pytest.mark.parametrize("change", [{"vocab_size": 50}, {"sha256": "1" * 64}], ids=str)
def test_weights_of_another_vocabulary_are_refused(toys, use_shards, first, train, change):
    shards = toys.make_shards(30)
    other = dataclasses.replace(shards.manifest.tokenizer, **change)
    shards.manifest = dataclasses.replace(shards.manifest, tokenizer=other)
    use_shards(shards)
    check_refused(lambda: train(initial=load_initial(first)), ConfigError, "another vocabulary")


def test_rows_longer_than_the_positions_are_refused(toys, use_shards, first, train):
    use_shards(toys.make_shards(30, max_seq_len=600))
    named = "512 positions & 640 & --max-seq-len 512"
    check_refused(lambda: train(initial=load_initial(first)), ConfigError, named)


def test_a_path_without_weights_is_refused(first, tmp_path):
    check_refused(lambda: load_initial(tmp_path), CheckpointError, "holds no weights to begin with & --init-from")
    state = list_checkpoints(first)[-1] / "state.json"
    state.write_text(json.dumps({k: v for k, v in json.loads(state.read_text()).items() if k != "identity"}))
    check_refused(lambda: load_initial(first), CheckpointError, "state.json lacks identity")
    shutil.rmtree(first / "checkpoints")
    check_refused(lambda: load_initial(first), CheckpointError, "no checkpoint yet")


def test_a_run_without_a_checkpoint_of_its_initial_weights_does_not_go_on_with_drawn_ones(first, train, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(loop, "save_session", Mock(side_effect=OutputError("the disk is full")))
        with pytest.raises(OutputError, match="full"):
            train(initial=load_initial(first))
    named = "has no checkpoint & first weights were those of & step- & --init-from"
    check_refused(lambda: train(resume=True), CheckpointError, named)


def test_initial_weights_that_are_not_finite_are_in_no_checkpoint(first, train, tmp_path):
    initial = load_initial(first)
    with torch.no_grad():
        next(initial.model.parameters()).fill_(float("nan"))
    check_refused(lambda: train(initial=initial), AlbertDataError, "the weights are not finite")
    assert not list_checkpoints(tmp_path / "second")


def test_a_run_stopped_before_its_first_step_still_has_its_initial_weights(first, train, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(loop, "update", lambda *given, **counts: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train(initial=load_initial(first))
    assert [path.name for path in list_checkpoints(tmp_path / "second")] == ["step-00000000"]
    train(resume=True)
    check_same_weights(first, tmp_path / "second")


# ---- published folders ----


def extend(model: bytes, pieces: list[str]) -> bytes:
    """Append pieces to a SentencePiece model: entries of the repeated field 1 of its protocol buffer."""
    for piece in pieces:
        text = piece.encode()
        entry = b"\x0a" + bytes([len(text)]) + text + b"\x15" + struct.pack("<f", -9.0)
        model += b"\x0a" + bytes([len(entry)]) + entry
    return model


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """build(tokenizer): the folder of shards of a few sentences."""

    def make(tokenizer: Tokenizer) -> Path:
        folder, sentences = tmp_path_factory.mktemp("shards"), list(make_sentences(200, seed=5))
        documents = ["\n".join(sentences[at : at + 20]) for at in range(0, 200, 20)]
        write_corpus(folder / "in", documents, "txt", random.Random(0))
        run_build(folder / "in", folder / "out", tokenizer, max_seq_len=64, validation_fraction=0.0)
        return folder / "out"

    return make


@pytest.fixture(scope="module")
def shards(build, tokenizer) -> Path:
    return build(tokenizer)


@pytest.fixture(scope="module")
def larger(build, tokenizer_model) -> Path:
    """Shards built with three more pieces."""
    return build(Tokenizer(extend(tokenizer_model, ["▁unheard", "▁elsewhere", "☃"]), "an extended tokenizer"))


@pytest.fixture
def publish(tmp_path, tokenizer):
    """Write a folder as transformers saves it, beside the tokenizer's model, and return the folder and the model."""

    def write(kind: str = "AlbertForPreTraining", spiece: bytes = tokenizer.model, **settings: object):
        sizes = {"vocab_size": tokenizer.vocab_size, "max_position_embeddings": 64, **settings}
        model = write_with_transformers(tmp_path / "model", kind, **sizes)
        (tmp_path / "model" / "spiece.model").write_bytes(spiece)
        own = {"do_lower_case": False, "keep_accents": True}
        (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps(own))
        return tmp_path / "model", model

    return write


def load(folder: Path, shards: Path, **settings: int):
    """Return the model and the lines that are told."""
    lines: list[str] = []
    return load_initial(folder, shards, **settings, say=lines.append).model, lines


@torch.no_grad()
def check_same_encoder(ours, theirs) -> None:
    ids_BT = torch.randint(5, 300, (3, 20), generator=torch.Generator().manual_seed(0))
    there = getattr(theirs, "albert", theirs)(ids_BT).last_hidden_state
    here = ours.encoder(ours.embeddings(ids_BT, torch.zeros_like(ids_BT)), None)
    torch.testing.assert_close(here, there, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("AlbertForPreTraining", []),
        ("AlbertForMaskedLM", [NO_POOLER, NO_SOP]),
        ("AlbertModel", [NO_MLM, NO_SOP]),
    ],
)
def test_every_class_is_read_and_what_it_lacks_is_drawn_and_told(publish, shards, kind, told):
    folder, theirs = publish(kind)
    model, lines = load(folder, shards, seed=1)
    assert lines == told
    check_same_encoder(model, theirs)
    again, other = load(folder, shards, seed=1)[0].state_dict(), load(folder, shards, seed=2)[0].state_dict()
    drawn = {"pooler.weight": NO_POOLER, "mlm_head.dense.weight": NO_MLM, "sop_head.weight": NO_SOP}
    for name, value in model.state_dict().items():
        assert value.equal(again[name])
        assert value.equal(other[name]) == (drawn.get(name) not in told), name
        if drawn.get(name) in told:
            assert 0.5 * INIT_STD < value.std() < 1.5 * INIT_STD
    if NO_MLM in told:
        assert (model.mlm_head.norm.weight == 1).all()
        assert not model.mlm_head.bias.any()


def change_weights(folder: Path, change) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def test_names_of_old_folders_are_understood(publish, shards):
    """As converted years ago: buffers and copies are stored, the bias only as that of the decoder, and no SOP head."""
    folder, theirs = publish()

    def age(weights) -> None:
        weights["albert.embeddings.position_ids"] = torch.arange(64)[None]
        weights["predictions.decoder.weight"] = weights["albert.embeddings.word_embeddings.weight"].clone()
        weights["predictions.decoder.bias"] = weights.pop("predictions.bias")
        del weights["sop_classifier.classifier.weight"], weights["sop_classifier.classifier.bias"]

    change_weights(folder, age)
    model, lines = load(folder, shards)
    assert lines == [NO_SOP]
    check_same_encoder(model, theirs)
    assert model.mlm_head.bias.equal(theirs.predictions.bias)


def test_a_part_of_which_half_is_missing_or_of_a_size_that_others_contradict_is_damage(publish, shards):
    folder, _ = publish()
    change_weights(folder, lambda weights: weights.pop("predictions.dense.weight"))
    check_refused(lambda: load(folder, shards), CheckpointError, "the weights lack predictions.dense.weight")
    folder, _ = publish("AlbertForMaskedLM")
    name = "albert.encoder.embedding_hidden_mapping_in.weight"
    change_weights(folder, lambda weights: weights.update({name: torch.zeros(1_000_000, 16)}))  # a pooler of 4 TB
    check_refused(lambda: load(folder, shards), CheckpointError, f"{name} has shape (1000000, 16)")


@pytest.mark.parametrize("name", ["gelu", "gelu_new", "gelu_pytorch_tanh"])
def test_gelu_by_tanh_is_accepted_under_all_its_names(publish, shards, name):
    model, lines = load(publish(hidden_act=name)[0], shards)
    told = "hidden_act is gelu: computed by tanh, as Google's code for ALBERT does under this name"
    assert lines == ([told] if name == "gelu" else [])
    check_same_encoder(model, publish(hidden_act="gelu_new")[1])


def test_a_pickle_is_refused_with_a_command_that_converts_it(publish, shards):
    folder, theirs = publish()
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weights["predictions.decoder.weight"] = weights["albert.embeddings.word_embeddings.weight"]  # share memory
    torch.save(weights, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="never a pickle") as caught:
        load(folder, shards)
    (code,) = re.findall(r'python -c "(.+)"$', str(caught.value))
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
    check_same_encoder(load(folder, shards)[0], theirs)


# ---- vocabularies ----


@pytest.mark.parametrize("padding", [0, 2, 9])
@pytest.mark.parametrize("more", [0, 3])
def test_rows_of_padding_are_left_out_and_those_of_added_pieces_drawn(publish, request, tokenizer, padding, more):
    shards, size = request.getfixturevalue("larger" if more else "shards"), tokenizer.vocab_size
    folder, theirs = publish(vocab_size=size + padding)
    model, lines = load(folder, shards, seed=4)
    told = [f"{padding} rows of the embeddings have no piece in spiece.model and are left out"] if padding else []
    assert lines == told + ([THREE_MORE] if more else [])
    embeddings, bias = model.embeddings.token.weight, model.mlm_head.bias
    assert model.config.vocab_size == len(embeddings) == len(bias) == size + more
    assert embeddings[:size].equal(theirs.albert.embeddings.word_embeddings.weight[:size])
    assert bias[:size].equal(theirs.predictions.bias[:size])
    if more:
        assert 0.5 * INIT_STD < embeddings[size:].std() < 1.5 * INIT_STD
        assert not bias[size:].any()
        assert embeddings.equal(load(folder, shards, seed=4)[0].embeddings.token.weight)
        assert not embeddings.equal(load(folder, shards, seed=5)[0].embeddings.token.weight)


def test_another_vocabulary_is_refused_with_the_first_piece_that_differs(publish, shards, larger, tokenizer):
    other = Tokenizer(train_model(vocab_size=400), "another tokenizer")
    folder, _ = publish(spiece=other.model, vocab_size=other.vocab_size)
    first = next(i for i, piece in enumerate(other.pieces) if piece != tokenizer.pieces[i])
    named = f"its piece {first}, {other.pieces[first]!r}, is {tokenizer.pieces[first]!r} there"
    check_refused(lambda: load(folder, shards), ConfigError, named)
    folder, _ = publish(spiece=extend(tokenizer.model, ["▁unheard"]), vocab_size=tokenizer.vocab_size + 1)
    named = f"piece {tokenizer.vocab_size}, '▁unheard', is missing there"
    check_refused(lambda: load(folder, shards), ConfigError, named)
    assert load(folder, larger)[1] == [THREE_MORE.replace("3", "2")]


def test_another_kind_of_vocabulary_is_refused_and_none_at_all_is_told(publish, shards):
    folder, _ = publish()
    (folder / "spiece.model").unlink()
    assert load(folder, shards)[1] == [f"{folder} holds no spiece.model: of its vocabulary only the size is compared"]
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    check_refused(lambda: load(folder, shards), TokenizerError, "vocab.txt lacks [CLS]")
    write_vocab(folder, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "的"])
    check_refused(lambda: load(folder, shards), ConfigError, "its piece 0, '[PAD]', is '<pad>' there")


def test_another_normalization_is_refused(publish, shards):
    folder, _ = publish()
    for settings, is_refused in (
        ({"do_lower_case": True, "keep_accents": False}, True),
        ({"do_lower_case": True}, False),
    ):
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        if is_refused:
            named = "has the normalization albert-v2, and that of the shards none; build & --normalization albert-v2"
            check_refused(lambda: load(folder, shards), ConfigError, named)
        else:
            assert load(folder, shards)[1] == []


def test_train_begins_with_a_published_folder_and_its_run_is_extended_alike(publish, shards, larger, tmp_path, capfd):
    folder, theirs = publish("AlbertForMaskedLM")
    options = ["--preset", "tiny", "--steps", "1", "--lr", "1e-12", "--device", "cpu", "--batch-tokens", "256"]
    run = tmp_path / "run"
    assert run_command(["train", str(shards), "--init-from", str(folder), *options, "-o", str(run)]) == 0
    told = capfd.readouterr().err
    assert NO_POOLER in told
    assert NO_SOP in told
    known = load_model(list_checkpoints(run)[-1])
    check_same_encoder(known, theirs)
    assert load(run, shards)[1] == []
    model, lines = load(run, larger)
    assert lines == [THREE_MORE]
    assert model.embeddings.token.weight[: known.config.vocab_size].equal(known.embeddings.token.weight)


# ---- vocabularies of WordPiece ----


@pytest.fixture(scope="module")
def wordpieces(build, tmp_path_factory) -> Path:
    """Shards of a vocab.txt."""
    return build(load_tokenizer(write_vocab(tmp_path_factory.mktemp("bert"), do_lower_case=True)))


@pytest.fixture
def chinese(tmp_path) -> Path:
    """An ALBERT as the Chinese ones are published: a masked language model with a vocab.txt."""
    sizes = {"vocab_size": len(make_pieces()), "max_position_embeddings": 64}
    write_with_transformers(tmp_path / "chinese", "AlbertForMaskedLM", **sizes)
    write_vocab(tmp_path / "chinese")
    return tmp_path / "chinese"


def test_a_run_begins_with_a_published_model_of_wordpieces_and_is_exported_and_scored(chinese, wordpieces, tmp_path):
    model, _ = load(chinese, wordpieces)
    assert model.config.vocab_size == len(make_pieces())
    run, out, pairs = (str(tmp_path / name) for name in ("run", "model", "pairs.jsonl"))
    settings = ["--steps", "1", "--device", "cpu", "--batch-tokens", "512", "--no-compile"]
    assert run_command(["train", str(wordpieces), "--init-from", str(chinese), *settings, "-o", run]) == 0
    assert load_tokenizer(Path(run) / "tokenizer").pieces == make_pieces()
    assert run_command(["export", run, "-o", out]) == 0
    assert transformers.AlbertForPreTraining.from_pretrained(out).config.vocab_size == len(make_pieces())
    Path(pairs).write_text(json.dumps({"good": "the river is long", "bad": "river the long is"}) + "\n")
    assert run_command(["score", run, pairs, "--device", "cpu"]) == 0


def test_another_vocabulary_of_wordpieces_is_refused(chinese, wordpieces):
    pieces = make_pieces()
    write_vocab(chinese, [*pieces[:7], "new", *pieces[8:]])
    named = f"its piece 7, 'new', is {pieces[7]!r} there"
    check_refused(lambda: load(chinese, wordpieces), ConfigError, named)
