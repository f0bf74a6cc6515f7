"""The state of a training run: makes one update of it, saves it to a checkpoint, restores it.

An update is a function of the state before it, of its number and of its batch: dropout is seeded by (seed, step,
rank). So a resumed run makes the same updates as one that was not stopped.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from albert_data.errors import CheckpointError, ConfigError
from albert_data.shards.manifest import Manifest
from albert_data.train.attention import explain_padding
from albert_data.train.batch import Batch, BatchShape, empty_batch
from albert_data.train.checkpoint import (
    list_checkpoints,
    load_checkpoint,
    pack_optimizer,
    save_checkpoint,
    unpack_optimizer,
)
from albert_data.train.config import MODEL_PRESETS, AlbertConfig, TrainConfig
from albert_data.train.distributed import Ranks
from albert_data.train.folder import Identity, check_identity
from albert_data.train.loader import Rows, ShardLoader
from albert_data.train.metrics import Tally
from albert_data.train.model import Albert
from albert_data.train.optimizer import make_optimizer
from albert_data.train.order import derive_keys, padded_len
from albert_data.train.precision import Precision
from albert_data.train.reading import check_number, explain, show
from albert_data.train.sizes import count_parameters

_MAX_SECONDS = 1e9  # thirty years
MAX_GRAPHS = 64  # compiled programs of a module, one for each BatchShape: there are about ten


@dataclass(frozen=True, kw_only=True)
class Initial:
    """Weights to begin with. tokenizer_sha256: of the tokenizer that they were trained with; None if unknown."""

    model: Albert
    tokenizer_sha256: str | None
    origin: Path


@dataclass(kw_only=True)
class Session:
    """Everything that an update reads and changes.

    network: the model, inside DistributedDataParallel if there are several ranks.
    seconds: spent on the run so far, evaluations included. schedule_begin: see Budget.
    """

    config: TrainConfig
    precision: Precision
    ranks: Ranks
    identity: Identity
    model: Albert
    network: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    tally: Tally
    step: int = 0
    seconds: float = 0.0
    schedule_begin: float | None = None

    def gradients(self, *, are_final: bool) -> AbstractContextManager[object]:
        """A context for a backward pass: the ranks exchange gradients only in the last one of a step."""
        if isinstance(self.network, DistributedDataParallel) and not are_final:
            return self.network.no_sync()
        return nullcontext()


def choose_shape(config: TrainConfig, manifest: Manifest, initial: Initial | None = None) -> AlbertConfig:
    """Return the preset's shape with the shards' vocabulary and positions for their longest row; or that of `initial`.

    Raises ConfigError if `initial` has another vocabulary or too few positions.
    """
    longest = padded_len(manifest.config.examples.max_seq_len)
    tokenizer = manifest.tokenizer
    if initial is None:
        preset = MODEL_PRESETS[config.preset]
        return dataclasses.replace(
            preset,
            vocab_size=tokenizer.vocab_size,
            max_positions=max(preset.max_positions, longest),
            dropout=preset.dropout if config.dropout is None else config.dropout,
        )
    shape = initial.model.config
    if initial.tokenizer_sha256 not in (None, tokenizer.sha256) or shape.vocab_size != tokenizer.vocab_size:
        raise ConfigError(
            f"{initial.origin} has another vocabulary ({shape.vocab_size:,} pieces) than the shards "
            f"({tokenizer.vocab_size:,}); build the shards with its tokenizer"
        )
    if longest > shape.max_positions:
        raise ConfigError(
            f"{initial.origin} has {shape.max_positions} positions, and rows of the shards need {longest}; "
            f"build them with --max-seq-len {shape.max_positions}"
        )
    return shape if config.dropout is None else dataclasses.replace(shape, dropout=config.dropout)


def make_loader(
    rows: Rows, config: TrainConfig, shape: AlbertConfig, precision: Precision, ranks: Ranks
) -> tuple[ShardLoader, str | None]:
    """Make the loader of the training rows, packed if the device can compute packs; else also say why it can't."""
    obstacle = explain_padding(precision, shape)
    if ranks.sum([obstacle is not None])[0] and obstacle is None:
        obstacle = "another process can't pack them"
    loader = ShardLoader(
        rows,
        batch_tokens=config.batch_tokens,
        micro_tokens=config.micro_tokens,
        seed=config.seed,
        rank=ranks.rank,
        num_ranks=ranks.num_ranks,
        remask=config.remask,
        packed=obstacle is None,
    )
    return loader, obstacle


