"""The compiled loops that segment lines: find where sentences may end, decide whether they do, write them.

In: `Source`, `Answers`. Out: `Stops`, and from these the sentences. A stop may end a sentence unless what follows
shows that it goes on, or a quotation or parentheses hold it together; the word before the stop decides the rest.
"""

from __future__ import annotations

import numpy as np

from albert_data.corpus.characters import (
    FIRST_CURLY,
    LEFT_GUILLEMET,
    LETTER,
    PLAIN,
    STRAIGHT,
    Source,
    find_width,
    is_blank,
    is_digit,
    is_low,
    is_run,
    is_word,
    point_to_source,
    put_bytes,
    read_kind,
    skip_blanks,
    skip_stops,
)
from albert_data.corpus.documents import is_white
from albert_data.corpus.line_reading import Room, Stops, pair_quotes, point_to_stops, read_line
from albert_data.corpus.word_answers import ASK, BREAK, MAX_KEY, UNKNOWN, Answers, decide_stop, point_to_answers
from albert_data.kernels import Pointer, helper, item, kernel, pointer, put

_LOOKAHEAD = 30  # bytes after a stop: sentencex looks no farther


@helper
def goes_on_low(source: Source, at: int, limit: int) -> bool:
    """Whether the first letter or digit is low."""
    while at < limit and not is_word(source, at):
        at += find_width(item(source.utf8, at))
    return at < limit and is_low(item(source.utf8, at))


@helper
def goes_on_with_comma(utf8: Pointer, at: int, limit: int) -> bool:
    at = skip_blanks(utf8, at, limit)
    if at < limit and item(utf8, at) == 34:
        at = skip_blanks(utf8, at + 1, limit)
    return at < limit and item(utf8, at) == 44


@helper
def is_code(source: Source, at: int, limit: int) -> bool:
    """Whether a letter stands there and a digit soon after, as in 7.Bg5."""
    if at >= limit or read_kind(source, at) != LETTER:
        return False
    while at < limit and not is_digit(item(source.utf8, at)):
        at += 1
    return at < limit


@helper
def goes_on(source: Source, begin: int, stop: int, after: int, end: int) -> bool:
    """Whether what follows a run of stops shows that the sentence goes on."""
    utf8, limit = source.utf8, min(after + _LOOKAHEAD, end)
    is_low_next = after < end and is_low(item(utf8, after))
    is_spaced = stop > begin and is_blank(item(utf8, stop - 1))
    if is_run(source, stop, after):
        then = skip_blanks(utf8, after, limit)
        is_low_then = then > after and then < limit and is_low(item(utf8, then))
        return is_low_then or (is_low_next and stop > begin and not is_spaced)
    if is_low_next or goes_on_with_comma(utf8, after, limit):
        return True
    if item(utf8, stop) == 46:
        return stop > begin and is_digit(item(utf8, stop - 1)) and is_code(source, after, limit)
    return is_spaced and item(utf8, stop) < 0x80 and goes_on_low(source, after, limit)


@helper
def leave_quotation(source: Source, at: int, end: int) -> int:
    """Where a sentence ends that a quotation's closer ends; -1 where it goes on."""
    limit = min(at + _LOOKAHEAD, end)
    if goes_on_low(source, at, limit) or goes_on_with_comma(source.utf8, at, limit):
        return -1
    return skip_stops(source, at, limit)


@helper
def pass_closer(source: Source, at: int, end: int) -> int:
    """Where a sentence ends whose end a closer follows that closes nothing; otherwise `at`."""
    kind = read_kind(source, at) if at < end else PLAIN
    if kind <= STRAIGHT or (kind % 2 == 0 and kind != FIRST_CURLY and kind != LEFT_GUILLEMET):
        return at
    return skip_stops(source, at + find_width(item(source.utf8, at)), end)


@helper
def place_ends(
    source: Source,
    begin: int,
    end: int,
    stops: Stops,
    first: int,
    last: int,
    room: Room,
    num_quotes: int,
    num_parens: int,
) -> int:
    """Keep, in place, the stops from `first` to `last` that may end a sentence; return where they end."""
    kept, quote, paren = first, 0, 0
    for i in range(first, last):
        stop, after = item(stops.begins, i), item(stops.ends, i)
        if goes_on(source, begin, stop, after, end):
            continue
        place = skip_blanks(source.utf8, after, min(after + _LOOKAHEAD, end))
        while quote < num_quotes and item(room.quote_ends, quote) <= place:
            quote += 1
        while paren < num_parens and item(room.paren_ends, paren) <= place:
            paren += 1
        quote_begin = item(room.quote_begins, quote) if quote < num_quotes else end
        paren_begin = item(room.paren_begins, paren) if paren < num_parens else end
        if paren_begin < min(place, quote_begin):
            continue
        if quote_begin < place:
            is_inner = place == item(room.quote_closers, quote)
            place = leave_quotation(source, item(room.quote_ends, quote), end) if is_inner else -1
        elif place != quote_begin and place != paren_begin:
            place = pass_closer(source, place, end)
        if place >= 0:
            put(stops.begins, kept, stop)
            put(stops.ends, kept, after)
            put(stops.places, kept, place)
            kept += 1
    return kept


