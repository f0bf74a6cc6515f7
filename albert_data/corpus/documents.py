"""Blocks into documents of canonical text, each with its key.

In: a `Block` of any format. Out: `Lines`: the canonical text, which is the same for a document however it is stored.
Damage is repaired, lines are stripped of white space at both ends, blank lines dropped, long documents cut, and each
line ends with a line feed. Before that, separators of words are removed (separators.py), and with `unwrap` the lines of
hard-wrapped paragraphs are joined (unwrapping.py).

A document's key is the XXH3 of its canonical text, 64 bits, seed 0. It is ten times as fast as SHA-256, which took half
of the time of this module. An attacker can write texts that share a key, as XXH3 is not cryptographic: they get the
same split and the same random numbers, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from xxhash import xxh3_64_intdigest

from albert_data.ascii import LINE_FEED, is_white
from albert_data.config import TextConfig
from albert_data.corpus.blocks import BLANK_LINE, RECORDS, Block
from albert_data.corpus.damage import Damage
from albert_data.corpus.json_lines import parse_lines
from albert_data.corpus.layout import count_layout
from albert_data.corpus.line_ends import break_lines
from albert_data.corpus.long_documents import MAX_DOCUMENT, MAX_LINE, cut_document
from albert_data.corpus.separators import remove_separators
from albert_data.corpus.unwrapping import unwrap
from albert_data.corpus.valid_utf8 import is_utf8, repair
from albert_data.kernels import (
    U64,
    Pointer,
    copy_items,
    count_ones,
    count_trailing_zeros,
    find_bytes,
    helper,
    item,
    kernel,
    pointer,
    put,
)
from albert_data.languages import pack_language


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Documents of canonical text.

    utf8: uint8, every line followed by a line feed; line_offsets: int64, num_lines + 1, in bytes;
    document_offsets: int64, num_documents + 1, in lines; document_keys: uint64; source_codes: uint32, of each document
    its language as `pack_language` packs it, None where the build has one language. In a mixture, the number of the
    source takes its place after tokenising (pipeline/document_lists.py).
    """

    utf8: np.ndarray
    line_offsets: np.ndarray
    document_offsets: np.ndarray
    document_keys: np.ndarray
    source_codes: np.ndarray | None = None


class _Texts(NamedTuple):
    """Documents of valid UTF-8, not yet stripped of white space and blank lines.

    ends: int64, where each ends, after a line feed; None where blank lines end them. source_codes: as in Lines; None if
    `ends` is None.
    """

    data: bytes
    ends: np.ndarray | None
    source_codes: np.ndarray | None = None


def read_documents(block: Block, config: TextConfig, damage: Damage) -> Lines:
    """Read the documents of a block, and count in `damage` what was repaired or skipped."""
    texts = _read_texts(block, config, damage)
    if config.word_separator is not None:
        texts = _remove_separators(texts, config.word_separator)
    if config.unwrap:
        texts = _unwrap(texts, block, damage)
    found = _find_lines(texts)
    if found is None:
        texts = _cut(texts, block, damage, keep_layout=False)
        found = _find_lines(texts)
        assert found is not None, "a cut document fits"
    utf8, line_offsets, document_offsets = found
    keys = _hash_documents(utf8, line_offsets[document_offsets])
    source_codes = texts.source_codes
    if source_codes is None and (block.language or config.language_field):
        source_codes = np.full(len(keys), pack_language(block.language or config.language), np.uint32)
    count_layout(utf8, line_offsets, document_offsets, damage.layout)
    # parse_lines drops the lines without text, so no language is left without a document.
    assert source_codes is None or len(source_codes) == len(keys), "each document has text"
    return Lines(
        utf8=utf8,
        line_offsets=line_offsets,
        document_offsets=document_offsets,
        document_keys=keys,
        source_codes=source_codes,
    )


