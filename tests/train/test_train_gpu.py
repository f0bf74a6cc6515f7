"""What training computes on a GPU is what it computes on a CPU. Each test runs on both, so that it is itself tested."""

from __future__ import annotations

import copy
import dataclasses
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode  # where PyTorch's own documents name it; in a test alone
from toy_rows import FakeShards, mean_loss

from albert_data.train import loop
from albert_data.train import state as session
from albert_data.train.batch import Batch
from albert_data.train.checkpoint import list_checkpoints, load_checkpoint, load_model
from albert_data.train.compiling import compile_model
from albert_data.train.config import MODEL_PRESETS, AlbertConfig, TrainConfig
from albert_data.train.device import ALONE, Precision
from albert_data.train.loader import ShardLoader
from albert_data.train.model import Albert
from albert_data.train.optimizer import make_optimizer
from albert_data.train.order import BUCKET
from albert_data.train.state import start_session
from albert_data.train.update import update

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
ON_BOTH = pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])], indirect=True
)
# Half precision on a CPU takes seconds.
FP16 = pytest.param("fp16", marks=pytest.mark.slow)
EACH_OPTIMIZER = pytest.mark.parametrize("optimizer", ["adamw", "lamb", "muon"])
SHAPE = AlbertConfig(
    vocab_size=1000, max_positions=128, embedding_size=32, hidden_size=128, num_layers=3, num_heads=2, ffn_size=256
)
TINY = TrainConfig(
    preset="tiny", lr=1e-3, steps=6, batch_tokens=8 * 64, log_every=1, eval_every=3, save_every=3, compile=False
)


@pytest.fixture(autouse=True)
def padded_as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(session, "CPU_BUCKET", BUCKET)


@pytest.fixture
def device(request) -> Iterator[torch.device]:
    """The device, with exact products of float32. A run changes what a process has set for them."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.enable_cudnn_sdp(False)  # as in training
    yield torch.device(request.param)
    torch.backends.cuda.enable_cudnn_sdp(True)
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def rows(toys) -> FakeShards:
    return toys.make_shards(12, vocab_size=1000, max_seq_len=120)


def make_precision(device: torch.device, format: str) -> Precision:
    return Precision(device=device, device_info="test", format=format, format_reason="test")


def make_model(**changes) -> Albert:
    torch.manual_seed(1)
    model = Albert(dataclasses.replace(SHAPE, **changes))
    with torch.no_grad():  # with weights from N(0, 0.02) attention is nearly uniform
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


def make_batch(rows: FakeShards, *, packed: bool) -> Batch:
    """All rows as one batch."""
    loader = ShardLoader(rows, batch_tokens=128 * len(rows), packed=packed)
    (batch,) = next(iter(loader.stream(torch.device("cpu"), 1)))
    assert batch.num_tokens == rows.lengths.sum()
    return batch


def gradients(model: Albert, batch: Batch, precision: Precision, window: int = 0) -> list[torch.Tensor]:
    model.zero_grad()
    batch = batch.to(precision.device)
    with precision.autocast():
        output = model(batch, window)
    mean_loss(output, batch).backward()
    return [p.grad.float().cpu().clone() for p in model.parameters()]  # on a CPU the first two copy nothing


@ON_BOTH
@pytest.mark.parametrize("format", ["bf16", FP16])
@pytest.mark.parametrize("packed", [True, False])
def test_gradients_in_16_bits_are_nearly_those_of_padded_rows_in_float32(device, rows, format, packed):
    model = make_model()
    names = [name for name, _ in model.named_parameters()]
    exact = gradients(model, make_batch(rows, packed=False), make_precision(torch.device("cpu"), "fp32"))
    model.to(device)
    if device.type == "cuda" and format == "bf16":  # it takes half a minute, on a CPU more
        torch.compiler.reset()
        compile_model(model)
    found = gradients(model, make_batch(rows, packed=packed), make_precision(device, format))
    for name, one, other in zip(names, found, exact, strict=True):
        assert (one - other).norm() <= 0.05 * other.norm() + 1e-6, name


@pytest.mark.slow  # Inductor compiles
@ON_BOTH
def test_a_window_that_grows_compiles_nothing_and_has_the_gradients_of_a_mask(device, rows):
    plain, model, batch = make_model(), make_model().to(device), make_batch(rows, packed=True)
    torch.compiler.reset()
    compile_model(model)
    for window, stance in ((8, "default"), (16, "fail_on_recompile"), (120, "fail_on_recompile")):
        exact = gradients(plain, batch, make_precision(torch.device("cpu"), "fp32"), window)
        with torch.compiler.set_stance(stance):
            found = gradients(model, batch, make_precision(device, "bf16"), window)
        for one, other in zip(found, exact, strict=True):
            assert (one - other).norm() <= 0.05 * other.norm() + 1e-6


@ON_BOTH
def test_recomputing_gives_the_same_gradients(device, rows):
    model, batch, precision = make_model().to(device), make_batch(rows, packed=True), make_precision(device, "bf16")
    kept = gradients(model, batch, precision)
    model.encoder.recompute = True
    for one, other in zip(gradients(model, batch, precision), kept, strict=True):
        # On a GPU the gradients of embeddings are added in any order.
        assert (one - other).norm() <= 1e-3 * other.norm()


@ON_BOTH
@EACH_OPTIMIZER
def test_updates_of_an_optimiser_are_those_of_a_cpu(device, optimizer):
    config, models = (
        TrainConfig(optimizer=optimizer, lr=0.01, weight_decay=0.1),
        [make_model(), make_model().to(device)],
    )
    made = [make_optimizer(model, config) for model in models]
    for step in range(5):
        torch.manual_seed(step)
        for p, q in zip(*(model.parameters() for model in models), strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.to(device)
        for one in made:
            one.step()
    for (name, p), q in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(q.cpu(), p, atol=2e-4, rtol=1e-4, msg=name)


class NothingRead(TorchDispatchMode):
    """Fails where a CPU reads a tensor's value; for a GPU it would wait."""

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        name = function._schema.name
        assert name not in ("aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero")
        if name == "aten::index":
            assert all(index is None or index.dtype != torch.bool for index in arguments[1]), "how many are true?"
        return function(*arguments, **(named or {}))


