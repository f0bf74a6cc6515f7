"""Rows as a table of Arrow, a DataFrame, tensors, and as text for a notebook."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from inspect_fixtures import write_folder

import albert_data
from albert_data.errors import ShardError
from albert_data.shards.decoding import Example
from albert_data.shards.reader import Shards, open_shards


@pytest.fixture
def shards(finished: Path) -> Shards:
    return open_shards(finished)


def test_a_table_has_the_rows_in_order(shards: Shards):
    table = shards.to_arrow().to_pylist()
    assert len(table) == len(shards) > 3
    for there, here in zip(table, shards, strict=True):
        assert there["input_ids"] == here.input_ids.tolist()
        assert there["masked_ids"] == here.masked_ids.tolist()
        assert (there["segment_a_len"], there["document_key"]) == (here.segment_a_len, here.document_key)


def test_a_split_without_rows_is_a_table_without_rows(tmp_path: Path, shards: Shards):
    empty = open_shards(write_folder(tmp_path, {}), "validation").to_arrow()
    assert (empty.num_rows, empty.schema.names) == (0, shards.to_arrow().schema.names)


def test_a_data_frame_has_the_rows(shards: Shards):
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = shards.to_pandas()
    assert list(frame["input_ids"][3]) == shards[3].input_ids.tolist()
    assert frame["sop_label"].tolist() == [row.sop_label for row in shards]


def test_tensors_have_the_rows(shards: Shards):
    torch = pytest.importorskip("torch", reason="the train extra is not installed")
    found = shards.to_torch()
    assert {one.dtype for one in found.values()} == {torch.int64}
    for name, offsets in (("input_ids", "offsets"), ("masked_positions", "mask_offsets")):
        lists = found[name].tensor_split(found[offsets][1:-1])
        assert [one.tolist() for one in lists] == [getattr(row, name).tolist() for row in shards]
    keys = found["document_keys"].numpy().view(np.uint64)
    assert keys.tolist() == [row.document_key for row in shards]


def test_a_row_shows_its_text_and_what_is_to_be_predicted(shards: Shards):
    row = next(row for row in shards if len(row.masked_ids))
    page = row._repr_html_()
    assert page is not None
    assert page.count("<mark ") == len(row.masked_positions)
    assert f"{len(row.masked_positions)} masked" in page
    assert shards._repr_html_().count("<b>A</b>") == 3
    copied = pickle.loads(pickle.dumps(row))
    assert isinstance(copied, Example)
    assert copied._repr_html_() is None
    assert repr(copied) == repr(row)


def test_text_and_names_are_escaped_in_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    text = "".join(f"One <script>alert({n})</script> & more & more. Two <b>bold</b> words {n}.\n\n" for n in range(200))
    Path("a.txt").write_text(text)
    albert_data.train_vocab("a.txt", "vocab", vocab_size=110, model_type="bpe", workers=1)
    albert_data.build("a.txt", "<i>out", tokenizer="vocab", max_seq_len=48, workers=1)
    opened = open_shards("<i>out")
    pages = [opened._repr_html_(), opened[0]._repr_html_() or ""]
    assert all("<script" not in page and "<i>" not in page for page in pages)
    assert "&lt;" in pages[1]
    for found in (albert_data.audit_shards("<i>out"), albert_data.inspect_shards("<i>out")):
        frame = found._repr_html_()
        assert frame.startswith('<iframe srcdoc="')
        assert frame.count("<") == 2, "the page is an attribute of the frame"


def test_a_damaged_row_is_an_error_before_it_is_a_tensor(shards: Shards, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch", reason="the train extra is not installed")

    def refuse(*given: object) -> None:
        raise ShardError("row 3")

    monkeypatch.setattr(shards, "_check_rows", refuse)
    with pytest.raises(ShardError, match="row 3"):
        shards.to_torch()
