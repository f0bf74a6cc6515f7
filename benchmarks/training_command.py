"""`python -m benchmarks train`: the speed of training by parts, and a page of it."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click

from albert_data.train.config import MODEL_PRESETS
from albert_data.train.folder import METRICS_FILE
from albert_data.train.runs.figures import read_run
from benchmarks import jobs
from benchmarks.results import Results, describe_command
from benchmarks.training_report import write_report
from benchmarks.training_rows import Row, Training, read_row

if TYPE_CHECKING:
    from benchmarks.training import Machine

LENGTHS = {"speed-128": 128, "speed-512": 512}
PARTS = ("ceiling", *LENGTHS, "run")
SMALL = "tiny"  # the preset for a CPU
PAGES = (METRICS_FILE, "report.html")
PROGRAM = [sys.executable, "-c", "from albert_data.cli.main import main; main()"]  # it need not be installed
FILE = click.Path(path_type=Path)
COUNT = click.IntRange(min=1)
POSITIVE = click.FloatRange(min=0, min_open=True)


def parse_names(allowed: tuple[str, ...]) -> object:
    """A callback that takes names parted by commas."""

    def parse(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
        names = value.split(",") if value else None
        if unknown := [name for name in names or [] if name not in allowed]:
            raise click.BadParameter(f"{', '.join(unknown)}; allowed are {', '.join(allowed)}")
        return names

    return parse


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run to make: `albert-data train SHARDS --preset P --minutes M`. work: where its checkpoints may lie."""

    shards: Path
    preset: str
    minutes: float
    work: Path

    @property
    def folder(self) -> Path:
        return self.work / "run"

    @property
    def command(self) -> list[str]:
        options = ["--preset", self.preset, "--minutes", f"{self.minutes:g}"]
        return [*PROGRAM, "train", str(self.shards), "-o", str(self.folder), *options]


