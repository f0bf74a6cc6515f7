"""What a stop does: whether a sentence ends with it.

The order of the questions: is it followed by what only goes on (a lower-case letter, a comma)? Does it belong to a
quotation or bracket inside a sentence? Does a full stop belong to an abbreviation, an initial, a number?
"""

from __future__ import annotations

from albert_data.kernels import Pointer, helper, item, put
from albert_data.sentences.kinds import (
    BLANK,
    CLOSE_SINGLE,
    DASH,
    DIGIT,
    DOT,
    FIRST_PAIR,
    FIRST_QUOTE,
    HANGUL,
    IDEO,
    INVERTED,
    JOIN,
    LOWER,
    MARK,
    OTHER,
    STRAIGHT_DOUBLE,
    STRAIGHT_SINGLE,
    TITLE_MARKS,
    UPPER,
    Source,
    is_opening,
    is_word_kind,
    kind_at,
    kind_before,
    read_kind,
    skip_blanks,
    step,
    step_back,
)
from albert_data.sentences.marks import CASE, ELSEWHERE, IS_FIRST, LINE, SENTENCE, find_any_word, group_of
from albert_data.sentences.words import (
    ABBREVIATIONS,
    ENDS,
    LEAD,
    MAX_WORD,
    MAYBE,
    NAME,
    NUMBER,
    PRONOUN,
    SPEECH,
    STARTER,
    TIME,
    TITLE,
    VOLUME,
    look_up,
)

IS_EXCLAIM, IS_FULL = 1, 2  # the strength of a run of stops; 0 for dots alone
ORDINARY, INITIAL, ACRONYM, DIGITS = range(4)  # shapes of words
_MAX_LEAD = 32  # bytes
_I = ord("I")
_URDU = 0xDB  # the first byte of ۔, which abbreviations have, too
_MAX_SKIPPED = 8  # marks before a word


@helper
def is_letter(kind: int) -> bool:
    return LOWER <= kind <= IDEO


@helper
def is_joint(source: Source, begin: int, at: int, kind: int) -> bool:
    """Whether a hyphen or an apostrophe joins the part of a word before it to the next one."""
    before = kind_before(source, begin, at)
    return kind in (JOIN, STRAIGHT_SINGLE, CLOSE_SINGLE) and (is_word_kind(before) or before in (MARK, DOT))


@helper
def find_token(source: Source, begin: int, stop: int) -> tuple[int, int, int]:
    """Where the word before a full stop begins, where its last part does, and its shape.

    Its parts are joined by full stops, hyphens, apostrophes; single letters with full stops also by white space, as in
    "p. m" and "U. S".
    """
    at, last, shape = stop, -1, INITIAL
    letters, digits = 0, 0  # of the part so far
    while at > begin and stop - at <= MAX_WORD:
        before = step_back(source, at)
        kind = read_kind(source, before)
        if is_letter(kind):
            letters += 1
        elif kind == DIGIT:
            digits += 1
        elif kind == DOT or is_joint(source, begin, before, kind):
            if letters != 1 or digits > 0 or kind != DOT:
                shape = ORDINARY
            elif shape == INITIAL:
                shape = ACRONYM
            last = at if last < 0 else last
            letters, digits = 0, 0
        elif kind == BLANK:
            initial = find_initial(source, begin, before) if letters == 1 and digits == 0 else -1
            if initial < 0:
                break
            last = at if last < 0 else last
            shape = ACRONYM if shape == INITIAL else shape
            before = initial
        elif kind != MARK:
            break
        at = before
    if last < 0 and letters == 0 and digits > 0:
        return at, at, DIGITS
    if letters != 1 or digits > 0 or shape == INITIAL and read_kind(source, at) >= HANGUL:
        shape = ORDINARY
    return at, at if last < 0 else last, shape


