"""The rule that segments a line into sentences, compiled: it is written down here from the characters up.

In: lines and a language's rule (`SentenceRule`). Out: where sentences begin and end, and of what kind each line is.
Time is linear in the text, whatever it holds: the loop passes each position once, and from a stop it looks at most some
words back and ahead. (`is_lower_text` reads a whole line, but only once.)

The sections: the class of each character; words; quotation marks and brackets, which hold text together; whether a full
stop ends a sentence; whether any run of stops does; list items, and the loop over lines.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from albert_data.kernels import I64, U64, Pointer, count_trailing_zeros, helper, item, kernel, load_u64, pointer, put
from albert_data.kernels.fnv import FNV_BASIS, add_byte
from albert_data.sentences import words
from albert_data.sentences.abbreviations import MAX_WORD
from albert_data.text.ascii import DIGIT_0, FULL_STOP, SMALL_A, SMALL_Z, SPACE, is_digit
from albert_data.text.character_bits import FULL_STOPS
from albert_data.text.unicode_tables import categories
from albert_data.text.utf8 import find_width, read_character, step_back

# ---- characters ----

# Each character has a class. Those from BULLET on can decide where sentences end, and the main loop stops at them; it
# skips all others.
#
# LOWER, UPPER: letters with case. OTHER: letters without. HANGUL: letters of Korean. IDEO: letters of Chinese, Japanese
# and Yi, which have stops but no spaces (Thai, without stops, is OTHER). DIGIT. ACCENT: belongs to the word before it:
# accents, raised numbers. BLANK: white space and controls. JOIN: joins the parts of a word. COMMA: a sentence continues
# after it. DASH. LEADING: may stand before the first word of a sentence. PLAIN: all others.
PLAIN, LOWER, UPPER, OTHER, HANGUL, IDEO, DIGIT, ACCENT, BLANK, JOIN, COMMA, DASH, LEADING = range(13)
# DOT: may belong to an abbreviation. EXCLAIM: ends a sentence before white space. FULL: ends one anywhere. ELLIPSIS.
# WIDE_DOT: as FULL, unless a letter with case or a digit follows. DOUBLE: ends a sentence where two stand together.
BULLET, DOT, EXCLAIM, FULL, ELLIPSIS, WIDE_DOT, DOUBLE, STRAIGHT_SINGLE, STRAIGHT_DOUBLE, LINE_FEED = range(13, 23)
# From here on each group of marks has two classes: an even one for its opening marks, an odd one for its closing marks.
# So 23 is no class.
FIRST_PAIR = 24
(
    ROUND,
    SQUARE,
    TITLE_MARKS,
    CORNER,
    WHITE_CORNER,
    ANGLE,
    DOUBLE_CURLY,
    SINGLE_CURLY,
    STRAIGHT_DOUBLE_GROUP,
    STRAIGHT_SINGLE_GROUP,
) = range(10)
FIRST_QUOTE_GROUP = CORNER  # the groups from here on are quotation marks
CLOSE_ROUND = FIRST_PAIR + 2 * ROUND + 1
OPEN_SQUARE, CLOSE_SQUARE = FIRST_PAIR + 2 * SQUARE, FIRST_PAIR + 2 * SQUARE + 1
CLOSE_SINGLE = FIRST_PAIR + 2 * SINGLE_CURLY + 1  # also the apostrophe

_CATEGORIES = {
    LOWER: ("Ll",),
    UPPER: ("Lu", "Lt"),
    OTHER: ("Lo", "Lm", "Nl"),
    DIGIT: ("Nd",),
    ACCENT: ("Mn", "Mc", "Me", "Cf"),
    BLANK: ("Zs", "Cc"),
}
_RANGES = {
    OTHER: ((0x10D0, 0x10FF),),  # Georgian: lower case by its category, but sentences begin with it
    HANGUL: ((0x1100, 0x11FF), (0x3130, 0x318F), (0xAC00, 0xD7A3)),
    IDEO: (
        *((0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x3029), (0x3031, 0x3035), (0x3041, 0x30FA), (0x30FC, 0x312F)),
        *((0x31A0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA000, 0xA48C), (0xF900, 0xFAFF), (0xFF66, 0xFF9D)),
        (0x20000, 0x3FFFD),
    ),
}
_LISTED = {
    PLAIN: "\N{ZERO WIDTH SPACE}",  # a place for a line break, so it separates words
    ACCENT: "°¹²³⁰⁴⁵⁶⁷⁸⁹\N{HALFWIDTH KATAKANA VOICED SOUND MARK}\N{HALFWIDTH KATAKANA SEMI-VOICED SOUND MARK}",
    JOIN: "-‐‑/&·",
    COMMA: ",;:、，；：،؛・",
    DASH: "–—―‒⸺⸻─━",
    LEADING: "¿¡*_",
    BULLET: "•◦▪▫⁃‣●○■□◆◇▶►➢➤✓✔",
    DOT: ".",
    # With the Armenian marks and the Tibetan shad. Where no white space follows, all of these stand inside a word or
    # belong to a name.
    EXCLAIM: "!?‼⁇⁈⁉‽⸮\u037e\u055c\u055e\u0f0d\u0f0e\u0f11",
    ELLIPSIS: "…‥⋯",
    WIDE_DOT: "．",
    DOUBLE: "\N{ETHIOPIC WORDSPACE}",
    STRAIGHT_SINGLE: "'",
    STRAIGHT_DOUBLE: '"',
    LINE_FEED: "\n",
}
_PAIRS = {
    ROUND: "()（）﹙﹚⦅⦆",
    SQUARE: "[]［］【】〔〕〖〗{}｛｝",
    TITLE_MARKS: "《》〈〉⟨⟩",
    CORNER: "「」｢｣﹁﹂",
    WHITE_CORNER: "『』﹃﹄",
    ANGLE: "«»‹›",
    DOUBLE_CURLY: "“”„”‟”〝〞",
    SINGLE_CURLY: "‘’‚’",
}
# ASCII characters that end sentences in some languages: the Greek question mark, the Armenian full stop, dandas typed
# as |, and two Ethiopic colons.
_ASCII_STOPS = {"el": (";", EXCLAIM), "grc": (";", EXCLAIM), "hy": (":", EXCLAIM)}
_ASCII_STOPS |= dict.fromkeys(("hi", "mr", "ne", "sa", "bho", "mai", "bn", "as", "or", "pa", "gu"), ("|", EXCLAIM))
_ASCII_STOPS |= dict.fromkeys(("am", "ti"), (":", DOUBLE))
# Languages in which a full stop after a number makes it an ordinal.
_WITH_ORDINALS = "az bs cs da de dsb et eu fi fo hr hsb hu is kk ky lb lv nb nn no sh sk sl sr tk tr"
# Indices of the settings of a rule: the last slot; whether "5." may be an ordinal; whether the word i has a capital.
LAST_SLOT, HAS_ORDINALS, HAS_PRONOUN_I = range(3)


class SentenceRule(NamedTuple):
    """The rule of a language, and the text that it segments. Arrays in Python, pointers in helpers."""

    utf8: np.ndarray  # uint8, lines, each followed by a line feed
    ascii_classes: np.ndarray  # uint8 [128], the classes of the ASCII characters in this language
    classes: np.ndarray  # uint8 [0x110000], those of all characters
    hashes: np.ndarray  # uint64 [slots], see words.py
    word_classes: np.ndarray  # uint16 [slots]
    settings: np.ndarray  # int64 [3], see LAST_SLOT


class Segmented(NamedTuple):
    """What is found."""

    begins: np.ndarray  # int64 [capacity], of the sentences of all lines
    ends: np.ndarray  # int64 [capacity]
    counts: np.ndarray  # int64 [lines], how many sentences each has
    kinds: np.ndarray  # uint8 [lines], what is known of each, the bits from HAS_STOP on


class Line(NamedTuple):
    """One line in the kernels."""

    rule: SentenceRule  # of its language, as pointers; its text, which is canonical, is utf8[begin : end]
    begin: int
    end: int
    state: Pointer  # int64 [STATE_SIZE], what is known of it so far; the indices are below
    ends: Pointer  # int64, where the sentences of all lines end; those of this line are from index first_end on
    first_end: int


@cache
def make_classes() -> np.ndarray:
    """The class of each code point: uint8."""
    numbers, names = categories()
    by_category = np.full(len(names), PLAIN, np.uint8)
    for char_class, members in _CATEGORIES.items():
        by_category[[names.index(name) for name in members]] = char_class
    classes: np.ndarray = by_category[numbers]
    is_letter = (classes >= LOWER) & (classes <= OTHER)
    for char_class, ranges in _RANGES.items():
        for first, last in ranges:
            classes[first : last + 1][is_letter[first : last + 1]] = char_class
    for char_class, characters in {**_LISTED, FULL: FULL_STOPS}.items():
        classes[list(map(ord, characters))] = char_class
    for group, characters in _PAIRS.items():
        classes[list(map(ord, characters[::2]))] = FIRST_PAIR + 2 * group
        classes[list(map(ord, characters[1::2]))] = FIRST_PAIR + 2 * group + 1
    classes.flags.writeable = False
    return classes


@cache
def make_rule(language: str, abbreviations: str | None = None) -> SentenceRule:
    """The rule of a language, without text yet. Without a table it has the general rule, and only added words."""
    ascii_classes = make_classes()[:128].copy()
    if language in _ASCII_STOPS:
        character, char_class = _ASCII_STOPS[language]
        ascii_classes[ord(character)] = char_class
    hashes, word_classes = words.make_table(language, abbreviations)
    settings = np.array([len(hashes) - 1, language in _WITH_ORDINALS.split(), language == "en"], np.int64)
    return SentenceRule(np.zeros(0, np.uint8), ascii_classes, make_classes(), hashes, word_classes, settings)


@helper
def step(rule: SentenceRule, at: int) -> int:
    """The position of the next character."""
    return at + find_width(item(rule.utf8, at))


@helper
def read_class(rule: SentenceRule, at: int) -> int:
    """The class of the character at a position."""
    first = item(rule.utf8, at)
    if first < 0x80:
        return int(item(rule.ascii_classes, first))
    return int(item(rule.classes, read_character(rule.utf8, at)[0]))


@helper
def class_at(line: Line, at: int) -> int:
    """As read_class; BLANK at the end of the line."""
    return read_class(line.rule, at) if at < line.end else BLANK


@helper
def class_before(line: Line, at: int) -> int:
    """The class of the character before a position; BLANK at the beginning of the line."""
    return read_class(line.rule, step_back(line.rule.utf8, at)) if at > line.begin else BLANK


@helper
def is_letter(char_class: int) -> bool:
    return LOWER <= char_class <= IDEO


@helper
def is_letter_or_digit(char_class: int) -> bool:
    return LOWER <= char_class <= DIGIT


@helper
def is_stop(char_class: int) -> bool:
    return DOT <= char_class <= DOUBLE


@helper
def is_opening(char_class: int) -> bool:
    return char_class >= FIRST_PAIR and char_class & 1 == 0


@helper
def is_closing(char_class: int) -> bool:
    return char_class >= FIRST_PAIR and char_class & 1 == 1


@helper
def skip_blanks(line: Line, at: int) -> int:
    while at < line.end and read_class(line.rule, at) == BLANK:
        at = step(line.rule, at)
    return at


@helper
def skip_blanks_back(line: Line, at: int) -> int:
    while at > line.begin and class_before(line, at) == BLANK:
        at = step_back(line.rule.utf8, at)
    return at


_EACH_BYTE = 0x0101010101010101
_HIGH_BIT, _LOW_BITS, _CASE_BIT = U64(0x80 * _EACH_BYTE), U64(0x7F * _EACH_BYTE), U64(0x20 * _EACH_BYTE)
_FROM_A, _BEYOND_Z = U64((0x80 - 0x61) * _EACH_BYTE), U64((0x80 - 0x7B) * _EACH_BYTE)


@helper
def find_others(eight: U64) -> U64:
    """The high bit of each of eight bytes that is neither an ASCII letter nor a space.

    All sums are of at most 0x7F + 0x7F, so that none carries into the next byte.
    """
    folded, spaces = (eight & _LOW_BITS) | _CASE_BIT, eight ^ _CASE_BIT  # 0x20 is the case bit and also the space
    # The first sum sets the high bit from "a" on, the second after "z". Bytes beyond ASCII are excluded.
    letters = ((folded + _FROM_A) ^ (folded + _BEYOND_Z)) & ~eight
    not_spaces = (spaces & _LOW_BITS) + _LOW_BITS | spaces  # a space became zero, whose sum is 0x7F
    return ~letters & not_spaces & _HIGH_BIT


@helper
def skip_plain(rule: SentenceRule, at: int, size: int) -> int:
    """Skip what can't matter. The line feed stops it, so it needs no end of the line. size: of the whole text."""
    while True:
        if at + 8 <= size:
            others = find_others(load_u64(rule.utf8, at))
            if others == U64(0):
                at += 8
                continue
            at += count_trailing_zeros(others) >> 3
        while 0xE0 <= item(rule.utf8, at) < 0xF0:  # characters of three bytes: most of Chinese, Korean, Hindi ...
            if read_class(rule, at) >= BULLET:
                return at
            at += 3
        if read_class(rule, at) >= BULLET:
            return at
        at = step(rule, at)


