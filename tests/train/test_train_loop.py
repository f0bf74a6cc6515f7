"""A run learns, writes its figures, and evaluates only on rows that it does not train on.

An update with a gradient that is not finite is skipped and counted; ten in a row, or lost weights, end the run.
"""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import math
from collections import Counter

import numpy as np
import pytest
import torch
import torch.profiler
import toy_rows
from hypothesis import given
from hypothesis import strategies as st
from shard_fixtures import write_like

from albert_data.errors import AlbertDataError, ConfigError
from albert_data.shards import reader
from albert_data.train import loop, state
from albert_data.train.attention import AttentionChoice
from albert_data.train.checkpoint import list_checkpoints, load_checkpoint, load_model
from albert_data.train.device import ALONE, Precision, choose_precision
from albert_data.train.evaluation import evaluate, judge_accuracy, measure_baseline
from albert_data.train.loader import ShardLoader
from albert_data.train.model import Albert
from albert_data.train.optimizer import make_optimizer
from albert_data.train.state import choose_shape, start_session
from albert_data.train.update import update

TINY = dataclasses.replace(toy_rows.TINY, precision="fp32", remask=False)
FP32 = choose_precision("fp32", "cpu")
FP16 = Precision(device=torch.device("cpu"), device_info="test", format="fp16", format_reason="test")


@pytest.fixture
def train(toys, use_shards, tmp_path):
    """Train on 40 rows, with validation rows if the test says so; returns the last checkpoint."""

    def call(*, name: str = "run", num_validation: int = 0, **settings):
        use_shards(toys.make_shards(40), toys.make_shards(num_validation, seed=1) if num_validation else None)
        return loop.train(tmp_path / "out", tmp_path / name, dataclasses.replace(TINY, **settings))

    return call


@pytest.mark.parametrize(
    ("settings", "most"), [({"lr": 1e-2, "steps": 160}, 1.0), ({"optimizer": "lamb", "lr": 0.02, "steps": 80}, 3.2)]
)
def test_the_loss_falls_on_a_set_that_can_be_memorised(toys, use_shards, tmp_path, settings, most):
    use_shards(toys.make_shards(16, max_seq_len=16))
    loop.train(tmp_path / "out", tmp_path / "run", dataclasses.replace(TINY, **settings, log_every=10, save_every=160))
    first, *_, last = toys.read_metrics(tmp_path / "run")
    assert first["mlm_loss"] > 2.5
    assert last["mlm_loss"] < min(most, first["mlm_loss"] - 0.5)
    assert last["sop_accuracy"] == 1 or "optimizer" in settings


def test_each_line_says_its_step_its_split_and_its_figures(toys, finished_run):
    lines = toys.read_metrics(finished_run)
    assert [(line["step"], line["split"]) for line in lines] == [
        *((2, split) for split in ("train", "validation")),
        *((4, split) for split in ("train", "validation")),
    ]
    figures = {"step", "split", "mlm_loss", "mlm_accuracy", "sop_loss", "sop_accuracy"}
    assert set(lines[0]) == figures | {"lr", "epoch", "padding_share", "tokens_per_second", "seconds"}
    figures |= {"sop_majority", "sop_entropy", "sop_error", "num_documents"}
    assert set(lines[1]) == figures | {"guesses"}
    assert set(lines[3]) == figures | {*("guesses", "unigram_loss", "mlm_nats_per_byte")}


def test_a_run_without_guesses_quotes_no_text(toys, train, tmp_path, capsys):
    train(num_validation=10, guesses=False)
    assert not any("guesses" in line for line in toys.read_metrics(tmp_path / "run"))
    assert "guessed" not in (tmp_path / "run/report.html").read_text() + "".join(capsys.readouterr())


def test_a_run_by_epochs_reads_all_rows_that_many_times_and_a_line_has_the_part_that_was_read(toys, train, tmp_path):
    assert train(steps=None, epochs=2.0).name == "step-00000006"
    assert [line["epoch"] for line in toys.read_metrics(tmp_path / "run")] == [0.6667, 1.3333, 2.0]


