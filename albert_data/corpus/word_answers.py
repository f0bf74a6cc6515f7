"""What sentencex said of words: the table of its answers, and what they decide of a stop.

Which words can bear a stop inside a sentence only sentencex knows. A key is what it is asked about: a word, or three
lines, which are what matters of the word before, the word with its stop, and what follows. A kernel looks keys up,
and adds those that are new; `Segmenter` then asks about these.
Taken for granted is that no rule of sentencex names a word of over 48 bytes, or one that ends in a quote or a
character from U+3000 on; and that beyond a word's neighbours only the kind of the sentence so far can matter:
where answers differ with the context asked about, the line is odd.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from albert_data.corpus.characters import (
    RIGHT_SINGLE,
    STOP,
    STRAIGHT,
    Source,
    find_width,
    is_blank,
    is_digit,
    is_run,
    is_stop,
    is_upper,
    is_word,
    put_bytes,
    read_kind,
    skip_blanks,
)
from albert_data.draws import mix
from albert_data.kernels import Int, Pointer, Word, helper, item, load_word, pointer, put, store_word

# What is decided of a stop; of a word, ASK says that the next word matters.
UNKNOWN, BREAK, KEEP, ASK, UNSURE = range(5)
_MAX_WORD, _MAX_NEXT, MAX_KEY = 48, 24, 96
_MAX_SEPARATORS = 256  # each of the stops among them would look at all before it
_NONE, _SEED = Word(0), Word(0x2D2D2D2D2D2D2D2D)


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


def make_answers(max_keys: int, max_bytes: int) -> Answers:
    num_slots, num_words = 1 << (2 * max_keys - 1).bit_length(), max(max_bytes, MAX_KEY) // 8
    return Answers(
        slots=np.zeros(2 * num_slots, np.uint64),
        keys=np.zeros(num_words, np.uint64),
        key_offsets=np.zeros(max_keys + 1, np.int64),
        key_slots=np.zeros(max_keys, np.int64),
        counts=np.array([0, max_keys, num_words, num_slots]),
    )


@helper
def point_to_answers(answers: Answers) -> Answers:
    slots, keys, key_offsets = pointer(answers.slots), pointer(answers.keys), pointer(answers.key_offsets)
    return Answers(slots, keys, key_offsets, pointer(answers.key_slots), pointer(answers.counts))


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
    digit ends it, or "." if it is a letter with a full stop.

    Returns the length, or -1 where too much stands between the two.
    """
    blank = word
    while blank > begin and is_blank(item(utf8, blank - 1)):
        blank -= 1
    before = blank
    while before > begin and separates(item(utf8, before - 1)):
        if blank - before == _MAX_SEPARATORS:
            return -1
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
    elif kind == RIGHT_SINGLE and at > first:
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
    if length < 0:
        return UNSURE
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
