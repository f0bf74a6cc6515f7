"""Builds the shards that tables need, trains each of their rows once a seed, and keeps the figures.

Everything lies in one folder: DIR/vocab, DIR/shards/NAME, DIR/runs/NAME-SEED, DIR/results/NAME-SEED.json, and lab.json
with the settings. The name tells what differs from the defaults, so a row that stands in two tables is trained once.
What is finished is not done again, so the same command resumes after an interruption.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albert_data.config import ExampleConfig
from albert_data.errors import AlbertDataError, ConfigError
from albert_data.files import read_json, write_json
from albert_data.pipeline.engine import count_cores
from albert_data.train.config import MODEL_PRESETS, RECIPES
from albert_data.train.runs.figures import read_run
from benchmarks.lab.jobs import VALUES, Job
from benchmarks.lab.tables import Measure, Row, Table, name_options
from benchmarks.training_command import PROGRAM

_COMPILED_MINUTES = 10  # as compiling.MIN_CPU_MINUTES, without importing torch
PLAIN = "plain"  # the name of what differs in nothing from the defaults
_TRIAL_STEPS = 300  # the first line of metrics includes compiling, so it has three


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What decides the figures. A folder holds those of one set of settings.

    tokenizer: a path; None to train a vocabulary of vocab_size pieces. minutes: how long the plain row trains; all
    rows train for as many updates. steps: updates, instead of minutes. num_rows: the most rows that a measure reads.
    """

    inputs: tuple[str, ...]
    tokenizer: str | None = None
    vocab_size: int = 8000
    language: str = "en"
    preset: str = "mini"
    max_seq_len: int = 128
    validation_fraction: float = 0.02
    minutes: float = 20.0
    steps: int | None = None
    num_rows: int = 8192

    @property
    def compile(self) -> bool | None:
        """Compile what trains as long as `train --minutes` would compile it for."""
        return True if self.steps is None and self.minutes >= _COMPILED_MINUTES else None


