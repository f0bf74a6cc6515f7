"""A build in which each file decides its encoding has the shards of the same text in UTF-8, and says what it found."""

from __future__ import annotations

import gzip
from pathlib import Path

import build_fixtures as fixtures
import pytest
from build_fixtures import digest_shards, run_build

from albert_data.cli.main import run
from albert_data.config import TextConfig
from albert_data.corpus.inputs import find_inputs
from albert_data.errors import InputError, OutputError
from albert_data.inspect.choice import RowChoice
from albert_data.inspect.html.page import render
from albert_data.inspect.report import inspect_folder
from albert_data.jobs.engine import MultiprocessEngine
from albert_data.pipeline.build import build_shards
from albert_data.tokenizer.model import Tokenizer

TEXTS = {
    "cp1252": "“L’été dernier”, écrivait la mère, “la forêt était déjà brûlée.”\nOù êtes-vous ? dit-il.\n\n",
    "koi8-r": "Все счастливые семьи похожи друг на друга.\nКаждая несчастлива по-своему.\n\n",
    "utf-8": "Every family is happy — and each in its own way.\nThe others aren’t.\n\n",
    "utf-16-le": "학교에 가는 길에 비가 왔다.\n우산이 없었다.\n\n",
}


def write_corpus(folder: Path, *, in_utf8: bool) -> Path:
    folder.mkdir()
    for encoding, text in TEXTS.items():
        for number in range(4):
            data = (f"{number}. {text}" * (5 + number)).encode("utf-8" if in_utf8 else encoding)
            (folder / f"{encoding}-{number}.txt").write_bytes(data)
    packed = (TEXTS["koi8-r"] * 9).encode("utf-8" if in_utf8 else "koi8-r")
    (folder / "packed.txt.gz").write_bytes(gzip.compress(packed))
    return folder


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "mixed", in_utf8=False)


def test_the_shards_are_those_of_utf8(tokenizer: Tokenizer, mixed: Path, tmp_path: Path):
    run_build(write_corpus(tmp_path / "plain", in_utf8=True), tmp_path / "expected", tokenizer)
    manifest = run_build(mixed, tmp_path / "out", tokenizer, MultiprocessEngine(2), encoding="auto").manifest
    assert digest_shards(tmp_path / "out") == digest_shards(tmp_path / "expected")
    found = {Path(item.path).name: item.encoding for item in manifest.inputs}
    assert found == {name: name.rpartition("-")[0] for name in found if "-" in name} | {"packed.txt.gz": "koi8-r"}
    assert manifest.libraries is not None
    assert manifest.libraries["chardet"]
    assert manifest.config.text.encoding == "auto"


def test_a_file_that_became_another_encoding_is_another_build(tokenizer: Tokenizer, mixed: Path, tmp_path: Path):
    """The choice belongs to the plan, whatever made it change."""
    config = fixtures.make_config(encoding="auto")
    inputs = find_inputs([str(mixed)], text=config.text)
    with pytest.raises(KeyboardInterrupt):
        build_shards(inputs, tmp_path / "out", tokenizer, config, fixtures.InterruptedEngine(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chardet.detect_all", lambda *_, **__: [{"encoding": "cp1251", "confidence": 1.0}])
        others = find_inputs([str(mixed)], text=config.text)
        with pytest.raises(OutputError, match="unfinished build of another kind: the inputs differ"):
            build_shards(others, tmp_path / "out", tokenizer, config, fixtures.InlineEngine())


def test_inputs_that_were_found_otherwise_are_refused(tokenizer: Tokenizer, mixed: Path, tmp_path: Path):
    inputs = find_inputs([str(mixed / "utf-8-0.txt")], text=TextConfig())
    config = fixtures.make_config(encoding="auto")
    with pytest.raises(InputError, match="were not found with the encoding of the settings, auto"):
        build_shards(inputs, tmp_path / "out", tokenizer, config, fixtures.InlineEngine())


def test_inspect_lists_what_was_found(
    tokenizer: Tokenizer, mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (mixed / "koi8-r-0.txt").rename(mixed / "\x1b[2J <b>.txt")
    run_build(mixed, tmp_path / "out", tokenizer, encoding="auto")
    assert run(["inspect", str(tmp_path / "out"), "-n", "0"]) == 0
    shown = capsys.readouterr().out
    page = render(inspect_folder(tmp_path / "out", split="train", choice=RowChoice(count=0)))
    assert "Encodings found\n  cp1252 4 inputs: " in shown
    assert "\n  utf-8 4 inputs\n" in shown
    assert max(map(len, shown.splitlines())) <= 80
    for text in (shown, page):
        assert "\x1b" not in text
        assert "\\x1b[2J" in text
    assert "2J &lt;b&gt;.txt" in page


def test_on_the_command_line(mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("vocab", "build"):
        options = ["--vocab-size", "150"] if name == "vocab" else ["--tokenizer", str(tmp_path / "vocab")]
        words = [name, str(mixed), *options, "--encoding", "auto", "--workers", "1", "-o", str(tmp_path / name)]
        assert run(words) == 0
        told = capsys.readouterr().err
        assert "encodings found: cp1252 4 inputs: " in told
        assert "; koi8-r 5 inputs: " in told
    assert run(["build", str(mixed), "--tokenizer", str(tmp_path / "vocab"), "-o", str(tmp_path / "other")]) == 1
    told = capsys.readouterr().err
    assert told.startswith("Error: 12 inputs can't be read: 4 are not UTF-8: it looks like UTF-16LE without a byte or")
