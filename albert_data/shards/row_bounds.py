"""Whether every length, position and id of a row is in range.

In: rows of a shard, in any state. Out: the rows that leave their bounds (unsound rows), with the fault of each. Code
that follows the lengths, positions and ids of a sound row never reads outside an array. `Shards`, training and `verify`
all ask here. Whether a row is also one that a build can make is checked by `verify` alone (inspect/row_checks.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from albert_data.data import ExampleArrays, Examples
from albert_data.kernels import kernel
from albert_data.shards.manifest import Manifest

SOUND, LENGTH, SEGMENT, LABEL, POSITION, MASKED_ID, TOKEN_ID, SOURCE = range(8)
MIN_LEN = 2  # [CLS] and [SEP]

_MESSAGES = {
    LENGTH: "it has {value:,} tokens; allowed are {least} to {max_seq_len:,}",
    SEGMENT: "segment_a_len is {value:,}; allowed are 0 to {longest:,}",
    LABEL: "sop_label is {value}; allowed are {labels}",
    POSITION: "masked_positions[{at}] is {value:,}; allowed are 0 to {last:,}",
    MASKED_ID: "masked_ids[{at}] is {value:,}; allowed are ids below {vocab_size:,}",
    TOKEN_ID: "token {at} has the id {value:,}; allowed are ids below {vocab_size:,}",
    SOURCE: "source is {value}; the manifest lists {num_sources} under `sources`",
}


class RowFault(NamedTuple):
    """The first rule that a row breaks. at: the number of the token or mask in the row; length: tokens of the row."""

    row: int
    code: int
    at: int
    value: int
    length: int


class Bounds(NamedTuple):
    """Ids are below vocab_size, rows have at most max_seq_len tokens, sources and labels are below these numbers."""

    vocab_size: int
    max_seq_len: int
    num_sources: int = 0
    num_labels: int = 2

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Bounds:
        return cls(
            vocab_size=manifest.tokenizer.vocab_size,
            max_seq_len=manifest.config.examples.max_seq_len,
            num_sources=len(manifest.sources or ()),
            num_labels=len(manifest.config.examples.task.orders),
        )

    def find_faults(self, rows: Examples) -> Iterator[RowFault]:
        """Each row that leaves its bounds, in order."""
        # One maximum over all ids, eight or more at a time, is much faster than a comparison and a branch for each.
        highest = max(int(ids.max(initial=0)) for ids in (rows.input_ids, rows.masked_ids))
        row = 0
        while row < len(rows):
            fault = RowFault(*find_unsound(rows.arrays, self, row, highest >= self.vocab_size))
            if fault.code == SOUND:
                return
            yield fault
            row = fault.row + 1

    def explain(self, fault: RowFault) -> str:
        """What is wrong with a row, the value found and what is allowed."""
        return _MESSAGES[fault.code].format(
            **fault._asdict(),
            **self._asdict(),
            least=MIN_LEN,
            longest=fault.length - MIN_LEN,
            last=fault.length - 1,
            labels=" and ".join([", ".join(map(str, range(self.num_labels))), "-1"] if self.num_labels else ["-1"]),
        )


@kernel
def find_unsound(rows: ExampleArrays, bounds: Bounds, first: int, checks_ids: bool) -> tuple[int, int, int, int, int]:
    """The first unsound row from row `first` on, as the fields of RowFault; row -1 and SOUND if there is none.

    checks_ids: False if the caller knows that all ids are below vocab_size.
    """
    for row in range(first, len(rows.segment_a_len)):
        begin, end, first_mask = rows.offsets[row], rows.offsets[row + 1], rows.mask_offsets[row]
        length, a_len, label = end - begin, rows.segment_a_len[row], rows.sop_label[row]
        if length < MIN_LEN or length > bounds.max_seq_len:
            return row, LENGTH, 0, length, length
        if a_len < 0 or a_len > length - MIN_LEN:
            return row, SEGMENT, 0, a_len, length
        if label < -1 or label >= bounds.num_labels:
            return row, LABEL, 0, label, length
        # Positions, ids and sources are unsigned, so only their upper bounds are compared.
        for i in range(first_mask, rows.mask_offsets[row + 1]):
            if rows.masked_positions[i] >= length:
                return row, POSITION, i - first_mask, rows.masked_positions[i], length
            if checks_ids and rows.masked_ids[i] >= bounds.vocab_size:
                return row, MASKED_ID, i - first_mask, rows.masked_ids[i], length
        if checks_ids:
            for at in range(begin, end):
                if rows.input_ids[at] >= bounds.vocab_size:
                    return row, TOKEN_ID, at - begin, rows.input_ids[at], length
        # `sources` is empty where the shards have no such column.
        if len(rows.sources) > 0 and rows.sources[row] >= bounds.num_sources:
            return row, SOURCE, 0, rows.sources[row], length
    return -1, SOUND, 0, 0, 0