# ---- words ----


@helper
def look_up(rule: SentenceRule, begin: int, end: int) -> int:
    """The word classes of a word, white space in it left out; 0 if it isn't listed."""
    if end - begin > MAX_WORD or end <= begin:
        return 0
    found, at = FNV_BASIS, begin
    while at < end:
        after = step(rule, at)
        if read_class(rule, at) != BLANK:  # "U. S." is looked up as "U.S."
            while at < after:
                found = add_byte(found, item(rule.utf8, at))
                at += 1
        at = after
    last_slot = item(rule.settings, LAST_SLOT)
    slot = I64(found & U64(last_slot))
    while item(rule.hashes, slot) != 0:
        if item(rule.hashes, slot) == found:
            return int(item(rule.word_classes, slot))
        slot = (slot + 1) & last_slot
    return 0


# ---- quotation marks and brackets ----

# The shape of brackets, title marks and corner brackets decides. A quotation mark between white space and a letter
# opens, whatever its shape; one between a letter or a stop and white space closes; elsewhere its shape decides, too,
# and a straight " closes if one is open. ' and ’ may be apostrophes: ’ never opens, and both close only after a stop, a
# comma, a dash or a closing mark. A stack holds the last 16 open marks. Where the closing mark follows within 256
# bytes, the sentence ends between the two are dropped: a short quotation stays whole, a long speech is split into its
# sentences.