def test_a_line_is_the_mean_over_the_masked_tokens_of_its_interval(toys, train, tmp_path):
    for name, log_every in (("each", 1), ("whole", 4)):
        train(name=name, log_every=log_every)
    (whole,) = toys.read_metrics(tmp_path / "whole")
    each = toys.read_metrics(tmp_path / "each")
    assert min(line["mlm_loss"] for line in each) <= whole["mlm_loss"] <= max(line["mlm_loss"] for line in each)
    assert whole["sop_accuracy"] == pytest.approx(np.mean([line["sop_accuracy"] for line in each]), abs=0.05)


def test_validation_figures_are_those_of_the_last_checkpoint_on_the_validation_rows(toys, train, tmp_path):
    last = train(num_validation=30, eval_rows=20)
    values = evaluate(load_model(last), toys.make_shards(30, seed=1), FP32, num_rows=20, batch_tokens=5 * 64)
    line = toys.read_metrics(tmp_path / "run")[-1]
    assert values == pytest.approx({name: line[name] for name in values}, rel=1e-5)


@given(
    labels=st.lists(st.tuples(st.sampled_from((-1, 0, 1, 2)), st.integers(0, 4), st.booleans()), max_size=30),
    num_rows=st.integers(1, 40),
)
def test_an_accuracy_is_judged_by_the_most_frequent_label(labels, num_rows, module_toys):
    """labels: of rows, the label, the document, and whether it was predicted."""
    shards, measured = module_toys.make_shards(max(1, len(labels))), labels[:num_rows]
    sop_label, document_keys, _ = (np.array(column) for column in zip(*labels, (-1, 0, False), strict=True))
    shards.examples = dataclasses.replace(
        shards.examples, sop_label=sop_label.astype(np.int8), document_keys=document_keys.astype(np.uint64)
    )
    config = shards.manifest.config
    examples = dataclasses.replace(config.examples, pairs="order3")  # has a label 2
    shards.manifest = dataclasses.replace(shards.manifest, config=dataclasses.replace(config, examples=examples))
    labelled = [(label, right) for label, _, right in measured if label >= 0]
    accuracy = sum(right for _, right in labelled) / len(labelled) if labelled else None
    found = judge_accuracy(shards, num_rows if labels else 0, accuracy)
    num_documents = len({document for _, document, _ in measured})
    if not labelled:
        assert found == {"num_documents": num_documents}
        return
    shares = [count / len(labelled) for count in Counter(label for label, _ in labelled).values()]
    assert found == pytest.approx(
        {
            "sop_majority": max(shares),
            "sop_entropy": -sum(share * math.log(share) for share in shares),
            "sop_error": math.sqrt(accuracy * (1 - accuracy) / len(labelled)),
            "num_documents": num_documents,
        },
        abs=1e-12,
    )


def test_a_model_that_always_says_the_frequent_label_is_right_as_often_as_that(toys):
    shards = toys.make_shards(30, seed=3)
    labels = np.where(np.arange(30) % 10 < 6, 1, 0).astype(np.int8)
    shards.examples = dataclasses.replace(shards.examples, sop_label=labels)
    model = Albert(dataclasses.replace(toy_rows.SMALL, vocab_size=40, max_positions=64))
    with torch.no_grad():
        model.sop_head.weight.zero_()
        model.sop_head.bias.copy_(torch.tensor([0.0, 1.0]))
    values = evaluate(model, shards, FP32, num_rows=30, batch_tokens=5 * 64)
    assert values["sop_accuracy"] == pytest.approx(0.6)
    assert values["sop_majority"] == pytest.approx(0.6)


def test_without_validation_rows_nothing_is_evaluated_and_that_is_said_once(toys, train, tmp_path, capsys):
    train()
    assert {line["split"] for line in toys.read_metrics(tmp_path / "run")} == {"train"}
    assert capsys.readouterr().err.count("no validation rows") == 1


