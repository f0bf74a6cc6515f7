"""Bad input ends in one line: what, where, what is allowed, what to do next. Damage is counted or refused."""

from __future__ import annotations

import errno
import functools
import gzip
import io
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import build_fixtures as fixtures
import pytest
import sentencepiece

from albert_data.cli.main import run
from albert_data.config import ExampleConfig
from albert_data.corpus.formats.recognition import ALLOWED_NAMES
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
        "empty.model": b"",
        "bare.model": train_bare_model(),
        "two/a.model": tokenizer_model,
        "two/b.model": tokenizer_model,
        "none/notes.pdf": b"%PDF",
        "empty.txt": b"",
        "blank.txt": b" \n\t\n\r\n",
        "empty.jsonl": b"\n\n",
        "blank.jsonl": b'{"text": " "}\n{"text": ""}\n',
        "wrong.jsonl": b'{"body": "Text."}\n',
        "controls.txt": b"\x01\n\n\x01\x02\n",
        "cut.gz": b"",
        "in.doc": b"Text.",
    }
    for name, data in files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(data)
    Path("folder.txt").mkdir()
    Path("dangling.txt").symlink_to("nowhere.txt")
    return tmp_path


@functools.cache
def train_bare_model() -> bytes:
    """A SentencePiece model without the special pieces of ALBERT."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([TEXT] * 20), model_writer=model, vocab_size=40, hard_vocab_limit=False, minloglevel=2
    )
    return model.getvalue()


def fail(arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that has to fail; its message, which is the one line after those of the stages."""
    assert run(arguments.split()) == 1
    shown = capsys.readouterr()
    *stages, message = shown.err.splitlines()
    assert set(stages) <= STAGES
    assert message.startswith("Error: ")
    assert "Traceback" not in shown.err
    assert shown.out == ""
    return message.removeprefix("Error: ")


READABLE = f"readable are {ALLOWED_NAMES}"


@pytest.mark.parametrize(
    ("inputs", "parts"),
    [
        ("missing.txt", ["missing.txt does not exist", "globs in quotes, hf://datasets/OWNER/NAME, or - for stdin"]),
        ("missing/", ["missing/ does not exist"]),
        ("in.txt missing.txt", ["missing.txt does not exist"]),
        ("*.csv", ["*.csv matches no file", "globs in quotes"]),
        ("none", ["folder none holds no readable file", READABLE]),
        ("folder.txt", ["folder folder.txt holds no readable file", READABLE]),
        ("in.doc", ["in.doc is of no known kind", READABLE]),
        ("cut.gz", ["cut.gz is of no known kind", READABLE]),
        ("dangling.txt", ["dangling.txt"]),
        ("empty.txt", ["the corpus holds no document", "give files with text in them"]),
        ("blank.txt", ["the corpus holds no document"]),
        ("empty.jsonl", ["the corpus holds no document"]),
        ("blank.jsonl", ["the corpus holds no document", "2 empty document"]),
        ("wrong.jsonl", ["the corpus holds no document", "1 missing field"]),
    ],
)
@pytest.mark.parametrize("command", ["build --tokenizer model.model", "build", "vocab"])
def test_an_input_that_is_no_corpus_is_named(
    command: str, inputs: str, parts: list[str], capsys: pytest.CaptureFixture[str]
):
    message = fail(f"{command} {inputs} -o out --workers 1", capsys)
    for part in parts:
        assert part in message
    assert not (Path("out") / ".build").exists()


def test_a_corpus_without_a_token_is_refused(capsys: pytest.CaptureFixture[str]):
    message = fail("build controls.txt --tokenizer model.model -o out", capsys)
    assert message == "no document of the corpus gives a token; is this tokenizer for this text?"


