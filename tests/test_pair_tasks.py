"""Every reader of rows knows what their labels mean: inspect, verify, audit, convert, cards and manifests."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import numpy as np
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest
from convert_fixtures import read_mds
from refusals import check_refused

from albert_data.config import ExampleConfig
from albert_data.convert.conversion import convert_folder
from albert_data.errors import ConfigError, ShardError
from albert_data.examples.pair_tasks import NO_LABEL, PAIR_TASKS
from albert_data.inspect.audit.audit import audit_folder
from albert_data.inspect.audit.guesses import check_shares
from albert_data.inspect.audit.rows import gather_subject
from albert_data.inspect.choice import RowChoice
from albert_data.inspect.html.page import render
from albert_data.inspect.report import inspect_folder
from albert_data.inspect.verify import verify
from albert_data.shards.manifest import Manifest
from albert_data.shards.reader import open_shards
from albert_data.tokenizer.model import Tokenizer

TASKS = tuple(PAIR_TASKS)


@pytest.fixture(scope="module")
def built(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Shards of each sentence task, made when first asked for."""
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "in.txt").write_bytes(fixtures.to_txt(fixtures.make_documents(200, seed=1)))

    def build(task: str) -> Path:
        if not (folder / task).exists():
            with fixtures.small_tasks():
                fixtures.run_build(folder / "in.txt", folder / task, tokenizer, pairs=task)
        return folder / task

    return build


def labels_of(out: Path, split: str = "train") -> Counter[int]:
    return Counter(example.sop_label for example in open_shards(out, split))


# ---- settings and manifests ----


def test_an_unknown_task_is_refused_with_those_that_are_allowed():
    named = "pairs is 'mlm'; allowed are sop, nsp, order3, none"
    check_refused(lambda: ExampleConfig(pairs="mlm"), ConfigError, named)


@pytest.mark.parametrize("task", TASKS)
def test_a_build_is_sound_and_its_manifest_keeps_its_task(task, built):
    manifest = open_shards(built(task)).manifest
    assert manifest.config.examples.pairs == task
    assert Manifest.from_values(values := manifest.to_values()) == manifest
    others = [name for name in ("label_names", "num_random", "document_key_b") if name in json.dumps(values)]
    assert not others or task != "sop", "the standard task needs no keys of other tasks"
    assert list(verify(built(task))) == []


# ---- inspect ----


@pytest.mark.parametrize("task", TASKS)
def test_inspect_counts_each_label(task, built):
    report, orders = inspect_folder(built(task), split="train", choice=RowChoice(count=3)), PAIR_TASKS[task].orders
    labels, statistics = labels_of(built(task)), report.statistics["train"]
    assert statistics.label_counts == (*(labels[i] for i in range(len(orders))), labels[NO_LABEL])
    figures = {figure.name: figure for figure in statistics.figures}
    num_pairs = sum(statistics.label_counts[:-1])
    for label, order in enumerate(orders[1:], 1):
        assert figures[f"{order}_share"].intended == 1 / len(orders)
        assert figures[f"{order}_share"].realised == labels[label] / num_pairs
    assert {"swapped_share", "random_share"} & figures.keys() == {f"{order}_share" for order in orders[1:]}
    values = report.to_dict()["statistics"]["train"]
    assert [values[f"num_{order.replace(' ', '_')}"] for order in orders] == [labels[i] for i in range(len(orders))]
    assert report.to_text()
    assert render(report)


def test_a_row_of_two_documents_names_both(built):
    shards = open_shards(built("nsp"))
    row = next(row for row, example in enumerate(shards) if example.sop_label == 1)
    report = inspect_folder(built("nsp"), split="train", choice=RowChoice(count=1, numbers=(row,)))
    shown, example = " ".join(report.to_text(width=1000).split()), shards[row]
    assert f"row {row:,}: random: B is of another document" in shown
    assert f"document {example.document_key:016x}, B of document {example.document_key_b:016x}" in shown
    assert report.to_dict()["examples"][0]["document_key_b"] == f"{example.document_key_b:016x}"
    page = render(report)
    assert f'"b":"{example.document_key_b:016x}"' in page
    assert 'title="random: B is of another document"' in page


# ---- verify and reading ----


def change_column(built: Path, out: Path, column: str, change: Callable[[np.ndarray], Any]) -> list[str]:
    """Copy a folder with another column in its training shard; the faults that verify then finds in its rows."""
    shutil.copytree(built, out, dirs_exist_ok=True)
    path = out / "train/shard-00000.arrow"
    table = pyarrow.ipc.open_file(path.read_bytes()).read_all()
    number = table.schema.names.index(column)
    values = change(table.column(column).to_numpy().copy())
    table = table.set_column(number, table.schema.field(number), pyarrow.array(values, table.schema.field(number).type))
    with pyarrow.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    return [str(fault) for fault in verify(out) if fault.row is not None]