NO_MARK, OPENS, CLOSES = range(3)
# The context of a mark that opens. FIRST_IN_SENTENCE: before the first word of a sentence. AFTER_LETTER: later, right
# after a letter of a script without case (他说“好。”). ELSEWHERE: later, after anything else (他说：“好。”).
ELSEWHERE, FIRST_IN_SENTENCE, AFTER_LETTER = range(3)
MAX_HELD = 256  # bytes from an opening mark to the closing one
MAX_DEPTH = 16
# Indices in the state of a line (int64).
SENTENCE = 0  # position where the present sentence begins
FIRST_WORD = 1  # position of its first letter or digit (after close_mark, its begin); -1 if none is before SCANNED
SCANNED = 2  # up to here the sentence was searched for FIRST_WORD
NUM_ENDS = 3  # sentence ends found so far, in all lines
DEPTH = 4  # number of open marks
LIST_NUMBER, LIST_STYLE = 5, 6  # of the last list item; style 0 if the line is no list
LAST_STOP = 7  # where the last stop ends, with what closes after it
CASE = 8  # whether the line is text without capitals: UNKNOWN until `is_lower_text` is called
STACK = 9  # of each open mark its group, its position and its context
STATE_SIZE = STACK + 3 * MAX_DEPTH
UNKNOWN, NO, YES = range(3)


@helper
def has_word(line: Line, end: int) -> bool:
    """Whether the present sentence has a letter or digit before `end`.

    The search resumes where the last call stopped, so that all calls for a sentence take linear time together.
    """
    state, at = line.state, item(line.state, SCANNED)
    while item(state, FIRST_WORD) < 0 and at < end:
        if is_letter_or_digit(read_class(line.rule, at)):
            put(state, FIRST_WORD, at)
        at = step(line.rule, at)
    put(state, SCANNED, at)
    return bool(0 <= item(state, FIRST_WORD) < end)


@helper
def begin_sentence(line: Line, at: int) -> None:
    """Begin a sentence at the first character from `at` on that is no white space."""
    begin = skip_blanks(line, at)
    put(line.state, SENTENCE, begin)
    put(line.state, SCANNED, begin)
    put(line.state, FIRST_WORD, -1)


@helper
def group_of(char_class: int) -> int:
    if char_class == STRAIGHT_DOUBLE:
        return STRAIGHT_DOUBLE_GROUP
    if char_class == STRAIGHT_SINGLE:
        return STRAIGHT_SINGLE_GROUP
    return (char_class - FIRST_PAIR) >> 1


@helper
def find_open(state: Pointer, group: int) -> int:
    """The index on the stack of the last open mark of a group; -1 if none is open."""
    depth = item(state, DEPTH) - 1
    while depth >= 0 and item(state, STACK + 3 * depth) != group:
        depth -= 1
    return int(depth)


@helper
def find_role(line: Line, at: int) -> int:
    """Whether the character at a position opens, closes, or is no mark."""
    mark = read_class(line.rule, at)
    if mark != STRAIGHT_DOUBLE and mark != STRAIGHT_SINGLE and mark < FIRST_PAIR:
        return NO_MARK
    group = group_of(mark)
    if mark >= FIRST_PAIR and group < ANGLE:  # brackets and corners: the shape alone decides
        return OPENS if is_opening(mark) else CLOSES
    left, right = class_before(line, at), class_at(line, step(line.rule, at))
    # A side is free if no word touches the mark there.
    left_is_free = left in (BLANK, DASH, LEADING) or is_opening(left)
    right_is_free = right in (BLANK, COMMA, DASH, STRAIGHT_SINGLE, STRAIGHT_DOUBLE) or is_stop(right)
    right_is_free |= is_closing(right)
    if left_is_free and not right_is_free:
        return NO_MARK if mark == CLOSE_SINGLE else OPENS  # ’Tis: an apostrophe
    if mark in (STRAIGHT_SINGLE, CLOSE_SINGLE):  # it closes after a stop or a comma; elsewhere it is an apostrophe
        is_after_end = left in (COMMA, DASH) or DOT <= left <= ELLIPSIS or is_closing(left)
        return CLOSES if is_after_end else NO_MARK
    if right_is_free and not left_is_free:
        return CLOSES
    if mark == STRAIGHT_DOUBLE:
        return CLOSES if find_open(line.state, group) >= 0 else OPENS
    return OPENS if is_opening(mark) else CLOSES


