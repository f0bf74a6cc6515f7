"""Map: turn the documents of one task into sorted runs of masked examples, and write a receipt.

The receipt is written last. A task with a receipt is finished, and a resumed build skips it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from albert_data.clean.documents import batch_documents, clean_documents
from albert_data.config import BuildConfig, TextConfig
from albert_data.corpus.blocks import Block
from albert_data.corpus.damage import Damage
from albert_data.corpus.sources import MixtureSource
from albert_data.corpus.tasks import ReadTask
from albert_data.data import Documents, Lines
from albert_data.examples.masks import mask_pairs
from albert_data.examples.pairs import make_pairs
from albert_data.jobs.receipts import write_receipt
from albert_data.jobs.stages import Stages
from albert_data.kernels.draws import shuffle_keys, split_keys, threshold
from albert_data.pipeline.row_buffer import RowKeys, RowScratch
from albert_data.pipeline.sorted_runs import KeyedRows, join_keys, join_runs, sort_rows, write_sorted_run
from albert_data.sentences.text import find_sentences
from albert_data.shards.manifest import SPLITS
from albert_data.storage import find_storage
from albert_data.storage.scratch import machine_scratch
from albert_data.survey.benchmarks import Benchmarks, count_contaminated, is_benchmark
from albert_data.survey.document_lists import find_source, list_documents, write_list
from albert_data.survey.forms import FormTexts
from albert_data.survey.made import DIGESTS, Made
from albert_data.survey.parts import PartWriter
from albert_data.survey.passes import choose_passes, name_source, number_documents
from albert_data.survey.signatures import choose_bands
from albert_data.survey.sizes import measure_rows
from albert_data.survey.sorted_columns import map_u64
from albert_data.tokenizer.model import Tokenizer

RUN_BYTES = 32 << 20  # a sorted run is written as soon as the ids of the rows in memory have that many bytes


class MakeRows:
    """Makes the sorted runs of a task, a pure function of its documents, the tokenizer and the config.

    plan_hash: of the build's plan. With `syncs`, where workers can outlive the lock of their build, names of files
    begin with a hash of it and the task. So they replace none of the next build's, and spread over the prefixes of a
    store, each of which answers so many requests a second.
    syncs: whether a receipt waits until all that it names is safe from a crash of the machine; merges: whether a task
    makes one sorted run, however large it is.
    repeated: the file with the hashes of lines to remove, None to remove none.
    sources: with their limits, none where all documents are used alike; None to count tokens, without rows.
    """

    def __init__(
        self,
        config: BuildConfig,
        tokenizer: Tokenizer,
        runs: Path,
        receipts: Path,
        *,
        plan_hash: str = "",
        syncs: bool = False,
        merges: bool = False,
        benchmarks: Benchmarks | None = None,
        repeated: Path | None = None,
        sources: Sequence[MixtureSource] | None = (),
    ) -> None:
        self.config, self._tokenizer, self._syncs, self._merges = config, tokenizer, syncs, merges
        self._plan_hash, self._benchmarks, self._repeated = plan_hash, benchmarks, repeated
        self._runs, self._receipts, self._sources = runs, receipts, sources
        self._scratch = RowScratch(tokenizer.id_dtype)
        self._word_rule = tokenizer.word_rule(config.examples)  # how pieces form words, the units of masking

    def __call__(self, task: ReadTask) -> Made:
        with (
            machine_scratch() if self._merges else nullcontext(self._runs) as folder,
            ExitStack() as files,
            ExitStack() as others,
        ):
            bands = choose_bands(self.config.similarity) if self.config.drop_near_duplicates else None
            signing = PartWriter(self._runs, self._name(task), find_source(task), bands, files) if bands else None
            texts = None if self.config.keep_duplicates else FormTexts(self._runs, self._name(task), others)
            return self._map(task, folder, signing, texts)

    def _map(self, task: ReadTask, folder: Path, signing: PartWriter | None, texts: FormTexts | None) -> Made:
        """folder: where sorted runs are written first; signing, texts: where near-duplicates or copies are dropped."""
        receipt = Made(fingerprint=self._plan_hash + task.fingerprint)
        damage = Damage(strict=self.config.text.strict)
        held: list[KeyedRows] = []
        listed: list[np.ndarray] = []
        has_sources = task.source is not None or self.config.alpha is not None
        source = None if has_sources else find_source(task)
        for block in receipt.seconds.time_each("read", task.read(damage)):
            for lines, documents in self.read(block, damage, receipt, task.text, task.source):
                if task.source is not None:
                    documents = name_source(documents, task.source)
                listed.append(list_documents(documents, source, texts.add(lines) if texts else None))
                if signing:
                    with receipt.seconds.time("sign"):
                        tokens = np.diff(documents.sentence_offsets[documents.document_offsets])
                        signing.add(lines, tokens, documents.source_codes)
                if self._sources is None:
                    continue
                if self._sources:
                    documents = number_documents(documents, self._sources)
                for chosen, pass_index in choose_passes(documents, self._sources, self.config.examples):
                    held.append(self.make_rows(chosen, pass_index, receipt.seconds))
                    if sum(part.examples.input_ids.nbytes for part in held) >= RUN_BYTES:
                        self._write_run(task, held, receipt, folder)
        # The only run of a task goes straight to the build's folder; of several the last one too goes to `folder`.
        has_several = bool(receipt.runs)
        if held:
            self._write_run(task, held, receipt, folder if has_several else self._runs)
        if self._merges and has_several:
            self._join_runs(task, receipt, folder)
        if any(part.size for part in listed):
            name = texts.finish() if texts else None
            receipt.lists.append(write_list(self._runs, self._name(task), find_source(task), listed, name))
        if signing:
            receipt.parts = signing.finish()
        receipt.damage = damage
        receipt.counts += damage.layout
        if self._syncs:
            for name in receipt.files:
                find_storage(self._runs).sync(self._runs / name)
        write_receipt(self._receipts / f"{task.name}.json", receipt, sync=self._syncs)
        return receipt

    def read(
        self,
        block: Block,
        damage: Damage,
        receipt: Made,
        config: TextConfig | None = None,
        source: MixtureSource | None = None,
    ) -> Iterator[tuple[Lines, Documents]]:
        """Tokenise the documents of a block, a part at a time, and count them.

        config: how its task is read; None for the settings of the build. source: of a mixture.
        """
        config = config or self.config.text
        stages = receipt.seconds
        with stages.time("clean"):
            repeated = None if self._repeated is None else map_u64(self._repeated)
            cleaned = clean_documents(block, config, damage, repeated)
        for lines in batch_documents(cleaned):
            if self._benchmarks is not None and source is not None and not is_benchmark(source):
                with stages.time("clean"):
                    lines, num_out = self._benchmarks.leave_out(lines)
                receipt.counts.update({"contaminated_documents": num_out, count_contaminated(source): num_out})
                if not len(lines.document_keys):
                    continue
            with stages.time("segment"):
                text = find_sentences(lines, config)
            with stages.time("tokenise"):
                documents = self._tokenizer.encode_documents(text)
            if lines.forms is not None:
                documents = replace(documents, forms=lines.forms)
            num_empty = _count_documents(lines, documents, receipt)
            for _ in range(num_empty):
                damage.add("no_tokens", block.path, block.find_place(0))
            yield lines, documents

    def make_rows(self, documents: Documents, pass_index: int, stages: Stages) -> KeyedRows:
        """Make the masked rows of one pass, with their keys."""
        config, tokenizer = self.config.examples, self._tokenizer
        with stages.time("pair"):
            pairs = make_pairs(documents, tokenizer.specials, self._word_rule, config, pass_index)
        with stages.time("mask"):
            examples = mask_pairs(
                pairs, tokenizer.specials, self._word_rule, tokenizer.ordinary_ids, config, pass_index
            )
        keys = RowKeys(
            shuffle_keys=shuffle_keys(np.uint64(config.seed), pairs.document_keys, pass_index, pairs.indices),
            document_keys=pairs.document_keys,
            passes=np.full(len(pairs), pass_index, np.uint16),
            indices=pairs.indices,
            forms=np.zeros(len(pairs), np.uint64) if pairs.forms is None else pairs.forms,
        )
        source_codes = np.zeros(len(pairs), np.uint32) if pairs.source_codes is None else pairs.source_codes
        return KeyedRows(examples=examples, keys=keys, source_codes=source_codes, groups=pairs.groups)

    def _name(self, task: ReadTask) -> str:
        seal = sha256((self._plan_hash + task.name).encode()).hexdigest()[:16]
        return f"{seal}-{task.name}" if self._syncs else task.name

    def _join_runs(self, task: ReadTask, receipt: Made, folder: Path) -> None:
        """Replace the runs of a task by one in the build's folder."""
        with receipt.seconds.time("write runs"):
            name = f"{self._name(task)}-all.run"
            runs, keep_copies = [folder / run for run in receipt.runs], self.config.keep_duplicates
            dropped = join_runs(runs, self._runs / name, self._scratch, keep_copies=keep_copies)
        receipt.runs, receipt.dropped = [name], receipt.dropped.add(dropped)
        receipt.least = {name: min(receipt.least.values())} if receipt.least else {}

    def _write_run(self, task: ReadTask, held: list[KeyedRows], receipt: Made, folder: Path) -> None:
        with receipt.seconds.time("sort"):
            keys = join_keys(held)
            groups = [part.groups for part in held if part.groups is not None]
            deciding = np.concatenate(groups) if groups else keys.document_keys
            row_split_keys = split_keys(np.uint64(self.config.examples.seed), deciding)
            is_validation = (row_split_keys < threshold(self.config.drawn_fraction)) | task.is_validation
            rows = sort_rows(held, keys, is_validation, self._scratch, keep_copies=self.config.keep_duplicates)
        if len(keys.indices):
            name = f"{self._name(task)}-{len(receipt.runs):03d}.run"
            with receipt.seconds.time("write runs"):
                write_sorted_run(folder / name, rows)
            receipt.runs.append(name)
            receipt.dropped = receipt.dropped.add(rows.dropped)
            _count_rows(held, keys, row_split_keys, is_validation, receipt)
        held.clear()


