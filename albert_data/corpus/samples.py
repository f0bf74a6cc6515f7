"""A small sample of a corpus, spread over its files, by which a build can be estimated before it reads all of them.

In: inputs. Out: `Sample`s. Places lie equally far from each other in the bytes of all files, so a file is read in
proportion to its size. At a place in .txt, .jsonl and tables a few whole documents are read. What can't be opened in
its middle (compressed files, .csv, other encodings) is read from its beginning, further if more places lie in it.
Streams are not read. The sample depends on the inputs alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from albert_data.config import TextConfig
from albert_data.corpus.blocks import Block, count_broken
from albert_data.corpus.damage import Damage
from albert_data.corpus.formats.recognition import TABLES
from albert_data.corpus.inputs import Input, open_input, read_beginning
from albert_data.corpus.sources import MixtureSource
from albert_data.corpus.streams import join_parts
from albert_data.corpus.tasks import FileRange, find_begins, read_range, read_stream

_PLACES = 32
_PART_BYTES = 64 << 10  # of a block, and at each place of text
_READ_BYTES, _LEAST_READ = 1 << 20, 4 << 20  # decompressed: for each place in a file, and at least
Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Some documents, and what they stand for.

    source, text: as in ReadTask
    stands_for: bytes of the corpus on the disk; factor: how many times the bytes of the block
    block: None where there was no document
    """

    source: MixtureSource | None
    text: TextConfig
    stands_for: float
    factor: float = 0.0
    block: Block | None = None


def read_samples(inputs: list[Input], text: TextConfig) -> Iterator[Sample]:
    """Read the places; each source of a mixture has one at least. The first samples are spread over all places too."""
    files = [item for item in inputs if item.size]
    total = sum(item.size for item in files)
    found: list[tuple[Input, list[int], float]] = []
    for _, group in groupby(files, key=lambda item: item.source):
        found += _choose_places(list(group), total)
    for item, places, stands_for in _spread(found):
        how = item.source.text if item.source else text
        ranges = Counter(_find_ranges(item, how, places) if item.is_splittable else ())
        for part, count in _spread(list(ranges.items())):
            blocks = read_range(part, how, Damage(), lambda position: _PART_BYTES)
            yield from _choose_blocks(item, how, blocks, part.num_bytes, count, stands_for * count)
        if not ranges:
            data, disk_bytes = _read_beginning(item, max(_LEAST_READ, len(places) * _READ_BYTES))
            parts = join_parts(data[at : at + _PART_BYTES] for at in range(0, len(data), _PART_BYTES))
            blocks = read_stream(parts, item.origin, how, Damage(), lambda position: _PART_BYTES)
            most = len(data) // _READ_BYTES + 1
            yield from _choose_blocks(item, how, blocks, disk_bytes, most, stands_for * len(places))


def _spread(items: Sequence[Item]) -> list[Item]:
    """Every eighth item first.

    >>> _spread(range(20))[:5]
    [0, 8, 16, 1, 9]
    """
    return [items[number] for first in range(8) for number in range(first, len(items), 8)]


def _choose_places(files: list[Input], total: int) -> Iterator[tuple[Input, list[int], float]]:
    """The files with places, the offsets of these in the file, and how many bytes a place stands for."""
    size = sum(item.size for item in files)
    num_places, begin = max(1, round(_PLACES * size / total)), 0
    places = [(2 * number + 1) * size // (2 * num_places) for number in range(num_places)]
    for item in files:
        inside = [place - begin for place in places if begin <= place < begin + item.size]
        begin += item.size
        if inside:
            yield item, inside, size / num_places


def _find_ranges(item: Input, text: TextConfig, places: list[int]) -> list[FileRange]:
    """Bytes of a file with whole documents, near each place; none for a file that can't be cut there."""
    if item.format in TABLES:
        bounds = [*item.begins, item.size]
        numbers = [bisect_right(item.begins, place) - 1 for place in places]
        return [FileRange(item.origin, bounds[number], bounds[number + 1]) for number in numbers]
    num_first = sum(place <= _PART_BYTES for place in places)
    starts = [0] * num_first + find_begins(item, [*places[num_first:], item.size], text)
    ends = find_begins(item, [*(start + _PART_BYTES for start in starts), item.size], text)
    if item.size in starts:  # a document fills the rest of the file
        return []
    return [FileRange(item.origin, start, end) for start, end in zip(starts, ends, strict=bool(ends))]


def _read_beginning(item: Input, num_bytes: int) -> tuple[memoryview, int]:
    """So many bytes of a file, and how many of the disk these were; of a damaged one, those before the damage."""
    stream, count_read = open_input(item)
    with closing(stream):
        data, failure = read_beginning(stream, num_bytes)
        if failure is not None:
            count_broken(failure, item.path, len(data), Damage())
        return memoryview(data), max(count_read(), 1)


def _choose_blocks(
    item: Input, text: TextConfig, blocks: Iterator[Block], disk_bytes: int, most: int, stands_for: float
) -> Iterator[Sample]:
    """Samples of `most` blocks, or up to twice as many, that are spread over all."""
    chosen, step, data_bytes = list[Block](), 1, 0
    for number, block in enumerate(blocks):
        data_bytes += len(block.data)
        if number % step == 0:
            chosen.append(block)
        if len(chosen) > 2 * most:
            chosen, step = chosen[::2], 2 * step
    total = sum(len(block.data) for block in chosen)
    for block in _spread(chosen):
        share = len(block.data) / total
        factor = stands_for / disk_bytes * data_bytes / total
        yield Sample(source=item.source, text=text, stands_for=stands_for * share, factor=factor, block=block)
    if not chosen:
        yield Sample(source=item.source, text=text, stands_for=stands_for)
