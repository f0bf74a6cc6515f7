"""Who is validation: hashes of documents or of their groups decide, and small corpora give more than are drawn."""

from __future__ import annotations

import csv
import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pyarrow
import pyarrow.parquet
import pytest
from build_fixtures import InlineEngine, build_documents, check_split, digest_shards, document_key, keys_of, run_build
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from references import choose_validation, split_key
from refusals import check_refused, refused
from xxhash import xxh3_64_intdigest

from albert_data.cli.main import cli
from albert_data.corpus.mixtures import find_sources
from albert_data.errors import InputError
from albert_data.inspect.verify import verify
from albert_data.pipeline.build import BuildReport, build_shards
from albert_data.shards.manifest_file import read_manifest
from albert_data.shards.reader import open_shards
from albert_data.tokenizer.model import Tokenizer

DOCUMENTS = fixtures.make_documents(40, seed=11)
KEYS = set(map(document_key, DOCUMENTS))


@pytest.fixture(autouse=True, scope="module")
def small_tasks() -> Iterator[None]:
    with fixtures.small_tasks(1 << 12):
        yield


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def number_documents(numbers: range | list[int]) -> list[str]:
    return [f"Document {number}.\nThe water." for number in numbers]


def is_drawn(key: int, seed: int) -> bool:
    return split_key(key, seed) < 0.005 * 2**64


@pytest.mark.parametrize(("count", "wanted"), [(299, 29), (340, 30), (1100, 30)])  # 1100: more than a sample of sizes
def test_validation_has_thirty_documents_and_at_most_a_tenth(count, wanted, tokenizer, out):
    documents = number_documents(range(count))
    report = build_documents(documents, out, tokenizer, layout="mixed")
    check_split(out, documents, None)
    assert len(keys_of(out)[1]) == wanted
    num_drawn = sum(is_drawn(document_key(document), 0) for document in documents)
    assert report.manifest.counts.moved_documents == wanted - num_drawn


@pytest.mark.parametrize("group", [None, "book"])
def test_more_documents_move_none_from_one_split_to_the_other(group, tokenizer, tmp_path):
    documents, splits = fixtures.make_documents(550, seed=3), []
    for number in (50, 550):
        lines = [json.dumps({"text": text, "book": i % 60}) for i, text in enumerate(documents[:number])]
        (tmp_path / f"{number}.jsonl").write_text("\n".join(lines))
        out, settings = tmp_path / f"{number}", {"group_field": group, "validation_fraction": 0.04}
        report = run_build(tmp_path / f"{number}.jsonl", out, tokenizer, **settings)
        splits.append(keys_of(out))
        assert report.manifest.counts.moved_documents is None
    assert 0 < len(splits[0][1]) < 5
    assert all(few <= many for few, many in zip(*splits, strict=True))


def test_the_bytes_of_other_documents_are_those_of_a_build_without_a_move(tokenizer, tmp_path):
    """Each training shard has the same rows as without the move, minus those of the moved documents."""
    for name, fraction in (("moved", None), ("whole", 0.0)):
        build_documents(DOCUMENTS, tmp_path / name, tokenizer, validation_fraction=fraction, dupe_factor=2)
    moved = choose_validation(KEYS, None)
    rows = {
        name: [(row.document_key, row.input_ids.tobytes()) for row in open_shards(tmp_path / name)]
        for name in ("moved", "whole")
    }
    assert rows["moved"] == [row for row in rows["whole"] if row[0] not in moved]
    validation = [row.input_ids.tobytes() for row in open_shards(tmp_path / "moved", "validation")]
    assert validation == [ids for key, ids in rows["whole"] if key in moved]


# ---- groups: `--group-field` ----

Record = tuple[str, str | None]  # text and group


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


def run(names: Path, out: Path, tokenizer: Tokenizer, **options: Any) -> BuildReport:
    config = fixtures.make_config(**{"group_field": "book", **options})
    return build_shards(find_sources([str(names)], text=config.text), out, tokenizer, config, InlineEngine())


def choose(records: Sequence[Record], fraction: float | None, seed: int) -> set[int]:
    """The documents of validation: the rule of docs/reference/format.md, over the set of all documents."""
    bits: dict[int, int] = {}
    for text, group in records:
        key = document_key(text)
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


some_texts = st.integers(0, 120).map(lambda number: number_documents([number])[0])
some_records = st.lists(st.tuples(some_texts, st.sampled_from("abcdef") | st.none()), min_size=1, max_size=120)
without_groups = st.lists(st.tuples(some_texts, st.none()), min_size=1, max_size=120)


