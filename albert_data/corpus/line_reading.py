"""What stands in a line: where its stops, its quotations and its parentheses are.

In: the bytes of a line. Out: the begins and ends of `Stops`, and a `Room` of the others. A line is odd, and left to
sentencex, where one of its characters is, or where marks may mean more than is noted here: an apostrophe that may
quote, straight quotes that don't pair or stand beside others, stops that go on behind blanks, numbers of a list.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from albert_data.corpus.characters import (
    APOSTROPHE,
    CLOSE,
    ELLIPSIS,
    LEFT_GUILLEMET,
    ODD,
    OPEN,
    STOP,
    STRAIGHT,
    Source,
    find_width,
    is_blank,
    is_digit,
    is_low,
    is_stop,
    is_upper,
    is_word,
    read_kind,
    skip_blanks,
    skip_plain,
)
from albert_data.kernels import Int, Pointer, helper, item, pointer, put

_ROMAN = sum(1 << ord(letter) - ord("a") for letter in "cdilmvx")


class Stops(NamedTuple):
    """What may end a sentence. In kernels, pointers.

    begins, ends: int64, of runs of stops; places: int64, where the sentence would end, with the blanks after it;
    decisions: uint8, BREAK where it does; line_stops: int64, the lines' offsets in these; is_odd: uint8, of each line.
    """

    begins: np.ndarray
    ends: np.ndarray
    places: np.ndarray
    decisions: np.ndarray
    line_stops: np.ndarray
    is_odd: np.ndarray


class Room(NamedTuple):
    """Room for a line's quotations and parentheses: pointers to int64.

    quote_closers: where they are closed; until they are paired, the kinds of the quotes.
    """

    quote_begins: Pointer
    quote_closers: Pointer
    quote_ends: Pointer
    paren_begins: Pointer
    paren_ends: Pointer


def make_stops(max_stops: int, num_lines: int) -> Stops:
    begins, ends, places = (np.empty(max_stops, np.int64) for _ in range(3))
    decisions, line_stops = np.zeros(max_stops, np.uint8), np.zeros(num_lines + 1, np.int64)
    return Stops(begins, ends, places, decisions, line_stops, np.ones(num_lines, np.uint8))


@helper
def point_to_stops(stops: Stops) -> Stops:
    begins, ends, places = pointer(stops.begins), pointer(stops.ends), pointer(stops.places)
    return Stops(begins, ends, places, pointer(stops.decisions), pointer(stops.line_stops), pointer(stops.is_odd))


@helper
def is_odd_after_stop(utf8: Pointer, stop: int, after: int, end: int) -> bool:
    """Whether stops (or an ellipsis) go on behind blanks, or a numbered reference follows."""
    then = skip_blanks(utf8, after, end)
    last, byte = item(utf8, after - 1), item(utf8, then)
    if byte == 91 or then == after:
        return bool(byte == 91)
    is_alone = after - stop == 1 or last == 0xA6
    if last == 46 or byte == 46:
        return bool(byte == 46 and (is_alone if last == 46 else is_stop(last)))
    is_ellipsis = byte == 0xE2 and item(utf8, then + 1) == 0x80 and item(utf8, then + 2) == 0xA6
    return bool(is_alone and (byte == 33 or byte == 63 or is_ellipsis))


@helper
def is_odd_apostrophe(source: Source, begin: int, at: int) -> bool:
    """Whether it may quote: only one after a letter or digit may not."""
    before = at - 1
    while before > begin and item(source.utf8, before) & 0xC0 == 0x80:
        before -= 1
    if before < begin or item(source.utf8, before) == 95 or item(source.utf8, at + 1) == 95:
        return True
    return not is_word(source, before)


@helper
def may_mark_list(utf8: Pointer, begin: int, at: int, end: int) -> bool:
    """Whether a closing parenthesis ends what may number a list: (1), iv), a.) and the like."""
    if item(utf8, at) != 41 or at + 1 >= end or not is_blank(item(utf8, at + 1)):
        return False
    last = at - 1 if at > begin and item(utf8, at - 1) == 46 else at
    first, num_roman, num_digits = last, 0, 0
    while first > begin and (is_low(item(utf8, first - 1)) or is_upper(item(utf8, first - 1))):
        first -= 1
        byte = Int(item(utf8, first))
        num_digits += is_digit(byte)
        num_roman += byte >= 65 and _ROMAN >> ((byte | 32) - 97) & 1
    length = last - first
    has_open = first > begin and item(utf8, first - 1) == 40
    before = first - 1 - has_open
    if length == 0 or (before >= begin and not is_blank(item(utf8, before))):
        return False
    return length == 1 or num_roman == length or (num_digits == length and (length == 2 or not has_open))


@helper
def find_closer(kind: int) -> int:
    """The kind of quote that closes one; 0 for one that only closes."""
    if kind == STRAIGHT:
        return STRAIGHT
    if kind % 2 == 0:
        return kind + 1
    return LEFT_GUILLEMET if kind == LEFT_GUILLEMET + 1 else 0


@helper
def read_line(
    source: Source, begin: int, end: int, size: int, stops: Stops, first: int, room: Room
) -> tuple[int, int, int]:
    """Note the runs of stops, from `first` on, the quotes and the pairs of parentheses.

    Returns where the stops end, -1 if the line is odd, and the numbers of the others.
    """
    utf8 = source.utf8
    num_stops, num_quotes, num_parens, num_straight = first, 0, 0, 0
    open_paren, straight_before, has_opener, is_odd = -1, 0, False, False
    at = skip_plain(source, begin, size)
    while at < end and not is_odd:
        kind, after = read_kind(source, at), at + find_width(item(utf8, at))
        if kind == STOP:
            while after < end and read_kind(source, after) == STOP:
                after += find_width(item(utf8, after))
            put(stops.begins, num_stops, at)
            put(stops.ends, num_stops, after)
            num_stops += 1
            is_odd = is_odd_after_stop(utf8, at, after, end)
        elif kind >= STRAIGHT:
            put(room.quote_begins, num_quotes, at)
            put(room.quote_closers, num_quotes, kind)
            put(room.quote_ends, num_quotes, after)
            num_quotes += 1
            num_straight += kind == STRAIGHT
            has_opener |= kind != STRAIGHT and find_closer(kind) > 0
        elif kind == OPEN and open_paren < 0:
            open_paren, straight_before = at, num_straight
        elif kind == CLOSE:
            is_odd = may_mark_list(utf8, begin, at, end)
            if open_paren >= 0:
                is_odd |= num_straight != straight_before and (num_straight | straight_before) % 2 == 1
                put(room.paren_begins, num_parens, open_paren)
                put(room.paren_ends, num_parens, after)
                num_parens += 1
                open_paren = -1
        elif kind == APOSTROPHE:
            is_odd = is_odd_apostrophe(source, begin, at)
        elif kind == ELLIPSIS:
            is_odd = is_odd_after_stop(utf8, at, after, end)
        else:
            is_odd = kind == ODD
        at = skip_plain(source, after, size)
    is_odd |= num_straight % 2 == 1 or (num_straight > 0 and has_opener)
    return -1 if is_odd else num_stops, num_quotes, num_parens


@helper
def pair_quotes(room: Room, num_quotes: int) -> int:
    """Turn quotes into quotations in place, and return their number.

    A quotation runs to the first closer of its kind; an opener without one is passed over.
    """
    num_pairs, i, missing = 0, 0, 1
    while i < num_quotes:
        closer, at = find_closer(item(room.quote_closers, i)), i + 1
        if missing >> closer & 1 == 0:
            while at < num_quotes and item(room.quote_closers, at) != closer:
                at += 1
            if at < num_quotes:
                put(room.quote_begins, num_pairs, item(room.quote_begins, i))
                put(room.quote_closers, num_pairs, item(room.quote_begins, at))
                put(room.quote_ends, num_pairs, item(room.quote_ends, at))
                num_pairs += 1
                i = at
            else:
                missing |= 1 << closer
        i += 1
    return num_pairs
