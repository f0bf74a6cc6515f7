"""Sorted runs return the rows in any range of keys; records hold whole rows, and no byte beyond them is read."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from row_fixtures import Row, make_examples, numbered_rows, plain, rows_16

from albert_data.errors import OutputError
from albert_data.pipeline import sorted_runs
from albert_data.pipeline.row_buffer import (
    Dropped,
    FoundRows,
    RowBuffer,
    RowKeys,
    RowScratch,
    count_dropped,
    find_rows,
    measure_rows_u64,
    order_rows,
    put_examples,
    take_examples,
)
from albert_data.pipeline.sorted_runs import (
    Held,
    KeyedRows,
    Section,
    find_range,
    join_keys,
    make_head,
    read_range,
    sort_rows,
    write_sorted_run,
)

LAST = 2**64 - 1


def make_part(rows: list[Row], shuffle_keys: list[int], *, passes: int = 0, dtype: type = np.uint16) -> KeyedRows:
    """Rows with these shuffle keys, numbered backwards: sorting reverses rows with equal keys."""
    examples = make_examples(rows, dtype)
    keys = RowKeys(
        np.array(shuffle_keys, np.uint64),
        examples.document_keys,
        np.full(len(rows), passes, np.uint16),
        np.arange(len(rows), dtype=np.uint32)[::-1].copy(),
        np.zeros(len(rows), np.uint64),
    )
    return KeyedRows(examples=examples, keys=keys, source_codes=number_languages(rows))


def number_languages(rows: list[Row]) -> np.ndarray:
    """A language for each row, the same for all rows of a document."""
    return np.array([row[4] % 2**31 for row in rows], np.uint32)


def list_keyed(part: KeyedRows, dtype: type = np.uint16) -> list[tuple[tuple[int, ...], Row]]:
    keys = zip(*(column.tolist() for column in part.keys), strict=True)
    return list(zip(keys, plain(part.examples, dtype), strict=True))


@given(st.lists(st.tuples(*(st.integers(0, 2) for _ in range(5)))))
def test_rows_sort_like_tuples_of_their_keys(rows):
    columns = zip(RowKeys.empty(len(rows)), np.array(rows, np.int64).reshape(-1, 5).T, strict=True)
    keys = RowKeys(*(column.astype(empty.dtype) for empty, column in columns))
    assert keys.order().tolist() == sorted(range(len(rows)), key=lambda row: rows[row])


few = st.integers(0, 1)
contents = st.tuples(
    st.lists(few, min_size=3, max_size=4),
    few,
    st.integers(-1, 0),
    st.lists(st.tuples(few, few), max_size=2),
    st.sampled_from([0, LAST]),
)
# shuffle key, pass, index and form; row; language
keyed_rows = st.tuples(st.tuples(st.sampled_from([0, LAST]), few, few, few), contents, st.sampled_from([0, 0x6E65]))
KeyedRow = tuple[tuple[int, ...], Row, int]


def lay_out(rows: list[KeyedRow]) -> tuple[RowBuffer, FoundRows]:
    examples = make_examples([row for _, row, _ in rows])
    shuffle_keys, passes, indices, forms = np.array([keys for keys, _, _ in rows], np.uint64).reshape(-1, 4).T
    keys = RowKeys(shuffle_keys, examples.document_keys, passes.astype(np.uint16), indices.astype(np.uint32), forms)
    num_u64 = measure_rows_u64(examples)
    records, starts = RowScratch(np.uint16).reserve(int(num_u64.sum())), np.cumsum(num_u64) - num_u64
    languages = np.array([language for _, _, language in rows], np.uint32)
    put_examples(records, starts, examples, keys, languages)
    return records, FoundRows(starts, keys)


def read_back(records: RowBuffer, found: FoundRows) -> list[KeyedRow]:
    sources = np.array([0x6E65, 0], np.uint32)
    examples, keys = take_examples(records, found.starts, sources), found.keys
    assert examples.sources is not None
    kinds = (keys.shuffle_keys, keys.passes, keys.indices, keys.forms)
    columns = zip(*(column.tolist() for column in kinds), strict=True)
    return list(zip(columns, plain(examples), sources[examples.sources].tolist(), strict=True))


def write_run(path: Path, rows: list[KeyedRow], modulus: int, *, keep_copies: bool = True) -> Dropped:
    """All rows of a document are in one split, as in a build."""
    records, found = lay_out(rows)
    languages = np.array([language for _, _, language in rows], np.uint32)
    part = KeyedRows(examples=take_examples(records, found.starts), keys=found.keys, source_codes=languages)
    is_validation = found.keys.document_keys % np.uint64(2) < np.uint64(modulus)
    run = sort_rows([part], found.keys, is_validation, RowScratch(np.uint16), keep_copies=keep_copies)
    write_sorted_run(path, run)
    return run.dropped


def sort_by_keys(row: KeyedRow) -> tuple[int, ...]:
    (shuffle_key, *others), content, _ = row
    return shuffle_key, content[4], *others


@given(st.lists(keyed_rows, max_size=30), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_depend_on_their_order_in_the_buffer(rows, rng):
    """Keys and contents have few values each, so many rows agree in some or all of them."""

    def sort(rows: list[KeyedRow]) -> tuple[list[KeyedRow], list[bool]]:
        records, found = lay_out(rows)
        order, is_copy = order_rows(records, found)
        return read_back(records, found.take(order)), is_copy.tolist()

    ordered, is_copy = sort(rows)
    assert [sort_by_keys(row) for row in ordered] == sorted(map(sort_by_keys, rows))
    assert sorted(map(repr, ordered)) == sorted(map(repr, rows))
    assert is_copy == [at > 0 and row == ordered[at - 1] for at, row in enumerate(ordered)]
    kept = [row for row, copy in zip(ordered, is_copy, strict=True) if not copy]
    assert sorted(map(repr, kept)) == sorted(set(map(repr, rows)))
    assert sort(rng.sample(rows, len(rows))) == (ordered, is_copy)


@given(st.lists(keyed_rows, max_size=30))
def test_dropped_rows_are_counted_as_a_plain_loop_counts_them(rows):
    records, found = lay_out(rows)
    order, is_copy = order_rows(records, found)
    assert count_dropped(records, found.starts[order[is_copy]]) == count_slowly(rows)


def count_slowly(rows: list[KeyedRow]) -> Dropped:
    """The counts of all rows that occurred earlier in the list."""
    seen: list[KeyedRow] = []
    wanted = Dropped()
    for row in rows:
        (_, pass_index, index, _), (ids, _, label, _, document_key), _ = row
        is_first = pass_index == 0
        is_document = is_first and index == 0
        one = Dropped(1, is_document, is_first * (len(ids) - (2 if label < 0 else 3)), is_document * document_key)
        wanted = wanted.add(one) if row in seen else wanted
        seen.append(row)
    return wanted


@given(st.lists(st.lists(keyed_rows, max_size=12), min_size=1, max_size=3), st.sampled_from([0, 1, 2]))
def test_runs_and_merge_together_drop_every_copy_once(tmp_path_factory, runs, modulus):
    folder, dropped = tmp_path_factory.mktemp("runs"), Dropped()
    paths = [folder / str(number) for number in range(len(runs))]
    for path, rows in zip(paths, runs, strict=True):
        dropped = dropped.add(write_run(path, rows, modulus, keep_copies=False))
    kept: list[KeyedRow] = []
    for split in ("train", "validation"):
        records, found = read_split(paths, split)
        order, is_copy = order_rows(records, found)
        dropped = dropped.add(count_dropped(records, found.starts[order[is_copy]]))
        order = order[~is_copy]
        kept += read_back(records, found.take(order))
    everything = [row for rows in runs for row in rows]
    assert sorted(map(repr, kept)) == sorted(set(map(repr, everything)))
    assert dropped == count_slowly(everything)


@given(rows_16, st.data(), st.sampled_from([np.uint16, np.uint32]))
def test_rows_survive_a_round_trip_through_records(rows, data, dtype):
    """They are written in any order, and read in any other."""
    part = make_part(rows, list(range(5, 5 + len(rows))), dtype=dtype)
    num_u64 = measure_rows_u64(part.examples)
    order = np.array(data.draw(st.permutations(range(len(rows)))), np.int64)
    starts = np.zeros(len(rows), np.int64)
    starts[order] = np.cumsum(num_u64[order]) - num_u64[order]
    records = RowScratch(dtype).reserve(int(num_u64.sum()))
    put_examples(records, starts, part.examples, part.keys, part.source_codes)
    wanted = data.draw(st.lists(st.sampled_from(range(len(rows))))) if rows else []
    assert plain(take_examples(records, starts[np.array(wanted, np.int64)]), dtype) == [rows[i] for i in wanted]

    found = FoundRows.empty(len(rows))
    low, high = sorted(data.draw(st.tuples(*(st.integers(0, 20) for _ in range(2)))))
    end = int(num_u64.sum())
    count, last_end = find_rows(records, 0, end, np.uint64(low), np.uint64(high), found, 0)
    there = [row for row in order.tolist() if low <= row + 5 <= high]
    assert found.starts[:count].tolist() == starts[there].tolist()
    assert last_end == (starts[there[-1]] + num_u64[there[-1]] if there else 0)
    for column, original in zip(found.keys, part.keys, strict=True):
        assert column[:count].tolist() == original[there].tolist()


def test_damaged_or_truncated_records_or_too_many_are_an_error_not_a_crash():
    part = make_part(numbered_rows(3), [0, 1, 2])
    sizes = measure_rows_u64(part.examples)
    end = int(sizes.sum())
    records = RowScratch(np.uint16).reserve(end)
    put_examples(records, np.cumsum(sizes) - sizes, part.examples, part.keys, part.source_codes)

    def find(end: int, most_rows: int = 9) -> None:
        with pytest.raises(ValueError, match="outside"):
            find_rows(records, 0, end, np.uint64(0), np.uint64(LAST), FoundRows.empty(most_rows), 0)

    find(end, most_rows=2)
    for num_u64 in (1, 4, 5):
        find(int(sizes[0]) + num_u64)
    for number in (2, 3):
        before = int(records.i32[4 + number])
        for value in (-1, 100, 2**31 - 1):
            records.i32[4 + number] = value
            find(int(sizes[0]))
        records.i32[4 + number] = before


keys_64 = st.one_of(st.integers(0, 3), st.integers(0, LAST), st.integers(LAST - 3, LAST))


@given(st.lists(st.lists(keys_64, max_size=60), min_size=1, max_size=5), st.integers(0, 4), st.data())
def test_reading_a_range_of_runs_equals_sorting_a_list(tmp_path_factory, runs, every, data):
    """Each run has two parts, and entries of all rows or of some; every n-th row, or none, is in validation."""
    folder = tmp_path_factory.mktemp("runs")
    wanted: dict[str, list[tuple[tuple[int, ...], Row]]] = {"train": [], "validation": []}
    paths = []
    for number, shuffle_keys in enumerate(runs):
        half, first = len(shuffle_keys) // 3, number * 100
        parts = [
            make_part(numbered_rows(half, start=first), shuffle_keys[:half], passes=number),
            make_part(numbered_rows(len(shuffle_keys) - half, start=first + half), shuffle_keys[half:], passes=number),
        ]
        is_validation = np.array([every > 0 and row % every == 0 for row in range(len(shuffle_keys))], bool)
        for is_there, row in zip(is_validation, [row for part in parts for row in list_keyed(part)], strict=True):
            wanted["validation" if is_there else "train"].append(row)
        paths.append(folder / str(number))
        with patch.object(sorted_runs, "_MOST_ENTRIES", data.draw(st.sampled_from([1, 7, 4091]))):
            write_sorted_run(paths[-1], sort_rows(parts, join_keys(parts), is_validation, RowScratch(np.uint16)))
    low, high = sorted(data.draw(st.tuples(keys_64, keys_64)))
    for split, rows in wanted.items():
        with patch.object(sorted_runs, "_RUNS_AT_ONCE", data.draw(st.sampled_from([1, 2, 64]))):
            records, found = read_split(paths, split, low, high)
        there = sorted(row for row in rows if low <= row[0][0] <= high)
        sizes = measure_rows_u64(take_examples(records, found.starts))
        assert found.starts.tolist() == (np.cumsum(sizes) - sizes).tolist()  # no surplus record is left between them
        order = found.keys.order()
        assert plain(take_examples(records, found.starts[order])) == [row for _, row in there]
        assert list(zip(*(column[order].tolist() for column in found.keys), strict=True)) == [key for key, _ in there]


def read_split(paths: list[Path], split: str = "train", low: int = 0, high: int = LAST) -> tuple[RowBuffer, FoundRows]:
    return read_range([Held(path, split) for path in paths], low, high, RowScratch(np.uint16))


RECORD_U64 = 171  # of a row of 512 tokens in uint16, of which 77 are masked


@pytest.mark.parametrize("num_rows", [0, 1, 4091, 4092, 100_000, 930_000])
def test_head_and_index_are_one_read_and_give_the_fewest_rows_too_many(num_rows, tmp_path):
    keys = np.sort(np.random.default_rng(0).integers(0, LAST, num_rows, np.uint64, endpoint=True))
    positions = np.arange(num_rows, dtype=np.uint64) * np.uint64(RECORD_U64)
    sections = (Section(np.stack([keys, positions]), num_rows * RECORD_U64), Section(np.empty((2, 0), np.uint64), 0))
    (tmp_path / "run").write_bytes(make_head(sections).tobytes())
    assert (tmp_path / "run").stat().st_size <= 64 << 10
    for low, high in ((number << 54, (number + 1 << 54) - 1) for number in range(0, 1024, 93)):
        wanted = int(np.count_nonzero((keys >= np.uint64(low)) & (keys <= np.uint64(high))))
        part = find_range(Held(tmp_path / "run", "train"), low, high)
        assert wanted <= part.max_rows <= wanted + 2 * max(1, -(-num_rows // 4091))
        assert (part.end - part.begin) <= part.max_rows * RECORD_U64


def test_a_damaged_run_is_an_error(tmp_path):
    part, path = make_part(numbered_rows(20), list(range(20))), tmp_path / "run"
    rows = sort_rows([part], part.keys, np.zeros(20, bool), RowScratch(np.uint16))
    write_sorted_run(path, rows)
    whole = path.read_bytes()
    assert len(read_split([path])[1].starts) == 20
    cut_short = [whole[:size] for size in (0, 7, 39, 48, -8, -1)]
    for data in (*cut_short, bytes(1000)):  # as a crash of the machine may leave one
        path.write_bytes(data)
        with pytest.raises(OutputError, match="is cut short"):
            read_split([path])
    rows.records[3] = 2**64 - 1  # numbers of ids and masks
    write_sorted_run(path, rows)
    with pytest.raises(OutputError, match=r"run is damaged.*--overwrite"):
        read_split([path])


# ---- merging ----


def sort_range(paths: list[Path], split: str, low: int = 0, high: int = LAST) -> list[KeyedRow]:
    records, found = read_split(paths, split, low, high)
    return read_back(records, found.take(order_rows(records, found)[0]))


@given(st.lists(st.lists(keyed_rows, max_size=30), min_size=1, max_size=4), st.booleans(), st.integers(1, 4))
def test_merged_and_fetched_runs_hold_the_rows_of_all(tmp_path_factory, runs, keep_copies, num_ranges):
    """Few keys have many rows, so copies lie in several runs, and ranges are empty or crowded."""
    folder, scratch = tmp_path_factory.mktemp("runs"), RowScratch(np.uint16)
    paths = [folder / str(number) for number in range(len(runs))]
    for path, rows in zip(paths, runs, strict=True):
        write_run(path, rows, 1)
    num_bytes = sum(path.stat().st_size for path in paths)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(sorted_runs, "MERGE_BYTES", -(-num_bytes // num_ranges))
        dropped = sorted_runs.join_runs(paths, folder / "merged", scratch, keep_copies=keep_copies)
        for split in ("train", "validation"):
            for low, high in ((0, LAST), (0, 2**62), (2**63, LAST)):
                rows = sort_range(paths, split, low, high)
                (folder / split / str(low)).mkdir(parents=True, exist_ok=True)
                held = [Held(path, split) for path in paths]
                fetched = sorted_runs.fetch_range(held, split, (low, high), scratch, folder / split / str(low))
                assert sort_range(fetched, split, low, high) == rows
                merged = sort_range([folder / "merged"], split, low, high)
                if keep_copies:
                    assert merged == rows
                assert sorted(set(map(repr, merged))) == sorted(set(map(repr, rows)))
    merged = [row for split in ("train", "validation") for row in sort_range([folder / "merged"], split)]
    assert dropped.rows == sum(map(len, runs)) - len(merged)
    assert keep_copies or len(merged) == len(set(map(repr, merged)))