@helper
def find_initial(source: Source, begin: int, end: int) -> int:
    """Where the single letter begins whose full stop ends there; -1 for anything else."""
    if end == begin or item(source.utf8, end - 1) != 46:
        return -1
    at, letters = end - 1, 0
    while at > begin and end - at <= MAX_WORD:
        before = step_back(source, at)
        kind = read_kind(source, before)
        if is_letter(kind) and letters == 0:
            letters = 1
        elif kind != MARK or letters == 1:
            is_whole = kind in (BLANK, DOT) or is_opening(kind) or STRAIGHT_SINGLE <= kind <= STRAIGHT_DOUBLE
            return at if letters == 1 and is_whole else -1
        at = before
    return at if letters == 1 else -1


@helper
def is_quote(kind: int) -> bool:
    """Whether it is a mark that begins a quotation, no apostrophe."""
    return kind == STRAIGHT_DOUBLE or (is_opening(kind) and group_of(kind) >= FIRST_QUOTE)


@helper
def skip_marks(source: Source, at: int, end: int) -> tuple[int, bool]:
    """Skip what may stand between a stop and the next word; also whether a quotation mark was among it."""
    is_quoted = False
    for _ in range(_MAX_SKIPPED):
        kind = kind_at(source, at, end)
        if is_quote(kind):
            is_quoted = True
        elif kind in (DASH, JOIN):
            at = skip_blanks(source, step(source, at), end)
            continue
        elif not (is_opening(kind) or kind in (STRAIGHT_SINGLE, CLOSE_SINGLE, INVERTED)):
            break
        at = step(source, at)
    return at, is_quoted


@helper
def find_word_end(source: Source, at: int, end: int) -> int:
    """The end of the letters and digits that begin there, or of the first 48 bytes of them."""
    first = at
    while at < end and at - first <= MAX_WORD:
        kind = read_kind(source, at)
        if not (is_word_kind(kind) or kind == MARK):
            break
        at = step(source, at)
    return at


@helper
def is_single(source: Source, word: int, word_end: int) -> bool:
    """Whether a word is one letter."""
    return is_letter(read_kind(source, word)) and step(source, word) == word_end


@helper
def is_starter(source: Source, word: int, end: int) -> bool:
    """Whether sentences often begin with the word that stands there, and it is no initial."""
    word_end = find_word_end(source, word, end)
    if kind_at(source, word_end, end) == DOT and is_single(source, word, word_end):
        return False
    return bool(look_up(source, word, word_end) & STARTER != 0)


@helper
def has_only_numerals(source: Source, word: int, end: int, lower: int) -> bool:
    """Whether no others than the letters I, V, X, L, C stand there. lower: 32 for lower-case ones, else 0."""
    for at in range(word, end):
        byte = item(source.utf8, at) - lower
        if byte != 73 and byte != 86 and byte != 88 and byte != 76 and byte != 67:
            return False
    return True


@helper
def is_roman(source: Source, word: int, end: int) -> bool:
    """Whether a Roman numeral or a single capital letter stands there."""
    word_end = find_word_end(source, word, end)
    if read_kind(source, word) == UPPER and step(source, word) == word_end:
        return True
    return word_end > word and has_only_numerals(source, word, word_end, 0)


@helper
def names_speaker(source: Source, at: int, end: int) -> bool:
    """Whether up to four words follow of which the last is a verb of speech, as in “Go!” Mr. Smith said."""
    for _ in range(4):
        word_end = find_word_end(source, at, end)
        classes = look_up(source, at, word_end)
        is_i = item(source.utf8, at) == _I and word_end == at + 1
        if classes & SPEECH != 0:
            return True
        if word_end == at or read_kind(source, at) != UPPER or (classes & STARTER != 0 and not is_i):
            return False
        if classes & TITLE != 0 and kind_at(source, word_end, end) == DOT:
            word_end += 1
        at = skip_blanks(source, word_end, end)
        if at in (word_end, end):
            return False
    return False


@helper
def begins_with_lead(source: Source, sentence: int, word: int) -> bool:
    """Whether the sentence is as short as in At half past 5 a.m., and begins with such a word."""
    return word - sentence <= _MAX_LEAD and look_up(source, sentence, find_word_end(source, sentence, word)) & LEAD != 0


