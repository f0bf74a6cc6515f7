"""What is no prose in the text of rows: page furniture, tables of numbers, repeated lines, other scripts and OCR.

In: a sample of the rows, decoded. Rows have no line ends, so only what interrupts lower-case text counts as page
furniture: a number with capitals or between dashes, as in `acquaintance with - 203 - 204 BLEAK HOUSE. the`. That is
fewer than there are. Words are compared among rows, so they need spaces between them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from albert_data.corpus.layout import MARKERS
from albert_data.inspect.audit import rules
from albert_data.inspect.audit.misread import MIN_TEXTS, find_misread
from albert_data.inspect.audit.rows import Subject
from albert_data.inspect.audit.rules import Check, Rule
from albert_data.inspect.audit.shares import judge_share
from albert_data.text.escaping import escape_controls
from albert_data.text.unicode_tables import categories, scripts

MAX_ROWS = 4000
_SHOWN, _AROUND = 2, 24  # examples; characters on either side of one
_DASHED, _CAPITALS = r"[-–—] ?\d{1,4} ?[-–—]", r"[A-Z][A-Z'’&-]+[.,:]?"
_BETWEEN = re.compile(rf"(?<=[a-z,;] )(?:(?:{_DASHED}|\d{{1,4}}|{_CAPITALS}) ){{1,8}}(?=[a-z])")
_HEAD = re.compile(r"[A-Z]{6}|[A-Z]{2}\S* (?:\d{1,4} )?[A-Z]{2}")  # not "in 1999 NASA was"
_SEPARATOR = re.compile(MARKERS, re.IGNORECASE)
_LEAST_WORDS, _MANY_NUMBERS = 20, 0.5  # of a table
_FROM_DIGIT = re.compile(r"[0-9]\S*")  # once in each word that holds a digit
# Of a repeated line: words, documents, share of all windows of four words, of the windows that share three of them.
_REPEATED_WORDS, _REPEATED_DOCUMENTS, _REPEATED_SHARE, _REPEATED_WHOLE = 4, 20, 1e-4, 0.99
_LEAST_LETTERS, _FEW_LETTERS, _BEGINNING = 20, 0.05, 40  # of a row in another script
_MAX_CHARACTERS = 2_000_000  # in which words are compared: 0.4 s


def check_texts(subject: Subject) -> Iterator[Check]:
    """Look for what is no prose in rows that lie evenly over all splits."""
    total = subject.begins[-1]
    rows = np.unique(np.linspace(0, total - 1, min(total, MAX_ROWS)).astype(np.int64))
    texts = [_decode(subject, row) for row in rows.tolist()]
    yield _check(subject, rows, rules.DOCUMENT_SEPARATORS, map(find_separator, texts))
    yield _check(subject, rows, rules.PAGE_FURNITURE, map(find_furniture, texts))
    yield _check(subject, rows, rules.NUMBER_TABLES, map(find_table, texts))
    yield _check(subject, rows, rules.OTHER_SCRIPTS, find_other_scripts(texts, subject.facts.sources[rows]))
    some = slice(None, None, 1 + sum(map(len, texts)) // _MAX_CHARACTERS)
    texts, rows = texts[some], rows[some]
    yield _check(subject, rows, rules.REPEATED_LINES, find_repeated(texts, subject.owners[rows].tolist()))
    misread = find_misread(texts)
    if misread is None:
        yield Check(rules.MISREAD_WORDS, None, f"too few words, between spaces, stand in {MIN_TEXTS} rows")
    else:
        yield _check(subject, rows, rules.MISREAD_WORDS, misread)


def find_separator(text: str) -> str | None:
    """The first marker such as <|endoftext|>, which some tokenizers write with spaces inside."""
    found = _SEPARATOR.search(text.replace(" ", ""))
    return found and found[0]


def find_furniture(text: str) -> str | None:
    """The first page number or running head inside a sentence, with some text around it.

    >>> find_furniture("so he met with - 203 - 204 BLEAK HOUSE. the lady")
    'so he met with - 203 - 204 BLEAK HOUSE. the lady'
    """
    for found in _BETWEEN.finditer(text):
        if re.search(r"\d", found[0]) and (_HEAD.search(found[0]) or re.search(_DASHED, found[0])):
            return text[max(0, found.start() - _AROUND) : found.end() + _AROUND]
    return None


def find_table(text: str) -> str | None:
    """The beginning of a text of which half of the words or more hold digits."""
    words = text.split()
    num_numbers = len(_FROM_DIGIT.findall(text))
    is_table = len(words) >= _LEAST_WORDS and num_numbers >= _MANY_NUMBERS * len(words)
    return " ".join(words[:10]) if is_table else None


def find_repeated(texts: Sequence[str], owners: Sequence[int]) -> list[str | None]:
    """For each text its first four words that are of a line of many documents; numbers count as equal, and show as 0.

    They are frequent, and of three of them the fourth is hardly ever missing, as it is in "for the purpose of".
    owners: the number of each text's document.
    """
    words = [re.sub(r"\d+", "0", text).split() for text in texts]
    grams = [_list_grams(found, _REPEATED_WORDS) for found in words]
    counts = Counter(gram for found in grams for gram in found)
    least = max(_REPEATED_DOCUMENTS, _REPEATED_SHARE * sum(map(len, words)))
    documents: dict[tuple[str, ...], set[int]] = {gram: set() for gram, count in counts.items() if count >= least}
    wanted = {part for gram in documents for part in (gram[1:], gram[:-1])}
    parts = Counter(part for found in words for part in _list_grams(found, _REPEATED_WORDS - 1) if part in wanted)
    for found, owner in zip(grams, owners, strict=True):
        for gram in documents.keys() & found:
            documents[gram].add(owner)
    repeated = {
        gram
        for gram, found in documents.items()
        if len(found) >= _REPEATED_DOCUMENTS
        and counts[gram] >= _REPEATED_WHOLE * max(parts[gram[1:]], parts[gram[:-1]])
    }
    return [next((" ".join(gram) for gram in found if gram in repeated), None) for found in grams]


def _list_grams(words: Sequence[str], size: int) -> dict[tuple[str, ...], None]:
    return dict.fromkeys(zip(*(words[at:] for at in range(size)), strict=False))


def find_other_scripts(texts: Sequence[str], sources: np.ndarray) -> Iterator[str | None]:
    """The beginning of each text whose letters are mostly of scripts that its source hardly uses.

    These have under a twentieth of the letters of the most frequent script, in all texts of the source.
    """
    counts = _count_letters(texts)
    totals = np.zeros((int(sources.max()) + 1, counts.shape[1]), np.int64)
    np.add.at(totals, sources, counts)
    is_rare = totals < _FEW_LETTERS * totals.max(axis=1, keepdims=True)
    others = (counts * is_rare[sources]).sum(axis=1)
    is_other = (others >= _LEAST_LETTERS) & (2 * others > counts.sum(axis=1))
    return (text[:_BEGINNING] if is_so else None for text, is_so in zip(texts, is_other.tolist(), strict=True))


def _count_letters(texts: Sequence[str]) -> np.ndarray:
    """The letters of each script in each text: int64 [texts, scripts]."""
    (numbers, names), (kinds, kind_names) = scripts(), categories()
    is_letter = np.array([name[0] == "L" for name in kind_names])[kinds]
    columns = np.where(is_letter, numbers, len(names))
    codes = (np.frombuffer(text.encode("utf-32-le"), np.uint32) for text in texts)
    return np.array([np.bincount(columns[code], minlength=len(names) + 1)[:-1] for code in codes])


def _decode(subject: Subject, row: int) -> str:
    example = subject.read_row(row)
    ids, middle = example.original_ids, 1 + example.segment_a_len
    return f"{subject.tokenizer.decode(ids[1:middle])} {subject.tokenizer.decode(ids[middle + 1 : -1])}"


def _check(subject: Subject, rows: np.ndarray, rule: Rule, found: Iterable[str | None]) -> Check:
    """found: for each of `rows` an example, None where it is sound."""
    examples = list(found)
    is_so = np.array([example is not None for example in examples])
    first = [example for example in dict.fromkeys(examples) if example is not None][:_SHOWN]
    shown = [", ".join(f'"{escape_controls(example)}"' for example in first)] if first else []
    return judge_share(subject, rule, "sampled row", is_so, rows=rows, more=shown, details={"examples": first})
