"""Pretraining: shards to a run folder with metrics and checkpoints.

Each update is a function of the state before it and of its number, so a run that was stopped, by Ctrl-C or
by a power cut, goes on from its newest checkpoint with the losses that it would have had anyway: on a CPU
with as many threads bit for bit, on a GPU as far as its kernels are deterministic.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from albert_data.errors import AlbertDataError, ConfigError
from albert_data.shards.reader import open_shards
from albert_data.train.batch import Batch
from albert_data.train.checkpoint import list_checkpoints, load_checkpoint, save_checkpoint
from albert_data.train.config import MODEL_PRESETS, AlbertConfig, TrainConfig
from albert_data.train.evaluation import evaluate, measure_baseline
from albert_data.train.folder import METRICS_FILE, Identity, check_identity, claim_folder, make_identity
from albert_data.train.interrupt import Interrupt
from albert_data.train.loader import Rows, ShardLoader, Splits
from albert_data.train.metrics import Figures, MetricsFile, Tally, all_finite
from albert_data.train.model import Albert
from albert_data.train.optimizer import lr_at, make_optimizer
from albert_data.train.order import padded_len
from albert_data.train.precision import Precision, choose_precision
from albert_data.train.report import Report, describe, describe_end, describe_start


@dataclass(kw_only=True)
class Session:
    """Everything that an update reads and changes; what a checkpoint keeps."""

    config: TrainConfig
    precision: Precision
    identity: Identity
    model: Albert
    optimizer: torch.optim.AdamW
    scaler: torch.amp.GradScaler
    tally: Tally
    loader: ShardLoader
    step: int = 0
    seconds: float = 0.0

    def is_due(self, every: int) -> bool:
        return self.step % every == 0 or self.step == self.config.steps


def train(out: Path, run: Path, config: TrainConfig, *, resume: bool = False) -> Path:
    """Train on the shards in `out` and return the last checkpoint in `run`.

    resume: go on from the newest checkpoint in `run`, whose settings and shards have to be the same.
    Ctrl-C saves a checkpoint and raises KeyboardInterrupt. Seeds PyTorch's global generators.
    Raises ConfigError, ShardError, CheckpointError, OutputError; AlbertDataError if the loss is not finite.
    """
    splits = open_splits(out)
    batch_tokens = config.batch_size * padded_len(int(splits.train.manifest["config"]["max_seq_len"]))
    loader = ShardLoader(splits.train, batch_tokens=batch_tokens, seed=config.seed)
    precision = choose_precision(config.precision, config.device)
    session = start_session(config, precision, loader, splits.train.manifest)
    claim_folder(run, config, session.identity, resume=resume)
    if resume:
        restore_newest(session, run)
    with Report(num_steps=config.steps, step=session.step) as report, Interrupt() as interrupt:
        for line in describe_start(session.model, precision, config, loader, splits):
            report.say(line)
        return _Loop(session, splits, run, report).run(interrupt)


def open_splits(out: Path) -> Splits:
    """Open the training rows and, if the build set any aside, the validation rows."""
    shards: Rows = open_shards(out, split="train")
    if not shards.manifest["splits"].get("validation", {}).get("num_rows", 0):
        return Splits(folder=out, train=shards, validation=None)
    return Splits(folder=out, train=shards, validation=open_shards(out, split="validation"))


def model_config(config: TrainConfig, manifest: dict[str, Any]) -> AlbertConfig:
    """The preset's shape with the vocabulary of the shards and room for their longest row."""
    preset = MODEL_PRESETS[config.preset]
    longest = padded_len(int(manifest["config"]["max_seq_len"]))
    return dataclasses.replace(
        preset,
        vocab_size=int(manifest["tokenizer"]["vocab_size"]),
        max_positions=max(preset.max_positions, longest),
        dropout=config.dropout,
    )


def start_session(config: TrainConfig, precision: Precision, loader: ShardLoader, manifest: dict[str, Any]) -> Session:
    """Draw the first weights, from the seed alone."""
    shape = model_config(config, manifest)
    torch.manual_seed(config.seed)
    model = Albert(shape).to(precision.device)
    return Session(
        config=config,
        precision=precision,
        identity=make_identity(config, shape, manifest, device_type=precision.device.type, precision=precision.format),
        model=model,
        optimizer=make_optimizer(model, config),
        scaler=precision.gradient_scaler(),
        tally=Tally(precision.device),
        loader=loader,
    )


def save_session(session: Session, run: Path) -> Path:
    """Write a checkpoint of the state between two updates."""
    device = session.precision.device
    state = {
        "seconds": session.seconds,
        "model": session.model.state_dict(),
        "optimizer": session.optimizer.state_dict(),
        "scaler": session.scaler.state_dict(),
        "tally": session.tally.state_dict(),
        "loader": session.loader.state_dict(),
        "cpu_random": torch.get_rng_state(),
        "cuda_random": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        "train_config": dataclasses.asdict(session.config),
        "model_config": dataclasses.asdict(session.model.config),
        "identity": session.identity,
    }
    return save_checkpoint(run, session.step, state)


