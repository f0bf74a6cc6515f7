"""Packed batches hold all rows without padding, and the model computes for them what it computes for padded ones."""

from __future__ import annotations

import dataclasses
import pickle
from collections import Counter
from itertools import islice, pairwise
from pathlib import Path
from types import SimpleNamespace

import inspect_fixtures
import numpy as np
import pytest
import torch
import toy_rows
from hypothesis import given
from hypothesis import strategies as st
from test_train_loader import CPU, steps_of, stored_row
from toy_rows import TINY, mean_loss

from albert_data.data import Examples
from albert_data.errors import CheckpointError
from albert_data.shards.reader import Shards, open_shards
from albert_data.train import ShardLoader, attention, order
from albert_data.train.attention import FLASH_2, AttentionChoice, PackedRows, choose_attention, is_right
from albert_data.train.batch import Batch, BatchShape, collate, empty_batch
from albert_data.train.device import Precision, Ranks, choose_precision
from albert_data.train.evaluation import evaluate
from albert_data.train.flops import training_flops
from albert_data.train.loader import Remasker, Splits, fixed_shapes
from albert_data.train.model import Albert
from albert_data.train.order import BatchOrder, Pack, Position, choose_pack, pack_batches
from albert_data.train.schedule import Budget
from albert_data.train.state import make_loader
from albert_data.train.tell import describe_start

SMALL = dataclasses.replace(toy_rows.SMALL, vocab_size=40, max_positions=256)


@pytest.fixture
def small_windows(monkeypatch):
    monkeypatch.setattr(order, "WINDOW_BATCHES", 5)


def small_model(**changes) -> Albert:
    torch.manual_seed(1)
    model = Albert(dataclasses.replace(SMALL, **changes)).eval()
    with torch.no_grad():  # with weights from N(0, 0.02) attention is nearly uniform
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.4)
    return model


def rows_of(batch: Batch) -> dict[int, tuple]:
    """The rows of a packed batch by number, as the shards have them: ids, segments, label, masks."""
    found, offsets = {}, batch.row_offsets_R.tolist()
    ids, segments, positions = (
        tensor.flatten().tolist() for tensor in (batch.input_ids_BT, batch.segment_ids_BT, batch.positions_BT)
    )
    pairs = zip(batch.masked_indices_N.tolist(), batch.masked_labels_N.tolist(), strict=True)
    masks = [(cell, label) for cell, label in pairs if label != -1]
    spans = zip(offsets, offsets[1:], strict=False)
    real = [(i, begin, end) for i, (begin, end) in enumerate(spans) if batch.valid_BT.flatten()[begin:end].sum() > 1]
    for row, (i, begin, end) in zip(batch.rows.tolist(), real, strict=True):
        assert positions[begin:end] == list(range(end - begin))
        here = [(cell - begin, label) for cell, label in masks if begin <= cell < end]
        found[row] = ids[begin:end], segments[begin:end], int(batch.sop_labels_B[i]), here
    return found


# ---- which rows are in a pack ----


def plain_packs(lengths: list[int], pack: Pack) -> list[list[int]]:
    """Best fit as a plain loop over all packs for each row."""
    packs: list[list[int]] = []
    for row, length in enumerate(lengths):
        rooms = [pack.pack_len - sum(lengths[other] for other in rows) for rows in packs]
        open_ = [(room, i) for i, room in enumerate(rooms) if room >= length and len(packs[i]) < pack.max_rows]
        if open_:
            packs[min(open_)[1]].append(row)
        else:
            packs.append([row])
    return packs


@given(
    lengths=st.lists(st.integers(2, 100), min_size=1, max_size=120),
    pack_len=st.integers(100, 400),
    max_rows=st.integers(1, 9),
    num_packs=st.integers(1, 4),
)
def test_each_row_goes_into_the_fullest_pack_that_has_room(lengths, pack_len, max_rows, num_packs):
    pack = Pack(pack_len, max_rows, 100)
    batches = pack_batches(np.arange(len(lengths)), np.array(lengths), pack, num_packs * pack_len)
    spans = [(b.rows, zip(b.offsets, b.offsets[1:], strict=False)) for b in batches]
    assert [rows[begin:end].tolist() for rows, ends in spans for begin, end in ends] == plain_packs(lengths, pack)
    assert all(len(batch.offsets) - 1 == num_packs for batch in batches[:-1])
    assert all(batch.row_len == pack_len for batch in batches)