def test_the_first_lines_describe_the_run_and_the_last_its_result(toys, train, tmp_path, capsys):
    train(num_validation=10)
    said = capsys.readouterr()
    assert said.out == ""
    for words in (f"run         {tmp_path / 'run'}\n", "fp32 (as asked)", "3 steps an epoch", "step 4 of 4"):
        assert words in said.err
    assert f"{toys.make_shards(40).lengths.sum():,} tokens an epoch" in said.err


def test_the_baseline_is_the_loss_of_the_frequencies_of_training_labels(toys):
    train, validation = toys.make_shards(30, vocab_size=8), toys.make_shards(30, vocab_size=8, seed=1)
    for shards, modulus in ((train, 4), (validation, 2)):
        labels = np.arange(len(shards.examples.masked_ids), dtype=np.uint16) % modulus
        shards.examples = dataclasses.replace(shards.examples, masked_ids=labels)
    baseline = measure_baseline(train, validation, num_rows=30, loss=5.0)
    seen = len(train.examples.masked_ids) / 4 + 1
    expected = math.log((len(train.examples.masked_ids) + 8) / seen)
    assert baseline["unigram_loss"] == pytest.approx(expected, abs=0.02)


def test_the_baseline_is_measured_on_the_rows_evaluated_and_on_no_others(toys):
    train, validation = toys.make_shards(30), toys.make_shards(30, seed=1)
    labels = validation.examples.masked_ids.copy()
    labels[validation.examples.mask_offsets[10] :] = 5
    validation.examples = dataclasses.replace(validation.examples, masked_ids=labels)
    whole = toys.make_shards(30, seed=1)
    for num_rows, is_equal in ((10, True), (30, False)):
        found, other = (measure_baseline(train, rows, num_rows=num_rows, loss=5.0) for rows in (validation, whole))
        assert (found == other) == is_equal


def test_an_evaluation_draws_no_random_number_and_switches_dropout_back_on(toys):
    shards = toys.make_shards(10)
    torch.manual_seed(0)
    config = dataclasses.replace(TINY, dropout=0.5)
    model = Albert(choose_shape(config, shards.manifest)).train()
    before = torch.get_rng_state()
    first, second = (evaluate(model, shards, FP32, num_rows=10, batch_tokens=4 * 64) for _ in range(2))
    assert first == second
    assert torch.equal(before, torch.get_rng_state())
    assert model.training


def test_positions_grow_with_the_longest_row(toys):
    manifest = toys.make_shards(1, max_seq_len=700).manifest
    assert choose_shape(TINY, manifest).max_positions == 704
    assert choose_shape(TINY, toys.make_shards(1).manifest).max_positions == 512


def test_updates_have_the_window_of_their_share_and_evaluations_whole_rows(toys, use_shards, tmp_path, monkeypatch):
    use_shards(toys.make_shards(40, max_seq_len=32), toys.make_shards(10, max_seq_len=32, seed=1))
    windows = []
    forward = Albert.forward

    def keep(self, batch, window=0):
        windows.append((self.training, window))
        return forward(self, batch, window)

    monkeypatch.setattr(Albert, "forward", keep)
    config = dataclasses.replace(TINY, steps=8, eval_every=8, first_window=8, window_share=0.5)
    loop.train(tmp_path, tmp_path / "run", config)
    assert [window for is_update, window in windows if is_update] == [8, 8, 16, 16, 32, 32, 32, 32]
    assert {window for is_update, window in windows if not is_update} == {0}


@pytest.mark.parametrize("keep", [1, 2])
def test_only_the_last_checkpoints_are_kept(train, tmp_path, keep):
    last = train(steps=5, save_every=1, keep=keep)
    kept = list_checkpoints(tmp_path / "run")
    assert [path.name for path in kept] == ["step-00000004", "step-00000005"][-keep:]
    assert last == kept[-1]
    assert not list(tmp_path.rglob("*.tmp"))


def test_minutes_too_short_for_an_update_are_refused(train):
    with pytest.raises(ConfigError, match=r"minutes is 0\.01.*no time is left for training; start another run"):
        train(num_validation=10, steps=None, minutes=0.01)


