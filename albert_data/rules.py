"""Which rules made a build: the version of our own, of the Unicode tables, and of the libraries that decide bytes.

They stand in each plan and manifest. A set that other rules made is not what the same command makes now.
"""

from __future__ import annotations

from importlib.metadata import version

from albert_data.unicode_tables import unicode_version

# Raised whenever the same documents, tokenizer and config give other rows. 1: albert-data 0.3.0 and before.
RULES_VERSION = 2
# pyarrow writes the files, and compresses them; sentencepiece normalises, and tokenises what the chunk table can't.
_LIBRARIES = ("pyarrow", "sentencepiece")


def current_versions() -> tuple[int, str, dict[str, str]]:
    """Of the rules, of the Unicode tables, and of each library."""
    return RULES_VERSION, unicode_version(), {name: version(name) for name in _LIBRARIES}
