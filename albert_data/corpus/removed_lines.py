"""Lines that were removed from documents: how many, for which reason, and some of them.

Examples are those with the least hashes, where runs of digits count as one digit, so that page numbers are one example.
So they depend on the removed lines alone, and each has its exact count: a line among the least of a whole corpus is
among the least of every part that has it.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

from xxhash import xxh3_64_intdigest

PAGE_FURNITURE, REPEATED_LINES = "page_furniture", "repeated_lines"
REMOVALS = {
    PAGE_FURNITURE: "page numbers and running heads, removed by --unwrap",
    REPEATED_LINES: "in many documents, removed by --drop-repeated-lines",
}
_KEPT = 20
_SHOWN_BYTES = 160
_DIGITS = re.compile(rb"[0-9]+")


@dataclass(kw_only=True)
class RemovedLines:
    """Lines removed for one reason.

    num_bytes: of canonical text, without line feeds
    examples: the least text of each example, and how many lines are like it
    """

    num_lines: int = 0
    num_bytes: int = 0
    examples: dict[str, int] = field(default_factory=dict)

    def add(self, lines: Iterable[bytes]) -> None:
        """Count lines of valid UTF-8."""
        counts = Counter(lines)
        texts = {line: " ".join(line.decode().split()).encode() for line in counts}
        self.num_lines += counts.total()
        self.num_bytes += sum(len(texts[line]) * count for line, count in counts.items())
        self._keep((texts[line][:_SHOWN_BYTES].decode(errors="ignore").strip(), counts[line]) for line in texts)

    def merge(self, other: RemovedLines) -> None:
        self.num_lines += other.num_lines
        self.num_bytes += other.num_bytes
        self._keep(other.examples.items())

    def to_dict(self) -> dict[str, int]:
        """The figures, without text."""
        return {"num_lines": self.num_lines, "num_bytes": self.num_bytes}

    def rank(self) -> list[tuple[str, int]]:
        """The examples, the most frequent first."""
        return sorted(self.examples.items(), key=lambda item: (-item[1], item[0]))

    def _keep(self, found: Iterable[tuple[str, int]]) -> None:
        """Make one example of each group of lines that differ in digits alone, and keep those with the least hashes."""
        groups: dict[bytes, tuple[str, int]] = {}
        for text, count in chain(self.examples.items(), found):
            form = _DIGITS.sub(b"0", text.encode())
            least, total = groups.get(form, (text, 0))
            groups[form] = min(least, text), total + count
        kept = heapq.nsmallest(_KEPT, groups, key=lambda form: (xxh3_64_intdigest(form), form))
        self.examples = dict(map(groups.__getitem__, sorted(kept)))
