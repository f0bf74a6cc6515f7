"""The command line: every command helps, starts fast, and ends with an exit code that says how it went."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import click
import pytest

from albert_data import __version__
from albert_data.cli.main import COMMANDS, cli, run
from albert_data.config import BuildConfig

BUILD_SETTINGS = {**BuildConfig().to_flat_dict(), "max_seq_len": 64, "validation_fraction": 0.2}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    fixtures.load_tokenizers_once(monkeypatch)


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """The command as a user's shell starts it."""
    command = [sys.executable, "-c", "from albert_data.cli.entry import main; main()", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, **{"stdout": pipe, "stderr": pipe, "text": True, **options})


def run_python(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def get_command(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


# ---- completion ----


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("in", ["plain,inspect"]),
        ("build corpus --pairs or", ["plain,order3"]),
        ("build corpus --tokenizer voc", ["file,voc"]),
        ("audit shards --corpus cor", ["file,cor"]),
    ],
)
def test_tab_completes_commands_options_values_and_files(line, completed):
    words = {"COMP_WORDS": f"albert-data {line}", "COMP_CWORD": str(len(line.split()))}
    shown, _ = start(env={**os.environ, "_ALBERT_DATA_COMPLETE": "bash_complete", **words}).communicate()
    assert shown.splitlines() == completed


# ---- help ----


def test_help_names_every_command_and_what_it_does(capsys):
    assert run(["-h"]) == 0
    shown = capsys.readouterr().out
    for name, does in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(does)}$", shown, re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_explains_every_option_in_80_columns(name, capsys):
    assert run([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: albert-data {name} ")
    assert COMMANDS[name].split()[0] in shown
    assert f"  albert-data {name} " in shown, "an example"
    for option in get_command(name).params:
        if isinstance(option, click.Option) and not option.hidden:
            assert option.help
            assert option.opts[-1] in shown
    assert "\x1b" not in shown
    assert max(map(len, shown.split("\n"))) <= 80


def test_help_loads_none_of_the_large_libraries():
    code = (
        "import sys; from albert_data.cli.main import run\n"
        "for name in sys.argv[1:]: assert run([name, '--help']) == 0\n"
        "print('loaded', {'torch', 'numba', 'numpy', 'pyarrow', 'sentencepiece'} & set(sys.modules))"
    )
    assert run_python(code, *COMMANDS).endswith("loaded set()\n")


def test_what_makes_and_reads_shards_needs_neither_torch_nor_other_trainers(here):
    code = """
import sys
sys.modules |= dict.fromkeys(("torch", "datasets", "streaming"))
from albert_data.cli.main import run
assert run(["vocab", "corpus.txt", "--vocab-size", "115", "-o", "vocab", "--workers", "1"]) == 0
assert run(["build", "corpus.txt", "--tokenizer", "vocab", "-o", "out", "--workers", "1"]) == 0
assert run(["inspect", "out"]) == 0
assert run(["verify", "out"]) == 0
assert run(["convert", "out", "--to", "mds", "-o", "records", "--workers", "1"]) == 0
"""
    run_python(code)


# ---- exit codes ----


def test_the_installed_command_is_this_one():
    command = Path(sys.executable).with_name("albert-data")
    done = subprocess.run([command, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"albert-data, version {__version__}\n")


def test_windows_is_told_where_to_install_it(monkeypatch):
    from albert_data.cli.entry import main

    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit, match="does not run on Windows itself; install it in WSL"):
        main()


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"quickstart"}))  # which has a sample
def test_a_command_without_its_arguments_is_a_usage_error(name, capsys):
    assert run([name]) == 2
    assert "Missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typo", "hint"), [("buld", "Did you mean 'build'?"), ("frobnicate", "`albert-data --help` lists all commands.")]
)
def test_an_unknown_command_is_a_usage_error_that_suggests_a_similar_one(typo, hint, capsys):
    assert read_usage_error([typo], capsys).startswith(f"Error: No such command '{typo}'. {hint}")


def test_inspect_of_a_training_run_names_the_command_for_runs(tmp_path, capsys):
    (tmp_path / "run.json").write_text("{}")
    assert run(["inspect", str(tmp_path)]) == 2
    assert f"{tmp_path} is a training run; `albert-data runs {tmp_path}` shows it" in capsys.readouterr().err