@helper
def open_mark(line: Line, group: int, at: int) -> None:
    """Push a mark that opens on the stack."""
    state = line.state
    depth = item(state, DEPTH)
    if depth == MAX_DEPTH:  # forget the oldest
        for i in range(STACK, STACK + 3 * (MAX_DEPTH - 1)):
            put(state, i, item(state, i + 3))
        depth -= 1
    context = AFTER_LETTER if OTHER <= class_before(line, at) <= IDEO else ELSEWHERE
    top = STACK + 3 * depth
    put(state, top, group)
    put(state, top + 1, at)
    put(state, top + 2, context if has_word(line, at) else FIRST_IN_SENTENCE)
    put(state, DEPTH, depth + 1)


@helper
def close_mark(line: Line, group: int, at: int) -> int:
    """Pop the last open mark of a group with all that were opened after it, and return its context.

    If it opened at most MAX_HELD bytes ago, the sentence ends found since are dropped.
    """
    state, depth = line.state, find_open(line.state, group)
    if depth < 0:
        return ELSEWHERE
    put(state, DEPTH, depth)
    opened, num_ends = item(state, STACK + 3 * depth + 1), item(state, NUM_ENDS)
    if at - opened <= MAX_HELD:
        while num_ends > line.first_end and item(line.ends, num_ends - 1) > opened:
            num_ends -= 1
    if num_ends < item(state, NUM_ENDS):
        put(state, NUM_ENDS, num_ends)
        begin_sentence(line, item(line.ends, num_ends - 1) if num_ends > line.first_end else line.begin)
        put(state, FIRST_WORD, item(state, SENTENCE))  # it has a word, because sentences without one are not ended
    return int(item(state, STACK + 3 * depth + 2))


# ---- full stops ----

# A full stop, or the end of an abbreviation, an initial, an ordinal or the number of an item? It is asked when the case
# of the next word does not show that the sentence continues. The word before the stop decides by its word classes and
# its shape, the next word by whether sentences often begin with it.

# What `is_ordinary` takes for abbreviations. Not NUMBER: "no", "sun" and "mar" are ordinary words, too.
ABBREVIATIONS = words.TITLE | words.VOLUME | words.MAYBE | words.ENDS | words.TIME | words.NAME
# Shapes of words: INITIAL is one letter, ACRONYM single letters joined by full stops, DIGITS digits alone, ORDINARY the
# rest.
ORDINARY, INITIAL, ACRONYM, DIGITS = range(4)
_MAX_LEAD = 32  # bytes from the beginning of a sentence to its time, as in "At half past 5 a.m."
_I, _SMALL_I = ord("I"), ord("i")
_NUMERALS = tuple(b"IVXLC")  # without D and M, which are initials; numerals above 399 are rare


@helper
def is_joint(line: Line, at: int, char_class: int) -> bool:
    """Whether a mark, such as a hyphen or an apostrophe, continues the word before it."""
    left = class_before(line, at)
    return char_class in (JOIN, STRAIGHT_SINGLE, CLOSE_SINGLE) and (is_letter_or_digit(left) or left in (ACCENT, DOT))


@helper
def find_word_before(line: Line, stop: int) -> tuple[int, int, int]:
    """Where the word before a full stop begins, where its last part begins, and its shape.

    Its parts are joined by full stops, hyphens and apostrophes. A white space joins single letters with full stops, as
    in "p. m" and "U. S". The search goes backwards, and ends soon after MAX_WORD bytes.
    """
    at, last, shape = stop, -1, INITIAL
    letters, digits = 0, 0  # of the present part
    while at > line.begin and stop - at <= MAX_WORD:
        before = step_back(line.rule.utf8, at)
        char_class = read_class(line.rule, before)
        if is_letter(char_class):
            letters += 1
        elif char_class == DIGIT:
            digits += 1
        elif char_class == DOT or is_joint(line, before, char_class):
            if letters != 1 or digits > 0 or char_class != DOT:  # the part is not a single letter before a full stop
                shape = ORDINARY
            elif shape == INITIAL:
                shape = ACRONYM
            last = at if last < 0 else last
            letters, digits = 0, 0
        elif char_class == BLANK:
            initial = find_initial(line, before) if letters == 1 and digits == 0 else -1
            if initial < 0:
                break
            last = at if last < 0 else last
            shape = ACRONYM if shape == INITIAL else shape
            before = initial
        elif char_class != ACCENT:
            break
        at = before
    if last < 0 and letters == 0 and digits > 0:
        return at, at, DIGITS
    # A single letter is no initial in a script in which a letter is a syllable or a word.
    is_syllable = shape == INITIAL and read_class(line.rule, at) >= HANGUL
    if letters != 1 or digits > 0 or is_syllable:  # the first part must be a single letter, too
        shape = ORDINARY
    return at, at if last < 0 else last, shape


@helper
def find_initial(line: Line, end: int) -> int:
    """Where a single letter begins that has a full stop, which ends at `end`; -1 if no such letter is there."""
    if end == line.begin or item(line.rule.utf8, end - 1) != FULL_STOP:
        return -1
    at = end - 1
    while end - at <= MAX_WORD and class_before(line, at) == ACCENT:
        at = step_back(line.rule.utf8, at)
    if not is_letter(class_before(line, at)):
        return -1
    at = step_back(line.rule.utf8, at)
    left = class_before(line, at)
    stands_alone = left in (BLANK, DOT, STRAIGHT_SINGLE, STRAIGHT_DOUBLE) or is_opening(left)
    return int(at) if stands_alone else -1


@helper
def find_word_end(line: Line, at: int) -> int:
    """Where the letters and digits from a position on end, or somewhat more than MAX_WORD bytes of them."""
    first = at
    while at < line.end and at - first <= MAX_WORD:
        char_class = read_class(line.rule, at)
        if not (is_letter_or_digit(char_class) or char_class == ACCENT):
            break
        at = step(line.rule, at)
    return at


@helper
def is_i(line: Line, word: int) -> bool:
    """Whether the word at a position is I."""
    return item(line.rule.utf8, word) == _I and find_word_end(line, word) == word + 1


@helper
def is_initial(line: Line, word: int, word_end: int) -> bool:
    """Whether a word is one letter before a full stop."""
    is_single = is_letter(read_class(line.rule, word)) and step(line.rule, word) == word_end
    return is_single and class_at(line, word_end) == DOT


@helper
def is_starter(line: Line, word: int) -> bool:
    """Whether sentences often begin with the word at a position, and it is no initial."""
    word_end = find_word_end(line, word)
    return not is_initial(line, word, word_end) and look_up(line.rule, word, word_end) & words.STARTER != 0


