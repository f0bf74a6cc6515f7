"""`quickstart` runs the commands that it prints, resumes, and keeps what is there."""

from __future__ import annotations

import dataclasses
import errno
import importlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import build_fixtures as fixtures
import pytest

from albert_data.cli.compiling import compiling_beside
from albert_data.cli.main import run
from albert_data.cli.quickstart import format_command
from albert_data.shards.reader import open_shards
from albert_data.text.escaping import quote
from albert_data.text.output import show

ROOT = Path(__file__).parent.parent
Call = Callable[..., Any]
OTHER = "these options or this text differ: name another folder by -o"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a copy of the sample corpus."""
    shutil.copytree(ROOT / "sample_corpus", tmp_path / "corpus")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `first` of a quickstart without training, beside its corpus."""
    folder = tmp_path_factory.mktemp("finished")
    shutil.copytree(ROOT / "sample_corpus", folder / "corpus")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        assert run(["quickstart", "corpus", "-o", "first", "--minutes", "0"]) == 0
    return folder


@pytest.fixture
def resumed(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: a copy of the finished folder and its corpus, with the times of the files."""
    shutil.copytree(finished, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each training have two steps, of few rows."""
    from albert_data.train import loop

    def train(shards: Path, output: Path, config: Any, **options: Any) -> Path | None:
        config = dataclasses.replace(config, minutes=None, steps=2, batch_tokens=256, eval_rows=4, eval_every=2)
        return original(shards, output, config, **options)

    original = loop.train
    monkeypatch.setattr(loop, "train", train)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """call(*words): run a quickstart into `first`, which ends with this code; what it printed, as `out` and `err`."""

    def call(*words: str, minutes: float = 0, code: int = 0) -> Any:
        assert run(["quickstart", "-o", "first", "--minutes", str(minutes), *words]) == code
        return capsys.readouterr()

    return call


def read_commands(shown: str) -> list[list[str]]:
    """The words of all commands that were printed, as a shell reads them."""
    return [shlex.split(line)[1:] for line in shown.split("\n") if line.startswith("albert-data ")]


def test_the_printed_commands_make_the_same_files(here, call):
    commands = read_commands(call("corpus/e*.txt", "--vocab-size", "600", "--workers", "2").out)
    assert [words[0] for words in commands] == ["vocab", "build", "inspect", "audit", "inspect", "inspect", "train"]
    assert "--validation-fraction" not in commands[1]
    for words in commands[:5]:
        assert run([word.replace("first", "second") for word in words]) == 0
    first, second = (fixtures.digest_folder(here / name) for name in ("first", "second"))
    del first["report.html"], second["report.html"]  # they name their folder
    del first[".quickstart.json"]
    assert first == second


def test_the_sample_gives_a_vocabulary_and_rows_in_both_splits(finished):
    assert 100 < len((finished / "first/vocab/pieces.txt").read_text().splitlines()) < 8000
    shards = open_shards(finished / "first/shards")
    assert len(shards) > 200
    assert len(open_shards(finished / "first/shards", "validation")) >= 20


def test_what_is_finished_stays_as_it_is_and_a_missing_step_alone_is_done(resumed, call):
    before = fixtures.digest_folder(resumed)
    shown = call("corpus").out
    assert fixtures.digest_folder(resumed) == before
    assert shown.startswith("first is there: what is finished in it is not made again\n")
    assert shown.count("nothing to do") == 3
    assert [words[0] for words in read_commands(shown)] == ["build", "inspect", "audit", "inspect", "train"]
    (resumed / "first/report.html").unlink()
    call("corpus")
    after = fixtures.digest_folder(resumed)
    assert after.keys() == before.keys()
    assert {name for name in before if after[name] != before[name]} <= {"first/report.html"}


def test_a_model_is_trained_shows_once_what_it_guesses_and_is_never_replaced(resumed, two_steps, call):
    for num_guesses in (5, 0):  # the second call finds the run finished
        shown = call("corpus", minutes=3)
        assert shown.err.count("right: ") == shown.err.count("____") == num_guesses
        assert "right: " not in shown.out
        assert [words[0] for words in read_commands(shown.out)][-4:] == ["inspect", "runs", "export", "train"]
    assert ["train", "first/shards", "--resume", "--minutes", "3", "-o", "first/run"] in read_commands(shown.out)
    training = ["train", "first/shards", "--preset", "mini", "--minutes", "60", "-o", "first/longer"]
    assert read_commands(call("corpus").out)[-1] == training


def test_an_interrupted_training_ends_with_the_next_steps_and_resumes(resumed, two_steps, monkeypatch, call):
    from albert_data.train import loop

    original = loop.update

    def update(*arguments: Any, **options: Any) -> None:
        original(*arguments, **options)
        signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr("albert_data.train.loop.update", update)
        shown, told = call("corpus", minutes=2.5, code=143)
    assert "right: " not in told
    assert "The same command resumes it." in shown
    assert read_commands(shown)[-1][0] == "train"
    assert "right: " not in shown
    assert "right: " in call("corpus", minutes=2.5).err


def test_without_torch_all_but_the_training_is_done(resumed, monkeypatch, call):
    monkeypatch.setitem(sys.modules, "torch", None)
    shown = call("corpus", minutes=10).out
    assert "needs torch; install it with: pip install 'albert-data[train]'" in shown
    assert not list((resumed / "first").glob("run*"))


@pytest.fixture
def plan(here: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> Call:
    """plan(words): the words of `vocab` and of `build` that a quickstart prints, and all of it; it runs neither."""

    def say(title: str, name: str, arguments: Sequence[str], options: Sequence[str] = ()) -> None:
        show(format_command([name, *module._order(arguments, options)]))

    def plan(*words: str) -> tuple[list[str], list[str], str]:
        shown = call(*words).out
        vocab, build, *_ = read_commands(shown)
        assert (vocab[0], build[0]) == ("vocab", "build")
        return vocab, build, shown

    module = importlib.import_module("albert_data.cli.quickstart")
    monkeypatch.setattr(module, "_run", say)
    monkeypatch.setattr(module, "_report", lambda *_: ([], []))
    return plan


def test_options_of_text_reach_all_commands_that_read_it(plan):
    options = ["--language", "de", "--unwrap", "--documents", "file", "--sentences", "lines"]
    vocab, build, _ = plan("corpus/english-1.txt", *options)
    for words in (vocab, build):
        assert {"--language", "de", "--unwrap", "--documents", "file", "lines"} <= set(words)


def test_abbreviations_and_alpha_reach_the_commands_as_they_were_given(plan):
    Path("mine.txt").write_text("en pat.")
    vocab, build, _ = plan("corpus/english-1.txt:en", "--abbreviations", "mine.txt", "--alpha", "0.3")
    for words in (vocab, build):
        assert " ".join(words).count("--abbreviations mine.txt --alpha 0.3") == 1


def test_odd_names_are_quoted(plan):
    names = ["-x.txt", "it's a $HOME.txt", 'a"b\\c.txt', "é 世.txt"]
    for name in names:
        shutil.copy("corpus/english-1.txt", name)
    _, _, shown = plan("-o", "the folder", "--", *names)
    assert "'the folder/shards'" in shown
    assert "--" in shown.split()
    assert all(quote(name) in shown for name in names)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["corpsu"], "input corpsu does not exist"),
        (["-"], "reads its inputs twice, and - can be read only once"),
        (["."], "first and the input . overlap"),
        (["corpus", "-o", "corpus/first"], "overlap"),
        (["corpus", "--language", "xx"], "language"),
        (["corpus", "--minutes", "nan"], "minutes is nan"),
        (["corpus", "--alpha", "2"], "alpha is 2.0"),
        (["corpus", "--abbreviations", "none.txt"], "--abbreviations none.txt can't be read"),
    ],
)
def test_a_mistake_is_told_before_anything_is_written(here, arguments, message, call):
    before = fixtures.digest_folder(here)
    assert message in call(*arguments, code=1).err
    assert fixtures.digest_folder(here) == before
    assert not (here / "first").exists()


