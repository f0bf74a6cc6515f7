"""What the user names is found once, in one order, in a known format, or refused with a reason."""

from __future__ import annotations

import gzip
import io
import os
import sys
from pathlib import Path

import build_fixtures as fixtures
import pyarrow
import pytest
from format_fixtures import write_parquet, write_stream
from refusals import check_refused, refused
from test_corpus_formats import read_all

from albert_data.config import FORMATS, TextConfig
from albert_data.corpus.formats.recognition import ALLOWED_NAMES, TABLES, match_name
from albert_data.corpus.inputs import check_apart, find_inputs, open_input
from albert_data.corpus.mixtures import find_sources
from albert_data.corpus.refused import RefusedInput, RefusedInputs
from albert_data.errors import InputError, StorageError

TEXT = "ein Wört\n\nzwei\n".encode()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder of files of every kind, and some to pass over."""
    folder = tmp_path / "corpus"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    for name in ("b.txt", "a.jsonl", "deep/c.txt", "deep/er/d.TXT", ".e.txt", ".hidden/f.txt", "notes.rst", "~$b.txt"):
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
    for name in ("a", "a.gz", "a.parquet.gz", "txt", "a.txt.", "unread/notes.rst", "unread/.hidden.txt"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(TEXT)
    Path("empty").mkdir()
    Path("pipes").mkdir()
    os.mkfifo("pipes/a.txt")
    for name, content in {"blank": "\n \u3000\n", "gone": "gone.txt\n", "glob": "*.gone\n"}.items():
        Path(f"{name}.list").write_text(content)


@refused(
    *((name, InputError, "of no known kind & readable are .txt") for name in ("notes.rst", "a", "deep/backup.gz")),
    *((name, InputError, "of no known kind & readable are .txt") for name in ("a.gz", "a.parquet.gz", "txt", "a.txt.")),
    ("missing.txt", InputError, "missing.txt does not exist"),
    ("b.txt:xx", InputError, "b.txt:xx does not exist"),
    ("az://bucket", StorageError, "az://bucket is not on a disk"),
    ("empty", InputError, "empty holds no readable file"),
    ("pipes", InputError, "pipes holds no readable file"),
    ("unread", InputError, "unread holds no readable file (skipped files of no known ending (1): unread/notes.rst"),
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
        (corpus / f"table{number}.doc").write_bytes(TEXT)
    said: list[str] = []
    find_inputs([str(corpus)], said.append)
    assert said == [
        f"skipped files of no known ending (7): {corpus}/notes.rst, {corpus}/table0.doc, {corpus}/table1.doc and 4"
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


# ---- --format, and endings ----

RECORDS = b'{"text": "One."}\n'
DATA = {  # what is read as a format, in files whose names say nothing of it
    "txt": b"One.\n",
    "jsonl": RECORDS,
    "json": b'["One."]',
    "csv": b"text,n\nOne.,1\n",
    "tsv": b"text\tn\nOne.\t1\n",
    "wiki": b"<doc id=1>\nOne.\n</doc>\n",
}


def write_data(path: Path, format: str) -> None:
    if format in TABLES:
        write = write_parquet if format == "parquet" else write_stream
        write(path, pyarrow.table({"text": ["One."]}))
    else:
        path.write_bytes(DATA[format])


@pytest.mark.parametrize("format", FORMATS[1:])
@pytest.mark.parametrize("ending", ["", ".dat", ".jsonl", ".parquet", ".gz"])
def test_every_file_is_read_as_the_named_format(tmp_path, format, ending):
    path = tmp_path / f"corpus{ending}"
    write_data(path, format)
    if ending == ".gz" and format in DATA:
        path.write_bytes(gzip.compress(path.read_bytes()))
    (tmp_path / ".hidden").write_bytes(b"no")
    config = TextConfig(format=format)
    assert read_all(path, config) == read_all(tmp_path, config) == ([b"One.\n"], {})


@pytest.mark.parametrize("format", FORMATS[1:])
def test_stdin_is_read_as_the_named_format(format, monkeypatch):
    fixtures.set_stdin(monkeypatch, DATA.get(format, b"PAR1"))
    if format in TABLES:
        check_refused(lambda: find_inputs(["-"], text=TextConfig(format=format)), InputError, "can't be read from one")
    else:
        assert read_all(Path("-"), TextConfig(format=format)) == ([b"One.\n"], {})


@refused(
    (("parquet", "txt", ""), RefusedInput, "is plain text, not parquet, as --format says & leave --format out"),
    (("arrow", "txt", ""), RefusedInput, "is plain text, not arrow"),
    (("arrow", "parquet", ""), RefusedInput, "is a Parquet file, not arrow"),
    (("txt", "parquet", ""), RefusedInput, "is no text: it is a Parquet file, as for --format parquet"),
    (("csv", "arrow", ""), RefusedInput, "is no text: it is binary"),
    (("jsonl", "txt", ""), RefusedInput, "is plain text, not jsonl"),
    (("jsonl", "txt", ".gz"), RefusedInput, "is plain text, not jsonl"),
    (("json", "wiki", ""), RefusedInput, "is WikiExtractor's, not json"),
    (("wiki", "jsonl", ""), RefusedInput, "is JSON, not wiki"),
    (("txt", "parquet", ".gz"), RefusedInput, "is no text: it is a Parquet file"),
)
def test_a_format_that_the_bytes_contradict_is_refused(call, kind, named, tmp_path):
    format, found, ending = call
    write_data(path := tmp_path / f"a{ending}", found)
    if ending:
        path.write_bytes(gzip.compress(path.read_bytes()))
    config = TextConfig(format=format)
    with pytest.raises(RefusedInputs) as caught:
        find_inputs([str(path)], text=config)
    assert str(path) in (message := str(caught.value))
    assert "\n" not in message
    assert all(part in message for part in named.split(" & ")), message


def test_gzip_without_its_ending_is_not_text(tmp_path):
    (tmp_path / "a").write_bytes(gzip.compress(TEXT))
    for format in ("txt", "parquet"):
        with pytest.raises(RefusedInputs, match="a .*is.* compressed by gzip"):
            find_inputs([str(tmp_path / "a")], text=TextConfig(format=format))


@pytest.mark.parametrize(
    ("name", "format"),
    [("a.ndjson", "jsonl"), ("a.jl.gz", "jsonl"), ("a.md", "txt"), ("wiki.train.raw", "txt"), ("a.pq", "parquet")],
)
def test_other_endings_of_the_formats_are_known(name, format):
    assert (match_name(name) or ("",))[0] == format


def test_what_describes_a_data_set_is_no_text_in_a_folder(corpus):
    (corpus / "README.md").write_bytes(TEXT)
    (corpus / "chapter.md").write_bytes(TEXT)
    names = names_of(corpus)
    assert (f"{corpus}/chapter.md" in names, f"{corpus}/README.md" in names) == (True, False)
    assert names_of(corpus / "README.md") == [f"{corpus}/README.md"]


# ---- archives, and documents of other programs ----


@pytest.mark.parametrize(
    ("name", "kind", "command"),
    [
        ("a b.tar.gz", ".tar", "mkdir 'a b' && tar -xf 'a b.tar.gz' -C 'a b'"),
        ("a.TGZ", ".tar", "mkdir a && tar -xf a.TGZ -C a"),
        ("a.zip", ".zip", "unzip a.zip -d a"),
        ("a.7z", ".7z", "7z x a.7z -oa"),
        ("a.docx", ".docx", "pandoc a.docx -t plain --wrap=none -o a.txt"),
        ("a.html", ".docx", "pandoc a.html -t plain"),
        ("a.pdf", ".pdf", "pdftotext a.pdf a.txt"),
        ("a.xml", ".xml", "xmllint --xpath 'string(/)' a.xml > a.txt"),
        ("a.warc.gz", ".warc", "docs/reference/input.md#archives"),
    ],
)
def test_an_archive_is_named_with_the_command_that_unpacks_it(tmp_path, monkeypatch, name, kind, command):
    monkeypatch.chdir(tmp_path)
    for one in (name, "b.txt"):
        Path(one).write_bytes(TEXT)
    check_refused(lambda: find_inputs([name]), InputError, f"input {name} is & which is not read & {command}")
    said: list[str] = []
    assert [item.path for item in find_inputs(["."], said.append)] == ["./b.txt"]
    assert [line.split(" files (1): ")[0] for line in said] == [f"skipped {kind}"]


def test_each_kind_of_archives_is_a_line(corpus):
    for name in ("a.zip", "deep/b.zip", "c.pdf"):
        (corpus / name).write_bytes(b"PK")
    said: list[str] = []
    find_inputs([str(corpus)], said.append)
    lines = [line for line in said if ".zip" in line or ".pdf" in line]
    assert lines == [
        f"skipped .pdf files (1): {corpus}/c.pdf; unpack or convert such a file first: pdftotext {corpus}/c.pdf "
        f"{corpus}/c.txt",
        f"skipped .zip files (2): {corpus}/a.zip, {corpus}/deep/b.zip; unpack or convert such a file first: unzip "
        f"{corpus}/a.zip -d {corpus}/a",
    ]
