"""The rule of sentences as plain Python on lists of characters, slow and obvious: the kernels equal it."""

from __future__ import annotations

from dataclasses import dataclass, field

from albert_data.sentences import kinds as k
from albert_data.sentences import words as w

LETTERS = (k.LOWER, k.UPPER, k.OTHER, k.HANGUL, k.IDEO)
WORD_KINDS = (*LETTERS, k.DIGIT)
CASELESS = (k.OTHER, k.HANGUL, k.IDEO)
STOPS = (k.DOT, k.EXCLAIM, k.FULL, k.ELLIPSIS, k.WIDE_DOT, k.DOUBLE)
SINGLES = (k.STRAIGHT_SINGLE, k.CLOSE_SINGLE)
OPEN_SQUARE, CLOSE_SQUARE = k.FIRST_PAIR + 2 * k.SQUARE, k.FIRST_PAIR + 2 * k.SQUARE + 1
CLOSE_ROUND = k.FIRST_PAIR + 2 * k.ROUND + 1
ROMAN = set("IVXLC")
WHITE = " \t\n\r\v\f\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"


def opens_by_shape(kind: int) -> bool:
    return kind >= k.FIRST_PAIR and kind % 2 == 0


def closes_by_shape(kind: int) -> bool:
    return kind >= k.FIRST_PAIR and kind % 2 == 1