@pytest.mark.parametrize(
    ("batch_tokens", "expected"), [(65_536, 4096), (20_000, 4000 // 64 * 64), (2048, 2048), (1, 512), (4097, 2048)]
)
def test_packs_divide_the_tokens_of_a_batch_and_hold_the_longest_row(batch_tokens, expected):
    assert choose_pack(np.array([3, 500]), batch_tokens).pack_len == expected


def test_the_packs_are_frozen():
    # If this changes, --resume would train on other batches: raise ORDER_VERSION too.
    assert order.ORDER_VERSION == 2
    batch_order = BatchOrder(np.arange(10, 90, 4), batch_tokens=192, seed=42, packed=True)
    found = islice(batch_order.batches_from(Position(0, 0, 0)), 4)
    assert [batch.rows.tolist() for batch, _, _ in found] == [[1, 8, 12, 16], [17, 18, 4], [11], [19, 15, 6]]


# ---- the batches ----


def test_a_pack_is_filled_up_with_empty_rows():
    # [CLS] 7 8 [SEP] 9 [SEP], masked at 2 (was 6), and [CLS] 7 [SEP], masked at 1 (was 5), in the first of two packs.
    examples = Examples(
        input_ids=np.array([2, 7, 4, 3, 9, 3, 2, 7, 3], np.uint16),
        offsets=np.array([0, 6, 9]),
        segment_a_len=np.array([2, 1], np.int32),
        sop_label=np.array([1, -1], np.int8),
        masked_positions=np.array([2, 1], np.uint16),
        masked_ids=np.array([6, 5], np.uint16),
        mask_offsets=np.array([0, 1, 2]),
        document_keys=np.array([1, 2], np.uint64),
    )
    shape = BatchShape(2, 12, 3, Pack(12, 2, 8))
    batch = collate(examples, pad_id=0, shape=shape, offsets=np.array([0, 2, 2]), rows=np.array([70, 80]))
    assert batch.input_ids_BT.tolist() == [[2, 7, 4, 3, 9, 3, 2, 7, 3, 0, 0, 0], [0] * 12]
    assert batch.segment_ids_BT.tolist() == [[0, 0, 0, 0, 1, 1, *[0] * 6], [0] * 12]
    assert batch.positions_BT.tolist() == [[0, 1, 2, 3, 4, 5, 0, 1, 2, 0, 1, 2], [*range(8), *range(4)]]
    assert batch.row_offsets_R.tolist() == [0, 6, 9, 12, 20, 24, 24, 24, 24]  # of at most 2 + 2 rows in each pack
    assert batch.sop_labels_B.tolist() == [1, *[-1] * 7]
    assert batch.masked_indices_N.tolist() == [2, 7, 0]
    assert batch.masked_labels_N.tolist() == [6, 5, -1]
    assert (batch.num_tokens, batch.num_masked, batch.num_pairs, batch.longest) == (9, 2, 1, 8)
    assert batch.attended_len == (36 + 9 + 9 + 64 + 16) / 24


@pytest.mark.parametrize(("num_ranks", "micro_tokens"), [(1, None), (2, None), (1, 512), (3, 512)])
def test_a_step_has_the_rows_of_the_shards_in_one_shape(toys, small_windows, num_ranks, micro_tokens):
    shards = toys.make_shards(145, max_seq_len=64)
    settings_ = {"batch_tokens": 1024, "seed": 3, "packed": True, "remask": False, "micro_tokens": micro_tokens}
    loaders = [ShardLoader(shards, **settings_, rank=rank, num_ranks=num_ranks) for rank in range(num_ranks)]
    num_steps = sum(len(loaders[0].order.window(0, i)) for i in range(loaders[0].order.num_windows))
    found: dict[int, tuple] = {}
    shapes = set()
    for steps in (steps_of(loader, num_steps) for loader in loaders):
        for batch in (batch for step in steps for batch in step):
            rows = rows_of(batch)
            assert not set(rows) & set(found), "a row came twice"
            found |= rows
            shapes.add(tuple(shapes_of(batch).items()))
    assert found == {row: stored_row(shards, row) for row in range(145)}
    assert len(shapes) == 1
    assert len({len(step) for step in steps}) == 1


def shapes_of(batch: Batch) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in vars(batch).items() if isinstance(value, torch.Tensor)}


def test_the_loader_knows_the_one_shape_of_its_packs_and_how_many_fit_at_once(toys):
    loader = ShardLoader(toys.make_shards(300, max_seq_len=64), batch_tokens=4096, packed=True)
    assert loader.order.pack.pack_len == loader.longest == 512
    for num_batches, tokens in ((1, 4096), (3, 1536), (8, 512)):
        assert loader.count_micro_tokens(num_batches) == tokens
        loader.micro_tokens = tokens
        (shape,) = loader.shapes()
        batches = [batch for step in steps_of(loader, 2) for batch in step]
        assert len(batches) == 2 * num_batches
        assert {batch.input_ids_BT.shape for batch in batches} == {(shape.num_rows, shape.row_len)}
        assert shapes_of(empty_batch(shape)) == shapes_of(batches[0])


@pytest.mark.parametrize("num_steps", [0, 3, 40])
def test_a_loader_resumes_in_packs_also_if_it_was_made_without(toys, small_windows, num_steps):
    shards = toys.make_shards(145, max_seq_len=64)
    loader = ShardLoader(shards, batch_tokens=512, seed=3, packed=True)
    steps_of(loader, num_steps)
    late = ShardLoader(shards, batch_tokens=512, seed=3, num_ranks=1)
    late.load_state_dict(loader.state_dict())
    for (one,), (other,) in zip(steps_of(loader, 8), steps_of(late, 8), strict=True):
        assert torch.equal(one.input_ids_BT, other.input_ids_BT)
        assert np.array_equal(one.rows, other.rows)
    assert loader.state_dict() == late.state_dict()


# ---- cut rows ----

SINGLES = dataclasses.replace(inspect_fixtures.SMALL, pairs="none")


@pytest.fixture
def cut_rows(tmp_path, monkeypatch, small_windows) -> Shards:
    """Rows without a sentence task. A pack has 64 tokens, the length of the longest row, and half of it stays empty."""
    monkeypatch.setattr(order, "PACK_ROWS", 1)
    documents = inspect_fixtures.draw_sentences(150, 1) + inspect_fixtures.write_sentences(60, 1)
    rows = inspect_fixtures.make_examples(documents, dataclasses.replace(SINGLES, max_seq_len=64))
    config = dataclasses.replace(SINGLES, max_seq_len=64)
    return open_shards(inspect_fixtures.write_folder(tmp_path / "shards", {"train": [rows]}, config))


def texts_of(batches: list[Batch]) -> Counter:
    """How often each token of text comes, with its original or -1, by the number of its row."""
    found: Counter = Counter()
    for batch in batches:
        ids, offsets = batch.input_ids_BT.flatten().tolist(), batch.row_offsets_R.tolist()
        pairs = zip(batch.masked_indices_N.tolist(), batch.masked_labels_N.tolist(), strict=True)
        labels = {cell: label for cell, label in pairs if label != -1}
        real = [(begin, end) for begin, end in pairwise(offsets) if batch.valid_BT.flatten()[begin:end].sum() > 1]
        for row, (begin, end) in zip(batch.rows.tolist(), real, strict=True):
            assert (ids[begin], ids[end - 1]) == (2, 3), "a part has special pieces of its own"
            found.update((row, ids[cell], labels.get(cell, -1)) for cell in range(begin + 1, end - 1))
    return found


def stored_texts(shards: Shards, epoch: int, seed: int) -> Counter:
    """The same of the shards' own rows, with the masks of an epoch."""
    numbers = np.arange(len(shards))
    rows, found = shards.rows(numbers), Counter()
    if epoch:
        rows = Remasker(shards.manifest, shards.tokenizer, seed=seed)(rows, numbers, epoch)
    for row in range(len(shards)):
        tokens, masks = (slice(*offsets[row : row + 2]) for offsets in (rows.offsets, rows.mask_offsets))
        originals = dict(zip(rows.masked_positions[masks].tolist(), rows.masked_ids[masks].tolist(), strict=True))
        cells = enumerate(rows.input_ids[tokens].tolist()[1:-1], start=1)
        found.update((row, token, originals.get(at, -1)) for at, token in cells)
    return found


@pytest.mark.parametrize(("num_ranks", "micro_tokens", "epoch"), [(1, None, 0), (3, 64, 0), (2, None, 1)])
def test_every_token_of_cut_rows_comes_once_an_epoch(cut_rows, num_ranks, micro_tokens, epoch):
    kind = {"batch_tokens": 256, "seed": 5, "packed": True, "micro_tokens": micro_tokens, "num_ranks": num_ranks}
    batches: list[Batch] = []
    for rank in range(num_ranks):
        loader = ShardLoader(cut_rows, **kind, rank=rank)
        epochs = [list(loader) for _ in range(epoch + 1)]
        batches += epochs[-1]
    assert texts_of(batches) == stored_texts(cut_rows, epoch, seed=5)
    assert max(Counter(row for batch in batches for row in batch.rows.tolist()).values()) > 1, "some row is cut"


def test_a_loader_of_cut_rows_resumes_exactly_and_can_be_pickled(cut_rows):
    loader = ShardLoader(cut_rows, batch_tokens=256, seed=5, packed=True)
    steps_of(loader, 7)
    late = ShardLoader(cut_rows, batch_tokens=256, seed=5, packed=True)
    late.load_state_dict(loader.state_dict())
    copied = pickle.loads(pickle.dumps(loader))
    for (one,), (other,), (third,) in zip(*(steps_of(each, 20) for each in (loader, late, copied)), strict=True):
        assert torch.equal(one.input_ids_BT, other.input_ids_BT)
        assert torch.equal(one.input_ids_BT, third.input_ids_BT)
        assert torch.equal(one.masked_labels_N, other.masked_labels_N)


def test_a_state_of_packs_that_were_not_cut_is_refused_where_rows_are_cut(cut_rows):
    loader = ShardLoader(cut_rows, batch_tokens=256, seed=5, packed=True)
    state = {**loader.state_dict(), "order": order.ORDER_VERSION}
    with pytest.raises(CheckpointError, match="its order of rows is number 2, here it is 3"):
        loader.load_state_dict(state)
    assert ShardLoader(cut_rows, batch_tokens=256, seed=5).state_dict()["order"] == order.ORDER_VERSION


def test_the_loss_of_a_row_has_no_gradient_by_the_tokens_of_another(cut_rows):
    ((batch,),) = steps_of(ShardLoader(cut_rows, batch_tokens=128, seed=5, packed=True), 1)
    model, embedded = small_model(vocab_size=380, max_positions=64), []
    model.embeddings.token.register_forward_hook(lambda *found: embedded.append(found[2]) or found[2].retain_grad())
    x_NH = model.encode(batch).flatten(0, 1)
    ends = batch.row_offsets_R.tolist()
    rows = [(begin, end) for begin, end in pairwise(ends) if end > begin]
    assert len(rows) > 4
    for begin, end in rows:
        (gradient_BTE,) = torch.autograd.grad(x_NH[begin:end].square().sum(), embedded, retain_graph=True)
        reached = gradient_BTE.flatten(0, 1).abs().sum(-1)
        assert (reached[begin:end] > 0).all()
        assert not reached[:begin].any()
        assert not reached[end:].any()


# ---- attention and the model ----


def plain_varlen(q_NAD, k_NAD, v_NAD, offsets_q, offsets_k, longest_q, longest_k, *, window_size=(10**9, 10**9)):
    """What the kernel computes, row by row; a row that is longer than announced is cut, as by the kernel."""
    mixed_NAD = torch.full_like(q_NAD, torch.nan)
    assert torch.equal(offsets_q, offsets_k)
    assert offsets_q.dtype == torch.int32
    for begin, end in zip(offsets_q.tolist(), offsets_q.tolist()[1:], strict=False):
        end = min(end, begin + longest_q)
        one = (x_NAD[begin:end].transpose(0, 1)[None] for x_NAD in (q_NAD, k_NAD, v_NAD))
        ahead = torch.arange(end - begin) - torch.arange(end - begin)[:, None]
        mask = (-window_size[0] <= ahead) & (ahead <= window_size[1])
        mixed_NAD[begin:end] = torch.nn.functional.scaled_dot_product_attention(*one, mask)[0].transpose(0, 1)
    return mixed_NAD


@pytest.fixture
def varlen(monkeypatch):
    """Make CPU tensors take the path of the kernel, which runs as plain Python. Counts the calls."""
    calls = []

    def count(*arguments, **options):
        calls.append(arguments)
        return plain_varlen(*arguments, **options)

    monkeypatch.setattr(attention, "varlen_attn", count)
    monkeypatch.setattr(attention, "can_use_varlen", lambda q_BATD: True)
    return calls


def both_batches(toys) -> tuple[Batch, Batch]:
    """The same rows padded and packed, in the same order."""
    shards = toys.make_shards(40, max_seq_len=64)
    ((packed,),) = steps_of(ShardLoader(shards, batch_tokens=4096, packed=True, remask=False), 1)
    return collate(shards.rows(packed.rows), pad_id=0, rows=packed.rows), packed


def outcomes(model: Albert, batch: Batch, window: int = 0) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    model.zero_grad()
    output = model(batch, window)
    loss = mean_loss(output, batch)
    loss.backward()
    has_label, has_pair = batch.masked_labels_N != -1, batch.sop_labels_B != -1
    logits = torch.cat([output.mlm_logits_NV[has_label].flatten(), output.sop_logits_BK[has_pair].flatten()])
    return loss, logits, [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("is_by_kernel", [False, True])
def test_losses_logits_and_gradients_of_packs_are_those_of_padded_rows(toys, request, window, is_by_kernel):
    calls = request.getfixturevalue("varlen") if is_by_kernel else []
    padded, packed = both_batches(toys)
    found, wanted = (outcomes(small_model(), batch, window) for batch in (packed, padded))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert len(calls) == (SMALL.num_layers if is_by_kernel else 0)


def test_an_empty_pack_gives_finite_gradients(toys, varlen):
    shards = toys.make_shards(2, max_seq_len=64)
    ((batch,),) = steps_of(ShardLoader(shards, batch_tokens=4096, packed=True), 1)
    assert (batch.valid_BT.sum(1) <= 8).any(), "a pack of empty rows alone"
    assert all(gradient.isfinite().all() for gradient in outcomes(small_model(), batch)[2])


def test_packs_with_dropout_use_the_mask_because_the_kernel_has_no_dropout(toys, varlen):
    model = small_model(dropout=0.1).train()
    outcomes(model, both_batches(toys)[1])
    assert varlen == []


# ---- when rows are packed ----


def make_precision(device: str = "cuda", name: str = "bf16") -> Precision:
    return Precision(device=torch.device(device), device_info="", format=name, format_reason="")


def trial(lengths: tuple[int, ...] = (60, 4, 64), dtype: torch.dtype = torch.bfloat16) -> tuple:
    """Queries, keys and values of a pack, and its rows."""
    qkv = torch.arange(sum(lengths) * 3 * 32).sin().view(1, -1, 3, 2, 16).to(dtype)
    return qkv, PackedRows(torch.tensor([0, *lengths, 0]).cumsum(0).to(torch.int32), max(lengths))


@pytest.mark.parametrize("window", [0, 8])
def test_a_right_kernel_passes_in_bfloat16(varlen, window):
    assert is_right(*trial(), window)
    assert varlen
    assert all(q.dtype == torch.bfloat16 for q, *_ in varlen)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda q, *rest: plain_varlen(q, *rest) * 1.5,
        lambda q, *rest: plain_varlen(q, *rest).detach() + 0 * q,  # no gradient
        lambda q, k, v, offsets, *rest: plain_varlen(q, k, v, offsets[[0, 2, 3]], offsets[[0, 2, 3]], 64, 64),
        lambda q, *rest: plain_varlen(q, *rest) * torch.where(torch.arange(128) == 63, torch.nan, 1.0)[:, None, None],
    ],
    ids=["another scale", "no gradient", "rows together", "NaN"],
)
def test_a_kernel_with_wrong_results_is_found(monkeypatch, varlen, wrong):
    monkeypatch.setattr(attention, "varlen_attn", wrong)
    assert not is_right(*trial())


