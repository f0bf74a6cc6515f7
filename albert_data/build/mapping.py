"""Map: one task's documents into sorted runs of masked examples, and a receipt.

The receipt is written last; a task with a receipt is done, and is not done again after a kill.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from albert_data.build.parts import split_lines
from albert_data.build.plan import MapTask
from albert_data.build.receipts import read_receipt, write_receipt
from albert_data.build.records import Room, RowKeys
from albert_data.build.runs import KeyedRows, join_keys, sort_rows, write_run
from albert_data.build.stages import Stages
from albert_data.config import BuildConfig
from albert_data.corpus.blocks import Block
from albert_data.corpus.damage import Damage
from albert_data.corpus.documents import Lines, read_documents
from albert_data.corpus.fields import Fields
from albert_data.draws import shuffle_keys, split_keys, threshold
from albert_data.examples.masks import mask_pairs
from albert_data.examples.pairs import make_pairs
from albert_data.examples.ragged import Examples
from albert_data.sentences.text import make_text
from albert_data.tokenizer.model import Documents, Tokenizer

RUN_BYTES = 32 << 20


@dataclass(kw_only=True)
class TaskReceipt:
    """What one task made.

    counts: documents, sentences, text_bytes, tokens; rows, row_tokens and row_masks of each split;
    fields: of records without text; documents_digest: the sum of the document keys modulo 2**64, the same in whatever
    order they come;
    seconds: of each stage.
    """

    fingerprint: str = ""
    runs: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    damage: Counter[str] = field(default_factory=Counter)
    fields: Fields = field(default_factory=Fields)
    documents_digest: int = 0
    seconds: Stages = field(default_factory=Stages)

    def add(self, other: TaskReceipt) -> None:
        self.runs += other.runs
        self.counts += other.counts
        self.damage += other.damage
        self.fields.merge(other.fields)
        self.documents_digest = (self.documents_digest + other.documents_digest) % 2**64
        self.seconds.add(other.seconds)


def read_task_receipt(path: Path, runs: Path) -> TaskReceipt | None:
    """The receipt of a task that is done and whose runs are all there; else None."""
    found = read_receipt(path)
    if found is None or not all((runs / name).is_file() for name in found["runs"]):
        return None
    return TaskReceipt(
        fingerprint=found["fingerprint"],
        runs=found["runs"],
        counts=Counter(found["counts"]),
        damage=Counter(found["damage"]),
        fields=Fields.from_dict(found["fields"]),
        documents_digest=found["documents_digest"],
        seconds=Stages(found["seconds"]),
    )


class MapJob:
    """Makes the runs of a task; what it makes depends on the task's documents, tokenizer and config."""

    def __init__(self, config: BuildConfig, tokenizer: Tokenizer, runs: Path, receipts: Path) -> None:
        self._config, self._tokenizer = config, tokenizer
        self._runs, self._receipts = runs, receipts
        self._room = Room(tokenizer.id_dtype)
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
        receipt.counts += damage.layout
        write_receipt(self._receipts / f"{task.name}.json", vars(receipt) | {"fields": receipt.fields.to_dict()})
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
        return KeyedRows(examples=examples, keys=keys)

    def _write_run(self, task: MapTask, held: list[KeyedRows], receipt: TaskReceipt) -> None:
        with receipt.seconds.time("sort"):
            keys = join_keys(held)
            splits = split_keys(np.uint64(self._config.examples.seed), keys.document_keys)
            is_validation = splits < threshold(self._config.validation_fraction)
            rows = sort_rows(held, keys, is_validation, self._room)
        if len(keys.indices):
            name = f"{task.name}-{len(receipt.runs):03d}.run"
            with receipt.seconds.time("write runs"):
                write_run(self._runs / name, rows)
            receipt.runs.append(name)
            _count_rows([part.examples for part in held], is_validation, receipt)
        held.clear()


def _count_rows(parts: list[Examples], is_validation: np.ndarray, receipt: TaskReceipt) -> None:
    tokens, masked = (
        np.concatenate([np.diff(offsets) for offsets in column])
        for column in zip(*((part.offsets, part.mask_offsets) for part in parts), strict=True)
    )
    for split, is_here in (("train", ~is_validation), ("validation", is_validation)):
        receipt.counts[f"{split}_rows"] += int(np.count_nonzero(is_here))
        receipt.counts[f"{split}_tokens"] += int(tokens[is_here].sum())
        receipt.counts[f"{split}_masked"] += int(masked[is_here].sum())


def _count(lines: Lines, documents: Documents, receipt: TaskReceipt) -> None:
    receipt.counts.update(
        documents=len(documents.document_keys),
        sentences=len(documents.sentence_offsets) - 1,
        text_bytes=len(lines.utf8),
        tokens=len(documents.ids),
    )
    digest = int(lines.document_keys.sum(dtype=np.uint64))
    receipt.documents_digest = (receipt.documents_digest + digest) % 2**64


def _count_empty(documents: Documents) -> int:
    lengths = np.diff(documents.sentence_offsets[documents.document_offsets])
    return int(np.count_nonzero(lengths == 0))
