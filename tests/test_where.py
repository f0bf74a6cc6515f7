"""`--where`: which records it selects, alike in all formats, and that a build has the rows of these alone."""

from __future__ import annotations

import csv
import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from operator import eq, ge, gt, le, lt
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pyarrow
import pytest
from build_fixtures import digest_shards, run_build
from format_fixtures import write_arrow, write_parquet, write_stream
from hypothesis import given
from hypothesis import strategies as st
from mixture_fixtures import build_mixture
from refusals import check_refused, refused
from test_corpus_formats import read_all

from albert_data.cli.main import run
from albert_data.config import TextConfig
from albert_data.corpus.blocks import Origin
from albert_data.corpus.conditions import join_where, parse_where
from albert_data.corpus.formats import json_lines
from albert_data.corpus.formats.tables import list_begins
from albert_data.errors import AlbertDataError, ConfigError, InputError
from albert_data.jobs.engine import MultiprocessEngine

Record = dict[str, Any]
METADATA = {
    "score": pyarrow.float64(),
    "year": pyarrow.int64(),
    "lang": pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
    "kept": pyarrow.bool_(),
}
SCHEMA = pyarrow.schema({"text": pyarrow.string(), "id": pyarrow.string(), "metadata": pyarrow.struct(METADATA)})


def write_lines(path: Path, records: Sequence[Record]) -> None:
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)


def to_table(records: Sequence[Record]) -> pyarrow.Table:
    return pyarrow.Table.from_pylist(list(records), SCHEMA)


FORMATS: dict[str, Callable[[Path, Sequence[Record]], object]] = {
    "a.jsonl": write_lines,
    "a.jsonl.gz": write_lines,
    "a.json": lambda path, records: path.write_text(json.dumps(records)),
    "a.parquet": lambda path, records: write_parquet(path, to_table(records), row_group_size=3),
    "file.arrow": lambda path, records: write_arrow(path, to_table(records), rows=3),
    "stream.arrow": lambda path, records: write_stream(path, to_table(records), rows=3),
}


# ---- a slow rule that says the same ----


def find(record: Record, field: str) -> Any:
    value: Any = record
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def compare(value: Any, symbol: str, wanted: Any) -> bool:
    if symbol in ("in", "not in"):
        return (symbol == "in") == any(compare(value, "==", one) for one in wanted)
    if symbol == "!=":
        return not compare(value, "==", wanted)
    is_number = type(value) in (int, float) and type(wanted) in (int, float)
    if not is_number and type(value) is not type(wanted):
        return False
    return {"==": eq, "<": lt, "<=": le, ">": gt, ">=": ge}[symbol](value, wanted)


Tree = list[Any]  # ["and" | "or", parts ...], or a condition: [field, symbol, wanted]


def holds(record: Record, tree: Tree) -> bool:
    """A comparison with a field that is missing or null does not hold."""
    if tree[0] in ("and", "or"):
        return {"and": all, "or": any}[tree[0]]([holds(record, part) for part in tree[1:]])
    return find(record, tree[0]) is not None and compare(find(record, tree[0]), *tree[1:])


def list_fields(tree: Tree) -> list[str]:
    return sum(map(list_fields, tree[1:]), []) if tree[0] in ("and", "or") else [tree[0]]


def judge(record: Record, conditions: Sequence[Sequence[Any]]) -> str:
    tree: Tree = ["and", *map(list, conditions)]
    if holds(record, tree):
        return "text"
    is_missing = any(find(record, field) is None for field in list_fields(tree))
    return "excluded_without_field" if is_missing else "excluded"


