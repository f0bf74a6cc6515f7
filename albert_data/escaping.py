"""Text made harmless: what steers a terminal, or can't be seen, is written as Python writes it in a string."""

from __future__ import annotations

import os
import unicodedata

_STEERING = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"  # of category Cf, yet Persian, Hindi and emoji are spelt with them


def escape_controls(text: str) -> str:
    """Write out the characters that steer a terminal, change the reading direction or can't be seen."""
    return "".join(map(_escape, text))


def _escape(character: str) -> str:
    if unicodedata.category(character) in _STEERING and character not in _JOINERS:
        return character.encode("unicode_escape").decode("ascii")
    return character


def make_encodable(text: str, encoding: str) -> str:
    """Write out the characters that an output of this encoding can't hold."""
    return text.encode(encoding, errors="backslashreplace").decode(encoding)


def name_as_text(path: str | os.PathLike[str]) -> str:
    """A path as valid text, for JSON: a byte of a name that is not UTF-8, such as 0xff, is written `\\udcff`."""
    return os.fspath(path).encode(errors="backslashreplace").decode()
