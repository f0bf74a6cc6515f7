"""What the user names is found once, in one order, in a known format, or refused with a reason."""

from __future__ import annotations

import gzip
import io
import os
import sys
from pathlib import Path

import pyarrow
import pytest
from refusals import check_refused, refused

from albert_data.config import TextConfig
from albert_data.corpus.formats.recognition import ALLOWED_NAMES
from albert_data.corpus.inputs import check_apart, find_inputs, open_input
from albert_data.corpus.mixtures import find_sources
from albert_data.errors import InputError, StorageError

TEXT = "ein Wört\n\nzwei\n".encode()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder of files of every kind, and some to pass over."""
    folder = tmp_path / "corpus"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    for name in ("b.txt", "a.jsonl", "deep/c.txt", "deep/er/d.TXT", ".e.txt", ".hidden/f.txt", "notes.md", "~$b.txt"):
        (folder / name).write_bytes(TEXT)
    (folder / "g.txt.gz").write_bytes(gzip.compress(TEXT))
    (folder / "deep" / "h.jsonl.zst").write_bytes(pyarrow.compress(TEXT, "zstd", asbytes=True))
    (folder / "deep" / "backup.gz").write_bytes(gzip.compress(TEXT))
    return folder


def names_of(*names: str | Path) -> list[str]:
    return [item.path for item in find_inputs([str(name) for name in names])]


# ---- the output ----


@pytest.mark.parametrize(
    ("named", "out", "overlapping"),
    [
        ("in", "in/sub", "in"),
        ("in", "in", "in"),
        ("in:de", "in/deep/er", "in"),
        ("@in/list.txt", "in/sub", "in"),
        ("in/mix.toml", "in/.deep/sub", "in/.deep"),
        ("link", "in/sub", "link"),
        ("in", "link/sub", "in"),
        ("in/.d*/a.txt", "in/.deep", "in/.deep/a.txt"),
        ("in/.deep/a.txt", "in", "in/.deep/a.txt"),
        ("linked.txt", "in", "linked.txt"),
        ("in", "in.de", None),
        ("in/b.txt", "in/sub", None),
        ("in/*.txt", "in/sub", None),
    ],
)
@pytest.mark.parametrize("is_validation", [False, True])
def test_an_output_inside_an_input_or_around_one_is_refused(
    named, out, overlapping, is_validation, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("in/.deep").mkdir(parents=True)
    for name in ("in/b.txt", "in/.deep/a.txt", "other.txt"):
        Path(name).write_bytes(TEXT)
    Path("in/list.txt").write_text("../in\n")
    Path("in/mix.toml").write_text('[[source]]\nname = "a"\npaths = ".deep"\n')
    Path("link").symlink_to("in")
    Path("linked.txt").symlink_to("in/.deep/a.txt")
    names = (["other.txt"], [named]) if is_validation and ".toml" not in named else ([named], [])
    found = find_sources(names[0], validation=names[1])
    if overlapping is None:
        check_apart(found, Path(out))
        return
    with pytest.raises(InputError, match=rf"^{out} and the input (../)?(in/../)?{overlapping} overlap: "):
        check_apart(found, Path(out))


# ---- files ----


@pytest.mark.parametrize(
    ("name", "format", "compression", "is_splittable"),
    [
        ("a.txt", "txt", None, True),
        ("a.jsonl", "jsonl", None, True),
        ("a.JSONL", "jsonl", None, True),
        ("a.txt.gz", "txt", "gz", False),
        ("a.b.jsonl.ZST", "jsonl", "zst", False),
    ],
)
def test_a_file_is_known_by_its_endings(tmp_path, name, format, compression, is_splittable):
    path = tmp_path / name
    path.write_bytes(TEXT)
    (item,) = find_inputs([str(path)])
    assert (item.path, item.format, item.compression) == (str(path), format, compression)
    assert (item.size, item.modified_ns) == (len(TEXT), path.stat().st_mtime_ns)
    assert item.is_splittable == is_splittable


@pytest.fixture
def odd(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the corpus, what gives no input."""
    monkeypatch.chdir(corpus)
    for name in ("a", "a.gz", "a.parquet.gz", "txt", "a.txt.", "unread/notes.md", "unread/.hidden.txt"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(TEXT)
    Path("empty").mkdir()
    Path("pipes").mkdir()
    os.mkfifo("pipes/a.txt")
    for name, content in {"blank": "\n \u3000\n", "gone": "gone.txt\n", "glob": "*.gone\n"}.items():
        Path(f"{name}.list").write_text(content)


@refused(
    *((name, InputError, "of no known kind & readable are .txt") for name in ("notes.md", "a", "deep/backup.gz")),
    *((name, InputError, "of no known kind & readable are .txt") for name in ("a.gz", "a.parquet.gz", "txt", "a.txt.")),
    ("missing.txt", InputError, "missing.txt does not exist"),
    ("b.txt:xx", InputError, "b.txt:xx does not exist"),
    ("az://bucket", StorageError, "az://bucket is not on a disk"),
    ("empty", InputError, "empty holds no readable file"),
    ("pipes", InputError, "pipes holds no readable file"),
    ("unread", InputError, "unread holds no readable file (skipped files of no known ending (1): unread/notes.md"),
    ("*.csv", InputError, "*.csv matches no file"),
    ("dee?", InputError, "dee? matches no file"),
    ("@blank.list", InputError, "list blank.list names no input & write a path or glob"),
    ("@gone.list", InputError, "gone.txt does not exist"),
    ("@glob.list", InputError, "*.gone matches no file"),
    ("@none.list", InputError, "list none.list can't be read: No such file or directory & give a file"),
)
def test_a_name_that_gives_no_input_is_refused(call, kind, named, odd):
    check_refused(lambda: find_inputs([call]), kind, named)


@pytest.mark.parametrize("name", [".e.txt", "a[1].txt", "@a.txt"])
def test_a_file_of_that_very_name_is_meant(name, corpus, monkeypatch):
    monkeypatch.chdir(corpus)
    for other in (name, "a.txt", "a1.txt"):
        Path(other).write_bytes(b"b.txt")
    assert names_of(name) == [name]


# ---- folders ----


def test_a_folder_gives_its_readable_files_to_the_bottom_and_sorted(corpus):
    expected = ["a.jsonl", "b.txt", "deep/c.txt", "deep/er/d.TXT", "deep/h.jsonl.zst", "g.txt.gz"]
    assert names_of(corpus) == [str(corpus / name) for name in expected]


def test_what_a_folder_holds_beside_is_named_with_the_reason(corpus):
    for number in range(5):
        (corpus / f"table{number}.pdf").write_bytes(TEXT)
    said: list[str] = []
    find_inputs([str(corpus)], said.append)
    assert said == [
        f"skipped files of no known ending (7): {corpus}/notes.md, {corpus}/table0.pdf, {corpus}/table1.pdf and 4"
        f" more; readable are {ALLOWED_NAMES}",
        f"skipped hidden files or folders (3): {corpus}/.e.txt, {corpus}/.hidden, {corpus}/~$b.txt; name one as an "
        "input to read it",
    ]


# ---- languages ----


def test_a_name_may_end_in_a_language_and_all_inputs_have_one_then(corpus):
    text = TextConfig(language="pt")
    items = find_inputs([f"{corpus}/b.txt:DE", f"{corpus}/deep:zh_Hant", str(corpus / "a.jsonl")], text=text)
    assert {item.path.removeprefix(f"{corpus}/"): item.language for item in items} == {
        "a.jsonl": "pt",
        "b.txt": "de",
        "deep/c.txt": "zh",
        "deep/er/d.TXT": "zh",
        "deep/h.jsonl.zst": "zh",
    }
    assert [item.language for item in find_inputs([str(corpus)], text=text)] == [None] * 6
    assert find_inputs([f"{corpus}/*.txt:de", "-:fr"])[0].language == "fr"


def test_a_folder_whose_name_looks_like_one_with_a_language_is_meant(corpus):
    (corpus / "b.txt:de").mkdir()
    (corpus / "b.txt:de" / "x.txt").write_bytes(TEXT)
    (item,) = find_inputs([f"{corpus}/b.txt:de"])
    assert (item.path, item.language) == (f"{corpus}/b.txt:de/x.txt", None)


@pytest.mark.parametrize("order", [1, -1])
def test_a_name_of_a_file_overrides_its_folder_and_two_languages_are_refused(corpus, order):
    items = find_inputs([str(corpus), f"{corpus}/b.txt:de"][::order])
    assert [item.language for item in items if item.path.endswith("b.txt")] == ["de"]
    with pytest.raises(InputError, match=r"b\.txt is given two languages, (de and fr|fr and de)"):
        find_inputs([f"{corpus}/b.txt:de", f"{corpus}/b.*:fr"][::order])


# ---- globs ----


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.txt", ["b.txt"]),
        ("[ab].*", ["a.jsonl", "b.txt"]),
        ("**/*.txt", ["b.txt", "deep/c.txt"]),
        (".*.txt", [".e.txt"]),
    ],
)
def test_a_glob_gives_the_files_that_match(corpus, pattern, expected):
    assert names_of(corpus / pattern) == [str(corpus / name) for name in expected]