@helper
def is_pronoun(source: Source, begin: int, word: int) -> bool:
    """Whether the I before a full stop is the pronoun: the word before it is one that says so."""
    if item(source.utf8, word) != _I or word == begin or item(source.utf8, word - 1) != 32:
        return False
    at = word - 1
    while at > begin and word - at <= MAX_WORD and is_letter(read_kind(source, step_back(source, at))):
        at = step_back(source, at)
    return bool(look_up(source, at, word - 1) & PRONOUN != 0)


@helper
def is_hiragana(source: Source, at: int) -> bool:
    second = item(source.utf8, at + 1)
    return bool(
        item(source.utf8, at) == 0xE3 and (second == 0x81 or (second == 0x82 and item(source.utf8, at + 2) < 0xA0))
    )


@helper
def is_item(source: Source, state: Pointer, word: int, stop: int, shape: int) -> bool:
    """Whether a number, a letter or a Roman numeral begins the sentence: it names what follows, as in 2. Second."""
    if find_any_word(source, state, word):
        return False
    if read_kind(source, word) == DIGIT:
        return stop - word <= (3 if shape == DIGITS else 4)  # 3. and 3rd.
    return shape == INITIAL or is_roman(source, word, stop)


@helper
def ends_number(source: Source, word: int, stop: int, first: int, starts: bool) -> bool:
    """The same after a number: in some languages the full stop makes it an ordinal, as in 5. Januar, 24. 12. 2020."""
    return item(source.settings, 1) == 0 or starts or (stop - word > 2 and first != DIGIT)


@helper
def find_classes(source: Source, word: int, last: int, stop: int) -> int:
    """The classes of the word before a full stop, or else of its last part."""
    classes = look_up(source, word, stop)
    return look_up(source, last, stop) if classes == 0 and last > word else classes


@helper
def ends_at_dot(source: Source, state: Pointer, stop: int, next_word: int, end: int) -> bool:
    """Whether a sentence ends with a full stop, where the next word is not in lower case."""
    begin = item(state, LINE)
    word, last, shape = find_token(source, begin, stop)
    first, starts = kind_at(source, next_word, end), is_starter(source, next_word, end)
    if stop - word > MAX_WORD or word == stop:
        return True
    if is_item(source, state, word, stop, shape):
        return False
    if shape == DIGITS:
        return ends_number(source, word, stop, first, starts)
    classes = find_classes(source, word, last, stop)
    if classes & TITLE != 0 or (classes & NUMBER != 0 and first == DIGIT):
        return False
    if classes & VOLUME != 0 and (first == DIGIT or is_roman(source, next_word, end)):
        return False
    if classes & TIME != 0 and begins_with_lead(source, item(state, SENTENCE), word):
        return False
    if classes & (TIME | ENDS) != 0:
        return first != DIGIT
    if classes & NAME != 0:
        return starts or is_quote(kind_before(source, begin, next_word))
    if classes & (VOLUME | MAYBE) != 0 or shape == ACRONYM:
        return starts
    if shape == INITIAL:
        next_end = find_word_end(source, next_word, end)
        if is_single(source, next_word, next_end) and kind_at(source, next_end, end) == DOT:
            return False
        return starts or is_pronoun(source, begin, word)
    return starts or item(source.settings, 1) == 0 or not is_roman(source, word, stop)


@helper
def read_first(source: Source, word: int, end: int) -> int:
    """The kind that a word begins with; of the Dutch 's and 't that of the next one."""
    kind, then = kind_at(source, word, end), step(source, word)
    if kind == LOWER and kind_at(source, then, end) == BLANK:
        left = kind_before(source, 0, word)
        if left in (STRAIGHT_SINGLE, CLOSE_SINGLE):
            return kind_at(source, step(source, then), end)
    return kind


