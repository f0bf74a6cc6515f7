"""Split inputs into tasks of whole documents, and read them.

Plain files become ranges of bytes that begin and end between documents; small files share a task. A table (Parquet,
Arrow) is cut between its row groups or record batches. What cannot be split (.gz, .zst, stdin, other encodings) is read
once, in the parent process, and handed to the workers as blocks; on a cluster a compressed file is one task, read where
it runs. How the work is split changes no byte of the result.
"""

from __future__ import annotations

import io
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import accumulate, groupby, pairwise
from typing import Any, BinaryIO

import numpy as np

from albert_data.config import DEFAULT_TEXT, FILE, TextConfig
from albert_data.corpus.blocks import BLOCK_BYTES, BOM, Block, BlockBytes, Origin, read_blocks
from albert_data.corpus.damage import Damage
from albert_data.corpus.formats.csv_files import read_rows
from albert_data.corpus.formats.json_arrays import as_json_lines
from albert_data.corpus.formats.json_lines import parse_lines
from albert_data.corpus.formats.recognition import SPLIT, TABLES, find_json
from albert_data.corpus.formats.records import make_blocks
from albert_data.corpus.formats.tables import read_table
from albert_data.corpus.formats.wiki import read_wiki
from albert_data.corpus.inputs import Input, open_input
from albert_data.corpus.lines.line_ends import break_lines, divide
from albert_data.corpus.lines.valid_utf8 import is_utf8
from albert_data.corpus.lines.white_space import has_text
from albert_data.corpus.sources import MixtureSource
from albert_data.errors import AlbertDataError
from albert_data.text.wording import count_of

_MIB = 1 << 20
_READERS = {"csv": read_rows, "tsv": read_rows, "wiki": read_wiki}  # of streams of records
# A task is about 1 / 128 of the corpus, within the two limits below: smaller ones share it more evenly, but make more
# to merge.
_TASKS = 128
_TASKS_LEFT = 32  # and about 1 / 32 of what is left, if less: the last tasks are small, so no worker waits for long
_MIN_TASK_BYTES = 4 * _MIB  # each task writes a sorted run and a receipt, so very small tasks cost more than they gain
# Each task has a receipt, and a sorted run that many tasks of the shuffle read a range of (see pipeline/shuffle.py). So
# tasks of 24 MiB grow from 50 GB on, where they are 2,000, then from 1 TB to 5 TB their number grows, up to 10,000.
_MAX_TASK_BYTES, _FEW_TASKS = 24 * _MIB, 2_000
_LARGE_TASK_BYTES, _MOST_TASKS = 512 * _MIB, 10_000
_MAX_STREAM_BLOCK_BYTES = 16 * _MIB
_JOBS_AT_ONCE = 32  # of those that look for ends of documents: a store answers so many requests at a time
CUTS_OF_JOB = 16  # in one file, which is opened once
_SMALL_FILE_BYTES, _JOINED_BYTES = 128 << 10, _MIB  # so small that no line or document of a joined block is cut


@dataclass(frozen=True)
class FileRange:
    """Bytes [start, end) of a plain file; both bounds lie between documents.

    is_part: whether the file has more bytes, or is read in other ways too
    """

    origin: Origin
    start: int
    end: int
    is_part: bool = False

    @property
    def num_bytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, kw_only=True)
