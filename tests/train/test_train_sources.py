"""A run on text of several sources has validation figures and guesses of each of them."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from test_train_page import line, read_page, write_run
from toy_rows import SMALL, TINY, FakeShards

from albert_data.cli.main import run as run_command
from albert_data.examples.pair_tasks import PAIR_TASKS
from albert_data.runs.figures import parse_line, read_run
from albert_data.runs.page import write_run_page
from albert_data.runs.verdicts import describe_sources, describe_worst, tabulate_sources
from albert_data.runs.view import run_to_dict
from albert_data.train import loop
from albert_data.train.batch import collate
from albert_data.train.device import Ranks, choose_precision
from albert_data.train.evaluation import evaluate
from albert_data.train.guesses import choose_questions
from albert_data.train.loader import ROWS_PER_SOURCE, choose_rows, fixed_batches, fixed_shapes
from albert_data.train.model import Albert
from albert_data.train.order import choose_pack

FP32 = choose_precision("fp32", "cpu")
NAMES = ("de", "en", "he")


def give_sources(shards: FakeShards, sources: np.ndarray | list[int], names: tuple[str, ...] = NAMES) -> FakeShards:
    shards.examples = dataclasses.replace(shards.examples, sources=np.array(sources, np.uint16))
    shards.manifest = dataclasses.replace(shards.manifest, sources=names)
    return shards


@pytest.fixture
def shards(toys) -> FakeShards:
    """60 rows: two of English, 6 of German, the others of Hebrew; German's first row is the 9th."""
    sources = np.full(60, 2)
    sources[[3, 40]] = 1
    sources[8::10] = 0
    return give_sources(toys.make_shards(60, seed=3), sources)


def make_model(**settings: object) -> Albert:
    torch.manual_seed(1)
    return Albert(dataclasses.replace(SMALL, vocab_size=40, max_positions=64, **settings))


def measure_reference(model: Albert, shards: FakeShards, row: int) -> list[float]:
    """Nats, labels and hits of both heads, of one row alone."""
    batch = collate(shards.rows(np.array([row])), pad_id=0)
    model.eval()
    with torch.no_grad():
        output = model(batch)
    found: list[float] = []
    for logits, labels in (
        (output.mlm_logits_NV, batch.masked_labels_N),
        (output.sop_logits_BK, batch.sop_labels_B),
    ):
        logits, labels = logits[labels >= 0], labels[labels >= 0]
        nats = F.cross_entropy(logits, labels, reduction="sum")
        found += [float(nats), float(len(labels)), float((logits.argmax(-1) == labels).sum())]
    return found


@pytest.mark.parametrize(("num_rows", "is_packed"), [(60, False), (12, False), (12, True)])
def test_figures_by_source_are_those_of_its_rows_one_by_one_and_the_figures_of_all_those_of_the_first_rows(
    shards, num_rows, is_packed
):
    model, sums = make_model(), np.array([measure_reference(make_model(), shards, row) for row in range(60)])
    pack = {"pack": choose_pack(shards.lengths, 256)} if is_packed else {}
    found = evaluate(model, shards, FP32, num_rows=num_rows, batch_tokens=256, **pack)
    assert found["mlm_loss"] == pytest.approx(sums[:num_rows, 0].sum() / sums[:num_rows, 1].sum(), rel=1e-5)
    assert found["sop_accuracy"] == pytest.approx(sums[:num_rows, 5].sum() / sums[:num_rows, 4].sum())
    rows, sources = choose_rows(shards, num_rows), shards.examples.sources
    assert found["num_sources"] == len(found["by_source"]) == 3
    for one in found["by_source"]:
        of_rows = sums[[row for row in rows if NAMES[sources[row]] == one["name"]]]
        own = of_rows.sum(axis=0)
        assert (one["mlm_labels"], one["sop_labels"]) == (own[1], own[4])
        assert one["mlm_loss"] == pytest.approx(own[0] / own[1], rel=1e-4)
        assert one["sop_loss"] == pytest.approx(own[3] / own[4], rel=1e-4)
        assert one["mlm_accuracy"] == pytest.approx(own[2] / own[1])
        for head, (labels, hits) in {"mlm": (1, 2), "sop": (4, 5)}.items():
            judged = of_rows[of_rows[:, labels] > 0]
            if len(judged) < 10:
                assert one[f"{head}_error"] is None
                continue
            spread = sum((row[hits] - row[labels] * own[hits] / own[labels]) ** 2 for row in judged)
            by_rows = math.sqrt(spread * len(judged) / (len(judged) - 1)) / own[labels]
            share = (own[hits] + 2) / (own[labels] + 4)
            least = math.sqrt(share * (1 - share) / (own[labels] + 4))
            assert one[f"{head}_error"] == pytest.approx(max(by_rows, least))


