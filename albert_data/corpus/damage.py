"""What reading notices.

Damage is repaired or skipped, and counted by its reason: one broken line must neither end a build of hours nor vanish
unseen. With --strict it is an error. Signs that the input was meant to be read in another way are counted, too
(layout.py, fields.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from albert_data.corpus.fields import Fields, list_names
from albert_data.corpus.input_counts import HARMLESS, Inputs
from albert_data.errors import InputError
from albert_data.languages import MAX_NAMES

REASONS = {
    "invalid_utf8": "documents with bytes that can't be decoded (these become U+FFFD)",
    "lone_surrogate": "documents with an escaped lone surrogate (it becomes U+FFFD)",
    "malformed_json": "lines that are not a JSON object, skipped",
    "damaged_table": "row groups and record batches that can't be read, the rest of each lost",
    "missing_field": "records without the text field, skipped",
    "field_not_text": "records whose text field holds no string, skipped",
    "missing_part": "records without one of several text fields, read without it",
    "unknown_language": "records whose language field is missing or odd, read in the language of its input",
    "malformed_article": "articles of WikiExtractor without an end, or text outside of them, skipped",
    "malformed_row": "rows of .csv and .tsv that are not as wide as the header, or whose quote is not closed",
    # csv_files.MAX_ROW
    "row_too_long": "files with a row over 32 MiB (a quote may not be closed), the rest of each lost",
    "line_too_long": "JSON lines over 128 MiB, skipped",  # blocks.MAX_JSON_LINE
    "damaged_compression": "compressed files cut short or damaged, the rest of each lost",
    "empty_document": "documents without text, skipped",
    "no_tokens": "documents that the tokenizer leaves empty, skipped",
    "long_document_cut": "cuts in documents over 4 MiB, each read as several",  # long_documents.MAX_DOCUMENT
}


@dataclass(kw_only=True)
class Damage:
    """Counts of one reader, of one task, or of a whole build.

    counts: of what was repaired or skipped, by reason; inputs: the same by input; layout: of lines and documents
    (layout.py); fields: the fields of records without text; unlabelled: the fields of records without the language
    field; num_labelled: how many records have the language field; names: those in it that are no languages.
    """

    strict: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    inputs: Inputs = field(default_factory=Inputs)
    layout: Counter[str] = field(default_factory=Counter)
    fields: Fields = field(default_factory=Fields)
    unlabelled: Fields = field(default_factory=Fields)
    num_labelled: int = 0
    names: set[str] = field(default_factory=set)

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

    def fields_of(self, path: str) -> tuple[Fields, Fields]:
        """Where the fields of a record without text are counted: those of its input, and of all."""
        return self.inputs.of(path).add_fields(), self.fields

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
        self.unlabelled.merge(other.unlabelled)
        self.num_labelled += other.num_labelled
        self.add_names(other.names)

    def to_dict(self) -> dict[str, Any]:
        """For a receipt in JSON. The layout is left out: receipts have it among their counts."""
        return {
            "counts": self.counts,
            "inputs": self.inputs.to_dict(),
            "fields": self.fields.to_dict(),
            "unlabelled": self.unlabelled.to_dict(),
            "num_labelled": self.num_labelled,
            "names": sorted(self.names),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Damage:
        return cls(
            counts=Counter(values["counts"]),
            inputs=Inputs.from_dict(values["inputs"]),
            fields=Fields.from_dict(values["fields"]),
            unlabelled=Fields.from_dict(values["unlabelled"]),
            num_labelled=values["num_labelled"],
            names=set(values["names"]),
        )
