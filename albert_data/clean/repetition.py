"""Remove lines that stand in many documents: footers, licences, templates.

A line is known by a hash of its words, in which each run of ASCII digits counts as one digit and each run of white
space as one space. So it is the same before and after white space is tidied. survey/repeated_lines.py counts lines.
"""

from __future__ import annotations

import numpy as np

from albert_data.corpus.lines.long_documents import MAX_DOCUMENT, MAX_LINE
from albert_data.corpus.lines.white_space import find_feed, skip_white
from albert_data.kernels import I64, U64, Pointer, copy_items, helper, item, kernel, pointer, put
from albert_data.kernels.draws import mix
from albert_data.kernels.fnv import FNV_BASIS, add_byte
from albert_data.text.ascii import LINE_FEED, SPACE, is_digit

_ZERO = ord("0")


def drop_lines(
    data: bytes, ends: np.ndarray, repeated: np.ndarray, *, is_cut: bool = False
) -> tuple[bytes, np.ndarray, list[bytes]] | None:
    """Text without the lines whose hashes are in `repeated`, where its documents end, and these lines.

    None if a line or document is so long that it may be cut. It must be cut before, as it is where a file is read that
    is too long to hold. is_cut: it was, so only the indentation of a line may be beyond MAX_LINE.
    ends: int64, where documents end, each after a line feed; empty if blank lines end them. A document of which no line
    is left becomes a blank line.
    repeated: uint64, ascending, not empty
    """
    raw = np.frombuffer(data, np.uint8)
    offsets, hashes = hash_lines(raw)
    bounds = ends if len(ends) else offsets[1:][hashes == 0]
    line_lens = np.diff(offsets) - (raw[offsets[1:] - 1] == LINE_FEED)
    document_lens = np.diff(bounds, prepend=0, append=len(raw) + 1)
    if not is_cut and (line_lens.max(initial=0) > MAX_LINE or document_lens.max() > MAX_DOCUMENT):
        return None
    places = np.minimum(np.searchsorted(repeated, hashes), len(repeated) - 1)
    is_dropped = (repeated[places] == hashes) & (hashes > 0)
    dropped = [data[offsets[line] : offsets[line + 1]] for line in np.flatnonzero(is_dropped).tolist()]
    if not dropped:
        return data, ends, dropped
    left, new_ends = copy_lines(raw, offsets, is_dropped, ends)
    return left.tobytes(), new_ends, dropped


@helper
def hash_line(raw: Pointer, at: int, end: int) -> U64:
    """The hash of a line, 0 if it is blank."""
    at, _ = skip_white(raw, at, end)
    if at == end:
        return U64(0)
    hashed, in_number = FNV_BASIS, False
    while at < end:
        byte = I64(item(raw, at))
        if byte <= SPACE or byte >= 0xC2:
            after, _ = skip_white(raw, at, end)
            if after > at:
                at, in_number = after, False
                hashed = add_byte(hashed, SPACE) if at < end else hashed
                continue
        if not is_digit(byte):
            hashed, in_number = add_byte(hashed, byte), False
        elif not in_number:
            hashed, in_number = add_byte(hashed, _ZERO), True
        at += 1
    return mix(hashed) | U64(1)


@kernel
def hash_lines(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The offsets of all lines, int64 [lines + 1], and their hashes, uint64 [lines]. A line feed is of its line."""
    source, num_lines = pointer(raw), 0
    for at in range(len(raw)):
        num_lines += item(source, at) == LINE_FEED
    num_lines += len(raw) > 0 and item(source, len(raw) - 1) != LINE_FEED
    offsets, hashes = np.zeros(num_lines + 1, np.int64), np.empty(num_lines, np.uint64)
    for line in range(num_lines):
        end = find_feed(source, offsets[line], len(raw))
        hashes[line] = hash_line(source, offsets[line], end)
        offsets[line + 1] = min(end + 1, len(raw))
    return offsets, hashes


@kernel
def copy_lines(
    raw: np.ndarray, offsets: np.ndarray, is_dropped: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The lines that are not dropped, and where documents end in them."""
    out, new_ends = np.empty(len(raw) + len(ends), np.uint8), np.empty_like(ends)
    source, target = pointer(raw), pointer(out)
    filled, document, begun = 0, 0, 0
    for line in range(len(is_dropped)):
        if not is_dropped[line]:
            size = offsets[line + 1] - offsets[line]
            copy_items(target, filled, source, offsets[line], size)
            filled += size
        while document < len(ends) and ends[document] <= offsets[line + 1]:
            if filled == begun:
                put(target, filled, LINE_FEED)
                filled += 1
            new_ends[document] = begun = filled
            document += 1
    return out[:filled], new_ends
