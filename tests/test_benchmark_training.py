"""The benchmark of training runs at a tiny size, gives both contenders the same batch, and reports every figure."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from albert_data.train.batch import collate
from albert_data.train.config import MODEL_PRESETS, AlbertConfig
from albert_data.train.model import Albert
from benchmarks import training
from benchmarks.results import Results
from benchmarks.training_command import train
from benchmarks.training_report import write_report
from benchmarks.training_rows import OURS, TRANSFORMERS, Ceiling, Speed, Training, read_row

torch = pytest.importorskip("torch")
WHERE = {"where": "NVIDIA H200", "precision": "bf16"}
SMALL = AlbertConfig(vocab_size=300, embedding_size=16, hidden_size=32, num_layers=2, num_heads=2, ffn_size=64)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(train, [str(argument) for argument in arguments])


def test_the_parts_for_a_cpu_are_measured_and_reported(tmp_path, monkeypatch):
    for preset in ("tiny", "mini"):
        monkeypatch.setitem(MODEL_PRESETS, preset, SMALL)
    monkeypatch.setattr("albert_data.train.device.BF16_FLAGS", ())  # fp32 alone, on any processor
    monkeypatch.setitem(training.CEILING_SHAPES, "cpu", ((64, 64, 64),))
    few = ("--device", "cpu", "--threads", 1, "--runs", 2, "--seconds", 0.01, "--batch-cells", 512, "--no-compile")
    page = tmp_path / "training-speed.md"
    done = run(*few, "--only", "ceiling,speed-128", "-o", page)
    assert done.exit_code == 0, done.output
    parts = json.loads(page.with_suffix(".json").read_text())["parts"]
    rows = parts["speed-128 tiny on CPU, 1 thread"]["rows"]
    assert (rows[0]["contender"], len(rows[0]["seconds"])) == (OURS, 2)
    text = page.read_text(encoding="utf-8")
    assert "## CPU, 1 thread" in text
    for row in rows:
        assert f"| tiny | 4 x 128 | {row['contender']} | fp32 |" in text
    assert str(tmp_path) not in text, "no folder of the machine"
    assert run(*few, "--only", "speed-512", "-o", page).exit_code == 0
    assert "| tiny | 1 x 512 |" in page.read_text(encoding="utf-8")
    assert "| tiny | 4 x 128 |" in page.read_text(encoding="utf-8"), "what was measured before stays"


def test_batches_are_nearly_full_and_sound():
    batch = collate(training.make_examples(SMALL, 6, 128), pad_id=training.PAD)
    ids, valid = batch.input_ids_BT, batch.valid_BT
    assert ids.shape == (6, 128)
    assert batch.num_tokens == valid.sum() >= 6 * 120
    assert (ids[~valid] == training.PAD).all()
    assert (ids[:, 0] == training.CLS).all()
    assert ((ids == training.SEP).sum(1) == 2).all()
    assert (ids.view(-1)[batch.masked_indices_N] == training.MASK).all()
    assert len(batch.masked_labels_N) == (ids == training.MASK).sum()
    assert len(batch.masked_labels_N) == pytest.approx(0.15 * batch.num_tokens, rel=0.05)
    assert (batch.masked_labels_N >= training.FIRST_ORDINARY).all()
    assert set(batch.sop_labels_B.tolist()) <= {0, 1}
    assert ((batch.segment_ids_BT == 1).sum(1) > 50).all()


def test_transformers_is_given_the_same_batch():
    pytest.importorskip("transformers")

    batch = collate(training.make_examples(SMALL, 3, 128), pad_id=training.PAD)
    inputs = training.their_inputs(batch)
    flat = inputs["labels"].view(-1)
    assert (flat != -100).nonzero().flatten().tolist() == batch.masked_indices_N.tolist()
    assert flat[batch.masked_indices_N].tolist() == batch.masked_labels_N.tolist()
    assert inputs["attention_mask"].sum() == batch.num_tokens
    theirs, loss_of = training.make_theirs(SMALL, batch, is_compiled=False)
    assert sum(one.numel() for one in theirs.parameters()) == sum(one.numel() for one in Albert(SMALL).parameters())
    assert torch.isfinite(loss_of())


def test_packed_rows_give_the_loss_of_padded_ones():
    examples = training.make_examples(SMALL, 11, 64)
    losses = []
    for batch in (collate(examples, pad_id=training.PAD), training.pack_rows(examples, 64)):
        torch.manual_seed(0)
        losses.append(training.make_ours(SMALL, batch, is_compiled=False)[1]().item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def speed(contender: str, *seconds: float, model: str = "base", missing: str | None = None) -> Speed:
    shape = {"model": model, "row_len": 512, "num_rows": 8, "num_tokens": 4000, "flops": 10**14}
    figures = {"is_compiled": True, "seconds": seconds, "first_seconds": 12.5, "peak_bytes": 3 * 10**9}
    return Speed(**WHERE, **shape, **figures, contender=contender, missing=missing)


def test_each_kind_of_row_is_kept_and_finds_its_place_in_the_page(tmp_path):
    ceiling = Ceiling(**WHERE, shape=(10_000, 10_000, 10_000), seconds=(0.0025,), peak_flops=989.4e12)
    figures = {"mlm_loss": 3.25, "mlm_accuracy": 0.4, "sop_loss": 0.5, "sop_accuracy": 0.8}
    curve = [{"step": step, **figures} for step in range(100, 4000, 100)]
    times = {"minutes": 10, "wall_seconds": 630, "last_step": 3900, "tokens_per_second": 1e6, "mfu": 0.45}
    made = Training(**WHERE, **times, preset="base", unigram_loss=6.7, curve=curve)
    results = Results(tmp_path / "training-speed.json", read_row)
    results.record("ceiling", "command", [ceiling])
    lost = speed(TRANSFORMERS, model="xxlarge", missing="out of memory")
    results.record("speed", "command", [speed(OURS, 0.2), speed(TRANSFORMERS, 0.5), lost])
    results.record("run", "command", [made])
    again = Results(results.path, read_row)
    assert again.parts == results.parts, "what was written is what is read"
    write_report(again, tmp_path / "training-speed.md")
    text = (tmp_path / "training-speed.md").read_text(encoding="utf-8")
    assert "bf16 product of 10000 x 10000 x 10000: 800 TFLOP/s, 81% of the published peak." in text
    head = "| base | 8 x 512 | albert-data | bf16, compiled |"
    assert f"{head} 20,000 | – | 500 | 51% | 62% | 60% of ceiling | 12.5 | 0 | 3.0 |" in text
    assert "| base | 8 x 512 | transformers | bf16, compiled | 8,000 | 2.50x | 200 |" in text
    assert "| xxlarge | 8 x 512 | transformers | bf16, compiled | out of memory | – |" in text
    assert "3,900 steps in 10.5 minutes from start to end, 1,000,000 tokens/s, MFU 45%." in text
    assert "an MLM loss of 6.700" in text
    assert "| 3,900 | 3.250 | 40.0% | 0.500 | 80.0% |" in text
    assert text.count("| 3.250 |") <= 15
