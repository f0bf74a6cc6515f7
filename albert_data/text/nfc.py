"""Text in NFC, the composed form of Unicode: "é" as one character, not as "e" and an accent.

In: valid UTF-8. Out: the same text in NFC, by UAX #15, whatever tables the running Python has. Several texts that look
alike have one NFC, so it decides what is one document.

Most characters are stable: they stay as they are, and nothing before them joins them. So only pieces are composed that
hold others, each from a stable character up to the next one: decomposed, its marks put in order, composed.

The table is made of composition.tsv, which scripts/make_unicode_table.py writes: a code point, its combining class, and
what it decomposes to, with "!" where that is never composed again. It is one array, int64, so that kernels pass one
pointer:

    0 ...         of each code point: kind | place << 16. The kind is the combining class, + _UNSTABLE if NFC may change
                  the character or join it to what stands before it. The place is where its parts are, or 0
    _NUM_CODES    how many pairs there are; then these pairs, ascending, first << 32 | second; then what each makes
    places        how many parts; then these, which decompose no further
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from albert_data.data import Lines
from albert_data.kernels import (
    I64,
    U64,
    Pointer,
    copy_items,
    count_trailing_zeros,
    find_bytes,
    helper,
    item,
    kernel,
    pointer,
    put,
)
from albert_data.text.ascii import LINE_FEED
from albert_data.text.utf8 import read_character, step_back, write_character

_PATH = Path(__file__).with_name("composition.tsv")
_NUM_CODES, _UNSTABLE = 0x110000, 256
_MOST_GROWTH = 3  # U+1D160 has 4 bytes, and 12 in NFC
# First bytes of characters with a kind, as find_bytes takes them: those of Cyrillic (D0, D1), ideographs (E4 to E9) and
# Hangul (EB to ED) have none.
_LEADS = tuple(
    (np.uint8(0), np.uint8(low), np.uint8(end - low))
    for low, end in ((0xCC, 0xD0), (0xD2, 0xE4), (0xEA, 0xEB), (0xEF, 0x100))
)
# Hangul syllables are arithmetic: 19 leading, 21 middle and 27 trailing letters, or none.
_SYLLABLES, _LEADING, _MIDDLE, _TRAILING = 0xAC00, 0x1100, 0x1161, 0x11A7


@cache
def _make_table() -> np.ndarray:
    table = np.zeros(_NUM_CODES, np.int64)
    table[_MIDDLE : _MIDDLE + 21] = table[_TRAILING + 1 : _TRAILING + 28] = _UNSTABLE
    decomposed, pairs = dict[int, list[int]](), dict[int, int]()
    for line in _PATH.read_text(encoding="ascii").splitlines()[1:]:
        name, mark_class, names = line.split("\t")
        code, codes = int(name, 16), [int(part, 16) for part in names.removesuffix("!").split()]
        table[code] |= int(mark_class) + _UNSTABLE * names.endswith("!")
        if codes:
            decomposed[code] = codes
        if codes and not names.endswith("!"):
            pairs[codes[0] << 32 | codes[1]] = code
            table[codes[1]] |= _UNSTABLE
    found = [len(pairs), *sorted(pairs), *(pairs[pair] for pair in sorted(pairs))]
    for code, codes in decomposed.items():
        while codes[0] in decomposed:  # only the first part is ever decomposed further
            codes = decomposed[codes[0]] + codes[1:]
        table[code] |= (_NUM_CODES + len(found)) << 16
        found += [len(codes), *codes]
    return np.append(table, found)


def compose(utf8: np.ndarray) -> np.ndarray:
    """Text in NFC: uint8; the same array if it is in NFC already. utf8: uint8, valid UTF-8.

    >>> compose(np.frombuffer("e\\u0301".encode(), np.uint8)).tobytes().decode() == "\\u00e9"
    True
    """
    # Memory that is not written to costs nothing. A character has at most two parts for each of its bytes.
    out, codes = np.empty(_MOST_GROWTH * len(utf8), np.uint8), np.empty(2 * len(utf8), np.int64)
    num_bytes = compose_text(utf8, _make_table(), codes, out)
    is_composed = num_bytes < 0 or (num_bytes == len(utf8) and np.array_equal(out[:num_bytes], utf8))
    return utf8 if is_composed else out[:num_bytes].copy()


def compose_lines(lines: Lines) -> Lines:
    """The same documents in NFC; the same object if they are in NFC already."""
    utf8 = compose(lines.utf8)
    if utf8 is lines.utf8:
        return lines
    return replace(lines, utf8=utf8, line_offsets=np.append(0, np.flatnonzero(utf8 == LINE_FEED) + 1))


@kernel
def compose_text(utf8: np.ndarray, table: np.ndarray, scratch: np.ndarray, out: np.ndarray) -> int:
    """Write text in NFC to `out`, and return its length in bytes; -1 where all characters are stable."""
    text, facts, codes, target, size = pointer(utf8), pointer(table), pointer(scratch), pointer(out), len(utf8)
    done, filled = 0, 0  # the text before `done` is written
    last_end, last_class = 0, 0  # of the last mark
    for window in range(0, size, 64):
        bits = find_leads(text, window, size)
        while bits:
            at = window + count_trailing_zeros(bits)
            bits &= bits - U64(1)
            code, after = read_character(text, at)
            kind = item(facts, code) & 0xFFFF
            if kind == 0 or at < done:
                continue
            if kind >= _UNSTABLE or (at == last_end and kind < last_class):
                begin, end = find_piece(text, at, done, size, facts)
                copy_items(target, filled, text, done, begin - done)
                filled += begin - done
                for i in range(compose_piece(text, begin, end, facts, codes)):
                    filled = write_character(target, filled, item(codes, i))
                done = end
            last_end, last_class = after, kind
    copy_items(target, filled, text, done, size - done)
    return filled + size - done if done else -1


@helper
def find_leads(text: Pointer, at: int, size: int) -> U64:
    """Which of 64 bytes may begin a character with a kind: a bit each."""
    bits = U64(0)
    if at + 64 > size:
        for i in range(at, size):
            bits |= U64(item(text, i) >= 0xCC) << U64(i - at)
        return bits
    for fold, low, width in _LEADS:
        bits |= find_bytes(text, at, fold, low, width)
    return bits


@helper
def find_piece(text: Pointer, at: int, done: int, size: int, facts: Pointer) -> tuple[int, int]:
    """The bounds of the piece that holds the character at `at`: from a stable character, if one is after `done`."""
    begin, end = at, at
    while begin > done:
        begin = step_back(text, begin)
        if item(facts, read_character(text, begin)[0]) & 0xFFFF == 0:
            break
    while end < size:
        code, after = read_character(text, end)
        if item(facts, code) & 0xFFFF == 0:
            break
        end = after
    return begin, end


@helper
def compose_piece(text: Pointer, begin: int, end: int, facts: Pointer, codes: Pointer) -> int:
    """Write the code points of a piece in NFC to `codes`, and return how many there are."""
    count, first_mark = 0, 0
    while begin < end:
        code, begin = read_character(text, begin)
        place = item(facts, code) >> 16
        put(codes, count, code)
        for part in range(item(facts, place) if place else 0):
            put(codes, count + part, item(facts, place + 1 + part))
        count += item(facts, place) if place else 1
    for at in range(count + 1):
        if at == count or find_class(facts, codes, at) == 0:
            order_marks(codes, first_mark, at, facts)
            first_mark = at + 1
    return join_pairs(codes, count, facts)


@helper
def find_class(facts: Pointer, codes: Pointer, at: int) -> int:
    """The combining class of a code point."""
    mark_class: int = item(facts, item(codes, at)) & 0xFF
    return mark_class


@helper
def order_marks(codes: Pointer, begin: int, end: int, facts: Pointer) -> None:
    """Sort marks that follow one another by their combining classes; those of one class stay in their order."""
    is_sorted = True
    for at in range(begin + 1, end):
        is_sorted &= find_class(facts, codes, at - 1) <= find_class(facts, codes, at)
    if not is_sorted:
        marks, classes = np.empty(end - begin, np.int64), np.empty(end - begin, np.uint8)
        for at in range(end - begin):
            marks[at], classes[at] = item(codes, begin + at), find_class(facts, codes, begin + at)
        for at, mark in enumerate(np.argsort(classes, kind="mergesort")):  # stable, and quick for a megabyte of marks
            put(codes, begin + at, marks[mark])


@helper
def join_pairs(codes: Pointer, num_codes: int, facts: Pointer) -> int:
    """Compose code points in their canonical order, in place, and return how many are left."""
    count, starter, last_class = 0, -1, 0
    for at in range(num_codes):
        mark_class, whole = find_class(facts, codes, at), 0
        # Otherwise a mark of the same class or a higher one stands between, and blocks this one.
        if starter >= 0 and (count == starter + 1 or last_class < mark_class):
            whole = find_composed(item(codes, starter), item(codes, at), facts)
        if whole:
            put(codes, starter, whole)
            continue
        starter, last_class = count if mark_class == 0 else starter, mark_class
        put(codes, count, item(codes, at))
        count += 1
    return count


@helper
def find_composed(first: int, second: int, facts: Pointer) -> int:
    """What two code points make; 0 if they are not composed."""
    if 0 <= first - _LEADING < 19 and 0 <= second - _MIDDLE < 21:
        return _SYLLABLES + ((first - _LEADING) * 21 + second - _MIDDLE) * 28
    if 0 <= first - _SYLLABLES < 11172 and (first - _SYLLABLES) % 28 == 0 and 0 < second - _TRAILING < 28:
        return first + second - _TRAILING
    num_pairs, pair = item(facts, _NUM_CODES), first << 32 | second
    low, high = _NUM_CODES + 1, _NUM_CODES + 1 + num_pairs
    while low < high:
        middle = (low + high) >> 1
        low, high = (middle + 1, high) if item(facts, middle) < pair else (low, middle)
    # After the last pair stands what the first one makes, which equals no pair.
    whole: int = item(facts, low + num_pairs) if item(facts, low) == pair else I64(0)
    return whole
