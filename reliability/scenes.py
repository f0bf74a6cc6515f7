"""The commands to disturb: each with its inputs, the result that it must have, and how it is run again.

Commands run in the trial's folder and name their outputs without a path, so that equal commands write equal bytes.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random

from albert_data.shards.manifest_file import read_manifest
from reliability.processes import ROOT, Ended

OUT, RUN, VOCAB, PAGE = "out", "run", "vocab", "page.html"
OTHER_SEED = 7
TEXT_BYTES = 20 << 20
# Of a metrics line: the only figures that differ between equal runs.
TIMES = ("seconds", "tokens_per_second", "mfu", "peak_gb")
# Files to wait for before a signal: a pattern, and whether the files appear (True) or disappear.
BUILD_STAGES = [
    (f"{OUT}/.build/receipts/*", True),
    (f"{OUT}/.build/shards/train/*", True),
    (f"{OUT}/train/*.arrow", True),
]
Result = dict[str, str]
Again = Callable[[Path, Ended], list[str] | None]


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The input of all trials: a corpus, a small one, a vocabulary, finished shards and a smaller set of shards."""

    folder: Path

    @property
    def corpus(self) -> str:
        return str(self.folder / "corpus")

    @property
    def sample(self) -> str:
        return str(ROOT / "sample_corpus")

    @property
    def vocab(self) -> str:
        return str(self.folder / VOCAB)

    @property
    def shards(self) -> Path:
        return self.folder / "shards"

    @property
    def small_shards(self) -> Path:
        return self.folder / "small-shards"

    def build(self, out: str = OUT, *options: str) -> list[str]:
        settings = ["--max-seq-len", "64", "--validation-fraction", "0.1", "--num-shards", "4", "--workers", "2"]
        return ["build", self.corpus, "--tokenizer", self.vocab, "-o", out, *settings, *options]

    def other_build(self, *options: str) -> list[str]:
        """Return a build with other settings: other bytes, and one shard less."""
        return self.build(OUT, "--seed", str(OTHER_SEED), "--num-shards", "3", *options)

    def small_build(self, out: str = OUT, *options: str) -> list[str]:
        settings = ["--max-seq-len", "64", "--validation-fraction", "0.2"]
        return ["build", self.sample, "--tokenizer", self.vocab, "-o", out, *settings, *options]

    def copy_shards(self, folder: Path) -> None:
        shutil.copytree(self.shards, folder / OUT)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A command to disturb.

    prepare: makes the files that the command finds. result: what must be equal to that of an undisturbed command.
    again: the next command after one that ended in the folder; None if nothing is left to do.
    is_done: whether the first command has finished its work; needed if the last command replaces its result.
    stages: see BUILD_STAGES. holds: the output in which the user's own files are put. allowed_left: what may be left.
    """

    name: str
    share: int
    command: list[str]
    prepare: Callable[[Path], object]
    result: Callable[[Path, Ended], Result]
    stages: Sequence[tuple[str, bool]]
    again: Again
    holds: str = OUT
    has_workers: bool = True
    allowed_left: tuple[str, ...] = ()
    is_done: Callable[[Path], bool] | None = None


def make_scenes(inputs: Inputs) -> list[Scene]:
    """Return all commands that write for long enough to be disturbed."""
    return [
        *_vocab_and_build_scenes(inputs),
        *_overwrite_scenes(inputs),
        _train_scene(inputs),
        *_reading_scenes(inputs),
    ]


def _do_nothing(folder: Path) -> None:
    pass


def _same(command: list[str]) -> Again:
    """Run the same command again until it succeeds."""
    return lambda folder, ended: command if ended.arguments != command or ended.code else None


def _vocab_and_build_scenes(inputs: Inputs) -> list[Scene]:
    vocab = ["vocab", inputs.corpus, "--vocab-size", "2000", "--sample-bytes", "1000000", "-o", VOCAB, "--workers", "2"]
    with_vocabulary = ["build", inputs.sample, "-o", OUT, "--max-seq-len", "64", "--workers", "2"]
    return [
        Scene(
            name="vocab",
            share=12,
            command=vocab,
            prepare=_do_nothing,
            result=lambda folder, ended: digest_files(folder / VOCAB, ("spiece.model", "pieces.txt", "vocab.json")),
            stages=[(f"{VOCAB}/*", True), (f"{VOCAB}/pieces.txt", True)],
            again=_same(vocab),
            holds=VOCAB,
        ),
        Scene(
            name="build",
            share=26,
            command=inputs.build(),
            prepare=_do_nothing,
            result=digest_shards,
            stages=[*BUILD_STAGES, (f"{OUT}/manifest.json", True)],
            again=_same(inputs.build()),
        ),
        Scene(
            name="build with a vocabulary",
            share=8,
            command=with_vocabulary,
            prepare=_do_nothing,
            result=digest_shards,
            stages=[(f"{OUT}/.build/tokenizer/*", True), *BUILD_STAGES],
            again=_same(with_vocabulary),
        ),
    ]


def _overwrite_scenes(inputs: Inputs) -> list[Scene]:
    build, other = inputs.build(), inputs.other_build("--overwrite")
    stages = [*BUILD_STAGES[:2], (f"{OUT}/manifest.json", False), (f"{OUT}/.build/plan.json", True)]

    def build_old(folder: Path, ended: Ended) -> list[str] | None:
        """Build with the old settings; with --overwrite if the message asks for it."""
        if ended.arguments == other:
            return build
        return [*build, "--overwrite"] if ended.code and "--overwrite" not in ended.arguments else None

    return [
        Scene(
            name="overwrite",
            share=16,
            command=other,
            prepare=inputs.copy_shards,
            result=digest_shards,
            stages=stages,
            again=_same(other),
        ),
        Scene(
            name="overwrite, then back",
            share=14,
            command=other,
            prepare=inputs.copy_shards,
            result=digest_shards,
            stages=stages,
            again=build_old,
            allowed_left=(".build",),  # of the unfinished build with the other settings
            is_done=lambda folder: read_seed(folder / OUT) == OTHER_SEED,
        ),
    ]


def _train_scene(inputs: Inputs) -> Scene:
    often = ["--steps", "24", "--save-every", "2", "--eval-every", "5", "--log-every", "2", "--eval-rows", "16"]
    train = ["train", str(inputs.small_shards), "-o", RUN, "--preset", "tiny", "--batch-tokens", "256", *often]

    def resume(folder: Path, ended: Ended) -> list[str] | None:
        if (folder / RUN / "report.html").is_file() and ended.code == 0 and "--resume" in ended.arguments:
            return None
        return [*train, "--resume"] if (folder / RUN / "run.json").exists() else train

    return Scene(
        name="train",
        share=14,
        command=train,
        prepare=_do_nothing,
        result=lambda folder, ended: digest_run(folder / RUN),
        stages=[(f"{RUN}/{name}", True) for name in ("checkpoints/*.tmp", "checkpoints/step-*4", "report.html")],
        again=resume,
        holds=RUN,
        has_workers=False,
    )


def _reading_scenes(inputs: Inputs) -> list[Scene]:
    verify, inspect = ["verify", OUT], ["inspect", OUT, "--html", PAGE]
    return [
        Scene(
            name="verify",
            share=5,
            command=verify,
            prepare=inputs.copy_shards,
            result=lambda folder, ended: {**digest_shards(folder, ended), "stdout": ended.stdout},
            stages=[],
            again=_same(verify),
            has_workers=False,
        ),
        Scene(
            name="inspect --html",
            share=5,
            command=inspect,
            prepare=inputs.copy_shards,
            result=lambda folder, ended: digest_files(folder, (PAGE,)),
            stages=[(f"{PAGE}*", True)],
            again=_same(inspect),
            has_workers=False,
        ),
    ]


def digest_files(folder: Path, names: Sequence[str]) -> Result:
    """Return the SHA-256 of each file, or "missing"."""
    return {name: digest_file(folder / name) for name in names}


def digest_file(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest() if path.is_file() else "missing"


def digest_all(folder: Path) -> Result:
    """Return the SHA-256 of every file, hidden ones too."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): digest_file(path) for path in files}


