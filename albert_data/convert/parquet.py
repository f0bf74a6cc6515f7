"""Parquet files for Hugging Face datasets, and the dataset card: `datasets.load_dataset(DIR)` gives typed columns.

The labels are ClassLabels, which datasets keeps as int64: `sop_label`, and `source` where the rows have one. A row
without a pair keeps the label -1, which datasets takes for "no label". Without a sentence task `sop_label` is a number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from albert_data.convert.writers import ConvertTask, ShardFolder, SplitFiles, Writer, WrittenFile, new_file
from albert_data.data import Examples
from albert_data.shards.card import make_dataset_card
from albert_data.shards.packing import ROW_STARTS, PackedExamples
from albert_data.shards.paths import CARD_NAME
from albert_data.shards.rows import mark_segment_b, restore_ids
from albert_data.shards.schema import SOURCE, shard_schema, to_record_batch

_PART_BYTES = 64 << 20
# Of what pyarrow 15 writes and every reader of Parquet reads, this keeps ids in about as many bits as they need, at 1.4
# times the speed of a dictionary. Compressing the result saves 3 to 8 % of its bytes and takes longer.
_BATCH_VALUES = 1 << 16  # encoded at once: 6 % faster than pyarrow's 1,024
# The types that datasets itself chooses for what a tokenizer of transformers returns.
_UNMASKED = [
    pyarrow.field(name, pyarrow.list_(type))
    for name, type in (("input_ids", pyarrow.int32()), ("attention_mask", pyarrow.int8()))
]
_SEGMENTS = [pyarrow.field("token_type_ids", pyarrow.list_(pyarrow.int8())), pyarrow.field("sop_label", pyarrow.int8())]
_PACKED = "DELTA_BINARY_PACKED"
_LOAD = """\
    import datasets
    examples = datasets.load_dataset(".", split="{}")"""


class ParquetWriter(Writer):
    """One file for each shard, under the names of the Hugging Face Hub: data/train-00000-of-00012.parquet."""

    def __init__(self, source: ShardFolder, *, unmasked: bool = False) -> None:
        """unmasked: write the original ids, in the columns that transformers' collators read."""
        manifest = source.manifest
        self._manifest, self._is_plain = manifest, not unmasked and source.pack is None
        task = manifest.config.examples.task
        self._shard_schema = shard_schema(source.id_dtype, **manifest.optional_columns)
        if unmasked:
            self._shard_schema = pyarrow.schema(_UNMASKED + (_SEGMENTS if task.orders else []))
        if source.pack is not None:
            kept = [field for field in self._shard_schema if pyarrow.types.is_list(field.type)]
            columns = {field.name: pyarrow.list_(field.type.value_type) for field in kept}
            self._shard_schema = pyarrow.schema({**columns, ROW_STARTS: pyarrow.list_(pyarrow.int32())})
        names = {"sop_label": tuple(order.replace(" ", "_") for order in task.orders), SOURCE: manifest.sources}
        labels = {column: found for column, found in names.items() if found}
        # datasets takes the features of a column that may hold nulls, as its own do; of others only the type.
        fields = [
            pyarrow.field(field.name, pyarrow.int64()) if field.name in labels else field
            for field in self._shard_schema
        ]
        info = {"info": {"features": {field.name: _describe(field, labels) for field in self._shard_schema}}}
        self._schema = pyarrow.schema(fields, metadata={"huggingface": json.dumps(info)})
        self._labels = list(labels)
        self.max_rows = source.count_rows(_PART_BYTES)

    def write(self, work: Path, task: ConvertTask, parts: Iterable[Examples]) -> list[WrittenFile]:
        name = f"data/{task.split}-{task.number:05d}-of-{task.count:05d}.parquet"
        lists = [field.name for field in self._schema if pyarrow.types.is_list(field.type)]
        num_rows = 0
        with new_file(work, name) as file:
            sink = pyarrow.PythonFile(file, mode="w")
            with pyarrow.parquet.ParquetWriter(
                sink,
                self._schema,
                compression="none",
                write_batch_size=_BATCH_VALUES,
                use_dictionary=self._labels,
                column_encoding={f"{column}.list.element": _PACKED for column in lists},
                write_statistics=False,  # of ids and keys they say nothing
            ) as writer:
                for rows in parts:
                    batch = self.encode(rows)  # held while the next one is made: freed memory costs page faults
                    writer.write_batch(batch)
                    num_rows += len(rows)
            sink.flush()
        return [WrittenFile(name=name, num_rows=num_rows, num_bytes=file.num_bytes, hash=file.hexdigest())]

    def encode(self, rows: Examples) -> pyarrow.RecordBatch:
        batch = (to_record_batch if self._is_plain else _to_lists)(rows, self._shard_schema)
        columns = [column.cast(field.type) for column, field in zip(batch.columns, self._schema, strict=True)]
        return pyarrow.record_batch(columns, schema=self._schema)

    def describe(self, files: SplitFiles) -> dict[str, bytes]:
        """The dataset card."""
        load = _LOAD.format(next(iter(files)))
        splits = {split: {"rows": sum(entry.num_rows for entry in entries)} for split, entries in files.items()}
        return {CARD_NAME: make_dataset_card(self._manifest, self._schema.names, splits, "data/{}-*", load)}


def _to_lists(rows: Examples, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    """Rows without masks, or packs, in the columns of `schema`. Without masked_ids input_ids are the original ids."""
    is_masked, offsets = "masked_ids" in schema.names, rows.offsets
    values = {
        "input_ids": (offsets, rows.input_ids if is_masked else restore_ids(rows).astype(np.int32)),
        "attention_mask": (offsets, np.ones(len(rows.input_ids), np.int8)),
        "token_type_ids": (offsets, mark_segment_b(rows).astype(np.int8)),
        "masked_positions": (rows.mask_offsets, rows.masked_positions),
        "masked_ids": (rows.mask_offsets, rows.masked_ids),
    }
    if isinstance(rows, PackedExamples):
        values[ROW_STARTS] = (rows.row_offsets, rows.row_starts)
    columns = [
        rows.sop_label
        if name == "sop_label"
        else pyarrow.ListArray.from_arrays(values[name][0].astype(np.int32), values[name][1])
        for name in schema.names
    ]
    return pyarrow.record_batch(columns, schema=schema)


def _describe(field: pyarrow.Field, labels: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """A column as datasets describes it. Version 4 writes List, but every version reads Sequence."""
    if field.name in labels:
        return {"names": list(labels[field.name]), "_type": "ClassLabel"}
    if pyarrow.types.is_list(field.type):
        return {"feature": {"dtype": str(field.type.value_type), "_type": "Value"}, "_type": "Sequence"}
    return {"dtype": str(field.type), "_type": "Value"}
