"""A build of whole files, wrapped lines, other encodings and several languages has the bytes of its documents."""

from __future__ import annotations

import gzip
import json
import random
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest
from build_fixtures import digest_shards, run_build
from refusals import check_refused

from albert_data import split_sentences
from albert_data.cli.main import run as run_command
from albert_data.corpus.inputs import find_inputs
from albert_data.errors import InputError, OutputError
from albert_data.inspect.choice import RowChoice
from albert_data.inspect.html.page import render
from albert_data.inspect.report import inspect_folder
from albert_data.inspect.verify import verify
from albert_data.jobs.engine import Engine, MultiprocessEngine
from albert_data.pipeline.build import build_shards
from albert_data.shards.reader import open_shards
from albert_data.storage.files import read_json
from albert_data.tokenizer.model import Tokenizer

LINES = [document.split("\n") for document in fixtures.make_documents(24, seed=5)]
DOCUMENTS = ["\n\n".join(textwrap.fill(line, 60) for line in lines) for lines in LINES]
FILE = {"document_rule": "file", "unwrap": True}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    fixtures.make_tasks_small(monkeypatch, 1 << 10)


def run(names: list[Path | str], out: Path, tokenizer: Tokenizer, engine: Engine | None = None, **settings: Any) -> Any:
    config = fixtures.make_config(**settings)
    inputs = find_inputs([str(name) for name in names], text=config.text)
    return build_shards(inputs, out, tokenizer, config, engine or fixtures.InlineEngine()).manifest


def write_files(folder: Path, ending: str = ".txt", encode: Callable[[str], bytes] = str.encode) -> Path:
    folder.mkdir()
    for number, document in enumerate(DOCUMENTS):
        (folder / f"{number}{ending}").write_bytes(encode(document))
    return folder


@pytest.fixture
def wanted(tmp_path: Path, tokenizer: Tokenizer) -> str:
    """The digest of a build in which each document is a JSON line."""
    (tmp_path / "in.jsonl").write_bytes(fixtures.to_jsonl(DOCUMENTS))
    return str(run([tmp_path / "in.jsonl"], tmp_path / "wanted", tokenizer, unwrap=True).digest)


@pytest.mark.parametrize(
    ("ending", "encode", "encoding"),
    [
        (".txt", str.encode, "utf-8"),
        (".txt", lambda text: text.replace("\n", "\r\n").encode("utf-8-sig"), "utf-8"),
        (".txt", lambda text: text.encode("utf-16"), "utf-8"),
        (".txt.gz", lambda text: gzip.compress(b"\n\n" + text.encode() + b"\n\n"), "utf-8"),
        (".txt", lambda text: text.encode("gb18030"), "gb18030"),
    ],
    ids=["txt", "CR LF and BOM", "UTF-16", "gz", "gb18030"],
)
def test_files_that_are_documents_give_the_bytes_of_these_documents(
    ending, encode, encoding, wanted, tokenizer, tmp_path
):
    folder = write_files(tmp_path / "in", ending, encode)
    manifest = run([folder], tmp_path / "out", tokenizer, MultiprocessEngine(2), encoding=encoding, **FILE)
    assert manifest.counts.documents == len(DOCUMENTS)
    assert manifest.digest == wanted


def test_stdin_is_one_document(tokenizer, tmp_path, monkeypatch):
    fixtures.set_stdin(monkeypatch, "\n\n".join(DOCUMENTS).encode())
    assert run(["-"], tmp_path / "out", tokenizer, **FILE, validation_fraction=0.0).counts.documents == 1


