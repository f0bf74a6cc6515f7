"""Split inputs into tasks of whole documents.

Plain files become ranges of bytes that begin and end between documents; small files share a task. What
cannot be split (.gz, .zst, stdin, other encodings) is read once, here, and handed out as blocks. How the work is split
changes no byte of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from albert_data.ascii import WHITE_SPACE
from albert_data.config import DEFAULT_TEXT, TextConfig
from albert_data.corpus.blocks import Block, read_blocks
from albert_data.corpus.damage import Damage
from albert_data.corpus.inputs import Input, open_input

_MIB = 1 << 20
_TASKS = 128  # rather more for a corpus of any size: few runs to merge, enough to share evenly
_TASKS_LEFT = 32  # at least, as long as tasks can be smaller: the last ones are, so that workers do not wait
_MIN_TASK_BYTES = 4 * _MIB  # a task writes two files
_MAX_TASK_BYTES = 32 * _MIB
_MAX_STREAM_BLOCK_BYTES = 16 * _MIB


@dataclass(frozen=True, kw_only=True)
class Span:
    """Bytes start .. end of a plain file, which begin and end between documents. language: as of the input."""

    path: str
    format: str
    start: int
    end: int
    language: str | None = None


@dataclass(frozen=True, kw_only=True)
class MapTask:
    """Some documents to make examples of: ranges of plain files, or one block of a stream.

    text: how the spans are read; name: unique in a build, the same in every run of it; fingerprint: of the block's
    bytes, or of what the spans are.
    """

    name: str
    text: TextConfig = DEFAULT_TEXT
    spans: tuple[Span, ...] = ()
    block: Block | None = None
    fingerprint: str = ""

    def describe(self) -> str:
        if self.block is not None:
            end = self.block.start + len(self.block.data)
            return f"{self.block.path}, bytes {self.block.start} to {end} (decompressed)"
        first = self.spans[0]
        more = f" and {len(self.spans) - 1} more files" if len(self.spans) > 1 else ""
        return f"{first.path}, bytes {first.start} to {first.end}{more}"

    def read(self, damage: Damage) -> Iterator[Block]:
        """Yield the task's documents in blocks."""
        if self.block is not None:
            yield self.block
        for span in self.spans:
            with Path(span.path).open("rb") as file:
                file.seek(span.start)
                yield from read_blocks(
                    file,
                    path=span.path,
                    format=span.format,
                    damage=damage,
                    start=span.start,
                    length=span.end - span.start,
                    text=self.text,
                    language=span.language,
                )

    @property
    def num_bytes(self) -> int:
        """Bytes on the disk, as far as they are known: those of a stream's block are not."""
        return sum(span.end - span.start for span in self.spans)


def read_tasks(inputs: list[Input], text: TextConfig, damage: Damage) -> Iterator[MapTask]:
    """All tasks of a corpus: those of plain files first, then what is read here."""
    yield from plan_tasks(inputs, text)
    for number, item in enumerate(inputs):
        if not item.is_splittable:
            yield from read_stream_tasks(number, item, damage, text)


def plan_tasks(inputs: list[Input], text: TextConfig = DEFAULT_TEXT) -> list[MapTask]:
    """Split the plain files among `inputs` into tasks of about equal size, the last ones smaller."""
    files = [item for item in inputs if item.is_splittable]
    left = sum(item.size for item in files)
    largest = min(left // _TASKS, _MAX_TASK_BYTES)

    def choose_size() -> int:
        return max(min(largest, left // _TASKS_LEFT), _MIN_TASK_BYTES)

    tasks: list[tuple[Span, ...]] = []
    group: list[Span] = []
    group_bytes = 0
    for item in files:
        for span in _split_file(item, choose_size, text):
            size = span.end - span.start
            group.append(span)
            group_bytes += size
            if group_bytes >= choose_size():
                tasks.append(tuple(group))
                group, group_bytes = [], 0
            left -= size
    if group:
        tasks.append(tuple(group))
    return [
        MapTask(
            name=f"files-{number:06d}",
            text=text,
            spans=spans,
            fingerprint=sha256(repr(spans).encode()).hexdigest(),
        )
        for number, spans in enumerate(tasks)
    ]


def _split_file(item: Input, choose_size: Callable[[], int], text: TextConfig) -> Iterator[Span]:
    is_document = item.format == "txt" and text.documents == "file"
    with Path(item.path).open("rb") as file:
        start = 0
        while start < item.size:
            end, task_bytes = item.size, choose_size()
            if item.size - start > task_bytes * 3 // 2 and not is_document:
                end = _find_document(file, item.format, start + task_bytes, item.size)
            yield Span(path=item.path, format=item.format, start=start, end=end, language=item.language)
            start = end


def _find_document(file: BinaryIO, format: str, at: int, size: int) -> int:
    """Where the first document begins that surely begins after byte `at`; `size` if none does."""
    file.seek(at)
    at_line_begin = file.readline(_MIB).endswith(b"\n")  # the rest of a line, as far as it was read
    while line := file.readline(_MIB):
        ends = line.endswith(b"\n")
        if format == "jsonl" and at_line_begin:
            return file.tell() - len(line)
        if at_line_begin and ends and not line.strip(WHITE_SPACE):
            return file.tell()
        at_line_begin = ends
    return size


def read_stream_tasks(number: int, item: Input, damage: Damage, text: TextConfig = DEFAULT_TEXT) -> Iterator[MapTask]:
    """Read an input that cannot be split as tasks of one block each, small ones first."""
    with open_input(item, strict=damage.strict) as stream:
        blocks = read_blocks(
            stream,
            path=item.path,
            format=item.format,
            damage=damage,
            block_bytes=lambda position: min(max(position // 64, _MIN_TASK_BYTES), _MAX_STREAM_BLOCK_BYTES),
            text=text,
            language=item.language,
        )
        for index, block in enumerate(blocks):
            yield MapTask(
                name=f"stream-{number:04d}-{index:06d}",
                text=text,
                block=block,
                fingerprint=_hash_block(block),
            )


def _hash_block(block: Block) -> str:
    """What tells a block of a stream from another: its bytes, and where documents end in them."""
    ends = b"" if block.ends is None else repr(block.ends).encode()
    return sha256(block.data + ends).hexdigest() if ends else sha256(block.data).hexdigest()
