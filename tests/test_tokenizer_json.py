"""Files of tokenizers for the library: their rules and names are read, and damaged or hostile ones are one line."""

from __future__ import annotations

import json
import os
import random
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from build_fixtures import make_documents, write_corpus
from click.testing import CliRunner
from made_models import compile_charsmap, make_model
from refusals import check_refused, refused
from test_byte_level import train
from toy_language import make_sentences, train_model
from wordpiece_fixtures import SPECIALS, encode, encode_alone, make_pieces, tokenizers, write_vocab

from albert_data import open_shards
from albert_data.cli.main import cli
from albert_data.errors import TokenizerError
from albert_data.inspect.verify import verify
from albert_data.tokenizer.backend import explain_failures
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from albert_data.tokenizer.tokenizer_json import BertRules, make_wordpiece

LETTERS = "abcdefghijklmnopqrstuvwxyz"
METASPACE = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
BACKTRACKING = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def double(letter: str, by: str | None = None) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": letter}, "content": 2 * (by or letter)}


def make_json(**parts: Any) -> bytes:
    vocab = {piece: i for i, piece in enumerate([*SPECIALS, "\u2581", *LETTERS])}
    model = {"type": "BPE", "unk_token": "[UNK]", "vocab": vocab, "merges": []}
    values = {"version": "1.0", "added_tokens": [], "pre_tokenizer": METASPACE, "decoder": METASPACE, "model": model}
    return json.dumps({**values, **parts}).encode()


def sequence(kind: str, *parts: Any) -> dict[str, Any]:
    return {"type": "Sequence", kind: list(parts)}


# ---- vocab.txt and the files beside it ----


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"do_lower_case": False}, (False, None, True)),
        ({"strip_accents": False, "tokenize_chinese_chars": False, "other": 1}, (True, False, False)),
        ({"strip_accents": None}, (True, None, True)),
    ],
)
def test_case_follows_the_file_beside_the_vocabulary(tmp_path, settings, expected):
    tokenizer = load_tokenizer(write_vocab(tmp_path, **settings), to_encode=False)
    rules = json.loads(tokenizer.model)["normalizer"]
    assert (rules["lowercase"], rules["strip_accents"], rules["handle_chinese_chars"]) == expected
    assert tokenizer.note is None


def test_a_vocabulary_gives_the_same_ids_in_either_file(tmp_path):
    path = write_vocab(tmp_path, do_lower_case=True)
    tokenizer = load_tokenizer(path, to_encode=False)
    (tmp_path / "json").mkdir()
    values = json.loads(tokenizer.model)
    (tmp_path / "json" / "tokenizer.json").write_text(json.dumps(values | {"padding": None, "post_processor": None}))
    texts = list(make_sentences(20, seed=2))
    assert encode(load_tokenizer(tmp_path / "json"), texts) == encode(tokenizer, texts)
    windows = tmp_path / "windows.txt"
    windows.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_tokenizer(windows, to_encode=False).sha256 == tokenizer.sha256


VOCAB = "".join(f"{piece}\n" for piece in SPECIALS).encode()


def model(vocab: str, kind: str = '"type": "WordPiece", ', rest: str = "") -> dict[str, bytes]:
    return {"tokenizer.json": f'{{"model": {{{kind}"vocab": {vocab}}}{rest}}}'.encode()}


