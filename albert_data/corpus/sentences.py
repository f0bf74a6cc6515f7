"""Lines into sentences, by sentencex's rules and in a tenth of its time.

In: `Lines`. Out: the sentences' UTF-8, their offsets in bytes, and the lines' offsets in sentences.
The rules that most lines need are compiled here: where stops stand, what quotes and parentheses hold together,
what continues a sentence. Which words can bear a stop inside a sentence is not known here: sentencex is asked,
once for each word, and for the few such words once for each pair with the next word; the answers are kept.
A line that holds more than that is odd and left to the caller, as are all lines of a language with rules of
its own, and of a sentencex that answers otherwise than this module does.
Taken for granted is that no rule of sentencex names a word of over 48 bytes, or one that ends in a quote or a
character from U+3000 on; and that beyond a word's neighbours only the kind of the sentence so far can matter:
where answers differ with the context asked about, the line is odd.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence, Sized
from functools import lru_cache
from itertools import accumulate, chain, islice, pairwise
from typing import NamedTuple

import numpy as np

from albert_data.corpus.documents import is_white
from albert_data.draws import mix
from albert_data.kernels import (
    Int,
    Pointer,
    Word,
    count_trailing_zeros,
    helper,
    item,
    kernel,
    load_word,
    pointer,
    put,
    store_word,
)

# Languages that sentencex segments by its default rules and lists of words.
LANGUAGES = frozenset(("en", "es", "fr", "ja", "ko", "nl", "pl", "pt", "sv", "tr", "vi", "zh", "zh-hans", "zh-hant"))

# Kinds of characters. JOINED are the word characters that are no letters. After the straight quotes come pairs:
# an even kind opens what the next one closes, and » opens too.
PLAIN, LETTER, JOINED, STOP, ODD, ELLIPSIS, APOSTROPHE, OPEN, CLOSE, STRAIGHT = range(10)
_CURLY = "“”‘’«»《》「」"
_FIRST_CURLY, _RIGHT_SINGLE, _LEFT_GUILLEMET = (STRAIGHT + 1 + _CURLY.index(quote) for quote in "“’«")
_KINDS = {
    STOP: ".!?。！？｡",
    ODD: "@\\`‚‛„‟‹›",
    ELLIPSIS: "…",
    APOSTROPHE: "'",
    OPEN: "(<{[（",
    CLOSE: ")>}]）",
    STRAIGHT: '"',
}
_KINDS |= {_FIRST_CURLY + i: quote for i, quote in enumerate(_CURLY)}
_PUNCTUATION = re.compile("[ \t!-/:-@[-^{-~¡§¶·¿‐-‗†‡‧‰-‸※⸺⸻、〃〈〉『-】〔-〟〰・\uff02-\uff0d／：；＠［-］｛-･]")
_QUOTES = frozenset(_CURLY + '"')
_DOUBTFUL = re.compile("[\u2460-\u27bf]")  # bullets, circled letters
_ROMAN = sum(1 << ord(letter) - ord("a") for letter in "cdilmvx")

# What is decided of a stop; of a word, ASK says that the next word matters.
UNKNOWN, BREAK, KEEP, ASK, UNSURE = range(5)
_LOOKAHEAD = 30  # bytes after a stop: sentencex looks no farther
_MAX_WORD, _MAX_NEXT, _MAX_KEY = 48, 24, 96
_NONE, _HIGH, _LOW7, _CASE = (Word(byte * 0x0101010101010101) for byte in (0, 0x80, 0x7F, 0x20))
_FROM_A, _BEYOND_Z, _SEED = (Word(byte * 0x0101010101010101) for byte in (0x1F, 0x05, 0x2D))


class Source(NamedTuple):
    """Lines, each with a line feed, and the kind of each character of the basic plane. In kernels, pointers.

    utf8: uint8; line_offsets: int64; kinds: uint8.
    """

    utf8: np.ndarray
    line_offsets: np.ndarray
    kinds: np.ndarray


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


class Answers(NamedTuple):
    """What sentencex said of words: an open hash table. In kernels, pointers.

    A key is uint64: eight bytes in each, padded with zeros. slots: uint64, two each: the first of the key, and
    key number plus one << 16 | words in the key << 8 | answer, UNKNOWN until asked; keys: uint64, one after another;
    key_offsets: int64; key_slots: int64; counts: int64, the number of keys, and the room for keys, words, slots.
    """

    slots: np.ndarray
    keys: np.ndarray
    key_offsets: np.ndarray
    key_slots: np.ndarray
    counts: np.ndarray


@lru_cache
def make_kinds() -> np.ndarray:
    kinds = np.array([_find_kind(chr(code)) for code in range(0x10000)], np.uint8)
    for kind, characters in _KINDS.items():
        kinds[[ord(character) for character in characters]] = kind
    return kinds


def _find_kind(character: str) -> int:
    category = unicodedata.category(character)
    if category[0] == "L" or category == "Nl":
        return LETTER
    if category == "Nd" or character == "_":
        return JOINED
    is_symbol = category[0] in "SNC" and category not in ("Cc", "Cf", "Cn", "Cs") and not _DOUBTFUL.match(character)
    return PLAIN if is_symbol or _PUNCTUATION.match(character) else ODD


def make_stops(max_stops: int, num_lines: int) -> Stops:
    begins, ends, places = (np.empty(max_stops, np.int64) for _ in range(3))
    decisions, line_stops = np.zeros(max_stops, np.uint8), np.zeros(num_lines + 1, np.int64)
    return Stops(begins, ends, places, decisions, line_stops, np.ones(num_lines, np.uint8))


def make_answers(max_keys: int, max_bytes: int) -> Answers:
    num_slots, num_words = 1 << (2 * max_keys - 1).bit_length(), max(max_bytes, _MAX_KEY) // 8
    return Answers(
        slots=np.zeros(2 * num_slots, np.uint64),
        keys=np.zeros(num_words, np.uint64),
        key_offsets=np.zeros(max_keys + 1, np.int64),
        key_slots=np.zeros(max_keys, np.int64),
        counts=np.array([0, max_keys, num_words, num_slots]),
    )


@helper
def point_to_source(source: Source) -> Source:
    return Source(pointer(source.utf8), pointer(source.line_offsets), pointer(source.kinds))


@helper
def point_to_stops(stops: Stops) -> Stops:
    begins, ends, places = pointer(stops.begins), pointer(stops.ends), pointer(stops.places)
    return Stops(begins, ends, places, pointer(stops.decisions), pointer(stops.line_stops), pointer(stops.is_odd))


@helper
def point_to_answers(answers: Answers) -> Answers:
    slots, keys, key_offsets = pointer(answers.slots), pointer(answers.keys), pointer(answers.key_offsets)
    return Answers(slots, keys, key_offsets, pointer(answers.key_slots), pointer(answers.counts))


# ---- characters ----


@helper
def is_blank(byte: int) -> bool:
    return byte == 32 or byte == 9


@helper
def is_stop(byte: int) -> bool:
    return byte == 46 or byte == 33 or byte == 63


@helper
def is_digit(byte: int) -> bool:
    return 48 <= byte <= 57


@helper
def is_upper(byte: int) -> bool:
    return 65 <= byte <= 90


@helper
def is_low(byte: int) -> bool:
    """Whether a sentence goes on with it: a lower-case letter or a digit, of ASCII."""
    return 97 <= byte <= 122 or 48 <= byte <= 57


@helper
def find_width(lead: int) -> int:
    return 1 + (lead >= 0xC0) + (lead >= 0xE0) + (lead >= 0xF0)


@helper
def read_kind(source: Source, at: int) -> int:
    """The kind of a character; one beyond the basic plane is odd."""
    code = Int(item(source.utf8, at))
    if code >= 0xF0:
        return ODD
    if code >= 0x80:
        second = Int(item(source.utf8, at + 1)) & 0x3F
        if code < 0xE0:
            code = (code & 0x1F) << 6 | second
        else:
            code = (code & 0xF) << 12 | second << 6 | Int(item(source.utf8, at + 2)) & 0x3F
    return int(item(source.kinds, code))


@helper
def is_word(source: Source, at: int) -> bool:
    """Whether a letter, a digit or an underscore stands there."""
    return LETTER <= read_kind(source, at) <= JOINED


@helper
def skip_blanks(utf8: Pointer, at: int, end: int) -> int:
    while at < end and is_blank(item(utf8, at)):
        at += 1
    return at


@helper
def skip_stops(source: Source, at: int, end: int) -> int:
    """Skip stops and blanks."""
    while at < end and (is_blank(item(source.utf8, at)) or read_kind(source, at) == STOP):
        at += find_width(item(source.utf8, at))
    return at


@helper
def find_others(word: Word) -> Word:
    """The high bit of each of eight bytes that is neither an ASCII letter nor a space."""
    folded, spaces = (word & _LOW7) | _CASE, word ^ _CASE
    letters = ((folded + _FROM_A) ^ (folded + _BEYOND_Z)) & ~word
    return ~(letters | ~((spaces & _LOW7) + _LOW7 | spaces)) & _HIGH


@helper
def skip_plain(source: Source, at: int, size: int) -> int:
    """Skip what nothing hangs on; the line feed stops it."""
    while True:
        if at + 8 <= size:
            others = find_others(load_word(source.utf8, at))
            if others == _NONE:
                at += 8
                continue
            at += count_trailing_zeros(others) >> 3
        while item(source.utf8, at) >= 0xE0 and read_kind(source, at) < STOP:
            at += 3
        byte = Int(item(source.utf8, at))
        if byte >= 0x80 or item(source.kinds, byte) >= STOP:
            return at
        at += 1


@helper
def put_bytes(out: Pointer, filled: int, utf8: Pointer, begin: int, end: int) -> int:
    """Add bytes to others, and return how many these are now."""
    length, at = end - begin, 0
    while at + 8 <= length:
        store_word(out, filled + at, load_word(utf8, begin + at))
        at += 8
    if at > 0:
        store_word(out, filled + length - 8, load_word(utf8, end - 8))
        return filled + length
    while at < length:
        put(out, filled + at, item(utf8, begin + at))
        at += 1
    return filled + length


# ---- what stands in a line ----


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
    return _LEFT_GUILLEMET if kind == _LEFT_GUILLEMET + 1 else 0


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


# ---- where a sentence may end ----


@helper
def is_run(source: Source, stop: int, after: int) -> bool:
    return after - stop > find_width(item(source.utf8, stop))


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
    if kind <= STRAIGHT or (kind % 2 == 0 and kind != _FIRST_CURLY and kind != _LEFT_GUILLEMET):
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


# ---- what words say ----


@helper
def look_up(key: Pointer, length: int, answers: Answers) -> int:
    """What is known of a key; it is added where it is new and there is room."""
    store_word(key, length, _NONE)
    first, num_words, hashed = load_word(key, 0), (length + 7) >> 3, _SEED
    for i in range(num_words):
        hashed = mix(hashed ^ load_word(key, i << 3))
    slot = Int(hashed >> Word(32))
    while True:
        slot &= item(answers.counts, 3) - 1
        entry = Int(item(answers.slots, 2 * slot + 1))
        if entry == 0:
            break
        if item(answers.slots, 2 * slot) == first and entry >> 8 & 0xFF == num_words:
            begin, i = item(answers.key_offsets, (entry >> 16) - 1), 1
            while i < num_words and item(answers.keys, begin + i) == load_word(key, i << 3):
                i += 1
            if i == num_words:
                return int(entry & 0xFF)
        slot += 1
    number = item(answers.counts, 0)
    begin = item(answers.key_offsets, number)
    if number < item(answers.counts, 1) and begin + num_words <= item(answers.counts, 2):
        for i in range(num_words):
            put(answers.keys, begin + i, load_word(key, i << 3))
        put(answers.key_offsets, number + 1, begin + num_words)
        put(answers.key_slots, number, slot)
        put(answers.slots, 2 * slot, first)
        put(answers.slots, 2 * slot + 1, Word((number + 1) << 16 | num_words << 8 | UNKNOWN))
        put(answers.counts, 0, number + 1)
    return UNKNOWN


@helper
def separates(byte: int) -> bool:
    return is_blank(byte) or byte == 46 or byte == 47


@helper
def find_word(source: Source, begin: int, stop: int) -> tuple[int, int]:
    """The word before a stop and any blanks: nothing for one that no rule names, -1 for one that is too long."""
    utf8, word_end = source.utf8, stop
    while word_end > begin and is_blank(item(utf8, word_end - 1)):
        word_end -= 1
    word, last = word_end, word_end - 1
    while last > begin and item(utf8, last) & 0xC0 == 0x80:
        last -= 1
    if (
        word_end == begin
        or item(utf8, last) >= 0xE3
        or is_stop(item(utf8, last))
        or read_kind(source, last) >= STRAIGHT
    ):
        return word, word_end
    has_parts = False
    while word > begin and not is_blank(item(utf8, word - 1)):
        if word_end - word == _MAX_WORD:
            return -1 if has_parts else word_end, word_end
        word -= 1
        has_parts |= separates(item(utf8, word))
    return word, word_end


@helper
def is_lone(utf8: Pointer, begin: int, at: int) -> bool:
    """Whether a character stands there between nothing, blanks or digits and whatever follows."""
    if separates(item(utf8, at)):
        return False
    return at == begin or is_blank(item(utf8, at - 1)) or is_digit(item(utf8, at - 1))


@helper
def put_neighbour(key: Pointer, utf8: Pointer, begin: int, word: int) -> int:
    """Begin a key with what matters of the word before: "X" if upper-case, else "x", and then "5" if a
    digit ends it, or "." if it is a letter with a full stop."""
    blank = word
    while blank > begin and is_blank(item(utf8, blank - 1)):
        blank -= 1
    before = blank
    while before > begin and separates(item(utf8, before - 1)):
        before -= 1
    first = before
    while first > begin and not separates(item(utf8, first - 1)):
        first -= 1
    put(key, 0, 88 if first < before and is_upper(item(utf8, first)) else 120)
    sign = 0
    if blank > begin and is_digit(item(utf8, blank - 1)):
        sign = 53
    elif blank > begin + 1 and item(utf8, blank - 1) == 46 and is_lone(utf8, begin, blank - 2):
        sign = 46
    put(key, 1, sign)
    length = 2 if sign > 0 else 1
    put(key, length, 10)
    return length + 1


@helper
def put_next(key: Pointer, length: int, source: Source, first: int, end: int) -> int:
    """End a key with the next word and a sign for what follows it; return the length."""
    utf8, at = source.utf8, first
    while at < end and at - first < _MAX_NEXT and (is_word(source, at) or item(utf8, at) == 39):
        at += find_width(item(utf8, at))
    length = put_bytes(key, length, utf8, first, at)
    if at == end or (is_blank(item(utf8, at)) and at > first):
        return length
    byte, kind, sign = item(utf8, at), read_kind(source, at), 59
    if byte == 44 or byte == 46:
        sign = Int(byte)
    elif kind == STOP:
        sign = 33
    elif kind == _RIGHT_SINGLE and at > first:
        sign = 39
    put(key, length, sign)
    put(key, length + 1, 59)
    return length + 2 if byte == 46 and at + 1 < end and not is_blank(item(utf8, at + 1)) else length + 1


@helper
def decide_stop(
    source: Source, begin: int, end: int, stop: int, after: int, decision: int, key: Pointer, answers: Answers
) -> int:
    """Decide of a stop that is UNKNOWN or to ASK about; it stays so if the answers do not tell."""
    utf8, then = source.utf8, skip_blanks(source.utf8, after, end)
    has_run = is_run(source, stop, after)
    is_period = item(utf8, stop) == 46 and not has_run
    is_lone_capital = then < end and is_upper(item(utf8, then)) and not is_word(source, then + 1)  # the I of I'm
    asks_next = is_period or (has_run and is_lone_capital)
    word, word_end = find_word(source, begin, stop)
    if word < 0:
        return UNSURE
    if decision == UNKNOWN:
        decision = BREAK
        if word < word_end:
            decision = look_up(key, put_bytes(key, 0, utf8, word, word_end), answers)
        if decision == BREAK and has_run and asks_next:
            decision = ASK
    if decision != ASK:
        return decision
    length = put_neighbour(key, utf8, begin, word if is_period else begin)
    length = put_bytes(key, length, utf8, word, word_end)
    if is_period and word_end < stop:
        put(key, length, 32)
        length += 1
    put(key, length, 46 if asks_next else 33)
    put(key, length + 1, 46)
    length += 2 if has_run and asks_next else 1
    put(key, length, 10)
    put(key, length + 1, 32)
    put(key, length + 2, 88)
    length += 3
    if asks_next:
        length = put_next(key, length - (1 if then > after else 2), source, then, end)
    answer = look_up(key, length, answers)
    return ASK if answer == UNKNOWN else answer


# ---- sentences ----


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
    answers, key = point_to_answers(answer_arrays), np.empty(_MAX_KEY + 8, np.uint8)
    last, num_left = Int(0), 0  # a plain 0 has a type of its own, for which all this would be compiled once more
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


# What may stand before a word whose neighbour is as a key says: what reads as an adverbial (nothing, numbers, names)
# and what does not; letters, among them those that go with the next as in p. m.
_CONTEXTS = {
    "x": ("", "went "),
    "X": ("X ", "went X ", "went.X "),
    "x5": ("5 ", "went 5 ", "X 5 "),
    "X5": ("X5 ", "went X5 ", "went.X5 "),
    "x.": ("p. ", "went p. ", "z. ", "X.p. "),
    "X.": ("P. ", "went P. ", "Z. ", "went.Z. "),
}

# What tells apart the ways in which versions of sentencex, and languages, segment.
PROBES = """
One. Two! Three? Four... Five. six. 7 eight.9 Ten.Eleven|He said ... no. He said ... No. Wait ...what?|Well... I'm not
Oh... In time. Hm.. A boy. Hm... I’m here|What?! Yes!! Oh!? no. Stop !But no|Stop ! And go ? on then ! (Who) Is that
Mr. Smith met Dr. Jones, J. Brown and John B. Brown|I. He left. It was I. But she stayed. Vitamin C. Is good
At no. 5 St. James St. he stayed. Prof. X. Y. Zed and etc. And so on, e.g. this, i.e. that, cf. There. Nos. 5
It was 5 p.m. Tom woke|In the evening at 7 p.m. Tom ate. At 5 a. m. He did|He is in the U.S. Army|U.S. The army left
The U.S.S.R. Fell|An M.A. Student. 5 in. Long. Come in. Sit|A move 7.Bg5 and 3.5 and 3. Five and No. 3.x Yes. Of 2.Next
Yahoo! Is big. Yum! Brands. He cried Yahoo! and left. Whoa! Look|Janvier 5. Mai ist da. Den 5. Januar. Im 3. Mai
“Stay here.” He went|“Go!” he said. “Who? I.” “It is.” She. “No. Never,” he said|“Yes.” — he said. “Yes.” — He
He left. “Come here. Now|He left. ”Yes|He left.’ Then|He left.” ? No|«Oui. Non.» Il dit|«Oui. Non. »Alors|»Oui. Non.« Si
‘I can’t go. Not now.’ She left|‘Go.’ He can’t. Don’t. ’Tis. The boys’ own. James’s|‘I’ll. No’. Yes
"Stay. Here." He went|"Go!" he said. "Who? I." "It is." She said "no." , and left|He said "no". "Yes", he said|A ." , b"
He (who knows. Maybe.) left. (Who? He.) Yes|[Not. This.] But {this. One} and <that. One> too|(One (two. Or) four. Five)
He left (then. “Now.) Yes.” But|He “left (is. It.” No.) Yes|A) Then|(No. Yes|1. One. 2. Two|* One. * Two
今天天气很好。我们去看书！好吗？好。他说：“好。不好。”她说。（是。不是。）「好。」『好。坏。』是|《书。》好！”他。好……好
好。」好。好”。好！？好。。好|好。 好 。好.好.A好.a|1.好|x。y。5。Z｡好！ 好|好 ！a|That is it.. Then|It.; Then. Or., so
That's it. don't. He's Mr. O'Neill's|The 1. January. El 5. Enero|A. B. C. D|Fig. 3. Sec. 4 shows. Vol. II. Ch. IV. Ex. A
Gen. Lee. Sen. Lu|S. El Sr. Pérez. La Sra. Ana|M. Dupont. Mme. Curie|Dhr. Jansen. Bijv. Dit|Pan dr. Nowak. Ul. Nowa|A
$3.5 _Yes._ No. *Yes.* No — yes. No – Yes. It’s 50%. That © is. A/B. C/Mr. X. www.Example.Com is. No.; A—b|“A.” (b.) C
Été. Élan. Œuvre. ça. À la. Ñu. ¿Qué? ¡Sí! ¿No? Łódź. ż. Ж. ж. Α. α. No. é. No. É. Sí. ÍNDICE. 3. É|L'ora. L'art
"""


class Segmenter:
    """Segments lines by the rules of a language, and keeps what sentencex said of words.

    segment_odd: segments an odd line. What becomes of a line depends on nothing but the line.
    """

    def __init__(
        self, language: str, segment_odd: Callable[[str], list[str]], max_keys: int = 1 << 17, max_bytes: int = 1 << 22
    ) -> None:
        self._language, self._segment_odd = language, segment_odd
        self._answers = make_answers(max_keys, max_bytes)
        self.is_fast = language in LANGUAGES
        self.is_fast = self.is_fast and self._agrees()

    def segment(self, utf8: np.ndarray, line_offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sentences of lines, each with a line feed: utf8, sentence offsets in bytes, line offsets in sentences."""
        source = Source(utf8, line_offsets, make_kinds())
        stops = self.find_stops(source)
        bounds = np.flatnonzero(stops.is_odd)[:, None] + (0, 1)
        odd = [
            [sentence.encode() for sentence in self._segment_odd(utf8[begin : end - 1].tobytes().decode())]
            for begin, end in line_offsets[bounds].tolist()
        ]
        sentences = [sentence for line in odd for sentence in line]
        return write(
            source, stops, np.frombuffer(bytearray(b"".join(sentences)), np.uint8), _add_up(sentences), _add_up(odd)
        )

    def find_stops(self, source: Source) -> Stops:
        """What ends a sentence, and which lines are odd: all, where not fast."""
        num_lines, longest = len(source.line_offsets) - 1, int(np.diff(source.line_offsets).max(initial=0))
        room, max_stops, num_known = np.empty(5 * longest, np.int64), 0, int(self._answers.counts[0])
        stops, num_left = make_stops(0, num_lines), -1 if self.is_fast else 0
        while num_left != 0:
            if num_left < 0:
                max_stops = 4 * max_stops or longest + len(source.utf8) // 32
                stops = make_stops(max_stops, num_lines)
            else:
                num_known = self._learn(num_known)
            num_left = find_stops(source, stops, room, self._answers, num_left > 0)
        unsure = np.flatnonzero(stops.decisions[: stops.line_stops[-1]] == UNSURE)
        stops.is_odd[np.searchsorted(stops.line_stops, unsure, "right") - 1] = 1
        return stops

    def _learn(self, first: int) -> int:
        """Ask about the keys from a number on, and return the number of keys; forget all where there is no room."""
        answers = self._answers
        if first == answers.counts[0]:
            answers.slots[:] = 0
            answers.counts[0] = 0
            return 0
        offsets = answers.key_offsets[: answers.counts[0] + 1][first:]
        data = answers.keys[offsets[0] : offsets[-1]].tobytes()
        bounds = pairwise((8 * (offsets - offsets[0])).tolist())
        keys = [data[begin:end].rstrip(b"\0").decode() for begin, end in bounds]
        questions = [_make_questions(key) for key in keys]
        said = iter(self._ask(list(chain.from_iterable(questions))))
        judged = [_judge(key, list(islice(said, len(asked)))) for key, asked in zip(keys, questions, strict=True)]
        answers.slots[2 * answers.key_slots[first : first + len(keys)] + 1] |= np.array(judged, np.uint64)
        return first + len(keys)

    def _ask(self, questions: list[tuple[str, str]]) -> list[bool]:
        """Whether a sentence ends between the halves of each text, asked about as paragraphs of one."""
        texts = [head + tail for head, tail in questions]
        found = [sentence for sentence in self._segment("\n\n".join(texts)) if sentence != "\n\n"]
        ends, begins = set(accumulate(map(len, found))), accumulate(map(len, texts), initial=0)
        return [begin + len(head) in ends for begin, (head, _) in zip(begins, questions, strict=False)]

    def _segment(self, text: str) -> list[str]:
        from sentencex import segment

        sentences: list[str] = segment(self._language, text)
        return sentences

    def _agrees(self) -> bool:
        """Whether sentencex segments the probes as this module does, those that are odd aside."""
        probes = re.split("[|\n]", PROBES.strip())
        data = [f"{probe}\n".encode() for probe in probes]
        source = Source(np.array(list(b"".join(data)), np.uint8), _add_up(data), make_kinds())
        stops = self.find_stops(source)
        utf8, offsets, lines = write(
            source, stops, np.zeros(0, np.uint8), _add_up(()), np.zeros(len(data) + 1, np.int64)
        )
        found = [str(utf8[begin:end].data, "utf-8") for begin, end in pairwise(offsets.tolist())]
        return all(
            is_odd or found[begin:end] == [sentence.strip() for sentence in self._segment(probe)]
            for probe, is_odd, (begin, end) in zip(probes, stops.is_odd.tolist(), pairwise(lines.tolist()), strict=True)
        )


def _make_questions(key: str) -> list[tuple[str, str]]:
    """What to ask about a key: texts in two halves."""
    if "\n" not in key:
        return [(f"5 {key}. ", "x")]
    neighbour, word, following = key.split("\n")
    blank, following = " " * following.startswith(" "), following.lstrip()
    return [(context + word + blank, following) for context in _CONTEXTS[neighbour]]


def _judge(key: str, breaks: list[bool]) -> int:
    """What the answers say of a key; not enough of a single letter, which may be an initial, nor beside a quote."""
    if "\n" not in key:
        return BREAK if breaks[0] and key[-2:-1] not in "./" else ASK
    if breaks.count(True) not in (0, len(breaks)) or not _QUOTES.isdisjoint(key):
        return UNSURE
    return BREAK if breaks[0] else KEEP


def _add_up(parts: Sequence[Sized]) -> np.ndarray:
    return np.concatenate(([0], np.cumsum([len(part) for part in parts], dtype=np.int64)))