@helper
def has_only_numerals(line: Line, word: int, end: int, case_bit: int) -> bool:
    """Whether word .. end consists of I, V, X, L and C alone. case_bit: 32 for those in lower case, else 0."""
    for at in range(word, end):
        byte = item(line.rule.utf8, at) - case_bit
        if byte not in _NUMERALS:
            return False
    return True


@helper
def is_numeral_or_capital(line: Line, word: int) -> bool:
    """Whether a Roman numeral or a single capital letter is at a position."""
    word_end = find_word_end(line, word)
    if read_class(line.rule, word) == UPPER and step(line.rule, word) == word_end:
        return True
    return word_end > word and has_only_numerals(line, word, word_end, 0)


@helper
def begins_with_lead(line: Line, word: int) -> bool:
    """Whether the sentence is short up to the word, and begins with a lead, as in "At half past 5 a.m."."""
    sentence = item(line.state, SENTENCE)
    first_end = min(find_word_end(line, sentence), word)
    return word - sentence <= _MAX_LEAD and look_up(line.rule, sentence, first_end) & words.LEAD != 0


@helper
def is_pronoun(line: Line, word: int) -> bool:
    """Whether the I before a full stop is the pronoun, as the word before it shows: You and I."""
    utf8 = line.rule.utf8
    if item(utf8, word) != _I or word == line.begin or item(utf8, word - 1) != SPACE:
        return False
    at = word - 1
    while at > line.begin and word - at <= MAX_WORD and is_letter(class_before(line, at)):
        at = step_back(utf8, at)
    return look_up(line.rule, at, word - 1) & words.PRONOUN != 0


@helper
def is_item(line: Line, word: int, stop: int, shape: int) -> bool:
    """Whether a number, a letter or a Roman numeral begins the sentence, and so numbers it, as in "2. Second"."""
    if has_word(line, word):
        return False
    if read_class(line.rule, word) == DIGIT:
        return stop - word <= (3 if shape == DIGITS else 4)  # up to three digits (999.), or two and an ending (99th.)
    return shape == INITIAL or is_numeral_or_capital(line, word)


@helper
def find_word_classes(line: Line, word: int, last: int, stop: int) -> int:
    """The word classes of the word before a full stop; if it has none, those of its last part."""
    found = look_up(line.rule, word, stop)
    return look_up(line.rule, last, stop) if found == 0 and last > word else found


@helper
def is_ordinary(line: Line, stop: int) -> bool:
    """Whether the word before a full stop is no abbreviation, and no initial, acronym or Roman numeral.

    Only asked in text without capitals, so the numerals are in lower case.
    """
    word, last, shape = find_word_before(line, stop)
    if stop - word > MAX_WORD or word == stop:
        return True
    if shape in (INITIAL, ACRONYM) or has_only_numerals(line, word, stop, 32):
        return False
    return find_word_classes(line, word, last, stop) & ABBREVIATIONS == 0


@helper
def ends_at_dot(line: Line, stop: int, next_word: int) -> bool:
    """Whether a sentence ends with a full stop, where the case of the next word does not forbid it."""
    word, last, shape = find_word_before(line, stop)
    first, starts = class_at(line, next_word), is_starter(line, next_word)
    has_ordinals = item(line.rule.settings, HAS_ORDINALS) != 0
    if stop - word > MAX_WORD or word == stop:
        return True
    if is_item(line, word, stop, shape):
        return False
    if shape == DIGITS:
        # In some languages it is an ordinal: 5. Januar, 24. 12. 2020. One of three digits or more is rather a year.
        return not has_ordinals or starts or (stop - word > 2 and first != DIGIT)
    classes = find_word_classes(line, word, last, stop)
    if classes & words.TITLE != 0 or (classes & words.NUMBER != 0 and first == DIGIT):
        return False
    if classes & words.VOLUME != 0 and (first == DIGIT or is_numeral_or_capital(line, next_word)):
        return False
    if classes & words.TIME != 0 and begins_with_lead(line, word):
        return False
    if classes & (words.TIME | words.ENDS) != 0:
        return first != DIGIT
    if classes & words.NAME != 0:
        return starts or is_quote(class_before(line, next_word))
    if classes & (words.VOLUME | words.MAYBE) != 0 or shape == ACRONYM:
        return starts
    if shape == INITIAL:
        next_end = find_word_end(line, next_word)
        return not is_initial(line, next_word, next_end) and (starts or is_pronoun(line, word))
    return starts or not has_ordinals or not is_numeral_or_capital(line, word)  # XIV. is an ordinal in these languages


@helper
def is_quote(char_class: int) -> bool:
    """Whether a class is of marks that begin a quotation, the apostrophe left out."""
    return char_class == STRAIGHT_DOUBLE or (is_opening(char_class) and group_of(char_class) >= FIRST_QUOTE_GROUP)


# ---- runs of stops ----

# Whether a sentence ends after one. The questions in order: Does what follows allow an end (white space, mostly)? Is
# the stop in a bracket inside a sentence, or in a quotation before a letter without case? Does a word follow with which
# a sentence continues (in lower case, or a name with a verb of speech)? Does a full stop belong to an abbreviation, an
# initial or a number?

IS_EXCLAIM, IS_FULL = 1, 2
_URDU = 0xDB  # the first byte of "۔", which stands after abbreviations, too; no other stop begins with it
_MAX_SKIPPED = 8  # marks before a word
_MAX_NOTE = 5  # bytes from the bracket of a footnote number to its last digit


class Run(NamedTuple):
    """Stops in a row. kinds: bits IS_EXCLAIM and IS_FULL, 0 for dots alone; dots: how many, three for "…"."""

    begin: int
    end: int
    kinds: int
    dots: int


class Closing(NamedTuple):
    """Marks that close right after a run. group: of the last, -1 for none; context: of its opening mark."""

    end: int
    group: int
    context: int


@helper
def read_stop(line: Line, at: int) -> Run:
    """The stop at a position; its end is `at` if there is none."""
    stop, after = class_at(line, at), step(line.rule, at)
    following = class_at(line, after)
    if stop in (DOT, ELLIPSIS):
        return Run(at, after, 0, 1 if stop == DOT else 3)
    if stop == EXCLAIM:
        return Run(at, after, IS_EXCLAIM, 0)
    if stop == FULL or (stop == WIDE_DOT and following not in (LOWER, UPPER, DIGIT)):
        return Run(at, after, IS_FULL, 0)
    if stop == DOUBLE and following == DOUBLE:
        return Run(at, step(line.rule, after), IS_FULL, 0)
    return Run(at, at, 0, 0)


