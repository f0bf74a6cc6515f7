"""An update with a gradient that is not finite is skipped and counted; ten in a row, or lost weights, end the run."""

from __future__ import annotations

import dataclasses
import itertools
import math
import shutil

import pytest
import torch
import toy_rows

from albert_data.errors import AlbertDataError
from albert_data.train.data.loader import ShardLoader
from albert_data.train.distributed import ALONE
from albert_data.train.model.checkpoint import list_checkpoints, load_checkpoint
from albert_data.train.model.model import Albert
from albert_data.train.model.precision import Precision, choose_precision
from albert_data.train.run import loop
from albert_data.train.run.optimizer import make_optimizer
from albert_data.train.run.session import choose_shape, start_session, update

CPU = torch.device("cpu")
TINY = dataclasses.replace(
    toy_rows.TINY, steps=20, log_every=4, eval_every=100, save_every=3, keep=99, precision="fp32", remask=False
)
EACH = pytest.mark.parametrize("optimizer", ["adamw", "lamb", "muon"])


@pytest.fixture
def start(toys, use_shards):
    """A function that starts a session of a toy model, and gives its first batches."""
    shards = toys.make_shards(40)
    use_shards(shards)

    def start(optimizer: str):
        config = dataclasses.replace(TINY, optimizer=optimizer)
        shape = choose_shape(config, shards.manifest)
        batches = list(ShardLoader(shards, batch_tokens=config.batch_tokens).stream(CPU, 5))
        return start_session(config, shape, choose_precision("fp32", "cpu"), ALONE, {}, None), batches

    return start


def make_update(session, batches):
    counts = [sum(getattr(batch, name) for batch in batches) for name in ("num_masked", "num_pairs")]
    update(session, batches, lr=1e-2, num_masked=counts[0], num_pairs=counts[1])


def state_of(session):
    moments = {
        f"{i}.{name}": t for i, state in enumerate(session.optimizer.state.values()) for name, t in state.items()
    }
    return {name: t.clone() for name, t in (*session.model.state_dict().items(), *moments.items())}


def are_equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


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


def train(tmp_path, name="run", *, resume=False, **settings):
    return loop.train(tmp_path / "out", tmp_path / name, dataclasses.replace(TINY, **settings), resume=resume)


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
        assert are_equal(model.state_dict(), session.model.state_dict())


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
    assert train(tmp_path, steps=16, log_every=log_every) is not None
    counts = {line["step"]: line.get("skipped_steps") for line in toys.read_metrics(tmp_path / "run")}
    if log_every == 4:
        assert counts == {4: 2, 8: 3, 12: 4, 16: 2}
        assert capsys.readouterr().err.count("tokens/s, 2 updates skipped\n") == 2
    else:
        assert counts == {step: None if step in (1, 4, 5, 15, 16) else 1 for step in range(1, 17)}
        assert "tokens/s, 1 update skipped\n" in capsys.readouterr().err


@pytest.mark.parametrize("log_every", [1, 4])
def test_ten_skipped_updates_in_a_row_stop_the_run_and_the_rows_of_the_last_are_named(
    start, tmp_path, monkeypatch, log_every
):
    spoil_gradients(monkeypatch, range(2, 99))
    spoilt = []
    spoil = loop.update

    def note_rows(session, batches, **counts):
        spoilt[:] = sorted(row for batch in batches for row in batch.rows.tolist())
        spoil(session, batches, **counts)

    monkeypatch.setattr(loop, "update", note_rows)
    with pytest.raises(
        AlbertDataError, match=r"10 updates in a row were skipped, the last at step 12, .*--lr"
    ) as caught:
        train(tmp_path, log_every=log_every)
    assert f"rows {', '.join(map(str, spoilt[:8]))}" in str(caught.value)
    paths = list_checkpoints(tmp_path / "run")
    assert [path.name for path in paths] == [f"step-{step:08d}" for step in (3, 6, 9)]
    weights, _, _ = load_checkpoint(paths[-1])
    assert all(value.isfinite().all() for value in weights.values())


@EACH
def test_a_resumed_run_counts_on_even_if_no_update_was_made_yet(start, tmp_path, monkeypatch, toys, optimizer):
    spoil_gradients(monkeypatch, range(99))
    for name in ("whole", "resumed"):
        with pytest.raises(AlbertDataError, match="12 updates in a row were skipped, the last at step 12"):
            train(tmp_path, name, optimizer=optimizer)  # the count is read with the line of step 12
    for path in list_checkpoints(tmp_path / "resumed")[2:]:
        shutil.rmtree(path)  # step 6 is the newest
    with pytest.raises(AlbertDataError, match="12 updates in a row were skipped, the last at step 12"):
        train(tmp_path, "resumed", optimizer=optimizer, resume=True)
    whole, resumed = (toys.read_metrics(tmp_path / name) for name in ("whole", "resumed"))
    assert [line["skipped_steps"] for line in whole] == [line["skipped_steps"] for line in resumed] == [4, 4]


def test_weights_that_are_not_finite_stop_the_run_and_are_never_saved(start, tmp_path, monkeypatch):
    make = loop.update

    def spoil(session, batches, **counts):
        make(session, batches, **counts)
        if session.step == 6:
            session.model.pooler.weight.data[0, 0] = math.nan

    monkeypatch.setattr(loop, "update", spoil)
    with pytest.raises(AlbertDataError, match=r"the weights are not finite at step 6; no checkpoint has such weights"):
        train(tmp_path)
    assert [path.name for path in list_checkpoints(tmp_path / "run")] == ["step-00000003"]


@EACH
def test_a_float16_run_continues_after_an_overflow_in_the_forward_pass(start, tmp_path, monkeypatch, toys, optimizer):
    half = Precision(device=CPU, device_info="test", format="fp16", format_reason="test")
    monkeypatch.setattr(loop, "choose_precision", lambda *given, **named: half)
    overflow_in(monkeypatch, {2, 3}, lambda nats: nats * math.inf)
    assert train(tmp_path, steps=8, optimizer=optimizer) is not None
    lines = toys.read_metrics(tmp_path / "run")
    assert [line["skipped_steps"] for line in lines] == [2, 0]
    assert all(math.isfinite(line["mlm_loss"]) for line in lines)
    scale = load_checkpoint(list_checkpoints(tmp_path / "run")[-1])[2]["scaler"]["scale"]
    assert scale == 2.0**14
