"""A run can begin with an ALBERT as published: of any class, age and padding, with the shards' vocabulary or a part."""

from __future__ import annotations

import json
import random
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from build_fixtures import run_build, write_corpus
from safetensors.torch import load_file, save_file
from toy_language import make_sentences, train_model

from albert_data.cli.main import run as run_command
from albert_data.errors import CheckpointError, ConfigError, TokenizerError
from albert_data.interop.initial import load_initial
from albert_data.tokenizer.model import Tokenizer
from albert_data.train.model.checkpoint import list_checkpoints, load_model
from albert_data.train.model.model import INIT_STD

transformers = pytest.importorskip("transformers", reason="the huggingface extra is not installed")

SIZES = {
    **{"max_position_embeddings": 64, "embedding_size": 16, "hidden_size": 32},
    **{"num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64},
}
NO_SOP = "the folder lacks the SOP head, which is drawn anew"
NO_MLM = "the folder lacks the MLM head, which is drawn anew"
NO_POOLER = "the folder lacks the pooler, which is drawn anew"


def extend(model: bytes, pieces: list[str]) -> bytes:
    """Append pieces to a SentencePiece model: entries of the repeated field 1 of its protocol buffer."""
    for piece in pieces:
        text = piece.encode()
        entry = b"\x0a" + bytes([len(text)]) + text + b"\x15" + struct.pack("<f", -9.0)
        model += b"\x0a" + bytes([len(entry)]) + entry
    return model


def build(folder: Path, tokenizer: Tokenizer) -> Path:
    sentences = list(make_sentences(400, seed=5))
    documents = ["\n".join(sentences[at : at + 20]) for at in range(0, 400, 20)]
    write_corpus(folder / "in", documents, "txt", random.Random(0))
    run_build(folder / "in", folder / "out", tokenizer, max_seq_len=64, validation_fraction=0.0)
    return folder / "out"


@pytest.fixture(scope="module")
def shards(tmp_path_factory, tokenizer) -> Path:
    return build(tmp_path_factory.mktemp("shards"), tokenizer)


@pytest.fixture(scope="module")
def larger(tmp_path_factory, tokenizer_model) -> Path:
    """Shards built with three more pieces."""
    tokenizer = Tokenizer(extend(tokenizer_model, ["▁unheard", "▁elsewhere", "☃"]), "an extended tokenizer")
    return build(tmp_path_factory.mktemp("larger"), tokenizer)


@pytest.fixture
def publish(tmp_path, tokenizer):
    """Write a folder as transformers saves it, beside the tokenizer's model, and return the folder and the model."""

    def write(kind: str = "AlbertForPreTraining", spiece: bytes = tokenizer.model, **settings: object):
        torch.manual_seed(3)
        config = transformers.AlbertConfig(**{"vocab_size": tokenizer.vocab_size, **SIZES, **settings})
        model = getattr(transformers, kind)(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.2)
        model.save_pretrained(tmp_path / "model")
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


def test_a_part_of_which_half_is_missing_is_damage(publish, shards):
    folder, _ = publish()
    change_weights(folder, lambda weights: weights.pop("predictions.dense.weight"))
    with pytest.raises(CheckpointError, match=r"the weights lack predictions.dense.weight"):
        load(folder, shards)


def test_a_size_that_other_tensors_contradict_is_damage_and_allocates_nothing(publish, shards):
    folder, _ = publish("AlbertForMaskedLM")
    name = "albert.encoder.embedding_hidden_mapping_in.weight"
    change_weights(folder, lambda weights: weights.update({name: torch.zeros(1_000_000, 16)}))  # a pooler of 4 TB
    with pytest.raises(CheckpointError, match=r"embedding_hidden_mapping_in.weight has shape \(1000000, 16\)"):
        load(folder, shards)


@pytest.mark.parametrize("name", ["gelu", "gelu_new", "gelu_pytorch_tanh"])
def test_gelu_by_tanh_is_accepted_under_all_its_names(publish, shards, name):
    folder, _ = publish(hidden_act=name)
    model, lines = load(folder, shards)
    told = "hidden_act is gelu: computed by tanh, as Google's code for ALBERT does under this name"
    assert lines == ([told] if name == "gelu" else [])
    folder, theirs = publish(hidden_act="gelu_new")
    check_same_encoder(model, theirs)


def test_another_activation_or_model_is_refused(publish, shards):
    folder, _ = publish(hidden_act="relu")
    with pytest.raises(ConfigError, match="hidden_act 'relu'"):
        load(folder, shards)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "hidden_act": "gelu"}))
    lines: list[str] = []
    with pytest.raises(ConfigError, match="model_type 'bert'"):
        load_initial(folder, shards, say=lines.append)
    assert not lines


# ---- vocabularies ----


def test_rows_of_padding_are_left_out(publish, shards, tokenizer):
    size = tokenizer.vocab_size
    folder, theirs = publish(vocab_size=size + 7)
    model, lines = load(folder, shards)
    assert lines == ["7 rows of the embeddings have no piece in spiece.model and are left out"]
    assert model.config.vocab_size == size
    assert model.embeddings.token.weight.equal(theirs.albert.embeddings.word_embeddings.weight[:size])
    assert model.mlm_head.bias.equal(theirs.predictions.bias[:size])


