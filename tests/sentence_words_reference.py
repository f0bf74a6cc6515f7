"""The rule of sentences in plain Python, first part: a line, its characters, and the words before full stops."""

from __future__ import annotations

from dataclasses import dataclass, field

from albert_data.sentences import segmenting as k
from albert_data.sentences import words as w

LETTERS = (k.LOWER, k.UPPER, k.OTHER, k.HANGUL, k.IDEO)
LETTERS_AND_DIGITS = (*LETTERS, k.DIGIT)
SINGLES = (k.STRAIGHT_SINGLE, k.CLOSE_SINGLE)
ROMAN = set("IVXLC")


def opens_by_shape(char_class: int) -> bool:
    return char_class >= k.FIRST_PAIR and char_class % 2 == 0


def closes_by_shape(char_class: int) -> bool:
    return char_class >= k.FIRST_PAIR and char_class % 2 == 1


def group_of(char_class: int) -> int:
    straight = {k.STRAIGHT_DOUBLE: k.STRAIGHT_DOUBLE_GROUP, k.STRAIGHT_SINGLE: k.STRAIGHT_SINGLE_GROUP}
    return straight.get(char_class, (char_class - k.FIRST_PAIR) // 2)


@dataclass
class Line:
    """A line of text, its language, and the sentence ends found so far."""

    text: str
    language: str
    ends: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        rule = k.make_rule(self.language)
        self.char_classes = [
            int(rule.ascii_classes[ord(c)] if ord(c) < 128 else rule.classes[ord(c)]) for c in self.text
        ]
        self.has_ordinals = bool(rule.settings[1])
        self.words = w.read_tables().get(self.language, {})

    # ---- looking ----

    def class_at(self, at: int) -> int:
        """The class of a character; BLANK outside of the line."""
        return self.char_classes[at] if 0 <= at < len(self.char_classes) else k.BLANK

    def size(self, begin: int, end: int) -> int:
        return len(self.text[begin:end].encode())

    def skip_blanks(self, at: int) -> int:
        while at < len(self.text) and self.class_at(at) == k.BLANK:
            at += 1
        return at

    def skip_back(self, at: int) -> int:
        while at > 0 and self.class_at(at - 1) == k.BLANK:
            at -= 1
        return at

    @property
    def begin(self) -> int:
        """Where the present sentence begins."""
        return self.skip_blanks(self.ends[-1] if self.ends else 0)

    def has_word(self, end: int) -> bool:
        """Whether the present sentence has a letter or digit before `end`."""
        return any(char_class in LETTERS_AND_DIGITS for char_class in self.char_classes[self.begin : end])

    def word_classes(self, begin: int, end: int) -> int:
        if self.size(begin, end) > w.MAX_WORD:
            return 0
        return self.words.get("".join(self.text[i] for i in range(begin, end) if self.class_at(i) != k.BLANK), 0)

    def word_end(self, at: int) -> int:
        end = at
        while (
            end < len(self.text)
            and self.size(at, end) <= w.MAX_WORD
            and self.class_at(end) in (*LETTERS_AND_DIGITS, k.ACCENT)
        ):
            end += 1
        return end

    def is_initial(self, at: int) -> bool:
        """Whether one letter and a full stop stand there."""
        end = self.word_end(at)
        return end == at + 1 and self.class_at(at) in LETTERS and self.class_at(end) == k.DOT

    def is_i(self, at: int) -> bool:
        return self.text[at : self.word_end(at)] == "I"

    def is_starter(self, at: int) -> bool:
        return not self.is_initial(at) and bool(self.word_classes(at, self.word_end(at)) & w.STARTER)

    def is_roman(self, at: int, end: int | None = None) -> bool:
        end = min(self.word_end(at), len(self.text) if end is None else end)
        is_capital = end == at + 1 and self.class_at(at) == k.UPPER
        return is_capital or (end > at and set(self.text[at:end]) <= ROMAN)

    # ---- words before a full stop ----

    def initial_before(self, end: int) -> int:
        """Where the single letter begins whose full stop ends there; -1 for anything else."""
        if end == 0 or self.text[end - 1] != ".":
            return -1
        at = end - 1
        while at > 0 and self.size(at, end) <= w.MAX_WORD and self.class_at(at - 1) == k.ACCENT:
            at -= 1
        if at == 0 or self.size(at, end) > w.MAX_WORD or self.class_at(at - 1) not in LETTERS:
            return -1
        at -= 1
        left = self.class_at(at - 1)
        is_whole = left in (k.BLANK, k.DOT, k.STRAIGHT_SINGLE, k.STRAIGHT_DOUBLE) or opens_by_shape(left)
        return at if is_whole else -1

    def find_word_before(self, stop: int) -> tuple[int, int, str]:
        """Where the word before a full stop begins, where its last part does, and its shape."""
        at, separators, parts, part = stop, [], [], [0, 0]
        while at > 0 and self.size(at, stop) <= w.MAX_WORD:
            char_class, before = self.class_at(at - 1), self.class_at(at - 2)
            is_joint = char_class in (k.JOIN, *SINGLES) and before in (*LETTERS_AND_DIGITS, k.ACCENT, k.DOT)
            if char_class in LETTERS:
                part[0] += 1
            elif char_class == k.DIGIT:
                part[1] += 1
            elif char_class == k.DOT or is_joint:
                separators.append((at, char_class == k.DOT))
                parts.append(part)
                part = [0, 0]
            elif char_class == k.BLANK and part == [1, 0] and self.initial_before(at - 1) >= 0:
                separators.append((at, True))
                parts.append(part)
                at, part = self.initial_before(at - 1), [1, 0]
                continue
            elif char_class != k.ACCENT:
                break
            at -= 1
        parts.append(part)
        last = separators[0][0] if separators else at
        if not separators and part[0] == 0 and part[1] > 0:
            return at, at, "digits"
        if not all(part == [1, 0] for part in parts) or not all(is_dot for _, is_dot in separators):
            return at, last, "ordinary"
        if separators:
            return at, last, "acronym"
        return at, last, "ordinary" if self.class_at(at) in (k.HANGUL, k.IDEO, k.DIGIT, k.ACCENT) else "initial"

    def is_ordinary(self, stop: int) -> bool:
        """Whether the word before a full stop is no abbreviation, and no initial or numeral."""
        word, last, shape = self.find_word_before(stop)
        if self.size(word, stop) > w.MAX_WORD or word == stop:
            return True
        if shape in ("initial", "acronym") or set(self.text[word:stop]) <= set("ivxlc"):
            return False
        return not (self.word_classes(word, stop) or self.word_classes(last, stop)) & k.ABBREVIATIONS

    def is_item(self, word: int, stop: int, shape: str) -> bool:
        if self.has_word(word):
            return False
        if self.class_at(word) == k.DIGIT:
            return self.size(word, stop) <= (3 if shape == "digits" else 4)
        return shape == "initial" or self.is_roman(word, stop)

    def is_pronoun(self, word: int) -> bool:
        if self.text[word] != "I" or self.text[word - 1 : word] != " ":
            return False
        at = word - 1
        while at > 0 and self.size(at, word) <= w.MAX_WORD and self.class_at(at - 1) in LETTERS:
            at -= 1
        return bool(self.word_classes(at, word - 1) & w.PRONOUN)

    def has_lead(self, word: int) -> bool:
        end = min(self.word_end(self.begin), word)
        return self.size(self.begin, word) <= 32 and bool(self.word_classes(self.begin, end) & w.LEAD)

    def ends_at_dot(self, stop: int, after: int) -> bool:
        word, last, shape = self.find_word_before(stop)
        first, starts = self.class_at(after), self.is_starter(after)
        if self.size(word, stop) > w.MAX_WORD or word == stop:
            return True
        if self.is_item(word, stop, shape):
            return False
        if shape == "digits":
            return not self.has_ordinals or starts or (self.size(word, stop) > 2 and first != k.DIGIT)
        classes = self.word_classes(word, stop) or self.word_classes(last, stop)
        if classes & w.TITLE or (classes & w.NUMBER and first == k.DIGIT):
            return False
        if classes & w.VOLUME and (first == k.DIGIT or self.is_roman(after)):
            return False
        if classes & w.TIME and self.has_lead(word):
            return False
        if classes & (w.TIME | w.ENDS):
            return first != k.DIGIT
        if classes & w.NAME:
            return starts or self.is_quote(self.class_at(after - 1))
        if classes & (w.VOLUME | w.MAYBE) or shape == "acronym":
            return starts
        if shape == "initial":
            return not self.is_initial(after) and (starts or self.is_pronoun(word))
        return starts or not self.has_ordinals or not self.is_roman(word, stop)

    def is_quote(self, char_class: int) -> bool:
        is_open_quote = opens_by_shape(char_class) and group_of(char_class) >= k.FIRST_QUOTE_GROUP
        return char_class == k.STRAIGHT_DOUBLE or is_open_quote