def test_a_giant_file_is_cut_at_the_same_places_in_every_format(tokenizer, tmp_path, monkeypatch):
    for name, size in (("MAX_DOCUMENT", 3000), ("MAX_LINE", 700)):
        for module in ("clean.documents", "clean.repetition", "clean.unwrapping", "corpus.lines.long_documents"):
            monkeypatch.setattr(f"albert_data.{module}.{name}", size)
    monkeypatch.setattr("albert_data.corpus.blocks.GIANT_BYTES", 9000)
    monkeypatch.setattr("albert_data.corpus.blocks.BLOCK_BYTES", 4000)
    text = "\n\n".join(DOCUMENTS)
    (tmp_path / "in.jsonl").write_bytes(fixtures.to_jsonl([text]))
    (tmp_path / "in.txt").write_text(text)
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress(text.encode()))
    names = ("jsonl", "txt", "txt.gz")
    manifests = [run([tmp_path / f"in.{name}"], tmp_path / name, tokenizer, **FILE) for name in names]
    assert len({manifest.digest for manifest in manifests}) == 1
    assert [manifest.damage for manifest in manifests] == [manifests[0].damage] * 3
    assert manifests[0].damage["long_document_cut"] > 1


# ---- what is recorded, and what is said ----


@pytest.mark.parametrize("pairs", ["none", "sop"])
def test_rows_of_up_to_32768_tokens_hold_all_of_long_documents(tokenizer, tmp_path, pairs):
    rng = random.Random(1)
    texts = [fixtures.make_lines(rng, 3000), fixtures.make_lines(rng, 1), "x" * 400_000]
    (tmp_path / "in.jsonl").write_bytes(fixtures.to_jsonl(texts))
    settings = {"max_seq_len": 32_768, "short_seq_prob": 0.0, "validation_fraction": 0.0, "mask_prob": 0.3}
    run([tmp_path / "in.jsonl"], tmp_path / "out", tokenizer, pairs=pairs, **settings)
    assert list(verify(tmp_path / "out")) == []
    rows = list(open_shards(tmp_path / "out"))
    specials = 2 if pairs == "none" else 3
    assert 32_700 < max(len(row.input_ids) for row in rows) <= 32_768
    assert max(int(row.masked_positions.max(initial=0)) for row in rows) > 32_600
    for text in texts:
        own = [row for row in rows if row.document_key == fixtures.document_key(text)]
        ids = tokenizer.encode(split_sentences(text))[0]
        assert sum(len(row.input_ids) - (2 if row.sop_label < 0 else specials) for row in own) == len(ids)


def test_the_manifest_names_the_language_of_each_input(tokenizer, tmp_path):
    folder = write_files(tmp_path / "in")
    run([f"{folder}/1*.txt:de", folder], tmp_path / "out", tokenizer, **FILE)
    inputs = read_json(tmp_path / "out" / "manifest.json")["inputs"]
    assert {entry["path"].removeprefix(f"{folder}/")[0]: entry["language"] for entry in inputs}["1"] == "de"
    assert {entry["language"] for entry in inputs} == {"de", "en"}
    run([folder], tmp_path / "other", tokenizer, **FILE)
    assert "language" not in read_json(tmp_path / "other" / "manifest.json")["inputs"][0]


def test_a_corpus_without_the_language_field_is_refused(tokenizer, tmp_path):
    lines = [json.dumps({"id": number, "text": document}) for number, document in enumerate(DOCUMENTS)]
    (tmp_path / "in.txt").write_text(DOCUMENTS[0])
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    (tmp_path / "labelled.jsonl").write_text(json.dumps({"text": DOCUMENTS[0], "nolang": "de"}))
    paths: list[Path | str] = [tmp_path / name for name in ("in.txt", "in.jsonl", "labelled.jsonl")]

    def build(paths: list[Path | str]) -> Any:
        return run(paths, tmp_path / f"out-{len(paths)}", tokenizer, language_field="nolang")

    for some, named in ((paths[:2], 'no record has the field "nolang"'), (paths[:1], "all inputs are .txt")):
        check_refused(partial(build, some), InputError, named)
    assert build(paths)


