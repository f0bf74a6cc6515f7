"""Receipts: what was written is read again, and anything else counts as missing."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from albert_data.corpus.damage import Damage
from albert_data.jobs.receipts import read_receipt, write_receipt
from albert_data.jobs.stages import Stages
from albert_data.pipeline.merge_rows import MadeShard
from albert_data.pipeline.shard_plan import ShardTask
from albert_data.shards.schema import ShardReceipt
from albert_data.survey.document_lists import DocumentList
from albert_data.survey.made import Dropped, Made
from albert_data.survey.near_duplicates import NearDuplicates
from albert_data.survey.parts import SignedPart

SHARD = ShardReceipt(num_rows=1, num_tokens=2, num_masked=3, num_unpaired=4, num_bytes=5, sha256="a")


def make_receipt() -> Made:
    damage = Damage()
    with damage.inputs.reading("a.jsonl", is_part=True):
        damage.add("missing_field", "a.jsonl", 7)
        damage.add_fields("a.jsonl", {"body": "text"})
    damage.add_names({"web", "books"})
    damage.remove("repeated_lines", [b"page 1", b"page 2"])
    damage.look_for("score", True)
    damage.look_for("lang", False)
    receipt = Made(
        fingerprint="plan",
        runs=["a.run"],
        lists=[DocumentList("a", 1, 2)],
        parts=[SignedPart("a", 3, 4)],
        counts=Counter(documents=1),
        damage=damage,
        digest=2**64 - 1,
        least={"a.run": 2**64 - 1},
        source_codes={9, 3, 2**32 - 1},
        found=np.array([2**64 - 1], np.uint64),
        dropped=Dropped(1, 2, 3, 2**64 - 1),
        seconds=Stages(read=0.1),
    )
    receipt.sizes.nearest.add(np.array([2**64 - 1], np.uint64), np.array([100]))
    return receipt


def test_the_receipt_of_a_task_is_read_as_it_was_written(tmp_path):
    written, path = make_receipt(), tmp_path / "receipt.json"
    write_receipt(path, written, sync=False)
    read = read_receipt(path, Made)
    assert read is not None
    for name, value in vars(written).items():
        if name not in ("sizes", "found"):
            assert (getattr(read, name), type(getattr(read, name))) == (value, type(value))
    assert (read.found.dtype, read.found.tolist()) == (np.uint64, [2**64 - 1])
    nearest, samples = read.sizes.nearest, read.sizes.samples
    assert nearest.hashes.tolist() == [2**64 - 1]
    assert (nearest.sizes.tolist(), nearest.limit) == ([100], written.sizes.nearest.limit)
    assert {split: sample.count() for split, sample in samples.items()} == {"train": 0, "validation": 0}
    read.add(make_receipt())  # of the types that it needs to be added up
    assert (read.counts["documents"], read.seconds["read"], len(read.lists)) == (2, 0.2, 2)


@pytest.mark.parametrize(
    "written",
    [
        MadeShard(
            task=ShardTask(split="train", shard=0, num_shards=1, num_slices=1, slice_bytes=1, seal="0"),
            shard=SHARD,
            dropped=Dropped(),
            left_out=Dropped(1, 2, 3, 4),
            source_tokens=(2**40,),
        ),
        NearDuplicates(file="a.keys", digest=2**64 - 1, documents=Counter({2**32 - 1: 2}), pairs=[(2**64 - 1, 1, 0.9)]),
    ],
)
def test_other_receipts_are_read_as_they_were_written(tmp_path, written):
    write_receipt(tmp_path / "receipt.json", written)
    assert read_receipt(tmp_path / "receipt.json", type(written)) == written


def test_a_receipt_that_is_missing_changed_or_of_another_kind_counts_as_none(tmp_path):
    path = tmp_path / "receipt.json"
    assert read_receipt(path, Made) is None
    write_receipt(path, SHARD)
    assert read_receipt(path, MadeShard) is None
    assert read_receipt(path, list[str]) is None
    assert read_receipt(path, ShardReceipt) == SHARD
    changed = path.read_bytes().replace(b'"num_rows": 1', b'"num_rows": 2')
    for content in (changed, b"", b"{}", b"[]", b"{", b"[" * 10**5, b'{"values": {}, "sha256": 1}'):
        path.write_bytes(content)
        assert read_receipt(path, ShardReceipt) is None
