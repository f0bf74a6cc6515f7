"""A tokenizer.json whose regular expression never ends, or whose rules multiply text, is an error of one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from made_models import compile_charsmap, make_model
from wordpiece_fixtures import SPECIALS

from albert_data.errors import TokenizerError
from albert_data.tokenizer.backend import explain_failures
from albert_data.tokenizer.model import Tokenizer, load_tokenizer

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


def test_a_panic_of_the_library_is_an_error_of_one_line(capfd: pytest.CaptureFixture[str]):
    model = make_json(pre_tokenizer=sequence("pretokenizers", BACKTRACKING, METASPACE))
    tokenizer = Tokenizer(model, "tokenizer t.json")
    assert len(tokenizer.encode(["a text"])[0]) == 7
    with pytest.raises(TokenizerError, match="tokenizers fails on a text with tokenizer t.json: .*") as caught:
        tokenizer.encode(["a" * 60 + "b"])
    assert "\n" not in str(caught.value)
    with pytest.raises(TokenizerError, match="fails on a text"):
        tokenizer.normalise("a" * 60 + "b")
    assert capfd.readouterr() == ("", "")


def test_a_build_that_meets_a_panic_ends_with_one_line(tmp_path: Path):
    (tmp_path / "tokenizer.json").write_bytes(
        make_json(pre_tokenizer=sequence("pretokenizers", BACKTRACKING, METASPACE))
    )
    (tmp_path / "corpus.txt").write_text("Some text. " * 30 + "a" * 60 + "b.\n")
    command = [sys.executable, "-m", "albert_data", "build", "corpus.txt", "--tokenizer", "tokenizer.json", "-o", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert "panicked" not in done.stderr
    assert [line for line in done.stderr.splitlines() if "Error" in line] == [done.stderr.splitlines()[-1]]
    assert done.stderr.splitlines()[-1].startswith("Error: the library tokenizers fails on a text with tokenizer")


CHAINS = {
    "doubled letters": {"normalizer": sequence("normalizers", *[double("a")] * 27)},
    "a letter by the next": {"normalizer": sequence("normalizers", *map(double, LETTERS[:-1], LETTERS[1:]))},
    "a chain of chains": {"normalizer": sequence("normalizers", *[sequence("normalizers", *[double("q")] * 9)] * 3)},
    "doubled by a regular expression": {
        "normalizer": sequence("normalizers", *[{**double("a"), "pattern": {"Regex": "."}}] * 27)
    },
    "bytes of bytes": {"pre_tokenizer": sequence("pretokenizers", *[BYTE_LEVEL] * 27, METASPACE)},
    "normalised, then split": {
        "normalizer": sequence("normalizers", *[double("a")] * 5),
        "pre_tokenizer": sequence("pretokenizers", *[BYTE_LEVEL] * 8, METASPACE),
    },
    "a decoder": {"decoder": sequence("decoders", *[double("a")] * 27)},
}


@pytest.mark.parametrize("name", CHAINS)
def test_rules_that_multiply_text_are_refused_when_they_are_loaded(name: str, tmp_path: Path):
    (tmp_path / "tokenizer.json").write_bytes(make_json(**CHAINS[name]))
    with pytest.raises(TokenizerError, match="makes [0-9,]+ characters of [0-9,]+, and at most 64 times"):
        load_tokenizer(tmp_path)


def test_a_sentence_that_becomes_too_long_is_refused_and_a_usual_one_is_not():
    tokenizer = Tokenizer(make_json(normalizer=sequence("normalizers", *[double("a")] * 5)), "tokenizer t.json")
    assert len(tokenizer.encode(["a" * 1000])[0]) == 32_001
    with pytest.raises(TokenizerError, match="makes over 4,194,304 characters of a sentence of 200,000"):
        tokenizer.encode(["a" * 200_000])
    assert len(tokenizer.encode(["b" * 200_000])[0]) == 200_001


def test_long_replacements_of_a_sentencepiece_model_are_refused():
    table = compile_charsmap({"a": "b" * 300})
    pieces = [(letter, -1.0, 1) for letter in "\u2581ab"]
    with pytest.raises(TokenizerError, match="replaces a string by 300 bytes; at most 256 are allowed"):
        Tokenizer(make_model(pieces, model_type=1, charsmap=table), "a model").prepare()


def test_what_others_write_to_stderr_is_passed_on_and_a_fork_has_the_true_one(capfd: pytest.CaptureFixture[str]):
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
