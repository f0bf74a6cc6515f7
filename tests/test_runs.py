"""The total order of rows."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_data.build.runs import KeyedRows
from albert_data.examples.ragged import Examples

Row = tuple[int, int, int, int, tuple[int, ...], int, int, tuple[int, ...]]
# Few values of each key, so that many rows agree in some or all.
rows = st.tuples(
    *(st.sampled_from((0, 1, 2**64 - 1)) for _ in range(2)),  # shuffle key, document key
    *(st.integers(0, 1) for _ in range(2)),  # pass, index
    st.lists(st.integers(0, 300), max_size=3).map(tuple),  # input_ids
    st.integers(0, 2),  # segment_a_len
    st.integers(-1, 1),  # sop_label
    st.lists(st.integers(0, 300), max_size=2).map(tuple),  # masked_ids
)


def make_rows(rows: list[Row]) -> KeyedRows:
    shuffle_keys, document_keys, passes, indices, ids, lens, labels, masked = zip(*rows, strict=True)
    masked_ids = np.array([i for one in masked for i in one], np.uint16)
    examples = Examples(
        input_ids=np.array([i for one in ids for i in one], np.uint16),
        offsets=np.cumsum([0, *map(len, ids)]),
        segment_a_len=np.array(lens, np.int32),
        sop_label=np.array(labels, np.int8),
        masked_positions=masked_ids,
        masked_ids=masked_ids,
        mask_offsets=np.cumsum([0, *map(len, masked)]),
        document_keys=np.array(document_keys, np.uint64),
    )
    return KeyedRows(
        examples=examples,
        shuffle_keys=np.array(shuffle_keys, np.uint64),
        passes=np.array(passes, np.uint16),
        indices=np.array(indices, np.uint32),
    )


def in_order(rows: list[Row]) -> list[Row]:
    return [rows[i] for i in make_rows(rows).order()]


@pytest.fixture(params=[1, 3, 1024], autouse=True, scope="module")
def _rows_compared(request: pytest.FixtureRequest):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("albert_data.build.runs._ROWS_COMPARED", request.param)
        yield


@given(st.lists(rows, min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_how_rows_stood(rows: list[Row], rng: random.Random):
    ordered = in_order(rows)
    assert [row[:4] for row in ordered] == sorted(row[:4] for row in rows)
    assert sorted(ordered) == sorted(rows)
    assert in_order(rng.sample(rows, len(rows))) == ordered
