"""One model of the laboratory, in a process of its own: `python -m benchmarks.lab.training JOB`, a Job as JSON.

It trains the model, or resumes its training, measures it, and writes the figures to `Job.result`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import torch

from albert_data.errors import AlbertDataError
from albert_data.files import write_json
from albert_data.train.checkpoint import list_checkpoints, load_model
from albert_data.train.config import RECIPES
from albert_data.train.evaluation import evaluate
from albert_data.train.interrupt import Interrupt
from albert_data.train.loader import open_training
from albert_data.train.loop import train
from albert_data.train.model import Albert
from albert_data.train.precision import choose_precision
from albert_data.train.session import Initial, choose_shape
from benchmarks.lab.jobs import VALUES, Job
from benchmarks.lab.probing import probe
from benchmarks.lab.tables import MLM

_BATCH_TOKENS = 8192
_EVALUATIONS = 12  # during the training


def work(job: Job) -> int:
    """Train and measure. Returns the exit code: that of the signal if one came, with a checkpoint saved."""
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
    config = dataclasses.replace(config, **job.train)
    shards, run = Path(job.shards), Path(job.run)
    splits = open_training(shards)
    resume = bool(list_checkpoints(run)) if run.is_dir() else False
    initial = None
    if job.shape and not resume:
        shape = dataclasses.replace(choose_shape(config, splits.train.manifest), **job.shape)
        torch.manual_seed(job.seed)
        initial = Initial(model=Albert(shape), tokenizer_sha256=None, origin=run)
    interrupt = Interrupt()
    last = train(shards, run, config, resume=resume, initial=initial, interrupt=interrupt)
    if last is None:
        return interrupt.exit_code
    write_json(Path(job.result), measure_model(job, last))
    return 0


def measure_model(job: Job, checkpoint: Path) -> dict[str, Any]:
    """The figures of a trained model, as `Job.result` has them."""
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
    return {VALUES: values, "parameters": model.num_parameters()}


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    try:
        sys.exit(work(job))
    except AlbertDataError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
