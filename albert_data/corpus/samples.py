"""A small sample of a corpus, spread over its files, by which a build can be estimated before it reads all of them.

In: inputs. Out: `Sample`s. Places lie equally far from each other in the bytes of all files, so a file is read in
proportion to its size. At a place in .txt, .jsonl and tables a few whole documents are read. What can't be opened in
its middle (compressed files, .csv, other encodings) is read from its beginning, further if more places lie in it.
Streams are not read. The sample depends on the inputs alone.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import BinaryIO, TypeVar

from albert_data.config import TextConfig
from albert_data.corpus.blocks import Block
from albert_data.corpus.damage import Damage
from albert_data.corpus.formats.recognition import TABLES
from albert_data.corpus.inputs import Input, open_input
from albert_data.corpus.sources import MixtureSource
from albert_data.corpus.streams import STREAM_ERRORS
from albert_data.corpus.tasks import FileRange, ReadTask, find_document, read_stream

_PLACES = 32
_PART_BYTES = 64 << 10  # of text, at each place
_READ_BYTES, _LEAST_READ = 1 << 20, 4 << 20  # decompressed: for each place in a file, and at least
Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Some documents, and what they stand for.

    source, text: as in ReadTask
    stands_for: bytes of the corpus on the disk
    disk_bytes: those that were read near the documents
    data_bytes: what came of these, as `Block.data` counts
    blocks: at most one, of some of that; none where there was no document
    """

    source: MixtureSource | None
    text: TextConfig
    stands_for: float
    disk_bytes: int = 1
    data_bytes: int = 0
    blocks: list[Block] = field(default_factory=list)


def read_samples(inputs: list[Input], text: TextConfig) -> Iterator[Sample]:
    """Read the places; each source of a mixture has one at least. The first samples are spread over all places too."""
    files = [item for item in inputs if item.size]
    total = sum(item.size for item in files)
    found: list[tuple[Input, list[int], float]] = []
    for _, group in groupby(files, key=lambda item: item.source):
        found += _choose_places(list(group), total)
    for item, places, stands_for in _spread(found):
        whole = Sample(source=item.source, text=item.source.text if item.source else text, stands_for=stands_for)
        ranges = _find_ranges(item, whole.text, places) if item.is_splittable else []
        for (start, end), count in _spread(list(Counter(ranges).items())):
            yield from _read_range(item, start, end, count, replace(whole, stands_for=stands_for * count))
        if not ranges:
            yield from _read_beginning(item, len(places), replace(whole, stands_for=stands_for * len(places)))


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


def _find_ranges(item: Input, text: TextConfig, places: list[int]) -> list[tuple[int, int]]:
    """Bytes of a file with whole documents, near each place; none for a file that can't be cut there."""
    if item.format in TABLES:
        begins = list(item.begins)
        numbers = [bisect_right(begins, place) - 1 for place in places]
        return [(begins[number], [*begins, item.size][number + 1]) for number in numbers]
    if item.format != "jsonl" and (item.format != "txt" or text.documents == "file"):
        return []
    with item.origin.open_file() as file:
        starts = [0] * sum(place <= _PART_BYTES for place in places)
        starts += _find_documents(file, item, places[len(starts) :])
        if max(starts) == item.size:  # a document fills the rest of the file
            return []
        ends = _find_documents(file, item, [start + _PART_BYTES for start in starts])
        return list(zip(starts, ends, strict=True))


def _find_documents(file: BinaryIO, item: Input, places: Sequence[int]) -> list[int]:
    """Where the next document begins behind each of ascending places. What is behind the next place is read once."""
    found, stop = [item.size], item.size
    for place in reversed(places):
        found.append(find_document(file, item.format, place, stop, found[-1]))
        stop = place
    return found[:0:-1]


def _read_range(item: Input, start: int, end: int, count: int, whole: Sample) -> Iterator[Sample]:
    """count: of the places that lie there."""
    names = ("path", "format", "language", "place", "found")
    part = FileRange(start=start, end=end, **{name: getattr(item, name) for name in names})
    blocks = ReadTask(name="", text=whole.text, ranges=(part,)).read(Damage())
    return _divide(replace(whole, disk_bytes=end - start), blocks, count)


def _read_beginning(item: Input, count: int, whole: Sample) -> Iterator[Sample]:
    stream, count_read = open_input(item)
    with closing(stream):
        data = _take(stream, max(_LEAST_READ, count * _READ_BYTES))
        whole = replace(whole, disk_bytes=max(count_read(), 1))
    blocks = read_stream(io.BytesIO(data), item.origin, whole.text, Damage(), lambda position: _READ_BYTES)
    return _divide(whole, blocks, len(data) // _READ_BYTES + 1)


def _divide(whole: Sample, blocks: Iterator[Block], count: int) -> Iterator[Sample]:
    """Samples of `count` blocks, or a few more, each of its first documents."""
    shortened = [(len(block.data), _shorten(block)) for block in blocks]
    data_bytes = sum(size for size, _ in shortened)
    chosen = shortened[:: max(1, len(shortened) // count)]
    total = sum(size for size, _ in chosen)
    for size, block in _spread(chosen):
        yield replace(whole, stands_for=whole.stands_for * size / total, data_bytes=data_bytes, blocks=[block])
    if not shortened:
        yield whole


def _take(stream: io.BufferedIOBase, num_bytes: int) -> bytes:
    """The first bytes of a stream; of a damaged one, those before the damage."""
    taken = bytearray()
    try:
        while len(taken) < num_bytes and (data := stream.read1(num_bytes - len(taken))):
            taken += data
    except STREAM_ERRORS as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
    return bytes(taken)


def _shorten(block: Block) -> Block:
    """The first documents of a block; all of it if it has no end of a document that is easily found."""
    if len(block.data) <= _PART_BYTES:
        return block
    if block.ends is None:
        end = block.data.find(b"\n" if block.format == "jsonl" else b"\n\n", _PART_BYTES) + 1
        return replace(block, data=block.data[:end]) if end else block
    count = bisect_right(block.ends, _PART_BYTES) + 1
    codes = block.source_codes and block.source_codes[:count]
    ends = block.ends[:count]
    return replace(block, data=block.data[: ends[-1]], ends=ends, source_codes=codes)
