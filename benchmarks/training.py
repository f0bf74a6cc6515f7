"""Compares a step of training with transformers' model and with plain matrix products on the same machine.

All contenders make whole updates (forward, backward, clipping, AdamW) of models of the same size on the same rows. They
take turns, so that other load of the machine affects all. Ids are random, since only shapes matter: rows are 94 to
100 % full and 15 % of the tokens are masked. 16-bit formats are those of autocast.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from albert_data.data import Examples
from albert_data.train.attention import choose_attention
from albert_data.train.batch import Batch, BatchShape, collate
from albert_data.train.compiling import compile_model
from albert_data.train.config import MODEL_PRESETS, RECIPES, AlbertConfig
from albert_data.train.device import ALONE, DTYPES, choose_format, choose_precision
from albert_data.train.flops import batch_flops, peak_flops, training_flops
from albert_data.train.loader import open_training
from albert_data.train.memory import fit_batches
from albert_data.train.model import Albert
from albert_data.train.order import PACK_ROWS, Pack
from albert_data.train.state import choose_shape, make_loader, start_session
from albert_data.train.update import update
from benchmarks.training_rows import FUSED_GELU, OURS, PACKED, TRANSFORMERS, WHOLE, Ceiling, Speed

MASKED_SHARE = 0.15
MIN_FULL_SHARE = 15 / 16  # of a row
PAD, CLS, SEP, MASK, FIRST_ORDINARY = 0, 2, 3, 4, 5
NOT_PREDICTED = -100  # transformers' label for a token that is not masked
WARM_UP = 3
LR = 1e-4
# Rows, inner size and columns of products. Square ones, and those of base: a GPU reaches a tenth more with these.
CEILING_SHAPES = {
    "cuda": ((8192, 8192, 8192), (65_536, 768, 2304), (65_536, 768, 3072), (65_536, 3072, 768)),
    "cpu": ((2048, 2048, 2048),),
}
# Cells (rows x length) of a batch. On a GPU: enough to keep an H200 busy, and few enough for its memory although
# transformers computes logits of every token. tiny and mini, for a CPU: the batches of their recipes.
BATCH_CELLS = {"tiny": 2048, "mini": 2048, "base": 65_536, "large": 32_768}
OTHER_CELLS = 16_384

Step = Callable[[], Tensor]
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where and how to measure. round_seconds: about how long a turn of a contender takes."""

    device: torch.device
    runs: int
    round_seconds: float
    is_compiled: bool

    @property
    def where(self) -> str:
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        num_threads = torch.get_num_threads()
        return f"CPU, {num_threads} thread{'s' * (num_threads > 1)}"

    @property
    def precision(self) -> str:
        """The format that training chooses on this machine."""
        is_gpu = self.device.type == "cuda"
        return choose_format("auto", torch.cuda.get_device_capability(self.device) if is_gpu else None)[0]

    def wait(self) -> None:
        """Wait until the device has finished its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A model, and how it computes. precision: a key of DTYPES."""

    name: str
    precision: str
    is_compiled: bool


def measure_ceiling(machine: Machine) -> Iterator[Ceiling]:
    """Time products of matrices of several shapes. The fastest is an upper bound for any model on this machine."""
    for shape in CEILING_SHAPES[machine.device.type]:
        sizes, dtype = (shape[:2], shape[1:], shape[::2]), DTYPES[machine.precision]
        left, right, out = (torch.randn(size, device=machine.device, dtype=dtype) for size in sizes)

        def multiply(left: Tensor = left, right: Tensor = right, out: Tensor = out) -> Tensor:
            return torch.matmul(left, right, out=out)

        seconds = take_turns({"": multiply}, machine)[""]
        peak = peak_flops(machine.where, machine.precision)
        yield Ceiling(where=machine.where, precision=machine.precision, shape=shape, seconds=seconds, peak_flops=peak)