def test_a_kernel_that_ignores_the_window_or_has_none_is_found(monkeypatch):
    monkeypatch.setattr(attention, "can_use_varlen", lambda q_BATD: True)
    monkeypatch.setattr(attention, "varlen_attn", lambda *arguments, window_size: plain_varlen(*arguments))
    assert not is_right(*trial(), 8)
    monkeypatch.setattr(attention, "varlen_attn", lambda *arguments: plain_varlen(*arguments))  # as in PyTorch 2.10
    assert is_right(*trial())
    with pytest.raises(TypeError, match="window_size"):
        is_right(*trial(), 8)


@pytest.mark.parametrize(
    ("precision", "dropout", "kernel", "reason"),
    [
        (make_precision("cpu", "fp32"), 0.0, plain_varlen, "CUDA"),
        (make_precision(), 0.0, None, "has no varlen_attn; 2.10"),
        (make_precision(name="fp32"), 0.0, plain_varlen, "no float32"),
        (make_precision(), 0.1, plain_varlen, "no dropout"),
    ],
)
def test_rows_are_padded_where_the_kernel_cannot_run_and_the_reason_is_named(
    monkeypatch, precision, dropout, kernel, reason
):
    monkeypatch.setattr(attention, "varlen_attn", kernel)
    found = choose_attention(precision, dataclasses.replace(SMALL, dropout=dropout), [0], 64)
    assert reason in found.obstacle
    assert found.notes == ()