@pytest.mark.parametrize(
    ("tokenizer", "parts"),
    [
        ("missing.model", ["tokenizer missing.model can't be read: No such file or directory"]),
        ("in.txt", ["tokenizer in.txt lacks [PAD], [UNK], [CLS], [SEP], [MASK]; a vocab.txt of WordPiece needs"]),
        ("corrupt.model", ["tokenizer corrupt.model is no SentencePiece model", "train one with `albert-data vocab`"]),
        ("empty.model", ["tokenizer empty.model is no SentencePiece model"]),
        ("bare.model", ["bare.model lacks [CLS], [SEP], [MASK], <pad>", "train a model with `albert-data vocab`"]),
        ("two", ["folder two holds 2 *.model files", "pass the path of a file"]),
        ("none", ["folder none holds 0 *.model files"]),
    ],
)
def test_a_tokenizer_that_is_none_says_why(tokenizer: str, parts: list[str], capsys: pytest.CaptureFixture[str]):
    message = fail(f"build in.txt --tokenizer {tokenizer} -o out", capsys)
    for part in parts:
        assert part in message
    assert not Path("out").exists()


@pytest.mark.parametrize("command", ["build --tokenizer model.model", "vocab --vocab-size 60"])
@pytest.mark.parametrize(
    ("out", "why"),
    [
        ("in.txt", "in.txt"),
        ("in.txt/below", "in.txt/below can't be written: Not a directory"),
        ("/proc/albert", "/proc/albert can't be written: No such file or directory"),
    ],
)
def test_an_output_that_cannot_be_is_named_before_any_work(
    out: str, why: str, command: str, capsys: pytest.CaptureFixture[str]
):
    assert why in fail(f"{command} in.txt -o {out} --workers 1", capsys)
    assert Path("in.txt").read_text() == TEXT


def test_stdin_without_a_tokenizer_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    fixtures.set_stdin(monkeypatch, TEXT.encode())
    message = fail("build - -o out", capsys)
    assert "without --tokenizer the corpus is read twice, and stdin can be read only once" in message
    assert "`albert-data vocab`" in message
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("option", "name", "allowed"),
    [
        ("--max-seq-len=7", "max_seq_len is 7", "8 to 32768"),
        ("--max-seq-len=32769", "max_seq_len is 32769", "8 to 32768"),
        ("--short-seq-prob=-0.1", "short_seq_prob is -0.1", "0.0 to 1.0"),
        ("--short-seq-prob=1.1", "short_seq_prob is 1.1", "0.0 to 1.0"),
        ("--short-seq-prob=nan", "short_seq_prob is nan", "0.0 to 1.0"),
        ("--ngram=0", "ngram is 0", "1 to 10"),
        ("--ngram=11", "ngram is 11", "1 to 10"),
        ("--mask-prob=0", "mask_prob is 0.0", "0.01 to 0.5"),
        ("--mask-prob=0.51", "mask_prob is 0.51", "0.01 to 0.5"),
        ("--dupe-factor=0", "dupe_factor is 0", "1 to 1000"),
        ("--seed=-1", "seed is -1", f"0 to {2**63 - 1}"),
        (f"--seed={2**63}", f"seed is {2**63}", f"0 to {2**63 - 1}"),
        ("--validation-fraction=0.6", "validation_fraction is 0.6", "0.0 to 0.5"),
        ("--num-shards=0", "num_shards is 0", "1 to 100000"),
        ("--language=x", "language is 'x', which is no known ISO 639 code", "--language help lists codes"),
        ("--text-field=", "text_field is ''", "name the field that holds the text, or several joined by commas"),
        (
            "--text-field=title,,text",
            "text_field is 'title,,text'",
            "name the field that holds the text, or several joined by commas",
        ),
    ],
)
def test_a_setting_out_of_range_names_itself_its_value_and_what_is_allowed(
    option: str, name: str, allowed: str, capsys: pytest.CaptureFixture[str]
):
    message = fail(f"build in.txt --tokenizer model.model -o out {option}", capsys)
    assert message.startswith(name)
    assert message.endswith(allowed)
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("--vocab-size=15", "vocab_size is 15; allowed are 16 to 1000000"),
        ("--character-coverage=0.5", "character_coverage is 0.5; allowed are 0.98 to 1.0"),
        ("--sample-bytes=999", "sample_bytes is 999; allowed are 1000 to 4000000000"),
        ("--seed=-1", f"seed is -1; allowed are 0 to {2**63 - 1}"),
        (
            "--language=english!",
            "language is 'english!', which is no known ISO 639 code (did you mean en, English?); "
            "--language help lists codes",
        ),
    ],
)
def test_a_setting_of_vocab_out_of_range_names_what_is_allowed(
    option: str, name: str, capsys: pytest.CaptureFixture[str]
):
    assert fail(f"vocab in.txt -o out {option}", capsys) == name


