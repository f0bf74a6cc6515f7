"""Whether a full stop ends a sentence, or belongs to an abbreviation, an initial, an ordinal or the number of an item.

In: a full stop and the next word, whose case does not show that the sentence continues. The word before the stop
decides by its word classes (words.py) and its shape, the next word by whether sentences often begin with it.
"""

from __future__ import annotations

from albert_data.ascii import FULL_STOP, SPACE
from albert_data.kernels import helper, item
from albert_data.sentences.characters import (
    ACCENT,
    BLANK,
    CLOSE_SINGLE,
    DIGIT,
    DOT,
    FIRST_QUOTE_GROUP,
    HANGUL,
    HAS_ORDINALS,
    JOIN,
    STRAIGHT_DOUBLE,
    STRAIGHT_SINGLE,
    UPPER,
    Line,
    class_at,
    class_before,
    is_letter,
    is_letter_or_digit,
    is_opening,
    read_class,
    step,
)
from albert_data.sentences.marks import SENTENCE, group_of, has_word
from albert_data.sentences.words import (
    ABBREVIATIONS,
    ENDS,
    LEAD,
    MAX_WORD,
    MAYBE,
    NAME,
    NUMBER,
    PRONOUN,
    STARTER,
    TIME,
    TITLE,
    VOLUME,
    look_up,
)
from albert_data.utf8 import step_back

# Shapes of words: INITIAL is one letter, ACRONYM single letters joined by full stops, DIGITS digits alone, ORDINARY the
# rest.
ORDINARY, INITIAL, ACRONYM, DIGITS = range(4)
_MAX_LEAD = 32  # bytes from the beginning of a sentence to its time, as in "At half past 5 a.m."
_I, _NUMERALS = ord("I"), tuple(b"IVXLC")  # without D and M, which are initials; numerals above 399 are rare


@helper
def is_joint(line: Line, at: int, char_class: int) -> bool:
    """Whether a mark, such as a hyphen or an apostrophe, continues the word before it."""
    left = class_before(line, at)
    return char_class in (JOIN, STRAIGHT_SINGLE, CLOSE_SINGLE) and (is_letter_or_digit(left) or left in (ACCENT, DOT))


@helper
def find_token(line: Line, stop: int) -> tuple[int, int, int]:
    """Where the word before a full stop begins, where its last part begins, and its shape.

    Its parts are joined by full stops, hyphens and apostrophes. A white space joins single letters with full stops, as
    in "p. m" and "U. S". The search goes backwards, and ends soon after MAX_WORD bytes.
    """
    at, last, shape = stop, -1, INITIAL
    letters, digits = 0, 0  # of the present part
    while at > line.begin and stop - at <= MAX_WORD:
        before = step_back(line.source.utf8, at)
        char_class = read_class(line.source, before)
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
    is_syllable = shape == INITIAL and read_class(line.source, at) >= HANGUL
    if letters != 1 or digits > 0 or is_syllable:  # the first part must be a single letter, too
        shape = ORDINARY
    return at, at if last < 0 else last, shape


@helper
def find_initial(line: Line, end: int) -> int:
    """Where a single letter begins that has a full stop, which ends at `end`; -1 if no such letter is there."""
    if end == line.begin or item(line.source.utf8, end - 1) != FULL_STOP:
        return -1
    at, letters = end - 1, 0
    while at > line.begin and end - at <= MAX_WORD:
        before = step_back(line.source.utf8, at)
        char_class = read_class(line.source, before)
        if is_letter(char_class) and letters == 0:
            letters = 1
        elif char_class != ACCENT or letters == 1:
            stands_alone = char_class in (BLANK, DOT, STRAIGHT_SINGLE, STRAIGHT_DOUBLE) or is_opening(char_class)
            return at if letters == 1 and stands_alone else -1
        at = before
    return at if letters == 1 else -1


@helper
def find_word_end(line: Line, at: int) -> int:
    """Where the letters and digits from a position on end, or somewhat more than MAX_WORD bytes of them."""
    first = at
    while at < line.end and at - first <= MAX_WORD:
        char_class = read_class(line.source, at)
        if not (is_letter_or_digit(char_class) or char_class == ACCENT):
            break
        at = step(line.source, at)
    return at


@helper
def is_single(line: Line, word: int, word_end: int) -> bool:
    """Whether a word is one letter."""
    return is_letter(read_class(line.source, word)) and step(line.source, word) == word_end


@helper
def is_i(line: Line, word: int) -> bool:
    """Whether the word at a position is I."""
    return item(line.source.utf8, word) == _I and find_word_end(line, word) == word + 1


@helper
def is_initial(line: Line, word: int, word_end: int) -> bool:
    """Whether a word is one letter before a full stop."""
    return class_at(line, word_end) == DOT and is_single(line, word, word_end)