def test_a_label_that_contradicts_the_keys_is_a_fault(built, tmp_path):
    faults = change_column(built("nsp"), tmp_path, "sop_label", lambda labels: np.where(labels == 1, 0, labels))
    assert "sop_label is 0, in order, but document_key_b says otherwise" in faults[0]


def test_a_second_document_of_the_validation_split_is_a_fault(built, tmp_path):
    key = open_shards(built("nsp"), "validation")[0].document_key
    row = next(row for row, example in enumerate(open_shards(built("nsp"))) if example.sop_label == 1)
    is_row = np.arange(len(open_shards(built("nsp")))) == row
    faults = change_column(built("nsp"), tmp_path, "document_key_b", lambda keys: np.where(is_row, key, keys))
    assert faults == [
        f"train/shard-00000.arrow, row {row}: its document is in the validation split too; allowed is one split"
    ]


@pytest.mark.parametrize(
    ("task", "label", "message"),
    [
        ("nsp", 2, "sop_label is 2; allowed are 0, 1 and -1"),
        ("order3", 3, "sop_label is 3; allowed are 0, 1, 2 and -1"),
        ("none", 0, "sop_label is 0; allowed are -1"),
    ],
)
def test_a_label_that_the_task_lacks_is_refused(task, label, message, built, tmp_path):
    faults = change_column(built(task), tmp_path, "sop_label", lambda labels: np.full_like(labels, label))
    assert message in faults[0]
    manifest = open_shards(built(task)).manifest.to_values()
    path = tmp_path / "train/shard-00000.arrow"
    manifest["splits"]["train"]["shards"][0]["num_bytes"] = path.stat().st_size
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ShardError, match=message):
        open_shards(tmp_path)[0]


def test_rows_by_number_have_the_second_key(built):
    shards = open_shards(built("order3"))
    numbers = np.arange(len(shards))[::-7]
    rows = shards.rows(numbers)
    assert rows.document_keys_b is not None
    assert rows.document_keys_b.tolist() == [shards[int(number)].document_key_b for number in numbers]
    assert shards.rows(numbers[:0]).document_keys_b is not None
    assert open_shards(built("none")).rows(np.arange(3)).document_keys_b is None


# ---- audit ----


@pytest.mark.parametrize("task", TASKS)
def test_the_audit_asks_what_the_task_has(task, built):
    names, orders = {check.rule.name for check in audit_folder(built(task)).checks}, PAIR_TASKS[task].orders
    assert ("order_from_lengths" in names) == ("swapped" in orders)
    assert ("equal_segments" in names) == ("label_shares" in names) == bool(orders)


def test_labels_of_other_shares_are_found(built):
    subject = gather_subject([open_shards(built("nsp"))])
    subject.facts.labels[subject.facts.labels >= 0] = 0
    assert check_shares(subject.facts, subject.config.task.orders).verdict == "bad"


# ---- converting and cards ----


@pytest.mark.parametrize("task", TASKS)
def test_parquet_names_the_labels_of_the_task(task, built, tmp_path):
    convert_folder(built(task), tmp_path / "out", "parquet", fixtures.InlineEngine())
    table = pyarrow.parquet.read_table(next((tmp_path / "out").glob("data/train-*")))
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    names = [order.replace(" ", "_") for order in PAIR_TASKS[task].orders]
    assert features["sop_label"].get("names", []) == names
    assert Counter(table.column("sop_label").to_pylist()) == labels_of(built(task))
    assert ("document_key_b" in table.schema.names) == PAIR_TASKS[task].has_random


@pytest.mark.parametrize("task", ["nsp", "none"])
def test_mds_has_the_second_key(task, built, tmp_path):
    names = ("document_key", "document_key_b", "sop_label", "segment_a_len")
    convert_folder(built(task), tmp_path / "out", "mds", fixtures.InlineEngine())
    samples = read_mds(tmp_path / "out" / "train")
    expected = [tuple(getattr(example, name) for name in names) for example in open_shards(built(task))]
    assert [tuple(map(sample.get, names)) for sample in samples] == expected


@pytest.mark.parametrize("task", TASKS)
def test_the_dataset_card_describes_the_rows(task, built):
    card = (built(task) / "README.md").read_text()
    labels = "".join(f"{label} {PAIR_TASKS[task].describe(label)}; " for label in range(len(PAIR_TASKS[task].orders)))
    assert f"| `sop_label` | {labels}-1 no segment B |" in card
    assert ("A [SEP] B" in card) == bool(labels)
    assert ("document_key_b" in card) == PAIR_TASKS[task].has_random
    assert all(f'"{tag}"' in card.split("---\n")[1] for tag in PAIR_TASKS[task].tags)