@kernel
def find_stops(
    source_arrays: Source, stop_arrays: Stops, room_array: np.ndarray, answer_arrays: Answers, is_found: bool
) -> int:
    """Find what may end a sentence in each line, and which lines are odd, and decide as far as the answers go.

    room_array: int64, five times the longest line; is_found: only decide of what is left.
    Returns how many stops are left undecided, -1 if there is no room for all stops.
    """
    source, stops = point_to_source(source_arrays), point_to_stops(stop_arrays)
    longest = len(room_array) // 5
    room = Room(
        pointer(room_array),
        pointer(room_array[longest:]),
        pointer(room_array[2 * longest :]),
        pointer(room_array[3 * longest :]),
        pointer(room_array[4 * longest :]),
    )
    answers, key = point_to_answers(answer_arrays), np.empty(MAX_KEY + 8, np.uint8)
    last, num_left = 0, 0
    for line in range(len(stop_arrays.is_odd)):
        begin, end, first = item(source.line_offsets, line), item(source.line_offsets, line + 1) - 1, last
        last = item(stops.line_stops, line + 1)
        if not is_found:
            if first + (end - begin) // 2 + 1 > len(stop_arrays.begins):
                return -1
            found, num_quotes, num_parens = read_line(source, begin, end, len(source_arrays.utf8), stops, first, room)
            num_quotes = pair_quotes(room, num_quotes)
            last = place_ends(source, begin, end, stops, first, found, room, num_quotes, num_parens)
            put(stops.is_odd, line, found < 0)
            put(stops.line_stops, line + 1, last)
        for i in range(first, last):
            decision = int(item(stops.decisions, i))
            if decision in (UNKNOWN, ASK):
                stop, after = item(stops.begins, i), item(stops.ends, i)
                decision = decide_stop(source, begin, end, stop, after, decision, pointer(key), answers)
                put(stops.decisions, i, decision)
                num_left += decision in (UNKNOWN, ASK)
    return num_left


@kernel
def write(
    source: Source, stops: Stops, odd_utf8: np.ndarray, odd_offsets: np.ndarray, odd_lines: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Write the sentences of every line; those of odd lines are given.

    odd_offsets: the offsets in bytes of their sentences; odd_lines: of the odd lines in these.
    """
    utf8, line_stops, num_lines = source.utf8, stops.line_stops, len(stops.is_odd)
    out = np.empty(len(utf8), np.uint8)
    sentence_offsets = np.empty(line_stops[-1] + num_lines + len(odd_offsets), np.int64)
    line_sentences = np.empty(num_lines + 1, np.int64)
    sentence_offsets[0], line_sentences[0] = 0, 0
    num_sentences, filled, odd = 0, 0, 0
    for line in range(num_lines):
        if stops.is_odd[line] > 0:
            for sentence in range(odd_lines[odd], odd_lines[odd + 1]):
                begin, end = odd_offsets[sentence], odd_offsets[sentence + 1]
                filled = put_bytes(pointer(out), filled, pointer(odd_utf8), begin, end)
                num_sentences += 1
                sentence_offsets[num_sentences] = filled
            odd += 1
        else:
            last, line_end, stop = source.line_offsets[line], source.line_offsets[line + 1] - 1, line_stops[line]
            while last < line_end:
                while stop < line_stops[line + 1] and (stops.decisions[stop] != BREAK or stops.places[stop] <= last):
                    stop += 1
                begin, end = last, stops.places[stop] if stop < line_stops[line + 1] else line_end
                last = end
                while begin < end and is_white(utf8[begin]):
                    begin += 1
                while end > begin and is_white(utf8[end - 1]):
                    end -= 1
                if end > begin:
                    filled = put_bytes(pointer(out), filled, pointer(utf8), begin, end)
                    num_sentences += 1
                    sentence_offsets[num_sentences] = filled
        line_sentences[line + 1] = num_sentences
    return out[:filled], sentence_offsets[: num_sentences + 1], line_sentences