def test_ranks_add_up_their_sources(shards, monkeypatch):
    parts: list[np.ndarray] = []

    def add_up(ranks: Ranks, values: list[float]) -> list[float]:
        if len(values) > 1:
            parts.append(np.array(values))
        return list(sum(parts)) if len(values) > 1 else list(values)

    alone = evaluate(make_model(), shards, FP32, num_rows=12, batch_tokens=256)
    monkeypatch.setattr(Ranks, "sum", add_up)
    for rank in (0, 1):
        ranks = Ranks(rank=rank, num_ranks=2)
        found = evaluate(make_model(), shards, FP32, num_rows=12, batch_tokens=256, ranks=ranks)
    assert len(parts) == 2
    assert not (parts[0] * parts[1])[:-6].any(), "each row is read by one rank"
    assert found == alone


def test_rows_without_sources_or_of_one_have_the_figures_that_they_had(toys, shards):
    plain = evaluate(make_model(), toys.make_shards(60, seed=3), FP32, num_rows=60, batch_tokens=256)
    assert "by_source" not in plain
    one = give_sources(toys.make_shards(60, seed=3), [0] * 60)
    assert evaluate(make_model(), one, FP32, num_rows=60, batch_tokens=256) == plain
    several = evaluate(make_model(), shards, FP32, num_rows=60, batch_tokens=256)
    assert {name: several[name] for name in plain} == pytest.approx(plain, rel=1e-5)


@given(
    sources=st.lists(st.sampled_from((0, 0, 0, 1, 1, 2)), min_size=1, max_size=120),
    num_rows=st.integers(1, 130),
)
def test_an_evaluation_reads_the_first_rows_and_then_as_many_at_most_of_sources_that_lack_rows(
    sources, num_rows, module_toys
):
    rows = choose_rows(give_sources(module_toys.make_shards(len(sources)), sources), num_rows).tolist()
    num_first = min(num_rows, len(sources))
    assert rows[:num_first] == list(range(num_first))
    assert rows == sorted(set(rows))
    assert len(rows) <= 2 * num_first
    there, read = Counter(sources), Counter(sources[row] for row in rows)
    lacking = {one for one in there if read[one] < min(there[one], ROWS_PER_SOURCE)}
    assert not lacking or len(rows) == 2 * num_first or len(there) == 1
    added = Counter(sources[row] for row in rows[num_first:])
    for one in lacking if len(there) > 1 else ():
        assert all(read[one] >= read[other] - 1 for other in added)


def test_the_shapes_that_a_run_compiles_are_those_of_the_rows_added_too(shards):
    given = {"num_rows": 7, "batch_tokens": 256}
    batches = list(fixed_batches(shards, **given))
    assert sorted(row for batch in batches for row in batch.rows.tolist()) == choose_rows(shards, 7).tolist()
    shapes = {(len(batch.sop_labels_B), batch.input_ids_BT.shape[1]) for batch in batches}
    assert shapes == {(shape.num_rows, shape.row_len) for shape in fixed_shapes(shards, **given)}


def test_words_to_guess_are_of_each_source_in_turn_the_largest_first(shards):
    found = choose_questions(shards, shards.tokenizer, 5)
    assert [one.source for one in found] == [("he",), ("de",), ("en",), ("he",), ("de",)]
    plain = dataclasses.replace(shards, examples=dataclasses.replace(shards.examples, sources=None))
    assert [one.source for one in choose_questions(plain, shards.tokenizer, 3)] == [()] * 3