def read_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(arguments) == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Error: ")]
    return line


@pytest.mark.parametrize(
    "command",
    [
        *("inspect missing", "audit missing", "verify missing", "audit missing --corpus corpus.txt"),
        *("train missing -o out", "runs missing", "export missing -o out", "train missing -o out --resume"),
    ],
)
def test_a_path_that_does_not_exist_is_an_error_in_one_line(command, here, capsys):
    assert run(command.split()) == 1
    *stages, line = capsys.readouterr().err.splitlines()
    assert line.startswith("Error: ")
    assert "missing" in line or "out" in line
    assert not [stage for stage in stages if stage.startswith(("Error", "Traceback"))]


def test_a_number_is_checked_and_a_size_may_have_a_unit(capsys):
    assert "'--workers'" in read_usage_error(["build", "corpus.txt", "-o", "out", "--workers", "1025"], capsys)
    for size in ("", "M", "64Q", "nan"):
        said = read_usage_error(["vocab", "corpus.txt", "-o", "vocab", "--sample-bytes", size], capsys)
        assert "is not a size; write it as 64000000, 64M or 1.5G" in said
    for size in ("64M", "64MB", "0.064G", "64000k"):
        context = get_command("vocab").make_context("vocab", ["in", "-o", "out", "--sample-bytes", size])
        assert context.params["sample_bytes"] == 64_000_000


def test_ctrl_c_says_how_to_go_on_and_exits_with_130(here):
    (here / "large.txt").write_text((here / "corpus.txt").read_text() * 400)
    arguments = ["build", "large.txt", "--tokenizer", "model.model", "-o", "out", "--workers", "2"]
    process = start(*arguments, start_new_session=True)
    assert any(line.startswith("tokenising") for line in process.stderr)
    os.killpg(process.pid, signal.SIGINT)  # to the whole group, as a terminal does
    assert process.stderr.read() == "\nInterrupted; the same command resumes the build.\n"
    assert process.wait() == 130
    assert Path("out/.build/plan.json").exists()


def test_ctrl_c_in_any_command_exits_with_130(here, monkeypatch, capsys):
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("albert_data.library.documents.find_sources", interrupt)
    assert run(["vocab", "corpus.txt", "-o", "vocab"]) == 130
    assert capsys.readouterr().err == "\nInterrupted.\n"


def test_a_reader_that_has_enough_is_no_error(here):
    process = start("build", "corpus.txt", "--dry-run", "-o", "out")
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    assert process.wait(30) == 0
    assert process.stderr.read() == ""


# ---- what the commands do ----


def test_build_writes_a_folder_and_says_what_is_in_it(here, capsys):
    arguments = ["build", "corpus.txt", "--tokenizer", "model.model", "-o", "out", "--workers", "2"]
    settings = ["--max-seq-len", "64", "--validation-fraction", "0.2", "--num-shards", "2"]
    assert run([*arguments, *settings]) == 0
    shown = capsys.readouterr().out
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert manifest["config"] == {**BUILD_SETTINGS, "num_shards": 2}
    assert "documents  60 (" in shown
    for name, split in manifest["splits"].items():
        assert re.search(rf"^{name} +{split['num_rows']} rows, ", shown, re.MULTILINE)
    assert {path.name for path in Path("out").iterdir()} == {
        *("README.md", "manifest.json", "tokenizer", "train", "validation")
    }
    assert run([*arguments, *settings]) == 0
    assert "out is finished" in capsys.readouterr().out