@pytest.mark.parametrize("padding", [0, 2, 9])
def test_embeddings_of_added_pieces_are_drawn_and_the_others_stay(publish, larger, tokenizer, padding):
    size = tokenizer.vocab_size
    folder, theirs = publish(vocab_size=size + padding)
    model, lines = load(folder, larger, seed=4)
    told = [f"{padding} rows of the embeddings have no piece in spiece.model and are left out"] if padding else []
    assert lines == [*told, "the shards' tokenizer has 3 more pieces; their embeddings are drawn anew"]
    embeddings = model.embeddings.token.weight
    assert embeddings.shape == (size + 3, 16)
    assert embeddings[:size].equal(theirs.albert.embeddings.word_embeddings.weight[:size])
    assert 0.5 * INIT_STD < embeddings[size:].std() < 1.5 * INIT_STD
    assert not model.mlm_head.bias[size:].any()
    assert embeddings.equal(load(folder, larger, seed=4)[0].embeddings.token.weight)
    assert not embeddings.equal(load(folder, larger, seed=5)[0].embeddings.token.weight)


def test_another_vocabulary_is_refused_with_the_first_piece_that_differs(publish, shards, larger, tokenizer):
    other = Tokenizer(train_model(vocab_size=400), "another tokenizer")
    folder, _ = publish(spiece=other.model, vocab_size=other.vocab_size)
    first = next(i for i, piece in enumerate(other.pieces) if piece != tokenizer.pieces[i])
    words = f"its piece {first}, {other.pieces[first]!r}, is {tokenizer.pieces[first]!r} there"
    with pytest.raises(ConfigError, match=re.escape(words)):
        load(folder, shards)
    folder, _ = publish(spiece=extend(tokenizer.model, ["▁unheard"]), vocab_size=tokenizer.vocab_size + 1)
    with pytest.raises(ConfigError, match=re.escape(f"piece {tokenizer.vocab_size}, '▁unheard', is missing there")):
        load(folder, shards)
    assert load(folder, larger)[1] == ["the shards' tokenizer has 2 more pieces; their embeddings are drawn anew"]


def test_another_kind_of_vocabulary_is_refused_and_none_at_all_is_told(publish, shards):
    folder, _ = publish()
    (folder / "spiece.model").unlink()
    assert load(folder, shards)[1] == [f"{folder} holds no spiece.model: of its vocabulary only the size is compared"]
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    with pytest.raises(TokenizerError, match=r"vocab.txt lacks \[CLS\]"):
        load(folder, shards)
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n的\n")
    with pytest.raises(ConfigError, match=re.escape("its piece 0, '[PAD]', is '<pad>' there")):
        load(folder, shards)


def test_a_tokenizer_that_changes_the_text_first_is_told(publish, shards):
    folder, _ = publish()
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "keep_accents": False}))
    (line,) = load(folder, shards)[1]
    assert "built with --normalization albert-v2" in line


@pytest.mark.parametrize("settings", [None, {}, {"do_lower_case": True}, {"do_lower_case": True, "keep_accents": True}])
def test_the_pieces_tell_the_case_where_the_settings_do_not(publish, shards, tokenizer, settings, tmp_path):
    def load_with(spiece: bytes, shards: Path) -> list[str]:
        folder, _ = publish(spiece=spiece, vocab_size=Tokenizer(spiece, "").vocab_size)
        own = folder / "tokenizer_config.json"
        own.unlink() if settings is None else own.write_text(json.dumps(settings))
        return load(folder, shards)[1]

    assert load_with(tokenizer.model, shards) == []  # capital letters here and there
    folding = Tokenizer(train_model(normalization_rule_name="nmt_nfkc_cf"), "its table makes text lower case")
    assert load_with(folding.model, build(tmp_path / "folding", folding)) == []
    lower = Tokenizer(train_model(sentence_iterator=map(str.lower, make_sentences(3000, seed=0))), "of lower text")
    (line,) = load_with(lower.model, build(tmp_path / "lower", lower))
    assert "have no capital letters, and the text of the shards keeps them" in line
    lowered = Tokenizer(lower.model, "of lower text", "albert-v2")
    assert load_with(lower.model, build(tmp_path / "lowered", lowered)) == []
    lowered = Tokenizer(tokenizer.model, "of any text", "albert-v2")
    (line,) = load_with(tokenizer.model, build(tmp_path / "changed", lowered))
    assert "have capital letters, and the text of the shards is made lower case" in line


# ---- files ----


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


def test_train_begins_with_a_published_folder_and_says_what_it_drew(publish, larger, tmp_path, capfd):
    folder, theirs = publish("AlbertForMaskedLM")
    options = ["--preset", "tiny", "--steps", "1", "--lr", "1e-12", "--device", "cpu", "--batch-tokens", "256"]
    assert run_command(["train", str(larger), "--init-from", str(folder), *options, "-o", str(tmp_path / "run")]) == 0
    told = capfd.readouterr().err
    for line in (NO_POOLER, NO_SOP, "the shards' tokenizer has 3 more pieces; their embeddings are drawn anew"):
        assert line in told
    check_same_encoder(load_model(list_checkpoints(tmp_path / "run")[-1]), theirs)
    # A run has a tokenizer too, and can be extended in the same way.
    assert load(tmp_path / "run", larger)[1] == []


def test_a_run_is_extended_like_a_folder(publish, shards, larger, tmp_path, tokenizer):
    folder, _ = publish()
    options = ["--preset", "tiny", "--steps", "1", "--device", "cpu", "--batch-tokens", "256"]
    run = tmp_path / "run"
    assert run_command(["train", str(shards), "--init-from", str(folder), *options, "-o", str(run)]) == 0
    model, lines = load(run, larger)
    assert lines == ["the shards' tokenizer has 3 more pieces; their embeddings are drawn anew"]
    known = load_model(list_checkpoints(run)[-1]).embeddings.token.weight
    assert model.embeddings.token.weight[: tokenizer.vocab_size].equal(known)
