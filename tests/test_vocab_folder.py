"""A vocabulary replaces only one that `vocab` wrote, and a full disk leaves the older one intact."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest

from albert_data.cli.main import run
from albert_data.config import TextConfig, VocabConfig
from albert_data.corpus.inputs import find_inputs
from albert_data.errors import AlbertDataError, InputError, OutputError
from albert_data.library.building import train_vocab
from albert_data.vocab.folder import FILES, is_saved, save_vocabulary
from albert_data.vocab.learning import learn_vocabulary
from albert_data.vocab.report import VocabReport

VOCAB = "vocab in.txt -o out --workers 1 --vocab-size"
TEXT = "\n\n".join(fixtures.make_documents(30, 0))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text(TEXT)


def learn(vocab_size: int, *options: str) -> int:
    return run([*f"{VOCAB} {vocab_size}".split(), *options])


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[int, VocabReport]:
    """Vocabularies of in.txt, of 130 and of 140 pieces."""
    folder = tmp_path_factory.mktemp("reports")
    (folder / "in.txt").write_text(TEXT)
    text, inputs = TextConfig(), find_inputs([str(folder / "in.txt")])
    sizes = (130, 140)
    return {n: learn_vocabulary(inputs, text, VocabConfig(vocab_size=n), fixtures.InlineEngine()) for n in sizes}


def test_another_vocabulary_is_replaced_only_if_the_user_says_so(capsys: pytest.CaptureFixture[str]):
    assert learn(130) == 0
    before = fixtures.digest_folder(Path("out"))
    for options, named in (
        ((140,), "vocab_size is 130 there and 140 here"),
        ((130, "--model-type", "bpe"), "model_type is 'unigram' there and 'bpe' here"),
        ((130, "--no-dummy-prefix"), "dummy_prefix is True there and False here"),
        ((130, "--documents", "file", "--drop-repeated-lines", "2"), "its text was another"),
    ):
        if "file" in options:
            Path("in.txt").write_text("\n\n".join(fixtures.make_documents(30, 1)))
        assert learn(*options) == 1
        said = capsys.readouterr().err
        assert f"out holds another vocabulary, of 130 pieces (unigram): {named}; name another folder" in said
        assert fixtures.digest_folder(Path("out")) == before
    assert learn(140, "--overwrite") == 0
    assert learn(140) == 0  # the same
    assert len(Path("out/pieces.txt").read_text().splitlines()) == 140
    assert sorted(os.listdir("out")) == sorted(FILES)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", [b"mine", b'{"files": {"a": "b"}, "mine": 1}'])
def test_a_file_of_somebody_else_stops_the_training(name: str, content: bytes, capsys: pytest.CaptureFixture[str]):
    Path("out").mkdir()
    Path("out", name).write_bytes(content)
    assert learn(130) == 1
    assert f"out/{name} was not written by `vocab`" in capsys.readouterr().err
    assert Path("out", name).read_bytes() == content
    assert os.listdir("out") == [name]


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_edited_stops_the_training(name: str, reports: dict[int, VocabReport]):
    save_vocabulary(Path("out"), reports[130])
    path = Path("out", name)
    edited = path.read_bytes().replace(b"3", b"4", 1)
    path.write_bytes(edited)
    assert learn(140) == 1
    assert path.read_bytes() == edited


def test_a_full_disk_leaves_the_older_vocabulary_whole(monkeypatch, reports):
    save_vocabulary(Path("out"), reports[130])
    before, calls = fixtures.digest_folder(Path("out")), []

    def fill_up(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fill_up)
        with pytest.raises(OutputError, match="out: No space left on device; an older one there is unchanged; free"):
            save_vocabulary(Path("out"), reports[140], overwrite=True)
    assert fixtures.digest_folder(Path("out")) == before
    save_vocabulary(Path("out"), reports[140], overwrite=True)


@pytest.mark.parametrize("step", range(6))
def test_a_vocabulary_that_was_killed_while_it_was_replaced_is_still_ours(step, monkeypatch, reports):
    save_vocabulary(Path("out"), reports[130])
    steps = 0

    def kill_at(function: Any) -> Any:
        def call(*paths: Any, **options: Any) -> Any:
            nonlocal steps
            if any(Path(path).name in FILES for path in paths):
                steps += 1
                if steps > step:
                    raise SystemExit("killed")
            return function(*paths, **options)

        return call

    with monkeypatch.context() as context:
        context.setattr(os, "replace", kill_at(os.replace))
        context.setattr(Path, "unlink", kill_at(Path.unlink))
        with pytest.raises(SystemExit):
            save_vocabulary(Path("out"), reports[140], overwrite=True)
    assert steps == step + 1
    save_vocabulary(Path("out"), reports[140], overwrite=step == 0)  # later ones left no finished vocabulary
    assert is_saved(Path("out"))


def test_train_vocab_and_the_command_write_the_same_beside_files_of_other_programs():
    Path("out").mkdir()
    Path("out/.0123456789abcdef.tmp").write_bytes(b"mine")
    Path("out/.albert-data-0123456789abcdef.tmp").write_bytes(b"of a killed run")
    assert learn(130) == 0
    assert sorted(os.listdir("out")) == sorted([*FILES, ".0123456789abcdef.tmp"])
    report = train_vocab(Path("in.txt"), "from-python", config=VocabConfig(vocab_size=130), workers=1)
    assert Path("out/spiece.model").read_bytes() == report.trained.model
    Path("out/.0123456789abcdef.tmp").unlink()
    assert fixtures.digest_folder(Path("from-python")) == fixtures.digest_folder(Path("out"))


def test_train_vocab_raises_errors_of_ours_alone(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(InputError, match=r"missing\.txt"):
        train_vocab("missing.txt", "out")
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: (_ for _ in ()).throw(OSError(30, "Read-only file system")))
    with pytest.raises(AlbertDataError, match="Read-only file system"):
        train_vocab("in.txt", "out")
