"""What reading notices: damage, and signs that the input was meant to be read in another way (layout.py, fields.py).

Damage is repaired or skipped, and counted by its reason: one broken line must neither end a build of hours nor vanish
unseen. With --strict it is an error. Tasks read inputs or parts of them, and their counts are added up; the sums do not
depend on how the work was split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from albert_data.corpus.conditions import EXCLUDED, EXCLUSIONS, WITHOUT_FIELD, Where
from albert_data.corpus.fields import Fields, list_names
from albert_data.errors import InputError
from albert_data.text.escaping import name_as_text
from albert_data.text.languages import MAX_NAMES

# ---- counts of each input, so that the inputs that give nothing or lose text can be named ----
#
# A million inputs must fit into memory: of those that one task read to their end, only the damaged are kept, and of
# these only the worst.

# Many corpora hold these, so they are no error under --strict, and an input with no other reason is sound.
HARMLESS = frozenset({"empty_document", "no_tokens", "long_document_cut", "missing_id", "unknown_keys", *EXCLUSIONS})
LOSES_NOTHING = HARMLESS | {"missing_part", "stray_quote"}
LOSES_RECORD = ("malformed_json", "missing_field", "field_not_text", "malformed_row", "line_too_long", "row_too_long")
_MUCH = 0.1  # more than this share of an input is named at the end
_KEPT = 100  # of the worst inputs that were read to their end


@dataclass(kw_only=True, slots=True)
class InputCounts:
    """One input.

    damage: cases by reason, as in Damage
    fields: of its records without text, None if there are none
    num_bytes, unread_bytes: of the file, and of these the ones after damage that ended its reading
    text_bytes, lost_bytes: of its text, and of these the ones that became U+FFFD, or lay outside of articles
    """

    num_documents: int = 0
    num_bytes: int = 0
    unread_bytes: int = 0
    text_bytes: int = 0
    lost_bytes: int = 0
    damage: Counter[str] = field(default_factory=Counter)
    fields: Fields | None = None

    @property
    def num_losses(self) -> int:
        return sum(count for reason, count in self.damage.items() if reason not in LOSES_NOTHING)

    @property
    def is_sound(self) -> bool:
        return self.num_documents > 0 and not self.num_losses

    @property
    def lost_share(self) -> float:
        """The share of it that is lost: what is left of its bytes, of their records, and of the text of these."""
        num_lost = sum(self.damage[reason] for reason in LOSES_RECORD)
        num_others = sum(self.damage[reason] for reason in ("empty_document", *EXCLUSIONS))
        num_records = self.num_documents - self.damage["long_document_cut"] + num_lost + num_others
        if num_records <= 0:
            return float(bool(self.num_losses))
        left = (1 - num_lost / num_records) * (1 - self.lost_bytes / max(self.text_bytes, 1))
        return 1 - left * (1 - self.unread_bytes / max(self.num_bytes, 1))

    @property
    def loses_much(self) -> bool:
        """Whether it gave documents, and over a tenth is lost, or nobody knows how much, as where a file is cut."""
        return self.num_documents > 0 and (self.lost_share > _MUCH or self.damage["damaged_compression"] > 0)

    def count_unread(self, num_read: int, num_bytes: int) -> None:
        """Count the rest of a file of so many bytes, if damage ended its reading. num_read: up to its last document."""
        if self.damage["damaged_compression"]:
            self.unread_bytes += max(num_bytes - num_read, 0)

    def merge(self, other: InputCounts) -> None:
        _add(self, other, "num_documents", "num_bytes", "unread_bytes", "text_bytes", "lost_bytes")
        self.damage += other.damage
        if other.fields is not None:
            self.fields = self.fields or Fields()
            self.fields.merge(other.fields)


@dataclass(kw_only=True)
class CountsByInput:
    """The inputs that were read, by path.

    parts: those of which other tasks may have read the rest
    whole: all others that are kept
    num_empty, num_damaged, num_losing: inputs that are not kept: without documents, with damage, and that lose much
    num_bytes, lost_bytes: of the inputs that are not kept
    """

    parts: dict[str, InputCounts] = field(default_factory=dict)
    whole: dict[str, InputCounts] = field(default_factory=dict)
    num_empty: int = 0
    num_damaged: int = 0
    num_losing: int = 0
    num_bytes: int = 0
    lost_bytes: float = 0.0

    def of(self, path: str) -> InputCounts:
        name = name_as_text(path)
        return self.parts.get(name) or self.whole.setdefault(name, InputCounts())

    @contextmanager
    def reading(self, path: str, num_bytes: int = 0, *, is_part: bool) -> Iterator[InputCounts]:
        """While an input is read, or `num_bytes` of its file. An input without documents is noticed by this alone."""
        name = name_as_text(path)
        counts = (self.parts if is_part else self.whole).setdefault(name, InputCounts())
        counts.num_bytes += num_bytes
        yield counts
        if counts.num_documents:
            counts.fields = None
        if not is_part and counts.is_sound:
            self._let_go(self.whole.pop(name))
        self._drop_others()

    def merge(self, other: CountsByInput) -> None:
        for mine, others in ((self.parts, other.parts), (self.whole, other.whole)):
            for name, counts in others.items():
                mine.setdefault(name, InputCounts()).merge(counts)
        _add(self, other, "num_empty", "num_damaged", "num_losing", "num_bytes", "lost_bytes")
        self._drop_others()

    def _drop_others(self) -> None:
        """Keep the worst inputs of those that were read to their end."""
        if len(self.whole) > 2 * _KEPT:
            ranked = rank(self.whole)
            for _, counts in ranked[_KEPT:]:
                self._let_go(counts)
            self.whole = dict(ranked[:_KEPT])

    def _let_go(self, counts: InputCounts) -> None:
        self.num_empty += not counts.num_documents
        self.num_damaged += bool(counts.num_losses)
        self.num_losing += counts.loses_much
        self.num_bytes += counts.num_bytes
        self.lost_bytes += counts.lost_share * counts.num_bytes

    def finish(self) -> tuple[list[tuple[str, InputCounts]], CountsByInput]:
        """The inputs that are not sound, the worst first, and the counts of all.

        At least the 100 worst are listed, if there are so many. Call it on the sum of all tasks.
        """
        by_name, total = CountsByInput(), replace(self, parts={}, whole={})
        for counts in (self.parts, self.whole):  # a mixture may read one input in two ways
            by_name.merge(CountsByInput(parts=counts))
        for one in by_name.parts.values():
            total._let_go(one)
        return rank({name: one for name, one in by_name.parts.items() if not one.is_sound}), total


def rank(inputs: Mapping[str, InputCounts]) -> list[tuple[str, InputCounts]]:
    """The worst first: those that lose much, by the share, then those without documents, then by what they lost."""
    shares = {name: one.lost_share if one.lost_share > _MUCH else 0.0 for name, one in inputs.items()}
    return sorted(inputs.items(), key=lambda i: (-shares[i[0]], i[1].num_documents > 0, -i[1].num_losses, i[0]))


def _add(total: Any, other: Any, *names: str) -> None:
    for name in names:
        setattr(total, name, getattr(total, name) + getattr(other, name))


# ---- damage ----

SHORT, OUTSIDE_SAMPLE, NAMED = "too_short", "outside_sample", "without_keys"
# How a count is named to the user; all others are damage.
LABELS = dict.fromkeys(LOSES_NOTHING, "note")
LABELS |= dict.fromkeys((*EXCLUSIONS, SHORT, OUTSIDE_SAMPLE, NAMED), "left out")
REASONS = {
    "invalid_utf8": "documents with bytes that can't be decoded (these become U+FFFD)",
    "lone_surrogate": "documents with an escaped lone surrogate (it becomes U+FFFD)",
    "malformed_json": "lines that are not a JSON object, skipped",
    "damaged_table": "row groups and record batches that can't be read, the rest of each lost",
    "missing_field": "records without the text field, skipped",
    "field_not_text": "records whose text field holds no string, skipped",
    "missing_part": "records without one of several text fields, read without it",
    "missing_id": "documents without an id in the field of ids",
    "unknown_language": "records whose language field is missing or odd, read in the language of its input",
    "malformed_article": "articles of WikiExtractor without an end, or text outside of them, skipped",
    "malformed_row": "rows of .csv and .tsv that are not as wide as the header, skipped",
    "stray_quote": "quotation marks that enclose no field of .csv and .tsv, read as characters; see --quoting",
    "row_too_long": "rows of .csv and .tsv over 32 MiB or a million fields, skipped",  # csv_files.MAX_ROW
    "line_too_long": "JSON lines over 128 MiB, skipped",  # blocks.MAX_JSON_LINE
    "damaged_compression": "compressed files cut short or damaged, the rest of each lost",
    EXCLUDED: "records for which --where does not hold",
    WITHOUT_FIELD: "records without a field that --where names, or with null in it",
    SHORT: "documents of fewer characters than --min-chars",
    "unknown_keys": "keys and ids in the file of --without-keys that no document has",
    NAMED: "documents that --without-keys names",
    OUTSIDE_SAMPLE: "documents that --sample does not draw",
    "empty_document": "documents without text, skipped",
    "no_tokens": "documents that the tokenizer leaves empty, skipped",
    "long_document_cut": "cuts in documents over 4 MiB, each read as several",  # long_documents.MAX_DOCUMENT
}

PAGE_FURNITURE, REPEATED_LINES = "page_furniture", "repeated_lines"
REMOVALS = {
    PAGE_FURNITURE: "page numbers and running heads, removed by --unwrap",
    REPEATED_LINES: "in many documents, removed by --drop-repeated-lines",
}


@dataclass(kw_only=True)
class RemovedLines:
    """Lines that were removed from documents for one reason. num_bytes: of canonical text, without line feeds."""

    num_lines: int = 0
    num_bytes: int = 0


@dataclass(kw_only=True)
class Damage:
    """Counts of one reader, of one task, or of a whole build.

    counts: cases that were repaired or skipped, by reason
    inputs: the same by input
    layout: of lines and documents, see `count_layout`
    fields: of records without text
    matched, unmatched: those fields of `--where` and of languages that a record has, and that one lacks
    names: those in the language field that are no languages
    removed: lines that settings removed, by reason; they are no damage
    """

    strict: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    inputs: CountsByInput = field(default_factory=CountsByInput)
    layout: Counter[str] = field(default_factory=Counter)
    fields: Fields = field(default_factory=Fields)
    matched: set[str] = field(default_factory=set)
    unmatched: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    removed: dict[str, RemovedLines] = field(default_factory=dict)

    def add(self, reason: str, path: str, place: int | str, detail: str = "", count: int = 1) -> None:
        """Count some cases, or raise InputError under --strict.

        place: of the first one: a byte of the decompressed and transcoded file, or words for a place of another kind.
        """
        if self.strict and reason not in HARMLESS:
            what = f": {detail}" if detail else ""
            raise InputError(
                f"{path}, {f'byte {place}' if isinstance(place, int) else place}: {reason.replace('_', ' ')}{what}; "
                "fix the file, or leave out --strict to repair or skip such places and count them"
            )
        self.counts[reason] += count
        self.inputs.of(path).damage[reason] += count

    def find_exclusion(self, where: Where, values: Sequence[Any]) -> str | None:
        """As `Where.find_exclusion`; `add` counts it. Notes which of the fields there are."""
        for condition, value in zip(where.conditions, values, strict=True):
            self.look_for(condition.field, value is not None)
        return where.find_exclusion(values)

    def look_for(self, name: str, is_there: bool) -> None:
        """Note whether a record has a field that the settings name."""
        (self.matched if is_there else self.unmatched).add(name)

    def add_fields(self, path: str, record: Mapping[str, object], count: int = 1) -> None:
        """Count the fields of a record without text, or of several with the same fields."""
        counts = self.inputs.of(path)
        counts.fields = counts.fields or Fields()
        for fields in (counts.fields, self.fields):
            fields.add(record, count)

    def add_names(self, names: Iterable[str]) -> None:
        """Add names of sources that are no languages. Raises InputError if there are too many."""
        self.names.update(names)
        if len(self.names) > MAX_NAMES:
            raise InputError(
                f"the language field holds over {MAX_NAMES:,} names that are no ISO 639 codes, such as "
                f"{list_names(self.names)}; name a field of languages or sources, or leave out --language-field"
            )

    def merge(self, other: Damage) -> None:
        """Add the counts of another reader."""
        self.counts += other.counts
        self.inputs.merge(other.inputs)
        self.layout += other.layout
        self.fields.merge(other.fields)
        self.matched |= other.matched
        self.unmatched |= other.unmatched
        self.add_names(other.names)
        for reason, lines in other.removed.items():
            _add(self.removed.setdefault(reason, RemovedLines()), lines, "num_lines", "num_bytes")

    def remove(self, reason: str, lines: Sequence[bytes]) -> None:
        """Count lines of valid UTF-8 that were removed from documents."""
        if lines:
            found = self.removed.setdefault(reason, RemovedLines())
            found.num_lines += len(lines)
            found.num_bytes += sum(len(" ".join(line.decode().split()).encode()) for line in lines)