# ---- lists ----


def test_a_list_names_paths_and_globs_relative_to_its_folder(tmp_path, monkeypatch):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name in ("a.txt", "b.txt", "c.jsonl", "#d.txt", "e f.txt"):
        (folder / name).write_text("{}")
    (tmp_path / "else.txt").write_text("x")
    (folder / "files.list").write_text(f"a.txt:de\r\n\n*.jsonl\n#d.txt\ne f.txt\n{tmp_path}/else.txt:fr")
    monkeypatch.chdir(tmp_path)
    found = {item.path: item.language for item in find_inputs(["@corpus/files.list", "corpus/b.txt"])}
    assert found == {
        "corpus/a.txt": "de",
        "corpus/b.txt": "en",
        "corpus/c.jsonl": "en",
        "corpus/#d.txt": "en",
        "corpus/e f.txt": "en",
        f"{tmp_path}/else.txt": "fr",
    }
    languages = {item.path: item.language for item in find_inputs(["@corpus/files.list:nl"])}
    assert (languages["corpus/a.txt"], languages["corpus/c.jsonl"]) == ("de", "nl")


# ---- together ----


def test_a_file_named_twice_is_read_once_in_an_order_of_its_own(corpus, monkeypatch):
    monkeypatch.chdir(corpus)
    Path("link.txt").symlink_to("b.txt")
    given = ["b.txt", "./b.txt", str(corpus / "b.txt"), "deep/../b.txt", "b.*", "link.txt", "a.jsonl", "deep"]
    found = ["a.jsonl", "b.txt", "deep/c.txt", "deep/er/d.TXT", "deep/h.jsonl.zst"]
    assert names_of(*given) == names_of("deep", "b.txt", "a.jsonl") == found


def test_stdin_is_one_input_of_unknown_size_of_which_nothing_is_counted(corpus, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT)))
    item, other = find_inputs(["-", "-", str(corpus / "b.txt")])
    assert (item.path, item.format, item.size, item.modified_ns) == ("-", "auto", 0, 0)
    assert not item.is_splittable
    assert other.path == str(corpus / "b.txt")
    stream, count_read = open_input(item)
    assert (stream.read(), count_read()) == (TEXT, 0)


# ---- opening ----


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_refused_by_name(corpus):
    (corpus / "b.txt").chmod(0)
    with pytest.raises(InputError, match=r"b\.txt can't be read: Permission denied"):
        find_inputs([str(corpus)])
