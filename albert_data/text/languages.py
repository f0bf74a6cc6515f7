"""The languages that can be named, and what else a source may be called.

In: languages.tsv, a line for each language of ISO 639-1, -2 and -3: its code, its name, its other codes. Other codes
are those of three letters ("deu" and "ger" for "de"), withdrawn ones ("iw" for "he") and that of the largest member of
a group of languages ("cmn" for "zh").

A source of a corpus is a language, or has a name of another kind, such as "web/cc". Map tasks know it by a number of 32
bits, its source code: the letters of a language, or a hash of the name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from hashlib import sha256
from pathlib import Path

from albert_data.errors import ConfigError, InputError

UNDETERMINED = "und"  # the code for text of no known language; it has no table, so the rule without words is used
MAX_NAMES = 1000  # of sources that are no languages
_PATH = Path(__file__).with_name("languages.tsv")
_HASHED = 1 << 31  # set in the source code of a name that is no language: letters are ASCII
_MAX_NAME, _MAX_STRIPPED = 64, 128  # characters
# Controls, marks that reverse text or can't be seen, half and damaged characters. It names them itself, because classes
# of characters depend on Python's version.
_NOT_IN_NAMES = re.compile(
    "[\0-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff0-\uffff"
    "\U000e0000-\U000e0fff]"
)


@cache
def _read() -> str:
    return _PATH.read_text(encoding="utf-8")


@cache
def list_languages() -> Mapping[str, str]:
    """Canonical codes in alphabetical order, those of two letters first, each with its English name."""
    return {code: name for code, name, _ in (line.split("\t") for line in _read().splitlines()[1:])}


@cache
def _list_other_codes() -> Mapping[str, str]:
    """Codes that are not canonical, each with the one that is."""
    found = re.findall(r"^(\w+)\t[^\t]*\t(.+)$", _read(), re.MULTILINE)
    return {other: code for code, others in found for other in others.split()}


def is_language(code: str) -> bool:
    """Return whether a code, with or without subtags, is known."""
    return _find_canonical(code) is not None


def normalise_language(code: str) -> str:
    """Return a language's canonical code: "pt" for "pt-BR", "zh" for "zh_Hant" and "cmn", "de" for "DEU".

    Raises ConfigError if the code is unknown.
    """
    canonical = _find_canonical(code)
    if canonical is None:
        raise ConfigError(
            f"language is {code!r}, which is no known ISO 639 code{_suggest(code)}; name one such as en, de or kea"
        )
    return canonical


def _find_canonical(code: str) -> str | None:
    """The canonical code of a language; None if it isn't known."""
    primary = re.split("[-_]", code, maxsplit=1)[0].lower()
    if not re.fullmatch("[a-z]{2,3}", primary):
        return None
    # Looked up in the text: to make a table of all lines would slow each start down.
    return primary if f"\n{primary}\t" in _read() else _list_other_codes().get(primary)


def _suggest(code: str) -> str:
    """The language with a code of two letters whose name looks like this, as the end of a message."""
    names = {name.lower(): f"{known}, {name}" for known, name in list_languages().items() if len(known) == 2}
    close = get_close_matches(code.strip().lower(), names, 1, 0.75)
    return f" (did you mean {names[close[0]]}?)" if close else ""


# ---- sources ----


def is_source_name(name: str) -> bool:
    """Whether a source may have this name: 1 to 64 characters, none of them a control or invisible."""
    return 0 < len(name) <= _MAX_NAME and not name.isspace() and not _NOT_IN_NAMES.search(name)


def normalise_source(name: str) -> str | None:
    """The source that a language field names: a language's canonical code, or the name itself; None if it is no name.

    >>> normalise_source("pt-BR"), normalise_source("web/cc"), normalise_source("")
    ('pt', 'web/cc', None)
    """
    name = name.strip() if len(name) <= _MAX_STRIPPED else name
    return _find_canonical(name) or (name if is_source_name(name) else None)


def choose_rules(source: str) -> str:
    """The language whose rules split the text of a source: the source itself, or "und" if it is no language."""
    return source if is_language(source) else UNDETERMINED


def encode_source(name: str) -> int:
    """Return a source code, a uint32. Of a language: its letters, the first in the lowest byte, unused bytes 0.

    >>> hex(encode_source("de"))
    '0x6564'
    """
    if is_language(name):
        return int.from_bytes(name.encode("ascii"), "little")
    return _HASHED | int.from_bytes(sha256(name.encode()).digest()[:4], "little")


def decode_language(source_code: int) -> str:
    """Return the language of a source code; "und" if it is that of another name."""
    if source_code & _HASHED:
        return UNDETERMINED
    return int(source_code).to_bytes(4, "little").rstrip(b"\0").decode("ascii")


def name_sources(source_codes: Iterable[int], names: Iterable[str]) -> dict[str, int]:
    """The names of sources in sorted order, each with its source code. names: of those that are no languages.

    Raises InputError if two names have the same hash.
    """
    hashed: dict[int, str] = {}
    for name in sorted(names):
        if (other := hashed.setdefault(encode_source(name), name)) != name:
            raise InputError(
                f"the language field holds the names {other!a} and {name!a}, which have the same hash; rename one"
            )
    return dict(sorted((hashed.get(code) or decode_language(code), code) for code in source_codes))