class ReadTask:
    """Documents for one worker: ranges of plain files, one block of a stream, or all of a file that can't be split.

    name: unique in a build, and the same when the build is resumed
    block_bytes: of the compressed file that were read for the block
    fingerprint: SHA-256 of the block's bytes, of the list of ranges, or of the file's size; a receipt counts only for
        the same fingerprint and the same plan
    source: of a mixture, None for other builds
    is_validation: whether all of it is for validation
    """

    name: str
    text: TextConfig = DEFAULT_TEXT
    ranges: tuple[FileRange, ...] = ()
    block: Block | None = None
    block_bytes: int = 0
    whole: Input | None = None
    fingerprint: str = ""
    source: MixtureSource | None = None
    is_validation: bool = False

    def describe(self) -> str:
        if self.block is not None:
            return self.block.describe()
        if self.whole is not None:
            return self.whole.path
        first, num_more = self.ranges[0], len(self.ranges) - 1
        more = f" and {count_of(num_more, 'more file')}" if num_more else ""
        return f"{first.origin.path}, bytes {first.start} to {first.end}{more}"

    def read(self, damage: Damage, *, joins: bool = True) -> Iterator[Block]:
        """Yield the task's documents in blocks. joins: whether a block may hold several small files."""
        if self.block is not None:
            with damage.inputs.reading(self.block.origin.path, is_part=True):
                yield self.block
        if self.whole is not None:
            for block, _ in _read_whole(self.whole, self.text, damage, is_part=self.whole.is_shared):
                yield block
        for parts in self._group_ranges() if joins else ([part] for part in self.ranges):
            yield from self._read_ranges(parts, damage)

    def _group_ranges(self) -> Iterator[list[FileRange]]:
        """Consecutive small files that can be read as one block; every other range by itself."""
        totals = accumulate(part.num_bytes for part in self.ranges)
        for kind, group in groupby(zip(self.ranges, totals, strict=True), key=lambda one: self._find_kind(*one)):
            parts = [part for part, _ in group]
            yield from [parts] if kind else ([part] for part in parts)

    def _find_kind(self, part: FileRange, total: int) -> tuple[Any, ...] | None:
        """What is equal for small files of one block; None if it is none. total: bytes of all ranges up to this one.

        --unwrap counts the blank line at the end of a document, which joining adds in text.
        """
        format = part.origin.format
        can_join = format == "jsonl" or not self.text.unwrap or not self.text.ends_at_blank
        if not can_join or format not in ("txt", "jsonl") or part.is_part or part.end > _SMALL_FILE_BYTES:
            return None
        return format, part.origin.language, total // _JOINED_BYTES

    def _read_ranges(self, parts: Sequence[FileRange], damage: Damage, data: Sequence[bytes] = ()) -> Iterator[Block]:
        """Yield the blocks of a range, or one of several small files, whose content is `data`.

        A block costs some milliseconds, whatever its size. If a file has no document, or damage, halves of the files
        are read as blocks, and in the end it by itself: so the counts are those of the files.
        """
        if len(parts) > 1:
            data = data or [_read_file(part) for part in parts]
            if (block := _join_files(parts, data, self.text, damage)) is None:
                middle = len(parts) // 2
                yield from self._read_ranges(parts[:middle], damage, data[:middle])
                yield from self._read_ranges(parts[middle:], damage, data[middle:])
                return
            blocks: Iterable[Block] = [block]
        else:
            blocks = read_range(parts[0], self.text, damage)
        num_bytes = sum(part.num_bytes for part in parts)
        with damage.inputs.reading(parts[0].origin.path, num_bytes, is_part=parts[0].is_part):
            yield from blocks

    @property
    def num_bytes(self) -> int:
        """Bytes on the disk; 0 for a block of a pipe, which has no size there."""
        whole_bytes = 0 if self.whole is None else self.whole.size
        return self.block_bytes + whole_bytes + sum(part.num_bytes for part in self.ranges)


def read_range(
    part: FileRange, text: TextConfig, damage: Damage, block_bytes: BlockBytes = lambda position: BLOCK_BYTES
) -> Iterator[Block]:
    """Yield the documents of a range as blocks."""
    origin = part.origin
    if origin.format in TABLES:
        records = read_table(origin, text, damage, start=part.start, end=part.end)
        yield from make_blocks(records, origin, text, damage, block_bytes)
        return
    with origin.open_file() as file:
        if origin.format in SPLIT:
            file.seek(part.start)
            yield from read_blocks(file, origin, text, damage, block_bytes, start=part.start, length=part.num_bytes)
        else:
            yield from read_stream(file, origin, text, damage, block_bytes)


