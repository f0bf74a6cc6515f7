"""The learning rate and the decay are BERT's."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from albert_data.train.config import AlbertConfig, TrainConfig
from albert_data.train.model import Albert
from albert_data.train.optimizer import lr_at, make_optimizer


def test_the_rate_rises_to_its_height_and_falls_to_0():
    config = TrainConfig(steps=100, warmup_share=0.1, lr=1.0)
    rates = [lr_at(step, config) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == max(rates) == 1.0
    assert rates[55] == pytest.approx(0.5)
    assert rates[99] == pytest.approx(1 / 90)
    assert all(earlier > later for earlier, later in pairwise(rates[10:]))


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_no_warm_up_and_nothing_but_warm_up_are_possible(share):
    config = TrainConfig(steps=10, warmup_share=share, lr=1.0)
    assert all(0 < lr_at(step, config) <= 1 for step in range(10))


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