scores = st.sampled_from([0.0, 0.65, 0.649, -1.5, 1e300])
langs = st.sampled_from(["en", "de", "zh-Hans", "it's", 'a "b"', "]"])
years = st.integers(1900, 2020)
some_metadata = st.fixed_dictionaries(
    {}, optional={"score": scores, "year": years, "lang": langs, "kept": st.booleans()}
)
texts = st.integers(0, 99).map(lambda number: f"Document {number}.")
record = st.fixed_dictionaries({"text": texts, "id": st.just("x")}, optional={"metadata": some_metadata})
some_records = st.lists(record, min_size=1, max_size=12)
order = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
one_condition = (
    st.tuples(st.just("metadata.score"), order, scores | st.just(1))
    | st.tuples(st.just("metadata.year"), order, years | st.just(1950.5))
    | st.tuples(st.just("metadata.lang"), order, langs)
    | st.tuples(
        st.just("metadata.lang"),
        st.sampled_from(["in", "not in"]),
        st.lists(langs | st.just(3), min_size=1, max_size=3),
    )
    | st.tuples(st.just("metadata.kept"), st.sampled_from(["==", "!="]), st.booleans())
    | st.tuples(st.sampled_from(["id", "metadata.missing", "id.x"]), order, st.just("x"))
)
some_trees = st.recursive(
    one_condition.map(list),
    lambda inner: st.builds(
        lambda word, parts: [word, *parts], st.sampled_from(["and", "or"]), st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=6,
)


def write(tree: Tree, *, is_bare: bool = True) -> str:
    """A tree as text; with parentheses where they are needed, and about some others."""
    if tree[0] not in ("and", "or"):
        return f"{tree[0]} {tree[1]} {json.dumps(tree[2])}"
    parts = [write(part, is_bare=tree[0] == "or" or part[0] == "and") for part in tree[1:]]
    text = f" {tree[0]} ".join(parts)
    return text if is_bare else f"( {text})"


@given(records=some_records, tree=some_trees, name=st.sampled_from(list(FORMATS)), large=st.booleans())
def test_all_formats_give_the_records_for_which_the_conditions_hold(records, tree, name, large, tmp_path_factory):
    path = tmp_path_factory.mktemp("where") / name
    FORMATS[name](path, records)
    verdicts = [judge(record, [tree]) for record in records]
    wanted = [record["text"].encode() + b"\n" for record, one in zip(records, verdicts, strict=True) if one == "text"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "LARGE_LINE", 0 if large else 1 << 20)
        found, counts = read_all(path, TextConfig(where=write(tree), strict=True))
    assert found == sorted(wanted)
    assert counts == Counter(one for one in verdicts if one != "text")


@given(first=some_trees, second=some_trees)
def test_several_conditions_must_all_hold(first, second):
    texts = [write(first), write(second)]
    joined, both = parse_where(join_where(texts)), [parse_where(text) for text in texts]
    for bits in range(1 << len(joined.conditions)):
        is_there = [bool(bits >> i & 1) for i in range(len(joined.conditions))]
        cut = len(both[0].conditions)
        assert joined.can_hold(is_there) == (both[0].can_hold(is_there[:cut]) and both[1].can_hold(is_there[cut:]))


def test_with_or_a_record_needs_only_the_fields_of_what_holds(tmp_path):
    write_lines(
        tmp_path / "a.jsonl", [{"text": "One.", "lang": "de"}, {"text": "Two.", "score": 1}, {"text": "Three."}]
    )
    found = read_all(tmp_path / "a.jsonl", TextConfig(where="lang == 'de' or score > 0.5"))
    assert found == ([b"One.\n", b"Two.\n"], Counter(excluded_without_field=1))
    table = pyarrow.table({"text": ["One.", None, "Two."], "lang": pyarrow.nulls(3), "score": [1, 1, 0]})
    found = read_all(write_parquet(tmp_path / "a.parquet", table), TextConfig(where="lang == 'de' or score > 0.5"))
    assert found == ([b"One.\n"], Counter(field_not_text=1, excluded_without_field=1))


def test_strings_of_csv_are_compared_as_numbers_with_numbers(tmp_path):
    with (tmp_path / "a.csv").open("w", newline="") as file:
        rows = [("One.", "0.7", "True", "2"), ("Two.", "", "true", "10"), ("Three.", ".5", "False", "x")]
        csv.writer(file).writerows([("text", "score", "kept", "n"), *rows])

    def read(where: str) -> list[str]:
        return [text.decode().strip() for text in read_all(tmp_path / "a.csv", TextConfig(where=where))[0]]

    assert read("score >= 0.65") == ["One."]
    assert read("score != 0.5") == ["One.", "Two."]
    assert read("kept == true") == ["One.", "Two."]
    assert read("n > 2") == ["Two."]
    assert read("n > '2'") == ["Three."]
    assert read("missing == 1") == []


def test_records_are_selected_before_anything_else_of_them_is_judged(tmp_path):
    write_lines(
        tmp_path / "a.jsonl", [{"kind": "index"}, {"kind": "page", "text": "A page."}, {"kind": "no", "text": 3}]
    )
    for config in (TextConfig(where="kind == 'page'", strict=True), TextConfig(where="kind == 'page'", unwrap=True)):
        assert read_all(tmp_path / "a.jsonl", config) == ([b"A page.\n"], Counter(excluded=2))
    table = pyarrow.table({"text": pyarrow.array([None, None], pyarrow.string()), "kind": ["a", "page"]})
    write_parquet(tmp_path / "b.parquet", table)
    counts = Counter(excluded=1, field_not_text=1)
    assert read_all(tmp_path / "b.parquet", TextConfig(where="kind == 'page'")) == ([], counts)


def test_a_field_of_the_whole_name_comes_first_and_may_be_quoted(tmp_path):
    write_lines(
        tmp_path / "a.jsonl", [{"text": "One.", "a.b": 1, "a": {"b": 2}}, {"text": "Two.", "a": {"b": 1}, "a b": 3}]
    )
    assert len(read_all(tmp_path / "a.jsonl", TextConfig(where="a.b == 1"))[0]) == 2
    assert read_all(tmp_path / "a.jsonl", TextConfig(where="'a b' == 3"))[0] == [b"Two.\n"]


DAYS, NOON = [date(2015 + number, 1, 1) for number in range(4)], datetime(2017, 1, 1, 12, tzinfo=UTC)
SECONDS, NANOSECONDS, BIG = pyarrow.timestamp("s"), pyarrow.timestamp("ns"), 2**53 + 1
TYPED: dict[str, tuple[pyarrow.Array, str, list[int]]] = {
    "a day": (pyarrow.array(DAYS), "n != '2017-01-01'", [0, 1, 3]),
    "days in milliseconds": (pyarrow.array(DAYS, pyarrow.date64()), "n >= '2017-01-01'", [2, 3]),
    "of a dictionary": (pyarrow.array([*DAYS, None]).dictionary_encode(), "n in ['2016-01-01', '2018-01-01']", [1, 3]),
    "a time against days": (pyarrow.array(DAYS), "n > '2016-01-01T00:00:00.000000001'", [2, 3]),
    "no zone": (pyarrow.array([NOON.replace(tzinfo=None)]), "n == '2017-01-01 12:00'", [0]),
    "a zone of the condition": (pyarrow.array([NOON]), "n == '2017-01-01T13:00:00.0+01:00'", [0]),
    "UTC": (pyarrow.array([NOON]), "n > '2017-01-01T11:59:59.999999999'", [0]),
    "another zone": (pyarrow.array([0, 1], pyarrow.timestamp("s", "Nowhere/Here")), "n > '1970-01-01T00:00Z'", [1]),
    "nanoseconds": (pyarrow.array([10**9, 10**9 + 1], NANOSECONDS), "n == '1970-01-01T00:00:01.000000001'", [1]),
    "years that Python lacks": (pyarrow.array([2**40, -(2**40)], SECONDS), "n < '0001-01-01'", [1]),
    "a day that Python lacks": (pyarrow.array([2**30, None], pyarrow.date32()), "n > '9999-12-31'", [0]),
    "uint64": (pyarrow.array([2**64 - 1, 2**64 - 2], pyarrow.uint64()), "n >= 18446744073709551615", [0]),
    "int64": (pyarrow.array([BIG - 1, BIG, BIG + 1]), f"n == {BIG}.0", [1]),
    "float64": (pyarrow.array([0.7, 0.1 + 0.2]), "n in [0.7, 0.3]", [0]),
    "decimal128": (pyarrow.array([Decimal("0.65"), Decimal("0.64")]), "n >= 0.65", [0]),
    "decimal256": (pyarrow.array([Decimal(BIG), Decimal(BIG - 1)], pyarrow.decimal256(50, 9)), f"n > {BIG - 1}", [0]),
}


@pytest.mark.parametrize(("column", "where", "found"), TYPED.values(), ids=list(TYPED))
def test_a_column_is_compared_by_its_type_and_exactly(column, where, found, tmp_path):
    table = pyarrow.table({"text": [str(number) for number in range(len(column))], "n": column})
    wanted = [f"{number}\n".encode() for number in found]
    assert read_all(write_arrow(tmp_path / "a.arrow", table), TextConfig(where=where))[0] == wanted
    assert read_all(write_parquet(tmp_path / "a.parquet", table), TextConfig(where=where))[0] == wanted


TOKYO, MAP = pyarrow.timestamp("s", "Asia/Tokyo"), pyarrow.map_(pyarrow.string(), pyarrow.string())


@refused(
    (([["x"]], None, "n != 'x'"), InputError, "n\" is of the type list< & string>, which --where can't compare"),
    (([{"a": 1}], None, "n != 'x'"), InputError, "type struct<a: int64>, & name a field of text, numbers"),
    (([[("a", "b")]], MAP, "n != 1"), InputError, "type map<"),
    (([b"x"], None, "n != 'x'"), InputError, "type binary, which --where can't compare with ['x']"),
    (([1], pyarrow.duration("s"), "n != 1"), InputError, "type duration[s]"),
    (([1], pyarrow.time32("s"), "n != '00:00'"), InputError, "type time32[s]"),
    ((DAYS, None, "n >= 5"), InputError, "date32[day], & give a date or time in quotes"),
    ((DAYS, None, "n != 'abc'"), InputError, "with ['abc']; give a date or time in quotes, such as"),
    ((DAYS, None, "n < '2017-02-30'"), InputError, "'2017-02-30' & give a date or time in quotes"),
    (([1], TOKYO, "n > '2017-01-01'"), InputError, "Asia/Tokyo & T12:00"),
    (([2017], None, "n != '2017'"), InputError, "type int64, & give a number, without quotes"),
    (([True], None, "n != 1"), InputError, "type bool, & give true or false, without quotes"),
)
def test_what_can_not_be_compared_is_an_error_that_names_its_type(call, kind, named, tmp_path):
    values, type, where = call
    table = pyarrow.table({"text": ["One."] * len(values), "n": pyarrow.array(values, type)})
    origin = Origin(str(write_arrow(tmp_path / "a.arrow", table)), "arrow")
    check_refused(lambda: list_begins(origin, TextConfig(where=where)), kind, named)  # before anything is read


@pytest.mark.parametrize(("value", "kind"), [('["x"]', "list"), ('{"a": 1}', "dict")])
def test_lists_and_objects_of_json_are_an_error_too(value, kind, tmp_path):
    (tmp_path / "a.jsonl").write_text(f'{{"text": "One.", "n": "x"}}\n{{"text": "Two.", "n": {value}}}\n')
    with pytest.raises(InputError, match=f"a.jsonl, byte 27: the field 'n' holds a {kind}, which --where can't"):
        read_all(tmp_path / "a.jsonl", TextConfig(where="n != 'y'"))


@pytest.mark.parametrize("more", ["", ', "x": NaN'])
def test_whole_numbers_of_text_are_compared_exactly(more, tmp_path):
    lines = [f'{{"text": "{number}", "n": {number}{more}}}\n' for number in (BIG - 1, BIG)]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    (tmp_path / "a.csv").write_text(f"text,n\n{BIG - 1},{BIG - 1}\n{BIG},{BIG}\nx,nan\n")
    for name in ("a.jsonl", "a.csv"):
        assert read_all(tmp_path / name, TextConfig(where=f"n >= {BIG}"))[0] == [f"{BIG}\n".encode()]


def test_damage_in_a_compared_column_is_counted_as_in_any_other(tmp_path):
    values, indices = pyarrow.array(["a", "b"]), pyarrow.array([0, 9], pyarrow.int32())
    column = pyarrow.DictionaryArray.from_arrays(indices, values, safe=False)
    write_arrow(tmp_path / "a.arrow", pyarrow.table({"text": ["One.", "Two."], "label": column}))
    assert read_all(tmp_path / "a.arrow", TextConfig(where="label == 'a'")) == ([], Counter(damaged_table=1))


# ---- builds ----


def make_records(count: int) -> list[Record]:
    rng = random.Random(3)
    metadata = [
        {"score": rng.random(), "lang": rng.choice(["en", "de"])} if rng.random() < 0.9 else {} for _ in range(count)
    ]
    texts = fixtures.make_documents(count, seed=21)
    return [{"text": text, "id": "x", "metadata": one} for text, one in zip(texts, metadata, strict=True)]


RECORDS = make_records(90)
WHERE = "metadata.score >= 0.3 and metadata.lang == 'en'"


def write_all(folder: Path, records: Sequence[Record], seed: int) -> Path:
    rng, folder = random.Random(seed), folder / "in"
    records = rng.sample(records, len(records))
    folder.mkdir(parents=True)
    for number, name in enumerate(FORMATS):
        FORMATS[name](folder / name, records[number :: len(FORMATS)])
    return folder


@pytest.fixture(autouse=True, scope="module")
def small_tasks() -> Iterator[None]:
    with fixtures.small_tasks(1 << 11):
        yield


def test_a_build_has_the_shards_of_the_selected_records_alone(tokenizer, tmp_path):
    conditions = [("metadata.score", ">=", 0.3), ("metadata.lang", "==", "en")]
    chosen = [record for record in RECORDS if judge(record, conditions) == "text"]
    run_build(write_all(tmp_path / "chosen", chosen, 0), tmp_path / "wanted", tokenizer)
    wanted = digest_shards(tmp_path / "wanted")
    names = write_all(tmp_path / "all", RECORDS, 1)
    report = run_build(names, tmp_path / "out", tokenizer, MultiprocessEngine(2), where=WHERE)
    assert digest_shards(tmp_path / "out") == wanted
    verdicts = Counter(judge(record, conditions) for record in RECORDS)
    assert report.manifest.damage == {name: count for name, count in sorted(verdicts.items()) if name != "text"}
    assert report.manifest.config.text.where == WHERE
    with pytest.raises(AlbertDataError, match="another kind: where is .* there and None here"):
        run_build(names, tmp_path / "out", tokenizer)


def test_a_source_of_a_mixture_selects_for_itself(tokenizer, tmp_path):
    write_lines(tmp_path / "a.jsonl", RECORDS)
    table = '[[source]]\nname = "{0}"\npaths = "a.jsonl"\nlanguage = "{0}"\nwhere = "metadata.lang == \'{0}\'"\n'
    (tmp_path / "mix.toml").write_text(table.format("en") + table.format("de"))
    report = build_mixture(tmp_path / "mix.toml", tmp_path / "out", tokenizer)
    counts = Counter(record["metadata"].get("lang") for record in RECORDS)
    assert [one.num_documents for one in report.manifest.mixture or ()] == [counts["en"], counts["de"]]
    report = build_mixture(tmp_path / "mix.toml", tmp_path / "both", tokenizer, where="metadata.score >= 0.3")
    assert (report.manifest.mixture or ())[1].where == "metadata.score >= 0.3 and metadata.lang == 'de'"


# ---- mistakes ----

NO_CONDITIONS = """id => 'x'; id contains 'x'; id not ['x']; id == x; id == 1x; id == 0x10; id ==; id; id in 'x'
id in []; id in ['x'; id in ['x',]; id == ['x']; id == 'x; id == "\\q"; ; id == 1and id == 2; __import__('os') == 1
1 < id; id == .5; id == 01; id == ٣; id = 'x'; (); (id == 1; id == 1); or id == 1; id notin ['x']; not id in ['x']"""


@pytest.mark.parametrize("where", re.split("[;\n] ?", NO_CONDITIONS))
def test_what_is_no_condition_is_an_error_that_says_what_is_one(where):
    named = (
        f"where is {where!r}, in which & is no condition; & FIELD OPERATOR VALUE & ==, !=, <, <=, > or >= & a number"
    )
    check_refused(lambda: TextConfig(where=where), ConfigError, named)


@refused(
    (
        "metadata.scroe > 1",
        InputError,
        'no record has the field "metadata.scroe" that --where names, or',
    ),
    ("id == 'x' and metadata.score == 1 and zzz == 2", InputError, 'no record has the field "zzz"'),
    ("null == 'x'", InputError, 'no record has the field "null" that --where names, or it is null in all; check'),
    ("id == 1 and or == 2 and no", ConfigError, "in which 'no' is no condition"),
    ("id == 'x' 'y'", ConfigError, "in which \"'y'\" is no condition"),
    ("id == 1 and", ConfigError, "in which 'id == 1 and' is no condition"),
    ("id == 1 (id == 2)", ConfigError, "in which 'id == 1 (id == 2)' is no condition"),
    ("(" * 300 + "id == 1" + ")" * 300, ConfigError, "is no condition"),
    ("a" + ".a" * 101 + " == 1", ConfigError, "has over 100 points"),
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_each_mistake_is_one_clear_line(name, call, kind, named, tmp_path, tokenizer):
    records = [{"text": "One.", "id": "x", "metadata": {"score": 1.0}, "null": None}] * 5
    schema = pyarrow.schema([*SCHEMA, ("null", pyarrow.string())])
    if name == "a.jsonl":
        write_lines(tmp_path / name, records)
    else:
        write_parquet(tmp_path / name, pyarrow.Table.from_pylist(records, schema))
    check_refused(lambda: run_build(tmp_path / name, tmp_path / "out", tokenizer, where=call), kind, named)


def test_text_without_fields_is_refused(tmp_path, monkeypatch):
    write_lines(tmp_path / "a.jsonl", RECORDS[:5])
    (tmp_path / "b.txt").write_text("A text.\n")
    fixtures.set_stdin(monkeypatch, b"A text.\n")
    config = TextConfig(where="id == 'x'")
    check_refused(lambda: read_all(tmp_path, config), InputError, "b.txt has no fields & --where & id & leave one out")
    check_refused(lambda: read_all(Path("-"), config), InputError, "input - is text without fields & --where")


@given(st.text(st.sampled_from("ab.=!<>\"'[], \\1-e\n") | st.characters(), max_size=30) | st.text(max_size=20))
def test_any_text_is_conditions_or_one_line(text):
    try:
        found = bool(parse_where(text))
    except ConfigError as error:
        found = "\n" not in str(error)
    assert found


def test_vocab_reads_the_selected_records(tmp_path, capsys):
    write_lines(tmp_path / "a.jsonl", RECORDS)
    arguments = ["vocab", str(tmp_path / "a.jsonl"), "-o", str(tmp_path / "vocab"), "--vocab-size", "150"]
    assert run([*arguments, "--where", "metadata.score >= 0.3", "--where", "metadata.lang == 'en'"]) == 0
    assert "left out   excluded " in capsys.readouterr().out