def test_evaluating_lost_weights_is_an_error_of_one_line(train, monkeypatch):
    update = loop.update

    def spoil(session, batches, **counts):
        update(session, batches, **counts)
        session.model.pooler.weight.data.fill_(math.nan)

    monkeypatch.setattr(loop, "update", spoil)
    with pytest.raises(AlbertDataError, match="not finite"):
        train(num_validation=10, eval_every=1, log_every=4)


def test_shards_on_disk_train_like_shards_in_memory(toys, use_shards, tmp_path, monkeypatch):
    splits = {"train": toys.make_shards(40), "validation": toys.make_shards(10, seed=1)}
    parts = {
        name: [shards.rows(rows) for rows in np.split(np.arange(len(shards)), 5)] for name, shards in splits.items()
    }
    write_like(tmp_path / "out", parts, splits["train"].manifest)
    use_shards(splits["train"], splits["validation"])
    with monkeypatch.context() as patch:
        patch.setattr("albert_data.train.loader.open_shards", reader.open_shards)
        patch.setattr(reader.Shards, "tokenizer", splits["train"].tokenizer)
        on_disk = loop.train(tmp_path / "out", tmp_path / "disk", TINY)
    in_memory = loop.train(tmp_path / "out", tmp_path / "memory", TINY)
    models = [load_model(path).state_dict() for path in (on_disk, in_memory)]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


def test_fp16_scales_its_loss_and_a_scale_that_collapses_stops_the_run(toys, train, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "choose_precision", lambda *given, **named: FP16)
    train()
    line = toys.read_metrics(tmp_path / "run")[-1]
    assert line["mlm_loss"] < 5
    assert line["skipped_steps"] == 0
    monkeypatch.setattr(torch.amp.GradScaler, "get_scale", lambda scaler: 0.5)
    with pytest.raises(AlbertDataError, match="float16 can't hold the gradients: the loss scale fell to 0.5"):
        train(name="other")


# ---- with --profile ----

PROFILED = {"steps": 12, "batch_tokens": 256, "dropout": 0.1, "save_every": 12, "profile": True}


def test_the_trace_has_five_steps_after_five_of_warm_up_and_the_weights_are_those_of_another_run(
    train, tmp_path, capsys
):
    for name, is_profiled in (("with", True), ("without", False)):
        train(name=name, **{**PROFILED, "profile": is_profiled})
    trace = tmp_path / "with/trace.json.gz"
    names = {event["name"] for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]}
    assert {name for name in names if name.startswith("ProfilerStep")} == {f"ProfilerStep#{n}" for n in range(5, 10)}
    assert "aten::addmm" in names
    assert capsys.readouterr().err.count("trace.json.gz is written") == 1
    first, second = (list_checkpoints(tmp_path / name)[-1] / "model.safetensors" for name in ("with", "without"))
    assert first.read_bytes() == second.read_bytes()
    assert not (tmp_path / "without/trace.json.gz").exists()


@pytest.mark.parametrize(("steps", "is_written"), [(4, False), (7, True)])
def test_a_run_that_ends_early_has_the_trace_until_then(train, tmp_path, steps, is_written):
    train(**{**PROFILED, "steps": steps})
    assert (tmp_path / "run/trace.json.gz").exists() == is_written