def test_every_option_of_build_reaches_the_manifest(here):
    flags = {"strict": True, "unwrap": True, "drop_near_duplicates": True, "keep_duplicates": False, "header": False}
    values: dict[str, Any] = {
        **{"sentences": "lines", "language": "de", "text_field": "body", "similarity": 0.75},
        **{
            "documents": "blank-line",
            "document_separator": "<eos>",
            "min_chars": 3,
            "exclude": "a/,*.b",
            "sample": 0.99,
        },
        **{"encoding": "utf-8", "language_field": "lang", "group_field": "book"},
        **{"max_seq_len": 33, "short_seq_prob": 0.25, "ngram": 2, "mask_prob": 0.25},
        **{"dupe_factor": 2, "seed": 9, "validation_fraction": 0.45, "num_shards": 3, "compression": "lz4"},
        **{"masking": "ngram", "replace": "70/20/10", "pairs": "nsp", "drop_repeated_lines": 3},
        **{"delimiter": "|", "quoting": "none", "unicode": "nfc", "format": "jsonl"},
        **{"where": "book > 5", "alpha": 0.5, "max_passes": 7.0},
    }
    settings = {**values, **flags, "whole_word": False}  # the last is --pieces
    assert settings.keys() == BUILD_SETTINGS.keys()
    lines = (f'{{"body": "Eins {a}.\\nDrei {a} vier.", "lang": "de", "book": {ord(a)}}}\n' for a in "abcdefghi")
    Path("in.jsonl").write_text("".join(lines))
    options = [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]
    options += ["--strict", "--unwrap", "--drop-near-duplicates", "--pieces", "--no-header"]
    arguments = ["in.jsonl", "--tokenizer", "model.model", "-o", "out", "--workers", "1"]
    assert run(["build", *arguments, *options]) == 0
    assert json.loads(Path("out/manifest.json").read_text())["config"] == settings
    context = get_command("build").make_context("build", ["in", "-o", "out", "--keep-duplicates"])
    assert context.params["keep_duplicates"] is True


@pytest.mark.parametrize("out", ["file/out", "notes", "linked", "other", "killed", "same"])
def test_a_dry_run_refuses_what_build_refuses(out, here, capsys):
    command = ["build", "corpus.txt", "--tokenizer", "model.model", "--workers", "1", "-o"]
    here.joinpath("file").write_text("Mine.")
    here.joinpath("notes").mkdir()
    here.joinpath("notes/mine.txt").write_text("Mine.")
    here.joinpath("linked/.build").mkdir(parents=True)
    here.joinpath("linked/.build/lock").write_text("albert-data build\n")
    here.joinpath("linked/train").symlink_to(here / "notes")
    if out in ("other", "killed", "same"):
        assert run([*command, out, *([] if out == "same" else ["--seed", "5"])]) == 0
    if out == "killed":
        (here / out / ".build").mkdir()
        (here / out / ".build/lock").write_text("albert-data build\n")
        plan = json.loads((here / out / "manifest.json").read_text())["plan"]
        (here / out / ".build/plan.json").write_text(json.dumps(plan))
        (here / out / "manifest.json").unlink()
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*")}
    code = run([*command, out, "--dry-run"])
    shown, said = capsys.readouterr()
    assert {path: path.stat().st_mtime_ns for path in here.rglob("*")} == before
    assert code == run([*command, out]) == (0 if out == "same" else 1)
    assert "same is finished" in shown.splitlines()[-1] if out == "same" else said.count("Error: ") == 1
    if out != "same":
        assert said.splitlines()[-1] == capsys.readouterr().err.splitlines()[-1]


def test_without_a_tokenizer_one_is_trained_first(here, capsys):
    assert run(["build", "corpus.txt", "-o", "out", "--workers", "1"]) == 0
    shown = capsys.readouterr().err
    assert "no --tokenizer given: a vocabulary is trained on the corpus first" in shown
    size = re.search(r"the text supports no more than ([\d,]+) pieces", shown)
    assert size
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert f"{manifest['tokenizer']['vocab_size']:,}" == size.group(1)


def test_vocab_writes_a_tokenizer_that_build_takes(here, capsys):
    Path("long.txt").write_text("word " * 1000)
    arguments = ["corpus.txt", "long.txt", "--vocab-size", "115", "--uncased", "-o", "new/vocab"]
    assert run(["vocab", *arguments, "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert "new/vocab/spiece.model: 115 pieces (unigram)" in shown
    assert "of 61 documents" in shown
    assert not json.loads(Path("new/vocab/vocab.json").read_text())["cased"]
    for number, name in enumerate(("new/vocab", "new/vocab/spiece.model")):
        assert run(["build", "corpus.txt", "--tokenizer", name, "-o", f"out{number}", "--workers", "1"]) == 0
    assert fixtures.digest_shards(Path("out0")) == fixtures.digest_shards(Path("out1"))
