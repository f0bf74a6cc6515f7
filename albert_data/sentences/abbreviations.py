"""Abbreviations that a user adds to those of abbreviations.txt, as words of the class "maybe".

In: text in UTF-8 with a line for each: a language, white space, the abbreviation with or without its last full stop, as
in `de bspw.`; `#` begins a comment. Out: a line for each, sorted, as settings have them.
"""

from __future__ import annotations

from albert_data.errors import ConfigError
from albert_data.text.languages import normalise_language

MAX_WORD = 48  # bytes of a word that the kernel looks up
MAX_BYTES = 1 << 16  # of all: plan and manifest hold them
_ADVICE = f"write in UTF-8 a language and an abbreviation of up to {MAX_WORD} bytes, such as: de bspw."


def normalise_abbreviations(data: bytes, where: str = "abbreviations") -> str:
    """Raises ConfigError. where: how messages begin.

    >>> normalise_abbreviations(b"deu z. B. # German\\nde bspw.")
    'de bspw\\nde z.B'
    """
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{where} has over {MAX_BYTES:,} bytes; leave out what the text does not have")
    found = set()
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            if not (fields := line.decode().partition("#")[0].split()):
                continue
            language, parts = normalise_language(fields[0]), [part.rstrip(".") for part in fields[1:]]
            word = ".".join(parts)
            if not word or len(word.encode()) > MAX_WORD or any(len(part) != 1 for part in parts if part != word):
                raise ConfigError(f"{' '.join(fields[1:])!r:.80} is none; only single letters may have spaces between")
            found.add(f"{language} {word}")
        except (UnicodeDecodeError, ConfigError) as error:
            raise ConfigError(f"{where}, line {number}: {error}; {_ADVICE}") from error
    if not found:
        raise ConfigError(f"{where} holds no abbreviation; {_ADVICE}")
    return "\n".join(sorted(found))