def test_a_trace_that_can_not_be_written_does_not_stop_the_run(train, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", lambda self, path: None)
    assert train(**PROFILED) is not None
    assert "trace.json.gz can't be written: " in capsys.readouterr().err
    assert not list((tmp_path / "run").glob("*trace*"))


# ---- updates that are skipped ----

LONG = dataclasses.replace(TINY, steps=20, log_every=4, eval_every=100, save_every=3, keep=99)
EACH = pytest.mark.parametrize("optimizer", ["adamw", "lamb", "muon"])


@pytest.fixture
def start(toys, use_shards):
    """A function that starts a session of a toy model, and gives its first batches."""
    shards = toys.make_shards(40)
    use_shards(shards)

    def start(optimizer: str):
        config = dataclasses.replace(LONG, optimizer=optimizer)
        shape = choose_shape(config, shards.manifest)
        batches = list(ShardLoader(shards, batch_tokens=config.batch_tokens).stream(FP32.device, 5))
        return start_session(config, shape, FP32, ALONE, {}, None), batches

    return start


def spoil_gradients(monkeypatch, bad_steps, value=math.nan):
    """Give one gradient this value in each of these steps, counted from 0. The loss stays finite."""
    make = loop.update

    def spoil(session, batches, **counts):
        hook = session.model.pooler.bias.register_hook(lambda gradient: torch.full_like(gradient, value))
        if session.step not in bad_steps:
            hook.remove()
        make(session, batches, **counts)
        hook.remove()

    monkeypatch.setattr(loop, "update", spoil)


def overflow_in(patch, calls, spoil=lambda nats: nats + math.inf):
    """Make the loss of these forward passes infinite: by addition its gradient stays finite."""
    forward, count = Albert.forward, itertools.count(1)

    def overflow(*given):
        output = forward(*given)
        return dataclasses.replace(output, mlm_nats=spoil(output.mlm_nats)) if next(count) in calls else output

    patch.setattr(Albert, "forward", overflow)


def train_long(tmp_path, name="run", *, resume=False, **settings):
    return loop.train(tmp_path / "out", tmp_path / name, dataclasses.replace(LONG, **settings), resume=resume)


def make_update(session, batches):
    (batch,) = batches
    update(session, batches, lr=1e-2, num_masked=batch.num_masked, num_pairs=batch.num_pairs)


def state_of(session):
    moments = [t for state in session.optimizer.state.values() for t in state.values()]
    return [t.clone() for t in (*session.model.state_dict().values(), *moments)]


def are_equal(one, other):
    return len(one) == len(other) and all(map(torch.equal, one, other))


@EACH
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30], ids=["NaN", "infinite", "overflow in the norm"])
def test_a_skipped_update_changes_no_bit_of_weights_and_moments(start, optimizer, value):
    session, steps = start(optimizer)
    make_update(session, steps[0])
    before = state_of(session)
    hook = session.model.pooler.bias.register_hook(lambda gradient: torch.full_like(gradient, value))
    make_update(session, steps[1])
    hook.remove()
    assert are_equal(before, state_of(session))
    assert (session.step, session.tally.num_skipped(), session.tally.num_in_row()) == (2, 1, 1)
    assert session.tally.read(ALONE)["mlm_loss"] is not None
    make_update(session, steps[2])
    assert not are_equal(before, state_of(session))
    assert (session.tally.num_skipped(), session.tally.num_in_row()) == (1, 0)


@EACH
def test_other_updates_are_bit_for_bit_those_without_a_scaler(start, optimizer):
    session, steps = start(optimizer)
    model = Albert(session.model.config)
    model.load_state_dict(session.model.state_dict())
    plain = make_optimizer(model, session.config)
    for batches in steps:
        make_update(session, batches)
        (batch,) = batches
        output = model(batch)
        plain.zero_grad()
        (output.mlm_nats / batch.num_masked + output.sop_nats / batch.num_pairs).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), session.config.max_grad_norm)
        for group in plain.param_groups:
            group["lr"] = 1e-2
        plain.step()
        assert are_equal(model.state_dict().values(), session.model.state_dict().values())


def test_a_loss_that_is_not_finite_is_left_out_of_the_figures(start, monkeypatch):
    session, steps = start("adamw")
    make_update(session, steps[0])
    values, before = session.tally.read(ALONE), state_of(session)
    with monkeypatch.context() as patch:
        overflow_in(patch, {1})
        make_update(session, steps[1])
    assert session.tally.read(ALONE) == values
    assert not are_equal(before, state_of(session)), "its gradient was finite"
    assert session.tally.num_skipped() == 0


