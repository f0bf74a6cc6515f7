"""Integers of any type name rows, and nothing else does."""

from __future__ import annotations

import numpy as np
import pytest
from row_fixtures import numbered_rows, plain
from shard_fixtures import write_shards

from albert_data.shards.reader import Shards, open_shards

ROWS = numbered_rows(100)
SIGNED, UNSIGNED = ([np.dtype(code).type for code in codes] for codes in ("bhilq", "BHILQ"))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return open_shards(write_shards(tmp_path_factory.mktemp("shards") / "out", [[ROWS[:60], ROWS[60:]]]))


def test_an_integer_of_any_type_names_a_row_or_rows_and_may_count_from_the_end(shards):
    for kind in (int, *SIGNED, *UNSIGNED, np.array):
        assert [shards[kind(row)].document_key for row in (0, 99)] == [ROWS[0][4], ROWS[99][4]], kind
    for kind in (int, *SIGNED):
        assert shards[kind(-100)].document_key == ROWS[0][4]
    for indices in ([np.int8(3), 99, np.int64(3)], (3, 99, 3), *(np.array([3, 99, 3], k) for k in SIGNED + UNSIGNED)):
        assert plain(shards.rows(indices)) == [ROWS[3], ROWS[99], ROWS[3]]
    for none in ([], np.zeros(0), range(0)):
        assert len(shards.rows(none)) == 0


def test_a_number_without_a_row_is_an_index_error_that_names_the_range(shards):
    for index in (np.uint64(2**64 - 1), np.uint8(100), np.int8(-101), 2**70):
        with pytest.raises(IndexError, match=rf"row {int(index)} of a split of 100 rows; allowed are -100 to 99"):
            shards[index]
    for indices in ([100], [-1], np.array([2**64 - 1], np.uint64)):
        with pytest.raises(IndexError, match=r"row -?\d+ of a split of 100 rows; allowed are 0 to 99"):
            shards.rows(indices)


def test_anything_but_an_integer_or_integers_in_one_dimension_is_a_type_error(shards):
    for index in (True, np.True_, 1.0, np.float32(1), None, "1", b"1", [1], np.array([1]), ..., {}):
        with pytest.raises(TypeError, match=r"row index .* is of type .*; an integer is needed"):
            shards[index]
    arrays = np.array([1.5]), np.zeros((0, 2), np.int64), np.array(["1"], object), np.ones(100, bool)
    for indices in (3, None, "abc", [None], [1.0], [2**70], [[1], [2]], [True, False], {1, 2}, {1: 2}, *arrays):
        with pytest.raises(TypeError, match=r"row indices .*integers in one dimension are needed"):
            shards.rows(indices)
