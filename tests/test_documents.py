"""Documents from memory: the same bytes as from files, whatever holds them, and one error for what is none."""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
import weakref
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from corpus_fixtures import read_inputs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import check_refused, refused

import albert_data
from albert_data import Source
from albert_data.config import TextConfig
from albert_data.corpus.damage import Damage
from albert_data.corpus.inputs import check_reach, find_inputs
from albert_data.corpus.refused import RefusedInputs
from albert_data.errors import AlbertDataError, ArgumentError, InputError
from albert_data.jobs.progress import NullProgress
from albert_data.library.documents import open_corpus

NOW = datetime(2024, 5, 6, 7, 8)
MISSING = "datasets and pandas are not among the packages of the tests"


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for what is stored; it has to be empty when a test ends."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def read_files(folder: str) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*.arrow")}


def build(output: str, **given: Any) -> albert_data.BuildReport:
    return albert_data.build(output=output, tokenizer="model.model", max_seq_len=32, workers=1, **given)


@pytest.fixture
def texts(here: Path) -> list[str]:
    return Path("corpus.txt").read_text().split("\n\n")


def make_dataset(texts: list[str], change: Callable[[Any], Any] = lambda made: made) -> Any:
    """A Dataset whose rows lie in two files."""
    datasets = pytest.importorskip("datasets", reason=MISSING)
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict({"text": texts, "number": list(range(len(texts)))}).save_to_disk("saved", num_shards=2)
    return change(datasets.load_from_disk("saved"))


def cut_first(made: Any) -> Any:
    return made.with_transform(lambda rows: {"text": [text[1:] for text in rows["text"]]})


def make_frame(texts: list[str]) -> Any:
    return pytest.importorskip("pandas", reason=MISSING).DataFrame({"text": texts}, index=range(5, 5 + len(texts)))


class Stream:
    """What another library gives, such as a query of DuckDB: batches by Arrow's interface alone, and once."""

    def __init__(self, reader: Any) -> None:
        self.__arrow_c_stream__ = reader.__arrow_c_stream__


class Column(list[str]):
    """As a Series of Polars or pandas: str, which could also be had as a stream of arrays, not of batches."""

    def __arrow_c_stream__(self, schema: object = None) -> object:
        return pyarrow.chunked_array([self]).__arrow_c_stream__(schema)