@pytest.mark.parametrize("text", ["One sentence.", "CHAPTER I\n\nCHAPTER II\n\nTHE END", "word " * 3000])
@pytest.mark.parametrize("settings", [{}, FILE])
def test_small_and_unusual_corpora_make_valid_rows(text, settings, tokenizer, tmp_path):
    (tmp_path / "in.txt").write_text(text)
    manifest = run([tmp_path / "in.txt"], tmp_path / "out", tokenizer, validation_fraction=0.0, **settings)
    assert manifest.counts.documents >= 1
    assert manifest.splits["train"].num_rows >= 1


# ---- `--encoding auto`: each file decides its encoding ----


TEXTS = {
    "cp1252": "“L’été dernier”, écrivait la mère, “la forêt était déjà brûlée.”\nOù êtes-vous ? dit-il.\n\n",
    "koi8-r": "Все счастливые семьи похожи друг на друга.\nКаждая несчастлива по-своему.\n\n",
    "utf-8": "Every family is happy — and each in its own way.\nThe others aren’t.\n\n",
    "cp949": "학교에 가는 길에 비가 왔다.\n우산이 없었다.\n\n",
}


def write_encoded(folder: Path, *, in_utf8: bool) -> Path:
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
    return write_encoded(tmp_path / "mixed", in_utf8=False)


def test_the_shards_are_those_of_utf8(tokenizer, mixed, tmp_path):
    run_build(write_encoded(tmp_path / "plain", in_utf8=True), tmp_path / "expected", tokenizer)
    manifest = run_build(mixed, tmp_path / "out", tokenizer, MultiprocessEngine(2), encoding="auto").manifest
    assert digest_shards(tmp_path / "out") == digest_shards(tmp_path / "expected")
    found = {Path(item.path).name: item.encoding for item in manifest.inputs}
    assert found == {name: name.rpartition("-")[0] for name in found if "-" in name} | {"packed.txt.gz": "koi8-r"}
    assert manifest.libraries is not None
    assert manifest.libraries["chardet"]
    assert manifest.config.text.encoding == "auto"


def test_a_file_that_became_another_encoding_is_another_build(tokenizer, mixed, tmp_path, monkeypatch):
    """The choice belongs to the plan, whatever made it change."""
    with pytest.raises(KeyboardInterrupt):
        run_build(mixed, tmp_path / "out", tokenizer, fixtures.InterruptedEngine(1), encoding="auto")
    monkeypatch.setattr("chardet.detect_all", lambda *_, **__: [{"encoding": "cp1251", "confidence": 1.0}])
    with pytest.raises(OutputError, match="unfinished build of another kind: the inputs differ"):
        run_build(mixed, tmp_path / "out", tokenizer, encoding="auto")


def test_inspect_lists_what_was_found(tokenizer, mixed, tmp_path, capsys):
    (mixed / "koi8-r-0.txt").rename(mixed / "\x1b[2J <b>.txt")
    run_build(mixed, tmp_path / "out", tokenizer, encoding="auto")
    assert run_command(["inspect", str(tmp_path / "out"), "-n", "0"]) == 0
    shown = capsys.readouterr().out
    page = render(inspect_folder(tmp_path / "out", split="train", choice=RowChoice(count=0)))
    assert "Encodings found\n  cp1252 4 inputs: " in shown
    assert "\n  utf-8 4 inputs\n" in shown
    assert max(map(len, shown.splitlines())) <= 80
    for text in (shown, page):
        assert "\x1b" not in text
        assert "\\x1b[2J" in text
    assert "2J &lt;b&gt;.txt" in page


def test_on_the_command_line(mixed, tmp_path, capsys):
    for name in ("vocab", "build"):
        options = ["--vocab-size", "150"] if name == "vocab" else ["--tokenizer", str(tmp_path / "vocab")]
        words = [name, str(mixed), *options, "--encoding", "auto", "--workers", "1", "-o", str(tmp_path / name)]
        assert run_command(words) == 0
        told = capsys.readouterr().err
        assert "encodings found: cp1252 4 inputs: " in told
        assert "; koi8-r 5 inputs: " in told