class Kernels:
    """Kernels of PyTorch by their names, computed on the CPU: what each does, and how long it takes."""

    def __init__(self, monkeypatch, **kinds: str) -> None:
        self.kinds, self.active, self.tried = {FLASH_2: "right", **kinds}, FLASH_2, []
        monkeypatch.setattr(attention, "can_use_varlen", lambda q_BATD: True)
        monkeypatch.setattr(attention, "list_kernels", lambda: list(self.kinds))
        monkeypatch.setattr(attention, "use_kernel", self.use)
        monkeypatch.setattr(attention, "varlen_attn", self.compute)
        monkeypatch.setattr(attention, "_time", lambda *given: {"slow": 3.0, "fast": 1.0}.get(self.kind, 2.0))

        def make_on_the_cpu(precision, config, lengths, make=attention._make_trial):
            return make(dataclasses.replace(precision, device=CPU), config, lengths)

        monkeypatch.setattr(attention, "_make_trial", make_on_the_cpu)

    @property
    def kind(self) -> str:
        return self.kinds[self.active]

    def use(self, name):
        if self.kinds[name] == "not installed":
            raise ImportError("no module named flash_attn")
        self.active = name

    def compute(self, q_NAD, k_NAD, v_NAD, offsets, *rest, **options):
        kind = self.kind
        self.tried.append((self.active, (offsets[1:] - offsets[:-1]).tolist(), options.get("window_size")))
        if kind == "fails":
            raise RuntimeError("no kernel image is available for sm_80")
        wrong = 1.5 if kind == "wrong" or (kind == "wrong windows" and "window_size" in options) else 1.0
        return wrong * plain_varlen(q_NAD, k_NAD, v_NAD, offsets, *rest, **options)