def test_the_limits_themselves_are_allowed():
    limits = "--max-seq-len 8 --short-seq-prob 1 --ngram 10 --mask-prob 0.5 --validation-fraction 0.5 --seed 3"
    assert run(f"build in.txt --tokenizer model.model -o low {limits}".split()) == 0
    limits = "--max-seq-len 32768 --short-seq-prob 0 --ngram 1 --mask-prob 0.01 --validation-fraction 0"
    assert run(f"build in.txt --tokenizer model.model -o high {limits} --seed {2**63 - 1}".split()) == 0


def test_another_kind_of_build_is_refused_by_the_name_of_the_setting(capsys: pytest.CaptureFixture[str]):
    command = "build in.txt --tokenizer model.model -o out"
    assert run(command.split()) == 0
    capsys.readouterr()
    message = fail(f"{command} --max-seq-len 64", capsys)
    assert f"max_seq_len is {ExampleConfig().max_seq_len} there and 64 here" in message
    assert "choose another output folder, or replace it with --overwrite" in message
    assert run(f"{command} --max-seq-len 64 --overwrite".split()) == 0


def test_a_full_disk_is_one_line_and_the_build_goes_on_afterwards():
    """A limit on the size of files stands in for the full disk."""
    Path("large.txt").write_text("".join(f"Number {number}. {TEXT}" for number in range(2000)))
    command = [sys.executable, "-c", "from albert_data.cli.entry import main; main()", "build", "large.txt"]
    command += ["--tokenizer", "model.model", "-o", "out", "--workers", "1"]
    limit = 20_000
    assert run([*command[3:-3], "warm", "--workers", "1"]) == 0  # compiled kernels are files too, larger than the limit
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "Error: out/.build/runs/files-000000-000.run: File too large; fix that and give the same command again"
    )
    assert "Traceback" not in done.stderr
    assert run(command[3:]) == 0


def test_a_disk_that_fills_up_at_the_very_end_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
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


def test_a_file_name_that_is_no_utf8_is_read_like_any_other(here: Path):
    Path("odd").mkdir()
    (Path("odd") / os.fsdecode(b"caf\xe9.txt")).write_text(TEXT)
    for name in ("odd", "in.txt"):
        assert run(f"build {name} --tokenizer model.model -o out-{name} --workers 1".split()) == 0
    assert fixtures.digest_shards(Path("out-odd")) == fixtures.digest_shards(Path("out-in.txt"))


# ---- damage ----


@dataclass(frozen=True)
class Damaged:
    """A file with one damaged place, where that is, and what the messages say of it."""

    name: str
    data: bytes
    at_byte: int
    reason: str
    detail: str = ""