@click.command()
@click.argument("shards", type=FILE, required=False)
@click.option("--only", callback=parse_names(PARTS), metavar="PART,..", help=f"Of {', '.join(PARTS)}.")
@click.option(
    "--models",
    callback=parse_names(tuple(MODEL_PRESETS)),
    metavar="PRESET,..",
    help=f"Of {', '.join(MODEL_PRESETS)}. Left out: {SMALL} on a CPU, the others of version 2 on a GPU.",
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--threads", type=COUNT, metavar="N", help="Threads on a CPU.")
@click.option("--runs", type=COUNT, default=5, show_default=True, help="Turns of each contender; medians are shown.")
@click.option("--seconds", type=POSITIVE, default=2.0, show_default=True, help="About what one turn takes.")
@click.option("--batch-cells", type=COUNT, metavar="N", help="Rows x length of a batch. Left out: by the model.")
@click.option("--compile/--no-compile", "is_compiled", default=None, help="Left out: on a GPU alone.")
@click.option("--preset", type=click.Choice(list(MODEL_PRESETS)), help="Of the run. Left out: tiny or base.")
@click.option("--minutes", type=POSITIVE, default=10.0, show_default=True, help="Of the run.")
@click.option("--work", type=FILE, metavar="DIR", help="Keeps the run; else a temporary one.")
@click.option("-o", "--output", type=FILE, default=Path("training.md"), show_default=True, metavar="PAGE")
def train(
    shards: Path | None,
    only: list[str] | None,
    models: list[str] | None,
    device: str,
    threads: int | None,
    runs: int,
    seconds: float,
    batch_cells: int | None,
    is_compiled: bool | None,
    preset: str | None,
    minutes: float,
    work: Path | None,
    output: Path,
) -> None:
    """Measure how fast models train, beside transformers and the machine's own matrix products.

    ceiling: products of square matrices. speed-128, speed-512: updates on rows of that length, of random ids.
    run: `albert-data train SHARDS --minutes`, with the validation figures it ends at.
    With the results of an earlier run beside PAGE, what is measured now replaces its old figures.

    \b
    Example:
      python -m benchmarks train shards -o training.md
      python -m benchmarks train --only speed-512 --models base,large -o training.md
    """
    if only is not None and "run" in only and shards is None:
        raise click.UsageError("the part `run` needs shards: python -m benchmarks train SHARDS --only run")
    if not output.parent.is_dir():
        raise click.ClickException(f"{output.parent} is no folder; make it, or name another page with -o")
    machine = open_machine(device, threads, runs, seconds, is_compiled)
    is_gpu = machine.device.type == "cuda"
    results = Results(output.with_suffix(".json"), read_row)
    command = describe_command(click.get_current_context(), "train")
    with ExitStack() as stack:
        stack.callback(write_report, results, output)  # a run cut short shows what it has
        work = work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        preset = preset or ("base" if is_gpu else SMALL)
        job = Job(
            machine=machine,
            models=models or choose_models(is_gpu=is_gpu),
            batch_cells=batch_cells,
            run=None if shards is None else Run(shards=shards, preset=preset, minutes=minutes, work=work),
            page=output,
        )
        for part in only or [part for part in PARTS if part != "run" or shards is not None]:
            for name, rows in measure_part(part, job):
                click.echo(f"{name}:")
                results.record(f"{name} on {machine.where}", command, rows)
    click.echo(f"{output} is written, with the figures in {results.path}")


def choose_models(*, is_gpu: bool) -> list[str]:
    """Presets to measure: those of version 1 have the shapes of version 2, and would take as long again."""
    return [name for name in MODEL_PRESETS if name != SMALL and not name.endswith("-v1")] if is_gpu else [SMALL]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to measure. page: beside it go the files of the run."""

    machine: Machine
    models: list[str]
    batch_cells: int | None
    run: Run | None
    page: Path


def measure_part(part: str, job: Job) -> Iterator[tuple[str, Iterator[Row]]]:
    """Yield the name of each group of rows, and the rows as they are measured."""
    from benchmarks import training

    if part == "ceiling":
        yield part, training.measure_ceiling(job.machine)
    elif part in LENGTHS:
        for model in job.models:
            yield f"{part} {model}", training.measure_speed(job.machine, model, LENGTHS[part], job.batch_cells)
    elif job.run is not None:
        yield f"{part} {job.run.preset}", measure_run(job.run, job.machine, job.page)


def open_machine(device: str, threads: int | None, runs: int, seconds: float, is_compiled: bool | None) -> Machine:
    """Raises ConfigError for a device that there is not, ClickException where a package is missing."""
    try:
        import torch

        from albert_data.train.precision import choose_device
        from benchmarks.training import Machine
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error}; install what it needs with: pip install -e '.[bench]'") from error

    chosen, _ = choose_device(device)
    if threads is not None:
        torch.set_num_threads(threads)
    compiles = chosen.type == "cuda" if is_compiled is None else is_compiled
    return Machine(device=chosen, runs=runs, round_seconds=seconds, is_compiled=compiles)


def measure_run(run: Run, machine: Machine, page: Path) -> Iterator[Training]:
    """Train, and keep the run's own metrics and report beside the page."""
    if run.folder.exists():
        raise click.ClickException(f"{run.folder} exists; remove it, or name another folder with --work")
    wall_seconds = jobs.run(run.command)
    for name in PAGES:
        if (run.folder / name).exists():
            shutil.copy(run.folder / name, page.with_name(f"{page.stem}-run-{name}"))
    found = read_run(run.folder)
    speeds, shares = ([value for _, value in found.points(key, "train")] for key in ("tokens_per_second", "mfu"))
    yield Training(
        where=machine.where,
        precision=str(found.sections.get("identity", {}).get("precision", "unknown precision")),
        preset=run.preset,
        minutes=run.minutes,
        wall_seconds=wall_seconds,
        last_step=found.last_step,
        tokens_per_second=median(speeds) if speeds else None,
        mfu=median(shares) if shares else None,
        unigram_loss=found.unigram_loss,
        curve=[line for line in found.lines if line["split"] == "validation"],
    )