@refused(
    ({"vocab.txt": VOCAB.replace(b"[MASK]\n", b"")}, TokenizerError, "lacks [MASK]; & vocab.txt & a line for each"),
    ({"vocab.txt": VOCAB.replace(b"[UNK]\n", b"")}, TokenizerError, "lacks [UNK]; & vocab.txt"),
    ({"vocab.txt": b"<pad>\n<unk>\n<s>\n</s>\n<mask>\n"}, TokenizerError, "lacks [PAD], [UNK], [CLS], [SEP], [MASK];"),
    ({"vocab.txt": b"[PAD]\n[UNK]\nth\xff\n"}, TokenizerError, "is not UTF-8 (line 3)"),
    ({"vocab.txt": VOCAB}, TokenizerError, 'does not say & No such file & add "do_lower_case": true or'),
    ({"vocab.txt": VOCAB, "tokenizer_config.json": b'{"do_lower_case": "yes"}'}, TokenizerError, "are true or false)"),
    ({"vocab.txt": VOCAB, "tokenizer_config.json": b"{}"}, TokenizerError, "(do_lower_case is needed there, and"),
    ({"vocab.txt": VOCAB, "tokenizer_config.json": b"{"}, TokenizerError, "does not say & does not help & add"),
    ({"tokenizer.json": b'{"model": {"vocab": {"a'}, TokenizerError, "is damaged: Unterminated string & copy it"),
    ({"tokenizer.json": b'{"a": 1}'}, TokenizerError, "no tokenizer.json of the library tokenizers"),
    ({"vocab.txt": VOCAB + b"a\n\nb\n"}, TokenizerError, "has an empty line, or a piece twice"),
    ({"vocab.txt": VOCAB + b"a\nb\na\n"}, TokenizerError, "has an empty line, or a piece twice"),
    (model('{"a": 0, "b": 0}'), TokenizerError, "has a damaged vocabulary & 'b' is taken"),
    (model('{"a": 0, "b": 2}'), TokenizerError, "ids without a piece: the id 2 of the piece 'b' & one of 0..1, each"),
    (model('{"a": "b"}'), TokenizerError, "has a damaged vocabulary & 'b' of the piece 'a'"),
    (model('{"a": 9999999999}'), TokenizerError, "is taken, or not one of 0..0"),
    (model('"ab"'), TokenizerError, "has values of wrong types"),
    (model("{}", "", ', "added_tokens": [1]'), TokenizerError, "values of wrong types & copy it again"),
    (model("{}", "", ', "normalizer": "x"'), TokenizerError, "has values of wrong types, so it is damaged"),
    ({"tokenizer.json": b"[1]"}, TokenizerError, "no tokenizer.json of the library & it has no model"),
    ({"tokenizer.json": b'{"\xff": 1}'}, TokenizerError, "is damaged: 'utf-8' codec can't decode byte 0xff"),
)
def test_a_bad_file_is_one_line(tmp_path, call, kind, named):
    for name, data in call.items():
        (tmp_path / name).write_bytes(data)
    check_refused(lambda: load_tokenizer(tmp_path / next(iter(call))), kind, named)


def test_an_added_token_has_the_id_that_the_library_gives_it(tmp_path):
    """It counts on from the number of pieces, whatever the file says."""
    values = json.loads(make_wordpiece([*SPECIALS, "a"], BertRules(lowercase=True)))
    path = tmp_path / "tokenizer.json"
    for number in (10, 6):
        values["added_tokens"][5:] = [{**values["added_tokens"][0], "id": number, "content": "<more>"}]
        path.write_text(json.dumps(values))
        if number == 10:
            named = "the id 10 of the piece '<more>' is taken, or not one of 6..6"
            check_refused(lambda: load_tokenizer(path), TokenizerError, named)
    assert load_tokenizer(path).pieces[5:] == ["a", "<more>"]


def test_a_normalization_or_a_missing_library_is_an_error(tmp_path, monkeypatch):
    path = write_vocab(tmp_path)
    named = "--normalization albert-v2 is for SentencePiece models & leave it out"
    check_refused(lambda: load_tokenizer(path, normalization="albert-v2"), TokenizerError, named)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert load_tokenizer(path, to_encode=False).vocab_size == len(make_pieces())
    check_refused(lambda: load_tokenizer(path), TokenizerError, "pip install 'albert-data[tokenizers]'")


# ---- --special ----

NAMES = {"pad": "<|pad|>", "unk": "<|0|>", "cls": "<|begin|>", "sep": "<|end|>", "mask": "<|mask|>"}


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    """A byte-level BPE whose special pieces have these names."""
    text = json.dumps(train())
    for role, name in NAMES.items():
        text = text.replace(f"[{role.upper()}]", name)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_text(text)
    return path