@contextmanager
def gpu_is_not_waited_for() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@ON_BOTH
@EACH_OPTIMIZER
@pytest.mark.parametrize("format", ["fp32", "bf16", FP16])
def test_an_update_never_waits_for_the_device(device, rows, optimizer, format):
    config = dataclasses.replace(TINY, optimizer=optimizer, device=device.type)
    session = start_session(config, SHAPE, make_precision(device, format), ALONE, {}, None)
    packed = format != "fp32"
    batches = [make_batch(rows, packed=packed).to(device)]
    counts = {"num_masked": batches[0].num_masked, "num_pairs": batches[0].num_pairs}
    update(session, batches, lr=1e-3, **counts)  # the first makes state and handles of libraries
    guard: Callable[[], AbstractContextManager[object]] = NothingRead if device.type == "cpu" else gpu_is_not_waited_for
    before = copy.deepcopy(session.model.state_dict())
    with guard():
        update(session, batches, lr=1e-3, **counts)
    assert session.tally.num_skipped() == 0
    assert any(not torch.equal(before[name], p) for name, p in session.model.state_dict().items())
    hook = session.model.pooler.bias.register_hook(lambda gradient: gradient * torch.inf)
    before = copy.deepcopy((session.model.state_dict(), session.optimizer.state_dict()["state"]))
    with guard():
        update(session, batches, lr=1e-3, **counts)
    hook.remove()
    assert session.tally.num_skipped() == 1
    assert all(torch.equal(before[0][name], p) for name, p in session.model.state_dict().items())
    for number, state in session.optimizer.state_dict()["state"].items():
        assert all(torch.equal(before[1][number][name], tensor) for name, tensor in state.items()), number