def group_of(kind: int) -> int:
    straight = {k.STRAIGHT_DOUBLE: k.DOUBLE_STRAIGHT, k.STRAIGHT_SINGLE: k.SINGLE_STRAIGHT}
    return straight.get(kind, (kind - k.FIRST_PAIR) // 2)


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
    kinds: set[int]
    dots: int
    group: int = -1
    where: str = "elsewhere"

    @property
    def only_dots(self) -> bool:
        return self.kinds <= {k.DOT, k.ELLIPSIS}

    @property
    def is_full(self) -> bool:
        return bool(self.kinds & {k.FULL, k.WIDE_DOT, k.DOUBLE})

    @property
    def is_quoted(self) -> bool:
        return self.group >= k.FIRST_QUOTE


@dataclass
class Line:
    """A line of text, its language, and what is known of it so far."""

    text: str
    language: str
    ends: list[int] = field(default_factory=list)
    marks: list[Open] = field(default_factory=list)
    item: tuple[int, str, bool] | None = None

    def __post_init__(self) -> None:
        source = w.make_source(self.language)
        self.kinds = [int(source.ascii[ord(c)] if ord(c) < 128 else source.kinds[ord(c)]) for c in self.text]
        self.has_ordinals = bool(source.settings[1])
        self.words = w.read_tables().get(self.language, {})

    # ---- looking ----

    def kind(self, at: int) -> int:
        """The kind of a character; outside of the line it is white space."""
        return self.kinds[at] if 0 <= at < len(self.kinds) else k.BLANK

    def size(self, begin: int, end: int) -> int:
        return len(self.text[begin:end].encode())

    def skip_blanks(self, at: int) -> int:
        while at < len(self.text) and self.kind(at) == k.BLANK:
            at += 1
        return at

    def skip_back(self, at: int) -> int:
        while at > 0 and self.kind(at - 1) == k.BLANK:
            at -= 1
        return at

    @property
    def begin(self) -> int:
        """Where the present sentence begins."""
        return self.skip_blanks(self.ends[-1] if self.ends else 0)

    def has_word(self, end: int) -> bool:
        """Whether the present sentence has a letter or digit before `end`."""
        return any(kind in WORD_KINDS for kind in self.kinds[self.begin : end])

    def classes(self, begin: int, end: int) -> int:
        if self.size(begin, end) > w.MAX_WORD:
            return 0
        return self.words.get("".join(self.text[i] for i in range(begin, end) if self.kind(i) != k.BLANK), 0)

    def word_end(self, at: int) -> int:
        end = at
        while end < len(self.text) and self.size(at, end) <= w.MAX_WORD and self.kind(end) in (*WORD_KINDS, k.MARK):
            end += 1
        return end

    def is_initial(self, at: int) -> bool:
        """Whether one letter and a full stop stand there."""
        end = self.word_end(at)
        return end == at + 1 and self.kind(at) in LETTERS and self.kind(end) == k.DOT

    def is_i(self, at: int) -> bool:
        return self.text[at : self.word_end(at)] == "I"

    def is_starter(self, at: int) -> bool:
        return not self.is_initial(at) and bool(self.classes(at, self.word_end(at)) & w.STARTER)

    def is_roman(self, at: int, end: int | None = None) -> bool:
        end = min(self.word_end(at), len(self.text) if end is None else end)
        is_capital = end == at + 1 and self.kind(at) == k.UPPER
        return is_capital or (end > at and set(self.text[at:end]) <= ROMAN)

    # ---- marks ----

    def role(self, at: int) -> str:
        """Whether a mark opens or closes."""
        kind, left, right = self.kind(at), self.kind(at - 1), self.kind(at + 1)
        if kind not in (k.STRAIGHT_DOUBLE, k.STRAIGHT_SINGLE) and kind < k.FIRST_PAIR:
            return ""
        by_shape = "opens" if opens_by_shape(kind) else "closes"
        if kind >= k.FIRST_PAIR and group_of(kind) < k.ANGLE:
            return by_shape
        left_is_free = left in (k.BLANK, k.DASH, k.INVERTED) or opens_by_shape(left)
        others = (k.BLANK, k.COMMA, k.DASH, *STOPS, k.STRAIGHT_SINGLE, k.STRAIGHT_DOUBLE)
        right_is_free = right in others or closes_by_shape(right)
        if left_is_free and not right_is_free:
            return "" if kind == k.CLOSE_SINGLE else "opens"
        if kind in SINGLES:
            after_end = left in (k.COMMA, k.DASH, k.DOT, k.EXCLAIM, k.FULL, k.ELLIPSIS) or closes_by_shape(left)
            return "closes" if after_end else ""
        if right_is_free and not left_is_free:
            return "closes"
        if kind == k.STRAIGHT_DOUBLE:
            return "closes" if any(mark.group == k.DOUBLE_STRAIGHT for mark in self.marks) else "opens"
        return by_shape

    def open(self, at: int) -> None:
        where = "embedded" if self.kind(at - 1) in CASELESS else "elsewhere"
        self.marks.append(Open(group_of(self.kind(at)), at, where if self.has_word(at) else "first"))
        self.marks = self.marks[-16:]

    def close(self, at: int) -> str:
        """Close a mark; the ends since it opened are dropped if that is at most 256 bytes ago."""
        group = group_of(self.kind(at))
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
        kind, then = self.kind(at), self.kind(at + 1)
        if kind == k.WIDE_DOT:
            return int(then not in (k.LOWER, k.UPPER, k.DIGIT))
        if kind == k.DOUBLE:
            return 2 * int(then == k.DOUBLE)
        return int(kind in STOPS)

    def read_run(self, stop: int) -> Run:
        run = Run(stop, stop, set(), 0)
        while run.end < len(self.text):
            at = run.end
            if at > stop and self.kind(at) == k.BLANK:
                at += 1
            width = self.is_stop(at)
            if width == 0:
                break
            if at > run.end and self.kind(at + width) in (*WORD_KINDS, *STOPS):
                break
            run.kinds.add(self.kind(at))
            run.dots += {k.DOT: 1, k.ELLIPSIS: 3}.get(self.kind(at), 0)
            run.end = at + width
        return run

    def skip_notes(self, at: int) -> int:
        while at < len(self.text):
            after = at + 1
            if self.kind(at) == OPEN_SQUARE:
                while self.size(at, after) < 5 and self.kind(after) == k.DIGIT:
                    after += 1
                if after == at + 1 or self.kind(after) != CLOSE_SQUARE:
                    break
                after += 1
            elif self.kind(at) != k.MARK:
                break
            at = after
        return at

    def pass_closing(self, run: Run) -> None:
        while run.end < len(self.text):
            mark = run.end
            if self.kind(mark) == k.BLANK and mark + 1 < len(self.text):
                mark += 1
                if self.kind(mark) < k.FIRST_PAIR or group_of(self.kind(mark)) not in (k.ANGLE, k.DOUBLE_CURLY):
                    break
            if self.role(mark) != "closes":
                break
            run.group, run.where = group_of(self.kind(mark)), self.close(mark)
            run.end = mark + 1

    def can_end(self, run: Run) -> bool:
        kind, before = self.kind(run.end), self.kind(run.stop - 1)
        if kind == k.BLANK:
            return True
        if kind == k.DASH:
            return run.end + 1 < len(self.text) and self.role(run.end + 1) == "opens"
        if kind in (k.COMMA, k.JOIN, *STOPS):
            return False
        opens = self.role(run.end) == "opens"
        if run.is_full or (opens and run.is_quoted):
            return True
        if kind == k.OTHER and not run.only_dots:
            return before in (k.OTHER, k.MARK) or run.is_quoted
        return (kind == k.IDEO or opens) and (run.is_quoted or before == k.IDEO)

    def is_quote(self, kind: int) -> bool:
        return kind == k.STRAIGHT_DOUBLE or (opens_by_shape(kind) and group_of(kind) >= k.FIRST_QUOTE)

    def skip_marks(self, at: int) -> tuple[int, bool]:
        is_quoted = False
        for _ in range(8):
            kind = self.kind(at)
            is_quote = self.is_quote(kind)
            is_quoted |= is_quote
            if kind in (k.DASH, k.JOIN):
                at = self.skip_blanks(at + 1)
            elif is_quote or opens_by_shape(kind) or kind in (*SINGLES, k.INVERTED):
                at += 1
            else:
                break
        return at, is_quoted

    def names_speaker(self, at: int) -> bool:
        for _ in range(4):
            end = self.word_end(at)
            classes = self.classes(at, end)
            if classes & w.SPEECH:
                return True
            if end == at or self.kind(at) != k.UPPER or (classes & w.STARTER and not self.is_i(at)):
                return False
            if classes & w.TITLE and self.kind(end) == k.DOT:
                end += 1
            at = self.skip_blanks(end)
            if at in (end, len(self.text)):
                return False
        return False

    def is_end(self, run: Run) -> bool:
        is_spaced = self.kind(run.end) == k.BLANK
        word, is_quoted = self.skip_marks(self.skip_blanks(run.end))
        first = self.kind(word)
        if first == k.LOWER and self.kind(word + 1) == k.BLANK and self.kind(word - 1) in SINGLES:  # 's Avonds
            first = self.kind(word + 2)
        if not self.has_word(run.end):
            return False
        if 0 <= run.group < k.FIRST_QUOTE and run.where != "first":
            return False
        if run.group == k.TITLE_MARKS and not is_spaced:
            return False
        left = self.kind(run.stop - 1)
        if run.dots > 1 and opens_by_shape(left) and group_of(left) < k.FIRST_QUOTE:
            return False
        if run.is_quoted and first in CASELESS and not is_quoted:
            return run.where == "elsewhere" and not "\u3040" <= self.text[word] <= "\u309f"
        if run.is_full:
            return self.text[run.stop] != "۔" or self.ends_at_dot(run.stop, word)
        if first == k.LOWER and not (is_quoted and run.only_dots and run.dots == 1):
            if run.is_quoted or (run.only_dots and run.dots > 1) or not self.is_lower_text():
                return False
            if run.only_dots and not self.is_ordinary(run.stop):
                return False
        is_speech = run.is_quoted or self.kind(self.begin) == k.DASH
        if is_speech and not (run.only_dots and run.dots == 1) and self.names_speaker(word):
            return False
        if run.only_dots and run.dots > 1:
            return is_spaced and first != k.DIGIT and (run.dots > 3 or not self.is_i(word))
        return not run.only_dots or run.is_quoted or self.ends_at_dot(run.stop, word)

    # ---- words before a full stop ----

    def initial_before(self, end: int) -> int:
        """Where the single letter begins whose full stop ends there; -1 for anything else."""
        if end == 0 or self.text[end - 1] != ".":
            return -1
        at = end - 1
        while at > 0 and self.size(at, end) <= w.MAX_WORD and self.kind(at - 1) == k.MARK:
            at -= 1
        if at == 0 or self.size(at, end) > w.MAX_WORD or self.kind(at - 1) not in LETTERS:
            return -1
        at -= 1
        left = self.kind(at - 1)
        is_whole = left in (k.BLANK, k.DOT, k.STRAIGHT_SINGLE, k.STRAIGHT_DOUBLE) or opens_by_shape(left)
        return at if is_whole else -1

    def find_token(self, stop: int) -> tuple[int, int, str]:
        """Where the word before a full stop begins, where its last part does, and its shape."""
        at, separators, parts, part = stop, [], [], [0, 0]
        while at > 0 and self.size(at, stop) <= w.MAX_WORD:
            kind, before = self.kind(at - 1), self.kind(at - 2)
            is_joint = kind in (k.JOIN, *SINGLES) and before in (*WORD_KINDS, k.MARK, k.DOT)
            if kind in LETTERS:
                part[0] += 1
            elif kind == k.DIGIT:
                part[1] += 1
            elif kind == k.DOT or is_joint:
                separators.append((at, kind == k.DOT))
                parts.append(part)
                part = [0, 0]
            elif kind == k.BLANK and part == [1, 0] and self.initial_before(at - 1) >= 0:
                separators.append((at, True))
                parts.append(part)
                at, part = self.initial_before(at - 1), [1, 0]
                continue
            elif kind != k.MARK:
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
        return at, last, "ordinary" if self.kind(at) in (k.HANGUL, k.IDEO, k.DIGIT, k.MARK) else "initial"

    def is_ordinary(self, stop: int) -> bool:
        """Whether the word before a full stop is no abbreviation, and no initial or numeral."""
        word, last, shape = self.find_token(stop)
        if self.size(word, stop) > w.MAX_WORD or word == stop:
            return True
        if shape in ("initial", "acronym") or set(self.text[word:stop]) <= set("ivxlc"):
            return False
        return not (self.classes(word, stop) or self.classes(last, stop)) & w.ABBREVIATIONS

    def is_lower_text(self) -> bool:
        """Whether the line has no capital letter, and two full stops after ordinary words."""
        stops = []
        for at in range(len(self.text)):
            then = self.kind(at + 1)
            is_before_end = then in (k.BLANK, k.STRAIGHT_DOUBLE) or closes_by_shape(then)
            if self.kind(at) == k.DOT and self.kind(at - 1) != k.DOT and is_before_end and self.is_ordinary(at):
                stops.append(at)
        return len(stops) >= 2 and k.UPPER not in self.kinds

    def is_item(self, word: int, stop: int, shape: str) -> bool:
        if self.has_word(word):
            return False
        if self.kind(word) == k.DIGIT:
            return self.size(word, stop) <= (3 if shape == "digits" else 4)
        return shape == "initial" or self.is_roman(word, stop)

    def is_pronoun(self, word: int) -> bool:
        if self.text[word] != "I" or self.text[word - 1 : word] != " ":
            return False
        at = word - 1
        while at > 0 and self.size(at, word) <= w.MAX_WORD and self.kind(at - 1) in LETTERS:
            at -= 1
        return bool(self.classes(at, word - 1) & w.PRONOUN)

    def has_lead(self, word: int) -> bool:
        end = min(self.word_end(self.begin), word)
        return self.size(self.begin, word) <= 32 and bool(self.classes(self.begin, end) & w.LEAD)

    def ends_at_dot(self, stop: int, after: int) -> bool:
        word, last, shape = self.find_token(stop)
        first, starts = self.kind(after), self.is_starter(after)
        if self.size(word, stop) > w.MAX_WORD or word == stop:
            return True
        if self.is_item(word, stop, shape):
            return False
        if shape == "digits":
            return not self.has_ordinals or starts or (self.size(word, stop) > 2 and first != k.DIGIT)
        classes = self.classes(word, stop) or self.classes(last, stop)
        if classes & w.TITLE or (classes & w.NUMBER and first == k.DIGIT):
            return False
        if classes & w.VOLUME and (first == k.DIGIT or self.is_roman(after)):
            return False
        if classes & w.TIME and self.has_lead(word):
            return False
        if classes & (w.TIME | w.ENDS):
            return first != k.DIGIT
        if classes & w.NAME:
            return starts or self.is_quote(self.kind(after - 1))
        if classes & (w.VOLUME | w.MAYBE) or shape == "acronym":
            return starts
        if shape == "initial":
            return not self.is_initial(after) and (starts or self.is_pronoun(word))
        return starts or not self.has_ordinals or not self.is_roman(word, stop)

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
        if not marker or self.kind(after) != k.BLANK or self.kind(at - 1) not in (k.BLANK, k.BULLET):
            return
        item = (int(marker) if marker.isdigit() else ord(marker) - 96, delimiter, marker.isdigit())
        at = self.skip_back(at)
        if at > 0 and self.kind(at - 1) == k.BULLET:
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
            kind = self.kind(at)
            if kind in (k.DOT, CLOSE_ROUND):
                self.pass_marker(at)
            run = self.read_run(at)
            if run.end > at:
                run.end = self.skip_notes(run.end)
                self.pass_closing(run)
                if run.end < len(self.text) and self.can_end(run) and self.is_end(run):
                    self.ends.append(run.end)
                at = run.end
                continue
            if kind == k.BULLET and self.kinds[0] == k.BULLET and self.kind(at - 1) == k.BLANK and self.has_word(at):
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
        return [self.text[begin:end].strip(WHITE) or self.text for begin, end in zip(bounds, bounds[1:], strict=False)]


def segment_line(text: str, language: str) -> list[str]:
    """The sentences of a canonical line."""
    return Line(text.strip(WHITE) or text, language).segment()