def _read_file(part: FileRange) -> bytes:
    """A small file without the byte order mark, with the line ends of text replaced."""
    with part.origin.open_file() as file:
        data = file.read(part.end).removeprefix(BOM)
    return break_lines(data) if part.origin.format == "txt" else data


def _join_files(parts: Sequence[FileRange], data: Sequence[bytes], text: TextConfig, damage: Damage) -> Block | None:
    """Files as one block; None if one has no document, or has damage that must be counted where it is."""
    ends, origin = None, parts[0].origin
    if origin.format == "txt" and not text.ends_at_blank:
        data = [one if one.endswith(b"\n") else one + b"\n" for one in data]
        bounds = [*accumulate(map(len, data), initial=0)]
        joined, own = divide(b"".join(data), text.divider, damage.matched)
        data, ends = [joined[begin:end] for begin, end in pairwise(bounds)], tuple(np.union1d(own, bounds[1:]).tolist())
    else:
        joined = (b"\n" if origin.format == "jsonl" else b"\n\n").join(data)
    if not all(map(has_text, data)):
        return None
    block = Block(joined, origin, ends=ends)
    if origin.format == "txt":
        return block if is_utf8(np.frombuffer(joined, np.uint8)) else None
    found = Damage(strict=True)
    with suppress(AlbertDataError):
        parse_lines(block, text, found)
        return None if found.counts else block
    return None


def read_stream(
    stream: io.BufferedIOBase,
    origin: Origin,
    text: TextConfig,
    damage: Damage,
    block_bytes: BlockBytes = lambda position: BLOCK_BYTES,
) -> Iterator[Block]:
    """Yield all documents of an open file of any text format as blocks."""
    if origin.format == "auto" and isinstance(stream, io.BufferedReader) and find_json(stream.peek()):
        origin = origin._replace(format="json")
    if origin.format == "json":
        stream, origin = as_json_lines(stream, text.text_field), origin._replace(format="jsonl")
    if origin.format in _READERS:
        return make_blocks(_READERS[origin.format](stream, origin, text, damage), origin, text, damage, block_bytes)
    return read_blocks(stream, origin, text, damage, block_bytes)


def read_tasks(
    inputs: list[Input],
    text: TextConfig,
    damage: Damage,
    is_whole: Callable[[ReadTask], bool] = lambda task: False,
) -> Iterator[ReadTask]:
    """All tasks of a corpus: those of plain files first, then the blocks of streams, read as they are asked for.

    text: how inputs are read that are of no mixture. is_whole: whether a compressed file is given to a worker as
    this one task, and not read here.
    """
    yield from plan_tasks(inputs, text)
    for number, item in enumerate(inputs):
        if item.is_splittable and not item.size:  # no task reads it, but it counts as an input without documents
            with damage.inputs.reading(item.path, is_part=item.is_shared):
                continue
        if not item.is_splittable:
            task = _plan_whole(number, item, item.source.text if item.source else text)
            if not item.is_stream and is_whole(task):
                yield task
            else:
                yield from read_stream_tasks(number, item, damage, task.text)


def _plan_whole(number: int, item: Input, text: TextConfig) -> ReadTask:
    identity = repr((item.size, item.language))
    return ReadTask(
        name=f"whole-{number:06d}",
        text=text,
        whole=replace(item, skipped={}),  # a worker needs no list of a million names
        fingerprint=sha256(identity.encode()).hexdigest(),
        source=item.source,
        is_validation=item.is_validation,
    )


