"""The learning rate and the decay are BERT's, and LAMB is Google's."""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from albert_data.train.config import MODEL_PRESETS, AlbertConfig, TrainConfig
from albert_data.train.model.model import Albert
from albert_data.train.run.budget import lr_at
from albert_data.train.run.optimizer import Lamb, make_optimizer, make_orthogonal, pack_optimizer, unpack_optimizer


def test_the_rate_rises_to_lr_and_falls_to_0():
    config = TrainConfig(steps=100, warmup_share=0.1, lr=1.0)
    rates = [lr_at(step, 100, config) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == max(rates) == 1.0
    assert rates[55] == pytest.approx(0.5)
    assert rates[99] == pytest.approx(1 / 90)
    assert all(earlier > later for earlier, later in pairwise(rates[10:]))


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_no_warm_up_and_nothing_but_warm_up_are_possible(share):
    config = TrainConfig(steps=10, warmup_share=share, lr=1.0)
    assert all(0 < lr_at(step, 10, config) <= 1 for step in range(10))


def test_biases_and_layer_norms_do_not_decay():
    model = Albert(AlbertConfig(vocab_size=30, embedding_size=4, hidden_size=8, num_heads=2, ffn_size=8))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decayed, free = make_optimizer(model, TrainConfig()).param_groups
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.01, 0.0)
    free_names = {names[id(p)] for p in free["params"]}
    assert free_names == {name for name in names.values() if name.endswith("bias") or "norm" in name}
    assert len(decayed["params"]) + len(free["params"]) == len(names)


def test_a_vector_without_gradient_pull_keeps_its_length_where_a_matrix_shrinks():
    model = torch.nn.Linear(3, 3)
    torch.nn.init.ones_(model.bias)
    before = model.weight.detach().clone()
    optimizer = make_optimizer(model, TrainConfig(lr=0.1, weight_decay=0.5))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.testing.assert_close(model.weight.detach(), before * (1 - 0.1 * 0.5))
    assert (model.bias == 1).all()


def lamb_step(weight, gradient, mean, square, *, lr, decay, is_adapted, blocks):
    """LAMB as in the paper's code, one matrix after another, in float64."""
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.999 * square + 0.001 * gradient**2
    update = mean / (np.sqrt(square) + 1e-6) + decay * weight
    if is_adapted:
        parts = []
        for w, u in zip(np.split(weight, blocks), np.split(update, blocks), strict=True):
            norm, update_norm = np.linalg.norm(w), np.linalg.norm(u)
            parts.append(u * (norm / update_norm if norm > 0 and update_norm > 0 else 1.0))
        update = np.concatenate(parts)
    return weight - lr * update, mean, square


def test_lamb_is_the_formula_matrix_by_matrix():
    config = TrainConfig(optimizer="lamb", lr=0.01)
    model = Albert(AlbertConfig(vocab_size=30, embedding_size=4, hidden_size=8, num_layers=2, num_heads=2, ffn_size=8))
    torch.nn.init.zeros_(model.sop_head.weight)  # the update of a matrix of norm 0 is not scaled
    optimizer = make_optimizer(model, config)
    assert isinstance(optimizer, Lamb)
    random = np.random.default_rng(0)
    wanted = {name: (p.detach().double().numpy(), 0.0, 0.0) for name, p in model.named_parameters()}
    for _ in range(3):
        for name, parameter in model.named_parameters():
            gradient = random.normal(size=parameter.shape)
            parameter.grad = torch.from_numpy(gradient).float()
            is_matrix = parameter.ndim > 1
            wanted[name] = lamb_step(
                *(wanted[name][0], gradient, *wanted[name][1:]),
                lr=0.01,
                decay=0.01 if is_matrix else 0.0,
                is_adapted=is_matrix,
                blocks=3 if name.endswith("qkv.weight") else 1,
            )
        optimizer.step()
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(parameter.detach().numpy(), wanted[name][0], rtol=1e-4, atol=1e-6, err_msg=name)


def test_lamb_leaves_weights_without_a_gradient_alone():
    weight = torch.nn.Parameter(torch.ones(2, 2))
    Lamb([{"params": [weight]}], {"lr": 1.0}).step()
    assert (weight == 1).all()