def _read_texts(block: Block, config: TextConfig, damage: Damage) -> _Texts:
    if block.format == "txt":
        return _repair(block, damage)
    if block.format == RECORDS:
        texts = _repair(block, damage)
        source_codes = None if block.source_codes is None else np.array(block.source_codes, np.uint32)
        return texts._replace(data=break_lines(texts.data), source_codes=source_codes)
    documents, source_codes = parse_lines(block, config, damage)
    joined = _join(documents, source_codes)
    return joined._replace(data=break_lines(joined.data))


def _repair(block: Block, damage: Damage) -> _Texts:
    """A text block as valid UTF-8; each document with invalid bytes counts once."""
    ends = None if block.ends is None else np.array(block.ends, np.int64)
    if is_utf8(np.frombuffer(block.data, np.uint8)):
        return _Texts(block.data, ends)
    cuts = block.ends or [*(separator.end() for separator in BLANK_LINE.finditer(block.data)), len(block.data)]
    documents = [
        repair(block.data[begin:end], block.path, block.find_place(begin), damage).encode()
        for begin, end in pairwise([0, *cuts])
    ]
    if ends is not None:
        ends = np.cumsum([len(document) for document in documents], dtype=np.int64)
    return _Texts(b"".join(documents), ends)


def _remove_separators(texts: _Texts, separator: str) -> _Texts:
    """The texts as if they had never been divided into words. A document of nothing else has no language any more."""
    data, ends = remove_separators(texts.data, np.zeros(0, np.int64) if texts.ends is None else texts.ends, separator)
    if texts.ends is None:
        return texts._replace(data=data)
    source_codes = texts.source_codes
    if source_codes is not None:
        has_text = [bool(data[begin:end].strip()) for begin, end in pairwise([0, *ends.tolist()])]
        ends, source_codes = ends[has_text], source_codes[has_text]
    return _Texts(data, ends, source_codes)


def _join(documents: list[bytes], source_codes: np.ndarray | None = None) -> _Texts:
    """Concatenate documents, a line feed after each."""
    data = b"\n".join([*documents, b""])
    return _Texts(data, np.cumsum([len(document) + 1 for document in documents], dtype=np.int64), source_codes)


def _split(texts: _Texts) -> Iterator[bytes]:
    if texts.ends is None:
        yield from BLANK_LINE.split(texts.data)
    else:
        yield from (texts.data[begin:end] for begin, end in pairwise([0, *texts.ends.tolist()]))


def _unwrap(texts: _Texts, block: Block, damage: Damage) -> _Texts:
    """Join wrapped lines. A long document is cut first, because unwrapping holds the facts of all its lines."""
    joined = unwrap(texts.data, texts.ends)
    if joined is None:
        texts = _cut(texts, block, damage, keep_layout=True)
        joined = unwrap(texts.data, texts.ends)
        assert joined is not None, "a cut document fits"
    return _Texts(*joined, texts.source_codes)


def _cut(texts: _Texts, block: Block, damage: Damage, *, keep_layout: bool) -> _Texts:
    parts, counts = [], []
    for text in _split(texts):
        slices = (text[at : at + MAX_LINE] for at in range(0, len(text), MAX_LINE))
        cut = [b"\n".join(lines) for lines in cut_document(slices, keep_layout=keep_layout)]
        for _ in cut[1:]:
            damage.add("long_document_cut", block.path, block.find_place(0))
        parts += cut
        counts.append(len(cut))
    return _join(parts, None if texts.source_codes is None else np.repeat(texts.source_codes, counts))


