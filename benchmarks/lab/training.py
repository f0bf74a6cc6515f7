"""One model of the laboratory, in a process of its own: `python -m benchmarks.lab.training JOB`, a Job as JSON.

It trains the model, or resumes its training, measures it, and writes the figures to `Job.result`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from albert_data.errors import AlbertDataError
from albert_data.runs.figures import read_run
from albert_data.storage.files import read_json, write_json
from albert_data.train.checkpoint import list_checkpoints, load_model
from albert_data.train.config import MODEL_PRESETS, RECIPES
from albert_data.train.device import choose_precision
from albert_data.train.evaluation import evaluate
from albert_data.train.folder import RUN_FILE
from albert_data.train.interrupt import Interrupt
from albert_data.train.loader import open_training
from albert_data.train.loop import train
from albert_data.train.model import Albert
from albert_data.train.state import Initial, choose_shape
from benchmarks.lab.costs import count_parameters, measure_costs
from benchmarks.lab.jobs import VALUES, Job
from benchmarks.lab.layers import measure_layers
from benchmarks.lab.probing import probe
from benchmarks.lab.tables import MLM

_BATCH_TOKENS = 8192
_EVALUATIONS = 12  # during the training


def work(job: Job) -> int:
    """Train and measure. Returns the exit code: that of the signal if one came, with a checkpoint saved."""
    if job.steps == 0:
        shape = dataclasses.replace(MODEL_PRESETS[job.preset], **job.shape)
        costs = measure_costs(shape, job.seed, compile=job.compile)
        values = {key: costs[kind] for key, (kind, _) in job.measures.items()}
        write_result(job, {VALUES: values, "parameters": count_parameters(shape)})
        return 0
    interrupt, model, runs = Interrupt(), None, list[tuple[str, int]]()
    if job.before is not None:
        begin = dataclasses.replace(job, shape=job.before, run=f"{job.run}-begin", steps=job.steps * 3 // 4)
        last = train_model(begin, None, interrupt)
        if last is None:
            return interrupt.exit_code
        runs.append((begin.run, begin.steps))
        model, job = load_model(last), dataclasses.replace(job, steps=job.steps - begin.steps)
    last = train_model(job, model, interrupt)
    if last is None:
        return interrupt.exit_code
    runs.append((job.run, job.steps))
    write_result(job, {**measure_model(job, last), **read_figures(runs)})
    return 0


def write_result(job: Job, figures: dict[str, Any]) -> None:
    """Write figures. The values of other measures, of other tables, stay."""
    path = Path(job.result)
    known = read_json(path)[VALUES] if path.is_file() else {}
    write_json(path, {**figures, VALUES: {**known, **figures[VALUES]}})


def read_figures(runs: Iterable[tuple[str, int]]) -> dict[str, Any]:
    """The curve and the seconds of runs, each of which goes on from the one before. runs: folders and updates."""
    curve, seconds, before = list[tuple[float, float]](), 0.0, 0
    for run, steps in runs:
        figures = read_run(Path(run))
        curve += [(before + step, loss) for step, loss in figures.points("mlm_loss", "validation")]
        seconds += figures.points("seconds", "train")[-1][1]
        before += steps
    return {"curve": curve, "seconds": seconds}


def train_model(job: Job, before: Albert | None, interrupt: Interrupt) -> Path | None:
    """Train, or resume it. Returns the last checkpoint; None if it was interrupted. before: whose weights to take."""
    config = dataclasses.replace(
        RECIPES["quick"][job.preset],
        steps=job.steps,
        epochs=None,
        minutes=None,
        seed=job.seed,
        compile=job.compile,
        eval_every=max(job.steps // _EVALUATIONS, 1),
        save_every=max(job.steps // _EVALUATIONS, 1),
        keep=1,
    )
    if before is not None:  # as `train --init-from` does
        config = dataclasses.replace(config, first_window=0)
    config = dataclasses.replace(config, **job.train)
    shards, run = Path(job.shards), Path(job.run)
    splits = open_training(shards)
    resume = (run / RUN_FILE).is_file()  # it may have been stopped before its first checkpoint
    initial = None
    if (job.shape or before) and not (resume and list_checkpoints(run)):
        shape = dataclasses.replace(choose_shape(config, splits.train.manifest), **job.shape)
        torch.manual_seed(job.seed)
        model = Albert(shape)
        if before is not None:
            model.load_state_dict(before.state_dict())
        initial = Initial(model=model, tokenizer_sha256=None, origin=run)
    return train(shards, run, config, resume=resume, initial=initial, interrupt=interrupt)


def measure_model(job: Job, checkpoint: Path) -> dict[str, Any]:
    """The figures of a trained model: of `Job.result` all but the curve and the seconds."""
    model = load_model(checkpoint)
    precision = choose_precision("auto", "auto")
    model.to(precision.device)
    values = {}
    for key, (kind, folder) in job.measures.items():
        splits = open_training(Path(folder))
        if splits.validation is None:
            raise AlbertDataError(f"{folder} has no validation rows; give the laboratory more documents")
        if kind == MLM:
            found = evaluate(model, splits.validation, precision, num_rows=job.num_rows, batch_tokens=_BATCH_TOKENS)
            values[key] = found["mlm_accuracy"]
        else:
            values[key] = probe(model, splits.train, splits.validation, num_rows=job.num_rows)
    own = open_training(Path(job.shards)).validation
    layers = None if own is None else measure_layers(model, own)
    return {VALUES: values, "parameters": model.num_parameters(), "layers": layers}


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    try:
        sys.exit(work(job))
    except AlbertDataError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