def plan_tasks(inputs: list[Input], text: TextConfig = DEFAULT_TEXT) -> list[ReadTask]:
    """Split the plain files of `inputs` into tasks of about equal size, the last ones smaller.

    A task of a mixture has files of one source, because these are read alike; and each task is of one split.
    """
    total = sum(item.size for item in inputs if item.is_splittable)
    most_bytes = max(_MAX_TASK_BYTES, min(-(-total // _FEW_TASKS), _LARGE_TASK_BYTES))
    most_bytes = max(most_bytes, -(-total // _MOST_TASKS))
    tasks: list[ReadTask] = []
    plain = (item for item in inputs if item.is_splittable)
    for (source, _), files in groupby(plain, key=lambda item: (item.source, item.is_validation)):
        tasks += _plan_source(list(files), source.text if source else text, most_bytes)
    return tasks


def _plan_source(files: list[Input], text: TextConfig, most_bytes: int) -> list[ReadTask]:
    source, is_validation = files[0].source, files[0].is_validation
    name = "validation" if is_validation else "files" if source is None else f"source-{source.number:03d}"
    total = sum(item.size for item in files)
    largest = min(total // _TASKS, most_bytes)

    def choose_size(left: int) -> int:
        return max(min(largest, left // _TASKS_LEFT), _MIN_TASK_BYTES)

    cuts = _choose_cuts(files, total, choose_size)
    tasks: list[tuple[FileRange, ...]] = []
    group: list[FileRange] = []
    group_bytes, left = 0, total
    for parts in _split_files(files, cuts, text):
        for part in parts:
            group.append(part)
            group_bytes += part.num_bytes
            # What ends at a cut is large enough, though the ends of documents may make it somewhat smaller.
            if group_bytes >= choose_size(left) or part is not parts[-1]:
                tasks.append(tuple(group))
                group, group_bytes = [], 0
            left -= part.num_bytes
    if group:
        tasks.append(tuple(group))
    return [
        ReadTask(
            name=f"{name}-{number:06d}",
            text=text,
            ranges=ranges,
            fingerprint=_hash_ranges(ranges),
            source=source,
            is_validation=is_validation,
        )
        for number, ranges in enumerate(tasks)
    ]


def _hash_ranges(ranges: Sequence[FileRange]) -> str:
    """SHA-256 of ranges without names, places and times, which the plan of a build has."""
    listed = [(part.origin.format, part.origin.language, part.start, part.end, part.is_part) for part in ranges]
    return sha256(repr(listed).encode()).hexdigest()


def _choose_cuts(files: list[Input], left: int, choose_size: Callable[[int], int]) -> list[list[int]]:
    """For each file the bytes behind which the next end of a document ends a part. left: bytes of all files."""
    found = []
    for item in files:
        cuts, start = list[int](), 0
        # A part has at most 1.5 tasks, so no rest is smaller than half a task.
        while item.size - start > (task_bytes := choose_size(left)) * 3 // 2:
            start, left = start + task_bytes, left - task_bytes
            cuts.append(start)
        left -= item.size - start
        found.append(cuts)
    return found


def _split_files(files: list[Input], cuts: list[list[int]], text: TextConfig) -> Iterator[list[FileRange]]:
    """The ranges of each file between the documents at its cuts.

    Many cuts are looked for at a time, since each takes two answers of a store.
    """
    jobs = [
        (number, [*of_file, files[number].size][i : i + CUTS_OF_JOB + 1])
        for number, of_file in enumerate(cuts)
        for i in range(0, len(of_file), CUTS_OF_JOB)
    ]
    begins = defaultdict[int, set[int]](set)
    with ThreadPoolExecutor(_JOBS_AT_ONCE) as pool:
        found = pool.map(lambda job: find_begins(files[job[0]], job[1], text), jobs)
        for (number, _), some in zip(jobs, found, strict=True):
            begins[number].update(some)
    for number, item in enumerate(files):
        bounds = sorted({0, item.size, *begins.get(number, ())})
        yield [
            FileRange(item.origin, start, end, is_part=item.is_shared or end - start < item.size)
            for start, end in pairwise(bounds)
        ]


def find_begins(item: Input, cuts: Sequence[int], text: TextConfig) -> list[int]:
    """The next byte behind each of ascending cuts but the last at which a document begins, or the file ends.

    A file may have no end of a document for gigabytes. So what begins behind the last cut is not looked for. Empty for
    a file that can't be cut.
    """
    if item.format in TABLES:
        begins = [*item.begins, item.size]
        return [begins[bisect_left(begins, at)] for at in cuts[:-1]]
    if item.format not in SPLIT or (item.format == "txt" and text.document_rule == FILE):
        return []
    divider = text.divider if item.format == "txt" else None
    found = [item.size]
    with item.origin.open_file() as file:
        for at, stop in reversed(list(pairwise(cuts))):
            found.append(find_document(file, item.format, at, stop, found[-1], divider))
    return found[:0:-1]


def find_document(file: BinaryIO, format: str, at: int, stop: int, other: int, divider: bytes | None) -> int:
    """A byte after `at` at which a document begins; `other` if no line that begins at `stop` or before shows one.

    In .jsonl that is the next line, in .txt the line after the next blank line, or what follows a divider; where these
    can overlap, the first of a line. Behind a blank line of over 1 MiB none is found, which only makes a task larger.
    """
    file.seek(at)
    # A line is read in pieces of 1 MiB, so a piece without an end of line does not end the line.
    piece = file.readline(_MIB)
    begin, is_line_begin = at + len(piece), piece.endswith(b"\n")
    while begin <= stop and (piece := file.readline(_MIB)):
        end, is_line_end = begin + len(piece), piece.endswith(b"\n")
        if format == "jsonl" and is_line_begin:
            return begin
        if divider is not None:
            if divider in piece and (is_line_begin or divider[:1] not in divider[1:]):
                return begin + piece.index(divider) + len(divider)
        elif is_line_begin and is_line_end and not has_text(piece):
            return end
        begin, is_line_begin = end, is_line_end
    return other


def _read_whole(
    item: Input,
    text: TextConfig,
    damage: Damage,
    block_bytes: BlockBytes = lambda position: BLOCK_BYTES,
    *,
    is_part: bool,
) -> Iterator[tuple[Block, int]]:
    """The blocks of an input that can't be split, and how many bytes of its file were read for each."""
    with damage.inputs.reading(item.path, item.size, is_part=is_part) as counts:
        stream, count_read = open_input(item, strict=damage.strict)
        num_read = 0
        with stream:
            for block in read_stream(stream, item.origin, text, damage, block_bytes):
                before, num_read = num_read, count_read()
                yield block, num_read - before
        counts.count_unread(num_read, item.size)


def read_stream_tasks(number: int, item: Input, damage: Damage, text: TextConfig) -> Iterator[ReadTask]:
    """Read an input that cannot be split, and yield a task for each block. The first are small: workers start early."""

    def choose_size(position: int) -> int:
        return min(max(position // 64, _MIN_TASK_BYTES), _MAX_STREAM_BLOCK_BYTES)

    for index, (block, num_bytes) in enumerate(_read_whole(item, text, damage, choose_size, is_part=True)):
        yield ReadTask(
            name=f"stream-{number:04d}-{index:06d}",
            text=text,
            block=block,
            block_bytes=num_bytes,
            fingerprint=_hash_block(block),
            source=item.source,
            is_validation=item.is_validation,
        )


def _hash_block(block: Block) -> str:
    """SHA-256 of a block's bytes and, where the block lists them, of what it says of its documents."""
    digest = sha256(block.data)
    if block.ends is not None:
        digest.update(repr(block.ends).encode())
    if block.source_codes is not None:
        digest.update(repr(block.source_codes).encode())
    if any(named := (block.groups, block.origin.group, block.ids, block.origin.id)):
        digest.update(repr(named).encode())
    return digest.hexdigest()


WARMING_BLOCK = Block(b"One word.\nTwo words.\n\nThree ex-\namples.\n", Origin("", "txt"))


def compile_reading() -> None:
    """Run the kernels that read blocks."""
    break_lines(WARMING_BLOCK.data)
    as_json_lines(io.BytesIO(b"[]"), "text").read()
