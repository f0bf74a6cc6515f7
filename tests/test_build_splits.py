"""Small corpora give validation more documents than are drawn, without a given share; hashes choose which."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest
from build_fixtures import build_documents, check_split, digest_shards, document_key, keys_of, run_build
from hypothesis import given
from hypothesis import strategies as st
from references import choose_validation, split_key

from albert_data.errors import InputError
from albert_data.jobs.progress import NullProgress
from albert_data.shards.reader import open_shards
from albert_data.tokenizer.model import Tokenizer

DOCUMENTS = fixtures.make_documents(40, seed=11)
KEYS = set(map(document_key, DOCUMENTS))


@pytest.fixture(autouse=True, scope="module")
def small_tasks() -> Iterator[None]:
    with fixtures.small_tasks(1 << 12):
        yield


def number_documents(numbers: range | list[int]) -> list[str]:
    return [f"Document {number}.\nThe water." for number in numbers]


def is_drawn(key: int, seed: int) -> bool:
    return split_key(key, seed) < 0.005 * 2**64


some_documents = (
    st.integers(1, 120)
    .flatmap(lambda count: st.lists(st.integers(0, count), min_size=1, max_size=120))
    .map(number_documents)
)


@given(
    documents=some_documents,
    fraction=st.sampled_from((0.0, None, 0.005, 0.1, 0.5)),
    seed=st.integers(0, 2**63 - 1),
    layout=st.sampled_from(fixtures.LAYOUTS),
    options=st.sampled_from(({}, {"keep_duplicates": True}, {"pairs": "nsp"}, {"dupe_factor": 2, "num_shards": 3})),
)
def test_the_set_of_documents_alone_decides_who_is_validation(
    documents: list[str],
    fraction: float | None,
    seed: int,
    layout: str,
    options: dict[str, Any],
    tokenizer: Tokenizer,
    tmp_path_factory: pytest.TempPathFactory,
):
    folder = tmp_path_factory.mktemp("split")
    fixtures.write_corpus(folder / "in", documents, layout, random.Random(seed))
    build = partial(run_build, folder / "in", folder / "out", tokenizer, seed=seed, **options)
    keys = set(map(document_key, documents))
    if fraction and len(choose_validation(keys, fraction, seed)) in (0, len(keys)):
        with pytest.raises(InputError, match="a given share is never adjusted, so leave the option out") as caught:
            build(validation_fraction=fraction)
        if (other := re.search(r"or pass ([0-9.e-]+), and", str(caught.value))) is None:
            return
        fraction = float(other[1])
        assert 0 < len(choose_validation(keys, fraction, seed)) < len(keys)
        build(validation_fraction=fraction, overwrite=True)
    else:
        build(validation_fraction=fraction)
    check_split(folder / "out", documents, fraction, seed)


@pytest.mark.parametrize(("count", "wanted"), [(299, 29), (340, 30), (1100, 30)])  # 1100: more than a sample of sizes
def test_validation_has_thirty_documents_and_at_most_a_tenth(
    count: int, wanted: int, tokenizer: Tokenizer, tmp_path: Path
):
    documents = number_documents(range(count))
    report = build_documents(documents, tmp_path / "out", tokenizer, layout="mixed")
    check_split(tmp_path / "out", documents, None)
    assert len(keys_of(tmp_path / "out")[1]) == wanted
    num_drawn = sum(is_drawn(document_key(document), 0) for document in documents)
    assert report.manifest.counts.moved_documents == wanted - num_drawn


@pytest.mark.parametrize(("count", "said"), [(1, []), (40, ["4 documents"]), (400, [])])
def test_few_validation_documents_are_said(
    count: int, said: list[str], tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lines: list[str] = []
    monkeypatch.setattr(NullProgress, "say", lambda self, line: lines.append(line))
    build_documents(number_documents(range(count)), tmp_path / "out", tokenizer)
    few = [line for line in lines if line.startswith("validation: ")]
    assert [line.partition(": ")[2].partition(",")[0] for line in few] == said
    run_build(tmp_path / "out-in", tmp_path / "none", tokenizer, validation_fraction=0.0)
    assert [line for line in lines if line.startswith("validation: ")] == few


def test_training_is_not_empty_if_all_documents_are_drawn(tokenizer: Tokenizer, tmp_path: Path):
    keys = list(map(document_key, DOCUMENTS[:2]))
    for seed in islice((seed for seed in count() if all(is_drawn(key, seed) for key in keys)), 2):
        build_documents(DOCUMENTS[:2], tmp_path / f"{seed}", tokenizer, seed=seed)
        check_split(tmp_path / f"{seed}", DOCUMENTS[:2], None, seed)


@pytest.mark.parametrize("group", [None, "book"])
def test_more_documents_move_none_from_one_split_to_the_other(group: str | None, tokenizer: Tokenizer, tmp_path: Path):
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


@pytest.mark.parametrize("group", [None, "book"])
def test_a_share_that_draws_none_is_an_error_that_names_one(group: str | None, tokenizer: Tokenizer, tmp_path: Path):
    lines = [json.dumps({"text": text, "book": i % 20}) for i, text in enumerate(DOCUMENTS)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    build = partial(run_build, tmp_path / "in.jsonl", tmp_path / "out", tokenizer, group_field=group)
    message = r"^--validation-fraction 1e-09 draws no document .* or pass ([0-9.]+), and give --overwrite$"
    with pytest.raises(InputError, match=message) as caught:
        build(validation_fraction=1e-9)
    works = re.search(message, str(caught.value))
    assert works
    build(validation_fraction=float(works[1]), overwrite=True)
    assert 4 <= len(keys_of(tmp_path / "out")[1]) < 12


def test_documents_whose_keys_collide_move_together(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """All documents have one of three keys: one of these goes to validation, however the corpus is laid out."""
    monkeypatch.setattr("albert_data.corpus.documents.xxh3_64_intdigest", lambda text: len(text) % 3)
    for name in ("txt", "mixed"):
        build_documents(DOCUMENTS, tmp_path / name, tokenizer, layout=name)
        assert keys_of(tmp_path / name)[1] == choose_validation({0, 1, 2}, None)
    assert digest_shards(tmp_path / "txt") == digest_shards(tmp_path / "mixed")


@pytest.mark.parametrize(("seed", "copies"), [(0, 1), (1, 1), (2, 3), (3, 3)])
def test_a_single_document_goes_to_training(seed: int, copies: int, tokenizer: Tokenizer, tmp_path: Path):
    fixtures.write_corpus(tmp_path / "in", DOCUMENTS[:1] * copies, "jsonl", random.Random(0))
    build = partial(run_build, tmp_path / "in", tmp_path / "out", tokenizer, seed=seed)
    with pytest.raises(InputError, match=r"-fraction 0\.5 draws .*, so leave the option out, and give --overwrite"):
        build(validation_fraction=0.5)
    build(validation_fraction=None, overwrite=True)
    assert keys_of(tmp_path / "out") == ({document_key(DOCUMENTS[0])}, set())


def test_documents_without_a_row_do_not_count(tokenizer: Tokenizer, tmp_path: Path):
    (tmp_path / "in.txt").write_text("the water.\n\n\x01\n\n\x02")
    run_build(tmp_path / "in.txt", tmp_path / "out", tokenizer)
    assert keys_of(tmp_path / "out") == ({document_key("the water.")}, set())


def test_the_bytes_of_other_documents_are_those_of_a_build_without_a_move(tokenizer: Tokenizer, tmp_path: Path):
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


def test_a_large_training_section_is_read_in_parts_for_validation(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    build_documents(DOCUMENTS, tmp_path / "out", tokenizer)
    monkeypatch.setattr("albert_data.pipeline.reducing._SLICES_READ", 1)
    monkeypatch.setattr("albert_data.pipeline.shard_plan.SLICE_BYTES", 1 << 10)
    build_documents(DOCUMENTS, tmp_path / "parts", tokenizer)
    for split in ("train", "validation"):
        rows = [[row.input_ids.tobytes() for row in open_shards(tmp_path / name, split)] for name in ("parts", "out")]
        assert rows[0] == rows[1]
