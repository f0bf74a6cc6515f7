"""The learning rate and the decay are BERT's, and LAMB is Google's."""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import pairwise

import pytest
import torch

from albert_data.train.config import MODEL_PRESETS, AlbertConfig, TrainConfig
from albert_data.train.model import Albert
from albert_data.train.optimizer import Lamb, make_optimizer, make_orthogonal, pack_optimizer, unpack_optimizer
from albert_data.train.schedule import lr_at

SHAPE = AlbertConfig(vocab_size=30, embedding_size=4, hidden_size=8, num_heads=2, num_layers=2, ffn_size=24)


def test_the_rate_rises_to_lr_and_falls_to_0():
    config = TrainConfig(steps=100, warmup_share=0.1, lr=1.0)
    rates = [lr_at(step, 100, config) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == max(rates) == 1.0
    assert rates[55] == pytest.approx(0.5)
    assert rates[99] == pytest.approx(1 / 90)
    assert all(earlier > later for earlier, later in pairwise(rates[10:]))

    for share in (0.0, 1.0):
        config = TrainConfig(steps=10, warmup_share=share, lr=1.0)
        assert all(0 < lr_at(step, 10, config) <= 1 for step in range(10))


def test_a_run_by_the_clock_has_the_rates_of_one_by_steps():
    config = TrainConfig(steps=None, minutes=1.0, warmup_share=0.1, lr=1.0)
    assert lr_at(0.0, 1.0, config, per_step=0.01) == pytest.approx(0.1)
    assert lr_at(0.55, 1.0, config, per_step=0.01) == pytest.approx(0.5)
    assert lr_at(1.2, 1.0, config, per_step=0.01) == 0


@pytest.mark.parametrize("optimizer", ["adamw", "lamb", "muon"])
def test_vectors_do_not_decay_and_matrices_are_known_by_what_is_done_to_them(optimizer):
    model = Albert(SHAPE)
    groups = make_optimizer(model, TrainConfig(optimizer=optimizer)).param_groups
    found = {id(p): (group["num_blocks"], group["weight_decay"]) for group in groups for p in group["params"]}
    for name, parameter in model.named_parameters():
        is_vector = name.endswith("bias") or "norm" in name
        is_whole = is_vector or optimizer == "adamw" or (optimizer == "muon" and not name.startswith("encoder."))
        blocks = 0 if is_whole else 3 if name.endswith("qkv.weight") else 1
        assert found[id(parameter)] == (blocks, 0.0 if is_vector else 0.01), name


def test_lamb_leaves_weights_without_a_gradient_alone():
    weight = torch.nn.Parameter(torch.ones(2, 2))
    Lamb([{"params": [weight]}], {"lr": 1.0}).step()
    assert (weight == 1).all()


def average(state, gradient, beta1, beta2):
    """Adam's means of the gradient and of its square."""
    state["mean"] = state.get("mean", 0) * beta1 + gradient * (1 - beta1)
    state["square"] = state.get("square", 0) * beta2 + gradient**2 * (1 - beta2)
    return state["mean"], state["square"]


def lamb_slowly(p, state, group, steps):
    mean, square = average(state, p.grad, *group["betas"])
    update = mean / (square.sqrt() + group["eps"]) + group["weight_decay"] * p
    for block, weights in zip(update.chunk(group["num_blocks"] or 1), p.chunk(group["num_blocks"] or 1), strict=True):
        if group["num_blocks"] and weights.norm() > 0 and block.norm() > 0:
            block *= weights.norm() / block.norm()
    return p - group["lr"] * update


def muon_slowly(p, state, group, steps):
    if group["num_blocks"]:
        state["mean"] = 0.95 * state.get("mean", 0) + 0.05 * p.grad
        ahead = 0.05 * p.grad + 0.95 * state["mean"]
        update = torch.cat([orthogonal_slowly(block) for block in ahead.chunk(group["num_blocks"])])
    else:
        mean, square = average(state, p.grad, *group["betas"])
        mean, square = mean / (1 - group["betas"][0] ** steps), square / (1 - group["betas"][1] ** steps)
        update = mean / (square.sqrt() + group["eps"])
    return p * (1 - group["lr"] * group["weight_decay"]) - group["lr"] * update


def orthogonal_slowly(matrix):
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return (x.T if matrix.shape[0] > matrix.shape[1] else x) * 0.2 * max(matrix.shape) ** 0.5


@pytest.mark.parametrize(("optimizer", "slowly"), [("lamb", lamb_slowly), ("muon", muon_slowly)])
@pytest.mark.parametrize("num_groups", [1, 2])
def test_after_fifty_updates_weights_are_those_of_the_rule_for_one_matrix_after_another(optimizer, slowly, num_groups):
    torch.manual_seed(6)
    model = Albert(dataclasses.replace(SHAPE, num_groups=num_groups))
    torch.nn.init.zeros_(model.sop_head.weight)  # LAMB does not scale the first update of a matrix of norm 0
    made = make_optimizer(model, TrainConfig(optimizer=optimizer, lr=0.01, weight_decay=0.1, beta2=0.98))
    expected = {p: (p.detach().double(), {}, group) for group in made.param_groups for p in group["params"]}
    for steps in range(1, 51):
        for p, (weights, state, group) in expected.items():
            p.grad = torch.randn_like(p)
            weights.grad = p.grad.double()
            expected[p] = slowly(weights, state, group, steps), state, group
        made.step()
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.detach().double(), expected[p][0], atol=1e-5, rtol=1e-5, msg=name)


VIEWS = {"view", "view_as", "flatten", "reshape", "split", "split_with_sizes", "mT", "unsqueeze"}


@pytest.mark.parametrize("preset", ["mini", "base"])
@pytest.mark.parametrize("optimizer", ["lamb", "muon"])
def test_an_update_is_few_kernels(preset, optimizer):
    shape = dataclasses.replace(MODEL_PRESETS[preset], vocab_size=30, embedding_size=8, hidden_size=24, ffn_size=96)
    model = Albert(dataclasses.replace(shape, num_heads=2))
    made = make_optimizer(model, TrainConfig(optimizer=optimizer), is_bf16=True)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    made.found_inf = torch.zeros(())
    made.step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        made.step()
    calls = [event for event in profile.events() if event.cpu_parent and event.cpu_parent.name.startswith("Optimizer")]
    kernels = [name for event in calls if (name := event.name.removeprefix("aten::")) not in VIEWS]
    assert 50 < len(kernels) <= 80, Counter(kernels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_muon_makes_the_layers_matrices_orthogonal_and_scales_them_to_the_size_of_an_adam_step(dtype):
    torch.manual_seed(5)
    for shape in ((8, 12), (8, 24)):
        for update in make_orthogonal(torch.randn(3, *shape), dtype):
            values = torch.linalg.svdvals(update) / (0.2 * max(shape) ** 0.5)
            assert 0.5 < values.min() < values.max() < 1.3, shape
            assert 0.12 < update.square().mean().sqrt() < 0.25


def test_the_state_of_muon_is_packed_and_unpacked_and_another_is_refused():
    model, config = Albert(SHAPE), TrainConfig(optimizer="muon", lr=0.01)
    optimizer, copy = make_optimizer(model, config), make_optimizer(model, config)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    packed = pack_optimizer(optimizer)
    unpack_optimizer(copy, dict(packed))
    for name, tensor in pack_optimizer(copy).items():
        assert torch.equal(tensor, packed[name]), name
    with pytest.raises(ValueError, match="has other shapes"):
        unpack_optimizer(make_optimizer(model, TrainConfig()), packed)
