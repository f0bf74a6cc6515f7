"""`python -m reliability outage`: trains from a store that gives no answer for some seconds.

The cache has room for two of eight shards, so the training keeps asking for shards. It must wait and go on, and end
with the losses and the weights of a training from the disk, bit for bit.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from reliability.findings import find_memory
from reliability.object_server import Bucket, Server
from reliability.processes import ROOT, run

_SHARDS, _CACHED_SHARDS, _STEPS = 8, 2, 60


class Outage:
    """Begins with the first request for a shard after the training has made some updates."""

    def __init__(self, run_folder: Path, seconds: float) -> None:
        self._metrics, self._seconds = run_folder / "metrics.jsonl", seconds
        self._end: float | None = None
        self.requests = 0

    def __call__(self, environ: dict[str, Any]) -> str | None:
        if self._end is None:
            if "/train/" not in environ["PATH_INFO"] or not self._metrics.is_file() or not read_losses(self._metrics):
                return None
            self._end = time.monotonic() + self._seconds
        if time.monotonic() > self._end:
            return None
        self.requests += 1
        return "reset"


def read_losses(metrics: Path) -> list[tuple[int, float, float]]:
    """The update and both losses of each line about the training."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [(line["step"], line["mlm_loss"], line["sop_loss"]) for line in lines if line["split"] == "train"]


@click.command()
@click.option("--seconds", type=float, default=20.0, show_default=True, help="How long the store gives no answer.")
def outage(seconds: float) -> None:
    """Train from a store through an outage, and compare with a training from the disk. Exit code 1 for a fault."""
    server = Server()
    os.environ |= server.environment
    with tempfile.TemporaryDirectory(dir=find_memory(), prefix="reliability-") as scratch:
        base, bucket = Path(scratch), Bucket(server)

        def start(*arguments: str, first: str = "") -> tuple[float, str]:
            ended = run(list(arguments), base, base / "logs" / arguments[-1].replace("/", "-"), first=first)
            if ended.code:
                raise RuntimeError(ended.describe())
            return ended.seconds, ended.stderr

        def train(shards: str, out: str, first: str = "") -> tuple[float, str]:
            limits = ["--steps", str(_STEPS), "--log-every", "5", "--no-compile"]
            return start("train", shards, "--preset", "tiny", "--device", "cpu", *limits, "-o", out, first=first)

        corpus = str(ROOT / "sample_corpus")
        start("vocab", corpus, "--vocab-size", "2000", "-o", "vocab")
        settings = ["--max-seq-len", "128", "--dupe-factor", "40", "--num-shards", str(_SHARDS)]
        start("build", corpus, "--tokenizer", "vocab", *settings, "-o", "shards")
        files = [path for path in (base / "shards").rglob("*") if path.is_file()]
        for path in files:
            bucket.put(str(path.relative_to(base)), path.read_bytes())
        most = _CACHED_SHARDS * max(path.stat().st_size for path in files)
        undisturbed, _ = train("shards", "disk")
        fault = Outage(base / "store", seconds)
        with server.failing(fault):
            limit = f"import albert_data.storage.cache as cache; cache.MOST_BYTES = {most}"
            disturbed, said = train(f"{bucket.url}/shards", "store", limit)
        losses = [read_losses(base / out / "metrics.jsonl") for out in ("disk", "store")]
        weights = [read_weights(base / out) for out in ("disk", "store")]
    is_equal = losses[0] == losses[1] and weights[0] == weights[1] and bool(losses[0])
    click.echo("\n".join(line for line in said.splitlines() if "no answer" in line))
    click.echo(
        f"{_STEPS} updates, {undisturbed:.1f} s from the disk, {disturbed:.1f} s from the store with an outage of "
        f"{seconds:.0f} s, in which {fault.requests} requests failed; losses and weights "
        f"{'equal, bit for bit' if is_equal else 'DIFFER'}"
    )
    sys.exit(not (is_equal and fault.requests))


def read_weights(run_folder: Path) -> bytes:
    """The weights of the last checkpoint."""
    return max((run_folder / "checkpoints").rglob("*.safetensors")).read_bytes()