@given(
    records=without_groups | some_records,
    fraction=st.sampled_from((0.0, None, 0.005, 0.1, 0.5)),
    seed=st.integers(0, 2**63 - 1),
    options=st.sampled_from(
        ({}, {"keep_duplicates": True}, {"pairs": "nsp"}, {"dupe_factor": 2, "num_shards": 3})
        + ({"drop_near_duplicates": True},)
    ),
)
def test_the_set_of_documents_and_their_groups_alone_decide_who_is_validation(
    records, fraction, seed, options, tokenizer, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("split")
    validation, keys = choose(records, fraction, seed), {document_key(text) for text, _ in records}
    if any(group for _, group in records):
        options = {**options, "group_field": "book", "keep_duplicates": False}
    else:
        assert validation == choose_validation(keys, fraction, seed)
    build = partial(run_build, write(folder / "in", records, seed), folder / "out", tokenizer, seed=seed, **options)
    if fraction and len(validation) in (0, len(keys)):
        with pytest.raises(InputError, match="a given share is never adjusted, so leave the option out") as caught:
            build(validation_fraction=fraction)
        if (other := re.search(r"or pass ([0-9.e-]+), and", str(caught.value))) is None:
            return
        validation = choose(records, float(other[1]), seed)
        assert 0 < len(validation) < len(keys)
        build(validation_fraction=float(other[1]), overwrite=True)
    else:
        build(validation_fraction=fraction)
    if not options.get("drop_near_duplicates"):
        assert keys_of(folder / "out") == (keys - validation, validation)
        counts = read_manifest(folder / "out").counts
        assert counts.duplicate_documents == (None if options.get("keep_duplicates") else len(records) - len(keys))
    assert not list(verify(folder / "out"))


BOOKS = [(text, f"book {number % 9}") for number, text in enumerate(fixtures.make_documents(60, seed=13))]
BOOKS += [(text, "book 20") for text, _ in BOOKS[:12]]


def test_only_the_splits_differ_from_a_build_without_groups(tmp_path, tokenizer):
    names, rows = write(tmp_path / "in", BOOKS), []
    for field in ("book", None):
        run(names, tmp_path / str(field), tokenizer, group_field=field, validation_fraction=0.2)
        splits = (open_shards(tmp_path / str(field), split) for split in ("train", "validation"))
        rows.append(Counter(row.input_ids.tobytes() for split in splits for row in split))
    assert rows[0] == rows[1]


@pytest.mark.parametrize("fraction", [None, 0.3])
def test_a_document_of_two_sources_has_the_groups_of_its_own(fraction, tmp_path, tokenizer):
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
    assert validation == choose([record for record in own if document_key(record[0]) in used], fraction, 0)
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
def test_whole_numbers_of_any_type_are_the_groups_of_their_digits(column, tmp_path, tokenizer):
    texts = [text for text, _ in BOOKS[:60]]
    lines = [json.dumps({"text": text, "book": number}) for text, number in zip(texts, NUMBERS, strict=True)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    pyarrow.parquet.write_table(pyarrow.table({"text": texts, "book": column}), tmp_path / "a.parquet")
    for name in ("a.jsonl", "a.parquet"):
        run(tmp_path / name, tmp_path / f"{name}-out", tokenizer, validation_fraction=0.3)
    assert digest_shards(tmp_path / "a.parquet-out") == digest_shards(tmp_path / "a.jsonl-out")


@refused(
    ([0.5], InputError, "a.parquet, row group 0, row 0 & group field holds 0.5 & a string or a whole number"),
    ([["a"]], InputError, '"book" is of the type list< & no text or whole number & --group-field'),
)
def test_groups_of_other_types_are_refused(call, kind, named, tmp_path, tokenizer):
    pyarrow.parquet.write_table(pyarrow.table({"text": [BOOKS[0][0]], "book": call}), tmp_path / "a.parquet")
    check_refused(lambda: run(tmp_path / "a.parquet", tmp_path / "out", tokenizer), kind, named)


@refused(
    (("in.txt", "book"), InputError, "all inputs are .txt files or articles & no fields such as 'book'"),
    (("in", "bok"), InputError, 'no record has the field "bok" with a group in it; pass --group-field'),
    (("in", "text.book"), InputError, 'no record has the field "text.book" with a group in it'),
)
def test_a_field_that_no_record_has_is_refused(call, kind, named, tmp_path, tokenizer):
    write(tmp_path / "in", BOOKS[:9])
    (tmp_path / "in.txt").write_text(BOOKS[0][0])
    name, field = call
    check_refused(lambda: run(tmp_path / name, tmp_path / "out", tokenizer, group_field=field), kind, named)


def test_groups_decide_nothing_where_validation_is_named(tmp_path):
    names = write(tmp_path / "in", BOOKS)
    arguments = ["build", str(names), "--validation", str(names / "a.jsonl"), "--group-field", "book"]
    result = CliRunner().invoke(cli, [*arguments, "-o", str(tmp_path / "out"), "--workers", "1"])
    assert "leave out --group-field" in str(result.exception)
