"""Batches are cut to fit in the memory of a GPU. A model that refuses large batches stands for one."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from albert_data.errors import ConfigError
from albert_data.train import loop
from albert_data.train.checkpoint import load_model
from albert_data.train.config import RECIPES
from albert_data.train.distributed import Ranks
from albert_data.train.model import Albert

TINY = dataclasses.replace(
    RECIPES["quick"]["tiny"],
    steps=4,
    batch_tokens=8 * 64,
    log_every=1,
    eval_every=2,
    save_every=2,
    device="cpu",
    remask=False,
)


@pytest.fixture
def limit_tokens(monkeypatch):
    """Make the model run out of memory above a number of tokens: in training, or in evaluations."""

    def limit(num_tokens: int, *, training: bool = True, after: int = 0) -> None:
        """after: how many batches are computed before the memory runs out."""
        forward, num_calls = Albert.forward, 0

        def run_out(self, batch):
            nonlocal num_calls
            num_calls += self.training is training
            if self.training is training and num_calls > after and batch.input_ids_BT.numel() > num_tokens:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            return forward(self, batch)

        monkeypatch.setattr(Albert, "forward", run_out)

    return limit


def weights(path) -> dict[str, Tensor]:
    return load_model(path).state_dict()


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
@pytest.mark.parametrize(
    ("first", "after"), [(None, 0), (None, 2), (256, 3)], ids=["first batch", "third batch", "second half of a batch"]
)
def test_a_run_that_runs_out_of_memory_goes_on_with_smaller_micro_batches(
    toys, use_shards, tmp_path, capsys, limit_tokens, optimizer, first, after
):
    use_shards(toys.make_shards(40))
    config = dataclasses.replace(TINY, optimizer=optimizer)
    expected = loop.train(tmp_path, tmp_path / "small", dataclasses.replace(config, micro_tokens=128))
    limit_tokens(3 * 64, after=after)
    last = loop.train(tmp_path, tmp_path / "run", dataclasses.replace(config, micro_tokens=first))
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


def test_an_evaluation_that_runs_out_of_memory_is_made_again(toys, use_shards, tmp_path, limit_tokens):
    use_shards(toys.make_shards(40), toys.make_shards(10, seed=1))
    loop.train(tmp_path, tmp_path / "large", TINY)
    limit_tokens(3 * 64, training=False)
    loop.train(tmp_path, tmp_path / "run", TINY)
    large, run = (toys.read_metrics(tmp_path / name) for name in ("large", "run"))
    assert [(line["step"], line["split"]) for line in run] == [(line["step"], line["split"]) for line in large]
    assert run[2]["mlm_loss"] == pytest.approx(large[2]["mlm_loss"], abs=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_if_no_row_fits_on_the_gpu_the_error_says_so(toys, use_shards, tmp_path, limit_tokens, training):
    use_shards(toys.make_shards(40), toys.make_shards(10, seed=1))
    limit_tokens(0, training=training)
    with pytest.raises(ConfigError, match="a batch of 64 tokens, in rows of 64, does not fit.*a smaller --preset"):
        loop.train(tmp_path, tmp_path / "run", TINY)


def test_several_ranks_stop_and_name_smaller_micro_batches(toys, use_shards, tmp_path, limit_tokens, monkeypatch):
    """The other ranks wait for the gradients of the step, so this one can't begin it again."""
    use_shards(toys.make_shards(40))
    limit_tokens(3 * 64)
    start_session = loop.start_session

    def start(*given):
        session = start_session(*given)
        monkeypatch.setattr(session, "ranks", Ranks(num_ranks=2))
        monkeypatch.setattr(Ranks, "sum", lambda ranks, values: list(values))
        return session

    monkeypatch.setattr(loop, "start_session", start)
    with pytest.raises(
        ConfigError, match="a batch of 512 tokens, in rows of 64, does not fit.*--resume with --micro-tokens 256"
    ):
        loop.train(tmp_path, tmp_path / "run", TINY)


def test_an_optimiser_that_does_not_fit_is_an_error_of_one_line(toys, use_shards, tmp_path, monkeypatch):
    use_shards(toys.make_shards(40))

    def run_out(*given):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.optim.AdamW, "step", run_out)
    with pytest.raises(ConfigError, match="the optimiser's state do not fit on .*a smaller --preset"):
        loop.train(tmp_path, tmp_path / "run", TINY)


def test_an_optimiser_that_does_not_fit_on_resume_is_no_damage(toys, use_shards, tmp_path, monkeypatch):
    use_shards(toys.make_shards(40))
    loop.train(tmp_path, tmp_path / "run", TINY)

    def run_out(*given):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.optim.AdamW, "load_state_dict", run_out)
    with pytest.raises(ConfigError, match="the optimiser's state do not fit on"):
        loop.train(tmp_path, tmp_path / "run", TINY, resume=True)
