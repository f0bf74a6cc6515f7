"""The readers of a shard folder: its manifest and its Arrow files, by all functions that read them."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np

from albert_data.errors import AlbertDataError
from albert_data.inspect.audit.audit import audit_folder
from albert_data.inspect.choice import RowChoice
from albert_data.inspect.report import inspect_folder
from albert_data.inspect.verify import count_contents, describe_sound, verify
from albert_data.shards.manifest import MANIFEST_NAME, SPLITS
from albert_data.shards.reader import open_shards
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from reliability.cases import Case, Reader, WrongResult
from reliability.format_mutators import mutate_manifest, mutate_shard, reseal_manifest
from reliability.oddities import plan_oddities
from reliability.sound import Sound, run_build

NOTES = b"The user's own notes."


def shard_readers(sound: Sound) -> list[Reader]:
    """Return the readers of manifest.json and of a shard."""
    reads = ReadShards(sound)
    shard = reads.shard.read_bytes()
    manifest = (sound.shards / MANIFEST_NAME).read_bytes()
    return [
        Reader(
            name="manifest",
            share=110,
            seeds=[manifest],
            mutate=mutate_manifest,
            read=reads.manifest,
            oddities=plan_oddities(),
        ),
        Reader(name="shard", share=110, seeds=[shard], mutate=mutate_shard, read=reads.rows),
    ]


class ReadShards:
    """Opens, measures and verifies a copy of a valid folder in which one file is replaced."""

    def __init__(self, sound: Sound) -> None:
        self._sound = sound
        self._tokenizer: Tokenizer = load_tokenizer(sound.unigram)
        self.shard = sorted((sound.shards / "train").iterdir())[0]

    def manifest(self, case: Case, data: bytes, folder: Path) -> None:
        out = self._copy(folder)
        (out / MANIFEST_NAME).write_bytes(data)
        rng = case.random("ways")
        ways = read_ways(out, rng)
        if rng.random() < 0.1:
            ways.append(lambda: self._build_over(folder, out, overwrite=rng.random() < 0.5))
        try_ways(ways)

    def rows(self, case: Case, data: bytes, folder: Path) -> None:
        out = self._copy(folder)
        name = f"train/{self.shard.name}"
        (out / name).write_bytes(data)
        rng = case.random("ways")
        if rng.random() < 0.8:
            rehash(out, name, data)
        try_ways(read_ways(out, rng))

    def _copy(self, folder: Path) -> Path:
        return Path(shutil.copytree(self._sound.shards, folder / "out"))

    def _build_over(self, folder: Path, out: Path, overwrite: bool) -> None:
        """Build into a folder with this manifest, and with files of the user in it and beside it."""
        mine = [out / "notes.txt", out / "train" / "notes.txt", folder / "outside.txt"]
        for path in mine:
            path.write_bytes(NOTES)
        try:
            run_build(self._sound.corpus, out, self._tokenizer, overwrite=overwrite)
        finally:
            for path in mine:
                if not path.exists() or path.read_bytes() != NOTES:
                    raise WrongResult(f"user's-file {path.relative_to(folder)} is lost or changed")


def rehash(out: Path, name: str, data: bytes) -> None:
    """Write size and hash of a changed file into the manifest."""
    manifest = json.loads((out / MANIFEST_NAME).read_bytes())
    for split in manifest["splits"].values():
        for shard in split["shards"]:
            if shard["file"] == name:
                shard |= {"num_bytes": len(data), "sha256": sha256(data).hexdigest()}
    (out / MANIFEST_NAME).write_bytes(reseal_manifest(json.dumps(manifest).encode()))


def try_ways(ways: Iterable[Callable[[], object]]) -> None:
    """Call all functions, then raise the first AlbertDataError."""
    refusals = []
    for way in ways:
        try:
            way()
        except AlbertDataError as error:
            refusals.append(error)
    if refusals:
        raise refusals[0]


def read_ways(out: Path, rng: Random) -> list[Callable[[], object]]:
    """Return functions that use a shard folder as people do; slow ones only in some cases."""
    ways: list[Callable[[], object]] = [lambda: read_rows(out, rng), lambda: check(out, quick=rng.random() < 0.5)]
    if rng.random() < 0.3:
        ways.append(lambda: look_at(out, rng))
    if rng.random() < 0.1:
        ways.append(lambda: audit_folder(out, None).to_text())
    if rng.random() < 0.05:
        command = rng.choice(("verify", "inspect"))
        ways.append(lambda: run_command(command, str(out)))
    return ways


def read_rows(out: Path, rng: Random) -> None:
    """Read existing rows by every method of `open_shards`."""
    for split in SPLITS:
        shards = open_shards(out, split)
        count = len(shards)
        shards.lengths.sum()
        if count:
            chosen = np.array([rng.randrange(count) for _ in range(20)])
            shards.rows(np.arange(count))
            shards.rows(chosen)
            for index in (0, -1, *chosen[:5].tolist()):
                assert len(shards[index].original_ids) == len(shards[index].input_ids)
        for batch in shards.batches():
            len(batch.input_ids)


def check(out: Path, quick: bool) -> None:
    faults = [str(fault) for fault in verify(out, quick=quick)]
    if not faults:
        describe_sound(count_contents(out), quick=quick)


def look_at(out: Path, rng: Random) -> None:
    """Make the report of `inspect` as text and as JSON."""
    choice = RowChoice(count=3, seed=0, numbers=(), text=rng.choice((None, "river")))
    report = inspect_folder(out, split=rng.choice(SPLITS), choice=choice)
    report.to_text()
    json.dumps(report.to_dict())


def run_command(*arguments: str) -> None:
    """Run a command in this process; it must end with 0, 1 or 2 and print no control characters."""
    from albert_data.cli.main import run

    said: Any = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with mock.patch.object(sys, "stdout", said), mock.patch.object(sys, "stderr", said):
        code = run(list(arguments))
    text = said.buffer.getvalue().decode("utf-8", "replace")
    if code not in (0, 1, 2):
        raise WrongResult(f"exit-code-{code} of {' '.join(arguments)}: {text[-2000:]}")
    if bad := [character for character in text if ord(character) < 32 and character not in "\n\t"]:
        raise WrongResult(f"control-characters {bad[:3]!r} are printed by {arguments[0]}: {text[-500:]!r}")
