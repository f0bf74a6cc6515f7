"""A build is a pure function of the set of documents, the tokenizer and the config."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import numpy as np
import pyarrow
import pyarrow.ipc
import pytest
import sentencepiece
from build_fixtures import LAYOUTS, InlineEngine, PicklingEngine, build_documents, digest_shards, run_build
from hypothesis import given
from hypothesis import strategies as st
from mixture_fixtures import describe

from albert_data import split_sentences
from albert_data.errors import InputError
from albert_data.jobs.engine import Engine, MultiprocessEngine
from albert_data.pipeline import plan
from albert_data.shards.manifest import ShardEntry, SkippedEntry, to_value
from albert_data.shards.reader import Shards, open_shards
from albert_data.storage.files import to_json
from albert_data.tokenizer.model import Tokenizer

DOCUMENTS = fixtures.make_documents(250, seed=1)
# All that a manifest tells of the result: it must not know how the documents were stored or read.
RESULT = ("documents_digest", "counts", "damage", "splits", "digest", "config", "tokenizer")


@pytest.fixture(autouse=True, scope="module")
def small_tasks() -> Iterator[None]:
    with fixtures.small_tasks():
        yield


@pytest.fixture(scope="module")
def reference(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus as one text file, built in this process."""
    out = tmp_path_factory.mktemp("reference") / "out"
    build_documents(DOCUMENTS, out, tokenizer)
    return out


@pytest.fixture(scope="module")
def corpus(reference: Path) -> Path:
    return reference.with_name("out-in")


@pytest.fixture
def rebuild(corpus: Path, tokenizer: Tokenizer, tmp_path: Path) -> Callable[..., Path]:
    """Builds the corpus by an engine and settings; returns where."""

    def run(engine: Engine | None = None, **settings: Any) -> Path:
        run_build(corpus, tmp_path / "out", tokenizer, engine, **settings)
        return tmp_path / "out"

    return run


def check_same(out: Path, reference: Path) -> None:
    assert digest_shards(out) == digest_shards(reference)
    found, wanted = (open_shards(folder).manifest.to_values() for folder in (out, reference))
    assert [found[name] for name in RESULT] == [wanted[name] for name in RESULT]


@pytest.mark.parametrize(
    "engine",
    [MultiprocessEngine(1), MultiprocessEngine(3), PicklingEngine()],
    ids=["1 worker", "3 workers", "pickling"],
)
def test_engine_and_workers_change_no_byte(engine, rebuild, reference):
    out = rebuild(engine)
    check_same(out, reference)
    assert (out / "manifest.json").read_bytes() == (reference / "manifest.json").read_bytes()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_order_files_format_and_compression_of_the_input_change_no_byte(layout, reference, tokenizer, tmp_path):
    build_documents(DOCUMENTS, tmp_path / "out", tokenizer, MultiprocessEngine(2), layout)
    check_same(tmp_path / "out", reference)


@pytest.mark.parametrize("encode", [fixtures.to_txt, fixtures.to_jsonl])
def test_stdin_changes_no_byte(encode, reference, tokenizer, tmp_path, monkeypatch):
    fixtures.set_stdin(monkeypatch, encode(DOCUMENTS[::-1]))
    run_build("-", tmp_path / "out", tokenizer, MultiprocessEngine(2))
    check_same(tmp_path / "out", reference)


@pytest.mark.parametrize("task_bytes", [1 << 10, 1 << 20])
def test_sizes_of_tasks_and_blocks_change_no_byte(task_bytes, rebuild, reference, monkeypatch):
    fixtures.make_tasks_small(monkeypatch, task_bytes)
    monkeypatch.setattr("albert_data.corpus.blocks.BLOCK_BYTES", task_bytes)
    monkeypatch.setattr("albert_data.pipeline.make_rows.RUN_BYTES", task_bytes)
    check_same(rebuild(), reference)


@pytest.mark.slow
def test_spawned_workers_change_no_byte(rebuild, reference):
    import multiprocess

    engine = MultiprocessEngine(2)
    engine._context = multiprocess.get_context("spawn")  # the method on macOS
    check_same(rebuild(engine), reference)


def test_every_setting_and_another_tokenizer_change_the_bytes(tokenizer, tmp_path):
    changes = {"seed": 1, "max_seq_len": 47, "ngram": 2, "mask_prob": 0.2, "short_seq_prob": 0.3, "whole_word": False}
    changes |= {"dupe_factor": 2, "sentences": "lines", "validation_fraction": 0.3, "document_rule": "file"}
    builds = [(tokenizer, {name: value}) for name, value in changes.items()]
    builds += [(tokenizer, {}), (Tokenizer(tokenizer.model.replace(b"would", b"dluow"), "another"), {})]
    fixtures.write_corpus(tmp_path / "in", DOCUMENTS[:60], "txt", random.Random(0))
    digests = {
        run_build(tmp_path / "in", tmp_path / str(number), one, **changed).manifest.digest
        for number, (one, changed) in enumerate(builds)
    }
    assert len(digests) == len(builds)


