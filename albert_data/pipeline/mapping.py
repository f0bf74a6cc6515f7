"""Map: one task's documents into sorted runs of masked examples, and a receipt.

The receipt is written last; a task with a receipt is done, and is not done again after a kill.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from albert_data.config import BuildConfig
from albert_data.corpus.blocks import Block
from albert_data.corpus.damage import Damage
from albert_data.corpus.documents import Lines, read_documents
from albert_data.corpus.fields import Fields
from albert_data.draws import shuffle_keys, split_keys, threshold
from albert_data.examples.masks import mask_pairs
from albert_data.examples.pairs import make_pairs
from albert_data.pipeline.parts import split_lines
from albert_data.pipeline.plan import MapTask
from albert_data.pipeline.receipts import read_receipt, write_receipt
from albert_data.pipeline.records import Dropped, RecordScratch, RowKeys
from albert_data.pipeline.sizes import SizeSample
from albert_data.pipeline.sorted_runs import KeyedRows, join_keys, sort_rows, write_sorted_run
from albert_data.pipeline.stages import Stages
from albert_data.sentences.text import make_text
from albert_data.shards.manifest import SPLITS
from albert_data.tokenizer.model import Documents, Tokenizer

RUN_BYTES = 32 << 20
ROW_BYTES = 30  # a row's columns of one value, and its offsets


class Outermost(NamedTuple):
    """A document that has rows, and the least or the greatest split key of all. num_bytes: of its rows of one pass."""

    split_key: int
    document_key: int
    num_bytes: int


def _make_samples() -> dict[str, SizeSample]:
    return {split: SizeSample() for split in SPLITS}


@dataclass(kw_only=True)
class TaskReceipt:
    """What one task made.

    counts: documents, sentences, text_bytes, tokens, those of corpus/layout.py; rows, tokens and masked of each split,
    by names as train_rows;
    fields: of records without text; unlabelled: of those that lack the language field; num_labelled: that have it;
    documents_digest: the sum of the keys of documents with rows, modulo 2**64, the same in whatever order they come;
    samples: of each split; sizes are those of one pass, in bytes;
    least, greatest: None where there is no row;
    languages: packed codes of the documents, where they have one each;
    dropped: copies that are in no run;
    seconds: of each stage.
    """

    fingerprint: str = ""
    runs: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    damage: Counter[str] = field(default_factory=Counter)
    fields: Fields = field(default_factory=Fields)
    unlabelled: Fields = field(default_factory=Fields)
    num_labelled: int = 0
    documents_digest: int = 0
    samples: dict[str, SizeSample] = field(default_factory=_make_samples)
    least: Outermost | None = None
    greatest: Outermost | None = None
    languages: set[int] = field(default_factory=set)
    dropped: Dropped = Dropped()
    seconds: Stages = field(default_factory=Stages)

    def add(self, other: TaskReceipt) -> None:
        self.runs += other.runs
        self.counts += other.counts
        self.damage += other.damage
        self.fields.merge(other.fields)
        self.unlabelled.merge(other.unlabelled)
        self.num_labelled += other.num_labelled
        self.documents_digest = (self.documents_digest + other.documents_digest) % 2**64
        for split, sample in other.samples.items():
            self.samples[split].add(sample.hashes, sample.sizes)
        if other.least and other.greatest:
            self.add_outermost(other.least, other.greatest)
        self.languages |= other.languages
        self.dropped = self.dropped.add(other.dropped)
        self.seconds.add(other.seconds)

    def add_outermost(self, least: Outermost, greatest: Outermost) -> None:
        self.least = min(self.least or least, least)
        self.greatest = max(self.greatest or greatest, greatest)

    def drop(self, dropped: Dropped) -> None:
        """Leave all dropped copies out of the digest, and count them beside what was read.

        dropped: those that were found in the merge.
        """
        self.dropped = self.dropped.add(dropped)
        self.documents_digest = (self.documents_digest - self.dropped.digest) % 2**64
        self.counts.update(duplicate_documents=self.dropped.documents, duplicate_tokens=self.dropped.tokens)

    @property
    def sources(self) -> tuple[int, ...]:
        """The languages as shards count them: packed codes, in the order of their letters."""
        return tuple(sorted(self.languages, key=lambda code: code.to_bytes(4, "little")))

    def to_values(self) -> dict[str, Any]:
        """The receipt as JSON holds it."""
        samples = {split: sample.to_text() for split, sample in self.samples.items()}
        fields = {"fields": self.fields.to_dict(), "unlabelled": self.unlabelled.to_dict()}
        return {**vars(self), **fields, "samples": samples, "languages": sorted(self.languages)}

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> TaskReceipt:
        made = {
            "counts": Counter(values["counts"]),
            "damage": Counter(values["damage"]),
            "fields": Fields.from_dict(values["fields"]),
            "unlabelled": Fields.from_dict(values["unlabelled"]),
            "samples": {split: SizeSample.from_text(text) for split, text in values["samples"].items()},
            "least": values["least"] and Outermost(*values["least"]),
            "greatest": values["greatest"] and Outermost(*values["greatest"]),
            "languages": set(values["languages"]),
            "dropped": Dropped(*values["dropped"]),
            "seconds": Stages(values["seconds"]),
        }
        return cls(**{**values, **made})


def read_task_receipt(path: Path, runs: Path) -> TaskReceipt | None:
    """The receipt of a task that is done and whose runs are all there; else None."""
    found = read_receipt(path)
    if found is None or not all((runs / name).is_file() for name in found["runs"]):
        return None
    return TaskReceipt.from_values(found)


class MapJob:
    """Makes the runs of a task; what it makes depends on the task's documents, tokenizer and config."""

    def __init__(self, config: BuildConfig, tokenizer: Tokenizer, runs: Path, receipts: Path) -> None:
        self._config, self._tokenizer = config, tokenizer
        self._runs, self._receipts = runs, receipts
        self._scratch = RecordScratch(tokenizer.id_dtype)
        self._words = tokenizer.choose_words(config.examples)

    def __call__(self, task: MapTask) -> TaskReceipt:
        receipt = TaskReceipt(fingerprint=task.fingerprint)
        damage = Damage(strict=self._config.text.strict)
        held: list[KeyedRows] = []
        for block in receipt.seconds.time_each("read", task.read(damage)):
            for documents in self.read(block, damage, receipt):
                for pass_index in range(self._config.examples.dupe_factor):
                    held.append(self.make_rows(documents, pass_index, receipt.seconds))
                    if sum(part.examples.input_ids.nbytes for part in held) >= RUN_BYTES:
                        self._write_run(task, held, receipt)
        if held:
            self._write_run(task, held, receipt)
        receipt.damage, receipt.fields = damage.counts, damage.fields
        receipt.unlabelled, receipt.num_labelled = damage.unlabelled, damage.num_labelled
        receipt.counts += damage.layout
        write_receipt(self._receipts / f"{task.name}.json", receipt.to_values())
        return receipt

    def read(self, block: Block, damage: Damage, receipt: TaskReceipt) -> Iterator[Documents]:
        """Tokenise the documents of a block, in parts, and count them."""
        stages = receipt.seconds
        with stages.time("clean"):
            cleaned = read_documents(block, self._config.text, damage)
        for lines in split_lines(cleaned):
            with stages.time("segment"):
                text = make_text(lines, self._config.text)
            with stages.time("tokenise"):
                documents = self._tokenizer.encode_documents(text)
            _count(lines, documents, receipt)
            for _ in range(_count_empty(documents)):
                damage.add("no_tokens", block.path, block.start)
            yield documents

    def make_rows(self, documents: Documents, pass_index: int, stages: Stages) -> KeyedRows:
        """Pair, mask and key the documents for one pass."""
        config, tokenizer = self._config.examples, self._tokenizer
        with stages.time("pair"):
            pairs = make_pairs(documents, tokenizer.specials, self._words, config, pass_index)
        with stages.time("mask"):
            examples = mask_pairs(pairs, tokenizer.specials, self._words, tokenizer.ordinary_ids, config, pass_index)
        keys = RowKeys(
            shuffle_keys=shuffle_keys(np.uint64(config.seed), pairs.document_keys, pass_index, pairs.indices),
            document_keys=pairs.document_keys,
            passes=np.full(len(pairs), pass_index, np.uint16),
            indices=pairs.indices,
        )
        languages = np.zeros(len(pairs), np.uint32) if pairs.languages is None else pairs.languages
        return KeyedRows(examples=examples, keys=keys, languages=languages)

    def _write_run(self, task: MapTask, held: list[KeyedRows], receipt: TaskReceipt) -> None:
        with receipt.seconds.time("sort"):
            keys = join_keys(held)
            splits = split_keys(np.uint64(self._config.examples.seed), keys.document_keys)
            is_validation = splits < threshold(self._config.validation_fraction)
            rows = sort_rows(held, keys, is_validation, self._scratch, keep_copies=self._config.keep_duplicates)
        if len(keys.indices):
            name = f"{task.name}-{len(receipt.runs):03d}.run"
            with receipt.seconds.time("write runs"):
                write_sorted_run(self._runs / name, rows)
            receipt.runs.append(name)
            receipt.dropped = receipt.dropped.add(rows.dropped)
            _count_rows(held, keys, splits, is_validation, receipt)
        held.clear()