@contextmanager
def little_memory(device: torch.device, monkeypatch) -> Iterator[None]:
    """Let a batch of more than 8,192 tokens not fit: 1 GB is left of a GPU."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        share = (torch.cuda.memory_reserved() + 1e9) / torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(share)
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        return
    forward = Albert.forward

    def run_out(model, batch, *window):
        if batch.input_ids_BT.numel() > 8192:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return forward(model, batch, *window)

    monkeypatch.setattr(Albert, "forward", run_out)
    yield


@ON_BOTH
def test_a_batch_that_does_not_fit_is_halved_until_it_does(device, toys, use_shards, tmp_path, monkeypatch, capsys):
    use_shards(toys.make_shards(2000, max_seq_len=64))
    whole = 65_536 if device.type == "cuda" else 16_384
    if device.type == "cuda":
        monkeypatch.setitem(MODEL_PRESETS, "tiny", dataclasses.replace(SHAPE, num_layers=24))
    config = dataclasses.replace(TINY, steps=2, device=device.type, batch_tokens=whole, micro_tokens=whole)
    with little_memory(device, monkeypatch):
        last = loop.train(tmp_path, tmp_path / "run", config)
    assert "does not fit on" in (said := capsys.readouterr().err)
    assert f"at most {whole // 2:,} tokens are computed at once" in said
    assert all(tensor.isfinite().all() for tensor in load_model(last).state_dict().values())


@ON_BOTH
@EACH_OPTIMIZER
def test_a_resumed_run_has_the_losses_of_a_whole_one(device, toys, use_shards, tmp_path, optimizer):
    use_shards(toys.make_shards(60), toys.make_shards(12, seed=1))
    config = dataclasses.replace(TINY, optimizer=optimizer, device=device.type)
    loop.train(tmp_path, tmp_path / "whole", config)
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    shutil.rmtree(list_checkpoints(tmp_path / "parts")[-1])
    loop.train(tmp_path, tmp_path / "parts", config, resume=True)
    whole, parts = (toys.read_metrics(tmp_path / name) for name in ("whole", "parts"))
    assert [line["step"] for line in whole] == [line["step"] for line in parts]
    for one, other in zip(whole, parts, strict=True):
        assert one["mlm_loss"] == pytest.approx(other["mlm_loss"], rel=1e-3)


@pytest.mark.slow
@ON_BOTH
def test_a_run_in_float16_learns_and_keeps_its_scale(device, toys, use_shards, tmp_path, monkeypatch):
    use_shards(toys.make_shards(60), toys.make_shards(12, seed=1))
    monkeypatch.setattr(loop, "choose_precision", lambda *given: make_precision(device, "fp16"))
    loop.train(tmp_path, tmp_path / "run", dataclasses.replace(TINY, steps=40, lr=1e-2, device=device.type))
    lines = [line for line in toys.read_metrics(tmp_path / "run") if line["split"] == "train"]
    first, last = (sum(line["mlm_loss"] for line in part) / 5 for part in (lines[:5], lines[-5:]))
    assert last < first - 0.05  # of random tokens only the frequencies can be learnt
    scale = load_checkpoint(list_checkpoints(tmp_path / "run")[-1])[2]["scaler"]["scale"]
    assert 1 <= scale <= 2.0**16


@pytest.mark.slow
@ON_BOTH
def test_a_run_by_default_settings_trains_and_evaluates(device, toys, use_shards, tmp_path, monkeypatch, capsys):
    """On a GPU: packed and compiled."""
    use_shards(toys.make_shards(500, max_seq_len=120), toys.make_shards(60, max_seq_len=120, seed=1))
    monkeypatch.setitem(MODEL_PRESETS, "tiny", SHAPE)
    batch_tokens = 16_384 if device.type == "cuda" else 512
    config = dataclasses.replace(TINY, compile=None, remask=True, device=device.type, batch_tokens=batch_tokens)
    loop.train(tmp_path, tmp_path / "run", config)
    splits = [line["split"] for line in toys.read_metrics(tmp_path / "run")]
    assert (splits.count("train"), splits.count("validation")) == (6, 2)
    said = capsys.readouterr().err
    if device.type == "cuda":
        assert "compiling " in said
        assert "packed, without padding" in said