@dataclass(frozen=True, kw_only=True)
class Laboratory:
    """A folder with its settings. jobs: how many models are trained at once; say: prints a line."""

    folder: Path
    settings: Settings
    jobs: int
    say: Callable[[str], object]

    def open(self) -> None:
        """Make the folder, or check that it holds this laboratory. Raises ConfigError."""
        path, values = self.folder / "lab.json", json.loads(json.dumps(dataclasses.asdict(self.settings)))
        if not path.is_file():
            if self.folder.exists() and any(self.folder.iterdir()):
                raise ConfigError(f"{self.folder} is not empty, and no laboratory; choose another folder with -o")
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(path, values)
        elif (there := read_json(path)) != values:
            other = [f"{key} {there.get(key)}, not {value}" for key, value in values.items() if there.get(key) != value]
            raise ConfigError(f"{self.folder} was made with {'; '.join(other)}; choose another folder with -o")

    def run(self, tables: Sequence[Table], seeds: int | None) -> None:
        """Build, train and measure what is missing. seeds: of each row; None: as many as its table has."""
        steps = 0  # to measure the costs of an update
        if any(row.trains for table in tables for row in table.rows):
            steps = self.settings.steps or self._choose_steps()
        jobs: dict[tuple[str, int], Job] = {}
        for table in tables:
            for row, seed in itertools.product(table.rows, range(seeds or table.seeds)):
                job = self._make_job(row, table.measures, seed=seed, steps=steps if row.trains else 0)
                known = jobs.get(key := (self.name(row), seed))
                jobs[key] = dataclasses.replace(job, measures=job.measures | (known.measures if known else {}))
        missing = {key: job for key, job in jobs.items() if job.measures.keys() - self.read(*key)[VALUES].keys()}
        missing = dict(sorted(missing.items(), key=lambda item: item[0][1]))  # all rows of a seed before the next seed
        updates = f" of {steps:,} updates each" if steps else ""
        self.say(f"{len(jobs)} models{updates}; {len(missing)} are to be trained or measured")
        with ThreadPoolExecutor(self.jobs) as pool:
            # As completed, not in order: one that fails stops the others that have not begun.
            waiting = {pool.submit(self._work, job, f"{name}-{seed}"): name for (name, seed), job in missing.items()}
            try:
                for done in as_completed(waiting):
                    done.result()
                    self.say(f"  {waiting[done]}")
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def name(self, row: Row) -> str:
        """What of a row differs from the defaults: equal models have equal names."""
        preset = self.settings.preset
        defaults: tuple[object, ...] = (ExampleConfig(), RECIPES["quick"][preset], MODEL_PRESETS[preset])
        changed: dict[str, Any] = {}
        for values, default in zip((row.build, row.train, row.shape), defaults, strict=True):
            changed |= {key: value for key, value in values.items() if value != getattr(default, key)}
        changed |= {f"before.{key}": value for key, value in (row.before or {}).items()}
        changed |= {} if row.trains else {"costs": 1}
        return ",".join(f"{key}={value}" for key, value in sorted(changed.items())) or PLAIN

    def read(self, name: str, seed: int) -> dict[str, Any]:
        """The figures of a model; without any value if it has not been measured."""
        path = self._place("results", f"{name}-{seed}.json")
        return read_json(path) if path.is_file() else {VALUES: {}}

    def _place(self, kind: str, name: str) -> Path:
        (self.folder / kind).mkdir(exist_ok=True)
        return self.folder / kind / name

    def _make_job(self, row: Row, measures: Iterable[Measure], *, seed: int, steps: int) -> Job:
        name, settings = f"{self.name(row)}-{seed}", self.settings

        def build(options: dict[str, Any]) -> str:
            return str(self.build(options)) if row.trains else ""

        asked = {
            measure.key(row): (measure.kind, build(row.build if measure.build is None else measure.build))
            for measure in measures
        }
        return Job(
            shards=build(row.build),
            run=str(self._place("runs", name)),
            result=str(self._place("results", f"{name}.json")),
            preset=settings.preset,
            train=row.train,
            shape=row.shape,
            before=row.before,
            steps=steps,
            seed=seed,
            compile=settings.compile,
            measures=asked,
            num_rows=settings.num_rows,
        )

    def build(self, options: dict[str, Any]) -> Path:
        """The shards of a build with these options; a build that is finished is not made again."""
        settings = self.settings
        out = self._place("shards", ",".join(name_options(options)) or PLAIN)
        if (out / "manifest.json").is_file():
            return out
        given = {
            "tokenizer": self._find_tokenizer(),
            "max_seq_len": settings.max_seq_len,
            "validation_fraction": settings.validation_fraction,
            "language": settings.language,
            **options,
        }
        self._command("build", *settings.inputs, "-o", str(out), **given)
        return out

    def _find_tokenizer(self) -> str:
        out, settings = self.folder / "vocab", self.settings
        if settings.tokenizer is not None:
            return settings.tokenizer
        if not out.is_dir():
            given = {"vocab_size": settings.vocab_size, "language": settings.language}
            self._command("vocab", *settings.inputs, "--uncased", "-o", str(out), **given)
        return str(out)

    def _command(self, *arguments: str, **options: object) -> None:
        listed = [text for key, value in options.items() for text in (f"--{key.replace('_', '-')}", str(value))]
        self.say(shlex.join(["albert-data", *arguments, *listed]))
        if subprocess.run([*PROGRAM, *arguments, *listed], stdout=subprocess.DEVNULL).returncode:
            raise AlbertDataError("the command above failed; correct that, and give the same command again")

    def _choose_steps(self) -> int:
        """The updates that the plain model makes in the given minutes, measured once and kept."""
        path = self.folder / "steps.json"
        if not path.is_file():
            self.say(f"measuring the speed of the plain model, {_TRIAL_STEPS} updates")
            seldom = dict.fromkeys(("eval_every", "save_every"), _TRIAL_STEPS)  # as rare as in long trainings
            job = self._make_job(Row(name="trial", train=seldom), (), seed=0, steps=_TRIAL_STEPS)
            run = self.folder / "trial"
            self._work(dataclasses.replace(job, run=str(run), result=str(run.with_suffix(".json"))), "trial")
            (begin, before), (end, after) = read_run(run).points("seconds", "train")[-2:]
            seconds = (after - before) / (end - begin)
            write_json(path, {"steps": max(round(self.settings.minutes * 60 / seconds), 1)})
        return int(read_json(path)["steps"])

    def _work(self, job: Job, name: str) -> None:
        """Do a job in a process of its own, because compiled code of one model would slow the next one down."""
        log = self._place("logs", f"{name}.log")
        threads = str(max(count_cores() // self.jobs, 1))
        with log.open("ab") as file:
            command = [sys.executable, "-m", "benchmarks.lab.training", json.dumps(dataclasses.asdict(job))]
            code = subprocess.run(
                command, stdout=file, stderr=file, env={**os.environ, "OMP_NUM_THREADS": threads}
            ).returncode
        if code:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            raise AlbertDataError(f"training {name} ended with exit code {code}: {lines[-1] if lines else ''} ({log})")
