"""Compressed text: joined files, what is no damage and what is, how much of the file was read, and memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import references
from corpus_fixtures import read
from refusals import check_refused

from albert_data.corpus.inputs import find_inputs, open_input
from albert_data.errors import InputError

TEXT = b"".join(b"document %d\n\n" % number for number in range(50_000))
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": lambda data: bytes(pyarrow.compress(data, "zstd", asbytes=True)),
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "lz4": lambda data: bytes(pyarrow.compress(data, "lz4", asbytes=True)),
}
# Of zstd a frame of one byte whose header asks for a window of 2 GiB, and one to skip.
LONG_WINDOW = bytes.fromhex("28b52ffd 00 a8 09 0000") + b"a"
SKIPPABLE = bytes.fromhex("502a4d18 04000000") + b"skip"


def read_packed(folder: Path, ending: str, data: bytes, **options: Any) -> tuple[list[bytes], Counter[str]]:
    path = folder / f"a b.txt.{ending}"
    path.write_bytes(data)
    with open_input(*find_inputs([str(path)]))[0] as stream:
        return read(stream, **options)


def noise(size: int) -> bytes:
    """Documents that hardly compress."""
    numbers = np.random.default_rng(0).integers(0, 2**62, size // 16)
    return b"".join(b"%x\n\n" % number for number in numbers.tolist())[:size]


@pytest.mark.parametrize("ending", ["", *PACK])
def test_joined_files_are_read_and_their_bytes_counted_as_they_lie_on_the_disk(tmp_path: Path, ending: str):
    text = noise(1_500_000)
    packed = PACK[ending](text) if ending else text
    path = tmp_path / f"a.txt.{ending}".removesuffix(".")
    path.write_bytes(packed + packed)
    (item,) = find_inputs([str(path)])
    stream, count_read = open_input(item)
    with stream:
        assert stream.read(len(text)) == text
        assert 0.9 * len(packed) < count_read() < 1.6 * len(packed)
        assert b"".join(iter(lambda: stream.read1(1000), b"")) == text
        assert count_read() == 2 * len(packed)
    assert item.is_splittable == (not ending)


@pytest.mark.parametrize(
    ("ending", "layout"),
    [
        ("gz", "one, nothing, zeros"),
        ("gz", "nothing, one, nothing, one, nothing, zeros"),
        ("zst", "skip, one, nothing, skip, one, skip"),
        ("xz", "one, zeros, one, zeros"),
        *((ending, "") for ending in ("gz", "zst")),
    ],
)
def test_empty_parts_and_those_to_skip_are_no_damage(tmp_path: Path, ending: str, layout: str):
    parts = {"one": PACK[ending](TEXT), "nothing": PACK[ending](b""), "skip": SKIPPABLE, "zeros": bytes(8), "": b""}
    found = read_packed(tmp_path, ending, b"".join(parts[name] for name in layout.split(", ")), strict=True)
    assert found == read(TEXT * layout.count("one"))


@pytest.mark.parametrize("ending", PACK)
@pytest.mark.parametrize("damage", ["cut", "changed", "no such format", "more"])
def test_damage_is_counted_and_what_precedes_it_is_kept(tmp_path: Path, ending: str, damage: str):
    parts = [PACK[ending](part) for part in (TEXT, b"the last\n\n" * 100_000)]
    whole = b"".join(parts)
    middle = len(parts[0]) + len(parts[1]) // 2
    data = {
        "cut": whole[:middle],
        "changed": whole[:middle] + b"\xaa" * 9 + whole[middle + 9 :],
        "no such format": b"no such format",
        "more": parts[0] + b"??",
    }[damage]
    found, counts = read_packed(tmp_path, ending, data)
    assert counts == {"damaged_compression": 1}
    expected = [] if damage == "no such format" else [b"document %d\n" % number for number in range(45_000)]
    assert found[: len(expected)] == expected  # pyarrow (lz4) loses up to 64 KiB before the damage


def test_a_wrong_sum_of_gzip_is_damage(tmp_path: Path):
    assert read_packed(tmp_path, "gz", gzip.compress(b"a\n")[:-1] + b"?")[1] == {"damaged_compression": 1}


@pytest.mark.parametrize(
    ("size", "ending"), [(2_000, "gz"), (200_000, "gz"), (600_000, "gz"), (2_000, "zst"), (600_000, "zst")]
)
def test_what_precedes_the_break_of_a_compressed_file_is_kept_or_the_break_named(
    tmp_path: Path, size: int, ending: str
):
    text = noise(size)
    packed = PACK[ending](text)
    packed = packed[: len(packed) * 3 // 4]
    frames = text[: size // 2 >> 17 << 17]  # zstd gives whole frames of 128 KiB
    kept = zlib.decompressobj(wbits=31).decompress(packed) if ending == "gz" else frames
    found, counts = read_packed(tmp_path, ending, packed, block_bytes=1 << 17)
    assert counts == {"damaged_compression": 1}
    whole = references.read_txt(kept)[:-1]
    assert found[: len(whole)] == whole
    assert b"".join(references.read_txt(text)).startswith(b"".join(found)[:-1])
    place = str(len(kept)) if ending == "gz" or not kept else r"\d+"
    with pytest.raises(InputError, match=rf"^p, byte {place}: damaged compression: "):
        read_packed(tmp_path, ending, packed, strict=True)


@pytest.mark.parametrize("before", [b"", PACK["zst"](TEXT)], ids=["at once", "later"])
def test_a_window_that_is_too_large_is_no_damage(tmp_path: Path, before: bytes):
    named = f"window over 128 MiB & `zstd -dc --long=31 '{tmp_path}/a b.txt.zst' | albert-data build - ...`"
    check_refused(lambda: read_packed(tmp_path, "zst", before + LONG_WINDOW), InputError, named)


def test_a_dictionary_of_xz_that_is_too_large_is_refused(tmp_path: Path):
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 256 << 20}]
    data = lzma.compress(b"a", format=lzma.FORMAT_XZ, filters=filters)
    named = "dictionary over 128 MiB (xz --lzma2=dict & `xz -dc & | albert-data build"
    check_refused(lambda: read_packed(tmp_path, "xz", data), InputError, named)