def describe_rows(loader: ShardLoader, precision: Precision, obstacle: str | None) -> list[str]:
    """Say for a GPU whether rows are packed; a run that resumes keeps what it began with.

    Raises ConfigError if that is packs, and the device can't compute them.
    """
    if loader.is_packed and obstacle is not None:
        raise ConfigError(f"can't resume here: the run's rows are packed, and {obstacle}; resume where the run was")
    if precision.device.type != "cuda":
        return []
    padded = f"padded ({obstacle or 'as when the run began'})"
    return [f"rows        {'packed, without padding' if loader.is_packed else padded}"]


def start_session(
    config: TrainConfig,
    shape: AlbertConfig,
    precision: Precision,
    ranks: Ranks,
    identity: Identity,
    initial: Initial | None = None,
) -> Session:
    """Draw the first weights, which depend only on the seed and the shape, or copy those of `initial`."""
    torch.manual_seed(config.seed)
    model = _make_model(shape)
    if initial is not None:
        model.load_state_dict(initial.model.state_dict())
    model.to(precision.device)
    if precision.device.type == "cuda" and config.compile:
        compile_model(model)
    return Session(
        config=config,
        precision=precision,
        ranks=ranks,
        identity=identity,
        model=model,
        network=DistributedDataParallel(model) if ranks.num_ranks > 1 else model,
        optimizer=make_optimizer(model, config),
        scaler=precision.gradient_scaler(),
        tally=Tally(precision.device),
    )


def _make_model(shape: AlbertConfig) -> Albert:
    try:
        return Albert(shape)
    except (MemoryError, RuntimeError) as error:  # PyTorch raises RuntimeError if memory runs out
        num_bytes = 4 * count_parameters(shape).all
        raise ConfigError(
            f"a model of {num_bytes / 1e9:,.1f} GB can't be made ({explain(error)}); use a smaller --preset"
        ) from error


def compile_model(model: Albert) -> None:
    """Compile the modules that take most of the time, a shared one once for all layers, for each BatchShape."""
    limits: Any = torch._dynamo.config  # PyTorch documents the setting under this name and has no public one
    name = "recompile_limit" if hasattr(limits, "recompile_limit") else "cache_size_limit"  # before torch 2.6
    setattr(limits, name, max(getattr(limits, name), MAX_GRAPHS))
    encoder = model.encoder
    for module in (model.embeddings, *encoder.attentions, *encoder.ffns, model.mlm_head):
        module.compile(dynamic=False)


def update(session: Session, batches: Sequence[Batch], *, lr: float, num_masked: float, num_pairs: float) -> None:
    """Make one step of the optimiser. num_masked, num_pairs: the labels of the step over all ranks."""
    config, ranks, optimizer, scaler = session.config, session.ranks, session.optimizer, session.scaler
    for group in optimizer.param_groups:
        group["lr"] = lr
    if session.model.config.dropout:
        key = derive_keys(config.seed, session.step, ranks.rank, num=1)[0]
        torch.manual_seed(int(key >> 1))  # 63 bits: never negative as int64
    optimizer.zero_grad()
    for number, batch in enumerate(batches):
        with session.gradients(are_final=number == len(batches) - 1):
            with session.precision.autocast():
                output = session.network(batch)
            # The ranks average their gradients, that is, divide their sum by num_ranks. With this factor the result is
            # the gradient of the mean over all labels of the step.
            loss = ranks.num_ranks * (output.mlm_nats / max(num_masked, 1) + output.sop_nats / max(num_pairs, 1))
            scaler.scale(loss).backward()
        session.tally.add(output, batch)
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(session.model.parameters(), config.max_grad_norm, foreach=True)
    session.tally.check(norm, session.step)
    scaler.step(optimizer)
    scaler.update()
    session.step += 1


