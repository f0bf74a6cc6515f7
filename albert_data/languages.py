"""The languages that can be named: ISO 639 codes, their names and other codes of the same language.

In: languages.tsv, a line for each language: its code, its name, its other codes. It holds all languages with a code of
two letters (ISO 639-1), and languages with much text that have a code of three letters only (ISO 639-2 and -3). Other
codes are those of three letters ("deu" and "ger" for "de"), withdrawn ones ("iw" for "he") and that of the largest
member of a group of languages ("cmn" for "zh").
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path

from albert_data.errors import ConfigError

_PATH = Path(__file__).with_name("languages.tsv")


def _read() -> tuple[dict[str, str], dict[str, str]]:
    names: dict[str, str] = {}
    canonical_codes: dict[str, str] = {}
    for line in _PATH.read_text(encoding="utf-8").splitlines()[1:]:
        code, name, others = line.split("\t")
        names[code] = name
        canonical_codes |= dict.fromkeys([code, *others.split()], code)
    return names, canonical_codes


LANGUAGES, _CANONICAL_CODES = _read()  # canonical code -> English name; any code -> its language's canonical one


def is_language(code: str) -> bool:
    """Return whether a code, with or without subtags, is known."""
    return _find_primary(code) in _CANONICAL_CODES


def normalise_language(code: str) -> str:
    """Return a language's canonical code: "pt" for "pt-BR", "zh" for "zh_Hant" and "cmn", "de" for "DEU".

    Raises ConfigError if the code is unknown.
    """
    primary = _find_primary(code)
    if primary not in _CANONICAL_CODES:
        raise ConfigError(
            f"language is {code!r}, which is no known ISO 639 code{_suggest(code)}; --language help lists all codes"
        )
    return _CANONICAL_CODES[primary]


def pack_language(code: str) -> int:
    """Return a code of up to four ASCII letters as a uint32: the first letter in the lowest byte, unused bytes 0."""
    letters = code.encode("ascii")
    if not 1 <= len(letters) <= 4:
        raise ValueError(f"{code!r} has {len(letters)} letters; 1 to 4 can be packed")
    return int.from_bytes(letters, "little")


def unpack_language(packed: int) -> str:
    """Return the code that `pack_language` packed."""
    return int(packed).to_bytes(4, "little").rstrip(b"\0").decode("ascii")


def _find_primary(code: str) -> str:
    """Return the part before the first subtag, in lower case; empty if it isn't two or three ASCII letters."""
    primary = re.split("[-_]", code, maxsplit=1)[0]
    return primary.lower() if re.fullmatch("[A-Za-z]{2,3}", primary) else ""


def _suggest(code: str) -> str:
    """Return the known codes and names that look like this one, as the end of a message."""
    names = {name.lower(): known for known, name in LANGUAGES.items()}
    word = code.strip().lower()
    if close := get_close_matches(word, names, n=1, cutoff=0.75):
        return f" (did you mean {names[close[0]]}, {LANGUAGES[names[close[0]]]}?)"
    close = get_close_matches(re.split("[-_]", word)[0], _CANONICAL_CODES, n=3, cutoff=0.6)
    codes = sorted({_CANONICAL_CODES[match] for match in close})
    return f" (did you mean {' or '.join(f'{match}, {LANGUAGES[match]}' for match in codes)}?)" if codes else ""
