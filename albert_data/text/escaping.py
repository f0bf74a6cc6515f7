"""Escape characters that control a terminal or can't be seen, in printed text, as `repr` does; and marks in cards."""

from __future__ import annotations

import json
import os
import re
import shlex
import unicodedata
from collections.abc import Mapping
from typing import Any

# Controls, format characters (some reverse text), surrogates, private use, unassigned; separators of lines, paragraphs.
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_MARKS = re.compile(r"[!-+;-@\[-^`{-~]")  # what Markdown and HTML read as more than text
JOINERS = "\u200c\u200d"  # format characters that the spelling of Persian, Hindi and emoji needs


def escape_controls(text: str) -> str:
    """Escape the characters that control a terminal, change the reading direction or can't be seen: "\\x1b"."""
    return "".join(map(_escape, text))


def quote(word: str | os.PathLike[str]) -> str:
    """A word of a command for a shell."""
    return shlex.quote(os.fspath(word))


def _escape(character: str) -> str:
    if unicodedata.category(character) in _ESCAPED and character not in JOINERS:
        return character.encode("unicode_escape").decode("ascii")
    return character


def make_encodable(text: str, encoding: str | None) -> str:
    """Escape the characters that an encoding does not have; None for UTF-8, as of a stream in memory."""
    encoding = encoding or "utf-8"
    return text.encode(encoding, errors="backslashreplace").decode(encoding)


def name_as_text(path: str | os.PathLike[str]) -> str:
    """Return a path as valid text, for JSON.

    A byte that is not UTF-8, such as 0xff, becomes six characters, `\\udcff`.
    """
    return os.fspath(path).encode(errors="backslashreplace").decode()


def escape_marks(text: str) -> str:
    """Text that Markdown and HTML show as it is, also in a table.

    >>> escape_marks("a|b <i>")
    'a&#124;b &#60;i&#62;'
    """
    return _MARKS.sub(lambda mark: f"&#{ord(mark[0])};", text)


def to_yaml(values: Mapping[str, Any]) -> str:
    """The metadata of a card: a line for each key, its value as JSON, which is YAML too.

    Beyond ASCII text stays as it is: JSON escapes half characters, which YAML refuses.
    """
    return "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items())
