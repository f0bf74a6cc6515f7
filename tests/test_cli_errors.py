"""Bad input ends in one line: what, where, what is allowed, what to do next. Damage is counted or refused."""

from __future__ import annotations

import errno
import functools
import gzip
import io
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from unittest.mock import patch

import build_fixtures as fixtures
import pytest
import sentencepiece
from refusals import check_refused

from albert_data.cli.main import run
from albert_data.config import BuildConfig, ExampleConfig, TextConfig, VocabConfig
from albert_data.corpus.formats.recognition import ALLOWED_NAMES
from albert_data.errors import ConfigError
from albert_data.storage import Disk

TEXT = "A first document. It has two sentences.\n\nAnd a second one.\n"
STAGES = {
    "reading",
    "tokenising, pairing, masking",
    "shuffling, writing",
    "no --tokenizer given: a vocabulary is trained on the corpus first",
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, tokenizer_model: bytes, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: in.txt, model.model, and things that are no use."""
    fixtures.load_tokenizers_once(monkeypatch)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})  # one worker
    monkeypatch.chdir(tmp_path)
    files = {
        "in.txt": TEXT.encode(),
        "model.model": tokenizer_model,
        "corrupt.model": tokenizer_model[: len(tokenizer_model) // 2],
        "bare.model": train_bare_model(),
        "two/a.model": tokenizer_model,
        "two/b.model": tokenizer_model,
        "none/notes.pdf": b"%PDF",
        "empty.txt": b"",
        "blank.jsonl": b'{"text": " "}\n{"text": ""}\n',
        "wrong.jsonl": b'{"body": "Text."}\n',
        "controls.txt": b"\x01\n\n\x01\x02\n",
        "in.doc": b"Text.",
    }
    for name, data in files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(data)
    return tmp_path


@functools.cache
def train_bare_model() -> bytes:
    """A SentencePiece model without the special pieces of ALBERT."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([TEXT] * 20), model_writer=model, vocab_size=40, hard_vocab_limit=False, minloglevel=2
    )
    return model.getvalue()


def fail(arguments: str, capsys: pytest.CaptureFixture[str], named: str = "") -> str:
    """Run a command that has to fail; its message, which is the one line after those of the stages.

    It has each part of `named`, which are divided by " & ".
    """
    assert run(arguments.split()) == 1
    shown = capsys.readouterr()
    *stages, message = shown.err.splitlines()
    assert set(stages) <= STAGES
    assert message.startswith("Error: ")
    assert [part for part in named.split(" & ") if part not in message] == [], message
    assert shown.out == ""
    return message.removeprefix("Error: ")


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        ("missing.txt", "missing.txt does not exist & globs in quotes, hf://datasets/OWNER/NAME, or - for stdin"),
        ("*.csv", "*.csv matches no file & globs in quotes"),
        ("none", f"folder none holds no readable file & readable are {ALLOWED_NAMES}"),
        ("in.doc", f"in.doc is of no known kind & readable are {ALLOWED_NAMES}"),
        ("empty.txt", "the corpus holds no document & give files with text in them"),
        ("blank.jsonl", "the corpus holds no document & 2 empty document"),
        ("wrong.jsonl", "the corpus holds no document & 1 missing field"),
    ],
)
@pytest.mark.parametrize("command", ["build --tokenizer model.model", "build", "vocab"])
def test_an_input_that_is_no_corpus_is_named(command, inputs, named, capsys):
    fail(f"{command} {inputs} -o out --workers 1", capsys, named)
    assert not (Path("out") / ".build").exists()


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("build in.txt --tokenizer missing.model", "tokenizer missing.model can't be read: No such file or directory"),
        ("build in.txt --tokenizer in.txt", "tokenizer in.txt lacks [PAD], [UNK], [CLS], [SEP], [MASK]; a vocab.txt"),
        ("build in.txt --tokenizer corrupt.model", "corrupt.model is no SentencePiece model & `albert-data vocab`"),
        (
            "build in.txt --tokenizer bare.model",
            "lacks [PAD] or <pad>, [MASK] or <mask> & train a model with `albert",
        ),
        ("build in.txt --tokenizer two", "folder two holds 2 *.model files & pass the path of a file"),
        ("build -", "without --tokenizer the corpus is read twice & stdin can be read only once & `albert-data vocab`"),
        ("build in.txt --max-seq-len=7", "max_seq_len is 7; allowed are 8 to 32768"),
        ("build in.txt --language=x", "language is 'x', which is no known ISO 639 code & name one such as"),
        ("vocab in.txt --vocab-size=15", "vocab_size is 15; allowed are 16 to 1000000"),
        ("vocab in.txt --language=english!", "'english!', which is no known ISO 639 code (did you mean en, English?)"),
    ],
)
def test_a_mistake_is_named_before_anything_is_written(command, named, monkeypatch, capsys):
    fixtures.set_stdin(monkeypatch, TEXT.encode())
    fail(f"{command} -o out", capsys, named)
    assert not Path("out").exists()


