"""`python -m reliability stores`: kills builds from and into a store whose answers fail at random.

The store is moto's S3. After each kill the command runs again. All objects must then be
those of an undisturbed build, byte for byte; nothing may be left of .build, nor an upload that was never
completed, and no object and no message may hold the secret key or a signature.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import click

from reliability.findings import FINDINGS, find_memory
from reliability.object_server import SECRET, Bucket, Server
from reliability.processes import ROOT, Strike, run
from reliability.trials import MOST_RERUNS, Trial

FAULTS = ("503 SlowDown", "500 InternalError", "reset", "late reset", "cut", "slow")
_SECRETS = (SECRET, "AWS4-HMAC", "Signature=")
# The lock of a killed build expires soon, and the sorted run and the shard are uploads of several parts.
_FIRST = (
    "import albert_data.storage.locks as locks, albert_data.storage.objects as objects; "
    "locks.EXPIRY_SECONDS, locks.RENEW_SECONDS, objects.PART_BYTES = 4.0, 1.0, 5 << 20"
)


@dataclass(frozen=True, kw_only=True)
class Store:
    """server: holds the corpus, in a bucket of its own; share: of the requests that fail."""

    server: Server
    corpus: Bucket
    vocab: Path
    share: float

    def build(self, bucket: Bucket) -> list[str]:
        settings = ["--max-seq-len", "128", "--dupe-factor", "60", "--num-shards", "1", "--workers", "2"]
        return ["build", f"{self.corpus.url}/in", "--tokenizer", str(self.vocab), "-o", f"{bucket.url}/out", *settings]

    def fail(self, rng: Random, count: Counter[str]) -> Callable[[dict[str, Any]], str | None]:
        """Faults at random, whose number is counted."""

        def fault(environ: dict[str, Any]) -> str | None:
            if rng.random() >= self.share:
                return None
            count[what := rng.choice(FAULTS)] += 1
            return what

        return fault


def try_kill(store: Store, wanted: dict[str, bytes], seconds: float, folder: Path, number: int) -> Trial:
    """Kill a build at a random moment, and run it again until it succeeds."""
    rng, bucket = Random(f"stores {number}"), Bucket(store.server)
    target, moment = rng.choice(("parent", "worker", "group")), rng.uniform(0.0, 1.05 * seconds)
    trial = Trial(scene="build in a store", label=f"KILL to {target}", number=number)
    folder.mkdir(parents=True)
    command = store.build(bucket)
    strike = Strike(name="KILL", target=target, is_due=lambda passed: passed >= moment)
    ended = run(command, folder, folder / "logs-0", strike, first=_FIRST)
    trial.note(ended)
    for again in range(MOST_RERUNS):
        if ended.code == 0:
            break
        ended = run(command, folder, folder / f"logs-{again + 1}", first=_FIRST)
        trial.note(ended)
    if ended.code:
        trial.blame(f"build does not succeed: exit code {ended.code}")
    files = bucket.files("out/")
    trial.is_equal = files == wanted
    if not trial.is_equal:
        differing = sorted(name for name in files.keys() | wanted.keys() if files.get(name) != wanted.get(name))
        trial.blame(f"other objects than of an undisturbed build: {', '.join(differing)}")
    if left := bucket.uploads():
        trial.blame(f"uploads were never completed: {', '.join(left)}")
    texts = [*files.values(), *(line.encode() for line in trial.log)]
    if any(secret.encode() in text for text in texts for secret in _SECRETS):
        trial.blame("a secret was written or told")
    return trial


@click.command()
@click.option("--trials", type=click.IntRange(1), default=50, show_default=True, metavar="N")
@click.option("--share", type=float, default=0.03, show_default=True, help="Share of the requests that fail.")
@click.option("--findings", "folder", type=click.Path(path_type=Path), default=FINDINGS, show_default=True)
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Trials at once.")
def stores(trials: int, share: float, folder: Path, workers: int) -> None:
    """Kill builds from and into a store that fails, and compare the results of a rerun.

    Exit code 1 means that there are faults; each is saved with the log of its trial.
    """
    server, count, begin = Server(), Counter[str](), time.monotonic()
    os.environ |= server.environment
    with tempfile.TemporaryDirectory(dir=find_memory(), prefix="reliability-") as scratch:
        base, corpus, undisturbed = Path(scratch), Bucket(server), Bucket(server)
        for path in (ROOT / "sample_corpus").glob("*.*"):
            corpus.put(f"in/{path.name}", path.read_bytes())
        vocab = ["vocab", f"{corpus.url}/in", "--vocab-size", "2000", "-o", str(base / "vocab")]
        store = Store(server=server, corpus=corpus, vocab=base / "vocab", share=share)
        for number, command in enumerate((vocab, store.build(undisturbed))):
            ended = run(command, base, base / f"logs-{number}", first=_FIRST)
            if ended.code:
                raise RuntimeError(f"an undisturbed command fails:\n{ended.describe()}")
        wanted = undisturbed.files("out/")
        click.echo(f"undisturbed: {ended.seconds:.1f} s, {sum(map(len, wanted.values())) / 1e6:.1f} MB in a store")
        with server.failing(store.fail(Random(0), count)), ThreadPoolExecutor(workers) as pool:
            done = list(
                pool.map(lambda i: try_kill(store, wanted, ended.seconds, base / f"trial-{i}", i), range(trials))
            )
    for trial in done:
        for fault in trial.faults:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"store-{trial.number:05d}.log"
            path.write_text("\n".join([trial.label, *trial.faults, *trial.log]))
            click.echo(f"FAULT {trial.label}: {fault} ({path})")
    click.echo(
        f"{trials} trials in {time.monotonic() - begin:,.0f} s: {sum(trial.is_equal for trial in done)} equal, "
        f"{sum(bool(trial.faults) for trial in done)} faulty; kills {dict(Counter(trial.label for trial in done))}; "
        f"{server.requests.total():,} requests, of which {count.total():,} failed: {dict(count)}"
    )
    sys.exit(any(trial.faults for trial in done))