KINDS: dict[str, Callable[[list[str]], Any]] = {
    "list": list,
    "generator": lambda texts: (text for text in texts),
    "dicts": lambda texts: [{"number": number, "text": text} for number, text in enumerate(texts)],
    "table": lambda texts: pyarrow.table({"text": texts}),
    "dictionary": lambda texts: pyarrow.table({"text": pyarrow.array(texts).dictionary_encode()}),
    "reader": lambda texts: pyarrow.table({"text": texts}).to_reader(100),
    "stream": lambda texts: Stream(pyarrow.table({"text": texts}).to_reader(100)),
    "column": lambda texts: Column(texts),
    "frame": make_frame,
    "Dataset": make_dataset,
    "half of a Dataset": lambda texts: make_dataset(
        [*texts, *texts[::-1]], lambda made: made.select(range(len(texts)))
    ),
    "shuffled Dataset": lambda texts: make_dataset(texts, lambda made: made.shuffle(seed=1)),
    "streamed Dataset": lambda texts: make_dataset(texts, lambda made: made.to_iterable_dataset()),
    "Dataset in memory": lambda texts: make_dataset(texts, lambda made: type(made).from_dict(made.to_dict())),
    "Dataset with a transform": lambda texts: make_dataset([f"x{text}" for text in texts], cut_first),
    "Dataset with another column": lambda texts: make_dataset(texts, lambda made: made.add_column("more", texts)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_documents_from_memory_give_the_bytes_of_files(kind, texts):
    build("files", inputs="corpus.txt")
    report = build("memory", documents=KINDS[kind](texts))
    assert read_files("memory") == read_files("files") != {}
    names = [item.path for item in report.manifest.inputs]
    assert re.fullmatch(r"documents-[0-9a-f]{16}\.(jsonl|arrows)", " ".join(names))


def test_a_vocabulary_of_documents_is_that_of_files(texts):
    named: dict[str, Any] = {"vocab_size": 115, "workers": 1, "drop_repeated_lines": 50}
    albert_data.train_vocab("corpus.txt", "a", **named)
    albert_data.train_vocab(output="b", documents=iter(texts), **named)
    assert Path("b/spiece.model").read_bytes() == Path("a/spiece.model").read_bytes()


def test_fields_and_languages_of_documents_are_read_as_those_of_files(texts):
    records = [{"body": text, "lang": ("en", "de")[number % 2]} for number, text in enumerate(texts)]
    Path("records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    Path("dev.txt").write_text(texts[0])
    named: dict[str, Any] = {"text_field": "body", "language_field": "lang", "validation": "dev.txt:de"}
    build("files", inputs="records.jsonl", **named)
    build("memory", documents=records, **named)
    assert read_files("memory") == read_files("files")
    build("strings", documents=texts, text_field="body")
    build("objects", documents=records, text_field="body")
    assert read_files("strings") == read_files("objects")


def test_fields_that_json_lacks_stop_no_build_and_those_that_are_used_have_their_values(texts):
    plain = [{"text": text, "n": number // 3, "day": f"20{number % 90:02}-01-01"} for number, text in enumerate(texts)]
    odd = [
        {"text": one["text"], "n": np.int32(one["n"]), "day": date.fromisoformat(one["day"]), "at": NOW, ("a", 1): NOW}
        | {"price": Decimal("0.5"), "more": {"deep": [object(), b"x", Path()]}}
        for one in plain
    ]
    where = "day >= '2005-01-01'"
    build("plain", documents=plain, group_field="n", where=where)
    report = build("odd", documents=odd, group_field="n", where=f"{where} and price == 0.5")
    assert read_files("odd") == read_files("plain")
    assert report.manifest.damage["excluded"] == 5
    with pytest.raises(InputError, match='the fields "at" .*"more.deep"'):
        build("none", documents=odd, text_field="body")


TEXTS = st.lists(
    st.one_of(
        st.text(st.characters(codec=None)),
        st.text('a \n\r\0\t\u2028\ufeff\ud800\udc00"\\{é学', max_size=30),
        st.builds(lambda text, times: text * times, st.text(min_size=1, max_size=9), st.sampled_from([1000, 200_000])),
    ),
    min_size=1,
    max_size=6,
)


@settings(suppress_health_check=list(HealthCheck))
@given(TEXTS)
def test_any_texts_are_read_as_from_a_file_of_json_lines(tmp_path, texts):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    damage, noticed = Damage(), Damage()
    expected = read_inputs(find_inputs([str(path)]), TextConfig(), noticed)
    with open_corpus(None, texts, NullProgress(), TextConfig()) as inputs:
        assert read_inputs(inputs, TextConfig(), damage) == expected
    assert damage.counts == noticed.counts


def test_documents_are_stored_one_at_a_time(scratch):
    """A generator is asked for a document when those before it are gone from the memory."""

    class Text(str):
        pass

    alive = weakref.WeakSet[Text]()

    def make() -> Iterator[str]:
        for number in range(20_000):
            text = Text(f"Text number {number}.")
            alive.add(text)
            assert len(alive) < 5
            yield text

    with open_corpus(None, make(), NullProgress(), TextConfig()) as inputs:
        assert inputs[0].size == sum(len(f'{{"text": "Text number {number}."}}\n') for number in range(20_000))


def test_batches_are_stored_one_at_a_time(scratch):
    """A reader is asked for a batch when those before it are gone from the memory."""
    rows, before = pyarrow.record_batch({"text": ["A text of fifty characters, or of a few more, ok."] * 1000}), []

    def make() -> Iterator[Any]:
        for _ in range(200):
            before.append(pyarrow.total_allocated_bytes())
            yield rows.take(pyarrow.array(range(1000)))

    with open_corpus(
        None, pyarrow.RecordBatchReader.from_batches(rows.schema, make()), NullProgress(), TextConfig()
    ) as inputs:
        assert inputs[0].size > 100 * rows.nbytes
    assert max(before) < before[0] + 5 * rows.nbytes


def test_a_build_of_documents_resumes_and_is_found_finished(texts, monkeypatch):
    build("whole", documents=texts)

    def fail(*given: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("albert_data.pipeline.build.merge_rows", fail)
        with pytest.raises(AlbertDataError, match="No space left"):
            build("out", documents=iter(texts))
    resumed = build("out", documents=iter(texts))
    assert resumed.resumed_tasks == 1
    assert read_files("out") == read_files("whole")
    assert build("out", documents=texts).was_finished
    with pytest.raises(AlbertDataError, match="holds a finished build of another kind: the inputs differ"):
        build("out", documents=texts[1:])


class Failing(dict[str, str]):
    """Whose values can't be had, as those of a query of a table that is gone."""

    def items(self) -> Any:
        raise RuntimeError("not found")

    class Query:
        def __arrow_c_stream__(self, schema: object = None) -> object:
            raise RuntimeError("not found")

    class Lazy:
        """As a LazyFrame of Polars, which looks for its columns when it is asked for them."""

        @property
        def columns(self) -> list[str]:
            raise RuntimeError("not found")


def fail_after(texts: list[str]) -> Iterator[str]:
    yield from texts[:3]
    raise ZeroDivisionError("no such row")


NOT_ANY = "the corpus holds no document"


@refused(
    ({"inputs": "corpus.txt", "documents": ["a"]}, ArgumentError, "give the corpus as one of inputs"),
    ({}, ArgumentError, "give the corpus as one of inputs (names"),
    ({"documents": "A text. Another."}, ArgumentError, "documents is of the type str; give a list"),
    ({"documents": b"A text."}, ArgumentError, "documents is of the type bytes; give a list"),
    ({"documents": {"train": ["a"]}}, ArgumentError, "documents is of the type dict & one split of a data set"),
    ({"documents": 7}, ArgumentError, "documents is of the type int"),
    ({"documents": ["a"], "encoding": "cp1252"}, ArgumentError, "--encoding is for files"),
    ({"documents": ["a", b"b"]}, InputError, "document 2 is of the type bytes; give str or dicts"),
    ({"documents": [{"text": b"a"}]}, InputError, 'document 1: the field "text" is of the type bytes, which JSON'),
    (
        {"documents": [{"text": "a", "m": {"at": NOW}}], "where": "m.at > '2020'"},
        InputError,
        'document 1: the field "m.at" is of the type datetime, which JSON lacks; give it as a str',
    ),
    ({"documents": [Failing(text="a")]}, InputError, "document 1 can't be written as JSON: not found"),
    ({"documents": Failing.Query()}, InputError, "documents, a Query, can't be read as Arrow: not found"),
    ({"documents": Failing.Lazy()}, ArgumentError, "documents is of the type Lazy; give a list"),
    ({"documents": []}, InputError, "documents ended without a document"),
    ({"documents": iter([])}, InputError, "documents ended without a document"),
    ({"documents": pyarrow.table({"text": ["", None]})}, InputError, NOT_ANY),
    ({"documents": pyarrow.table({"text": []})}, InputError, "documents ended without a document"),
    ({"sources": "mix.toml"}, ArgumentError, "sources is of the type str; give a list of Source, each a dict"),
    ({"sources": {"name": "a"}}, ArgumentError, "sources is of the type dict; give a list of Source"),
    ({"sources": []}, InputError, "sources names no source & a Source"),
    ({"sources": [{"name": "a"}]}, InputError, "source 'a': it needs either inputs or documents"),
    ({"sources": [{"documents": ["a"]}]}, InputError, "source 1: name is missing"),
    ({"sources": [Source(name="a", documents=["a"]), 7]}, ArgumentError, "sources is of the type list; give a list"),
    ({"sources": [{"name": "a", "inputs": "x", "wieght": 1}]}, InputError, "'wieght' is no known key; & weight?"),
    (
        {"sources": [{"name": "a", "inputs": "x", 5: 1}]},
        InputError,
        "5 is no known key; allowed are & inputs, documents",
    ),
    ({"sources": [Source(name="a", documents="text")]}, ArgumentError, "documents of source 1 is of the type str"),
    ({"sources": [Source(name="a", inputs=["no.txt"])]}, InputError, "source 'a': input no.txt does not exist"),
    (
        {"sources": [Source(name="a", inputs="corpus.txt")], "language_field": "x"},
        InputError,
        "sources is a mixture, in",
    ),
    (
        {"sources": [Source(name="a", inputs="corpus.txt")], "inputs": "x"},
        ArgumentError,
        "give the corpus as one of",
    ),
    (
        {"documents": pyarrow.table({"body": ["a"], "id": [1]})},
        RefusedInputs,
        'documents.arrows is without the field "text", with "body" (string), "id" (int64)',
    ),
    ({"documents": [{"body": "A text."}]}, InputError, 'has the field "body" & ; pass --text-field NAME'),
)
def test_what_is_no_corpus_is_one_error(call, kind, named, here):
    check_refused(lambda: build("out", **call), kind, named)
    check_refused(lambda: albert_data.train_vocab(output="out", workers=1, **call), kind, named)
    assert read_files("out") == {}


@refused(
    (
        {"documents": ["a"], "validation": "x", "validation_documents": ["b"]},
        ArgumentError,
        "give one of validation",
    ),
    ({"documents": ["a"], "validation_documents": []}, InputError, "validation_documents ended without a document"),
    (
        {"sources": [Source(name="a", documents=["a"])], "validation_documents": ["b"]},
        ArgumentError,
        "sources, of which a share is drawn",
    ),
)
def test_what_is_no_validation_is_one_error(call, kind, named, here):
    check_refused(lambda: build("out", **call), kind, named)


def test_a_stream_that_is_given_twice_is_one_error(texts):
    for stream in (iter(texts), pyarrow.table({"text": texts}).to_reader()):
        with pytest.raises(InputError, match=r"documents of source 2 ended without a document; is it an? \w+ that was"):
            build("out", sources=[Source(name=name, documents=stream) for name in "ab"])
        assert not Path("out").exists()


MIXTURE = """
[[source]]
name = "a"
paths = "a.jsonl"
weight = 2
where = "n >= 5 and n < 25"
[[source]]
name = "b"
paths = ["b.jsonl"]
text_field = "body"
language = "de"
tokens = 900
"""


def test_a_mixture_from_memory_gives_the_bytes_of_the_same_mixture_from_files(texts):
    rows = [{"text": text, "n": number} for number, text in enumerate(texts[:30])]
    bodies = [{"body": text} for text in texts[30:]]
    for name, records in (("a", rows), ("b", bodies)):
        Path(f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    Path("mixture.toml").write_text(MIXTURE)
    wanted = build("files", inputs="mixture.toml")
    more = Source(name="b", documents=pyarrow.table({"body": texts[30:]}), text_field="body", language="de", tokens=900)
    first = Source(name="a", documents=iter(rows), weight=2, where=["n >= 5", "n < 25"])
    made = build("memory", sources=[first, more])
    assert read_files("memory") == read_files("files") != {}
    assert made.manifest.mixture is not None
    assert wanted.manifest.mixture is not None
    for one, other in zip(made.manifest.mixture, wanted.manifest.mixture, strict=True):
        assert re.fullmatch(r"documents-[0-9a-f]{16}\.(jsonl|arrows)", " ".join(one.paths))
        assert dataclasses.replace(one, paths=other.paths) == other
    mixed = [{**first, "documents": None, "inputs": [Path("a.jsonl")]}, more]
    assert build("mixed", sources=mixed).manifest.digest == wanted.manifest.digest
    assert build("mixed", sources=mixed).was_finished
    albert_data.train_vocab("mixture.toml", "v", vocab_size=115, workers=1)
    albert_data.train_vocab(output="w", sources=mixed, vocab_size=115, workers=1)
    assert Path("v/spiece.model").read_bytes() == Path("w/spiece.model").read_bytes()


def test_alpha_belongs_to_the_sources_as_in_a_file(texts):
    sources = [Source(name="a", documents=texts[:40]), Source(name="b", documents=texts[40:45])]
    for name, some in (("a", texts[:40]), ("b", texts[40:45])):
        Path(f"{name}.txt").write_text("\n\n".join(some))
    tables = "".join(f'[[source]]\nname = "{name}"\npaths = "{name}.txt"\n' for name in "ab")
    Path("mixture.toml").write_text(f"alpha = 0.3\nmax_passes = 3\n{tables}")
    wanted = build("files", inputs="mixture.toml").manifest
    made = build("memory", sources=sources, alpha=0.3, max_passes=3.0).manifest
    assert read_files("memory") == read_files("files")
    assert made.config == wanted.config


@pytest.mark.parametrize("kind", ["list", "generator", "dicts", "table", "Dataset"])
def test_validation_from_memory_is_that_of_files(kind, texts):
    Path("dev.txt").write_text("\n\n".join(texts[:20]))
    build("files", inputs="corpus.txt", validation="dev.txt")
    build("memory", documents=texts, validation_documents=KINDS[kind](texts[:20]))
    build("beside", inputs="corpus.txt", validation_documents=KINDS[kind](texts[:20]))
    assert read_files("memory") == read_files("beside") == read_files("files") != {}


def test_several_conditions_must_all_hold(texts):
    records = [{"text": text, "n": number} for number, text in enumerate(texts)]
    conditions: list[str | list[str] | None] = [["n >= 5 or n < 2", "n != 7"], "(n >= 5 or n < 2) and n != 7", [], None]
    for number, where in enumerate(conditions):
        build(str(number), documents=records, where=where)
    assert read_files("0") == read_files("1") != read_files("2") == read_files("3")


def fail_in_batches(texts: list[str]) -> Any:
    schema = pyarrow.schema({"text": pyarrow.string()})
    batches = (pyarrow.record_batch({"text": [text]}) for text in fail_after(texts))
    return pyarrow.RecordBatchReader.from_batches(schema, batches)


@pytest.mark.parametrize(("make", "noun"), [(fail_after, "documents"), (fail_in_batches, "batches")])
def test_an_error_of_the_iterable_is_the_cause_and_publishes_nothing(make, noun, texts):
    with pytest.raises(InputError, match=rf"ended with an error after 3 {noun}: .*no such row") as found:
        build("out", documents=make(texts))
    assert "no such row" in str(found.value.__cause__)
    assert not Path("out").exists()


def test_workers_on_other_machines_do_not_see_documents_from_memory():
    refused = pytest.raises(InputError, match=r"documents-\w+.jsonl can be read by this process only")
    with open_corpus(None, ["a"], NullProgress(), TextConfig()) as inputs, refused:
        check_reach(inputs, spans_machines=True)


def test_a_missing_output_is_an_error(here):
    for function in (albert_data.build, albert_data.train_vocab):
        with pytest.raises(ArgumentError, match="output is missing"):
            function(documents=["a"])


@pytest.mark.parametrize("make", [make_dataset, make_frame])
def test_a_dataset_or_frame_without_the_field_is_an_error_with_its_columns(make, texts):
    for documents in (make(texts), make(texts)[:5] if make is make_frame else make(texts).select([0])):
        with pytest.raises(InputError, match=r'without the field "body", with "text" \((large_)?string\)'):
            build("out", documents=documents, text_field="body")


def test_a_frame_that_arrow_refuses_is_an_error(here):
    pandas = pytest.importorskip("pandas", reason=MISSING)
    frame = pandas.DataFrame({"text": ["a", "b"], "odd": [1, "x"]}, dtype=object)
    with pytest.raises(InputError, match="documents, a DataFrame, can't be read as Arrow: .*odd.*; keep only the col"):
        build("out", documents=frame)