def _find_lines(texts: _Texts) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Canonical text, line offsets, document offsets; None if a line or document is so long that it must be cut."""
    ends = texts.ends
    # A document of over twice the limit goes to the slower `_cut` without being stripped here first: if it were mostly
    # line feeds, its offsets would take many times its bytes. Where stripping makes it short enough, `_cut` returns it
    # whole.
    if ends is not None and np.diff(ends, prepend=0).max(initial=0) > 2 * MAX_DOCUMENT:
        return None
    no_ends = np.zeros(0, np.int64)
    utf8, line_offsets, document_offsets, longest_line = strip_lines(
        np.frombuffer(texts.data, np.uint8), no_ends if ends is None else ends, ends is None
    )
    longest_document = int(np.diff(line_offsets[document_offsets]).max(initial=0))
    if longest_line > MAX_LINE or longest_document > MAX_DOCUMENT:
        return None
    return utf8, line_offsets, document_offsets


@helper
def find_feeds(raw: Pointer, at: int, end: int) -> U64:
    """The line feeds among the next 64 bytes, or the fewer that are left of the text, as bits."""
    if at + 64 <= end:
        return find_bytes(raw, at, np.uint8(0), np.uint8(LINE_FEED), np.uint8(1))
    found = U64(0)
    for i in range(at, end):
        if item(raw, i) == LINE_FEED:
            found |= U64(1) << U64(i - at)
    return found


@helper
def count_feeds(raw: Pointer, size: int) -> int:
    count = 0
    for at in range(0, size, 64):
        count += count_ones(find_feeds(raw, at, size))
    return count


@helper
def strip(raw: Pointer, begin: int, end: int) -> tuple[int, int]:
    """Where a line begins and ends without the white space around it."""
    while begin < end and is_white(item(raw, begin)):
        begin += 1
    while end > begin and is_white(item(raw, end - 1)):
        end -= 1
    return begin, end


@kernel
def strip_lines(
    raw: np.ndarray, ends: np.ndarray, ends_at_blank: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Copy the lines without the white space around them, and drop blank ones.

    Returns the text, line offsets, document offsets, and the bytes of the longest line. ends_at_blank: whether blank
    lines end documents; ends: where they end otherwise. Most lines have nothing to strip, so text is copied in long
    stretches: `uncopied` is where the present one begins, and all from there to `start` is kept as it is.
    """
    out = np.empty(len(raw) + 1, np.uint8)
    source, target = pointer(raw), pointer(out)
    capacity = count_feeds(source, len(raw)) + 2
    line_offsets, document_offsets = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    line_offsets[0], document_offsets[0] = 0, 0
    num_lines, num_documents, filled, longest_line, start, uncopied = 0, 0, 0, 0, 0, 0
    block, feeds = -64, U64(0)  # the line feeds that are left of the 64 bytes from `block` on
    while start < len(raw):
        while feeds == 0 and block + 64 < len(raw):
            block += 64
            feeds = find_feeds(source, block, len(raw))
        stop = block + count_trailing_zeros(feeds) if feeds != 0 else len(raw)
        feeds &= feeds - U64(1)  # clears the lowest bit
        begin, end = strip(source, start, stop)
        if begin > start or end < stop or begin == end or stop == len(raw):
            # The stretch is counted in `filled`, but not yet copied: it goes before the position `filled`.
            copy_items(target, filled - (start - uncopied), source, uncopied, start - uncopied)
            copy_items(target, filled, source, begin, end - begin)
            put(target, filled + end - begin, LINE_FEED)
            uncopied = stop + 1
        if end > begin:
            longest_line = max(longest_line, end - begin)
            filled += end - begin + 1
            num_lines += 1
            line_offsets[num_lines] = filled
        is_end = begin == end if ends_at_blank else num_documents < len(ends) and stop + 1 == ends[num_documents]
        start = stop + 1
        if is_end and num_lines > document_offsets[num_documents]:
            num_documents += 1
            document_offsets[num_documents] = num_lines
    if num_lines > document_offsets[num_documents]:  # the last one, which ends with the text
        num_documents += 1
        document_offsets[num_documents] = num_lines
    if uncopied < len(raw):
        copy_items(target, filled - (len(raw) - uncopied), source, uncopied, len(raw) - uncopied)
    return out[:filled], line_offsets[: num_lines + 1], document_offsets[: num_documents + 1], longest_line


def _hash_documents(utf8: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The key of each document: uint64."""
    view = utf8.data
    return np.array([xxh3_64_intdigest(view[begin:end]) for begin, end in pairwise(offsets.tolist())], np.uint64)