@pytest.mark.parametrize("command", ["build --tokenizer model.model", "vocab --vocab-size 60"])
@pytest.mark.parametrize(
    ("out", "named"),
    [
        ("in.txt", "in.txt"),
        ("in.txt/below", "in.txt/below can't be written: Not a directory"),
        ("/proc/albert", "/proc/albert can't be written: No such file or directory"),
    ],
)
def test_an_output_that_cannot_be_is_named_before_any_work(out, named, command, capsys):
    fail(f"{command} in.txt -o {out} --workers 1", capsys, named)
    assert Path("in.txt").read_text() == TEXT


@pytest.mark.parametrize(
    ("kind", "name", "low", "high", "beyond"),
    [
        (ExampleConfig, "max_seq_len", 8, 32768, [7, 32769]),
        (ExampleConfig, "mask_prob", 0.01, 0.5, [0.0, 0.51]),
        (BuildConfig, "num_shards", 1, 100_000, [0, 100_001]),
        (VocabConfig, "character_coverage", 0.98, 1.0, [0.979, 1.1, math.nan]),
        (VocabConfig, "seed", 0, 2**63 - 1, [-1, 2**63]),
    ],
)
def test_a_setting_has_a_lowest_and_a_highest_value(kind, name, low, high, beyond):
    assert [getattr(kind(**{name: value}), name) for value in (low, high)] == [low, high]
    for value in beyond:
        check_refused(
            functools.partial(kind, **{name: value}), ConfigError, f"{name} is {value!r}; allowed are {low} to {high}"
        )


@pytest.mark.parametrize("value", ["", "title,,text"])
def test_a_text_field_without_a_name_is_refused(value):
    named = f"text_field is {value!r}; name the field that holds the text, or several joined by commas"
    check_refused(lambda: TextConfig(text_field=value), ConfigError, named)


def test_a_corpus_without_a_token_is_refused(capsys):
    fail("build controls.txt --tokenizer model.model -o out", capsys, "gives a token; is this tokenizer for this text?")


def test_the_shortest_and_the_longest_rows_are_built():
    limits = "--max-seq-len 8 --short-seq-prob 1 --ngram 10 --mask-prob 0.5 --validation-fraction 0.5 --seed 3"
    assert run(f"build in.txt --tokenizer model.model -o low {limits}".split()) == 0
    limits = "--max-seq-len 32768 --short-seq-prob 0 --ngram 1 --mask-prob 0.01 --validation-fraction 0"
    assert run(f"build in.txt --tokenizer model.model -o high {limits} --seed {2**63 - 1}".split()) == 0


