"""Benchmarks: the sources of a mixture with the weight 0, whose texts no other source may contain.

Before map, an index of the n-grams of their documents is written to a file, which workers map into memory. Map leaves
out each document of another source that has one of them. So it is decided before all else, and only the benchmarks are
read twice. To list the n-grams of all documents, and decide between map and merge, would write eight bytes for each
word.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from albert_data.clean.documents import batch_documents, clean_documents
from albert_data.config import TextConfig
from albert_data.corpus.damage import Damage
from albert_data.corpus.inputs import Input
from albert_data.corpus.sources import MixtureSource
from albert_data.corpus.tasks import read_tasks
from albert_data.data import Lines
from albert_data.errors import InputError
from albert_data.storage import FILE, find_kind
from albert_data.survey.contamination import find_contaminated, hash_grams
from albert_data.survey.gram_index import GramIndex, make_index, sort_grams
from albert_data.survey.sorted_columns import map_u64, write_u64
from albert_data.survey.without import Without
from albert_data.text.nfc import compose_lines

_FILE = "benchmarks.keys"


def is_benchmark(source: MixtureSource | None) -> bool:
    return source is not None and source.weight == 0


def count_contaminated(source: MixtureSource) -> str:
    """The name under which a receipt counts the documents that a source loses."""
    return f"contaminated_of_{source.number}"


def write_benchmarks(
    folder: Path, inputs: list[Input], text: TextConfig, repeated: np.ndarray | None = None, without: Path | None = None
) -> Path | None:
    """Write an index of the n-grams of all benchmarks; None if there are none. Raises InputError if one has no text.

    folder: if the file is there, a killed build has written it for the same inputs
    repeated: hashes of the lines to remove first, see `clean_documents`; without: see `MakeRows`
    """
    path = folder / _FILE
    if find_kind(path) == FILE:
        return path
    grams, held, names = np.zeros(0, np.uint64), list[np.ndarray](), dict[str, int]()
    for item in inputs:
        if item.source is not None and is_benchmark(item.source):
            found = [
                hash_grams(lines.utf8, lines.line_offsets[lines.document_offsets])[0]
                for lines in _read(item, text, repeated, without)
            ]
            names[item.source.name] = names.get(item.source.name, 0) + sum(map(len, found))
            held += found
            if sum(map(len, held)) > len(grams):  # so all are sorted a few times, not once for each file
                grams, held = sort_grams(np.concatenate([grams, *held])), []
    for name, num_grams in names.items():
        if not num_grams:
            raise InputError(
                f"source {name!r} has the weight 0, so documents with its texts are left out, but it holds no text; "
                "check its paths and its text_field, or leave it out"
            )
    if not names:
        return None
    return write_u64(path, [make_index(sort_grams(np.concatenate([grams, *held])))], sync=True)


def _read(item: Input, text: TextConfig, repeated: np.ndarray | None, without: Path | None) -> Iterator[Lines]:
    """What is damaged is counted by map."""
    damage, stays = Damage(), Without(without)
    for task in read_tasks([item], text, damage):
        for block in task.read(damage):
            yield from map(compose_lines, batch_documents(clean_documents(block, task.text, damage, repeated, stays)))


class Benchmarks:
    """The n-grams that `write_benchmarks` wrote. It can be pickled: each process maps the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._index: GramIndex | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"_path": self._path, "_index": None}

    def leave_out(self, lines: Lines) -> tuple[Lines, int]:
        """The documents without these n-grams, and how many have one."""
        self._index = self._index or GramIndex.take(map_u64(self._path))
        composed = compose_lines(lines)
        is_out = find_contaminated(composed.utf8, composed.line_offsets[lines.document_offsets], self._index)
        return (lines.take(~is_out), int(np.count_nonzero(is_out))) if is_out.any() else (lines, 0)
