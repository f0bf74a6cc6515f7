"""Figures by input file equal a slow count and the audit's, and their names are distinct and printable."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_data.cli.main import run
from albert_data.corpus.inputs import find_inputs
from albert_data.inspect.audit.audit import audit_folder
from albert_data.inspect.input_files import InputFile, InputFiles, shorten_names
from albert_data.inspect.terminal import count_columns
from albert_data.shards.reader import open_shards
from albert_data.tokenizer.model import Tokenizer

UNKNOWN = "Жщ"
DOCUMENTS = fixtures.make_documents(40, seed=8)
FILES = {
    "a.txt": DOCUMENTS[:20],
    "deeper/b.txt": [*DOCUMENTS[20:35], f"{UNKNOWN} is unknown here, and {UNKNOWN} too."],
    "c.txt": DOCUMENTS[35:],
}


@pytest.fixture(scope="module")
def built(tmp_path_factory, tokenizer: Tokenizer) -> Path:
    """A folder with the corpus `in` and its build `out`."""
    folder = tmp_path_factory.mktemp("sources")
    (folder / "in/deeper").mkdir(parents=True)
    for name, documents in FILES.items():
        (folder / "in" / name).write_bytes(fixtures.to_txt(documents))
    fixtures.run_build(folder / "in", folder / "out", tokenizer, dupe_factor=2)
    return folder


def show(capsys, *arguments: object) -> str:
    capsys.readouterr()
    assert run(["inspect", *map(str, arguments), "-n", "0"]) == 0
    return capsys.readouterr().out


def count_slowly(built: Path) -> dict[str, Counter[str]]:
    """Tokens of text of each file and the unknown ones, a row and a token at a time."""
    files = {fixtures.document_key(document): name for name, made in FILES.items() for document in made}
    counts: dict[str, Counter[str]] = {name: Counter() for name in FILES}
    for split in ("train", "validation"):
        shards = open_shards(built / "out", split)
        for row in range(len(shards)):
            example = shards[row]
            for token in example.original_ids.tolist():
                is_text = token not in (shards.tokenizer.cls_id, shards.tokenizer.sep_id)
                counts[files[example.document_key]]["tokens"] += is_text
                counts[files[example.document_key]]["unknown"] += token == shards.tokenizer.unk_id
    return counts


def test_the_figures_of_each_file_are_those_of_a_slow_count(built, capsys):
    found = json.loads(show(capsys, built / "out", "--json", "--corpus", built / "in"))["sources"]
    counts = count_slowly(built)
    total = sum(count["tokens"] for count in counts.values())
    expected = [
        {
            "file": str(built / "in" / name),
            "num_tokens": count["tokens"],
            "share": count["tokens"] / total,
            "num_unknown": count["unknown"],
            "unknown_rate": count["unknown"] / count["tokens"],
        }
        for name, count in sorted(counts.items(), key=lambda item: -item[1]["tokens"])
    ]
    assert found["files"] == expected
    assert counts["deeper/b.txt"]["unknown"] > 0
    assert found["num_documents"] == found["num_documents_found"] == sum(map(len, FILES.values()))


def test_they_are_the_figures_of_the_audit(built, capsys):
    found = json.loads(show(capsys, built / "out", "--json", "--corpus", built / "in"))["sources"]["files"]
    audit = audit_folder(built / "out", find_inputs([str(built / "in")])).to_dict()["checks"]
    assert audit["unknown_by_source"]["details"]["rates"] == {file["file"]: file["unknown_rate"] for file in found}
    assert audit["largest_source"]["details"]["shares"] == {file["file"]: file["share"] for file in found}


def test_without_the_corpus_they_are_null_and_the_page_is_silent(built, capsys):
    assert json.loads(show(capsys, built / "out", "--json"))["sources"] is None
    assert "Input files" not in show(capsys, built / "out")


def test_the_page_has_a_line_for_each_file_without_their_common_folder(built, capsys):
    text = show(capsys, built / "out", "--corpus", built / "in")
    lines = next(part for part in text.split("\n\n") if part.startswith("Input files ")).splitlines()
    assert max(map(len, lines)) <= 80
    counts = count_slowly(built)
    for line, name in zip(lines[1:], sorted(counts, key=lambda name: -counts[name]["tokens"]), strict=True):
        assert line.split()[:2] == [name, f"{counts[name]['tokens']:,}"]


def test_documents_that_no_file_has_are_counted(built, capsys):
    text = show(capsys, built / "out", "--corpus", built / "in" / "a.txt", "--corpus", built / "in" / "c.txt")
    assert "16 of the 41 documents are in no file of --corpus." in " ".join(text.split())


def test_another_corpus_is_refused(built, tmp_path, capsys):
    (tmp_path / "other.txt").write_text("Another text.\n")
    for html in ([], ["--html", str(tmp_path / "report.html")]):
        assert run(["inspect", str(built / "out"), "--corpus", str(tmp_path / "other.txt"), *html]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert "--corpus has none of the shards' documents;" in line
    assert not (tmp_path / "report.html").exists()


# ---- the largest, and names ----


def make_input_files(*files: tuple[str, int, int]) -> InputFiles:
    total = sum(tokens for _, tokens, _ in files) or 1
    made = [InputFile(name=name, num_tokens=n, num_unknown=u, share=n / total) for name, n, u in files]
    return InputFiles(files=made, num_documents=2, num_documents_found=2)


def named(input_files: list[InputFile]) -> list[tuple[str, int, int]]:
    return [(file.name, file.num_tokens, file.num_unknown) for file in input_files]


def test_the_largest_come_first_and_the_rest_as_one():
    input_files = make_input_files(("b", 10, 1), ("a", 10, 0), ("c", 60, 3), ("d", 20, 2), ("e", 0, 0))
    assert named(input_files.rank(2)) == [("c", 60, 3), ("d", 20, 2), ("3 other files", 20, 1)]
    assert input_files.rank(2)[-1].share == pytest.approx(0.2)
    assert [file.name for file in input_files.rank(4)] == ["c", "d", "a", "b", "e"], "one alone needs no other name"
    assert [file.name for file in input_files.rank(5)] == ["c", "d", "a", "b", "e"]


def test_a_file_without_a_token_has_no_rate():
    input_files = make_input_files(("a", 10, 1), ("b", 0, 0))
    assert [file.unknown_rate for file in input_files.files] == [0.1, None]


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["/data/in/a.txt", "/data/in/b/c.txt"], ["a.txt", "b/c.txt"]),
        (["/data/in/a.txt", "/data/inner/a.txt"], ["in/a.txt", "inner/a.txt"]),
        (["a.txt", "-", "/b.txt"], ["a.txt", "-", "/b.txt"]),
        (["in/\x1b[31m.txt", "in/bad\udcff.txt"], ["\\x1b[31m.txt", "bad\\udcff.txt"]),
        (["in/" + "a" * 30 + "z.txt", "in/b"], ["aaaaaaa...aaaaaz.txt", "b"]),
    ],
)
def test_names_lose_their_common_folder_and_their_middle(names, shown):
    input_files = make_input_files(*((name, 1, 0) for name in names))
    assert shorten_names(input_files.files, 20) == shown


@given(names=st.lists(st.text(min_size=1), min_size=1, max_size=5), columns=st.integers(12, 60))
def test_a_shortened_name_fits_and_can_be_printed(names, columns):
    rest: dict[str, Any] = {"num_tokens": 1, "num_unknown": 0, "share": 0.0, "num_files": 7}
    files = [*make_input_files(*((name, 1, 0) for name in names)).files, InputFile(name="7 other files", **rest)]
    for name in shorten_names(files, columns):
        assert count_columns(name) <= columns
        name.encode()
        assert not any(character < " " or character == "\x7f" for character in name)
    assert shorten_names(files, 60)[-1] == "7 other files"