def restore_newest(session: Session, run: Path) -> None:
    """Take over the newest checkpoint; without one, the run was stopped before its first, and starts anew."""
    checkpoints = list_checkpoints(run)
    if not checkpoints:
        return
    state = load_checkpoint(checkpoints[-1])
    check_identity(session.identity, state["identity"], checkpoints[-1])
    session.model.load_state_dict(state["model"])
    session.optimizer.load_state_dict(state["optimizer"])
    session.scaler.load_state_dict(state["scaler"])
    session.tally.load_state_dict(state["tally"])
    session.loader.load_state_dict(state["loader"])
    session.step, session.seconds = state["step"], state["seconds"]
    torch.set_rng_state(state["cpu_random"])
    if session.precision.device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda_random"], session.precision.device)


def update(session: Session, batch: Batch) -> None:
    """Make one step of the optimiser."""
    for group in session.optimizer.param_groups:
        group["lr"] = lr_at(session.step, session.config)
    with session.precision.autocast():
        output = session.model(batch)
    session.optimizer.zero_grad()
    session.scaler.scale(output.loss).backward()
    session.scaler.unscale_(session.optimizer)
    norm = torch.nn.utils.clip_grad_norm_(session.model.parameters(), session.config.max_grad_norm)
    session.scaler.step(session.optimizer)
    session.scaler.update()
    session.tally.add(output, batch, norm)
    session.step += 1


class _Loop:
    """The updates of one process, with the lines, evaluations and checkpoints between them."""

    def __init__(self, session: Session, splits: Splits, run: Path, report: Report) -> None:
        self._session = session
        self._splits = splits
        self._run = run
        self._report = report
        self._metrics = MetricsFile(run / METRICS_FILE, keep_until_step=session.step)

    def run(self, interrupt: Interrupt) -> Path:
        session, config = self._session, self._session.config
        if session.step:
            finished = ": nothing is left to do" if session.step == config.steps else ""
            self._report.say(f"resuming at step {session.step:,} of {config.steps:,}{finished}")
        lap = time.perf_counter()
        for (batch,) in session.loader.stream(session.precision.device, config.steps - session.step):
            self._update(batch)
            # Reading waits for the GPU, and that wait is part of the lap.
            values = self._read_tally() if session.is_due(config.log_every) else None
            session.tally.seconds += time.perf_counter() - lap
            if values is not None:
                self._log(values)
            if session.is_due(config.eval_every):
                self._evaluate()
            if session.is_due(config.save_every) or interrupt.asked:
                self._save()
            if interrupt.asked and session.step < config.steps:
                self._say_how_to_resume()
                raise KeyboardInterrupt
            lap = time.perf_counter()
        return list_checkpoints(self._run)[-1]

    def _update(self, batch: Batch) -> None:
        try:
            update(self._session, batch)
        except torch.cuda.OutOfMemoryError as error:
            rows, row_len = batch.input_ids_BT.shape
            raise ConfigError(
                f"batch_size is {rows}, and such a batch, of rows of {row_len} tokens, does not fit on "
                f"{self._session.precision.device_reason}; start another run with a smaller --batch-size"
            ) from error
        self._report.advance()

    def _read_tally(self) -> Figures:
        """Return the figures of the open interval. Raises AlbertDataError if they tell of lost weights."""
        tally, is_scaled = self._session.tally, self._session.precision.format == "fp16"
        values = tally.read()
        if all_finite(values) and (is_scaled or not tally.num_bad_steps()):
            return values
        raise AlbertDataError(
            f"{self._run}: the loss or its gradient stopped being finite at or before step "
            f"{self._session.step} ({values}, {tally.num_bad_steps()} steps without a finite gradient); "
            "start another run with a lower --lr or a larger --warmup-share"
        )

    def _log(self, values: Figures) -> None:
        session, tally = self._session, self._session.tally
        session.seconds += tally.seconds
        speed = tally.num_tokens / tally.seconds
        line: dict[str, Any] = {
            **values,
            "lr": lr_at(session.step - 1, session.config),
            "padding_share": 1 - tally.num_tokens / tally.num_cells,
            "tokens_per_second": round(speed, 1),
            "seconds": round(session.seconds, 3),
        }
        if session.precision.format == "fp16":
            line["skipped_steps"] = tally.num_bad_steps()
        self._metrics.write(step=session.step, split="train", **line)
        self._report.show(session.step, values, speed)
        session.tally = Tally(session.precision.device)

    def _evaluate(self) -> None:
        session, config, validation = self._session, self._session.config, self._splits.validation
        if validation is None:
            return
        values = evaluate(
            session.model,
            validation,
            session.precision,
            num_rows=config.eval_rows,
            batch_size=config.batch_size,
        )
        if session.step < config.steps:
            self._metrics.write(step=session.step, split="validation", **values)
            self._report.say(f"step {session.step:,}: validation {describe(values)}")
            return
        baseline = measure_baseline(self._splits.train, validation, num_rows=config.eval_rows)
        known = {} if baseline is None else dataclasses.asdict(baseline)
        self._metrics.write(step=session.step, split="validation", **values, **known)
        self._report.say(describe_end(values, baseline))

    def _save(self) -> None:
        self._read_tally()
        save_session(self._session, self._run)

    def _say_how_to_resume(self) -> None:
        self._report.say(
            f"interrupted; step {self._session.step:,} is saved. "
            f"Go on with: albert-data train {self._splits.folder} --output {self._run} --resume"
        )