def test_named_pieces_have_their_roles_and_the_ids_stay(path):
    tokenizer = load_tokenizer(path, specials=NAMES)
    backend = tokenizers.Tokenizer.from_file(str(path))
    found = {role: getattr(tokenizer, f"{role}_id") for role in NAMES}
    assert found == {role: backend.token_to_id(name) for role, name in NAMES.items()}
    assert tokenizer.slow_reason is None
    texts = [*make_sentences(20, seed=1), "the <|mask|> [MASK] river"]
    backend.encode_special_tokens = True
    assert encode(tokenizer, texts) == encode_alone(backend, texts)


def test_a_build_its_manifest_and_verify_know_them(path, tmp_path):
    write_corpus(tmp_path / "in", make_documents(30, seed=0), "txt", random.Random(0))
    options = [part for role, name in NAMES.items() for part in ("--special", f"{role}={name}")]
    command = ["build", str(tmp_path / "in"), "--tokenizer", str(path), *options, "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    assert list(verify(tmp_path / "out")) == []
    shards, ids = open_shards(tmp_path / "out"), load_tokenizer(path, specials=NAMES).specials.to_dict()
    assert shards.tokenizer.specials.to_dict() == ids
    assert {int(row.original_ids[0]) for row in shards} == {ids["cls_id"]}
    assert "[MASK]" in CliRunner().invoke(cli, ["inspect", str(tmp_path / "out")]).output


def test_named_pieces_of_a_sentencepiece_model_have_their_roles_too(tmp_path):
    own = {"cls": "<bos>", "sep": "<eos>", "mask": "<" + "m" * 140 + ">", "pad": "<0>"}
    pieces = {"user_defined_symbols": list(own.values())[:3], "control_symbols": ["<0>"], "pad_id": -1, "unk_id": 0}
    path = tmp_path / "spiece.model"
    path.write_bytes(train_model(**pieces))
    library = sentencepiece.SentencePieceProcessor(model_file=str(path))
    tokenizer = load_tokenizer(path, specials=own)
    roles = {role: getattr(tokenizer, f"{role}_id") for role in own}
    assert roles == {role: library.piece_to_id(piece) for role, piece in own.items()}
    assert tokenizer.unk_id == library.unk_id()
    texts = list(make_sentences(50, seed=1))
    assert encode(tokenizer, texts) == library.encode(texts)
    assert not {*roles.values()} & {*tokenizer.encode(["a <bos> [CLS] <0> b"])[0].tolist()}
    again = Tokenizer(tokenizer.model, "again")  # as shards keep it
    assert again.specials.to_dict() == tokenizer.specials.to_dict()
    check_refused(
        lambda: load_tokenizer(path, specials={**own, "unk": "▁the"}), TokenizerError, "itself has <unk> as unk"
    )
    check_refused(
        lambda: load_tokenizer(path, specials={"cls": "<no>"}), TokenizerError, "'<no>' of --special cls is no"
    )


@refused(
    ({}, TokenizerError, "lacks [PAD] or <pad>, [UNK] or <unk>, [CLS] or <s> & name the pieces & --special cls='<s>'"),
    ({"mask": "<|no|>"}, TokenizerError, "'<|no|>' of --special mask is no piece"),
    ({"start": "<|begin|>"}, TokenizerError, "--special start=<|begin|> has no role & pad, unk, cls, sep, mask"),
    ({"cls": "<|begin|>", "sep": "<|begin|>"}, TokenizerError, "'<|begin|>' of --special sep is given twice"),
)
def test_bad_names_are_one_line(path, call, kind, named):
    check_refused(lambda: load_tokenizer(path, specials=call), kind, named)


@refused(
    (("spiece.model", b"\x0a"), TokenizerError, "is no SentencePiece model, or a damaged one"),
    (("spiece.model", train_model()), TokenizerError, "has the piece [MASK] & leave out --special mask"),
    (("tokenizer.json", make_json()), TokenizerError, "has the piece [MASK] & leave out --special mask"),
)
def test_a_file_that_needs_no_names_takes_none(tmp_path, call, kind, named):
    (tmp_path / call[0]).write_bytes(call[1])
    check_refused(lambda: load_tokenizer(tmp_path, specials={"mask": "a"}), kind, named)


@pytest.mark.parametrize(
    ("values", "code", "named"),
    [
        (["cls"], 2, "write ROLE=PIECE"),
        (["cls=<s>", "sep=</s>", "cls=<t>"], 2, "a key is there twice"),
        (["cls=<s>"], 1, "--special needs a tokenizer"),
    ],
)
def test_a_bad_option_is_an_error(here, values, code, named):
    command = ["build", "corpus.txt", "-o", "out", *(part for value in values for part in ("--special", value))]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == code
    assert named in result.output + str(result.exception)


# ---- hostile rules ----


def test_a_panic_of_the_library_is_an_error_of_one_line(capfd):
    model = make_json(pre_tokenizer=sequence("pretokenizers", BACKTRACKING, METASPACE))
    tokenizer = Tokenizer(model, "tokenizer t.json")
    assert len(tokenizer.encode(["a text"])[0]) == 7
    named = "tokenizers fails on a text with tokenizer t.json: "
    check_refused(lambda: tokenizer.encode(["a" * 60 + "b"]), TokenizerError, named)
    check_refused(lambda: tokenizer.normalise("a" * 60 + "b"), TokenizerError, named)
    assert capfd.readouterr() == ("", "")


def doubled(count: int, letter: str = "a") -> dict[str, Any]:
    return {"normalizer": sequence("normalizers", *[double(letter)] * count)}


CHAINS = {
    "doubled letters": doubled(27),
    "a letter by the next": {"normalizer": sequence("normalizers", *map(double, LETTERS[:-1], LETTERS[1:]))},
    "a chain of chains": {"normalizer": sequence("normalizers", *[doubled(9, "q")["normalizer"]] * 3)},
    "by expression": {"normalizer": sequence("normalizers", *[{**double("a"), "pattern": {"Regex": "."}}] * 27)},
    "bytes of bytes": {"pre_tokenizer": sequence("pretokenizers", *[BYTE_LEVEL] * 27, METASPACE)},
    "two kinds": doubled(5) | {"pre_tokenizer": sequence("pretokenizers", *[BYTE_LEVEL] * 8, METASPACE)},
    "a decoder": {"decoder": sequence("decoders", *[double("a")] * 27)},
}


@pytest.mark.parametrize("name", CHAINS)
def test_rules_that_multiply_text_are_refused_when_they_are_loaded(name, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(make_json(**CHAINS[name]))
    with pytest.raises(TokenizerError, match="makes [0-9,]+ characters of [0-9,]+, and at most 64 times"):
        load_tokenizer(tmp_path)


def test_a_sentence_that_becomes_too_long_is_refused_and_a_usual_one_is_not():
    tokenizer = Tokenizer(make_json(**doubled(5)), "tokenizer t.json")
    assert len(tokenizer.encode(["a" * 1000])[0]) == 32_001
    with pytest.raises(TokenizerError, match="makes over 4,194,304 characters of a sentence of 200,000"):
        tokenizer.encode(["a" * 200_000])
    assert len(tokenizer.encode(["b" * 200_000])[0]) == 200_001


def test_long_replacements_of_a_sentencepiece_model_are_refused():
    table = compile_charsmap({"a": "b" * 300})
    pieces = [(letter, -1.0, 1) for letter in "\u2581ab"]
    with pytest.raises(TokenizerError, match="replaces a string by 300 bytes; at most 256 are allowed"):
        Tokenizer(make_model(pieces, model_type=1, charsmap=table), "a model").prepare()


def test_what_others_write_to_stderr_is_passed_on_and_a_fork_has_the_true_one(capfd):
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with explain_failures("waits"):
            inside.set()
            leave.wait()

    thread = threading.Thread(target=stay)
    thread.start()
    inside.wait()
    os.write(2, b"one\n")
    if (child := os.fork()) == 0:
        os.write(2, b"of a fork\n")
        os._exit(0)
    os.waitpid(child, 0)
    assert capfd.readouterr().err == "of a fork\n"
    with pytest.raises(TokenizerError, match="tokenizers fails: two lines; give another"), explain_failures("fails"):
        raise ValueError("two\nlines")
    leave.set()
    thread.join()
    assert capfd.readouterr().err == "one\n"
    with pytest.raises(KeyboardInterrupt), explain_failures("stops"):
        raise KeyboardInterrupt
