"""`--group-field`: documents of one group lie in one split, and hashes of the groups alone decide in which."""

from __future__ import annotations

import csv
import gzip
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pyarrow
import pyarrow.parquet
import pytest
from build_fixtures import InlineEngine, digest_shards, keys_of
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from references import split_key
from refusals import check_refused, refused
from xxhash import xxh3_64_intdigest

from albert_data.cli.main import cli
from albert_data.corpus.mixtures import find_sources
from albert_data.errors import ConfigError, InputError
from albert_data.inspect.verify import verify
from albert_data.jobs.engine import MultiprocessEngine
from albert_data.pipeline.build import BuildReport, build_shards
from albert_data.shards.manifest_file import read_manifest
from albert_data.shards.reader import open_shards
from albert_data.tokenizer.model import Tokenizer

Record = tuple[str, str | None]  # text and group


@pytest.fixture(autouse=True, scope="module")
def small_tasks() -> Iterator[None]:
    with fixtures.small_tasks(1 << 11):
        yield


def write(folder: Path, records: Sequence[Record], seed: int = 0) -> Path:
    """In several files and formats, in any order."""
    rng, records = random.Random(seed), list(records)
    rng.shuffle(records)
    folder.mkdir(parents=True)
    parts = [records[number::4] for number in range(4)]
    lines = [
        [json.dumps({"book": group, "text": text} if group else {"text": text}) for text, group in p] for p in parts
    ]
    (folder / "a.jsonl").write_text("\n".join(lines[0]) + "\n")
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(("\n".join(lines[1]) + "\n").encode()))
    with (folder / "c.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text", "book"], *((text, group) for text, group in parts[2] if group)])
    left = [*parts[3], *((text, None) for text, group in parts[2] if not group)]
    table = {"text": [text for text, _ in left], "book": pyarrow.array([group for _, group in left], pyarrow.string())}
    pyarrow.parquet.write_table(pyarrow.table(table), folder / "d.parquet")
    return folder


def run(names: Path, out: Path, tokenizer: Tokenizer, engine: Any = None, **options: Any) -> BuildReport:
    config = fixtures.make_config(**{"group_field": "book", **options})
    return build_shards(find_sources([str(names)], text=config.text), out, tokenizer, config, engine or InlineEngine())


