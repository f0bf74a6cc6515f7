"""`--special cls=<bos>` gives special pieces of other names their roles, in builds and in all that reads them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from build_fixtures import write_corpus
from click.testing import CliRunner
from test_byte_level import train
from toy_language import make_sentences
from wordpiece_fixtures import encode, tokenizers

from albert_data import open_shards
from albert_data.cli.main import cli
from albert_data.errors import TokenizerError
from albert_data.inspect.verify import verify
from albert_data.tokenizer.model import load_tokenizer

NAMES = {"pad": "<|pad|>", "unk": "<|0|>", "cls": "<|begin|>", "sep": "<|end|>", "mask": "<|mask|>"}
USUAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


def rename(values: dict[str, Any]) -> str:
    text = json.dumps(values)
    for role, name in NAMES.items():
        text = text.replace(USUAL[role], name)
    return text


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_text(rename(train()))
    return path


def test_named_pieces_have_their_roles_and_the_ids_stay(path: Path):
    tokenizer = load_tokenizer(path, specials=NAMES)
    backend = tokenizers.Tokenizer.from_file(str(path))
    found = {role: getattr(tokenizer, f"{role}_id") for role in NAMES}
    assert found == {role: backend.token_to_id(name) for role, name in NAMES.items()}
    assert tokenizer.slow_reason is None
    texts = [*make_sentences(20, seed=1), "the <|mask|> [MASK] river"]
    backend.encode_special_tokens = True
    assert encode(tokenizer, texts) == [backend.encode(text, add_special_tokens=False).ids for text in texts]


def test_a_build_its_manifest_and_verify_know_them(path: Path, tmp_path: Path):
    documents = ["\n".join(make_sentences(20, seed=at)) for at in range(10)]
    write_corpus(tmp_path / "in", documents, "txt", random.Random(0))
    options = [part for role, name in NAMES.items() for part in ("--special", f"{role}={name}")]
    command = ["build", str(tmp_path / "in"), "--tokenizer", str(path), *options, "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    assert list(verify(tmp_path / "out")) == []
    shards, ids = open_shards(tmp_path / "out"), load_tokenizer(path, specials=NAMES).specials.to_dict()
    assert shards.tokenizer.specials.to_dict() == ids
    assert {int(row.original_ids[0]) for row in shards} == {ids["cls_id"]}
    assert "[MASK]" in CliRunner().invoke(cli, ["inspect", str(tmp_path / "out")]).output


@pytest.mark.parametrize(
    ("specials", "says"),
    [
        ({}, "lacks [PAD] or <pad>, [UNK] or <unk>, [CLS] or <s>"),
        ({}, "name them, as in --special cls='<s>', or give another tokenizer"),
        ({"mask": "<|no|>"}, "'<|no|>' of --special mask is no piece"),
        (
            {"start": "<|begin|>"},
            "--special start=<|begin|> has no role that exists; they are pad, unk, cls, sep, mask",
        ),
        ({"cls": "<|begin|>", "sep": "<|begin|>"}, "'<|begin|>' of --special sep is given twice"),
    ],
)
def test_bad_names_are_one_line(path: Path, specials: dict[str, str], says: str):
    with pytest.raises(TokenizerError) as caught:
        load_tokenizer(path, specials=specials)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_piece_of_the_usual_name_is_not_replaced(tmp_path: Path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(train()))
    with pytest.raises(TokenizerError, match=r"has the piece \[MASK\], so leave out --special mask"):
        load_tokenizer(tmp_path, specials={"mask": "Ġthe"})


def test_a_sentencepiece_model_takes_none(tmp_path: Path, tokenizer_model: bytes):
    (tmp_path / "spiece.model").write_bytes(tokenizer_model)
    with pytest.raises(TokenizerError, match=r"is a SentencePiece model, and --special is for a tokenizer\.json"):
        load_tokenizer(tmp_path, specials={"mask": "Ġthe"})


@pytest.mark.parametrize("value", ["cls", "=<s>", "cls="])
def test_an_option_of_another_form_is_a_usage_error(path: Path, value: str):
    result = CliRunner().invoke(cli, ["build", "x", "--tokenizer", str(path), "--special", value, "-o", "out"])
    assert result.exit_code == 2
    assert "is no role with its piece; write it as cls=<bos>" in result.output


def test_a_role_that_is_given_twice_is_a_usage_error(path: Path):
    options = ["--special", "cls=<s>", "--special", "sep=</s>", "--special", "cls=<t>"]
    result = CliRunner().invoke(cli, ["build", "x", "--tokenizer", str(path), *options, "-o", "out"])
    assert result.exit_code == 2
    assert "'cls' is given twice; leave one out" in result.output


def test_named_pieces_need_a_tokenizer(tmp_path: Path):
    (tmp_path / "a.txt").write_text("A text.\n")
    command = ["build", str(tmp_path / "a.txt"), "--special", "cls=<s>", "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 1
    assert "--special needs a tokenizer" in str(result.exception)