GOOD = fixtures.to_jsonl(["A good line."] * 3)
DAMAGED = [
    Damaged("a.txt", b"Good text.\n\nBad \xff\xfe text.\n\nGood.\n", 16, "invalid_utf8", "byte 0xff"),
    Damaged("a.txt", b"Good text.\n\nCut in a character: \xe4\xb8", 32, "invalid_utf8", "byte 0xe4"),
    Damaged("a.jsonl", GOOD + b'{"text": "Bad \xff."}\n' + GOOD, len(GOOD) + 14, "invalid_utf8", "byte 0xff"),
    Damaged("a.jsonl", GOOD + b'{"text": "Half \\ud83d."}\n', len(GOOD), "lone_surrogate", "U+D83D"),
    Damaged("a.jsonl", GOOD + b'{"text": "Cut\n' + GOOD, len(GOOD), "malformed_json", "Invalid control character"),
    Damaged("a.jsonl", GOOD + b'["Text."]\n', len(GOOD), "malformed_json", "found list"),
    Damaged("a.jsonl", GOOD + b'{"a": "No.", "b": 1}\n', len(GOOD), "missing_field", 'the fields are "a", "b"'),
    Damaged("a.jsonl", GOOD + b'{"text": 7}\n', len(GOOD), "field_not_text", "holds int, not a string"),
    Damaged("a.jsonl", GOOD + b'{"text": null}\n', len(GOOD), "field_not_text", "holds NoneType"),
    Damaged("a.jsonl.gz", gzip.compress(GOOD + b'{"x": 0}\n'), len(GOOD), "missing_field", "no field 'text'"),
    Damaged("a.txt.gz", gzip.compress(TEXT.encode())[:-6], len(TEXT), "damaged_compression", "end"),
    Damaged("a.txt.gz", b"\x1f\x8bno more of it", 0, "damaged_compression"),
    Damaged("a.txt.zst", b"\x28\xb5\x2f\xfdno more of it", 0, "damaged_compression"),
]


@pytest.mark.parametrize("damaged", DAMAGED, ids=lambda damaged: f"{damaged.reason} in {damaged.name}")
def test_strict_fails_at_the_damaged_place_and_names_file_and_byte(
    damaged: Damaged, capsys: pytest.CaptureFixture[str]
):
    Path(damaged.name).write_bytes(damaged.data)
    reason = damaged.reason.replace("_", " ")
    for command in ("build --tokenizer model.model", "vocab"):
        message = fail(f"{command} in.txt {damaged.name} -o out --strict --workers 1", capsys)
        assert message.startswith(f"{damaged.name}, byte {damaged.at_byte}: {reason}")
        assert damaged.detail in message
        assert message.endswith("or leave out --strict to repair or skip such places and count them")


@pytest.mark.parametrize("damaged", DAMAGED, ids=lambda damaged: f"{damaged.reason} in {damaged.name}")
def test_without_strict_damage_is_counted_and_said_at_the_end(damaged: Damaged, capsys: pytest.CaptureFixture[str]):
    Path(damaged.name).write_bytes(damaged.data)
    assert run(f"build in.txt {damaged.name} --tokenizer model.model -o out --workers 1 --allow-loss".split()) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("damage")]
    assert line.startswith(f"damage     {damaged.reason} 1: ")


def test_damage_is_said_once_by_a_build_that_was_resumed(capsys: pytest.CaptureFixture[str]):
    Path("a.jsonl.gz").write_bytes(gzip.compress(GOOD + b"[]\n") + b"garbage")
    Path("b.jsonl").write_bytes(GOOD + b"[]\n")
    command = "build a.jsonl.gz b.jsonl --tokenizer model.model -o"
    assert run([*command.split(), "fresh"]) == 0
    fresh = [line for line in capsys.readouterr().out.splitlines() if line.startswith("damage")]
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("albert_data.pipeline.build.publish", interrupt)
        assert run([*command.split(), "resumed"]) == 130
    capsys.readouterr()
    assert run([*command.split(), "resumed"]) == 0
    resumed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("damage")]
    assert len(fresh) == 2
    assert resumed == fresh


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_a_json_line_over_128_mib_is_skipped_and_counted(capsys: pytest.CaptureFixture[str]):
    Path("a.jsonl").write_bytes(GOOD + b'{"text": "' + b"word " * (27 << 20) + b'"}\n' + GOOD)
    assert run(["build", "a.jsonl", "--tokenizer", "model.model", "-o", "out", "--workers", "1"]) == 0
    assert "damage     line_too_long 1: " in capsys.readouterr().out
    message = fail("build a.jsonl --tokenizer model.model -o strict --workers 1 --strict", capsys)
    assert message.startswith(f"a.jsonl, byte {len(GOOD)}: line too long: over 134217728 bytes")
