"""The model is ALBERT as published: sharing, precision, and equality with a forward pass in plain numpy."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
import toy_rows
from toy_rows import mean_loss

from albert_data.train.batch import Batch, collate
from albert_data.train.config import AlbertConfig
from albert_data.train.loader import ShardLoader
from albert_data.train.model import Albert, LayerNorm, attend_by_products, sum_losses

SMALL = dataclasses.replace(
    toy_rows.SMALL, vocab_size=40, max_positions=32, embedding_size=6, hidden_size=8, num_layers=3, ffn_size=16
)


def small_model(**changes) -> Albert:
    torch.manual_seed(1)
    model = Albert(dataclasses.replace(SMALL, **changes)).eval()
    with torch.no_grad():  # with weights from N(0, 0.02) attention is nearly uniform, and biases are 0
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.4)
    return model


@pytest.fixture
def batch(toys) -> Batch:
    shards = toys.make_shards(10)
    return collate(shards.rows(np.arange(10)), pad_id=0)


@pytest.mark.parametrize(
    ("share", "groups", "inner", "attentions", "ffns"),
    [
        ("all", 1, 1, [0, 0, 0, 0], [0, 0, 0, 0]),
        ("all", 2, 1, [0, 0, 1, 1], [0, 0, 1, 1]),
        ("all", 1, 2, [0, 1, 0, 1, 0, 1, 0, 1], [0, 1, 0, 1, 0, 1, 0, 1]),
        ("all", 2, 2, [0, 1, 0, 1, 2, 3, 2, 3], [0, 1, 0, 1, 2, 3, 2, 3]),
        ("attention", 2, 1, [0, 0, 1, 1], [0, 1, 2, 3]),
        ("attention", 2, 2, [0, 1, 0, 1, 2, 3, 2, 3], [0, 1, 2, 3, 4, 5, 6, 7]),
        ("ffn", 1, 1, [0, 1, 2, 3], [0, 0, 0, 0]),
        ("none", 1, 1, [0, 1, 2, 3], [0, 1, 2, 3]),
    ],
)
def test_each_layer_runs_the_parameters_of_its_group(batch, share, groups, inner, attentions, ffns):
    model = small_model(num_layers=4, share=share, num_groups=groups, num_inner_groups=inner)
    ran = {"attentions": [], "ffns": []}
    for kind, calls in ran.items():
        for index, module in enumerate(getattr(model.encoder, kind)):
            module.register_forward_hook(lambda *_, index=index, calls=calls: calls.append(index))
    model(batch)
    assert ran == {"attentions": attentions, "ffns": ffns}


def test_weights_start_from_a_normal_of_deviation_0_02_cut_at_two_deviations_and_biases_from_0():
    torch.manual_seed(0)
    density = math.exp(-2) / math.sqrt(2 * math.pi)
    left = math.sqrt(1 - 4 * density / math.erf(math.sqrt(2)))  # truncation multiplies the deviation by 0.88
    model = Albert(AlbertConfig(vocab_size=2000, hidden_size=192, num_heads=4, ffn_size=768, num_layers=1))
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and parameter.numel() > 10_000:
            assert abs(parameter.std().item() / (0.02 * left) - 1) < 0.05, name
            assert 0.039 < parameter.abs().max().item() <= 0.04, name
        elif name.endswith("norm.weight"):
            assert (parameter == 1).all(), name
        elif name.endswith("bias"):
            assert (parameter == 0).all(), name


@pytest.mark.parametrize("embedding_size", [128, 33])
def test_positions_begin_as_sinusoids_and_nothing_else_changes(embedding_size):
    torch.manual_seed(0)
    shape = AlbertConfig(vocab_size=900, embedding_size=embedding_size, hidden_size=64, num_heads=4, max_positions=64)
    model = Albert(shape)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.set_sinusoids()
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]) != ("position" in name), name
    position_PE = model.embeddings.position.weight.detach()
    assert abs(position_PE.std().item() / 0.02 - 1) < 0.05
    if embedding_size % 2 == 0:  # how alike two positions are depends on their distance alone
        products_PP = position_PE @ position_PE.T
        spreads = [float(own.max() - own.min()) for own in (products_PP.diagonal(distance) for distance in range(64))]
        assert max(spreads) < 1e-5
        assert products_PP[0, 0] > products_PP[0, 1] > products_PP[0, 32]


def test_a_window_leaves_padding_finite_and_without_effect(batch):
    other = dataclasses.replace(batch, input_ids_BT=torch.where(batch.valid_BT, batch.input_ids_BT, 7))
    assert (~batch.valid_BT).sum(1).max() > 4
    one, two = (small_model().encode(each, 2) for each in (batch, other))
    assert one.isfinite().all()
    torch.testing.assert_close(one[batch.valid_BT], two[batch.valid_BT])


def test_a_batch_with_nothing_to_predict_has_loss_0_and_finite_gradients(batch):
    model = small_model().train()
    nothing = dataclasses.replace(
        batch,
        masked_indices_N=batch.masked_indices_N[:0],
        masked_labels_N=batch.masked_labels_N[:0],
        sop_labels_B=torch.full_like(batch.sop_labels_B, -1),
    )
    loss = mean_loss(model(nothing), nothing)
    loss.backward()
    assert loss.item() == 0
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_compiled_form_of_the_loss_equals_the_plain_one_in_value_and_gradient(dtype):
    logits = torch.randn(7, 50, generator=torch.manual_seed(1)).to(dtype) * 5
    labels = torch.tensor([0, 49, 3, -1, 7, 7, -1])
    results = []
    for loss in (sum_losses, torch.compile(sum_losses, fullgraph=True, backend="eager")):
        leaf = logits.clone().requires_grad_()
        nats = loss(leaf, labels)
        nats.backward()
        results.append((nats.detach(), leaf.grad))
    torch.testing.assert_close(results[1], results[0])
    assert not results[1][1][3].any(), "a row without a label has no gradient"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_by_products_is_scaled_dot_product_attention(dtype):
    torch.manual_seed(2)
    q, k, v = (torch.randn(3, 2, 9, 4).to(dtype) for _ in range(3))
    mask = torch.arange(9) < torch.tensor([9, 1, 5])[:, None]
    exact = torch.nn.functional.scaled_dot_product_attention(*(x.double() for x in (q, k, v)), mask[:, None, None])
    tolerance = 1e-5 if dtype == torch.float32 else 0.03
    torch.testing.assert_close(
        attend_by_products(q, k, v, mask[:, None, None], 0.0).double(), exact, atol=tolerance, rtol=tolerance
    )


def test_attention_by_products_drops_weights_and_scales_up_the_others():
    torch.manual_seed(3)
    q, v = torch.zeros(1, 1, 64, 4), torch.ones(1, 1, 64, 4)
    mixed = attend_by_products(q, q, v, torch.ones(1, 1, 1, 64, dtype=torch.bool), 0.5)
    assert mixed.std() > 0.05
    assert abs(mixed.mean().item() - 1) < 0.1


def test_masked_tokens_added_to_fill_a_shape_change_no_loss(batch):
    filled = dataclasses.replace(
        batch,
        masked_indices_N=torch.cat([batch.masked_indices_N, torch.zeros(5, dtype=torch.int64)]),
        masked_labels_N=torch.cat([batch.masked_labels_N, torch.full((5,), -1)]),
    )
    model = small_model()
    bare, more = model(batch), model(filled)
    for name in ("mlm_nats", "sop_nats"):
        torch.testing.assert_close(getattr(bare, name), getattr(more, name))


@pytest.mark.parametrize("pairs", ["sop", "none"])
@pytest.mark.parametrize("packed", [False, True])
def test_the_last_layer_of_the_read_cells_alone_gives_the_losses_and_gradients_of_all(toys, pairs, packed):
    batch = next(iter(ShardLoader(toys.make_shards(40), batch_tokens=512, packed=packed)))
    model = small_model(sentence_task=pairs, max_positions=64).double()
    starts = torch.arange(len(batch.sop_labels_B)) * batch.input_ids_BT.shape[1]
    if packed:
        starts = batch.row_offsets_R[:-1].clamp(max=batch.input_ids_BT.numel() - 1).long()

    def measure_all_cells() -> list[torch.Tensor]:
        x_NH = model.encode(batch).flatten(0, 1)
        masked = model.mlm_head(x_NH[batch.masked_indices_N], model.embeddings.token.weight)
        losses = [sum_losses(masked, batch.masked_labels_N)]
        if pairs != "none":
            losses.append(sum_losses(model.sop_head(model.pooler(x_NH[starts]).tanh()), batch.sop_labels_B))
        return losses

    found = []
    for losses in (measure_all_cells(), [(output := model(batch)).mlm_nats, output.sop_nats][: 1 + (pairs != "none")]):
        found.append([*losses, *torch.autograd.grad(sum(losses), list(model.parameters()))])
    for all_cells, read_cells in zip(*found, strict=True):
        torch.testing.assert_close(read_cells, all_cells, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_layer_norms_compute_in_float32_and_return_the_dtype_of_their_input(batch, dtype):
    model, seen = small_model(), []

    def check(module, inputs, result):
        (x,) = inputs
        exact = torch.nn.functional.layer_norm(
            x.double(), x.shape[-1:], module.weight.double(), module.bias.double(), 1e-12
        )
        assert result.dtype == x.dtype
        # Rounded once, at the end: computed in 16 bits, small values would be off by several times this.
        torch.testing.assert_close(result.double(), exact, atol=1e-5, rtol=torch.finfo(x.dtype).eps)
        seen.append(x.dtype)

    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            assert (type(module), module.eps) == (LayerNorm, 1e-12)
            module.register_forward_hook(check)
    with torch.autocast("cpu", dtype=dtype):
        model(batch)
    assert seen == [torch.float32] + [dtype] * (2 * SMALL.num_layers + 1), "the sum of the embeddings is float32"


def test_the_forward_pass_compiles_as_one_graph(batch):
    model = small_model(num_groups=3)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(mean_loss(compiled(batch), batch), mean_loss(model(batch), batch))


@pytest.mark.parametrize("window", [0, 1, 4, 1000])
def test_the_forward_pass_equals_plain_numpy(batch, window):
    model = small_model(share="attention")
    weights = {name: value.double().numpy() for name, value in model.state_dict().items()}
    output = model(batch, window)
    reference_NV, reference_B2 = reference_forward(weights, SMALL, batch, window)
    np.testing.assert_allclose(output.mlm_logits_NV.detach().numpy(), reference_NV, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(output.sop_logits_BK.detach().numpy(), reference_B2, atol=1e-5, rtol=1e-5)
    expected = reference_loss(reference_NV, batch.masked_labels_N.numpy())
    expected += reference_loss(reference_B2, batch.sop_labels_B.numpy())
    assert mean_loss(output, batch).item() == pytest.approx(expected, abs=1e-5)


def reference_norm(x, weights, name):
    centred = x - x.mean()
    return centred / math.sqrt((centred**2).mean() + 1e-12) * weights[name + ".weight"] + weights[name + ".bias"]


def reference_linear(x, weights, name):
    return weights[name + ".weight"] @ x + weights[name + ".bias"]


def reference_gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def reference_attention(rows, weights, name, num_heads, window):
    """Compute one row of the batch, without its padding: a list of vectors of size H."""
    size = len(rows[0])
    per_head = size // num_heads
    qkv = [reference_linear(x, weights, name + ".qkv") for x in rows]
    out = []
    for here, x in enumerate(rows):
        mixed = np.zeros(size)
        for head in range(num_heads):
            part = slice(head * per_head, (head + 1) * per_head)
            query = qkv[here][:size][part]
            scores = np.array([query @ other[size : 2 * size][part] for other in qkv]) / math.sqrt(per_head)
            is_far = [window > 0 and abs(there - here) > window for there in range(len(rows))]
            scores[is_far] = -np.inf
            shares = np.exp(scores - scores.max())
            shares /= shares.sum()
            for share, other in zip(shares, qkv, strict=True):
                mixed[part] += share * other[2 * size :][part]
        out.append(reference_norm(x + reference_linear(mixed, weights, name + ".out"), weights, name + ".norm"))
    return out


def reference_ffn(x, weights, name):
    inner = reference_gelu(reference_linear(x, weights, name + ".up"))
    return reference_norm(x + reference_linear(inner, weights, name + ".down"), weights, name + ".norm")


def reference_row(weights, config, ids, segments, window):
    rows = []
    for position, (token, segment) in enumerate(zip(ids, segments, strict=True)):
        x = weights["embeddings.token.weight"][token] + weights["embeddings.position.weight"][position]
        x = reference_norm(x + weights["embeddings.segment.weight"][segment], weights, "embeddings.norm")
        rows.append(reference_linear(x, weights, "embeddings.project"))
    for layer in range(config.num_layers):  # share="attention": one attention, a feed-forward per layer
        rows = reference_attention(rows, weights, "encoder.attentions.0", config.num_heads, window)
        rows = [reference_ffn(x, weights, f"encoder.ffns.{layer}") for x in rows]
    return rows


def reference_forward(weights, config, batch, window=0):
    mlm, sop = [], []
    row_len = batch.input_ids_BT.shape[1]
    masked = batch.masked_indices_N.numpy()
    for row, valid in enumerate(batch.valid_BT.numpy()):
        ids, segments = batch.input_ids_BT[row].numpy()[valid], batch.segment_ids_BT[row].numpy()[valid]
        hidden = reference_row(weights, config, ids, segments, window)
        pooled = np.tanh(reference_linear(hidden[0], weights, "pooler"))
        sop.append(reference_linear(pooled, weights, "sop_head"))
        for index in masked[masked // row_len == row]:
            x = reference_gelu(reference_linear(hidden[index % row_len], weights, "mlm_head.dense"))
            x = reference_norm(x, weights, "mlm_head.norm")
            mlm.append(weights["embeddings.token.weight"] @ x + weights["mlm_head.bias"])
    return np.array(mlm), np.array(sop)


def reference_loss(logits, labels):
    nats = [np.log(np.exp(row).sum()) - row[label] for row, label in zip(logits, labels, strict=True) if label != -1]
    return sum(nats) / len(nats)
