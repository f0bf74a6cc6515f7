"""The rule of sentences as plain Python on lists of characters, slow and obvious: the kernels equal it."""

from __future__ import annotations

from dataclasses import dataclass, field

from albert_data.sentences import segmenting as k
from albert_data.sentences import words as w
from albert_data.sentences.abbreviations import MAX_WORD

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
    abbreviations: str = ""
    ends: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        rule = k.make_rule(self.language)
        self.char_classes = [
            int(rule.ascii_classes[ord(c)] if ord(c) < 128 else rule.classes[ord(c)]) for c in self.text
        ]
        self.has_ordinals = bool(rule.settings[1])
        self.words = dict(w.read_tables().get(self.language, {}))
        for line in self.abbreviations.splitlines():
            code, word = line.split()
            for form in {word, word[0].upper() + word[1:]} if code == self.language else ():
                self.words[form] = self.words.get(form, 0) | w.MAYBE

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
        if self.size(begin, end) > MAX_WORD:
            return 0
        return self.words.get("".join(self.text[i] for i in range(begin, end) if self.class_at(i) != k.BLANK), 0)

    def word_end(self, at: int) -> int:
        end = at
        while (
            end < len(self.text)
            and self.size(at, end) <= MAX_WORD
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
        while at > 0 and self.size(at, end) <= MAX_WORD and self.class_at(at - 1) == k.ACCENT:
            at -= 1
        if at == 0 or self.size(at, end) > MAX_WORD or self.class_at(at - 1) not in LETTERS:
            return -1
        at -= 1
        left = self.class_at(at - 1)
        is_whole = left in (k.BLANK, k.DOT, k.STRAIGHT_SINGLE, k.STRAIGHT_DOUBLE) or opens_by_shape(left)
        return at if is_whole else -1

    def find_word_before(self, stop: int) -> tuple[int, int, str]:
        """Where the word before a full stop begins, where its last part does, and its shape."""
        at, separators, parts, part = stop, [], [], [0, 0]
        while at > 0 and self.size(at, stop) <= MAX_WORD:
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
        if self.size(word, stop) > MAX_WORD or word == stop:
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
        while at > 0 and self.size(at, word) <= MAX_WORD and self.class_at(at - 1) in LETTERS:
            at -= 1
        return bool(self.word_classes(at, word - 1) & w.PRONOUN)

    def has_lead(self, word: int) -> bool:
        end = min(self.word_end(self.begin), word)
        return self.size(self.begin, word) <= 32 and bool(self.word_classes(self.begin, end) & w.LEAD)

    def ends_at_dot(self, stop: int, after: int) -> bool:
        word, last, shape = self.find_word_before(stop)
        first, starts = self.class_at(after), self.is_starter(after)
        if self.size(word, stop) > MAX_WORD or word == stop:
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


# ---- sentences ----

CASELESS = (k.OTHER, k.HANGUL, k.IDEO)
STOPS = (k.DOT, k.EXCLAIM, k.FULL, k.ELLIPSIS, k.WIDE_DOT, k.DOUBLE)


@dataclass
class Open:
    """A mark that is open; where: whether it stands first in a sentence, right after a letter, or elsewhere."""

    group: int
    at: int
    where: str


@dataclass
class Run:
    """Stops with what closes after them: what they are, the last mark that closed, and where that had opened."""

    stop: int
    end: int
    char_classes: set[int]
    dots: int
    group: int = -1
    where: str = "elsewhere"

    @property
    def only_dots(self) -> bool:
        return self.char_classes <= {k.DOT, k.ELLIPSIS}

    @property
    def is_full(self) -> bool:
        return bool(self.char_classes & {k.FULL, k.WIDE_DOT, k.DOUBLE})

    @property
    def is_quoted(self) -> bool:
        return self.group >= k.FIRST_QUOTE_GROUP


@dataclass
class Segmenter(Line):
    """Finds the sentences of a line. item: the number and style of the last list item; last_stop: where it ends."""

    marks: list[Open] = field(default_factory=list)
    item: tuple[int, str, bool] | None = None
    last_stop: int = -1

    # ---- marks ----

    def role(self, at: int) -> str:
        """Whether a mark opens or closes."""
        char_class, left, right = self.class_at(at), self.class_at(at - 1), self.class_at(at + 1)
        if char_class not in (k.STRAIGHT_DOUBLE, k.STRAIGHT_SINGLE) and char_class < k.FIRST_PAIR:
            return ""
        by_shape = "opens" if opens_by_shape(char_class) else "closes"
        if char_class >= k.FIRST_PAIR and group_of(char_class) < k.ANGLE:
            return by_shape
        left_is_free = left in (k.BLANK, k.DASH, k.LEADING) or opens_by_shape(left)
        others = (k.BLANK, k.COMMA, k.DASH, *STOPS, k.STRAIGHT_SINGLE, k.STRAIGHT_DOUBLE)
        right_is_free = right in others or closes_by_shape(right)
        if left_is_free and not right_is_free:
            return "" if char_class == k.CLOSE_SINGLE else "opens"
        if char_class in SINGLES:
            after_end = left in (k.COMMA, k.DASH, k.DOT, k.EXCLAIM, k.FULL, k.ELLIPSIS) or closes_by_shape(left)
            return "closes" if after_end else ""
        if right_is_free and not left_is_free:
            return "closes"
        if char_class == k.STRAIGHT_DOUBLE:
            return "closes" if any(mark.group == k.STRAIGHT_DOUBLE_GROUP for mark in self.marks) else "opens"
        return by_shape

    def open(self, at: int) -> None:
        where = "embedded" if self.class_at(at - 1) in CASELESS else "elsewhere"
        self.marks.append(Open(group_of(self.class_at(at)), at, where if self.has_word(at) else "first"))
        self.marks = self.marks[-16:]

    def close(self, at: int) -> str:
        """Close a mark; the ends since it opened are dropped if that is at most 256 bytes ago."""
        group = group_of(self.class_at(at))
        while any(mark.group == group for mark in self.marks):
            mark = self.marks.pop()
            if mark.group == group:
                if self.size(mark.at, at) <= 256:
                    self.ends = [end for end in self.ends if end <= mark.at]
                return mark.where
        return "elsewhere"

    # ---- stops ----

    def is_stop(self, at: int) -> int:
        """How many characters make the stop that stands there; 0 for none."""
        char_class, then = self.class_at(at), self.class_at(at + 1)
        if char_class == k.WIDE_DOT:
            return int(then not in (k.LOWER, k.UPPER, k.DIGIT))
        if char_class == k.DOUBLE:
            return 2 * int(then == k.DOUBLE)
        return int(char_class in STOPS)

    def read_run(self, stop: int) -> Run:
        run = Run(stop, stop, set(), 0)
        while run.end < len(self.text):
            at = run.end
            if at > stop and self.class_at(at) == k.BLANK:
                at += 1
            width = self.is_stop(at)
            if width == 0:
                break
            if at > run.end and self.class_at(at + width) in (*LETTERS_AND_DIGITS, *STOPS):
                break
            run.char_classes.add(self.class_at(at))
            run.dots += {k.DOT: 1, k.ELLIPSIS: 3}.get(self.class_at(at), 0)
            run.end = at + width
        return run

    def skip_notes(self, at: int) -> int:
        while at < len(self.text):
            after = at + 1
            if self.class_at(at) == k.OPEN_SQUARE:
                while self.size(at, after) < 5 and self.class_at(after) == k.DIGIT:
                    after += 1
                if after == at + 1 or self.class_at(after) != k.CLOSE_SQUARE:
                    break
                after += 1
            elif self.class_at(at) != k.ACCENT:
                break
            at = after
        return at

    def pass_closing(self, run: Run) -> None:
        while run.end < len(self.text):
            mark = run.end
            if self.class_at(mark) == k.BLANK and mark + 1 < len(self.text):
                mark += 1
                if self.class_at(mark) < k.FIRST_PAIR or group_of(self.class_at(mark)) not in (k.ANGLE, k.DOUBLE_CURLY):
                    break
            if self.role(mark) != "closes":
                break
            run.group, run.where = group_of(self.class_at(mark)), self.close(mark)
            run.end = mark + 1

    def can_end(self, run: Run) -> bool:
        char_class, before = self.class_at(run.end), self.class_at(run.stop - 1)
        if char_class == k.BLANK:
            return True
        if char_class == k.DASH:
            return run.end + 1 < len(self.text) and self.role(run.end + 1) == "opens"
        if char_class in (k.COMMA, k.JOIN, *STOPS):
            return False
        opens = self.role(run.end) == "opens"
        if run.is_full or (opens and run.is_quoted):
            return True
        if char_class == k.OTHER and not run.only_dots:
            return before in (k.OTHER, k.ACCENT) or run.is_quoted
        return (char_class == k.IDEO or opens) and (run.is_quoted or before == k.IDEO)

    def skip_marks(self, at: int) -> tuple[int, bool]:
        is_quoted = False
        for _ in range(8):
            char_class = self.class_at(at)
            is_quote = self.is_quote(char_class)
            is_quoted |= is_quote
            if char_class in (k.DASH, k.JOIN):
                at = self.skip_blanks(at + 1)
            elif is_quote or opens_by_shape(char_class) or char_class in (*SINGLES, k.LEADING):
                at += 1
            else:
                break
        return at, is_quoted

    def names_speaker(self, at: int) -> bool:
        for _ in range(4):
            end = self.word_end(at)
            classes = self.word_classes(at, end)
            if classes & w.SPEECH:
                return True
            if end == at or self.class_at(at) != k.UPPER or (classes & w.STARTER and not self.is_i(at)):
                return False
            if classes & w.TITLE and self.class_at(end) == k.DOT:
                end += 1
            at = self.skip_blanks(end)
            if at in (end, len(self.text)):
                return False
        return False

    def is_end(self, run: Run) -> bool:
        is_spaced = self.class_at(run.end) == k.BLANK
        word, is_quoted = self.skip_marks(self.skip_blanks(run.end))
        first = self.class_at(word)
        if first == k.LOWER and self.class_at(word + 1) == k.BLANK and self.class_at(word - 1) in SINGLES:  # 's Avonds
            first = self.class_at(word + 2)
        if not self.has_word(run.end):
            return False
        if 0 <= run.group < k.FIRST_QUOTE_GROUP and run.where != "first":
            return False
        if run.group == k.TITLE_MARKS and not is_spaced:
            return False
        left = self.class_at(run.stop - 1)
        if run.dots > 1 and opens_by_shape(left) and group_of(left) < k.FIRST_QUOTE_GROUP:
            return False
        if run.is_quoted and first in CASELESS and not is_quoted:
            return run.where == "elsewhere" and not "\u3040" <= self.text[word] <= "\u309f"
        if run.is_full:
            return self.text[run.stop] != "۔" or self.ends_at_dot(run.stop, word)
        is_lower = first == k.LOWER and not self.is_starter(word)
        if is_lower and not (is_quoted and run.only_dots and run.dots == 1):
            if run.is_quoted or (run.only_dots and run.dots > 1) or not self.is_lower_text():
                return False
            if run.only_dots and not self.is_ordinary(run.stop):
                return False
        is_speech = run.is_quoted or self.class_at(self.begin) == k.DASH
        if is_speech and not (run.only_dots and run.dots == 1) and self.names_speaker(word):
            return False
        if run.only_dots and run.dots > 1:
            return is_spaced and first != k.DIGIT and (run.dots > 3 or not self.is_i(word))
        return not run.only_dots or run.is_quoted or self.ends_at_dot(run.stop, word)

    def skip_appendix(self, at: int) -> int:
        """Skip footnote numbers or a smiley between spaces."""
        end = self.skip_notes(at + 1) if self.text[at + 1 : at + 2] == "[" else at + 1
        for smiley in (":)", ";)", ":-)", ";-)"):
            end += len(smiley) * self.text.startswith(smiley, at + 1)
        is_alone = end > at + 1 and self.text[end : end + 1] in (" ", "")
        return end if self.text[at : at + 1] == " " and is_alone else at

    def is_lower_text(self) -> bool:
        """Whether the line has the English word i; begins in lower case, but has capitals; or has none and two full
        stops after ordinary words, or one inside of it and another stop.
        """
        if self.language == "en" and " i " in self.text:
            return True
        if k.UPPER in self.char_classes:
            return self.char_classes[0] == k.LOWER
        dots = []
        for at in range(len(self.text)):
            then = self.class_at(at + 1)
            is_before_end = then in (k.BLANK, k.STRAIGHT_DOUBLE) or closes_by_shape(then)
            if self.class_at(at) == k.DOT and self.class_at(at - 1) != k.DOT and is_before_end and self.is_ordinary(at):
                dots.append(at)
        has_inner = bool(dots) and dots[0] + 1 < len(self.text)
        return len(dots) >= 2 or (has_inner and k.EXCLAIM in self.char_classes)

    # ---- lists ----

    def pass_marker(self, stop: int) -> None:
        """End the sentence before the marker of the next item: 2. 2) 2.) b."""
        delimiter = self.text[stop].encode()[:1].hex()
        after = stop + 1
        if self.text[stop : stop + 2] == ".)":
            delimiter, after = ".)", after + 1
        at = stop
        while at > 0 and stop - at < 3 and self.text[at - 1] in "0123456789":
            at -= 1
        marker = self.text[at:stop]
        if not marker and stop > 0 and "a" <= self.text[stop - 1] <= "z":
            at, marker = stop - 1, self.text[stop - 1]
        if not marker or self.class_at(after) != k.BLANK or self.class_at(at - 1) not in (k.BLANK, k.BULLET):
            return
        item = (int(marker) if marker.isdigit() else ord(marker) - 96, delimiter, marker.isdigit())
        at = self.skip_back(at)
        if at > 0 and self.class_at(at - 1) == k.BULLET:
            at = self.skip_back(at - 1)
        if at == 0:
            self.item = item
        elif self.item is not None and item == (self.item[0] + 1, *self.item[1:]):
            self.item = item
            if self.has_word(at):
                self.ends.append(at)

    # ---- all ----

    def segment(self) -> list[str]:
        at = 0
        while at < len(self.text):
            char_class = self.class_at(at)
            if char_class in (k.DOT, k.CLOSE_ROUND):
                self.pass_marker(at)
            run = self.read_run(at)
            if run.end > at:
                run.end = self.skip_notes(run.end)
                self.pass_closing(run)
                run.end = self.skip_appendix(run.end)
                self.last_stop = run.end
                if run.end < len(self.text) and self.can_end(run) and self.is_end(run):
                    self.ends.append(run.end)
                at = run.end
                continue
            if (
                char_class == k.BULLET
                and self.char_classes[0] == k.BULLET
                and self.class_at(at - 1) == k.BLANK
                and self.has_word(at)
            ):
                self.ends.append(self.skip_back(at))
            role = self.role(at)
            if role == "opens":
                self.open(at)
            elif role == "closes":
                self.close(at)
            at += 1
        if self.ends and not self.has_word(len(self.text)):
            self.ends.pop()
        bounds = [0, *self.ends, len(self.text)]
        return [self.text[begin:end].strip(" ") for begin, end in zip(bounds, bounds[1:], strict=False)]


def segment_line(text: str, language: str, abbreviations: str = "") -> list[str]:
    """The sentences of a canonical line."""
    return Segmenter(text, language, abbreviations).segment()


def describe_line(text: str, language: str) -> int:
    """The kind of a canonical line, as bits."""
    line = Segmenter(text, language)
    line.segment()
    last, before = line.class_at(len(text) - 1), line.class_at(len(text) - 2)
    kind = k.HAS_STOP * (line.last_stop == len(text) or is_broken_off(line))
    is_dash = last == k.DASH or (last == k.JOIN and before == k.COMMA)
    kind |= k.HAS_COLON * (last == k.COMMA and text[-1] in ":：" or is_dash and text[-2:-1] in (":", "："))
    kind |= (k.HAS_COMMA | k.LEADS_IN) * (last == k.COMMA and text[-1] not in ":：")
    kind |= k.LEADS_IN * (is_dash and text[-2:-1] not in (":", "："))
    return kind | k.IS_QUOTED * line.is_quote(line.class_at(0)) | k.IS_NUMBERED * is_numbered(line)


def is_broken_off(line: Segmenter) -> bool:
    """Whether a dash, then up to three quotation marks or brackets end the line."""
    classes = line.char_classes[-4:]
    while classes and classes[-1] >= k.STRAIGHT_SINGLE and len(classes) > 1:
        classes.pop()
    return classes[-1] == k.DASH


def is_numbered(line: Segmenter) -> bool:
    """Whether the line is one number and at most two words."""
    if line.size(0, len(line.text)) > 48 or line.class_at(len(line.text) - 1) in (k.EXCLAIM, k.ELLIPSIS):
        return False
    if any(map(line.is_quote, line.char_classes)):
        return False
    is_part = [char_class in (*LETTERS_AND_DIGITS, k.ACCENT) for char_class in line.char_classes]
    words: list[list[int]] = [[]]
    for at, belongs in enumerate(is_part):
        if belongs:
            words[-1].append(at)
        elif words[-1]:
            words.append([])
    found = [word for word in words if word]
    with_digits = [word for word in found if any(line.class_at(at) == k.DIGIT for at in word)]
    is_roman = bool(found) and {line.text[at] for at in found[-1]} <= ROMAN
    return len(with_digits) + is_roman == 1 and len(found) <= 3