@pytest.mark.parametrize(
    ("kinds", "kernel", "notes"),
    [
        ({}, "FA2", []),
        ({"FA3": "not installed", "FA4": "not installed"}, "FA2", []),
        ({"FA3": "not installed", "FA4": "fast"}, "FA4", ["FA4, 2.00 times as fast as FA2"]),
        ({"FA4": "slow"}, "FA2", ["FA2, 1.50 times as fast as FA4"]),
        ({"FA4": "fails"}, "FA2", ["FA4 fails here: no kernel image is available for sm_80"]),
        ({"FA4": "wrong"}, "FA2", ["FA4 gives wrong results here with a window of 8"]),
        ({"FA4": "wrong windows"}, "FA2", ["FA4 gives wrong results here with a window of 8"]),
        ({"FA2": "fails", "FA4": "fast"}, "FA4", ["FA2 fails here: no kernel image is available for sm_80"]),
    ],
)
def test_the_fastest_kernel_with_right_results_is_chosen(monkeypatch, kinds, kernel, notes):
    there = Kernels(monkeypatch, **kinds)
    found = choose_attention(make_precision(), SMALL, [8, 16, 0], 40)
    assert (found.kernel, list(found.notes), found.obstacle) == (kernel, notes, None)
    assert there.active == kernel
    tried = [(lengths, window) for name, lengths, window in there.tried if name == kernel]
    assert all(([1, 63, 64, 192, 320, 40, 0], window) in tried for window in ((8, 8), (16, 16), None))