@helper
def is_omission(source: Source, begin: int, stop: int) -> bool:
    """Whether dots stand in brackets of their own: [...]."""
    left = kind_before(source, begin, stop)
    return is_opening(left) and group_of(left) < FIRST_QUOTE


@helper
def is_ordinary(source: Source, begin: int, stop: int) -> bool:
    """Whether the word before a full stop is no abbreviation, and no initial, acronym or Roman numeral."""
    word, last, shape = find_token(source, begin, stop)
    if stop - word > MAX_WORD or word == stop:
        return True
    if shape in (INITIAL, ACRONYM) or has_only_numerals(source, word, stop, 32):
        return False
    return find_classes(source, word, last, stop) & ABBREVIATIONS == 0


@helper
def is_sole_dot(source: Source, begin: int, at: int, end: int) -> bool:
    """Whether a full stop stands alone, before white space or a closing mark."""
    then = kind_at(source, at + 1, end)
    is_before_end = then in (BLANK, STRAIGHT_DOUBLE) or (then >= FIRST_PAIR and then & 1 == 1)
    return is_before_end and kind_before(source, begin, at) != DOT


@helper
def is_lower_text(source: Source, state: Pointer, end: int) -> bool:
    """Whether the line is text of lower-case letters alone, in which such a letter does not show that a sentence goes
    on: it has no capital, and two full stops after ordinary words.
    """
    if item(state, CASE) == 0:
        begin = at = item(state, LINE)
        num_stops = 0
        while at < end:
            kind = read_kind(source, at)
            if kind == UPPER:
                break
            if kind == DOT and num_stops < 2 and is_sole_dot(source, begin, at, end):
                num_stops += is_ordinary(source, begin, at)
            at = step(source, at)
        put(state, CASE, 2 if at >= end and num_stops == 2 else 1)
    return bool(item(state, CASE) == 2)


@helper
def is_end(
    source: Source, state: Pointer, stop: int, strength: int, dots: int, group: int, place: int, at: int, end: int
) -> bool:
    """Whether a sentence ends at `at`, after a run of stops and the marks that close after it.

    strength: of the run, see `read_run`; dots: in it. group: of the last mark that closed, or -1; place: where the one
    stands that it closes (see `open_mark`).
    """
    is_spaced = kind_at(source, at, end) == BLANK
    next_word, is_quoted = skip_marks(source, skip_blanks(source, at, end), end)
    first = read_first(source, next_word, end)
    if not find_any_word(source, state, at):
        return False
    if 0 <= group < FIRST_QUOTE and place != IS_FIRST:
        return False  # the stop belongs to a parenthesis
    if group == TITLE_MARKS and not is_spaced:
        return False
    if dots > 1 and is_omission(source, item(state, LINE), stop):
        return False
    if group >= FIRST_QUOTE and (OTHER <= first <= IDEO) and not is_quoted:  # with no capital letters to tell
        return place == ELSEWHERE and not is_hiragana(source, next_word)
    if strength & IS_FULL != 0:
        return item(source.utf8, stop) != _URDU or ends_at_dot(source, state, stop, next_word, end)
    if first == LOWER and not (is_quoted and strength == 0 and dots == 1):
        is_pause = group >= FIRST_QUOTE or (strength == 0 and dots > 1)
        if is_pause or not is_lower_text(source, state, end):
            return False
        if strength == 0 and not is_ordinary(source, item(state, LINE), stop):
            return False
    is_speech = group >= FIRST_QUOTE or kind_at(source, item(state, SENTENCE), end) == DASH  # — Go! Tom cried.
    if is_speech and (strength != 0 or dots > 1) and names_speaker(source, next_word, end):
        return False
    if strength == 0 and dots > 1:
        is_i = item(source.utf8, next_word) == _I and step(source, next_word) == find_word_end(source, next_word, end)
        return is_spaced and first != DIGIT and (dots > 3 or not is_i)
    return strength != 0 or group >= FIRST_QUOTE or ends_at_dot(source, state, stop, next_word, end)
