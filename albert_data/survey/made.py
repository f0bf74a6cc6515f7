"""What map makes of a task: files, counts and lists. A receipt holds it, and the sum of all is what `decide` reads.

On Linux a build begins anew after a crash of the machine; elsewhere it does not notice one (see build_folder.py), and
only the hash of a receipt finds a damaged one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from albert_data.corpus.damage import Damage
from albert_data.jobs.receipts import read_receipt
from albert_data.jobs.stages import Stages
from albert_data.survey.document_lists import DocumentList
from albert_data.survey.parts import SignedPart
from albert_data.survey.sizes import SplitSizes
from albert_data.text.languages import name_sources

DIGESTS = 2**64  # a digest is a sum of document keys modulo this


class Dropped(NamedTuple):
    """Counts of dropped rows. rows: over all passes; documents, tokens: in the first pass.

    digest: the sum of the keys of these documents modulo 2**64.
    """

    rows: int = 0
    documents: int = 0
    tokens: int = 0
    digest: int = 0

    def add(self, other: Dropped) -> Dropped:
        rows, documents, tokens, digest = (mine + its for mine, its in zip(self, other, strict=True))
        return Dropped(rows, documents, tokens, digest % DIGESTS)


@dataclass(kw_only=True)
class Made:
    """What one map task made, or several together.

    runs: file names of sorted runs; lists: of lists of documents (see document_lists.py); parts: of signed documents;
    ids: file names, see pipeline/id_table.py.
    counts: documents, sentences, text_bytes, tokens; the counts of corpus/layout.py; rows, tokens and masked of each
    split, under names like train_rows.
    digest: the sum of the keys of documents with rows, modulo 2**64. A sum does not depend on the order.
    sizes: of the documents' rows of one pass. least: of each sorted run, the least split key of a row that lies under
    train.
    source_codes: of documents with rows; empty where the build has one language.
    found: uint64, ascending, of documents that are left out by name, see without.py.
    dropped: copies that were dropped before a run was written.
    seconds: of each stage.
    """

    fingerprint: str = ""
    runs: list[str] = field(default_factory=list)
    lists: list[DocumentList] = field(default_factory=list)
    parts: list[SignedPart] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    damage: Damage = field(default_factory=Damage)
    digest: int = 0
    sizes: SplitSizes = field(default_factory=SplitSizes)
    least: dict[str, int] = field(default_factory=dict)
    source_codes: set[int] = field(default_factory=set)
    found: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))
    dropped: Dropped = Dropped()
    seconds: Stages = field(default_factory=Stages)

    @property
    def files(self) -> list[str]:
        """The names of all files in the folder of the runs."""
        listed = [name for item in self.lists for name in (item.name, item.texts) if name]
        return [*self.runs, *self.ids, *listed, *(name for part in self.parts for name in part.files)]

    def add(self, other: Made) -> None:
        self.runs += other.runs
        self.lists += other.lists
        self.parts += other.parts
        self.ids += other.ids
        self.counts += other.counts
        self.damage.merge(other.damage)
        self.digest = (self.digest + other.digest) % DIGESTS
        self.sizes.add(other.sizes)
        self.least |= other.least
        self.source_codes |= other.source_codes
        self.found = np.union1d(self.found, other.found)
        self.dropped = self.dropped.add(other.dropped)
        self.seconds.add(other.seconds)

    @property
    def sources(self) -> dict[str, int]:
        """The manifest's `sources`, in a build without a mixture, each with its source code.

        Raises InputError if two names have the same code.
        """
        return name_sources(self.source_codes, self.damage.names)


def read_made(path: Path, files: Collection[str]) -> Made | None:
    """What the receipt of a finished task holds whose files are all there. files: the names that are there."""
    made = read_receipt(path, Made)
    return made if made and all(name in files for name in made.files) else None