@pytest.mark.parametrize(
    ("engine", "run_bytes"),
    [(InlineEngine(), 1 << 20), (MultiprocessEngine(2), 1 << 12)],
    ids=["a run a task", "many runs"],
)
def test_the_order_of_documents_with_the_same_key_changes_no_byte(engine, run_bytes, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("albert_data.clean.documents.xxh3_64_intdigest", lambda text: len(text) % 3)
    documents = DOCUMENTS[:60] * 2
    build_documents(documents, tmp_path / "reference", tokenizer)
    assert len({example.document_key for example in open_shards(tmp_path / "reference")}) <= 3
    monkeypatch.setattr("albert_data.pipeline.make_rows.RUN_BYTES", run_bytes)
    build_documents(documents[::-1], tmp_path / "out", tokenizer, engine)
    check_same(tmp_path / "out", tmp_path / "reference")


def test_passes_of_dupe_factor_differ_and_depend_on_nothing_else(tokenizer, tmp_path):
    build_documents(DOCUMENTS[:80], tmp_path / "out0", tokenizer, dupe_factor=3)
    build_documents(DOCUMENTS[:80], tmp_path / "out1", tokenizer, MultiprocessEngine(2), "jsonl.gz", dupe_factor=3)
    check_same(tmp_path / "out1", tmp_path / "out0")
    rows = Counter(example.input_ids.tobytes() for example in open_shards(tmp_path / "out0"))
    assert rows.total() > 2 * len(open_shards(tmp_path / "out0")) / 3
    assert len(rows) > 0.9 * rows.total()  # some short rows of one sentence get the same masks twice
    check_tokens(tmp_path / "out0", DOCUMENTS[:80], tokenizer, passes=3)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compressed_shards_hold_the_same_rows(compression, rebuild, reference):
    out = rebuild(compression=compression)
    for split in ("train", "validation"):
        assert list_rows(open_shards(out, split)) == list_rows(open_shards(reference, split))
    assert digest_shards(out) != digest_shards(reference)


@pytest.mark.parametrize("slices_read", [1, 5])
def test_slices_read_at_once_change_no_byte(slices_read, rebuild, tmp_path, monkeypatch):
    """Those of validation too, whose rows are among those of training until they are moved."""
    monkeypatch.setattr("albert_data.pipeline.shard_plan.SLICE_BYTES", 1 << 12)
    wanted = rebuild(num_shards=2).rename(tmp_path / "wanted")
    monkeypatch.setattr("albert_data.pipeline.merge_rows._SLICES_READ", slices_read)
    out = rebuild(num_shards=2)
    check_same(out, wanted)
    file = next((out / "train").glob("*.arrow"))
    assert pyarrow.ipc.open_file(pyarrow.memory_map(str(file))).num_record_batches > 5


@pytest.mark.parametrize("num_shards", [2, 40])
def test_num_shards_changes_neither_rows_nor_their_order(num_shards, rebuild, reference):
    out = rebuild(num_shards=num_shards)
    assert len(list((out / "train").iterdir())) == num_shards
    assert list_rows(open_shards(out)) == list_rows(open_shards(reference))


def list_rows(shards: Shards) -> list[tuple[Any, ...]]:
    return [(row.document_key, describe(row)) for row in shards]


def test_rows_are_shuffled_over_all_documents(reference):
    keys = [example.document_key for example in open_shards(reference)]
    neighbours = sum(one == other for one, other in pairwise(keys))
    counts = np.array(list(Counter(keys).values()))
    expected = (counts * (counts - 1)).sum() / len(keys)  # in a random order
    assert neighbours < expected + 5 * expected**0.5


def check_tokens(
    out: Path, documents: list[str], tokenizer: Tokenizer, passes: int = 1, sentences: str = "prose"
) -> None:
    """With masks and swaps undone, the rows of a document hold each of its tokens once a pass."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    wanted: dict[int, list[int]] = {}
    for document in set(documents):
        text = fixtures.canonical(document).decode().split("\n")[:-1]
        if sentences == "prose":
            text = [sentence for line in text for sentence in split_sentences(line)]
        wanted[fixtures.document_key(document)] = [i for ids in processor.encode(text) for i in ids]
    found: dict[int, Counter[int]] = {key: Counter() for key in wanted}
    for split in ("train", "validation"):
        for row in open_shards(out, split):
            ids = restore(row, tokenizer)
            assert listed(ids) in listed(wanted[row.document_key])
            found[row.document_key].update(ids)
    for key, ids in wanted.items():
        assert found[key] == Counter({i: times * passes for i, times in Counter(ids).items()})


def restore(row: Any, tokenizer: Tokenizer) -> list[int]:
    """The text tokens of a row in the order of the document, without masks."""
    ids, end = row.original_ids.tolist(), 1 + row.segment_a_len
    first, second = ids[1:end], ids[end + 1 : -1]
    assert ids[0] == tokenizer.cls_id
    assert ids[end] == ids[-1] == tokenizer.sep_id
    assert (row.sop_label == -1) == (not second)
    return second + first if row.sop_label == 1 else first + second


def listed(ids: list[int]) -> str:
    return "," + "".join(f"{i}," for i in ids)


odd = st.sampled_from("abc the of  \n\n.?!,\"'(…。\uff01中国语 \t\r\x0b\x00\u00a0\u2581\u0301\ufb01")
texts = st.text(odd | st.characters(exclude_categories=["Cs"]), max_size=120)
corpora = st.lists(texts.filter(fixtures.canonical), min_size=1, max_size=8)


@given(corpora, st.sampled_from(LAYOUTS), st.integers(0, 2**63 - 1), st.integers(8, 40), st.integers(1, 3))
def test_any_corpus_in_any_layout_gives_the_same_bytes_and_loses_no_token(
    tokenizer, tmp_path_factory, documents, layout, seed, max_seq_len, dupe_factor
):
    folder = tmp_path_factory.mktemp("random")
    options = {"seed": seed, "max_seq_len": max_seq_len, "dupe_factor": dupe_factor, "sentences": "lines"}
    documents = [*documents, "One that surely holds a token."]
    for number, name in enumerate(("txt", layout)):
        order = random.Random(seed + number).sample(documents, len(documents))
        build_documents(order, folder / f"out{number}", tokenizer, layout=name, **options)
    check_same(folder / "out1", folder / "out0")
    check_tokens(folder / "out0", documents, tokenizer, dupe_factor, "lines")


@pytest.mark.parametrize(("what", "of_files", "of_shards"), [("BYTES", 2_000, 4_500), ("VALUES", 90, 150)])
def test_more_files_or_shards_than_a_manifest_can_name_are_refused_before_they_are_written(
    what, of_files, of_shards, tokenizer, tmp_path, monkeypatch
):
    fixtures.write_corpus(tmp_path / "in", fixtures.make_documents(60, 0), "txt", random.Random(0))
    for most, num_shards, named in ((of_files, None, "0 shards; join small"), (of_shards, 7, "7 shards; join small")):
        monkeypatch.setattr(f"albert_data.pipeline.plan.MAX_{what}", most)
        with pytest.raises(InputError, match=f"1 file, more than a manifest can name beside {named}"):
            run_build(tmp_path / "in", tmp_path / "out", tokenizer, num_shards=num_shards)
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr("albert_data.pipeline.shard_plan.SHARD_BYTES", 1 << 10)
    with pytest.raises(InputError, match="or use a smaller --num-shards"):
        run_build(tmp_path / "in", tmp_path / "out", tokenizer)
    assert not list((tmp_path / "out").rglob("*.arrow"))


def test_a_manifest_of_many_shards_has_no_more_bytes_and_values_than_expected():
    numbers = ("num_rows", "num_tokens", "num_masked", "num_unpaired", "num_random", "num_bytes")
    shard = ShardEntry(file="validation/shard-99999.arrow", sha256="0" * 64, **dict.fromkeys(numbers, 10**10 - 1))
    values = to_json({"splits": {"validation": {"shards": [to_value(shard)] * 1000}}})
    assert 0.9 * plan._SHARD_BYTES < len(values) / 1000 <= plan._SHARD_BYTES
    assert values.count(b",") + values.count(b"{") < 1000 * plan._SHARD_VALUES + 10


def test_what_was_skipped_is_named_in_the_manifest_and_decides_nothing(tokenizer, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_bytes(fixtures.to_txt(fixtures.make_documents(9, seed=3)))
    pages = [str(tmp_path / f"in/{number}.dat") for number in range(9)]
    for path in pages:
        Path(path).touch()
    made = run_build(tmp_path / "in", tmp_path / "out", tokenizer).manifest
    assert made.skipped == {"unknown": SkippedEntry(num_paths=9, paths=tuple(pages))}
    (tmp_path / "in/later.dat").touch()
    assert run_build(tmp_path / "in", tmp_path / "out", tokenizer).was_finished
    assert run_build(tmp_path / "in/a.txt", tmp_path / "out", tokenizer).was_finished
