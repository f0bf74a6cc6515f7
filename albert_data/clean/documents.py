"""Blocks into documents of canonical text, each with its key.

In: a `Block` of any format. Out: `Lines`: the canonical text, which is the same for a document however it is stored.
Damage is repaired, long documents are cut, and each line becomes `" ".join(line.split())` and a line feed; lines that
are empty then are dropped. Before that, in this order: with `unicode` "nfc" text is composed (nfc.py); lines that stand
in many documents are removed (repetition.py); with `unwrap` the lines of hard-wrapped paragraphs are joined, without
page numbers and running heads (unwrapping.py).

A document's key is the XXH3 of its canonical text in NFC, 64 bits, seed 0: so all forms of a text are one document. It
is ten times as fast as SHA-256, which took half of the time of this module. An attacker can write texts that share a
key, as XXH3 is not cryptographic: they get the same split and the same random numbers, and count as forms of one text
where they are not in NFC.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
from xxhash import xxh3_64_intdigest

from albert_data.clean.repetition import drop_lines
from albert_data.clean.unwrapping import unwrap
from albert_data.config import NFC, TextConfig
from albert_data.corpus.blocks import RECORDS, Block
from albert_data.corpus.damage import NAMED, PAGE_FURNITURE, REPEATED_LINES, SHORT, Damage
from albert_data.corpus.formats.json_lines import parse_lines
from albert_data.corpus.layout import count_layout
from albert_data.corpus.lines.line_ends import break_lines, divide
from albert_data.corpus.lines.long_documents import MAX_DOCUMENT, MAX_LINE, cut_document, hash_beginning
from albert_data.corpus.lines.valid_utf8 import is_utf8, repair
from albert_data.corpus.lines.white_space import BLANK_LINE, clear_invisible_lines, find_odd_white, skip_white
from albert_data.data import DocumentColumns, Lines
from albert_data.kernels import (
    U64,
    Pointer,
    copy_items,
    count_ones,
    count_trailing_zeros,
    helper,
    item,
    kernel,
    pointer,
    put,
)
from albert_data.text.ascii import LINE_FEED, SPACE
from albert_data.text.languages import encode_source
from albert_data.text.nfc import compose, compose_lines

Made = TypeVar("Made")
Stays = Callable[[Lines], np.ndarray]
_BATCH_BYTES = 4 << 20
_ALL = U64(0xFFFFFFFFFFFFFFFF)


class _Texts(NamedTuple):
    """Documents of valid UTF-8, with their white space and blank lines.

    ends: int64 [documents], where each ends, after a line feed; empty where blank lines end them
    source_codes: as in DocumentColumns; None where blank lines end documents
    groups: uint64 [documents], 0 where one names none; None likewise
    ids: str [documents], likewise; "" where one has none
    wholes: uint64 [documents], what identifies the one of which each is a part, 0 if it is whole; None if none is cut
    is_cut: whether long documents and lines were cut
    """

    data: bytes
    ends: np.ndarray
    ends_at_blank: bool = False
    source_codes: np.ndarray | None = None
    groups: np.ndarray | None = None
    ids: np.ndarray | None = None
    wholes: np.ndarray | None = None
    is_cut: bool = False


def clean_documents(
    block: Block, config: TextConfig, damage: Damage, repeated: np.ndarray | None = None, stays: Stays | None = None
) -> Lines:
    """Make canonical text of the documents of a block, and count in `damage` what was repaired, skipped or removed.

    repeated: hashes of the lines to remove, see `drop_lines`; stays: which documents are not left out by name: bool
    """
    texts = _read_texts(block, config, damage)
    counts = damage.inputs.of(block.origin.path)
    counts.text_bytes += len(texts.data)
    # These two hold facts of each line, and see the text as it was written.
    steps: list[tuple[str, Callable[[_Texts], tuple[bytes, np.ndarray, list[bytes]] | None]]] = []
    if repeated is not None:
        steps.append((REPEATED_LINES, lambda one: drop_lines(one.data, one.ends, repeated, is_cut=one.is_cut)))
    if config.unwrap:
        steps.append((PAGE_FURNITURE, lambda one: unwrap(one.data, one.ends, one.ends_at_blank)))
    for reason, step in steps:
        texts, (data, ends, removed) = _apply(step, texts, block, damage, keep_layout=config.unwrap)
        damage.remove(reason, removed)
        texts = texts._replace(data=data, ends=ends)
    texts, found = _apply(_find_lines, texts, block, damage, keep_layout=False)
    utf8, line_offsets, document_offsets, numbers = found
    own = keys = _hash_documents(utf8, line_offsets[document_offsets])
    source_codes = None if texts.source_codes is None else texts.source_codes[numbers]
    if source_codes is None and (block.origin.language or config.language_field):
        source_codes = np.full(len(keys), encode_source(block.origin.language or config.language), np.uint32)
    columns = DocumentColumns(keys, source_codes)
    lines = Lines(utf8=utf8, line_offsets=line_offsets, document_offsets=document_offsets, columns=columns)
    if (composed := compose_lines(lines)) is not lines:
        keys = _hash_documents(composed.utf8, composed.line_offsets[document_offsets])
        damage.layout["uncomposed_documents"] += int(np.count_nonzero(own != keys))
    count_layout(utf8, line_offsets, document_offsets, damage.layout)
    counts.num_documents += len(keys)
    lines = replace(
        lines,
        columns=columns._replace(
            keys=keys,
            groups=None if config.group_field is None else _fill(texts.groups, numbers, keys, block.origin.group),
            forms=None if composed is lines else np.where(own == keys, np.uint64(0), own),
        ),
        ids=None if config.id_field is None else _find_ids(texts, numbers, block, config.id_field, damage),
        wholes=_fill(texts.wholes, numbers, keys, block.whole) if block.whole or texts.wholes is not None else None,
    )
    lines = lines if stays is None else leave_out(lines, stays(lines), NAMED, damage)
    return lines if config.min_chars is None else leave_out(lines, _has_chars(lines, config.min_chars), SHORT, damage)


def leave_out(lines: Lines, stays: np.ndarray, reason: str, damage: Damage) -> Lines:
    """The documents that stay; the others are counted, but not by input. stays: bool, of each."""
    if stays.all():
        return lines
    damage.counts[reason] += int(np.count_nonzero(~stays))
    return lines.take(stays)


def _has_chars(lines: Lines, least: int) -> np.ndarray:
    """Which documents have so many characters before the last line feed, or are part of one that was cut: bool."""
    num_before = np.append(0, np.cumsum((lines.utf8 & 0xC0) != 0x80))[lines.line_offsets[lines.document_offsets]]
    is_part = False if lines.wholes is None else lines.wholes != lines.document_keys
    has_chars: np.ndarray = (np.diff(num_before) > least) | is_part
    return has_chars


def _apply(
    step: Callable[[_Texts], Made | None], texts: _Texts, block: Block, damage: Damage, *, keep_layout: bool
) -> tuple[_Texts, Made]:
    """What a step makes of texts, and these texts: cut, if a line or document is so long that it makes None of them."""
    if (made := step(texts)) is None:
        texts = _cut(texts, block, damage, keep_layout=keep_layout)
        made = step(texts)
        assert made is not None, "a cut document fits"
    return texts, made


def _fill(column: np.ndarray | None, numbers: np.ndarray, keys: np.ndarray, of_all: int) -> np.ndarray:
    """A column of the texts as one of documents, with their keys in place of 0. numbers: which of the texts each is."""
    values = np.full(len(keys), of_all, np.uint64) if column is None else column[numbers]
    return np.where(values == 0, keys, values)


def _find_ids(texts: _Texts, numbers: np.ndarray, block: Block, name: str, damage: Damage) -> np.ndarray:
    """The ids of documents; those without one are counted. numbers: which of the texts each is; name: of the field."""
    ids: np.ndarray = np.full(len(numbers), block.origin.id, object) if texts.ids is None else texts.ids[numbers]
    damage.counts += Counter(missing_id=int(np.count_nonzero(ids == "")))
    damage.matched |= {name} if (ids != "").any() else set()
    return ids


def batch_documents(lines: Lines) -> Iterator[Lines]:
    """Yield batches of whole documents that are small enough to tokenise at once: at most 4 MiB, or one document.

    Most blocks are one batch. A JSON line of 100 MB is one block, and is cut into many documents: tokenising it at once
    took 5.2 GB.
    """
    document_begins = lines.line_offsets[lines.document_offsets]
    begin, num_documents = 0, len(lines.document_keys)
    while begin < num_documents:
        fit = int(np.searchsorted(document_begins, document_begins[begin] + _BATCH_BYTES, side="right")) - 1
        end = max(begin + 1, fit)
        document_offsets = lines.document_offsets[begin : end + 1]
        line_offsets = lines.line_offsets[document_offsets[0] : document_offsets[-1] + 1]
        yield Lines(
            utf8=lines.utf8[line_offsets[0] : line_offsets[-1]],
            line_offsets=line_offsets - line_offsets[0],
            document_offsets=document_offsets - document_offsets[0],
            columns=lines.columns.take(slice(begin, end)),
            ids=None if lines.ids is None else lines.ids[begin:end],
        )
        begin = end


def _read_texts(block: Block, config: TextConfig, damage: Damage) -> _Texts:
    is_text = block.origin.format in ("txt", RECORDS)
    texts = _repair(block, config, damage) if is_text else _join(*parse_lines(block, config, damage))
    data = texts.data if block.origin.format == "txt" else break_lines(texts.data)
    texts = texts._replace(data=clear_invisible_lines(data))
    return _compose(texts) if config.unicode == NFC else texts


def _compose(texts: _Texts) -> _Texts:
    """The same documents in NFC. It has the same line feeds, by which the ends are found again."""
    raw = np.frombuffer(texts.data, np.uint8)
    if (utf8 := compose(raw)) is raw:
        return texts
    old, new = (np.concatenate([[0], np.flatnonzero(data == LINE_FEED) + 1, [len(data)]]) for data in (raw, utf8))
    return texts._replace(data=utf8.tobytes(), ends=new[np.searchsorted(old, texts.ends)])


def _repair(block: Block, config: TextConfig, damage: Damage) -> _Texts:
    """A text block as valid UTF-8; each document with invalid bytes counts once."""
    source_codes = None if block.source_codes is None else np.array(block.source_codes, np.uint32)
    groups = None if block.groups is None else np.array(block.groups, np.uint64)
    ids = None if block.ids is None else np.array(block.ids, object)
    data, ends, ends_at_blank = block.data, np.array(block.ends or (), np.int64), block.ends is None
    if ends_at_blank and not config.ends_at_blank:
        (data, ends), ends_at_blank = divide(data, config.divider, damage.matched), False
    texts = _Texts(data, ends, ends_at_blank, source_codes, groups, ids)
    if is_utf8(np.frombuffer(data, np.uint8)):
        return texts
    cuts = [*(blank.end() for blank in BLANK_LINE.finditer(data)), len(data)] if ends_at_blank else ends.tolist()
    documents = [
        b"".join(repair([data[begin:end]], block.origin.path, block.locate(begin), damage))
        for begin, end in pairwise([0, *cuts])
    ]
    ends = texts.ends if texts.ends_at_blank else np.cumsum([len(document) for document in documents], dtype=np.int64)
    return texts._replace(data=b"".join(documents), ends=ends)


def _join(
    documents: list[bytes], codes: np.ndarray | None, groups: np.ndarray | None, ids: np.ndarray | None
) -> _Texts:
    """Concatenate documents, a line feed after each."""
    ends = np.cumsum([len(document) + 1 for document in documents], dtype=np.int64)
    return _Texts(b"\n".join([*documents, b""]), ends, False, codes, groups, ids)


def _cut(texts: _Texts, block: Block, damage: Damage, *, keep_layout: bool) -> _Texts:
    if texts.ends_at_blank:
        documents = BLANK_LINE.split(texts.data)
    else:
        documents = [texts.data[begin:end] for begin, end in pairwise([0, *texts.ends.tolist()])]
    parts, counts, wholes = [], [], []
    for text in documents:
        slices = (text[at : at + MAX_LINE] for at in range(0, len(text), MAX_LINE))
        cut = [b"\n".join(lines) for lines in cut_document(slices, keep_layout=keep_layout)]
        for _ in cut[1:]:
            damage.add("long_document_cut", block.origin.path, block.locate(0))
        parts += cut
        counts.append(len(cut))
        wholes += [hash_beginning(cut[0])] * len(cut) if cut[1:] else [0] * len(cut)
    named = (texts.source_codes, texts.groups, texts.ids)
    columns = (None if column is None else np.repeat(column, counts) for column in named)
    return _join(parts, *columns)._replace(wholes=np.array(wholes, np.uint64) if any(wholes) else None, is_cut=True)


def _find_lines(texts: _Texts) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """Canonical text, line offsets, document offsets, and which of the texts the documents are.

    None if a line or document is so long that it must be cut.
    """
    # A document of over twice the limit goes to the slower `_cut` without being stripped here first: if it were mostly
    # line feeds, its offsets would take many times its bytes. Where stripping makes it short enough, `_cut` returns it
    # whole.
    if np.diff(texts.ends, prepend=0).max(initial=0) > 2 * MAX_DOCUMENT:
        return None
    raw = np.frombuffer(texts.data, np.uint8)
    utf8, line_offsets, document_offsets, numbers, longest_line = strip_lines(raw, texts.ends, texts.ends_at_blank)
    longest_document = int(np.diff(line_offsets[document_offsets]).max(initial=0))
    if longest_line > MAX_LINE or longest_document > MAX_DOCUMENT:
        return None
    return utf8, line_offsets, document_offsets, numbers


@helper
def mark_odd_white(raw: Pointer, size: int, marks: np.ndarray) -> int:
    """Write what `find_odd_white` finds in each 64 bytes, and count it. All of the last bytes are marked."""
    count, carry = 0, U64(0)
    for i in range(len(marks)):
        marked = _ALL
        if 64 * i + 66 <= size:
            marked, carry = find_odd_white(raw, 64 * i, carry)
        marks[i] = marked
        count += count_ones(marked)
    return count


@helper
def pass_ends(ends: np.ndarray, number: int, at: int) -> int:
    """The number of the document at a position, which is document `number` or a later one."""
    while number < len(ends) and ends[number] <= at:
        number += 1
    return number


@kernel
def strip_lines(
    raw: np.ndarray, ends: np.ndarray, ends_at_blank: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
    """Copy text with each run of white space as one space, or as one line feed if it holds any.

    Returns the text, line offsets, document offsets, the number of each document in `ends`, and the bytes of the
    longest line. ends_at_blank: whether blank lines end documents; ends: where they end otherwise.

    Most runs are single spaces, which are not looked at, or single line feeds, so text is copied in long stretches:
    `uncopied` is where the present one begins. It will be copied `shift` bytes to the left.
    """
    out, marks, size = np.empty(len(raw) + 1, np.uint8), np.empty(len(raw) // 64 + 1, np.uint64), len(raw)
    source, target = pointer(raw), pointer(out)
    capacity = mark_odd_white(source, size, marks) + 2  # line feeds are marked
    line_offsets, document_offsets = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    numbers = np.empty(len(ends) + 1, np.int64)
    line_offsets[0], document_offsets[0] = 0, 0
    num_lines, num_documents, longest_line, line_begin, filled = 0, 0, 0, 0, 0
    end, _ = skip_white(source, 0, size)  # of the last run
    uncopied, shift, number = end, end, pass_ends(ends, 0, end)
    block, found = 0, marks[0]  # the marks that are left of 64 bytes
    while end < size:
        while found == 0 and block + 1 < len(marks):
            block += 1
            found = marks[block]
        at = min(64 * block + count_trailing_zeros(found), size)
        found &= found - U64(1)  # clears the lowest bit
        if at < end:  # in the last run, which is not read again
            continue
        after, num_feeds = skip_white(source, at, size)
        if after == at < size:  # no white space
            continue
        begin = at - 1 if at > end and item(source, at - 1) == SPACE else at
        end, filled = after, begin - shift + 1
        ends_line = num_feeds > 0 or end == size
        if num_feeds != 1 or end - begin > 1:
            copy_items(target, uncopied - shift, source, uncopied, begin - uncopied)
            put(target, filled - 1, LINE_FEED if ends_line else SPACE)
            uncopied, shift = end, end - filled
        if ends_line:
            longest_line = max(longest_line, filled - 1 - line_begin)
            num_lines += 1
            line_offsets[num_lines] = line_begin = filled
            last, number = number, pass_ends(ends, number, end)
            if end == size or (num_feeds > 1 if ends_at_blank else number > last):
                numbers[min(num_documents, len(ends))] = last
                num_documents += 1
                document_offsets[num_documents] = num_lines
    copy_items(target, uncopied - shift, source, uncopied, size - uncopied)
    line_offsets, document_offsets = line_offsets[: num_lines + 1], document_offsets[: num_documents + 1]
    return out[:filled], line_offsets, document_offsets, numbers[:num_documents], longest_line


def _hash_documents(utf8: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The key of each document: uint64."""
    view = utf8.data
    return np.array([xxh3_64_intdigest(view[begin:end]) for begin, end in pairwise(offsets.tolist())], np.uint64)