@helper
def read_run(line: Line, begin: int) -> Run:
    """The stops from a position on, among them lone ones after white space, as in ". . ." and "! !"."""
    run = read_stop(line, begin)
    while begin < run.end < line.end:
        at = step(line.rule, run.end) if read_class(line.rule, run.end) == BLANK else run.end
        stop = read_stop(line, at)
        if stop.end == at:
            break
        if at > run.end:
            following = class_at(line, stop.end)
            if is_letter_or_digit(following) or is_stop(following):  # as in ". .NET" and ". ..."
                break
        run = Run(begin, stop.end, run.kinds | stop.kinds, run.dots + stop.dots)
    return run


@helper
def skip_notes(line: Line, at: int) -> int:
    """Skip the numbers of footnotes right after a stop: [1], ²."""
    while at < line.end:
        char_class, after = read_class(line.rule, at), step(line.rule, at)
        if char_class == OPEN_SQUARE:
            number = after
            while after < line.end and after - at < _MAX_NOTE and read_class(line.rule, after) == DIGIT:
                after = step(line.rule, after)
            if after == number or class_at(line, after) != CLOSE_SQUARE:
                break
            after = step(line.rule, after)
        elif char_class != ACCENT:
            break
        at = after
    return at


@helper
def can_end(line: Line, run: Run, closing: Closing) -> bool:
    """Whether what follows a run and its closing marks allows an end: white space, mostly."""
    at = closing.end
    following, is_quotation = class_at(line, at), closing.group >= FIRST_QUOTE_GROUP
    if following == BLANK:
        return True
    if following == DASH:  # “So.”—“No.”
        after = step(line.rule, at)
        return after < line.end and find_role(line, after) == OPENS
    if following in (COMMA, JOIN) or is_stop(following):
        return False
    if run.kinds & IS_FULL != 0:
        return True
    opens = find_role(line, at) == OPENS
    if opens and is_quotation:
        return True
    before = class_before(line, run.begin)
    if following == OTHER and run.kinds != 0:  # ! and ? inside Burmese or Khmer, which has no spaces
        return before in (OTHER, ACCENT) or is_quotation
    # Between Chinese or Japanese letters, and before an opening mark: 真的!好。 Not after Latin letters: Yahoo!知恵袋
    return (following == IDEO or opens) and (is_quotation or before == IDEO)


@helper
def skip_marks(line: Line, at: int) -> tuple[int, bool]:
    """Skip what may stand between a stop and the next word; also tells whether a quotation mark was among it."""
    is_quoted = False
    for _ in range(_MAX_SKIPPED):
        mark = class_at(line, at)
        if is_quote(mark):
            is_quoted = True
        elif mark in (DASH, JOIN):
            at = skip_blanks(line, step(line.rule, at))
            continue
        elif not (is_opening(mark) or mark in (STRAIGHT_SINGLE, CLOSE_SINGLE, LEADING)):
            break
        at = step(line.rule, at)
    return at, is_quoted


@helper
def read_first(line: Line, word: int) -> int:
    """The class of a word's first letter. After the Dutch 's and 't the next word counts: 's Avonds."""
    first, after = class_at(line, word), step(line.rule, word)
    if first != LOWER or class_at(line, after) != BLANK:
        return first
    is_short_form = class_before(line, word) in (STRAIGHT_SINGLE, CLOSE_SINGLE)
    return class_at(line, step(line.rule, after)) if is_short_form else first


@helper
def names_speaker(line: Line, at: int) -> bool:
    """Whether up to four words follow of which the last is a verb of speech, as in “Go!” Mr. Smith said."""
    for _ in range(4):
        word_end = find_word_end(line, at)
        classes = look_up(line.rule, at, word_end)
        if classes & words.SPEECH != 0:
            return True
        # A starter begins a sentence instead, except I: “Go!” I said.
        is_new = classes & words.STARTER != 0 and not is_i(line, at)
        if word_end == at or read_class(line.rule, at) != UPPER or is_new:
            return False
        if classes & words.TITLE != 0 and class_at(line, word_end) == DOT:
            word_end += 1
        at = skip_blanks(line, word_end)
        if at in (word_end, line.end):
            return False
    return False


@helper
def is_lower_text(line: Line) -> bool:
    """Whether lower case does not show in this line that a sentence continues.

    So it is in English with the word i; in a line that begins in lower case, but has capitals; and in text without
    capitals: the line has none, and two full stops after ordinary words, or one inside of it and another stop.
    """
    if item(line.state, CASE) == UNKNOWN:
        at, num_dots, num_inner, has_other = line.begin, 0, 0, False
        while at < line.end and read_class(line.rule, at) != UPPER:
            char_class = read_class(line.rule, at)
            if char_class == DOT and num_dots < 2:
                following = class_at(line, at + 1)
                is_before_end = following in (BLANK, STRAIGHT_DOUBLE) or is_closing(following)
                is_whole = is_before_end and class_before(line, at) != DOT and is_ordinary(line, at)
                num_dots += is_whole
                num_inner += is_whole and at + 1 < line.end
            has_other |= char_class == EXCLAIM
            at = step(line.rule, at)
        is_without = num_dots == 2 or (num_inner > 0 and has_other)
        is_lower = is_without if at >= line.end else read_class(line.rule, line.begin) == LOWER
        is_lower |= item(line.rule.settings, HAS_PRONOUN_I) != 0 and has_small_i(line)
        put(line.state, CASE, YES if is_lower else NO)
    return bool(item(line.state, CASE) == YES)


@helper
def has_small_i(line: Line) -> bool:
    """Whether the word i stands between two spaces."""
    utf8 = line.rule.utf8
    for at in range(line.begin, line.end - 2):
        if item(utf8, at + 1) == _SMALL_I and item(utf8, at) == SPACE and item(utf8, at + 2) == SPACE:
            return True
    return False


@helper
def continues_in_lower_case(line: Line, run: Run, is_quotation: bool) -> bool:
    """Whether lower case after a run shows that a sentence continues. is_quotation: whether a quotation ends there."""
    if is_quotation or (run.kinds == 0 and run.dots > 1) or not is_lower_text(line):
        return True
    return run.kinds == 0 and not is_ordinary(line, run.begin)


