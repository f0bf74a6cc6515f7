"""Write rows to Arrow files: shards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.ipc

from albert_data.examples.ragged import Examples
from albert_data.files import HashingFile, replace_file
from albert_data.shards.schema import to_record_batch


@dataclass(frozen=True, kw_only=True)
class ShardReceipt:
    """What a written shard holds, for the manifest. num_unpaired: rows without a second segment.

    sha256: of the file, in hexadecimal.
    """

    num_rows: int
    num_tokens: int
    num_masked: int
    num_unpaired: int
    num_bytes: int
    sha256: str


def write_shard(path: Path, batches: Iterable[Examples], schema: pyarrow.Schema, compression: str) -> ShardReceipt:
    """Write one Arrow file, a record batch for each of `batches`; equal rows make equal bytes. It is not synced."""
    options = pyarrow.ipc.IpcWriteOptions(compression=None if compression == "none" else compression, use_threads=False)
    counts = np.zeros(4, np.int64)
    with replace_file(path, sync=False) as file:
        hashing = HashingFile(file)
        sink = pyarrow.PythonFile(hashing, mode="w")
        with pyarrow.ipc.new_file(sink, schema, options=options) as writer:
            for examples in batches:
                writer.write_batch(to_record_batch(examples, schema))
                num_unpaired = int(np.count_nonzero(examples.sop_label < 0))
                counts += (len(examples), len(examples.input_ids), len(examples.masked_ids), num_unpaired)
        sink.flush()
    num_rows, num_tokens, num_masked, num_unpaired = (int(count) for count in counts)
    return ShardReceipt(
        num_rows=num_rows,
        num_tokens=num_tokens,
        num_masked=num_masked,
        num_unpaired=num_unpaired,
        num_bytes=hashing.num_bytes,
        sha256=hashing.hexdigest(),
    )