def _count_rows(
    parts: list[KeyedRows], keys: RowKeys, splits: np.ndarray, is_validation: np.ndarray, receipt: TaskReceipt
) -> None:
    """Count the rows of all parts, in the order of `keys`. splits: uint64, the split key of each row."""
    tokens, masked = (
        np.concatenate([np.diff(offsets) for offsets in column])
        for column in zip(*((part.examples.offsets, part.examples.mask_offsets) for part in parts), strict=True)
    )
    id_bytes = parts[0].examples.input_ids.itemsize
    firsts = np.flatnonzero(keys.indices == 0)  # a document's rows of one pass lie together
    sizes = np.add.reduceat(ROW_BYTES + tokens * id_bytes + masked * (2 + id_bytes), firsts)
    is_pass = keys.passes[firsts] == 0
    firsts, sizes = firsts[is_pass], sizes[is_pass]
    for split, is_here in (("train", ~is_validation), ("validation", is_validation)):
        receipt.counts[f"{split}_rows"] += int(np.count_nonzero(is_here))
        receipt.counts[f"{split}_tokens"] += int(tokens[is_here].sum())
        receipt.counts[f"{split}_masked"] += int(masked[is_here].sum())
        here = is_here[firsts]
        receipt.samples[split].add(keys.shuffle_keys[firsts[here]], sizes[here])
    if len(firsts):
        receipt.add_outermost(*_find_outermost(splits[firsts], keys.document_keys[firsts], sizes))