@helper
def is_end(line: Line, run: Run, closing: Closing) -> bool:
    """Whether a sentence ends after a run and what closes after it, where `can_end` allows it."""
    group = closing.group
    is_spaced, is_quotation = class_at(line, closing.end) == BLANK, group >= FIRST_QUOTE_GROUP
    is_one_dot, are_dots = run.kinds == 0 and run.dots == 1, run.kinds == 0 and run.dots > 1
    next_word, is_quoted = skip_marks(line, skip_blanks(line, closing.end))
    first = read_first(line, next_word)
    if not has_word(line, closing.end):
        return False
    if 0 <= group < FIRST_QUOTE_GROUP and closing.context != FIRST_IN_SENTENCE:
        return False  # the stop belongs to a parenthesis
    if group == TITLE_MARKS and not is_spaced:  # 《谁？》 names a work
        return False
    left = class_before(line, run.begin)
    if run.dots > 1 and is_opening(left) and group_of(left) < FIRST_QUOTE_GROUP:  # [...]
        return False
    if is_quotation and OTHER <= first <= IDEO and not is_quoted:
        # No capital shows whether the sentence continues. It does after a quotation that begins it (“真的吗？”她问。)
        # or that stands right after a letter (他说“好。”). It ends after one that follows a space or a mark inside it,
        # unless hiragana, such as と, come next.
        code, _ = read_character(line.rule.utf8, next_word)
        return closing.context == ELSEWHERE and not 0x3040 <= code < 0x30A0
    if run.kinds & IS_FULL != 0:
        return item(line.rule.utf8, run.begin) != _URDU or ends_at_dot(line, run.begin, next_word)
    # After one full stop a quotation in lower case may begin a sentence: 'it is so.' 'is it?'
    is_lower = first == LOWER and not is_starter(line, next_word)  # “http” is a starter
    if is_lower and not (is_quoted and is_one_dot) and continues_in_lower_case(line, run, is_quotation):
        return False
    is_speech = is_quotation or class_at(line, item(line.state, SENTENCE)) == DASH  # — Go! Tom cried.
    if is_speech and not is_one_dot and names_speaker(line, next_word):
        return False
    if are_dots:  # before the word I, up to three dots are a pause, and more end a sentence: I ... I know.... I do.
        return is_spaced and first != DIGIT and (run.dots > 3 or not is_i(line, next_word))
    # At the end of a quotation the word before the full stop does not matter.
    return not is_one_dot or is_quotation or ends_at_dot(line, run.begin, next_word)


# ---- lines ----

# What is known of a line, as bits. HAS_STOP: at its end, or a dash. HAS_COMMA, HAS_COLON: at its end, a colon also
# before a dash. LEADS_IN: its end may lead in what is quoted on the next line. IS_QUOTED: it begins with a quotation
# mark. IS_NUMBERED: it is a number, with two words at most, as in "Article 5" and "24."
HAS_STOP, HAS_COMMA, HAS_COLON, LEADS_IN, IS_QUOTED, IS_NUMBERED = (1 << i for i in range(6))
_MAX_NUMBERED = 48  # bytes of such a line
_COLONS = (ord(":"), "：".encode()[-1])  # the last bytes of both; those of no other comma
_CLOSE, _HYPHEN, _APPENDICES = ord(")"), ord("-"), tuple(b"[:;")


@helper
def pass_closing(line: Line, at: int) -> Closing:
    """Close the marks right after a stop. Before some, a space may stand: « Oui ! »"""
    closing = Closing(at, -1, ELSEWHERE)
    while closing.end < line.end:
        mark = closing.end
        after = step(line.rule, mark)
        if read_class(line.rule, mark) == BLANK and after < line.end:
            mark = after
            char_class = read_class(line.rule, mark)
            if char_class < FIRST_PAIR or group_of(char_class) not in (ANGLE, DOUBLE_CURLY):
                break
        if find_role(line, mark) != CLOSES:
            break
        group = group_of(read_class(line.rule, mark))
        closing = Closing(step(line.rule, mark), group, close_mark(line, group, mark))
    return closing


@helper
def skip_appendix(line: Line, closing: Closing) -> Closing:
    """Skip the numbers of footnotes or a smiley after a space, as in "So it is. [12]" and "So it is. :-)"."""
    utf8, at = line.rule.utf8, closing.end + 1
    if at >= line.end or item(utf8, at - 1) != SPACE or item(utf8, at) not in _APPENDICES:
        return closing
    end = skip_notes(line, at)
    if end == at:
        end += 1 + (item(utf8, at + 1) == _HYPHEN)
        end = end + 1 if item(utf8, end) == _CLOSE else at
    is_appendix = end > at and (end == line.end or item(utf8, end) == SPACE)
    return Closing(end, closing.group, closing.context) if is_appendix else closing


@helper
def add_end(line: Line, at: int) -> None:
    """End the sentence at a position, and begin the next one."""
    num_ends = item(line.state, NUM_ENDS)
    put(line.ends, num_ends, at)
    put(line.state, NUM_ENDS, num_ends + 1)
    begin_sentence(line, at)


@helper
def pass_stop(line: Line, at: int) -> int:
    """End the sentence after the run of stops at a position if it ends there. Returns where the loop continues."""
    run = read_run(line, at)
    if run.end == at:  # no stop here, although its class is one: a wide dot before a digit, for example
        return step(line.rule, at)
    closing = skip_appendix(line, pass_closing(line, skip_notes(line, run.end)))
    put(line.state, LAST_STOP, closing.end)
    if closing.end < line.end and can_end(line, run, closing) and is_end(line, run, closing):
        add_end(line, closing.end)
    return closing.end


@helper
def read_marker(line: Line, stop: int) -> tuple[int, int, int]:
    """Where the marker of a list item begins, its number, and its style, which is 0 if there is no marker.

    A marker is a number of up to three digits or a small letter (a is 1), then a full stop, a closing bracket, or both,
    as `2.`, `b)` and `3.)`. White space surrounds it; a bullet may precede it. stop: of the full stop or bracket.
    """
    utf8, delimiter, after = line.rule.utf8, item(line.rule.utf8, stop), step(line.rule, stop)
    if delimiter == FULL_STOP and after < line.end and item(utf8, after) == _CLOSE:
        delimiter, after = FULL_STOP - 1, after + 1  # both: a value that no single delimiter has
    at, number = stop, 0
    while at > line.begin and stop - at < 3 and is_digit(item(utf8, at - 1)):
        at -= 1
    for i in range(at, stop):
        number = 10 * number + item(utf8, i) - DIGIT_0
    style = 2 * delimiter  # odd for letters
    if at == stop and at > line.begin and SMALL_A <= item(utf8, at - 1) <= SMALL_Z:
        at, style = at - 1, style + 1
        number = item(utf8, at) - SMALL_A + 1
    if at == stop or class_at(line, after) != BLANK:
        return stop, 0, 0
    return at, number, style if class_before(line, at) in (BLANK, BULLET) else 0


