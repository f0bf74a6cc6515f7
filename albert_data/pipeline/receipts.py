"""The receipts of map tasks: what each made, and their sum.

On Linux a build begins anew after a crash of the machine; elsewhere it does not notice one (see build_folder.py), and
only the hash of a receipt finds a damaged one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from albert_data.config import MIN_VALIDATION
from albert_data.corpus.damage import Damage
from albert_data.jobs.receipts import read_receipt
from albert_data.pipeline.row_buffer import Dropped
from albert_data.pipeline.stages import Stages
from albert_data.shards.manifest import SPLITS, NearDuplicateEntry
from albert_data.survey.document_lists import DocumentList
from albert_data.survey.near_duplicates import NearDuplicates
from albert_data.survey.parts import SignedPart
from albert_data.survey.sizes import SizeSample
from albert_data.survey.sorted_columns import SortedFile
from albert_data.text.languages import name_sources


def make_nearest() -> SizeSample:
    """A sample by split keys: of the documents that validation gets at least, and of the next one."""
    return SizeSample(limit=MIN_VALIDATION + 1)


@dataclass(kw_only=True)
class TaskReceipt:
    """What one map task made, or several together.

    runs: file names of sorted runs; lists: of lists of documents (see document_lists.py); parts: of signed documents;
    groups: of the columns of `list_groups`.
    counts: documents, sentences, text_bytes, tokens; the counts of corpus/layout.py; rows, tokens and masked of each
    split, under names like train_rows.
    documents_digest: the sum of the keys of documents with rows, modulo 2**64. A sum does not depend on the order.
    samples: for each split, a sample of the documents' sizes: the bytes of a document's rows of one pass.
    nearest: the documents with the least split keys, and the bytes of their rows of one pass: they may have to change
    their split (see shard_plan.py). least: of each sorted run, the least split key of a row that lies under train.
    source_codes: of documents with rows; empty where the build has one language.
    dropped: copies that were dropped before a run was written.
    near_duplicates: decided when all tasks are finished; no receipt on the disk has them.
    seconds: of each stage.
    """

    fingerprint: str = ""
    runs: list[str] = field(default_factory=list)
    lists: list[DocumentList] = field(default_factory=list)
    parts: list[SignedPart] = field(default_factory=list)
    groups: list[SortedFile] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    damage: Damage = field(default_factory=Damage)
    documents_digest: int = 0
    samples: dict[str, SizeSample] = field(default_factory=lambda: {split: SizeSample() for split in SPLITS})
    nearest: SizeSample = field(default_factory=make_nearest)
    least: dict[str, int] = field(default_factory=dict)
    source_codes: set[int] = field(default_factory=set)
    dropped: Dropped = Dropped()
    near_duplicates: NearDuplicateEntry | None = None
    seconds: Stages = field(default_factory=Stages)

    @property
    def files(self) -> list[str]:
        """The names of all files in the folder of the runs."""
        columns = [*(item.name for item in self.lists), *(item.name for item in self.groups)]
        texts = (item.texts for item in self.lists if item.texts)
        return [*self.runs, *columns, *texts, *(name for part in self.parts for name in part.files)]

    def add(self, other: TaskReceipt) -> None:
        self.runs += other.runs
        self.lists += other.lists
        self.parts += other.parts
        self.groups += other.groups
        self.counts += other.counts
        self.damage.merge(other.damage)
        self.documents_digest = (self.documents_digest + other.documents_digest) % 2**64
        for split, sample in other.samples.items():
            self.samples[split].add(sample.hashes, sample.sizes)
        self.nearest.add(other.nearest.hashes, other.nearest.sizes)
        self.least |= other.least
        self.source_codes |= other.source_codes
        self.dropped = self.dropped.add(other.dropped)
        self.seconds.add(other.seconds)

    def drop(self, dropped: Dropped) -> None:
        """Take all dropped copies out of the digest, and count them. Call it once, on the sum of all receipts.

        dropped: the copies that the merge dropped; those that map tasks dropped are in `self.dropped` already.
        """
        self.dropped = self.dropped.add(dropped)
        self.documents_digest = (self.documents_digest - self.dropped.digest) % 2**64
        self.counts.update(duplicate_documents=self.dropped.documents, duplicate_tokens=self.dropped.tokens)

    def remove(self, found: NearDuplicates) -> None:
        """Take near-duplicates out of the digest, and count them."""
        self.documents_digest = (self.documents_digest - found.digest) % 2**64
        self.counts.update(near_duplicate_documents=found.documents.total(), near_duplicate_tokens=found.tokens.total())

    def leave_out(self, dropped: Dropped) -> None:
        """Take the documents that training left out out of the digest, and count them."""
        self.documents_digest = (self.documents_digest - dropped.digest) % 2**64
        self.counts.update(left_out_documents=dropped.documents, left_out_tokens=dropped.tokens)

    @property
    def sources(self) -> dict[str, int]:
        """The manifest's `sources`, in a build without a mixture, each with its source code.

        Raises InputError if two names have the same code.
        """
        return name_sources(self.source_codes, self.damage.names)


def read_task_receipt(path: Path, files: Collection[str]) -> TaskReceipt | None:
    """The receipt of a finished task whose files are all there; None otherwise. files: the names that are there."""
    receipt = read_receipt(path, TaskReceipt)
    return receipt if receipt and all(name in files for name in receipt.files) else None
