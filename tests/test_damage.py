"""`albert-data verify` misses no damage: random ones to a real build, of every kind, and each names its file."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import pytest

from albert_data.inspect.verify import verify as find_faults
from albert_data.storage.files import read_json
from albert_data.tokenizer.model import Tokenizer

MANIFEST, MODEL = "manifest.json", "tokenizer/spiece.model"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    return build_sound(tmp_path_factory.mktemp("damage"), tokenizer)


def build_sound(folder: Path, tokenizer: Tokenizer, compression: str = "none") -> Path:
    """A build of three training shards and one of validation, with a document of no UTF-8 among the others."""
    documents = fixtures.make_documents(150, seed=9)
    (folder / "in.txt").write_bytes(fixtures.to_txt(documents) + b"\nNot \xff text.\n")
    fixtures.run_build(folder / "in.txt", folder / "out", tokenizer, num_shards=3, compression=compression)
    assert not list(find_faults(folder / "out"))
    return folder / "out"


def list_shards(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.arrow"))


def flip_bit(folder: Path, rng: random.Random, name: str) -> set[str]:
    data = bytearray((folder / name).read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    (folder / name).write_bytes(data)
    return {name}


def cut(folder: Path, rng: random.Random, name: str) -> set[str]:
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: rng.randrange(len(data))])
    return {name}


def append(folder: Path, rng: random.Random, name: str) -> set[str]:
    with (folder / name).open("ab") as file:
        file.write(rng.randbytes(rng.randint(1, 5000)))
    return {name}


def blank_out(folder: Path, rng: random.Random, name: str) -> set[str]:
    """Zeros over a sector, as a disk leaves them, where not all was zero."""
    data = bytearray((folder / name).read_bytes())
    at = rng.choice([at for at in range(0, len(data), 512) if any(data[at : at + 512])])
    data[at : at + 512] = bytes(len(data[at : at + 512]))
    (folder / name).write_bytes(data)
    return {name}


def remove(folder: Path, rng: random.Random, name: str) -> set[str]:
    (folder / name).unlink()
    return {name}


def add(folder: Path, rng: random.Random, name: str) -> set[str]:
    extra = f"{rng.choice(('train', 'validation'))}/shard-{rng.randrange(10, 99):05d}.arrow"
    shutil.copy(folder / name, folder / extra)
    return {extra}


def rename(folder: Path, rng: random.Random, name: str) -> set[str]:
    return add(folder, rng, name) | remove(folder, rng, name)


def swap(folder: Path, rng: random.Random, name: str) -> set[str]:
    other = rng.choice([shard for shard in list_shards(folder) if shard != name])
    first = (folder / name).read_bytes()
    (folder / other).replace(folder / name)
    (folder / other).write_bytes(first)
    return {name, other}


def list_places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every single value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []
    for key, inner in items:
        yield from list_places(inner, (*place, key))
    if not isinstance(value, (dict, list)):
        yield place


def find_holder(value: Any, place: tuple[Any, ...]) -> tuple[Any, Any]:
    """What holds the value of a place, and its key."""
    return reduce(getitem, place[:-1], value), place[-1]


def change_value(value: Any, rng: random.Random) -> Any:
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, (int, float)):
        return value + rng.choice((-1, 1, 7, value or 1))
    at = rng.randrange(len(value))
    return value[:at] + rng.choice([c for c in "0a/" if c != value[at]]) + value[at + 1 :]


def edit_manifest(folder: Path, rng: random.Random, name: str) -> set[str]:
    manifest = read_json(folder / MANIFEST)
    holder, last = find_holder(manifest, rng.choice(list(list_places(manifest))))
    if rng.random() < 0.1 and isinstance(holder, dict):
        del holder[last]
    else:
        holder[last] = change_value(holder[last], rng)
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=rng.choice((None, 2))))
    return {MANIFEST}


def damage_tokenizer(folder: Path, rng: random.Random, name: str) -> set[str]:
    return rng.choice((flip_bit, cut, append, remove))(folder, rng, MODEL)


KINDS = (flip_bit, flip_bit, flip_bit, cut, append, blank_out, remove, add, rename, swap)
KINDS += (edit_manifest, edit_manifest, edit_manifest, damage_tokenizer)


def damage(sound: Path, folder: Path, seed: int) -> None:
    """Damage a copy in one way: verify names the files that it concerns."""
    shutil.copytree(sound, folder)
    rng = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    files = kind(folder, rng, rng.choice(list_shards(folder)))
    faults = list(find_faults(folder, workers=2))
    assert files <= {fault.file for fault in faults}, (seed, kind.__name__, files, faults)
    assert list(find_faults(folder, quick=True)), (seed, kind.__name__)


def test_random_damages_are_found_and_named(sound, tmp_path):
    for seed in range(3 * len(KINDS)):
        damage(sound, tmp_path / str(seed), seed)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_flipped_bits_in_compressed_shards_are_found(compression, tmp_path, tokenizer):
    whole = build_sound(tmp_path, tokenizer, compression)
    for seed in range(30):
        damage(whole, tmp_path / str(seed), seed * len(KINDS))


def test_every_value_of_the_manifest_is_guarded(sound, tmp_path):
    """Each single value changed, one after the other."""
    folder, rng = Path(shutil.copytree(sound, tmp_path / "out")), random.Random(0)
    whole = read_json(folder / MANIFEST)
    assert whole["damage"] == {"invalid_utf8": 1}
    for place in list_places(whole):
        manifest = json.loads(json.dumps(whole))
        holder, last = find_holder(manifest, place)
        holder[last] = change_value(holder[last], rng)
        (folder / MANIFEST).write_text(json.dumps(manifest))
        faults = list(find_faults(folder, quick=True))
        assert MANIFEST in {fault.file for fault in faults}, place