# ---- what a run says ----


def source(name: str, loss: float, right: float, error: float = 0.01, **figures: object) -> dict[str, object]:
    mlm = {"mlm_loss": loss, "mlm_accuracy": right, "mlm_labels": 1234, "mlm_error": error}
    return {"name": name, **mlm, "sop_loss": 0.7, "sop_accuracy": 0.5, "sop_labels": 99, "sop_error": 0.02, **figures}


@pytest.mark.parametrize(
    ("sources", "told"),
    [
        ([source("he", 6.2, 0.05), source("en", 3.9, 0.32)], "knows he worst: its MLM loss is 6.200, 2.200 above"),
        ([source("he", 6.2, 0.05, 0.06)], ""),  # too few rows
        ([source("he", 6.2, 0.29, 0.01)], ""),  # within three standard errors
        ([source("he", 4.4, 0.05)], ""),
        ([source("he", 6.2, 0.29), source("zh", 5.1, 0.1)], "knows zh worst"),
        ([source("he", 6.2, None)], "knows he worst"),
        ([], ""),
    ],
)
def test_a_source_that_is_surely_and_much_worse_than_all_is_named(sources, told):
    found = describe_worst({"mlm_loss": 4.0, "mlm_accuracy": 0.3, "by_source": sources})
    assert told in found if told else not found


def test_a_table_has_eight_sources_within_80_columns_and_says_how_many_more(tmp_path):
    name = "a" * 60 + "\x1b<b>"
    sources = [source(name, 6.0, 0.1), source("xx", 9.0, 0.0, 0.2), *(source(f"s{i}", 5.0, 0.1) for i in range(9))]
    last = {"by_source": sources, "num_sources": 70}
    lines = describe_sources(last, PAIR_TASKS["sop"], "  ")
    assert len(lines) == 10
    assert lines[-1] == "  and 62 more"
    assert lines[2].split() == ["xx", "1,234", "too", "few", "rows", "to", "judge"]
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in "".join(lines)
    assert len(tabulate_sources(last, PAIR_TASKS["none"])[0]) == 5
    page = write_run_page(write_run(tmp_path / "run", [line(300, "validation", **last)]))
    text = read_page(page)
    assert "By source, the worst first" in text
    assert "<b>" in text
    assert "s8" in text


@pytest.mark.parametrize("damage", [7, "text", [7], [["en"]], {"en": 1}])
def test_a_line_whose_sources_are_none_is_no_line_of_metrics(damage):
    assert parse_line(json.dumps({"step": 1, "split": "train", "by_source": damage}).encode()) is None
    assert parse_line(json.dumps({"step": 1, "split": "train", "by_source": [{}]}).encode())
    assert describe_sources({"by_source": [{"name": 3, "mlm_loss": "x", "mlm_error": [1]}]}, PAIR_TASKS["sop"])


def test_a_run_on_sources_says_their_figures_at_its_end_on_its_page_and_with_runs(
    shards, toys, use_shards, tmp_path: Path, capsys
):
    use_shards(give_sources(toys.make_shards(40), np.arange(40) % 3), shards)
    loop.train(tmp_path, tmp_path / "run", dataclasses.replace(TINY, eval_rows=20))
    said = capsys.readouterr().err
    assert f"validation  {len(choose_rows(shards, 20))} of 60 rows" in said
    last = read_run(tmp_path / "run").last_validation
    lines = describe_sources(last, PAIR_TASKS["sop"])
    assert len(lines) == 4
    assert "\n".join(lines) in said
    assert "1. he: " in said
    assert run_command(["runs", str(tmp_path / "run")]) == 0
    assert "\n".join(f"  {one}" for one in lines) in capsys.readouterr().out
    assert run_to_dict(tmp_path / "run")["metrics"][-1]["by_source"] == last["by_source"]
    page = read_page(tmp_path / "run/report.html")
    assert "By source, the worst first; source; labels; MLM loss" in page
    assert "validation text; source; right; guessed at step 2" in page
