"""Which rules made a build: versions of our rules, of the Unicode tables, and of the libraries that affect bytes.

Each plan and manifest records them. If other rules made a set, the same command may make other bytes now.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib.metadata import version

from albert_data.text.unicode_tables import unicode_version

# Raised whenever the same documents, tokenizer and config give other rows. Released versions up to 0.3.0 have 1.
RULES_VERSION = 3
# pyarrow writes and compresses the shards. sentencepiece normalises, and tokenises what tokenizer/ leaves to it.
_LIBRARIES = ("pyarrow", "sentencepiece")


def current_versions(packages: Collection[str] = ()) -> tuple[int, str, dict[str, str]]:
    """Return the versions of the rules, of the Unicode tables, and of each library.

    packages: more libraries that the build's tokenizer uses. Raises PackageNotFoundError if one is not installed.
    """
    return RULES_VERSION, unicode_version(), {name: version(name) for name in (*_LIBRARIES, *packages)}