def _find_outermost(
    split_keys: np.ndarray, document_keys: np.ndarray, sizes: np.ndarray
) -> tuple[Outermost, Outermost]:
    """The documents of the least and the greatest split key; of several with one key, the smallest and the largest."""
    least, greatest = (np.flatnonzero(split_keys == bound) for bound in (split_keys.min(), split_keys.max()))
    return (
        Outermost(int(split_keys[least[0]]), int(document_keys[least[0]]), int(sizes[least].min())),
        Outermost(int(split_keys[greatest[0]]), int(document_keys[greatest[0]]), int(sizes[greatest].max())),
    )


def _count(lines: Lines, documents: Documents, receipt: TaskReceipt) -> None:
    receipt.counts.update(
        documents=len(documents.document_keys),
        sentences=len(documents.sentence_offsets) - 1,
        text_bytes=len(lines.utf8),
        tokens=len(documents.ids),
    )
    has_rows = _measure(documents) > 0
    digest = int(documents.document_keys[has_rows].sum(dtype=np.uint64))
    receipt.documents_digest = (receipt.documents_digest + digest) % 2**64
    if documents.languages is not None:
        receipt.languages |= set(np.unique(documents.languages[has_rows]).tolist())


def _count_empty(documents: Documents) -> int:
    return int(np.count_nonzero(_measure(documents) == 0))


def _measure(documents: Documents) -> np.ndarray:
    """How many tokens each document has: int64."""
    lengths: np.ndarray = np.diff(documents.sentence_offsets[documents.document_offsets])
    return lengths