@pytest.mark.parametrize("log_every", [1, 4])
def test_a_run_continues_after_skipped_updates_and_says_how_many(start, tmp_path, monkeypatch, capsys, toys, log_every):
    spoil_gradients(monkeypatch, {1, 2, *range(5, 14)})
    assert train_long(tmp_path, steps=16, log_every=log_every) is not None
    counts = {line["step"]: line.get("skipped_steps") for line in toys.read_metrics(tmp_path / "run")}
    if log_every == 4:
        assert counts == {4: 2, 8: 3, 12: 4, 16: 2}
        assert capsys.readouterr().err.count("tokens/s, 2 updates skipped, about") == 2
    else:
        assert counts == {step: None if step in (1, 4, 5, 15, 16) else 1 for step in range(1, 17)}
        assert "tokens/s, 1 update skipped, about" in capsys.readouterr().err


@pytest.mark.parametrize("log_every", [1, 4])
def test_ten_skipped_updates_in_a_row_stop_the_run(start, tmp_path, monkeypatch, log_every):
    spoil_gradients(monkeypatch, range(2, 99))
    with pytest.raises(AlbertDataError, match=r"10 updates in a row were skipped, the last at step 12;.*--lr"):
        train_long(tmp_path, log_every=log_every)
    paths = list_checkpoints(tmp_path / "run")
    assert [path.name for path in paths] == [f"step-{step:08d}" for step in (3, 6, 9)]
    weights, _, _ = load_checkpoint(paths[-1])
    assert all(value.isfinite().all() for value in weights.values())


def test_weights_that_are_not_finite_stop_the_run_and_are_never_saved(start, tmp_path, monkeypatch):
    make = loop.update

    def spoil(session, batches, **counts):
        make(session, batches, **counts)
        if session.step == 6:
            session.model.pooler.weight.data[0, 0] = math.nan

    monkeypatch.setattr(loop, "update", spoil)
    with pytest.raises(AlbertDataError, match=r"the weights are not finite at step 6; no checkpoint has such weights"):
        train_long(tmp_path)
    assert [path.name for path in list_checkpoints(tmp_path / "run")] == ["step-00000003"]


@EACH
def test_a_float16_run_continues_after_an_overflow_in_the_forward_pass(start, tmp_path, monkeypatch, toys, optimizer):
    monkeypatch.setattr(loop, "choose_precision", lambda *given, **named: FP16)
    overflow_in(monkeypatch, {2, 3}, lambda nats: nats * math.inf)
    assert train_long(tmp_path, steps=8, optimizer=optimizer) is not None
    lines = toys.read_metrics(tmp_path / "run")
    assert [line["skipped_steps"] for line in lines] == [2, 0]
    assert all(math.isfinite(line["mlm_loss"]) for line in lines)
    scale = load_checkpoint(list_checkpoints(tmp_path / "run")[-1])[2]["scaler"]["scale"]
    assert scale == 2.0**14


# ---- frozen losses ----

SMALL_MODELS = {"optimizer": "muon", "remask": True, "mask_prob": 0.45, "last_mask_prob": 0.15, "first_window": 4}
FROZEN = [
    ("adamw", False, {}, [3.68738, 3.70139, 3.75554, 3.64789, 3.58867]),
    (
        "lamb, packed, in parts",
        True,
        {"optimizer": "lamb", "micro_tokens": 192},
        [3.68738, 3.68438, 3.71187, 3.59522, 3.56774],
    ),
    ("muon, masks and windows that change", False, SMALL_MODELS, [3.69013, 3.67578, 3.65158, 3.72558, 3.65455]),
    ("muon, packed", True, SMALL_MODELS, [3.68078, 3.66852, 3.65513, 3.59809, 3.64537]),
]


@pytest.mark.parametrize(("packed", "settings", "losses"), [pytest.param(*case, id=name) for name, *case in FROZEN])
def test_the_losses_of_five_updates_are_frozen(toys, train, tmp_path, monkeypatch, packed, settings, losses):
    monkeypatch.setattr(
        state, "choose_attention", lambda *given: AttentionChoice(obstacle=None if packed else "padded")
    )
    train(steps=5, log_every=1, lr=0.02, **settings)
    assert [line["mlm_loss"] for line in toys.read_metrics(tmp_path / "run")] == pytest.approx(losses, abs=1e-4)