def test_a_run_by_the_clock_has_the_rates_of_one_by_steps():
    config = TrainConfig(steps=None, minutes=1.0, warmup_share=0.1, lr=1.0)
    assert lr_at(0.0, 1.0, config, per_step=0.01) == pytest.approx(0.1)
    assert lr_at(0.55, 1.0, config, per_step=0.01) == pytest.approx(0.5)
    assert lr_at(1.2, 1.0, config, per_step=0.01) == 0


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
    shape = AlbertConfig(vocab_size=30, embedding_size=4, hidden_size=8, num_heads=2, num_layers=2, ffn_size=24)
    model = Albert(dataclasses.replace(shape, num_groups=num_groups))
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


def muon_model() -> Albert:
    torch.manual_seed(4)
    return Albert(AlbertConfig(vocab_size=30, embedding_size=4, hidden_size=8, num_heads=2, num_layers=1, ffn_size=24))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_muon_makes_the_layers_matrices_orthogonal_and_scales_them_to_the_size_of_an_adam_step(dtype):
    torch.manual_seed(5)
    for shape in ((8, 12), (8, 24)):
        for update in make_orthogonal(torch.randn(3, *shape), dtype):
            values = torch.linalg.svdvals(update) / (0.2 * max(shape) ** 0.5)
            assert 0.5 < values.min() < values.max() < 1.3, shape
            assert 0.12 < update.square().mean().sqrt() < 0.25


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="PyTorch has Muon from 2.9 on")
def test_muon_is_that_of_pytorch_for_each_matrix_and_adam_elsewhere():
    model = muon_model()
    config = TrainConfig(optimizer="muon", lr=0.01, weight_decay=0.1, beta2=0.98)
    ours = make_optimizer(model, config, is_bf16=True)
    twins = {}
    for name, p in model.named_parameters():
        is_layer = name.startswith("encoder.") and p.ndim > 1
        for number, part in enumerate(p.detach().clone().chunk(3 if name.endswith("qkv.weight") else 1)):
            twin = torch.nn.Parameter(part.clone())
            decay = 0.1 if p.ndim > 1 else 0.0
            if is_layer:
                theirs = torch.optim.Muon([twin], lr=0.01, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
            else:
                theirs = torch.optim.AdamW([twin], lr=0.01, betas=(0.9, 0.98), eps=1e-6, weight_decay=decay)
            twins[name, number] = twin, theirs
    for _ in range(4):
        for name, p in model.named_parameters():
            p.grad = torch.randn_like(p)
            for number, part in enumerate(p.grad.chunk(3 if name.endswith("qkv.weight") else 1)):
                twin, theirs = twins[name, number]
                twin.grad = part.clone()
                theirs.step()
        ours.step()
    for name, p in model.named_parameters():
        expected = torch.cat([twin for (owner, _), (twin, _) in twins.items() if owner == name])
        tolerance = 3e-3 if name.startswith("encoder.") and p.ndim > 1 else 1e-5  # bfloat16 rounds in another order
        torch.testing.assert_close(p.detach(), expected.detach(), atol=tolerance, rtol=0)


def test_the_state_of_muon_is_packed_and_unpacked_and_another_is_refused():
    model = muon_model()
    config = TrainConfig(optimizer="muon", lr=0.01)
    optimizer = make_optimizer(model, config)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    packed = pack_optimizer(optimizer)
    copy = make_optimizer(model, config)
    unpack_optimizer(copy, packed)
    for name, tensor in pack_optimizer(copy).items():
        assert torch.equal(tensor, packed[name]), name
    with pytest.raises(ValueError, match="has other shapes"):
        unpack_optimizer(make_optimizer(model, TrainConfig()), packed)


def test_the_state_of_muon_with_the_steps_of_matrices_as_it_once_was_is_read():
    optimizer = make_optimizer(model := muon_model(), TrainConfig(optimizer="muon"))
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    packed = pack_optimizer(optimizer)
    steps = {f"optimizer.{i}.step": torch.ones(()) for i in range(len(list(model.parameters())))}
    assert len(steps.keys() - packed.keys()) == 4, "qkv, out, up and down"
    unpack_optimizer(optimizer, {**packed, **steps})
    assert pack_optimizer(optimizer).keys() == packed.keys()
