"""`python -m benchmarks train`: measures the speed of training in parts, and writes a page about it."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from albert_data.runs.figures import read_run
from albert_data.train.config import DEFAULT_PRESETS, MODEL_PRESETS
from albert_data.train.folder import METRICS_FILE
from benchmarks import jobs
from benchmarks.results import Results, describe_command
from benchmarks.training_report import write_report
from benchmarks.training_rows import Row, Training, read_row

if TYPE_CHECKING:
    from benchmarks.training import Machine

LENGTHS = {"speed-128": 128, "speed-512": 512}
ON_SHARDS = ("update", "run")
PARTS = ("ceiling", *LENGTHS, *ON_SHARDS)
SMALL = ("tiny", "mini")  # the presets for a CPU
PAGES = (METRICS_FILE, "report.html")
PROGRAM = [sys.executable, "-c", "from albert_data.cli.entry import main; main()"]  # works without installing it
FILE = click.Path(path_type=Path)
COUNT = click.IntRange(min=1)
POSITIVE = click.FloatRange(min=0, min_open=True)


def parse_names(allowed: tuple[str, ...]) -> object:
    """Return a callback that parses names separated by commas."""

    def parse(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
        names = value.split(",") if value else None
        if unknown := [name for name in names or [] if name not in allowed]:
            raise click.BadParameter(f"{', '.join(unknown)}; allowed are {', '.join(allowed)}")
        return names

    return parse


@dataclass(frozen=True, kw_only=True)
class Run:
    """A training run to make: `albert-data train SHARDS --preset P --minutes M`. work: the folder for its folder."""

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
    help=f"Of {', '.join(MODEL_PRESETS)}. By default {' and '.join(SMALL)} on a CPU, those of the paper on a GPU.",
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--threads", type=COUNT, metavar="N", help="Threads on a CPU.")
@click.option(
    "--runs", type=COUNT, default=5, show_default=True, help="Turns of each contender; the page shows medians."
)
@click.option("--seconds", type=POSITIVE, default=2.0, show_default=True, help="About how long a turn takes.")
@click.option("--batch-cells", type=COUNT, metavar="N", help="Rows x length of a batch. By default set by the model.")
@click.option(
    "--compile/--no-compile",
    "is_compiled",
    default=None,
    help="Also the compiled ones. By default where torch.compile works.",
)
@click.option("--preset", type=click.Choice(list(MODEL_PRESETS)), help="Of the part `run`. By default mini or base.")
@click.option("--minutes", type=POSITIVE, default=9.0, show_default=True, help="Length of the part `run`.")
@click.option("--work", type=FILE, metavar="DIR", help="Keep the training run here.")
@click.option("-o", "--output", type=FILE, default=Path("training-speed.md"), show_default=True, metavar="PAGE")
def train(**given: Any) -> None:
    """Measure how fast models train, compared with transformers and with plain matrix products.

    ceiling: products of square matrices. speed-128, speed-512: updates on rows of that length, of random ids.
    update: what `albert-data train SHARDS` computes, with its loader, packs, optimiser and scaler.
    run: `albert-data train SHARDS --minutes`, with its last validation figures.
    If there are earlier results next to PAGE, only the figures of the parts that are measured now are replaced.

    \b
    Example:
      python -m benchmarks train shards -o training-speed.md
      python -m benchmarks train --only speed-512 --models base,large -o training-speed.md
    """
    options = Options(**given)
    if options.shards is None and (part := next((part for part in options.only or () if part in ON_SHARDS), None)):
        raise click.UsageError(f"the part `{part}` needs shards: python -m benchmarks train SHARDS --only {part}")
    if not options.output.parent.is_dir():
        raise click.ClickException(f"{options.output.parent} is not a folder; make it, or name another page with -o")
    machine = options.open_machine()
    results = Results(options.output.with_suffix(".json"), read_row)
    command = describe_command(click.get_current_context(), "train")
    with ExitStack() as stack:
        stack.callback(write_report, results, options.output)  # an interrupted benchmark shows the results so far
        job = options.make_job(machine, options.work or Path(stack.enter_context(tempfile.TemporaryDirectory())))
        for part in options.only or [part for part in PARTS if part not in ON_SHARDS or job.run is not None]:
            for name, rows in measure_part(part, job):
                click.echo(f"{name}:")
                results.record(f"{name} on {machine.where}", command, rows)
    click.echo(f"{options.output} is written, with the figures in {results.path}")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The argument and the options of the command."""

    shards: Path | None
    only: list[str] | None
    models: list[str] | None
    device: str
    threads: int | None
    runs: int
    seconds: float
    batch_cells: int | None
    is_compiled: bool | None
    preset: str | None
    minutes: float
    work: Path | None
    output: Path

    def open_machine(self) -> Machine:
        """Raise ConfigError for a device that the machine lacks, ClickException if a package is missing."""
        try:
            import torch

            from albert_data.train.compiling import find_obstacle
            from albert_data.train.device import choose_device
            from benchmarks.training import Machine
        except ModuleNotFoundError as error:
            raise click.ClickException(f"{error}; install what it needs with: pip install -e '.[bench]'") from error

        device, _ = choose_device(self.device)
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        is_compiled = find_obstacle(device) is None if self.is_compiled is None else self.is_compiled
        return Machine(device=device, runs=self.runs, round_seconds=self.seconds, is_compiled=is_compiled)

    def make_job(self, machine: Machine, work: Path) -> Job:
        is_gpu = machine.device.type == "cuda"
        preset = self.preset or DEFAULT_PRESETS[machine.device.type]
        return Job(
            machine=machine,
            models=self.models or choose_models(is_gpu=is_gpu),
            batch_cells=self.batch_cells,
            run=Run(shards=self.shards, preset=preset, minutes=self.minutes, work=work) if self.shards else None,
            page=self.output,
        )


def choose_models(*, is_gpu: bool) -> list[str]:
    """Return the presets to measure. Those of version 1 are left out: they have the shapes of version 2."""
    return ["base", "large", "xlarge", "xxlarge"] if is_gpu else list(SMALL)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to measure. page: the files of the training run are copied to its folder."""

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
    elif part == "update" and job.run is not None:
        for model in job.models:
            yield f"{part} {model}", training.measure_update(job.machine, model, job.run.shards)
    elif job.run is not None:
        yield f"{part} {job.run.preset}", measure_run(job.run, job.machine, job.page)


def measure_run(run: Run, machine: Machine, page: Path) -> Iterator[Training]:
    """Train, and copy the run's metrics and report to the folder of the page."""
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
        curve=[
            {name: value for name, value in line.items() if name != "guesses"}
            for line in found.lines
            if line["split"] == "validation"
        ],
    )
