"""Bytes of every odd kind, and how tests read them: in blocks of any size, with what is long made short."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
import references
from hypothesis import strategies as st

from albert_data.clean import documents, repetition, unwrapping
from albert_data.clean.documents import clean_documents
from albert_data.config import TextConfig
from albert_data.corpus import blocks
from albert_data.corpus.blocks import Block, Origin
from albert_data.corpus.damage import Damage
from albert_data.corpus.inputs import Input
from albert_data.corpus.lines import long_documents
from albert_data.corpus.tasks import read_stream, read_tasks
from albert_data.text.languages import decode_language

MAX_LINE, MAX_DOCUMENT = 16, 48

# Pieces that put every rule's corner beside every other's.
PIECES = [
    *(b"\n", b"\r\n", b"\r", b"\n\n", b"\n \t\n", b" ", b"\t", b"\x0b", b"\x0c", b"\x00", b"\x1c"),
    *(b"a", b"word", b"a longer run of words ", b"x" * 20, b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\xc2\x85"),
    *(character.encode() for character in ("é", "中文", "。", "😀")),
    *(character.encode() for character in ("\u3000", "\u00a0", "\u2009", "\u1680", "\u205f", "\u3001", "\n\u3000\n")),
    *(b"\xff", b"\xe4", b"\xe3", b"\xe3\x80", b"\xe4\xb8", b"\xf0\x9f", b"\xe2", b"\xe2\x80", b"\xc2"),
    *(b"\xe2\x80\xa9", b"\xe2\x80\x9d"),
]
any_bytes = st.one_of(st.lists(st.sampled_from(PIECES), max_size=60).map(b"".join), st.binary(max_size=60))
block_sizes = st.integers(2, 80)  # a size of one byte never grows, and nobody asks for it

JSON_LINES = [
    *(b'{"text": "a"}', b'{"text": "two\\n\\nparts"}', b'{"text": " \\r\\n "}', b'{"text": ""}', b'{"text": 3}'),
    *(b'{"text": "\\ud800 x"}', b'{"text": "\\ud83d\\ude00"}', b'{"text": "a\\u0000b"}', b'{"text": NaN}'),
    *(b'{"text": "a\\rb\\r\\nc"}', b'{"text": "a\xe2\x80\xa8\\u2028b\xc2\x85"}', b'{"text": "\\u2028 \\u0085"}'),
    *(b'\xef\xbb\xbf{"text": "marked"}', b'{"text": "a", "n": %s}' % (b"9" * 5000)),
    *(b'{"body": "b"}', b"[1]", b"null", b"{", b"", b" \t", b"\r", b"\xc2\xa0", b'{"text": "\xff"}', b"\xff"),
    *(b'{"text": "%s"}' % text for text in (b"long words " * 9, b"y" * 70, b'a", "text": "b')),
]
any_json_lines = st.builds(
    lambda lines, end, last: end.join(lines) + last,
    st.lists(st.sampled_from(JSON_LINES), max_size=12),
    st.sampled_from([b"\n", b"\r\n"]),
    st.sampled_from([b"", b"\n"]),
)


@contextmanager
def small_sizes(*, max_line: int = MAX_LINE, max_document: int = MAX_DOCUMENT, **others: int) -> Iterator[None]:
    """Shrink what counts as long, so that examples of a few bytes reach every rule."""
    sizes = {"BLOCK_BYTES": 32, "GIANT_BYTES": 128, "_CHUNK": 16} | others
    with pytest.MonkeyPatch.context() as patch:
        for name, size in sizes.items():
            patch.setattr(blocks, name, size)
        for module in (documents, long_documents, repetition, unwrapping):
            patch.setattr(module, "MAX_LINE", max_line)
            patch.setattr(module, "MAX_DOCUMENT", max_document)
        yield


def read(
    data: bytes | Any,
    format: str = "txt",
    *,
    block_bytes: int | None = None,
    strict: bool = False,
    config: TextConfig | None = None,
) -> tuple[list[bytes], Counter[str]]:
    """The documents of a stream, and what was counted."""
    damage, config = Damage(strict=strict), config or TextConfig(strict=strict)
    stream = io.BytesIO(data) if isinstance(data, bytes) else data
    options: Any = () if block_bytes is None else (lambda position: block_bytes,)
    found = clean(read_stream(stream, Origin("p", format), config, damage, *options), config, damage)
    return [document for document, _ in found], damage.counts


def clean(blocks: Iterable[Block], config: TextConfig, damage: Damage) -> Iterator[tuple[bytes, str | None]]:
    """Each document of blocks, and its language if it has one."""
    for block in blocks:
        lines = clean_documents(block, config, damage)
        text = lines.utf8.tobytes()
        parts = [text[begin:end] for begin, end in pairwise(lines.line_offsets[lines.document_offsets].tolist())]
        assert lines.document_keys.tolist() == [references.document_key(part) for part in parts]
        assert text.count(b"\n") == len(lines.line_offsets) - 1
        no_codes = [None] * len(parts)
        source_codes = lines.columns.source_codes
        codes = no_codes if source_codes is None else map(decode_language, source_codes.tolist())
        yield from zip(parts, codes, strict=True)


def read_inputs(inputs: list[Input], config: TextConfig, damage: Damage) -> list[tuple[bytes, str | None]]:
    """The documents of inputs and their languages, read task by task."""
    return [found for task in read_tasks(inputs, config, damage) for found in clean(task.read(damage), config, damage)]


def cut_all(texts: list[bytes]) -> list[bytes]:
    return [part for text in texts for part in references.cut_document(text, MAX_LINE, MAX_DOCUMENT)]


def as_jsonl(texts: list[str], *, ensure_ascii: bool = False) -> bytes:
    return b"".join(json.dumps({"text": text}, ensure_ascii=ensure_ascii).encode() + b"\n" for text in texts)
