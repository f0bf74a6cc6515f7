"""The readers of a training run's folder: run.json and metrics.jsonl."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random

from albert_data.runs.figures import read_run
from albert_data.runs.page import write_run_page
from albert_data.runs.view import describe_run, run_to_dict
from albert_data.train.folder import METRICS_FILE, RUN_FILE, load_config, read_run_file
from albert_data.train.metrics import MetricsFile
from reliability.cases import Case, Reader
from reliability.format_mutators import mutate_lines
from reliability.json_mutators import mutate_json
from reliability.oddities import metrics_oddities, plan_oddities
from reliability.read_shards import run_command, try_ways
from reliability.sound import Sound


def run_readers(sound: Sound) -> list[Reader]:
    """Return the readers of both files."""
    reads = ReadRun(sound)

    def mutate_object(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
        return mutate_json(rng, data)

    run, metrics = ((sound.run / name).read_bytes() for name in (RUN_FILE, METRICS_FILE))
    return [
        Reader(
            name=RUN_FILE,
            share=60,
            seeds=[run],
            mutate=mutate_object,
            read=reads,
            oddities=plan_oddities(),
        ),
        Reader(
            name=METRICS_FILE,
            share=60,
            seeds=[metrics],
            mutate=mutate_lines,
            read=reads,
            oddities=metrics_oddities(),
        ),
    ]


class ReadRun:
    """Reads a copy of a valid run in which one file is replaced: as `inspect` does, for the page, and to resume."""

    def __init__(self, sound: Sound) -> None:
        self._sound = sound

    def __call__(self, case: Case, data: bytes, folder: Path) -> None:
        for name in (RUN_FILE, METRICS_FILE):
            shutil.copy(self._sound.run / name, folder)
        (folder / case.reader.name).write_bytes(data)
        ways = [
            lambda: read_run_file(folder),
            lambda: load_config(folder),
            lambda: read_run(folder),
            lambda: describe_run(folder),
            lambda: json.dumps(run_to_dict(folder)),
        ]
        rng = case.random("ways")
        if case.oddity or rng.random() < 0.01:
            ways.append(lambda: write_run_page(folder))
            ways.append(lambda: run_command("runs", str(folder)))
        ways.append(lambda: MetricsFile(folder / METRICS_FILE, keep_until_step=3))
        try_ways(ways)
