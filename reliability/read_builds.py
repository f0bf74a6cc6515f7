"""The readers of what a stopped build leaves in OUT/.build: its plan, its receipts, its vocabulary."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

from albert_data.errors import ShardError
from albert_data.shards.manifest_file import read_manifest
from albert_data.shards.reader import open_shards
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from reliability.cases import Case, Reader, WrongResult
from reliability.format_mutators import mutate_model
from reliability.json_mutators import mutate_json
from reliability.oddities import plan_oddities
from reliability.sound import Sound, run_build

PLAN, VOCABULARY, MODEL = ".build/plan.json", ".build/tokenizer/vocab.json", ".build/tokenizer/spiece.model"


def build_readers(sound: Sound) -> list[Reader]:
    """Return the readers of the files in .build."""
    reads = ReadBuild(sound)
    mapped, reduced = (reads.find(folder) for folder in (sound.half_mapped, sound.half_reduced))
    receipt, shard = (
        next(name for name in reduced if part in name) for part in (".build/receipts/", "shards/receipts/")
    )

    def mutate_object(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
        return mutate_json(rng, data)

    def make(name: str, share: int, half: Path, file: str, is_same: bool) -> Reader:
        read = reads.resume(half, file, is_same=is_same)
        seeds = [(half / file).read_bytes()]
        return Reader(name=name, share=share, seeds=seeds, mutate=mutate_object, read=read, oddities=plan_oddities())

    assert VOCABULARY in mapped, "a build without a tokenizer keeps the vocabulary that it trained"
    trained = (sound.half_mapped / MODEL).read_bytes()
    return [
        make("plan.json", 60, sound.half_reduced, PLAN, is_same=True),
        make("a task's receipt", 50, sound.half_reduced, receipt, is_same=False),
        make("a shard's receipt", 30, sound.half_reduced, shard, is_same=False),
        make("vocab.json", 10, sound.half_mapped, VOCABULARY, is_same=True),
        Reader(
            name="a trained model",
            share=10,
            seeds=[trained],
            mutate=mutate_model,
            read=reads.resume(sound.half_mapped, MODEL, is_same=False),
        ),
    ]


class ReadBuild:
    """Resumes a copy of a stopped build in which one file is replaced."""

    def __init__(self, sound: Sound) -> None:
        self._sound = sound
        self._tokenizer = load_tokenizer(sound.unigram)
        self._digest = read_manifest(sound.shards).digest

    @staticmethod
    def find(half: Path) -> list[str]:
        return sorted(path.relative_to(half).as_posix() for path in half.rglob("*") if path.is_file())

    def resume(self, half: Path, file: str, *, is_same: bool) -> Callable[[Case, bytes, Path], None]:
        """Return a function that replaces `file` and resumes. is_same: whether the shards must be as if undisturbed."""
        tokenizer: Tokenizer | None = None if half == self._sound.half_mapped else self._tokenizer

        def read(case: Case, data: bytes, folder: Path) -> None:
            out = Path(shutil.copytree(half, folder / "out"))
            (out / file).write_bytes(data)
            with suppress(ShardError):
                open_shards(out)  # says that the build is not finished
            made = run_build(self._sound.corpus, out, tokenizer, overwrite=case.random("ways").random() < 0.2)
            if is_same and tokenizer is not None and made.manifest.digest != self._digest:
                raise WrongResult(f"digest {made.manifest.digest} of a build resumed over a damaged {file}")

        return read
