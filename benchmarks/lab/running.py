"""Builds the shards that tables need, trains each of their rows once a seed, and keeps the figures.

Everything lies in one folder: DIR/vocab, DIR/shards/NAME, DIR/runs/NAME-SEED, DIR/results/NAME-SEED.json, lab.json with
the settings, and text.json, which identifies the text. The name tells what differs from the defaults, so a row that
stands in two tables is trained once. What is finished is not done again, so the same command resumes after an
interruption.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from albert_data.config import BuildConfig, ExampleConfig, TextConfig, VocabConfig
from albert_data.errors import AlbertDataError, ConfigError
from albert_data.jobs.engine import count_cores
from albert_data.runs.figures import read_run
from albert_data.shards.manifest import MANIFEST_NAME
from albert_data.storage.files import read_json, write_json
from albert_data.tokenizer.sentencepiece.kind import MODEL_NAME
from albert_data.train.config import MODEL_PRESETS, RECIPES
from benchmarks.lab.jobs import VALUES, Job
from benchmarks.lab.tables import Measure, Row, Table, name_options
from benchmarks.training_command import PROGRAM

_COMPILED_MINUTES = 10  # as compiling.MIN_CPU_MINUTES, without importing torch
PLAIN = "plain"  # the name of what differs in nothing from the defaults
SETTINGS_FILE, TEXT_FILE = "lab.json", "text.json"
MIN_STEPS = 2  # a training that changes its shape has two parts
_TRIAL_STEPS = 300


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What decides the figures. A folder holds those of one set of settings. Raises ConfigError.

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

    def __post_init__(self) -> None:
        BuildConfig(  # raises for what no build takes, before anything is written
            text=TextConfig(language=self.language),
            examples=ExampleConfig(max_seq_len=self.max_seq_len),
            validation_fraction=self.validation_fraction,
        )
        VocabConfig(vocab_size=self.vocab_size)
        if not 0 < self.minutes < math.inf:
            raise ConfigError(f"minutes is {self.minutes}; give a number above 0")
        if "-" in self.inputs:
            raise ConfigError("the corpus is read for each set of shards, so it can't be stdin; give files")

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
    _processes: set[subprocess.Popen[bytes]] = field(default_factory=set, init=False, repr=False)

    def open(self) -> None:
        """Make the folder, or check that it holds this laboratory. Raises ConfigError.

        As long as nothing has been made, other settings replace the first ones, which may have been a mistake.
        """
        path, values = self.folder / SETTINGS_FILE, json.loads(json.dumps(dataclasses.asdict(self.settings)))
        there: dict[str, Any] | None = None
        try:
            if not self.folder.is_dir():
                self.folder.mkdir(parents=True)
            elif any(self.folder.iterdir()):
                there = read_json(path)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.folder} is no laboratory ({error}); choose another folder with -o") from error
        if there is not None and there.keys() != values.keys():
            raise ConfigError(f"{path} is not of a laboratory of this version; choose another folder with -o")
        if there == values:
            return
        if there is not None and self._is_begun():
            other = [f"{key} {there[key]}, not {value}" for key, value in values.items() if there[key] != value]
            raise ConfigError(f"{self.folder} was made with {'; '.join(other)}; choose another folder with -o")
        write_json(path, values)

    def _is_begun(self) -> bool:
        """Whether a vocabulary, shards, a run or figures are there."""
        folders = (self.folder / name for name in ("vocab", "shards", "runs", "results"))
        return any(folder.is_dir() and any(folder.iterdir()) for folder in folders)

    def run(self, tables: Sequence[Table], seeds: int | None) -> None:
        """Build, train and measure what is missing. seeds: of each row; None: as many as its table has."""
        rows: dict[str, Row] = {}
        missing: dict[tuple[str, int], dict[str, Measure]] = {}
        for table in tables:
            for row, seed in itertools.product(table.rows, range(seeds or table.seeds)):
                key = self.name(row), seed
                rows[key[0]] = row
                missing[key] = missing.get(key, {}) | self._find_missing(table, row, seed)
        num_models = len(missing)
        # All rows of a seed before the next seed.
        missing = dict(sorted((item for item in missing.items() if item[1]), key=lambda item: item[0][1]))
        steps = 0  # to measure the costs of an update
        if any(rows[name].trains for name, _ in missing):
            steps = self.settings.steps or self._choose_steps()
        jobs = {
            (name, seed): self._make_job(
                rows[name], measures.values(), seed=seed, steps=steps if rows[name].trains else 0
            )
            for (name, seed), measures in missing.items()
        }
        updates = f" of {steps:,} updates each" if steps else ""
        self.say(f"{num_models} models{updates}; {len(jobs)} are to be trained or measured")
        with ThreadPoolExecutor(self.jobs) as pool:
            # As completed, not in order: one that fails stops the others that have not begun.
            waiting = {pool.submit(self._work, job, f"{name}-{seed}"): name for (name, seed), job in jobs.items()}
            try:
                for done in as_completed(waiting):
                    done.result()
                    self.say(f"  {waiting[done]}")
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def stop(self) -> None:
        """Let each training save a checkpoint and end. For a handler of signals."""
        for process in list(self._processes):
            process.terminate()

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
        """The figures of a model; without any value if it has not been measured. Raises ConfigError."""
        path = self._place("results", f"{name}-{seed}.json")
        if not path.exists():
            return {VALUES: {}}
        found = _read_own(path)
        if not isinstance(found.get(VALUES), dict):
            raise ConfigError(f"{path} has no {VALUES}; remove it, and the model is measured again")
        return found

    def count_seeds(self, table: Table) -> int:
        """How many seeds of all rows of a table have all figures."""
        seeds = itertools.count()
        return next(seed for seed in seeds if any(self._find_missing(table, row, seed) for row in table.rows))

    def _find_missing(self, table: Table, row: Row, seed: int) -> dict[str, Measure]:
        """The measures of a table, by key, that a model has not."""
        known = self.read(self.name(row), seed)[VALUES]
        return {measure.key(row): measure for measure in table.measures if measure.key(row) not in known}

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
        if not (out / MANIFEST_NAME).is_file():
            given = {
                "tokenizer": self._find_tokenizer(),
                "max_seq_len": settings.max_seq_len,
                "validation_fraction": settings.validation_fraction,
                "language": settings.language,
                **options,
            }
            self._command("build", out, **given)
        self._check_text(out)
        return out

    def _check_text(self, shards: Path) -> None:
        """Raise ConfigError if shards have another text or tokenizer than the first ones, so rows are comparable."""
        manifest, path = read_json(shards / MANIFEST_NAME), self.folder / TEXT_FILE
        here = {
            "text": manifest["documents_digest"],
            "tokenizer": manifest["tokenizer"]["sha256"],
            "version of the rules": manifest["rules_version"],
        }
        if not path.exists():
            write_json(path, here)
        elif (there := _read_own(path)) != here:
            other = " and ".join(name for name in here if here[name] != there.get(name))
            raise ConfigError(
                f"{shards} has another {other} than the shards before, so their models can't be compared; choose "
                "another folder with -o, or restore what was changed, remove these shards, and give the command again"
            )

    def _find_tokenizer(self) -> str:
        out, settings = self.folder / "vocab", self.settings
        if settings.tokenizer is not None:
            return settings.tokenizer
        if not (out / MODEL_NAME).is_file():
            self._command("vocab", out, "--uncased", vocab_size=settings.vocab_size, language=settings.language)
        return str(out)

    def _command(self, name: str, out: Path, *flags: str, **options: object) -> None:
        """Run a command of albert-data on the corpus. Raises AlbertDataError."""
        inputs = [f"./{path}" if path.startswith("-") else path for path in self.settings.inputs]
        listed = [text for key, value in options.items() for text in (f"--{key.replace('_', '-')}", str(value))]
        arguments = [name, *inputs, "-o", str(out), *flags, *listed]
        self.say(shlex.join(["albert-data", *arguments]))
        if subprocess.run([*PROGRAM, *arguments], stdout=subprocess.DEVNULL).returncode:
            raise AlbertDataError("the command above failed, for the reason that it gave")

    def _choose_steps(self) -> int:
        """The updates that the plain model makes in the given minutes, measured once and kept."""
        path = self.folder / "steps.json"
        if not path.is_file():
            self.say(f"measuring the speed of the plain model, {_TRIAL_STEPS} updates")
            # As rare as in long trainings. The first of three lines of metrics includes compiling.
            seldom = {"eval_every": _TRIAL_STEPS, "save_every": _TRIAL_STEPS, "log_every": _TRIAL_STEPS // 3}
            job = self._make_job(Row(name="trial", train=seldom), (), seed=0, steps=_TRIAL_STEPS)
            run = self.folder / "trial"
            self._work(dataclasses.replace(job, run=str(run), result=str(run.with_suffix(".json"))), "trial")
            (begin, before), (end, after) = read_run(run).points("seconds", "train")[-2:]
            seconds = (after - before) / (end - begin)
            write_json(path, {"steps": max(round(self.settings.minutes * 60 / seconds), MIN_STEPS)})
        steps = _read_own(path).get("steps")
        if not isinstance(steps, int):
            raise ConfigError(f"{path} has no number of steps; remove it, and the speed is measured again")
        return steps

    def _work(self, job: Job, name: str) -> None:
        """Do a job in a process of its own, because compiled code of one model would slow the next one down."""
        log = self._place("logs", f"{name}.log")
        threads = str(max(count_cores() // self.jobs, 1))
        with log.open("ab") as file:
            command = [sys.executable, "-m", "benchmarks.lab.training", json.dumps(dataclasses.asdict(job))]
            environment = {**os.environ, "OMP_NUM_THREADS": threads}
            with subprocess.Popen(command, stdout=file, stderr=file, env=environment) as process:
                self._processes.add(process)
                code = process.wait()
            self._processes.discard(process)
        if code:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            raise AlbertDataError(f"training {name} ended with exit code {code}: {lines[-1] if lines else ''} ({log})")


def _read_own(path: Path) -> dict[str, Any]:
    """Read a JSON file that the laboratory wrote. Raises ConfigError."""
    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} can't be read: {error}; remove it, and it is made again") from error