@helper
def is_starter(line: Line, word: int) -> bool:
    """Whether sentences often begin with the word at a position, and it is no initial."""
    word_end = find_word_end(line, word)
    return not is_initial(line, word, word_end) and look_up(line.source, word, word_end) & STARTER != 0


@helper
def has_only_numerals(line: Line, word: int, end: int, case_bit: int) -> bool:
    """Whether word .. end consists of I, V, X, L and C alone. case_bit: 32 for those in lower case, else 0."""
    for at in range(word, end):
        byte = item(line.source.utf8, at) - case_bit
        if byte not in _NUMERALS:
            return False
    return True


@helper
def is_numeral_or_capital(line: Line, word: int) -> bool:
    """Whether a Roman numeral or a single capital letter is at a position."""
    word_end = find_word_end(line, word)
    if read_class(line.source, word) == UPPER and step(line.source, word) == word_end:
        return True
    return word_end > word and has_only_numerals(line, word, word_end, 0)


@helper
def begins_with_lead(line: Line, word: int) -> bool:
    """Whether the sentence is short up to the word, and begins with a lead, as in "At half past 5 a.m."."""
    sentence = item(line.state, SENTENCE)
    first_end = min(find_word_end(line, sentence), word)
    return word - sentence <= _MAX_LEAD and look_up(line.source, sentence, first_end) & LEAD != 0


@helper
def is_pronoun(line: Line, word: int) -> bool:
    """Whether the I before a full stop is the pronoun, as the word before it shows: You and I."""
    utf8 = line.source.utf8
    if item(utf8, word) != _I or word == line.begin or item(utf8, word - 1) != SPACE:
        return False
    at = word - 1
    while at > line.begin and word - at <= MAX_WORD and is_letter(class_before(line, at)):
        at = step_back(utf8, at)
    return look_up(line.source, at, word - 1) & PRONOUN != 0


@helper
def is_item(line: Line, word: int, stop: int, shape: int) -> bool:
    """Whether a number, a letter or a Roman numeral begins the sentence, and so numbers it, as in "2. Second"."""
    if has_word(line, word):
        return False
    if read_class(line.source, word) == DIGIT:
        return stop - word <= (3 if shape == DIGITS else 4)  # up to three digits (999.), or two and an ending (99th.)
    return shape == INITIAL or is_numeral_or_capital(line, word)


@helper
def find_word_classes(line: Line, word: int, last: int, stop: int) -> int:
    """The word classes of the word before a full stop; if it has none, those of its last part."""
    found = look_up(line.source, word, stop)
    return look_up(line.source, last, stop) if found == 0 and last > word else found


@helper
def is_ordinary(line: Line, stop: int) -> bool:
    """Whether the word before a full stop is no abbreviation, and no initial, acronym or Roman numeral.

    Only asked in text without capitals, so the numerals are in lower case.
    """
    word, last, shape = find_token(line, stop)
    if stop - word > MAX_WORD or word == stop:
        return True
    if shape in (INITIAL, ACRONYM) or has_only_numerals(line, word, stop, 32):
        return False
    return find_word_classes(line, word, last, stop) & ABBREVIATIONS == 0


@helper
def ends_at_dot(line: Line, stop: int, next_word: int) -> bool:
    """Whether a sentence ends with a full stop, where the case of the next word does not forbid it."""
    word, last, shape = find_token(line, stop)
    first, starts = class_at(line, next_word), is_starter(line, next_word)
    has_ordinals = item(line.source.settings, HAS_ORDINALS) != 0
    if stop - word > MAX_WORD or word == stop:
        return True
    if is_item(line, word, stop, shape):
        return False
    if shape == DIGITS:
        # In some languages it is an ordinal: 5. Januar, 24. 12. 2020. One of three digits or more is rather a year.
        return not has_ordinals or starts or (stop - word > 2 and first != DIGIT)
    classes = find_word_classes(line, word, last, stop)
    if classes & TITLE != 0 or (classes & NUMBER != 0 and first == DIGIT):
        return False
    if classes & VOLUME != 0 and (first == DIGIT or is_numeral_or_capital(line, next_word)):
        return False
    if classes & TIME != 0 and begins_with_lead(line, word):
        return False
    if classes & (TIME | ENDS) != 0:
        return first != DIGIT
    if classes & NAME != 0:
        return starts or is_quote(class_before(line, next_word))
    if classes & (VOLUME | MAYBE) != 0 or shape == ACRONYM:
        return starts
    if shape == INITIAL:
        next_end = find_word_end(line, next_word)
        return not is_initial(line, next_word, next_end) and (starts or is_pronoun(line, word))
    return starts or not has_ordinals or not is_numeral_or_capital(line, word)  # XIV. is an ordinal in these languages


@helper
def is_quote(char_class: int) -> bool:
    """Whether a class is of marks that begin a quotation, the apostrophe left out."""
    return char_class == STRAIGHT_DOUBLE or (is_opening(char_class) and group_of(char_class) >= FIRST_QUOTE_GROUP)