# ---- the sample ----


@pytest.fixture
def no_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let quickstart print its commands, and run none."""
    module = importlib.import_module("albert_data.cli.quickstart")
    monkeypatch.setattr(module, "_run", lambda title, name, arguments, options=(): None)
    monkeypatch.setattr(module, "_report", lambda *_: ([], []))


def test_without_a_text_the_sample_is_written_once_and_read(no_commands, tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    line = "no INPUT is given; the text is {}sample_corpus\n"
    assert call().out.startswith(line.format("a sample, written to "))
    texts = {
        file: digest for file, digest in fixtures.digest_folder(ROOT / "sample_corpus").items() if "README" not in file
    }
    assert fixtures.digest_folder(tmp_path / "sample_corpus") == texts
    assert {path.name for path in tmp_path.iterdir()} == {"sample_corpus", "first"}
    (tmp_path / "sample_corpus/chinese.txt").unlink()  # it is the user's now
    assert call("-o", "second").out.startswith(line.format("that in "))
    assert not (tmp_path / "sample_corpus/chinese.txt").exists()


def test_two_quickstarts_at_once_write_one_sample(no_commands, tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    exists = os.path.lexists
    monkeypatch.setattr(os.path, "lexists", lambda path: exists(path) and not str(path).endswith("sample_corpus"))
    for folder in ("first", "second"):
        assert "sample_corpus" in call("-o", folder).out
    assert {path.name for path in tmp_path.iterdir()} == {"sample_corpus", "first", "second"}


def test_a_sample_that_can_not_be_written_is_one_line(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    assert (
        "Error: the sample can't be written to file/sample_corpus: Not a directory"
        in call("-o", "file/first", code=1).err
    )
    monkeypatch.setattr(Path, "rename", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    message = "Error: the sample can't be written to sample_corpus: No space left on device; go to another folder"
    assert message in call(code=1).err
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "nothing is left of it"


# ---- compiling beside ----


@pytest.mark.slow
def test_a_second_process_compiles_what_is_needed_after_the_vocabulary(tmp_path, monkeypatch):
    """Where it compiles for other types, it helps nothing. The slowest kernels are of the three rooms below."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.chdir(tmp_path)
    for code in (
        "from pathlib import Path; from albert_data.cli.compiling import compile_all; compile_all(Path('mark'))",
        "from albert_data.cli.main import run; assert run('quickstart --minutes 0'.split()) == 0",
    ):
        code += "\nimport sys; from albert_data.kernels.cache import compile_lock\nfor one in compile_lock.kernels: "
        code += (
            "print(one.py_func.__module__, one.py_func.__name__, *one.stats.cache_misses, sep=' | ', file=sys.stderr)"
        )
        run_ = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    compiled = [line for line in run_.stderr.split("\n") if line.count(" | ") > 1]
    assert compiled, "the vocabulary has kernels of its own"
    assert [line for line in compiled if "vocab" not in line] == []
    assert (tmp_path / "mark").exists()


