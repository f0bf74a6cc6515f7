"""Updates by CUDA graphs are the updates without; what no graph can hold is made without, and says why."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import toy_rows

from albert_data.train.device import ALONE, Ranks, choose_precision
from albert_data.train.graphs import Graphs, explain_no_graphs
from albert_data.train.loader import ShardLoader
from albert_data.train.loop import train
from albert_data.train.state import choose_shape, start_session
from albert_data.train.update import update

CPU = torch.device("cpu")


class Recorder:
    """Stands for CUDA, where a CPU has no graphs: replaying runs the recorded work, on the tensors that it knew."""

    def __init__(self, fails: bool = False) -> None:
        self.fails, self.recorded, self.replayed = fails, 0, 0

    def __call__(self, work, pool):
        if self.fails:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        self.recorded += 1

        def replay() -> None:
            self.replayed += 1
            work()

        return replay


def make_session(toys, **settings):
    shards = toys.make_shards(200, max_seq_len=120)
    config = dataclasses.replace(toy_rows.TINY, **settings)
    shape = dataclasses.replace(choose_shape(config, shards.manifest), hidden_size=32, ffn_size=64, num_heads=2)
    return start_session(config, shape, choose_precision("fp32", "cpu"), ALONE, {}, None), shards


def run_updates(made, shards, windows, num_steps: int = 12, **settings) -> list[torch.Tensor]:
    loader = ShardLoader(shards, batch_tokens=2048, packed=True, **settings)
    for number, batches in enumerate(loader.stream(CPU, num_steps)):
        labels = {name: sum(getattr(batch, name) for batch in batches) for name in ("num_masked", "num_pairs")}
        update(made, batches, lr=1e-3 * (number + 1) / num_steps, window=windows[number % len(windows)], **labels)
    return [p.detach().clone() for p in made.model.parameters()]


@pytest.mark.parametrize("optimizer", ["adamw", "lamb", "muon"])
def test_updates_by_graphs_are_those_without(toys, optimizer):
    plain, shards = make_session(toys, optimizer=optimizer)
    graphed, _ = make_session(toys, optimizer=optimizer)
    recorder = Recorder()
    graphed.replay = Graphs(graphed, say=pytest.fail, record=recorder).replay
    wanted, found = (run_updates(made, shards, (0,)) for made in (plain, graphed))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    assert recorder.recorded == 1
    assert recorder.replayed == 11, "the first update of a shape is made without"
    assert graphed.step == plain.step == 12
    assert graphed.tally.num_tokens == plain.tally.num_tokens
    assert graphed.tally.read(ALONE)["mlm_loss"] == pytest.approx(plain.tally.read(ALONE)["mlm_loss"], rel=1e-5)


def test_an_update_whose_gradients_are_not_finite_is_skipped_by_a_graph_too(toys):
    made, shards = make_session(toys)
    made.replay = Graphs(made, say=pytest.fail, record=Recorder()).replay
    run_updates(made, shards, (0,), num_steps=3)
    with torch.no_grad():
        made.model.mlm_head.bias[7] = torch.inf
    before = [p.detach().clone() for p in made.model.parameters()]
    after = run_updates(made, shards, (0,), num_steps=2)
    assert made.tally.num_in_row() == 2
    torch.testing.assert_close(after, before, rtol=0, atol=0)


def test_each_window_has_graphs_of_its_own_and_those_of_smaller_ones_go(toys):
    made, shards = make_session(toys)
    graphs = Graphs(made, say=pytest.fail, record=(recorder := Recorder()))
    made.replay = graphs.replay
    for window in (8, 16, 0):
        run_updates(made, shards, (window,), num_steps=3)
        assert len(graphs._recorded) == 1
    assert (recorder.recorded, recorder.replayed) == (3, 6)


@pytest.mark.parametrize("settings", [{"micro_tokens": 1024}, {"most_flops": 1.0}])
def test_micro_batches_and_large_updates_are_made_without(toys, monkeypatch, settings):
    monkeypatch.setattr("albert_data.train.graphs.MOST_FLOPS", settings.pop("most_flops", 1e15))
    made, shards = make_session(toys)
    made.replay = Graphs(made, say=pytest.fail, record=(recorder := Recorder())).replay
    run_updates(made, shards, (0,), **settings)
    assert (recorder.recorded, made.step) == (0, 12)


def test_where_memory_runs_out_in_a_recording_the_run_goes_on_without_graphs_and_says_so_once(toys):
    (plain, shards), (made, _), said = make_session(toys), make_session(toys), []
    made.replay = Graphs(made, say=said.append, record=Recorder(fails=True)).replay
    wanted, found = (run_updates(one, shards, (0,)) for one in (plain, made))
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert said == ["graphs      none: CUDA out of memory"]


@pytest.mark.parametrize(
    ("device", "is_divided", "changes", "reason"),
    [
        ("cuda", False, {}, None),
        ("cpu", False, {}, "they are for CUDA GPUs"),
        ("cuda", True, {}, "they are for one process, and steps of one micro-batch"),
        ("cuda", False, {"ranks": Ranks(num_ranks=2)}, "they are for one process, and steps of one micro-batch"),
        ("cuda", False, {"scaler": "a scaler"}, "they are for bf16 and fp32, without dropout"),
    ],
)
def test_why_there_are_no_graphs_is_named(toys, device, is_divided, changes, reason):
    made = dataclasses.replace(make_session(toys)[0], **changes)
    made.precision = dataclasses.replace(made.precision, device=torch.device(device))
    assert explain_no_graphs(made, is_divided=is_divided) == reason


def test_a_run_that_asks_in_vain_for_graphs_says_why_in_one_line(toys, use_shards, tmp_path, capsys):
    use_shards(toys.make_shards(40))
    for graphs, count in ((True, 1), (None, 0), (False, 0)):
        config = dataclasses.replace(toy_rows.TINY, steps=2, eval_rows=10, graphs=graphs)
        assert train(tmp_path, tmp_path / f"run {graphs}", config) is not None
        assert capsys.readouterr().err.count("\ngraphs      none: they are for CUDA GPUs\n") == count
