"""The same documents in any format give the same canonical text; CSV, JSON and wiki files of every layout."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import build_fixtures as fixtures
import pyarrow.csv
import pyarrow.parquet
import pytest
from corpus_fixtures import read, read_inputs, small_sizes
from format_fixtures import LAYOUTS
from hypothesis import given
from hypothesis import strategies as st
from refusals import check_refused, refused

from albert_data.config import TextConfig, VocabConfig
from albert_data.corpus import blocks, inputs
from albert_data.corpus.blocks import Origin
from albert_data.corpus.damage import Damage
from albert_data.corpus.formats import csv_files, json_arrays, wiki
from albert_data.corpus.formats.json_arrays import as_json_lines
from albert_data.corpus.formats.records import make_blocks
from albert_data.corpus.inputs import find_inputs
from albert_data.corpus.refused import RefusedInputs
from albert_data.corpus.tasks import plan_tasks
from albert_data.errors import ConfigError, InputError
from albert_data.tokenizer.model import Tokenizer
from albert_data.vocab.learning import learn_vocabulary

DOCUMENTS = fixtures.make_documents(300, seed=9)
PIECES = ["a", "Wort ", "\n\n", "\r\n", "\\n", *'\n\r\u2028\u0085\t \0\ufeff中",']
odd_texts = st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), min_size=1, max_size=12)


def read_all(path: Path, config: TextConfig | None = None) -> tuple[list[bytes], Counter[str]]:
    """The sorted documents of a path, read task by task, and what was counted."""
    config = config or TextConfig()
    damage = Damage(strict=config.strict)
    found = read_inputs(find_inputs([str(path)], text=config), config, damage)
    return sorted(document for document, _ in found), damage.counts


def read_languages(path: Path, config: TextConfig) -> tuple[dict[str, str], Damage]:
    """The language of each document of one line, and what was counted."""
    damage = Damage()
    found = read_inputs(find_inputs([str(path)], text=config), config, damage)
    return {document.decode().strip(): language or "" for document, language in found}, damage


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("expected")
    (folder / "a.txt").write_bytes(fixtures.to_txt(DOCUMENTS))
    fixtures.run_build(folder / "a.txt", folder / "out", tokenizer)
    return fixtures.digest_shards(folder / "out")


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_format_gives_the_same_shards(tmp_path, name, expected, tokenizer):
    LAYOUTS[name](tmp_path / name, DOCUMENTS)
    with fixtures.small_tasks(1 << 12):
        fixtures.run_build(tmp_path / name, tmp_path / "out", tokenizer)
    assert fixtures.digest_shards(tmp_path / "out") == expected


@given(odd_texts)
def test_odd_texts_are_the_same_in_every_format(texts):
    with TemporaryDirectory() as name, small_sizes():
        folder = Path(name)
        found = []
        for name, write in LAYOUTS.items():
            write(folder / name, texts)
            documents, counts = read_all(folder / name)
            if name.startswith("a.txt"):  # where blank lines are no document
                counts["empty_document"] = sum(not fixtures.canonical(text) for text in texts)
            found.append((documents, +counts))
    assert all(one == found[0] for one in found), dict(zip(LAYOUTS, found, strict=True))


def read_text(tmp_path: Path, name: str, text: str, **settings: Any) -> tuple[list[bytes], Counter[str]]:
    (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    return read_all(tmp_path / name, TextConfig(**settings))


# ---- CSV ----


@pytest.mark.parametrize(
    ("text", "documents", "counts"),
    [
        (
            '\ufeff"text",id\r\n"1, ""2""\r\n\r\n3",1\r\n\r\nfour "4",2\r\n"",3\r\n',
            ['1, "2"\n3', 'four "4"'],
            {"empty_document": 1},
        ),
        ('id\ttext\n1\t"a\tb"\n2\tc, d', ["a b", "c, d"], {}),
        ("id,text\n1,a\n2\n3,b,c\n4,d\n", ["a", "d"], {"malformed_row": 2}),
        ('id\ttext\n1\ta\n2\t"b c\n3\td\n4\t"e," f\n', ["a", '"b c', "d", '"e," f'], {"stray_quote": 2}),
        ('text,id\n"a, b",1\n"c,2\nd,"3\ne",4\n', ["a, b", '"c', "d", 'e"'], {"stray_quote": 2}),
        ('id,text\n1,"a\n2,b\n3,"c",x\n4,d\n', ['"a', "b", "d"], {"stray_quote": 1, "malformed_row": 1}),
        ('id,text\n1,"a\n2,b\n3,c",x\n4,d\n', ['"a', "b", "d"], {"stray_quote": 1, "malformed_row": 1}),
        ('text\na\n"b\nc\n', ["a", '"b', "c"], {"stray_quote": 1}),
        ("text\na\nb", ["a", "b"], {}),
        ('text\n"' + "a\n" * 64 + '"\n', ["a\n" * 63 + "a"], {}),
        ('text\n"' + "a\n" * 65 + 'b"\n', ['"a', *["a"] * 64, 'b"'], {"stray_quote": 1}),
        (
            "id,text\n" + '1,"a\n' * 16 + '2,"b"\n3,"c, d"\n',
            ['"a'] * 16 + ['"b"'],
            {"stray_quote": 16, "malformed_row": 1},
        ),
        ("id,text\n" + ('1,"a\n' * 15 + '2,"b, c"\n') * 9, (['"a'] * 15 + ["b, c"]) * 9, {"stray_quote": 135}),
        # Lines that are no rows are text, however many; lines that are rows stay rows.
        ("id,text\n" + f'1,"{"A line.@" * 99}b, c"\n2,d\n', ["A line.@" * 99 + "b, c", "d"], {}),
        ("id,text\n" + '1,"a\n' + "2,b\n" * 99 + '3,c"\n', ['"a', *["b"] * 99, 'c"'], {"stray_quote": 1}),
        ('id,text\n1,"a, b" \n2,"c"  \n', ["a, b", "c"], {}),
        ("id,text\n" + '1,"a, b",x\n' * 20 + '2,"c, d"\n', ["c, d"], {"malformed_row": 20}),
    ],
)
def test_rows_and_marks_are_read_as_they_are_meant(tmp_path, text, documents, counts):
    text, documents = text.replace("@", "\n"), [document.replace("@", "\n") for document in documents]
    expected = sorted(f"{document}\n".encode() for document in documents)
    assert read_text(tmp_path, f"a.{'tsv' if chr(9) in text else 'csv'}", text) == (expected, Counter(counts))


def read_slowly(lines: list[str], delimiter: str) -> list[list[str]]:
    """Rows by their definition: each mark is followed to the one that closes it."""
    rows, run = list[list[str]](), 0  # marks that enclose no field since the last that does

    def read(at: int, run: int, *, is_quoted: bool) -> tuple[list[str], int, int]:
        text, row = "".join(lines[at:]), []
        place = 0
        while True:
            is_wide = bool(rows) and len(row) > len(rows[0])
            end = find_end(text, place) if is_quoted and run < csv_files._MAX_STRAY else None
            if end is not None and is_wide and re.search("[\r\n]", text[place:end]):
                end = None  # a row that is too wide takes no more lines
            if end is None:
                run += text.startswith('"', place) and run < csv_files._MAX_STRAY and not is_wide
                end = next(i for i in range(place, len(text) + 1) if text[i : i + 1] in (delimiter, "\r", "\n", ""))
                row.append(text[place:end])
            else:
                value = text[place + 1 : end].rstrip(" ")
                row.append(value[:-1].replace('""', '"') + text[place + 1 + len(value) : end])
                run = 0
            if text[end : end + 1] != delimiter:
                break
            place = end + 1
        used = 1
        while sum(map(len, lines[at : at + used])) < end:
            used += 1
        return row, used, run

    def find_end(text: str, begin: int) -> int | None:
        if not text.startswith('"', begin):
            return None
        end = begin + 1
        while text[end : end + 1] not in ('"', "") or text[end : end + 2] == '""':
            end += 2 if text[end] == '"' else 1
        inside = text[begin + 1 : end]
        num_line_ends = inside.count("\n") + inside.count("\r") - inside.count("\r\n")
        blanks = re.match(" *", text[end + 1 :])[0] if end < len(text) else ""
        is_closed = end < len(text) and text[end + 1 :][len(blanks) :][:1] in (delimiter, "\r", "\n", "")
        fits = num_line_ends <= csv_files._MAX_LINE_ENDS and len(inside.encode()) <= csv_files._MAX_QUOTED
        whole = re.split("(?<=\n)|(?<=\r)(?!\n)", text)
        after = whole[1 : num_line_ends + 1 + text[:begin].count("\n")]
        width = len(rows[0]) if rows else 0
        num_odd = sum(line.count(delimiter) != width - 1 for line in after)
        fits = fits or not num_line_ends or (width > 1 and 2 * num_odd > len(after))
        return end + 1 + len(blanks) if is_closed and fits else None

    at = 0
    while at < len(lines):
        if lines[at].strip("\r\n"):
            row, used, after = read(at, run, is_quoted=True)
            plain = read(at, 0, is_quoted=False)
            if rows and len(row) != len(rows[0]) == len(plain[0]):
                row, used, after = *plain[:2], run + sum(field.startswith('"') for field in plain[0])
            rows.append(row)
            run = after
            at += used
        else:
            at += 1
    return rows


@given(st.text(st.sampled_from('aü ,"\n\r'), max_size=60), st.sampled_from(["", "a,b\n", "a\n"]), st.integers(0, 4))
def test_rows_are_those_of_the_definition(text, header, max_stray):
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", header + text)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"MAX_STRAY": max_stray, "MAX_LINE_ENDS": 2, "MAX_QUOTED": 24, "SHORT": 6}.items():
            patch.setattr(csv_files, f"_{name}", value)
        table = csv_files._Table(csv_files._Lines(io.StringIO(header + text, newline="").readline), ",", TextConfig())
        assert list(table.read()) == read_slowly(lines, ",")


def test_a_row_that_is_too_long_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "MAX_ROW", 100)
    monkeypatch.setattr(csv_files, "_MAX_FIELDS", 10)
    monkeypatch.setattr(csv_files, "_CHUNK", 7)
    for long in ("x" * 200, "é" * 60, "," * 11, f'"{"x" * 99}'):
        text = f"text\na\n{'b' * 90}\n{long}\nc\n"
        assert read_text(tmp_path, "a.csv", text) == ([b"a\n", b"b" * 90 + b"\n", b"c\n"], Counter(row_too_long=1))
    assert read_text(tmp_path, "a.csv", f"{'x' * 101}\na\n") == ([], Counter(row_too_long=1))


DELIMITERS = [
    ("a.csv", 'ID;Texte\r\n1;"a; b, c"\r\n2;d, e\r\n', ";"),
    ("a.csv", "Texte|ID, other\na|1, 2\nd|2\n", "|"),
    ("a.csv", "ID,Texte\n1,a; b; c\n", ","),
    ("a.tsv", "ID,Texte\n1,a\n", ","),
    ("a.csv", "Texte\na; b\n", ","),
    ("a.csv", "sep=;\r\nTexte;a,b\r\na;1,2\r\n", ";"),
    ("a.csv", 'ID\tTexte\n1\t"a\n2\tb\n', "\t"),
]


HEADLESS = '0,"First, here",de\n1,Second,en\n2,"Two\nlines",de\n3,odd\n4,last,en\n'


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv"])
def test_without_a_header_fields_are_numbers(tmp_path, name):
    text = HEADLESS.replace(",", "\t").replace("First\t", "First,") if name == "a.tsv" else HEADLESS
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    texts = [b"First, here\n", b"Second\n", b"Two\nlines\n", b"last\n"]
    config = TextConfig(header=False, text_field="2")
    assert read_all(tmp_path / name, config) == (texts, Counter(malformed_row=1))
    assert read_all(tmp_path / name, replace(config, text_field="3, 2"))[0][0] == b"de\nFirst, here\n"
    assert read_all(tmp_path / name, replace(config, where="3 == 'de'"))[0] == [texts[0], texts[2]]
    languages, _ = read_languages(tmp_path / name, replace(config, language_field="3", where="1 < 2"))
    assert languages == {"First, here": "de", "Second": "en"}
    with pytest.raises(InputError, match="row 4: malformed row: 2 fields, but the first row has 3"):
        read_all(tmp_path / name, replace(config, strict=True))


@pytest.mark.parametrize("first", ['0,"{}",x\n', '"{}",0,x\n'])
def test_the_first_row_without_a_header_may_have_a_long_text(tmp_path, first):
    texts = ["\n".join(f"line {number}, of {count}" for number in range(count)) for count in (100, 70, 65, 2)]
    (tmp_path / "a.csv").write_text("".join(map(first.format, texts)))
    config = TextConfig(header=False, text_field="2" if first[0] == "0" else "1", delimiter=",")
    assert read_all(tmp_path / "a.csv", config) == (sorted(f"{text}\n".encode() for text in texts), Counter())
    rows = '1,"stray,x\n' + "2,b,x\n" * 80 + '3,"c",x\n'
    (tmp_path / "b.csv").write_text(rows)
    found, counts = read_all(tmp_path / "b.csv", TextConfig(header=False, text_field="2"))
    assert (len(found), counts) == (82, Counter(stray_quote=1))


def test_with_a_header_each_row_counts_alike(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n" + (rows := "1,One.\n2,Two.\n"))
    (tmp_path / "b.csv").write_text(rows)
    assert read_all(tmp_path / "a.csv") == read_all(tmp_path / "b.csv", TextConfig(header=False, text_field="2"))


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff"])
def test_an_empty_file_without_a_header_has_no_document(tmp_path, text):
    assert read_text(tmp_path, "a.csv", text, header=False, text_field="1") == ([], Counter())


@refused(
    ({"text_field": "2"}, RefusedInputs, 'without the field "2", with & pass --no-header if the first row is data'),
    ({"header": False}, RefusedInputs, 'without the field "text", with "1", "2", "3"; name fields of text'),
    ({"header": False, "text_field": "4"}, RefusedInputs, 'without the field "4", with "1", "2", "3"; name fields of'),
)
def test_a_number_that_is_no_field_names_the_option(tmp_path, call, kind, named):
    (tmp_path / "a.csv").write_text(HEADLESS)
    check_refused(lambda: read_all(tmp_path / "a.csv", TextConfig(**call)), kind, named)


@pytest.mark.parametrize(("name", "text", "delimiter"), DELIMITERS)
@pytest.mark.parametrize("ending", ["", ".gz", "utf-16"])
def test_the_delimiter_is_found_and_said(tmp_path, name, text, delimiter, ending):
    data = text.encode("utf-16" if ending == "utf-16" else "utf-8")
    path = tmp_path / (name + ending.replace("utf-16", ""))
    path.write_bytes(gzip.compress(data) if ending == ".gz" else data)
    said = list[str]()
    (item,) = inputs.find_inputs([str(path)], said.append, TextConfig(text_field="Texte"))
    own = {"csv": ",", "tsv": "\t"}[item.format]
    assert said == ([] if delimiter == own else [f"{path}: its delimiter is {delimiter!r}"])
    found, counts = read_all(path, TextConfig(text_field="Texte"))
    assert (found, counts) == read_all(path, TextConfig(text_field="Texte", delimiter=delimiter))
    assert found


@refused(
    *(({"delimiter": delimiter}, ConfigError, "delimiter is & allowed are auto, tab and") for delimiter in ("", "ab")),
    *(({"delimiter": delimiter}, ConfigError, "delimiter is") for delimiter in ('"', "\n", "\udcff")),
    ({"quoting": "all"}, ConfigError, "quoting is 'all'; allowed are auto, none, long"),
)
def test_settings_of_tables_are_checked(call, kind, named):
    check_refused(lambda: TextConfig(**call), kind, named)
    assert TextConfig(delimiter="tab").delimiter == TextConfig(delimiter="\\t").delimiter == "\t"


def test_rows_are_handed_on_as_they_are_read():
    rows = [f"{letter * size},{'x' * (100_000 - size)}\n" for letter in "abcd" for size in (10, 90_000)] * 10
    stream, handed_on, held = io.BytesIO("".join(["text,lang\n", *rows]).encode()), list[int](), list[int]()

    def note(rows: Any) -> Any:
        for row in rows:
            handed_on.append(100_002)
            held.append(stream.tell() - sum(handed_on))
            yield row

    origin, text = Origin("p", "csv"), TextConfig(language_field="lang")
    parts = (replace(part, rows=note(part.rows)) for part in csv_files.read_rows(stream, origin, text, Damage()))
    blocks = list(make_blocks(parts, origin, text, Damage()))
    assert sum(len(block.ends or ()) for block in blocks) == len(handed_on) == len(rows)
    assert max(held) < 1 << 14


TWICE, AMBIGUOUS = "a,id,a\n1,2,3\n", "text;a,b\nOne.;1,2\nTwo.;3,4\n"


TWO_FIELDS = 'a.csv has 2 fields "a"; give & they are the columns 1, 3'


@refused(
    ((TWICE, {"text_field": "a"}), InputError, TWO_FIELDS),
    ((TWICE, {"text_field": "id,a"}), InputError, TWO_FIELDS),
    ((TWICE, {"text_field": "id", "language_field": "a"}), InputError, TWO_FIELDS),
    ((AMBIGUOUS, {}), InputError, "a.csv may have the delimiter ',' or ';': either makes 2 fields of the header"),
    (("id,body\n1,a\n", {}), RefusedInputs, 'without the field "text", with "body", "id"; name fields'),
    (("id,text\n1,a\n2\n", {"strict": True}), InputError, "a.csv, row 2: malformed row: 1 fields, but & has 2; fix"),
    (('text\n"a\n', {"strict": True}), InputError, "a.csv, row 1: stray quote: & ; see --quoting; fix the file, or le"),
)
def test_a_wrong_table_is_named(call, kind, named, tmp_path):
    check_refused(lambda: read_text(tmp_path, "a.csv", call[0], **call[1]), kind, named)


@pytest.mark.parametrize(
    ("text", "settings", "documents"),
    [
        (TWICE, {"text_field": "id"}, [b"2\n"]),
        (AMBIGUOUS, {"delimiter": ";"}, [b"One.\n", b"Two.\n"]),
        ("text;a,b\n", {"text_field": "text;a"}, []),  # a header alone
        ("", {}, []),
        ("id,text\n", {}, []),
        ("text\n" + "long " * 99_999, {}, [b"long " * 99_998 + b"long\n"]),
        ('id,text\n1,"a"\n', {"quoting": "none"}, [b'"a"\n']),
        ('text\n"' + "a\n" * 1000 + 'b"\n', {"quoting": "long"}, [b"a\n" * 1000 + b"b\n"]),
    ],
)
def test_a_sound_table_is_read_as_the_settings_say(text, settings, documents, tmp_path):
    assert read_text(tmp_path, "a.csv", text, **settings) == (documents, Counter())


def test_all_inputs_without_a_text_field_are_one_error(tmp_path, monkeypatch):
    for name, header in {"a.csv": "x,y", "b.tsv": "z", "c.csv": "text,x"}.items():
        (tmp_path / name).write_text(f"{header}\n")
    (tmp_path / "d.csv.gz").write_bytes(gzip.compress(("w" * 50_000 + ",v\n").encode()))
    for name in ("e", "f"):
        pyarrow.parquet.write_table(pyarrow.table({name: ["a"]}), tmp_path / f"{name}.parquet")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        read_all(Path())
    said = str(caught.value).replace("./", "").replace('without the field "text", with', "MISSING")
    assert said == (
        '5 inputs can\'t be read: e.parquet (MISSING "e" (string)), f.parquet (MISSING "f" (string)), '
        f'd.csv.gz (MISSING "v", "{"w" * 37}..."), a.csv (MISSING "x", "y"), b.tsv (MISSING "z"); '
        "name fields of text with --text-field"
    )


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_part_that_is_missing_is_left_out_and_counted_for_each_row(tmp_path, name):
    rows = {"b": ["B.", " ", "C."], "id": ["1", "2", "3"]}
    if name == "a.csv":
        pyarrow.csv.write_csv(pyarrow.table(rows), tmp_path / name)
    else:
        pyarrow.parquet.write_table(pyarrow.table(rows), tmp_path / name)
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"b": text}) + "\n" for text in rows["b"]))
    config = TextConfig(text_field="title, b")
    found = read_all(tmp_path / name, config)
    assert (
        found
        == ([b"B.\n", b"C.\n"], Counter(missing_part=3, empty_document=1))
        == read_all(tmp_path / "b.jsonl", config)
    )


def test_columns_are_joined_and_name_languages(tmp_path):
    (tmp_path / "a.csv").write_text("title,text,lang\nT,a,de\n,b,\nA,,en\n")
    assert read_all(tmp_path / "a.csv", TextConfig(text_field="title,text"))[0] == [b"A\n", b"T\na\n", b"b\n"]
    found, damage = read_languages(tmp_path / "a.csv", TextConfig(language="fr", language_field="lang"))
    assert (found, damage.counts) == ({"a": "de", "b": "fr"}, Counter(unknown_language=1, empty_document=1))


def test_damage_and_other_encodings_are_as_in_text(tmp_path):
    assert read_text(tmp_path, "a.csv", "text\nbad \udcff\n") == (["bad \ufffd\n".encode()], Counter(invalid_utf8=1))
    (tmp_path / "b.csv").write_bytes("text\nzwölf\n".encode("utf-16"))
    assert read_all(tmp_path / "b.csv")[0] == ["zwölf\n".encode()]
    (tmp_path / "b.csv").write_bytes("text\nzwölf\n".encode("cp1252"))
    assert read_all(tmp_path / "b.csv", TextConfig(encoding="cp1252"))[0] == ["zwölf\n".encode()]


# ---- JSON ----


@pytest.mark.parametrize(
    "text",
    [
        '[{"text": "a"}, {"text": "b\\n[c", "x": {"y": ["]", {}]}}, {"text": "d \\" }"}]',
        '\ufeff\n [\n {"text":\n"a"},{\r\n"text": "b\\n[c"} ,\n{"text": "d \\" }"}\n]\n',
        '["a", "b\\n[c", "d \\" }"]',
        '{"text": "a"}\n{"text": "b\\n[c"}\n{"text": "d \\" }"}',
        '{"text": "a"}{\n"text": "b\\n[c"\n} {"text": "d \\" }"}',
        '[{"text": "a"}]\n["b\\n[c"][{"text": "d \\" }"}]',
    ],
)
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_elements_may_lie_in_any_layout(tmp_path, text, chunk, monkeypatch):
    monkeypatch.setattr(json_arrays, "_CHUNK", chunk)
    assert read_text(tmp_path, "a.json", text, strict=True) == ([b"a\n", b"b\n[c\n", b'd " }\n'], Counter())


@pytest.mark.parametrize(
    ("text", "settings", "documents", "counts"),
    [
        ('["a"]', {"text_field": 'x,"y"'}, [b"a\n"], {}),
        (
            '[1, null, true, [], ["x"], {}, {"text": 3}, {"text": "good"}, {"text": "cut',
            {},
            [b"good\n"],
            {"malformed_json": 6, "missing_field": 1, "field_not_text": 1},
        ),
        ('[{"text": "a"}, {"text": "line\nfeed"}, \n {"text": "b"}]', {}, [b"a\n", b"b\n"], {"malformed_json": 2}),
    ],
)
def test_elements_that_are_no_records_are_counted(text, settings, documents, counts, tmp_path):
    assert read_text(tmp_path, "a.json", text, **settings) == (documents, counts)


values = st.recursive(
    st.none() | st.integers() | st.text(max_size=6), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(st.lists(st.dictionaries(st.sampled_from(["text", "b"]), values)), st.sampled_from([None, 0, 2]), st.booleans())
def test_an_array_is_read_like_lines(records, indent, is_ascii):
    array = json.dumps(records, indent=indent, ensure_ascii=is_ascii).encode(errors="replace")
    lines = "".join(json.dumps(record, ensure_ascii=is_ascii) + "\n" for record in records).encode(errors="replace")
    stream: Any = as_json_lines(io.BytesIO(array), "text")
    assert read(stream, "jsonl") == read(lines, "jsonl")


# ---- sharing ----


def test_labels_are_missed_where_the_parent_reads_the_rows_too(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(inputs, "_SMALL_BYTES", 1)
    path = tmp_path / "a.csv"
    path.write_text("id,text\n1,Some words.\n")
    text, vocab = TextConfig(language_field="lang"), VocabConfig(vocab_size=300)
    for call in (
        lambda: fixtures.run_build(path, tmp_path / "out", tokenizer, language_field="lang"),
        lambda: learn_vocabulary(inputs.find_inputs([str(path)]), text, vocab, fixtures.InlineEngine()),
    ):
        check_refused(call, InputError, 'no record has the field "lang"; pass --language-field')


def test_small_files_share_tasks_and_large_ones_are_read_by_one_process(tmp_path, monkeypatch):
    for number in range(5):
        (tmp_path / f"{number}.json").write_text('{"text": "a"}')
        (tmp_path / f"{number}.csv").write_text("text\nb\n")
    assert len(plan_tasks(inputs.find_inputs([str(tmp_path)]))) == 1
    assert len(read_all(tmp_path)[0]) == 10
    monkeypatch.setattr(inputs, "_SMALL_BYTES", 1)
    assert plan_tasks(inputs.find_inputs([str(tmp_path)])) == []
    assert len(read_all(tmp_path)[0]) == 10


# ---- the output of WikiExtractor ----

ARTICLE = (
    '<doc id="12" url="https://x.org/wiki?curid=12" title="Anarchism">\nAnarchism\n\nText of it.\n\nMore.\n</doc>\n'
)
OTHER = '<doc id="13" url="" title="B">\nB\n\nIt has no </doc> inside.\n\n</doc>\n'
ARTICLES = [b"Anarchism\nText of it.\nMore.\n", b"B\nIt has no </doc> inside.\n"]


@pytest.mark.parametrize("chunk", [1, 5, 1 << 20])
def test_an_article_is_one_document_and_its_title_a_line(chunk, monkeypatch):
    monkeypatch.setattr(wiki, "_CHUNK", chunk)
    assert read((ARTICLE + "\n" + OTHER).encode(), "wiki", strict=True) == (ARTICLES, Counter())


def test_names_without_an_ending_are_recognised_by_the_first_bytes(tmp_path):
    (tmp_path / "AA").mkdir()
    (tmp_path / "AA/wiki_00").write_text(ARTICLE)
    (tmp_path / "AA/wiki_01.bz2").write_bytes(bz2.compress(OTHER.encode()))
    (tmp_path / "AA/wiki_02").write_text('{"id": "1", "url": "u", "title": "C", "text": "C\\n\\nof JSON"}\n')
    (tmp_path / "LICENSE").write_text("no corpus")
    (tmp_path / "wiki.rst").write_text(ARTICLE)
    said: list[str] = []
    items = find_inputs([str(tmp_path)], said.append)
    assert [(item.format, item.compression) for item in items] == [("wiki", None), ("wiki", "bz2"), ("jsonl", None)]
    assert read_all(tmp_path) == ([*ARTICLES, b"C\nof JSON\n"], Counter())
    assert len(said) == 1
    assert f"skipped files of no known ending (2): {tmp_path}/LICENSE, {tmp_path}/wiki.rst" in said[0]
    assert read_all(tmp_path / "AA/wiki_00")[0] == ARTICLES[:1]


def test_articles_without_an_end_and_text_outside_are_counted(monkeypatch):
    data = f"before\n{ARTICLE}<doc id=1>\nno end\n{OTHER}<doc id=2>\ncut".encode()
    assert read(data, "wiki") == (ARTICLES, Counter(malformed_article=3))
    with pytest.raises(InputError, match="p, article 0: malformed article: text outside of <doc> and </doc>"):
        read(data, "wiki", strict=True)
    monkeypatch.setattr(blocks, "MAX_JSON_LINE", 1 << 12)
    monkeypatch.setattr(wiki, "_CHUNK", 1 << 10)
    long = "<doc id=1>\n" + "a line\n" * 2000 + "</doc>\n"
    found, counts = read((ARTICLE + long + OTHER).encode(), "wiki")
    assert (found, set(counts)) == (ARTICLES, {"malformed_article"})


def test_an_article_that_comes_in_small_parts_is_searched_as_often_as_one_that_comes_at_once(monkeypatch):
    class Trickle(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            return super().read1(min(size or 0, 100))

    searches: list[int] = []

    class Mark:
        def search(self, data: bytes, at: int) -> re.Match[bytes] | None:
            searches.append(len(data))
            return _MARK.search(data, at)

    _MARK = wiki._MARK
    monkeypatch.setattr(wiki, "_CHUNK", 1000)
    monkeypatch.setattr(wiki, "_MARK", Mark())
    text = "a line\n" * 20_000
    found, counts = read(Trickle(f"<doc id=1>\n{text}</doc>\n".encode()), "wiki")
    assert (found, counts) == ([text.encode()], Counter())
    assert sum(searches) < 5 * len(text)


def test_a_language_field_needs_fields(tmp_path):
    (tmp_path / "wiki_00").write_text(ARTICLE)
    config = TextConfig(language_field="lang")
    with pytest.raises(InputError, match="which have no fields such as 'lang'"):
        inputs.check_fields(find_inputs([str(tmp_path)], text=config), config)


def test_character_references_are_replaced_once():
    text = "AT&amp;amp;T &lt;br&gt; &quot;a&quot; It&#39;s&nbsp;&#x4E2D; &copy &notit; &Unknown; R&D & &#99999999; &#0;"
    wanted = 'AT&amp;T <br> "a" It\'s 中 &copy &notit; &Unknown; R&D & &#99999999; \ufffd\n'
    data = ARTICLE.replace("More.", f"{text}\n&lt;/doc&gt;").encode()
    assert read(data, "wiki") == ([b"Anarchism\nText of it.\n" + wanted.encode() + b"</doc>\n"], Counter())