def digest_shards(folder: Path, ended: Ended) -> Result:
    """Return the digests of all files of a finished build."""
    out = folder / OUT
    shards = [path.relative_to(out).as_posix() for path in sorted(out.glob("*/*.arrow"))]
    return digest_files(out, ("manifest.json", "README.md", "tokenizer/spiece.model", *shards))


def read_seed(out: Path) -> int | None:
    """Return the seed of a finished build; None if there is no manifest."""
    return read_manifest(out).config.examples.seed if (out / "manifest.json").is_file() else None


def digest_run(run: Path) -> Result:
    """Return the digests of a training run, without its times."""
    checkpoints = sorted(path.name for path in run.glob("checkpoints/*"))
    weights = [f"checkpoints/{name}/{file}.safetensors" for name in checkpoints for file in ("model", "training")]
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    bare = [{k: v for k, v in _parse(line).items() if k not in TIMES} for line in lines]
    return {
        **digest_files(run, weights),
        "metrics.jsonl": json.dumps(bare),
        "report.html": str((run / "report.html").is_file()),
    }


def _parse(line: str) -> dict[str, object]:
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError):
        return {"torn": line}


def write_corpus(folder: Path) -> None:
    """Write a corpus of several tasks and a stream, from random lines of the sample corpus."""
    rng = Random(0)
    text = "\n\n".join((ROOT / "sample_corpus" / name).read_text() for name in ("english-1.txt", "chinese.txt"))
    lines = [line for line in text.splitlines() if line.strip()]
    folder.mkdir(parents=True)
    for number in range(4):
        documents, size = [], 0
        while size < TEXT_BYTES // 5:
            document = "\n".join(rng.choices(lines, k=rng.randint(3, 30)))
            documents.append(document)
            size += len(document.encode())
        (folder / f"part-{number}.txt").write_text("\n\n".join(documents) + "\n")
    records = "".join(json.dumps({"text": "\n".join(rng.choices(lines, k=20))}) + "\n" for _ in range(2000))
    (folder / "stream.jsonl.gz").write_bytes(gzip.compress(records.encode(), 1, mtime=0))
