"""Batches are cut to fit in the memory of a GPU. A model that refuses large batches stands for one."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
import toy_rows
from refusals import check_refused
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from toy_rows import SMALL, mean_loss

from albert_data.errors import ConfigError
from albert_data.train import loop, memory
from albert_data.train import model as model_module
from albert_data.train import state as session
from albert_data.train.batch import Batch
from albert_data.train.checkpoint import load_model
from albert_data.train.device import Ranks
from albert_data.train.loader import ShardLoader
from albert_data.train.model import Albert
from albert_data.train.optimizer import AdamW
from albert_data.train.order import BUCKET

TINY = dataclasses.replace(toy_rows.TINY, log_every=1, precision="fp32", remask=False)
LARGE = dataclasses.replace(TINY, steps=2, save_every=1, batch_tokens=32 * 64, dropout=0.1)


@pytest.fixture
def limit_tokens(monkeypatch):
    """Make the model run out of memory above a number of tokens: in training, or in evaluations."""

    def limit(num_tokens: int, *, training: bool = True, after: int = 0) -> None:
        """after: how many batches are computed before the memory runs out."""
        forward, calls = Albert.forward, []

        def run_out(self, batch, *window):
            if self.training is training:
                calls.append(batch.input_ids_BT.numel())
                if len(calls) > after and calls[-1] > num_tokens:
                    raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            return forward(self, batch, *window)

        monkeypatch.setattr(Albert, "forward", run_out)

    return limit


@pytest.fixture(autouse=True)
def padded_as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(session, "CPU_BUCKET", BUCKET)


@pytest.fixture
def train(toys, use_shards, tmp_path):
    """Train on 40 rows, without validation rows if the test gives none."""
    use_shards(toys.make_shards(40))
    return lambda config=TINY, name="run", **options: loop.train(tmp_path, tmp_path / name, config, **options)


def weights(path) -> dict[str, Tensor]:
    return load_model(path).state_dict()


@pytest.mark.parametrize(
    ("optimizer", "first", "after"),
    [("adamw", None, 0), ("lamb", None, 2), ("adamw", 256, 3)],
    ids=["first batch", "third batch", "second half of a batch"],
)
def test_a_run_that_runs_out_of_memory_goes_on_with_smaller_micro_batches(
    train, toys, tmp_path, capsys, limit_tokens, optimizer, first, after
):
    config = dataclasses.replace(TINY, optimizer=optimizer)
    expected = train(dataclasses.replace(config, micro_tokens=128), "small")
    limit_tokens(3 * 64, after=after)
    last = train(dataclasses.replace(config, micro_tokens=first))
    for one, other in zip(weights(expected).values(), weights(last).values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    small, run = (toys.read_metrics(tmp_path / name) for name in ("small", "run"))
    for one, other in zip(small, run, strict=True):
        assert (one["step"], one["padding_share"]) == (other["step"], other["padding_share"])
        assert one["mlm_accuracy"] == other["mlm_accuracy"], "each row counts once"
        assert one["mlm_loss"] == pytest.approx(other["mlm_loss"], abs=1e-4)
    said = capsys.readouterr().err
    assert "of 256 tokens, in rows of 64, does not fit on" in said
    assert "from now on at most 128 tokens are computed at once" in said


def test_an_evaluation_that_runs_out_of_memory_is_made_again(train, toys, use_shards, tmp_path, limit_tokens):
    use_shards(toys.make_shards(40), toys.make_shards(10, seed=1))
    train(TINY, "large")
    limit_tokens(3 * 64, training=False)
    train()
    large, run = (toys.read_metrics(tmp_path / name) for name in ("large", "run"))
    assert [(line["step"], line["split"]) for line in run] == [(line["step"], line["split"]) for line in large]
    assert run[2]["mlm_loss"] == pytest.approx(large[2]["mlm_loss"], abs=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_if_no_row_fits_on_the_gpu_the_error_says_so(train, toys, use_shards, limit_tokens, training):
    use_shards(toys.make_shards(40), toys.make_shards(10, seed=1))
    limit_tokens(0, training=training)
    check_refused(train, ConfigError, "a batch of 64 tokens, in rows of 64, does not fit & --recompute & --preset")
    with pytest.raises(ConfigError, match="does not fit on [^;]*; start another run with a smaller --preset$"):
        train(dataclasses.replace(TINY, recompute=True), "again")


def test_if_memory_runs_out_on_another_rank_this_one_begins_the_step_again_too(monkeypatch):
    monkeypatch.setattr(Ranks, "sum", lambda ranks, values: [value + 1 for value in values])
    with pytest.raises(torch.cuda.OutOfMemoryError, match="of another process"), Ranks().share_out_of_memory():
        pass


@pytest.mark.parametrize("is_resumed", [False, True])
def test_an_optimiser_that_does_not_fit_is_an_error_of_one_line_and_no_damage(train, monkeypatch, is_resumed):
    if is_resumed:
        train()
    full = Mock(side_effect=torch.cuda.OutOfMemoryError("CUDA out of memory"))
    monkeypatch.setattr(AdamW, "first_state", full)
    with pytest.raises(ConfigError, match="the optimiser's state do not fit on .*a smaller --preset"):
        train(resume=is_resumed)


@pytest.mark.parametrize(
    ("limit", "said"),
    [(2048, ""), (2047, "2 micro-batches a step, of 1,024 tokens")],
)
def test_on_a_cpu_more_than_so_many_tokens_are_not_computed_at_once(train, capsys, monkeypatch, limit, said):
    monkeypatch.setitem(memory.MAX_TOKENS, "cpu", limit)
    config = dataclasses.replace(LARGE, dropout=0.0)
    cut = train(config, "cut")
    assert ("memory      " in (printed := capsys.readouterr().err)) == bool(said)
    assert said in printed
    whole = train(dataclasses.replace(config, micro_tokens=2048), "whole")
    for one, other in zip(weights(cut).values(), weights(whole).values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert "memory " not in capsys.readouterr().err


def test_a_row_that_is_larger_than_what_is_computed_at_once_is_a_batch_of_its_own(train, monkeypatch):
    monkeypatch.setitem(memory.MAX_TOKENS, "cpu", 10)
    assert train(dataclasses.replace(TINY, batch_tokens=64))


def test_if_memory_runs_out_in_the_warm_up_of_another_rank_this_one_takes_smaller_batches_too(monkeypatch):
    gathered, computed = iter([[256.0, 128.0], [128.0, 128.0]]), []
    session = SimpleNamespace(ranks=SimpleNamespace(gather=lambda own: next(gathered)))

    class Loader:
        micro_tokens = 256
        tokens_at_once = property(lambda self: self.micro_tokens)

    def list_shapes(session, loader, validation):
        computed.append(loader.micro_tokens)
        return []

    monkeypatch.setattr(memory, "_list_shapes", list_shapes)
    memory.warm_up(session, Loader(), None, must_stop=lambda: False, say=print)
    assert computed == [256, 128]


def test_a_batch_is_cut_where_kernels_can_not_count_its_logits(train, monkeypatch, capsys):
    monkeypatch.setattr(memory, "MAX_ELEMENTS", 40 * 150)
    train(LARGE)
    assert "memory      3 micro-batches a step, of 704 tokens" in capsys.readouterr().err


def count_kept(model: Albert, batch: Batch) -> int:
    """The bytes that a forward pass keeps for the backward pass, a tensor as often as it is kept."""
    num_bytes = 0

    def keep(tensor: Tensor) -> Tensor:
        nonlocal num_bytes
        num_bytes += tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(batch)
    return num_bytes


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("num_inner_groups", [1, 2])
def test_recomputing_keeps_less_and_gives_the_same_gradients_bit_for_bit(toys, dropout, num_inner_groups):
    changes = {"vocab_size": 40, "num_layers": 6, "dropout": dropout, "num_inner_groups": num_inner_groups}
    model = Albert(dataclasses.replace(SMALL, **changes))
    batch = next(iter(ShardLoader(toys.make_shards(40), batch_tokens=512)))
    kept, gradients = [], []
    for recompute in (False, True):
        model.encoder.recompute = recompute
        kept.append(count_kept(model, batch))
        model.zero_grad()
        torch.manual_seed(1)
        mean_loss(model(batch), batch).backward()
        gradients.append([p.grad for p in model.parameters()])
    assert all(map(torch.equal, *gradients))
    assert kept[1] < 0.25 * kept[0]


def test_a_run_that_recomputes_does_so_in_each_layer_of_its_updates(train, toys, use_shards, monkeypatch):
    use_shards(toys.make_shards(40), toys.make_shards(10, seed=1))
    kept = []
    monkeypatch.setattr(
        model_module, "checkpoint", lambda *given, **named: kept.append(1) or checkpoint(*given, **named)
    )
    train(dataclasses.replace(TINY, recompute=True))
    assert len(kept) == TINY.steps * SMALL.num_layers, "evaluations keep nothing anyway"