@pytest.mark.parametrize(
    ("kinds", "reason"),
    [
        ({"FA2": "wrong", "FA4": "not installed"}, "varlen_attn gives wrong results here"),
        ({"FA2": "fails"}, "varlen_attn fails here: no kernel image is available for sm_80"),
    ],
)
def test_rows_are_padded_where_no_kernel_is_right(monkeypatch, kinds, reason):
    Kernels(monkeypatch, **kinds)
    found = choose_attention(make_precision(), SMALL, [0], 40)
    assert (found.obstacle, found.kernel, found.notes) == (reason, FLASH_2, ())


def test_a_run_that_resumes_tries_only_the_kernel_with_which_it_began(monkeypatch):
    there = Kernels(monkeypatch, FA3="fast", FA4="right")
    assert choose_attention(make_precision(), SMALL, [0], 40, ["FA4"]) == AttentionChoice(kernel="FA4")
    assert {name for name, *_ in there.tried} == {"FA4"}
    there.kinds["FA4"] = "not installed"
    assert choose_attention(make_precision(), SMALL, [0], 40, ["FA4"]).obstacle == "FA4 is not installed"


@pytest.mark.parametrize(
    ("packed", "obstacle", "line"),
    [
        (True, None, "rows        packed, without padding"),
        (False, "old torch", "rows        padded (old torch)"),
        (False, None, "rows        padded (as when the run began)"),
    ],
)
def test_the_start_says_on_a_gpu_whether_rows_are_packed(toys, packed, obstacle, line):
    shards = toys.make_shards(20)
    loader = ShardLoader(shards, batch_tokens=512, packed=packed)
    parts = {"config": TINY, "model": small_model(), "precision": make_precision(), "ranks": Ranks()}
    made = SimpleNamespace(**parts, compile_obstacle=None)
    splits = Splits(folder=Path(), train=shards, validation=None)
    lines = describe_start(made, loader, obstacle, splits, Budget(TINY, 5, began=0.0))
    assert [one for one in lines if one.startswith("rows")] == [line]