def test_nothing_is_compiled_beside_where_it_was_or_can_not_be_kept(tmp_path, monkeypatch):
    beside = Mock(return_value=nullcontext())
    monkeypatch.setattr("albert_data.jobs.engine.run_beside", beside)
    monkeypatch.setattr("albert_data.jobs.engine.count_cores", lambda: 2)
    for folder, calls in ((None, 0), (tmp_path, 1), (tmp_path, 1)):
        monkeypatch.setattr("albert_data.kernels.cache.find_folder", lambda folder=folder: folder)
        with compiling_beside():
            assert beside.call_count == calls
        if folder is not None:
            (folder / "compiled-for-quickstart").touch()


# ---- other options, or another text ----


@pytest.mark.parametrize("words", ["corpus --unwrap", "corpus --vocab-size 900", "corpus/english-1.txt", "corpus"])
def test_other_options_and_another_text_are_refused(resumed, words, call):
    if words == "corpus":  # which changes after the vocabulary is finished
        shutil.rmtree(resumed / "first/shards")
        with Path("corpus/english-1.txt").open("a") as file:
            file.write("\n\nOne more document. It has two sentences.\n")
    before = fixtures.digest_folder(resumed)
    assert OTHER in call(*words.split(), code=1).err
    assert fixtures.digest_folder(resumed) == before


def test_the_same_files_named_in_another_way_are_the_same_text(resumed, call):
    before = fixtures.digest_folder(resumed)
    assert call("corpus/*.txt", "corpus/*.jsonl", "corpus/chinese.txt").out.count("nothing to do") == 3
    assert fixtures.digest_folder(resumed) == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab", "mine", "first holds vocab, but no quickstart; name a new or empty folder"),
        (".quickstart.json", "[]", "first/.quickstart.json was not written by quickstart ("),
        (".quickstart.json", '{"mine": 1}', OTHER),
    ],
)
def test_files_of_the_user_in_the_folder_stay(here, name, content, message, call):
    (here / "first").mkdir()
    (here / "first" / name).write_text(content)
    assert message in call("corpus", code=1).err
    assert {path.name: path.read_text() for path in (here / "first").iterdir()} == {name: content}


# ---- rows that are bad for training ----


def test_no_model_is_trained_on_rows_that_the_audit_calls_bad(here, two_steps, call):
    """A book whose lines are wrapped, with a blank line after each paragraph."""
    words = re.findall(r"\S+", "It was a bright day in April and the clocks of the town struck one after another.")
    paragraphs = (" ".join(words[number % 9 :] + words + words[: number % 11]) for number in range(900))
    text = "\n\n".join(textwrap.fill(f"{number} {text}", 60) for number, text in enumerate(paragraphs))
    Path("book.txt").write_text(text)
    shown = call("book.txt", minutes=3, code=1).out
    assert "== These rows are bad for training ==" in shown
    assert "To read the text in another way, add: --unwrap --documents file -o first-2\n" in shown
    assert [words[0] for words in read_commands(shown.partition("# Train all the same")[0])].count("train") == 0
    assert not list((here / "first").glob("run*"))
    assert "== These rows are bad for training ==" in call("book.txt", code=1).out  # without training too