def test_another_kind_of_build_is_refused_by_the_name_of_the_setting(capsys):
    command = "build in.txt --tokenizer model.model -o out"
    assert run(command.split()) == 0
    capsys.readouterr()
    message = fail(f"{command} --max-seq-len 64", capsys)
    assert f"max_seq_len is {ExampleConfig().max_seq_len} there and 64 here" in message
    assert "choose another output folder, or replace it with --overwrite" in message
    assert run(f"{command} --max-seq-len 64 --overwrite".split()) == 0


def test_a_disk_that_fills_up_at_the_very_end_is_one_line(monkeypatch, capsys):
    original = Disk.create

    @contextmanager
    def create(disk: Disk, path: Path, *, sync: bool = True) -> Iterator[BinaryIO]:
        with original(disk, path, sync=sync) as file:
            yield file
            if path.name == "README.md":
                raise OSError(errno.ENOSPC, "No space left on device")

    command = "build in.txt --tokenizer model.model -o out --workers 1"
    with monkeypatch.context() as patch:
        patch.setattr(Disk, "create", create)
        message = fail(command, capsys)
    assert message.startswith("out/.build/shards/README.md: No space left on device")
    assert "give the same command again" in message
    assert run(command.split()) == 0
    assert not Path("out/.build").exists()


# ---- damage ----


GOOD = fixtures.to_jsonl(["A good line."] * 3)


@pytest.mark.parametrize(
    ("name", "data", "at_byte", "reason", "detail"),
    [
        ("a.txt", b"Good text.\n\nBad \xff\xfe text.\n\nGood.\n", 16, "invalid_utf8", "byte 0xff"),
        ("a.jsonl", GOOD + b'{"text": "Half \\ud83d."}\n', len(GOOD), "lone_surrogate", "U+D83D"),
        ("a.jsonl", GOOD + b'{"text": "Cut\n' + GOOD, len(GOOD), "malformed_json", "Invalid control character"),
        ("a.jsonl", GOOD + b'{"a": "No.", "b": 1}\n', len(GOOD), "missing_field", 'the fields are "a", "b"'),
        ("a.jsonl", GOOD + b'{"text": 7}\n', len(GOOD), "field_not_text", "holds int, not a string"),
        ("a.jsonl.gz", gzip.compress(GOOD + b'{"x": 0}\n', mtime=0), len(GOOD), "missing_field", "no field 'text'"),
        ("a.txt.zst", b"\x28\xb5\x2f\xfdno more of it", 0, "damaged_compression", ""),
    ],
)
def test_damage_is_counted_and_strict_fails_at_its_file_and_byte(name, data, at_byte, reason, detail, capsys):
    Path(name).write_bytes(data)
    for command in ("build --tokenizer model.model", "vocab"):
        message = fail(f"{command} in.txt {name} -o out --strict --workers 1", capsys)
        assert message.startswith(f"{name}, byte {at_byte}: {reason.replace('_', ' ')}")
        assert detail in message
        assert message.endswith("or leave out --strict to repair or skip such places and count them")
    assert run(f"build in.txt {name} --tokenizer model.model -o loose --workers 1 --allow-loss".split()) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("damage")]
    assert line.startswith(f"damage     {reason} 1: ")


def test_damage_is_said_once_by_a_build_that_was_resumed(capsys):
    Path("a.jsonl.gz").write_bytes(gzip.compress(GOOD + b"[]\n") + b"garbage")
    Path("b.jsonl").write_bytes(GOOD + b"[]\n")
    command = "build a.jsonl.gz b.jsonl --tokenizer model.model -o"
    assert run([*command.split(), "fresh"]) == 0
    fresh = [line for line in capsys.readouterr().out.splitlines() if line.startswith("damage")]
    with patch("albert_data.pipeline.build.publish", side_effect=KeyboardInterrupt):
        assert run([*command.split(), "resumed"]) == 130
    capsys.readouterr()
    assert run([*command.split(), "resumed"]) == 0
    resumed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("damage")]
    assert len(fresh) == 2
    assert resumed == fresh