@helper
def pass_marker(line: Line, stop: int) -> None:
    """End the sentence before a marker if the line began with one of this style, and this number is the next."""
    at, number, style = read_marker(line, stop)
    if style == 0:
        return
    at = skip_blanks_back(line, at)
    if at > line.begin and class_before(line, at) == BULLET:
        at = skip_blanks_back(line, step_back(line.rule.utf8, at))
    if at == line.begin:
        put(line.state, LIST_NUMBER, number)
        put(line.state, LIST_STYLE, style)
    elif style == item(line.state, LIST_STYLE) and number == item(line.state, LIST_NUMBER) + 1:
        put(line.state, LIST_NUMBER, number)
        if has_word(line, at):
            add_end(line, at)


@helper
def pass_bullet(line: Line, at: int) -> None:
    """End the sentence before a bullet, where the line began with one and white space precedes it."""
    is_list = read_class(line.rule, line.begin) == BULLET and class_before(line, at) == BLANK
    if is_list and has_word(line, at):
        add_end(line, skip_blanks_back(line, at))


@helper
def pass_mark(line: Line, at: int) -> None:
    """Open or close the mark at a position, if there is one."""
    role, group = find_role(line, at), group_of(read_class(line.rule, at))
    if role == OPENS:
        open_mark(line, group, at)
    elif role == CLOSES:
        close_mark(line, group, at)


@helper
def segment_line(line: Line, size: int) -> None:
    """Write where the sentences of a line end. size: of the whole text."""
    state, rule = line.state, line.rule
    put(state, DEPTH, 0)
    put(state, LIST_STYLE, 0)
    put(state, LAST_STOP, -1)
    put(state, CASE, UNKNOWN)
    begin_sentence(line, line.begin)
    at = skip_plain(rule, line.begin, size)
    while at < line.end:
        char_class = read_class(rule, at)
        if char_class in (DOT, CLOSE_ROUND):
            pass_marker(line, at)
        if is_stop(char_class):
            at = pass_stop(line, at)
        else:
            if char_class == BULLET:
                pass_bullet(line, at)
            else:
                pass_mark(line, at)
            at = step(rule, at)
        at = skip_plain(rule, at, size)
    num_ends = item(state, NUM_ENDS)
    if num_ends > line.first_end and not has_word(line, line.end):
        num_ends -= 1  # a rest without a letter or digit belongs to the sentence before
    put(line.ends, num_ends, line.end)
    put(state, NUM_ENDS, num_ends + 1)


@helper
def is_broken_off(line: Line) -> bool:
    """Whether a line ends with a dash, before up to three quotation marks or brackets: “But if—”."""
    at = line.end
    for _ in range(4):
        char_class = class_before(line, at)
        if char_class == DASH:
            return True
        if char_class < STRAIGHT_SINGLE:  # no quotation mark or bracket
            return False
        at = step_back(line.rule.utf8, at)
    return False


@helper
def is_numbered(line: Line) -> bool:
    """Whether a line is a number and at most two words: Yang ni 3., 24., Chapter XII. Roman numerals stand last."""
    at, num_words, num_numbers, is_roman = line.begin, 0, 0, False  # is_roman: the last word is a numeral
    if line.end - at > _MAX_NUMBERED or class_before(line, line.end) in (EXCLAIM, ELLIPSIS):
        return False
    while at < line.end:
        char_class, has_digit, begin = read_class(line.rule, at), False, at
        if is_quote(char_class):
            return False
        while is_letter_or_digit(char_class) or char_class == ACCENT:
            has_digit |= char_class == DIGIT
            at = step(line.rule, at)
            char_class = class_at(line, at)
        if at == begin:
            at = step(line.rule, at)
            continue
        num_words += is_roman
        is_roman = has_only_numerals(line, begin, at, 0)
        num_numbers += has_digit
        num_words += not has_digit and not is_roman
    return num_numbers + is_roman == 1 and num_words <= 2


@helper
def describe_line(line: Line) -> int:
    """What is known of a line that is segmented: the bits above."""
    last, is_quoted = class_before(line, line.end), is_quote(read_class(line.rule, line.begin))
    found = HAS_STOP * (item(line.state, LAST_STOP) == line.end or is_broken_off(line))
    if last == COMMA:
        found |= HAS_COLON if item(line.rule.utf8, line.end - 1) in _COLONS else HAS_COMMA | LEADS_IN
    elif last == DASH or (last == JOIN and class_before(line, line.end - 1) == COMMA):  # — and :-
        at = step_back(line.rule.utf8, line.end)
        is_after_colon = class_before(line, at) == COMMA and item(line.rule.utf8, at - 1) in _COLONS
        found |= HAS_COLON if is_after_colon else LEADS_IN
    return int(found | IS_QUOTED * is_quoted | IS_NUMBERED * is_numbered(line))


@kernel
def segment_lines(rule: SentenceRule, line_offsets: np.ndarray, segmented: Segmented, filled: int) -> int:
    """Write where sentences begin and end, from index `filled` on, and return how many there are then.

    line_offsets: of the lines to segment, and the end of the last one.
    """
    size = len(rule.utf8)
    tables = pointer(rule.hashes), pointer(rule.word_classes), pointer(rule.settings)
    found = SentenceRule(pointer(rule.utf8), pointer(rule.ascii_classes), pointer(rule.classes), *tables)
    states = np.zeros(STATE_SIZE, np.int64)
    state, offsets = pointer(states), pointer(line_offsets)
    begins, ends = pointer(segmented.begins), pointer(segmented.ends)
    put(state, NUM_ENDS, filled)
    for i in range(len(line_offsets) - 1):
        begin, end = item(offsets, i), item(offsets, i + 1) - 1
        first = item(state, NUM_ENDS)
        line = Line(found, begin, end, state, ends, first)
        segment_line(line, size)
        for sentence in range(first, item(state, NUM_ENDS)):
            put(begins, sentence, begin)
            begin = item(ends, sentence)
            begin += begin < end and item(found.utf8, begin) == SPACE  # a canonical line has no other white space
        segmented.counts[i], segmented.kinds[i] = item(state, NUM_ENDS) - first, describe_line(line)
    return int(item(state, NUM_ENDS))