def choose(records: Sequence[Record], fraction: float | None, seed: int) -> set[int]:
    """The documents of validation: the rule of docs/reference/format.md, over the set of all documents."""
    bits: dict[int, int] = {}
    for text, group in records:
        key = fixtures.document_key(text)
        found = split_key(xxh3_64_intdigest(group.encode()) if group else key, seed)
        bits[key] = min(found, bits.get(key, found))
    drawn = {key for key, found in bits.items() if found < (0.005 if fraction is None else fraction) * 2**64}
    wanted = min(30, len(bits) // 10) or int(len(bits) > 1)
    if fraction is not None or (len(drawn) >= wanted and len(drawn) < len(bits)):
        return drawn
    chosen: set[int] = set()
    for found in sorted(set(bits.values()))[:-1]:  # training keeps a group
        if len(chosen) >= wanted:
            break
        chosen |= {key for key in bits if bits[key] == found}
    return chosen


some_records = st.lists(
    st.tuples(
        st.integers(0, 60).map(lambda number: f"Document {number}.\nThe water."), st.sampled_from("abcdef") | st.none()
    ),
    min_size=1,
    max_size=80,
).filter(lambda records: any(group for _, group in records))


@given(
    records=some_records,
    fraction=st.sampled_from((0.0, None, 0.1, 0.5)),
    seed=st.integers(0, 2**63 - 1),
    options=st.sampled_from(
        ({}, {"pairs": "nsp"}, {"dupe_factor": 2, "num_shards": 3}, {"drop_near_duplicates": True})
    ),
)
def test_the_groups_alone_decide_who_is_validation(
    records: list[Record],
    fraction: float | None,
    seed: int,
    options: dict[str, Any],
    tokenizer: Tokenizer,
    tmp_path_factory: pytest.TempPathFactory,
):
    folder = tmp_path_factory.mktemp("groups")
    names = write(folder / "in", records, seed)
    validation, keys = choose(records, fraction, seed), {fixtures.document_key(text) for text, _ in records}
    build = partial(run, names, folder / "out", tokenizer, seed=seed, validation_fraction=fraction, **options)
    if fraction and len(validation) in (0, len(keys)):
        with pytest.raises(InputError, match=r"--validation-fraction 0\.[15] draws "):
            build()
        return
    build()
    found = keys_of(folder / "out")
    if not options.get("drop_near_duplicates"):
        assert found == (keys - validation, validation)
        assert read_manifest(folder / "out").counts.duplicate_documents == len(records) - len(keys)
    verify(folder / "out")


BOOKS = [(text, f"book {number % 9}") for number, text in enumerate(fixtures.make_documents(60, seed=13))]
BOOKS += [(text, "book 20") for text, _ in BOOKS[:12]]


@pytest.mark.parametrize(("seed", "fraction"), [(0, None), (1, None), (2, 0.3)])
def test_copies_of_a_near_duplicate_in_several_groups_are_counted_as_copies(
    seed: int, fraction: float | None, tmp_path: Path, tokenizer: Tokenizer
):
    similar = [(f"{text}\nRead by me.", group) for text, group in BOOKS[:30]]
    records = [*BOOKS, *similar, *((text, f"other {number % 3}") for number, (text, _) in enumerate(BOOKS[:30]))]
    names = write(tmp_path / "in", records, seed)
    report = run(names, tmp_path / "out", tokenizer, validation_fraction=fraction, drop_near_duplicates=True, seed=seed)
    counts, kept = report.manifest.counts, set().union(*keys_of(tmp_path / "out"))
    keys = {fixtures.document_key(text) for text, _ in records}
    assert counts.near_duplicate_documents == len(keys) - len(kept) > 20
    assert counts.duplicate_documents == len(records) - len(keys)
    assert report.manifest.documents_digest == f"{sum(kept) % 2**64:016x}"


@pytest.mark.parametrize("fraction", [None, 0.3])
def test_layout_order_and_workers_change_no_byte(fraction: float | None, tmp_path: Path, tokenizer: Tokenizer):
    for name, engine in (("a", InlineEngine()), ("b", MultiprocessEngine(2))):
        names = write(tmp_path / name, BOOKS, seed=ord(name))
        run(names, tmp_path / f"{name}-out", tokenizer, engine, validation_fraction=fraction)
    assert digest_shards(tmp_path / "a-out") == digest_shards(tmp_path / "b-out")
    assert keys_of(tmp_path / "a-out")[1] == choose(BOOKS, fraction, 0)


def test_only_the_splits_differ_from_a_build_without_groups(tmp_path: Path, tokenizer: Tokenizer):
    names, rows = write(tmp_path / "in", BOOKS), []
    for field in ("book", None):
        run(names, tmp_path / str(field), tokenizer, group_field=field, validation_fraction=0.2)
        splits = (open_shards(tmp_path / str(field), split) for split in ("train", "validation"))
        rows.append(Counter(row.input_ids.tobytes() for split in splits for row in split))
    assert rows[0] == rows[1]


@pytest.mark.parametrize("fraction", [None, 0.3])
def test_a_document_of_two_sources_has_the_groups_of_its_own(
    fraction: float | None, tmp_path: Path, tokenizer: Tokenizer
):
    one, two = BOOKS[:40], [*BOOKS[45:], *((text, "book 30") for text, _ in BOOKS[:10])]
    write(tmp_path / "one", one)
    write(tmp_path / "two", two, seed=3)
    tables = [f'[[source]]\nname = "{name}"\npaths = ["{name}"]\n' for name in ("one", "two")]
    (tmp_path / "mix.toml").write_text(f"{tables[0]}weight = 0.6\n\n{tables[1]}weight = 2\n")
    run(tmp_path / "mix.toml", tmp_path / "out", tokenizer, validation_fraction=fraction)
    train, validation = keys_of(tmp_path / "out")
    in_one = {text for text, _ in one}
    own = [*one, *(record for record in two if record[0] not in in_one)]
    used = train | validation
    assert not train & validation
    assert validation == choose([record for record in own if fixtures.document_key(record[0]) in used], fraction, 0)
    verify(tmp_path / "out")


NUMBERS = [number // 7 if number % 5 else None for number in range(60)]
GROUPS = {
    "int64": pyarrow.array(NUMBERS),
    "uint8": pyarrow.array(NUMBERS, pyarrow.uint8()),
    "a dictionary": pyarrow.array(NUMBERS, pyarrow.int16()).dictionary_encode(),
    "float64": pyarrow.array(NUMBERS, pyarrow.float64()),  # as pandas has whole numbers where some are missing
    "decimal128": pyarrow.array(NUMBERS).cast(pyarrow.decimal128(38, 18)),
    "text": pyarrow.array(NUMBERS).cast(pyarrow.string()),
}


@pytest.mark.parametrize("column", GROUPS.values(), ids=list(GROUPS))
def test_whole_numbers_of_any_type_are_the_groups_of_their_digits(
    column: pyarrow.Array, tmp_path: Path, tokenizer: Tokenizer
):
    texts = [text for text, _ in BOOKS[:60]]
    lines = [json.dumps({"text": text, "book": number}) for text, number in zip(texts, NUMBERS, strict=True)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    pyarrow.parquet.write_table(pyarrow.table({"text": texts, "book": column}), tmp_path / "a.parquet")
    for name in ("a.jsonl", "a.parquet"):
        run(tmp_path / name, tmp_path / f"{name}-out", tokenizer, validation_fraction=0.3)
    assert digest_shards(tmp_path / "a.parquet-out") == digest_shards(tmp_path / "a.jsonl-out")


@refused(
    ([0.5], InputError, "a.parquet, row group 0, row 0 & group field holds 0.5 & a string or a whole number"),
    ([["a"]], InputError, '"book" is of the type list< & text or whole numbers & --group-field'),
)
def test_groups_of_other_types_are_refused(call, kind, named, tmp_path: Path, tokenizer: Tokenizer):
    pyarrow.parquet.write_table(pyarrow.table({"text": [BOOKS[0][0]], "book": call}), tmp_path / "a.parquet")
    check_refused(lambda: run(tmp_path / "a.parquet", tmp_path / "out", tokenizer), kind, named)


@refused(
    (("in.txt", "book"), InputError, "all inputs are .txt files or articles & no fields such as 'book'"),
    (("in", "bok"), InputError, 'no record has the field "bok" with a group in it; pass --group-field'),
    (("in", "text.book"), InputError, 'no record has the field "text.book" with a group in it'),
)
def test_a_field_that_no_record_has_is_refused(call, kind, named, tmp_path: Path, tokenizer: Tokenizer):
    write(tmp_path / "in", BOOKS[:9])
    (tmp_path / "in.txt").write_text(BOOKS[0][0])
    name, field = call
    check_refused(lambda: run(tmp_path / name, tmp_path / "out", tokenizer, group_field=field), kind, named)


@refused(
    ({"group_field": "book", "keep_duplicates": True}, ConfigError, "leave out keep_duplicates"),
    ({"group_field": ""}, ConfigError, "group_field is ''"),
)
def test_settings_that_do_not_fit_are_refused(call, kind, named):
    check_refused(lambda: fixtures.make_config(**call), kind, named)


def test_groups_decide_nothing_where_validation_is_named(tmp_path: Path):
    names = write(tmp_path / "in", BOOKS)
    arguments = ["build", str(names), "--validation", str(names / "a.jsonl"), "--group-field", "book"]
    result = CliRunner().invoke(cli, [*arguments, "-o", str(tmp_path / "out"), "--workers", "1"])
    assert "leave out --group-field" in str(result.exception)