def save_session(session: Session, run: Path, loader_state: dict[str, int]) -> Path:
    """Write a checkpoint of the state between two updates."""
    sums, tally = session.tally.state_dict()
    return save_checkpoint(
        run,
        session.step,
        weights=session.model.state_dict(),
        tensors={**pack_optimizer(session.optimizer), **sums},
        state={
            "seconds": session.seconds,
            "schedule_begin": session.schedule_begin,
            "loader": loader_state,
            "scaler": session.scaler.state_dict(),
            "tally": tally,
            "train_config": dataclasses.asdict(session.config),
            "model_config": dataclasses.asdict(session.model.config),
            "identity": session.identity,
        },
    )


def restore_newest(session: Session, loader: ShardLoader, run: Path) -> None:
    """Restore the newest checkpoint. If there is none, the run was stopped before its first one and starts again."""
    checkpoints = list_checkpoints(run)
    if not checkpoints:
        return
    weights, tensors, state = load_checkpoint(checkpoints[-1])
    try:
        _check_state(state)
        check_identity(session.identity, state["identity"], checkpoints[-1])
        session.model.load_state_dict(weights)
        unpack_optimizer(session.optimizer, tensors)
        session.scaler.load_state_dict(state["scaler"])
        session.tally.load_state_dict(tensors, state["tally"])
        if not session.ranks.is_first:  # the sums in the checkpoint are those of all ranks
            session.tally = Tally(session.precision.device)
        if state["step"] and not session.optimizer.state:
            raise ValueError("the optimiser's state is missing")
        session.step, session.seconds = int(state["step"]), float(state["seconds"])
        session.schedule_begin = None if state["schedule_begin"] is None else float(state["schedule_begin"])
        loader.load_state_dict(state["loader"])
    except (AttributeError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise CheckpointError(
            f"{checkpoints[-1]}: lacks what a run needs ({explain(error)}); "
            "delete it, and --resume continues from the one before"
        ) from error


def _check_state(state: dict[str, Any]) -> None:
    """Raise ValueError or KeyError for values that `save_session` can't have written."""
    for name in ("identity", "loader", "scaler", "tally"):
        if not isinstance(state[name], dict):
            raise ValueError(f"{name} is {show(state[name])}; an object is needed")
    check_number("step", state["step"], most=2**31 - 1, is_whole=True)
    check_number("seconds", state["seconds"], most=_MAX_SECONDS)
    if state["schedule_begin"] is not None:
        check_number("schedule_begin", state["schedule_begin"], most=_MAX_SECONDS)
    for name, value in (*state["loader"].items(), *state["scaler"].items()):
        check_number(name, value, most=2.0**63)


@contextmanager
def explain_out_of_memory(session: Session, row_len: int, num_cells: int) -> Iterator[None]:
    """Turn running out of GPU memory into a ConfigError that names a number of tokens that fits."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        traceback.clear_frames(error.__traceback__)  # the frames refer to the activations
        fits = find_fitting(session, row_len, num_cells)
        advice = f"--resume with --micro-tokens {fits}" if fits else "start another run with a smaller --preset"
        raise ConfigError(
            f"a batch of {num_cells:,} tokens, in rows of {row_len}, does not fit on "
            f"{session.precision.device_info}; {advice}"
        ) from error


def find_fitting(session: Session, row_len: int, num_cells: int) -> int:
    """Return the largest of a half, a quarter, ... of `num_cells` that fits in memory; 0 if none does.

    With several ranks it returns a half that was not tried, so it may not fit either.
    """
    if session.ranks.num_ranks > 1:
        return num_cells // 2 if num_cells // 2 >= row_len else 0
    # Before the first update the optimiser has no state yet. It will need two tensors for each parameter.
    num_copies = 0 if session.optimizer.state else 2
    reserve = [torch.empty_like(p) for p in session.model.parameters() for _ in range(num_copies)]
    try:
        return _try_smaller(session, row_len, num_cells)
    finally:
        del reserve


def _try_smaller(session: Session, row_len: int, num_cells: int) -> int:
    while (num_cells := num_cells // 2) >= row_len:
        session.optimizer.zero_grad()
        torch.cuda.empty_cache()
        try:
            with session.precision.autocast():
                shape = BatchShape(num_cells // row_len, row_len, num_cells // 6)  # a little more than the usual 15 %
                output = session.model(empty_batch(shape).to(session.precision.device))
            (output.mlm_nats + output.sop_nats).backward()
        except torch.cuda.OutOfMemoryError:
            continue
        return num_cells
    return 0