@pytest.mark.parametrize(
    ("micro_tokens", "num_ranks", "unable", "reason"),
    [
        (64, 1, 0, "a pack has 512 tokens"),
        (None, 8, 0, "a pack has 512 tokens"),
        (None, 1, 1, "another process can't pack them"),
    ],
)
def test_rows_are_padded_if_a_gpu_is_to_compute_less_than_a_pack_or_a_rank_can_pack_none(
    toys, monkeypatch, micro_tokens, num_ranks, unable, reason
):
    """unable: how many other ranks can't pack rows."""
    monkeypatch.setattr(Ranks, "sum", lambda ranks, values: [value + unable for value in values])
    config = dataclasses.replace(TINY, micro_tokens=micro_tokens)
    loader, obstacle = make_loader(toys.make_shards(20), config, make_precision(), Ranks(num_ranks=num_ranks), None)
    assert not loader.is_packed
    assert reason in obstacle


# ---- losses and figures ----


@pytest.mark.parametrize("num_rows", [1, 33, 60])
def test_an_evaluation_of_packs_has_the_figures_of_padded_rows_and_one_shape(toys, num_rows):
    shards, model = toys.make_shards(60, max_seq_len=64), small_model(max_positions=64)
    (pack,) = {choose_pack(shards.lengths, 1024)}
    found = []
    for settings in ({"pack": pack}, {}):
        sizes = {"num_rows": num_rows, "batch_tokens": 1024, **settings}
        found.append(evaluate(model, shards, choose_precision("fp32", "cpu"), **sizes))
        assert len(fixed_shapes(shards, **sizes)) == 1
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_rows_longer_than_those_of_training_are_evaluated_with_padding(toys):
    loader = ShardLoader(toys.make_shards(30), batch_tokens=512, packed=True)
    assert loader.find_pack(toys.make_shards(9, seed=1)) == loader.order.pack
    assert loader.find_pack(toys.make_shards(9, max_seq_len=200)) is None
    assert ShardLoader(toys.make_shards(30), batch_tokens=512).find_pack(toys.make_shards(9)) is None


def test_flops_of_packs_count_attention_within_rows():
    rows = training_flops(SMALL, num_rows=8, row_len=64, num_masked=64)
    assert training_flops(SMALL, num_rows=8, row_len=64.0, num_tokens=512, num_masked=64) == rows
    halves = training_flops(SMALL, num_rows=16, row_len=32, num_masked=64)
    assert training_flops(SMALL, num_rows=16, row_len=32.0, num_tokens=512, num_masked=64) == halves < rows