def _count_rows(
    parts: list[KeyedRows], keys: RowKeys, row_split_keys: np.ndarray, is_validation: np.ndarray, receipt: Made
) -> None:
    """Count the rows of all parts. keys: joined; row_split_keys: uint64."""
    tokens, masked = (
        np.concatenate([np.diff(offsets) for offsets in column])
        for column in zip(*((part.examples.offsets, part.examples.mask_offsets) for part in parts), strict=True)
    )
    id_bytes = parts[0].examples.input_ids.itemsize
    # A document's rows of one pass are consecutive and numbered from 0, so each 0 begins the rows of a document.
    firsts = np.flatnonzero(keys.indices == 0)
    sizes = np.add.reduceat(measure_rows(1, tokens, masked, id_bytes), firsts)
    is_first_pass = keys.passes[firsts] == 0  # each document counts once
    firsts, sizes = firsts[is_first_pass], sizes[is_first_pass]
    for split, is_here in zip(SPLITS, (~is_validation, is_validation), strict=True):
        receipt.counts[f"{split}_rows"] += int(np.count_nonzero(is_here))
        receipt.counts[f"{split}_tokens"] += int(tokens[is_here].sum())
        receipt.counts[f"{split}_masked"] += int(masked[is_here].sum())
    # The samples need hashes that are random, and equal for equal documents: so are the keys of their first rows.
    receipt.sizes.add_documents(is_validation[firsts], keys.shuffle_keys[firsts], row_split_keys[firsts], sizes)
    if not is_validation.all():
        receipt.least[receipt.runs[-1]] = int(row_split_keys[~is_validation].min())


def _count_documents(lines: Lines, documents: Documents, receipt: Made) -> int:
    """Add the documents to the receipt. Returns how many of them have no tokens, and so no rows."""
    receipt.counts.update(
        documents=len(documents.document_keys),
        sentences=len(documents.sentence_offsets) - 1,
        text_bytes=len(lines.utf8),
        tokens=len(documents.ids),
    )
    has_rows = np.diff(documents.sentence_offsets[documents.document_offsets]) > 0
    if documents.groups is not None:
        receipt.counts["grouped_documents"] += int(np.count_nonzero(documents.groups != documents.document_keys))
    digest = int(documents.document_keys[has_rows].sum(dtype=np.uint64))
    receipt.digest = (receipt.digest + digest) % DIGESTS
    if documents.source_codes is not None:
        receipt.source_codes |= set(np.unique(documents.source_codes[has_rows]).tolist())
    return int(np.count_nonzero(~has_rows))
