"""The state of a training run: makes it, saves it and restores it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from albert_data.errors import CheckpointError, ConfigError
from albert_data.shards.manifest import Manifest
from albert_data.shards.reader import Shards
from albert_data.train.attention import FLASH_2, AttentionChoice, choose_attention, list_kernels
from albert_data.train.checkpoint import list_checkpoints, load_checkpoint, save_checkpoint
from albert_data.train.compiling import choose_compiling, compile_model
from albert_data.train.config import MODEL_PRESETS, AlbertConfig, TrainConfig
from albert_data.train.device import Precision, Ranks, explain_out_of_memory
from albert_data.train.folder import (
    ATTENTION_KEY,
    INIT_KEY,
    RUN_FILE,
    Identity,
    check_identity,
    make_identity,
    read_run_file,
)
from albert_data.train.loader import ShardLoader
from albert_data.train.metrics import Tally
from albert_data.train.model import Albert
from albert_data.train.optimizer import FusedOptimizer, make_optimizer, pack_optimizer, unpack_optimizer
from albert_data.train.order import BUCKET, CPU_BUCKET, choose_pack, padded_len
from albert_data.train.reading import check_number, explain, read_object, show
from albert_data.train.schedule import Budget, list_windows


@dataclass(frozen=True, kw_only=True)
class Initial:
    """Weights to begin with, on the CPU. tokenizer_sha256: of theirs, None if unknown; origin: for messages."""

    model: Albert
    tokenizer_sha256: str | None
    origin: Path


@dataclass(kw_only=True)
class Session:
    """The state between two updates, and what an update needs beside its batches.

    identity: everything that decides the weights (folder.py).
    scaler: of the loss in float16; None in other formats.
    tally: the sums since the last line of metrics.
    compile_obstacle: why the model is not compiled although the settings ask for it.
    replay: makes an update by a CUDA graph and returns whether it could (graphs.py); None where there are no graphs.
    step: the number of updates made.
    """

    config: TrainConfig
    precision: Precision
    ranks: Ranks
    identity: Identity
    model: Albert
    optimizer: FusedOptimizer
    scaler: torch.amp.GradScaler | None
    tally: Tally
    is_compiled: bool = False
    compile_obstacle: str | None = None
    replay: Callable[..., bool] | None = None
    step: int = 0


MASK_STEPS = 4  # capacities for masked tokens on a GPU, from the first share of them to the last: each is compiled
_MAX_SECONDS = 1e9  # thirty years


def choose_shape(config: TrainConfig, manifest: Manifest, initial: Initial | None = None) -> AlbertConfig:
    """Return the preset's shape with the shards' vocabulary and positions for their longest row; or that of `initial`.

    The sentence task is that of the shards.
    Raises ConfigError if `initial` has another vocabulary or too few positions, or if that task has a weight of its own
    and there is none.
    """
    longest = padded_len(manifest.config.examples.max_seq_len)
    tokenizer = manifest.tokenizer
    if initial is None:
        shape = MODEL_PRESETS[config.preset]
        positions = max(shape.max_positions, longest)
        shape = dataclasses.replace(shape, vocab_size=tokenizer.vocab_size, max_positions=positions)
    else:
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
    task = manifest.config.examples.task
    if not task.orders and config.sentence_weight != TrainConfig.sentence_weight:
        what = f"sentence_weight is {config.sentence_weight:g}"
        raise ConfigError(f"{what}, but the shards have no sentence task (--pairs {task.name}); leave it out")
    dropout = shape.dropout if config.dropout is None else config.dropout
    return dataclasses.replace(shape, dropout=dropout, sentence_task=task.name)


def identify_run(
    manifest: Manifest,
    resumed: Path | None,
    config: TrainConfig,
    precision: Precision,
    ranks: Ranks,
    initial: Initial | None,
) -> tuple[AlbertConfig, Identity, AttentionChoice]:
    """Return the model's shape, the run's identity, and the kernel of attention, which a run keeps.

    Raises CheckpointError if the identity of `resumed` is another one.
    """
    stored = None if resumed is None else read_run_file(resumed)
    shape = choose_shape(config, manifest, initial) if stored is None else AlbertConfig(**stored["model"])
    longest = manifest.config.examples.max_seq_len
    trial = partial(choose_attention, precision, shape, list_windows(config, longest), longest)
    if stored is not None:
        attention = trial([str(stored["identity"].get(ATTENTION_KEY, FLASH_2))])
    else:
        names, attention = list_kernels(), trial()
        if ranks.num_ranks > 1:  # the first one's is the fastest for all
            attention = trial([names[round(ranks.follow_first(lambda: names.index(attention.kernel)))]])
    kernel = attention.kernel.removeprefix(FLASH_2)
    identity = make_identity(
        config, shape, manifest, device_type=precision.device.type, precision=precision.format, attention=kernel
    )
    if resumed is not None and stored is not None:
        check_identity(identity, stored["identity"], resumed / RUN_FILE)
    return shape, identity, attention


def make_loader(
    rows: Shards, config: TrainConfig, precision: Precision, ranks: Ranks, obstacle: str | None
) -> tuple[ShardLoader, str | None]:
    """Make the loader of the training rows, packed if there is no obstacle; else also say which."""
    pack = choose_pack(rows.lengths, config.batch_tokens) if len(rows) else None
    if pack is not None and (config.micro_tokens or config.batch_tokens // ranks.num_ranks) < pack.pack_len:
        obstacle = obstacle or f"a pack has {pack.pack_len:,} tokens, more than a GPU is to compute at once"
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
        bucket=CPU_BUCKET if precision.device.type == "cpu" else BUCKET,
        packed=obstacle is None,
    )
    if config.mask_prob is not None and precision.device.type != "cpu":
        last = config.mask_prob if config.last_mask_prob is None else config.last_mask_prob
        loader.reserve_masks(*np.linspace(config.mask_prob, last, MASK_STEPS).round(2).tolist())
    return loader, obstacle


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
    try:
        model = Albert(shape)
    except (MemoryError, RuntimeError) as error:  # PyTorch raises RuntimeError if memory runs out
        raise ConfigError(f"the model can't be made ({explain(error)}); use a smaller --preset") from error
    if config.weight_init == "sinusoid":
        model.set_sinusoids()
    if initial is not None:
        model.load_state_dict(select_weights(initial.model, model))
    with explain_out_of_memory(precision.device_info):
        model.to(precision.device)
    model.encoder.recompute = config.recompute
    is_compiled, compile_obstacle = choose_compiling(config, precision.device)
    if is_compiled:
        compile_model(model)
    return Session(
        config=config,
        precision=precision,
        ranks=ranks,
        identity=identity,
        model=model,
        optimizer=make_optimizer(model, config, is_bf16=precision.format == "bf16"),
        scaler=torch.amp.GradScaler(precision.device.type) if precision.format == "fp16" else None,
        tally=Tally(precision.device),
        is_compiled=is_compiled,
        compile_obstacle=compile_obstacle,
    )


def select_weights(initial: Albert, model: Albert) -> dict[str, torch.Tensor]:
    """The weights of `initial` for all parts that both models have; the rest as `model` has it.

    The head of another sentence task, with other labels, is not taken.
    """
    own, weights = model.state_dict(), initial.state_dict()
    if initial.config.sentence_task != model.config.sentence_task:
        weights = {name: value for name, value in weights.items() if not name.startswith("sop_head.")}
    return {name: weights.get(name, value) for name, value in own.items()}


def save_session(session: Session, budget: Budget, run: Path, loader_state: dict[str, int]) -> Path:
    """Write a checkpoint of the state between two updates."""
    return save_checkpoint(
        run,
        session.step,
        weights=session.model.state_dict(),
        tensors=pack_optimizer(session.optimizer),
        state={
            "seconds": budget.seconds,
            "schedule_begin": budget.schedule_begin,
            "work_seconds": budget.work_seconds,
            "loader": loader_state,
            "scaler": {} if session.scaler is None else session.scaler.state_dict(),
            "train_config": dataclasses.asdict(session.config),
            "model_config": dataclasses.asdict(session.model.config),
            "identity": session.identity,
        },
    )


def restore_newest(session: Session, loader: ShardLoader, run: Path, initial: Initial | None = None) -> dict[str, Any]:
    """Restore the newest checkpoint, and return the options of Budget that continue the clock.

    If there is none, the run was stopped before its first one and starts again. Raises CheckpointError if it can't,
    because its first weights were not drawn, and `initial` does not give them again.
    """
    checkpoints = list_checkpoints(run)
    if not checkpoints:
        if initial is None and (origin := read_object(run / RUN_FILE).get(INIT_KEY)) is not None:
            raise CheckpointError(
                f"{run} has no checkpoint, and its first weights were those of {origin}; "
                "start another run with this --init-from"
            )
        return {}
    weights, tensors, state = load_checkpoint(checkpoints[-1])
    try:
        _check_state(state)
        check_identity(session.identity, state["identity"], checkpoints[-1])
        session.model.load_state_dict(weights)
        with explain_out_of_memory(session.precision.device_info):
            unpack_optimizer(session.optimizer, tensors)
        if session.scaler is not None:
            session.scaler.load_state_dict(state["scaler"])
        if state["step"] and not session.optimizer.state:
            raise ValueError("the optimiser's state is missing")
        session.step = int(state["step"])
        loader.load_state_dict(state["loader"])
        return {name: state[name] for name in ("seconds", "schedule_begin", "work_seconds")}
    except (AttributeError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise CheckpointError(
            f"{checkpoints[-1]} lacks what a run needs ({explain(error)}); "
            "delete it, and --resume continues from the one before"
        ) from error


def check_agreement(session: Session, run: Path) -> None:
    """Raise an error unless all ranks continue the same run from the same step. They would train different models.

    Each then has the weights of the first one.
    """
    ranks = session.ranks
    steps = [round(step) for step in ranks.gather(session.step)]
    if len(set(steps)) > 1:
        named = ", ".join(f"{step:,} (process {steps.index(step)})" for step in sorted(set(steps)))
        raise CheckpointError(
            f"{run}: the processes found different newest checkpoints, of steps {named}: some machines see another "
            "folder, or an old state of a shared one; check it there with `ls`, then --resume again"
        )
    if len(set(ranks.gather_hashes(json.dumps(session.identity, sort_keys=True)))) > 1:
        raise ConfigError(
            "the processes differ in settings, shards or precision; start all with the same command, on equal devices"
        )
    ranks.copy_from_first(session.model.state_dict().values())


def _check_state(state: dict[str, Any]) -> None:
    """Raise an error for values that `save_session` can't have written."""
    for name in ("identity", "loader", "scaler"):
        if not isinstance(state[name], dict):
            raise ValueError(f"{name} is {show(state[name])}; an object is needed")
    check_number("step", state["step"], most=2**31 - 1, is_whole=True)
    check_number("seconds", state["seconds"], most=_MAX_SECONDS)
    if state["schedule_begin"] is not None:
        check_number("schedule_begin", state["schedule_begin"], most=_MAX_SECONDS)
    for name, value in (*state["loader"].items(), *state["scaler"].items(), *state["work_seconds"].items()):
        check_number(name, value, most=2.0**63)
