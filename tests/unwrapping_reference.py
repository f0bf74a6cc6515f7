"""What `--unwrap` does, slowly: written from the text of unwrapping.py, on strings."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from albert_data.text.character_bits import FULL_STOPS
from albert_data.text.unicode_tables import category, script

WHITE = " \t\n\r\x0b\x0c"  # between words; at the ends of lines any white space counts
GLUED_SCRIPTS = {*("CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO", "YI", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")}
STOPS = ".!?:…‼⁇⁈⁉：．།༎" + FULL_STOPS
MARK = re.compile(
    r"(?:[-*+·‒–—―•‣▪◦]|[0-9]{1,3}[.)]|(?![A-Z]\.)[ivxlcIVXLC]{1,5}[.)]|[a-z][.)]|[A-Z]\)"
    r"|\((?:[0-9]{1,3}|[ivxlcIVXLC]{1,5}|[A-Za-z])\))[ \t\n\r\x0b\x0c]"
)


def is_in(character: str, *ranges: tuple[int, int]) -> bool:
    return any(first <= ord(character) <= last for first, last in ranges)


def is_wide(character: str) -> bool:
    return is_in(
        character,
        *((0x1100, 0x115F), (0x2E80, 0x303E), (0x3041, 0xA4CF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF)),
        *((0xFE30, 0xFE4F), (0xFF00, 0xFF60), (0xFFE0, 0xFFE6), (0x1F300, 0x1FAFF), (0x20000, 0x3FFFD)),
    )


def is_glued(character: str) -> bool:
    marks = ((0x3001, 0x303F), (0x30FB, 0x30FF), (0xFE30, 0xFE4F), (0xFF00, 0xFF65))
    return script(character) in GLUED_SCRIPTS or is_in(character, *marks)


def is_word(character: str) -> bool:
    return category(character)[0] in "LMN"


def is_alpha(character: str) -> bool:
    return category(character)[0] in "LM"


def is_opening(character: str) -> bool:
    return category(character) in ("Ps", "Pi", "Pf", "Pd") or character in "\"'`*_¿¡"


def is_closing(character: str) -> bool:
    return category(character) in ("Pe", "Pi", "Pf") or character in "\"'`*_"


def count_columns(text: str) -> int:
    return sum(2 if is_wide(character) else 1 for character in text)


@dataclass
class Line:
    """A line as it was written, with what follows from it."""

    raw: str

    def __post_init__(self) -> None:
        self.text = self.raw.strip()
        indent = 0
        stripped = self.raw.rstrip()
        for character in stripped[: len(stripped) - len(self.text)].rpartition("\f")[2]:
            indent = (indent // 8 + 1) * 8 if character == "\t" else indent + (2 if character == "\u3000" else 1)
        self.indent = min(indent, 60)
        self.is_blank = not self.text
        self.width = self.indent + count_columns(self.text) if self.text else 0
        first = re.split(f"[{WHITE}]", self.text)[0]
        if self.text and is_glued(self.text[0]):
            first = self.text[0]
        self.word = count_columns(first)
        letters = [character for character in self.text if is_word(character)]
        gaps = re.finditer(f"[{WHITE}]{{4,}}", self.text)
        self.is_odd = not letters or "\t" in self.text or any(map(self._is_gap, gaps))
        self.is_list = bool(MARK.match(self.text))
        self.starts_glued = bool(letters) and is_glued(letters[0])
        self.ends_glued = bool(letters) and is_glued(letters[-1])
        core = [c for c in self.text if c not in WHITE and not is_closing(c)]
        self.has_stop = self.text.endswith("፡፡") or (bool(core) and core[-1] in STOPS)
        self.ends_in_number = bool(letters) and category(letters[-1])[0] == "N"

    def _is_gap(self, found: re.Match[str]) -> bool:
        """Whether a character of a run of white space, the fourth or a later one, stands eight columns in."""
        return count_columns(self.text[: found.end() - 1]) >= 8

    @property
    def case(self) -> str:
        """Category of the first letter, at most eight marks before it left aside."""
        skipped = 0
        for character in self.text:
            if character in WHITE:
                continue
            skipped += 1
            if is_word(character) or not is_opening(character) or skipped > 8:
                return "Lo" if is_in(character, (0x10D0, 0x10FF)) else category(character)
        return ""

    @property
    def is_lower(self) -> bool:
        return self.case == "Ll"

    @property
    def is_upper(self) -> bool:
        return self.case in ("Lu", "Lt")

    @property
    def has_hyphen(self) -> bool:
        return len(self.text) > 1 and self.text[-1] in "-\u2010" and is_word(self.text[-2])

    @property
    def has_dash_end(self) -> bool:
        found = re.search("(?P<before>[^-—―])(?P<dashes>[-—―]+)$", self.text)
        if self.has_hyphen or not found or found["before"] in WHITE:
            return False
        return len(found["dashes"]) > 1 or found["dashes"] != "-"

    @property
    def has_dash_start(self) -> bool:
        return bool(re.match(f"(?:-[-—―]+|[—―][-—―]*)[^-—―{WHITE}]", self.text))


def is_joined_by_nothing(line: Line, after: Line) -> bool:
    last, first = line.text[-1], after.text[0]
    return (
        (line.ends_glued and after.starts_glued)
        or (is_glued(last) and not is_word(last))
        or (is_glued(first) and not is_word(first))
        or after.has_dash_start
        or (line.has_dash_end and is_word(first))
    )


def reach(line: Line, after: Line) -> int:
    return line.width + (0 if is_joined_by_nothing(line, after) else 1) + after.word


def find_width(lines: list[Line]) -> int:
    widths = [line.width for line in lines if not line.is_blank]
    narrow = sorted(width for width in widths if width <= 160)
    if not narrow or sum(widths) - sum(narrow) > sum(narrow):
        return 0
    width = next(w for w in range(161) if sum(n <= w for n in narrow) * 20 >= 19 * len(narrow))
    if len(narrow) < 16:
        width = max(width, 60)
    pairs = [(a, b) for a, b in zip(lines, lines[1:], strict=False) if not (a.is_blank or b.is_blank)]
    num_full = sum(5 * safe_reach(line, after) > 4 * width for line, after in pairs)
    return width if width >= 32 and (len(narrow) < 16 or 5 * num_full >= len(pairs)) else 0


def is_verse(block: list[Line], width: int) -> bool:
    if len(block) < 4 or any(line.is_lower for line in block[1:]):
        return False
    reaches = [safe_reach(line, after) for line, after in zip(block, block[1:], strict=False)]
    return any(line.is_upper for line in block[1:]) and min(reaches) <= width - 2


def safe_reach(line: Line, after: Line) -> int:
    """A line of wide spaces alone has neither width nor word."""
    if not line.text or not after.text:
        return line.width + after.word + (0 if after.text and is_after_nothing(after) else 1)
    return reach(line, after)


def is_after_nothing(after: Line) -> bool:
    return after.has_dash_start or (is_glued(after.text[0]) and not is_word(after.text[0]))


def indents_paragraphs(lines: list[Line]) -> bool:
    pairs = [(a, b) for a, b in zip(lines, lines[1:], strict=False) if a.indent and not a.is_blank and not b.is_blank]
    first = sum(not after.indent for _, after in pairs)
    return first > 0 and 4 * first >= len(pairs) - first


def continues(line: Line, after: Line, width: int, by_indent: bool, in_list: bool) -> bool:
    if line.width > 160 or after.width > 160:
        return False
    if after.indent > (0 if by_indent else line.indent) and not in_list and (line.has_stop or not after.is_lower):
        return False
    if after.is_list and (line.has_stop or in_list):
        return False
    is_heading = after.ends_in_number and 2 * after.width < width
    is_caseless = line.case != "" and line.case[0] in "LM" and not line.is_lower and not line.is_upper
    if is_caseless and is_word(after.text[0]) and (line.has_stop or is_heading):
        return False
    if line.has_hyphen and category(after.text[0]) == "Ll":
        return True
    if after.is_lower:
        return 20 * reach(line, after) > 11 * width
    return reach(line, after) > width - 2 if line.has_stop else 5 * reach(line, after) > 4 * width


def fold(word: str) -> str:
    return re.sub("[A-Z]", lambda found: found.group().lower(), word)


def find_words(text: str) -> list[str]:
    """Runs of letters, and a `-` for each hyphen right after one."""
    words: list[str] = []
    for character in text:
        if is_alpha(character):
            if words and words[-1] not in ("-", ""):
                words[-1] += character
            else:
                words.append(character)
        elif character in "-\u2010" and words and words[-1] not in ("-", ""):
            words.append("-")
        else:
            words.append("")
    return [fold(word) for word in words]


def resolve(lines: list[Line], places: list[int]) -> dict[int, str]:
    """What stands between each of these lines, which end in a hyphen, and the next: "drop", "" or " "."""
    counts: Counter[str] = Counter()
    for line in lines:
        words = find_words(line.text)
        counts.update(word for word in words if word not in ("-", ""))
        for a, b, c in zip(words, words[1:], words[2:], strict=False):
            if b == "-" and c not in ("-", ""):
                counts[f"{a}-{c}"] += 1
    for place in places:
        counts[find_words(lines[place].text[:-1])[-1]] -= 1
        counts[find_words(lines[place + 1].text)[0]] -= 1
    found, votes = {}, 0
    for place in places:
        head = find_words(lines[place].text[:-1])[-1]
        tail = find_words(lines[place + 1].text)[0]
        rest = lines[place + 1].text[len(tail) :]
        before = lines[place].text[: -1 - len(head)]
        if not head or before.endswith("-") or rest.startswith("-"):
            found[place] = ""
        elif tail in ("and", "or", "to", "und", "oder", "bis"):
            found[place] = " "
        elif (margin := counts[head + tail] - counts[f"{head}-{tail}"]) != 0:
            found[place] = "drop" if margin > 0 else ""
            votes += 1 if margin > 0 else -1
        elif counts[head] > 0 and counts[tail] > 0:
            found[place] = ""
    return {place: found.get(place, "drop" if votes > 0 else "") for place in places}


# ---- page furniture ----

NUMBERED, REPEATED, CAPITALS = "numbered", "repeated", "capitals"


@dataclass
class Mark:
    """A line that may be furniture.

    words: its letters and digits; rest: those beside its number; times: of its words
    """

    line: Line
    number: int | None = None
    words: str = ""
    rest: str = ""
    kind: str | None = None
    times: int = 0

    def __post_init__(self) -> None:
        text = self.line.text
        self.words = "".join(filter(is_word, text))
        parts = [(found.start(), found.end()) for found in find_runs(text)]
        numbers = [(parse_number(text[begin:end]), begin, end) for begin, end in [*parts[:1], *parts[1:][-1:]]]
        found = [one for one in numbers if one[0] is not None]
        digits = [one for one in found if "0" <= text[one[1]] <= "9"]
        for self.number, begin, end in (digits or found)[:1]:
            self.rest = "".join(filter(is_word, text[:begin] + text[end:]))

    @property
    def own(self) -> str:
        """Its words without the number, if it has one."""
        return self.words if self.number is None else self.rest

    @property
    def group(self) -> tuple[bool, str]:
        """What it shares with its like."""
        return self.kind == NUMBERED, self.rest if self.kind == NUMBERED else self.words


def find_runs(text: str) -> list[re.Match[str]]:
    shape = "".join("w" if is_word(character) else " " for character in text)
    return list(re.finditer("w+", shape))


def parse_number(word: str) -> int | None:
    if re.fullmatch("[0-9]{1,4}", word):
        return int(word)
    if not re.fullmatch("[ivxlcIVXLC]{1,12}", word):
        return None
    total, most = 0, 0
    for letter in reversed(word.lower()):
        value = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}[letter]
        total, most = total + (value if value >= most else -value), max(value, most)
    return total if total >= 0 else None


def mark_lines(lines: list[Line], width: int) -> dict[int, Mark]:
    marks = {}
    for place, (line, after) in enumerate(zip(lines, lines[1:], strict=False)):
        if not line.is_blank and (line.is_odd or 5 * (safe_reach(line, after) - line.indent) <= 4 * width):
            mark = Mark(line)
            if mark.number is not None or (any(map(is_alpha, mark.words)) and not line.is_lower):
                marks[place] = mark
    times = Counter(mark.words for mark in marks.values())
    rests = Counter(mark.rest for mark in marks.values() if mark.number is not None)
    for mark in marks.values():
        mark.times = times[mark.words]
        has_lower = any(category(character) == "Ll" for character in mark.own)
        if any(map(is_alpha, mark.own)) and mark.times >= 3 and not mark.line.is_lower:
            mark.kind, mark.number = REPEATED, None
        elif mark.number is not None and (not has_lower or rests[mark.rest] >= 3):
            mark.kind = NUMBERED
        elif any(category(c) in ("Lu", "Lt") for c in mark.own) and not has_lower:
            mark.kind, mark.number = CAPITALS, None
    return {place: mark for place, mark in marks.items() if mark.kind}


@dataclass(eq=False)
class Break:
    """Lines that may be furniture between two lines of text, by their places."""

    before: int
    after: int
    marks: list[Mark]
    lines: list[Line]
    width: int

    @property
    def page(self) -> int:
        return next((mark.number for mark in reversed(self.marks) if mark.number is not None), -1)

    @property
    def continues(self) -> bool:
        before, after = self.lines[self.before], self.lines[self.after]
        return not before.has_stop and continues(before, after, self.width, False, False)

    @property
    def interrupts(self) -> bool:
        before, after = self.lines[self.before], self.lines[self.after]
        if before.is_odd or after.is_odd or after.is_upper or 2 * after.width <= self.width:
            return False
        return self.continues and (after.is_lower or not any(mark.line.has_stop for mark in self.marks))


def find_breaks(lines: list[Line], marks: dict[int, Mark], width: int) -> list[Break]:
    found = []
    is_text = [not line.is_blank and place not in marks for place, line in enumerate(lines)]
    texts = [place for place, is_here in enumerate(is_text) if is_here]
    for before, after in zip(texts, texts[1:], strict=False):
        inside = [marks[place] for place in range(before, after) if place in marks]
        if 0 < len(inside) <= 4 and any(mark.kind != CAPITALS for mark in inside):
            found.append(Break(before, after, inside, lines, width))
    return found


def find_anchors(breaks: list[Break]) -> list[Break]:
    numbered = [one for one in breaks if one.interrupts and one.page >= 0]
    pairs = list(zip(numbered, numbered[1:], strict=False))
    near = [(a, b) for a, b in pairs if 0 < b.page - a.page <= 16 and b.before - a.before >= 8 * (b.page - a.page)]
    anchors: list[Break] = []
    for one in numbered:
        if any(one in pair for pair in near) and (not anchors or anchors[-1].page < one.page):
            anchors.append(one)
    if len(anchors) < 3:
        return []
    pitches = [(b.before - a.before) / (b.page - a.page) for a, b in zip(anchors, anchors[1:], strict=False)]
    median = sorted(pitches)[len(pitches) // 2]
    even = [pitch for pitch in pitches if 0.8 * median <= pitch <= 1.25 * median]
    return anchors if 2 * len(even) >= len(pitches) else []


def find_furniture(lines: list[Line], width: int) -> tuple[list[Line], list[str]]:
    """The lines without furniture, and the furniture."""
    if not width or len(lines) < 24:
        return lines, []
    marks = mark_lines(lines, width)
    breaks = find_breaks(lines, marks, width)
    anchors = find_anchors(breaks)
    known = {mark.group for one in anchors for mark in one.marks}
    inside = Counter(mark.group for one in breaks for mark in one.marks if mark.kind == REPEATED and one.interrupts)
    removed, blank, seen = set(), set(), set()
    for one in breaks:
        earlier = [anchor.page for anchor in anchors if anchor.before < one.before]
        later = [anchor.page for anchor in anchors if anchor.before >= one.before]
        gone = []
        for mark in one.marks:
            if mark.kind == NUMBERED and anchors and mark.group in known and mark.number is not None:
                low = earlier[-1] if earlier else later[0] - 16
                high = later[0] if later else earlier[-1] + 16
                gone += [mark] if low <= mark.number <= high else []
            if mark.kind == REPEATED:
                is_head = inside[mark.group] >= 2 and 5 * inside[mark.group] >= mark.times
                gone += [mark] if is_head and (mark.group in seen or one.interrupts) else []
                seen.add(mark.group)
        if gone and one.interrupts:
            gone += [mark for mark in one.marks if mark.kind == CAPITALS]
        removed |= {id(mark.line) for mark in gone}
        if one.continues and len(gone) == len(one.marks):
            blank |= {id(line) for line in lines[one.before + 1 : one.after] if line.is_blank}
    kept = [line for line in lines if id(line) not in removed | blank]
    return kept, [line.text for line in lines if id(line) in removed]


def unwrap_and_list(text: str) -> tuple[str, list[str]]:
    """One document, its paragraphs a line each, blank lines left out, and the page furniture that was removed."""
    lines = [Line(raw) for raw in text.removesuffix("\n").split("\n")]
    width = find_width(lines)
    lines, furniture = find_furniture(lines, width)
    by_indent = indents_paragraphs(lines)
    joins: dict[int, str] = {}
    begin = 0
    while begin < len(lines):
        end = begin
        while end < len(lines) and not lines[end].is_blank:
            end += 1
        verse = width > 0 and is_verse(lines[begin:end], width)
        in_list = lines[begin].is_list
        for place in range(begin, end - 1):
            line, after = lines[place], lines[place + 1]
            if not (line.is_odd or after.is_odd):
                if line.text[-1] == "\u00ad" and is_word(after.text[0]):
                    joins[place] = "drop"
                elif width and not verse and continues(line, after, width, by_indent, in_list):
                    joins[place] = choose_join(line, after)
            if place not in joins:
                in_list = after.is_list
        begin = end + 1
    undecided = [place for place, join in joins.items() if join == "undecided"]
    joins |= resolve(lines, undecided)
    out = ""
    for place, line in enumerate(lines):
        if line.is_blank:
            continue
        join = joins.get(place, "\n")
        out += line.text[:-1] if join == "drop" else line.text + join
    return out, furniture


def choose_join(line: Line, after: Line) -> str:
    if line.has_hyphen:
        if category(after.text[0]) == "Ll":
            return "undecided"
        return "" if is_word(after.text[0]) else " "
    return "" if is_joined_by_nothing(line, after) else " "
