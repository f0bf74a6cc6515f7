"""What is no prose in the text of rows: page furniture inside sentences, and tables of numbers.

In: a sample of the rows, decoded. Rows have no line ends, so only what interrupts lower-case text is counted: a number
with capitals or between dashes, as in `acquaintance with - 203 - 204 BLEAK HOUSE. the`. That is fewer than there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from albert_data.escaping import escape_controls
from albert_data.inspect.audit import rules
from albert_data.inspect.audit.rows import Subject
from albert_data.inspect.audit.rules import Check, Rule
from albert_data.wording import count_of, format_share

MAX_ROWS = 4000
_SHOWN, _AROUND = 2, 24  # examples; characters on either side of one
_DASHED, _CAPITALS = r"[-–—] ?\d{1,4} ?[-–—]", r"[A-Z][A-Z'’&-]+[.,:]?"
_BETWEEN = re.compile(rf"(?<=[a-z,;] )(?:(?:{_DASHED}|\d{{1,4}}|{_CAPITALS}) ){{1,8}}(?=[a-z])")
_HEAD = re.compile(r"[A-Z]{6}|[A-Z]{2}\S* (?:\d{1,4} )?[A-Z]{2}")  # not "in 1999 NASA was"
_LEAST_WORDS, _MANY_NUMBERS = 20, 0.5  # of a table


def check_texts(subject: Subject) -> Iterator[Check]:
    """Look for what is no prose in rows that lie evenly over all splits."""
    texts = list(_decode_sample(subject))
    yield _check(rules.PAGE_FURNITURE, texts, find_furniture)
    yield _check(rules.NUMBER_TABLES, texts, find_table)


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
    num_numbers = sum(any("0" <= character <= "9" for character in word) for word in words)
    is_table = len(words) >= _LEAST_WORDS and num_numbers >= _MANY_NUMBERS * len(words)
    return " ".join(words[:10]) if is_table else None


def _decode_sample(subject: Subject) -> Iterator[str]:
    total = subject.begins[-1]
    for row in np.unique(np.linspace(0, total - 1, min(total, MAX_ROWS)).astype(np.int64)).tolist():
        number = int(np.searchsorted(subject.begins, row, side="right")) - 1
        example = subject.shards[number][row - subject.begins[number]]
        ids = example.original_ids
        middle = 1 + example.segment_a_len
        yield f"{subject.tokenizer.decode(ids[1:middle])} {subject.tokenizer.decode(ids[middle + 1 : -1])}"


def _check(rule: Rule, texts: list[str], find: Callable[[str], str | None]) -> Check:
    found = [example for example in map(find, texts) if example is not None]
    share = len(found) / len(texts)
    finding = f"{format_share(share)}, {len(found):,} of {count_of(len(texts), 'sampled row')}"
    if found:
        finding += "; " + ", ".join(f'"{escape_controls(example)}"' for example in found[:_SHOWN])
    return Check(rule, share, finding, {"count": len(found), "of": len(texts), "examples": found[:_SHOWN]})
