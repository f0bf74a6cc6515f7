"""Text compressed as .xz, .bz2 and .lz4: joined files, damage, memory, and bytes counted."""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from corpus_fixtures import read

from albert_data.corpus.inputs import find_inputs, open_input
from albert_data.errors import InputError

TEXT = b"".join(b"document %d\n\n" % number for number in range(50_000))
PACK: dict[str, Callable[[bytes], bytes]] = {
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "lz4": lambda data: bytes(pyarrow.compress(data, "lz4", asbytes=True)),
}


def write(tmp_path: Path, ending: str, data: bytes) -> Path:
    path = tmp_path / f"a.txt.{ending}"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("ending", PACK)
def test_joined_files_are_read_and_the_compressed_bytes_counted(tmp_path: Path, ending: str):
    packed = PACK[ending](TEXT)
    path = write(tmp_path, ending, packed + packed)
    (item,) = find_inputs([str(path)])
    stream, count_read = open_input(item)
    with stream:
        assert stream.read() == TEXT + TEXT
        assert count_read() == 2 * len(packed)
    assert not item.is_splittable


def test_zeros_may_pad_xz(tmp_path: Path):
    packed = lzma.compress(TEXT)
    with open_input(*find_inputs([str(write(tmp_path, "xz", packed + bytes(8) + packed + bytes(4)))]))[0] as stream:
        assert stream.read() == TEXT + TEXT


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
    with open_input(*find_inputs([str(write(tmp_path, ending, data))]))[0] as stream:
        found, counts = read(stream)
    assert counts == {"damaged_compression": 1}
    expected = [] if damage == "no such format" else [b"document %d\n" % number for number in range(45_000)]
    assert found[: len(expected)] == expected  # pyarrow (lz4) loses up to 64 KiB before the damage


def test_a_dictionary_of_xz_that_is_too_large_is_refused(tmp_path: Path):
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 256 << 20}]
    path = write(tmp_path, "xz", lzma.compress(b"a", format=lzma.FORMAT_XZ, filters=filters))
    with pytest.raises(
        InputError, match=r"a dictionary over 128 MiB \(xz --lzma2=dict.*`xz -dc .*\| albert-data build"
    ):
        open_input(*find_inputs([str(path)]))[0]