def measure_speed(machine: Machine, preset: str, row_len: int, num_cells: int | None = None) -> Iterator[Speed]:
    """Time the updates of each contender for this machine."""
    config = MODEL_PRESETS[preset]
    num_rows = max(1, (num_cells or BATCH_CELLS.get(preset, OTHER_CELLS)) // row_len)
    examples = make_examples(config, num_rows, row_len)
    torch.compiler.reset()  # otherwise graphs of earlier sizes count towards the limit, and later sizes run uncompiled
    steps, firsts, peaks, missing = {}, {}, {}, {}
    for one in choose_contenders(machine):
        try:
            steps[one], firsts[one], peaks[one] = start(one, config, examples, machine)
        except torch.cuda.OutOfMemoryError:
            missing[one] = "out of memory"
        except ModuleNotFoundError as error:
            missing[one] = f"{error.name} is not installed"
    num_graphs = count_graphs()
    seconds = take_turns(steps, machine)
    num_graphs = count_graphs() - num_graphs
    num_masked = int(examples.mask_offsets[-1])
    for one in choose_contenders(machine):
        yield Speed(
            where=machine.where,
            precision=one.precision,
            model=preset,
            row_len=row_len,
            num_rows=num_rows,
            contender=one.name,
            num_tokens=int(examples.offsets[-1]),
            flops=training_flops(config, num_rows=num_rows, row_len=row_len, num_masked=num_masked),
            is_compiled=one.is_compiled,
            seconds=seconds.get(one, ()),
            first_seconds=firsts.get(one, 0.0),
            num_graphs=num_graphs,
            peak_bytes=peaks.get(one, 0),
            missing=missing.get(one, ""),
        )


def measure_update(machine: Machine, preset: str, folder: Path) -> Iterator[Speed]:
    """Time what `train` computes on shards: its loader, choice of packs and of micro-batches, update and scaler.

    It has the batch and the optimiser of the preset's recipe.
    """
    torch.compiler.reset()
    config = replace(RECIPES["quick"][preset], compile=machine.is_compiled)
    rows, precision = open_training(folder).train, choose_precision("auto", str(machine.device))
    shape, longest = choose_shape(config, rows.manifest), rows.manifest.config.examples.max_seq_len
    attention = choose_attention(precision, shape, [0], longest)
    loader, _ = make_loader(rows, config, precision, ALONE, attention.obstacle)
    session = start_session(config, shape, precision, ALONE, {})
    fit_batches(session, loader)
    stream, made = loader.stream(machine.device), list[Batch]()

    def step() -> Tensor:
        batches = next(stream)
        counts = [sum(getattr(batch, name) for batch in batches) for name in ("num_masked", "num_pairs")]
        update(session, batches, lr=LR, num_masked=counts[0], num_pairs=counts[1])
        made.extend(batches)
        return torch.zeros(())

    first, num_graphs = time_steps(step, 1, machine), count_graphs()
    seconds = take_turns({"": step}, machine)[""]
    row_len = rows.manifest.config.examples.max_seq_len
    yield Speed(
        where=machine.where,
        precision=precision.format,
        model=preset,
        row_len=row_len,
        num_rows=config.batch_tokens // row_len,
        contender=WHOLE,
        num_tokens=round(sum(batch.num_tokens for batch in made) / session.step),
        flops=round(sum(batch_flops(shape, batch) for batch in made) / session.step),
        is_compiled=machine.is_compiled,
        seconds=seconds,
        first_seconds=first,
        num_graphs=count_graphs() - num_graphs,
        peak_bytes=torch.cuda.max_memory_allocated(machine.device) if machine.device.type == "cuda" else 0,
    )


def make_examples(config: AlbertConfig, num_rows: int, row_len: int) -> Examples:
    """Make rows of random ids in two segments; the first row has the full length."""
    random = np.random.default_rng(0)
    lengths = random.integers(math.ceil(row_len * MIN_FULL_SHARE), row_len + 1, num_rows)
    lengths[0] = row_len
    offsets = np.cumsum([0, *lengths])
    ids = random.integers(FIRST_ORDINARY, config.vocab_size, offsets[-1]).astype(np.uint32)
    positions = [draw_positions(random, int(length)) for length in lengths]
    flat = np.concatenate([begin + found for begin, found in zip(offsets[:-1], positions, strict=True)])
    masked_ids = ids[flat].copy()
    ids[flat] = MASK
    a_lens = lengths // 2 - 2
    ids[offsets[:-1]], ids[offsets[:-1] + a_lens + 1], ids[offsets[1:] - 1] = CLS, SEP, SEP
    return Examples(
        input_ids=ids,
        offsets=offsets,
        segment_a_len=a_lens.astype(np.int32),
        sop_label=random.integers(0, 2, num_rows).astype(np.int8),
        masked_positions=np.concatenate(positions).astype(np.uint16),
        masked_ids=masked_ids,
        mask_offsets=np.cumsum([0, *map(len, positions)]),
        document_keys=np.arange(num_rows, dtype=np.uint64),
    )


def pack_rows(examples: Examples, row_len: int) -> Batch:
    """Lay out rows in packs, as training does on a GPU."""
    num_rows, pack_len = len(examples), PACK_ROWS * row_len
    offsets = np.append(np.arange(0, num_rows, PACK_ROWS), num_rows)
    pack = Pack(pack_len, PACK_ROWS, row_len)
    shape = BatchShape(len(offsets) - 1, pack_len, int(examples.mask_offsets[-1]), pack)
    return collate(examples, pad_id=PAD, shape=shape, offsets=offsets)


def draw_positions(random: np.random.Generator, row_len: int) -> np.ndarray:
    """Draw 15 % of a row's positions, in order, without [CLS] and [SEP]."""
    positions = np.setdiff1d(np.arange(1, row_len - 1), [row_len // 2 - 1])
    return np.sort(random.choice(positions, round(MASKED_SHARE * len(positions)), replace=False))


def choose_contenders(machine: Machine) -> list[Contender]:
    """Return what `train` computes on this machine first, then other ways of ours and of transformers.

    transformers' gelu_new is a chain of elementwise operations. A compiler fuses them; without one, a second contender
    is the same model with PyTorch's own kernel for that function.
    """
    precision, is_gpu = machine.precision, machine.device.type == "cuda"
    compiled = [True, False] if machine.is_compiled else [False]
    ways = [(PACKED, way) for way in compiled[:1] if is_gpu]
    ways += [(name, way) for name in (OURS, TRANSFORMERS) for way in compiled]
    ways += [(FUSED_GELU, False)]
    found = [Contender(name=name, precision=precision, is_compiled=way) for name, way in ways]
    in_float32 = [Contender(name=name, precision="fp32", is_compiled=False) for name in (OURS, TRANSFORMERS)]
    return [*found, *in_float32] if not is_gpu and precision != "fp32" else found


def make_ours(config: AlbertConfig, batch: Batch, *, is_compiled: bool) -> tuple[nn.Module, Step]:
    model = Albert(config).to(batch.input_ids_BT.device)
    if is_compiled:
        compile_model(model)

    def compute_loss() -> Tensor:
        output = model(batch)
        return output.mlm_nats / batch.num_masked + output.sop_nats / batch.num_pairs

    return model, compute_loss


def make_theirs(
    config: AlbertConfig, batch: Batch, *, is_compiled: bool, gelu: str = "gelu_new"
) -> tuple[nn.Module, Step]:
    from transformers import AlbertConfig as TheirConfig
    from transformers import AlbertForPreTraining

    shape = TheirConfig(
        vocab_size=config.vocab_size,
        embedding_size=config.embedding_size,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_layers,
        num_hidden_groups=config.num_groups,
        num_attention_heads=config.num_heads,
        intermediate_size=config.ffn_size,
        max_position_embeddings=config.max_positions,
        hidden_act=gelu,
        hidden_dropout_prob=config.dropout,
        attention_probs_dropout_prob=config.dropout,
        classifier_dropout_prob=config.dropout,
        attn_implementation="sdpa",
    )
    model = AlbertForPreTraining(shape).to(batch.input_ids_BT.device).train()
    if is_compiled:
        model.compile()
    inputs = their_inputs(batch)
    return model, lambda: model(**inputs).loss


def their_inputs(batch: Batch) -> dict[str, Tensor]:
    """Return the same batch under the names of AlbertForPreTraining."""
    labels_BT = torch.full_like(batch.input_ids_BT, NOT_PREDICTED, dtype=torch.int64)
    labels_BT.view(-1)[batch.masked_indices_N] = batch.masked_labels_N
    return {
        "input_ids": batch.input_ids_BT,
        "attention_mask": batch.valid_BT.long(),
        "token_type_ids": batch.segment_ids_BT,
        "labels": labels_BT,
        "sentence_order_label": batch.sop_labels_B,
    }


def start(contender: Contender, config: AlbertConfig, examples: Examples, machine: Machine) -> tuple[Step, float, int]:
    """Make a contender and warm it up; return its update, the seconds of the first, and its peak bytes on a GPU."""
    is_gpu = machine.device.type == "cuda"
    torch.manual_seed(0)
    row_len = int(np.diff(examples.offsets).max())
    batch = pack_rows(examples, row_len) if contender.name == PACKED else collate(examples, pad_id=PAD)
    batch = batch.to(machine.device)
    if contender.name in (OURS, PACKED):
        model, loss_of = make_ours(config, batch, is_compiled=contender.is_compiled)
    else:
        gelu = "gelu_pytorch_tanh" if contender.name == FUSED_GELU else "gelu_new"
        model, loss_of = make_theirs(config, batch, is_compiled=contender.is_compiled, gelu=gelu)
    step = make_update(model, loss_of, DTYPES[contender.precision], machine.device)
    if is_gpu:
        torch.cuda.reset_peak_memory_stats(machine.device)
    first = time_steps(step, 1, machine)
    loss = torch.stack([step() for _ in range(WARM_UP)])[-1]
    if not torch.isfinite(loss):
        raise ArithmeticError(
            f"the loss is {loss.item()} after {WARM_UP} steps; the speed of such steps has no meaning"
        )
    return step, first, torch.cuda.max_memory_allocated(machine.device) if is_gpu else 0


def make_update(model: nn.Module, loss_of: Step, dtype: torch.dtype, device: torch.device) -> Step:
    """Return an update as in training. All contenders have the same optimiser, so that only the models differ."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, fused=True)

    def update() -> Tensor:
        with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
            loss = loss_of()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return update


def take_turns(steps: Mapping[Key, Step], machine: Machine) -> dict[Key, tuple[float, ...]]:
    """Return the seconds of a step of each contender, a figure for each turn; a turn is several steps."""
    counts = {}
    for name, step in steps.items():
        time_steps(step, WARM_UP, machine)
        counts[name] = max(1, round(machine.round_seconds / time_steps(step, 1, machine)))
    rounds = [
        {name: time_steps(step, counts[name], machine) / counts[name] for name, step in steps.items()}
        for _ in range(machine.runs)
    ]
    return {name: tuple(one[name] for one in rounds) for name in steps}


def time_steps(step: Step, num_steps: int, machine: Machine) -> float:
    machine.wait()
    begin = time.perf_counter()
    for _ in range(num_steps):
        step()
    machine.wait()
    return time.perf_counter() - begin


def count_graphs() -> int:
    """Return how many graphs torch.compile has made in this process."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])
