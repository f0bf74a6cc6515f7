"""Rows as lists, and as the columns of Examples."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import strategies as st
from toy_documents import as_lists

from albert_data.data import Examples

# ids, segment_a_len, label, masked positions and originals, document key
Row = tuple[list[int], int, int, list[tuple[int, int]], int]

ids_16 = st.integers(0, 2**16 - 1)
rows_16 = st.lists(
    st.tuples(
        st.lists(ids_16, max_size=9),
        st.integers(0, 2**31 - 1),
        st.integers(-1, 1),
        st.lists(st.tuples(ids_16, ids_16), max_size=4),
        st.integers(0, 2**64 - 1),
    ),
    max_size=8,
)


def make_examples(rows: list[Row], dtype: type = np.uint16, sources: list[int] | None = None) -> Examples:
    masks = [mask for row in rows for mask in row[3]]
    return Examples(
        input_ids=np.array([token for row in rows for token in row[0]], dtype),
        offsets=np.cumsum([0, *(len(row[0]) for row in rows)], dtype=np.int64),
        segment_a_len=np.array([row[1] for row in rows], np.int32),
        sop_label=np.array([row[2] for row in rows], np.int8),
        masked_positions=np.array([position for position, _ in masks], np.uint16),
        masked_ids=np.array([original for _, original in masks], dtype),
        mask_offsets=np.cumsum([0, *(len(row[3]) for row in rows)], dtype=np.int64),
        document_keys=np.array([row[4] for row in rows], np.uint64),
        sources=None if sources is None else np.array(sources, np.uint16),
    )


def plain(examples: Examples, dtype: type = np.uint16) -> list[Row]:
    """The rows as lists; checks the dtype of every column."""
    columns = {field.name: getattr(examples, field.name) for field in dataclasses.fields(examples)}
    sources, keys_b = columns.pop("sources"), columns.pop("document_keys_b")
    assert keys_b is None or (keys_b.dtype == np.uint64 and len(keys_b) == len(examples))
    assert sources is None or (sources.dtype == np.uint16 and len(sources) == len(examples))
    assert {name: column.dtype for name, column in columns.items()} == {
        "input_ids": dtype,
        "offsets": np.int64,
        "segment_a_len": np.int32,
        "sop_label": np.int8,
        "masked_positions": np.uint16,
        "masked_ids": dtype,
        "mask_offsets": np.int64,
        "document_keys": np.uint64,
    }
    positions = as_lists(examples.masked_positions, examples.mask_offsets)
    originals = as_lists(examples.masked_ids, examples.mask_offsets)
    masks = [list(zip(*row, strict=True)) for row in zip(positions, originals, strict=True)]
    singles = (examples.segment_a_len, examples.sop_label, examples.document_keys)
    a_len, labels, keys = (column.tolist() for column in singles)
    return list(zip(as_lists(examples.input_ids, examples.offsets), a_len, labels, masks, keys, strict=True))


def numbered_rows(count: int, start: int = 0) -> list[Row]:
    """Rows that all differ and keep to their bounds, of 2 to 8 tokens and 0 to 2 masks."""
    return [
        ([n] * (2 + n % 7), n % (1 + n % 7), n % 3 - 1, [(n % 2, n)] * (n % 3), 2**64 - 1 - n)
        for n in range(start, start + count)
    ]
