"""Map: turn the documents of one task into sorted runs of masked examples, and write a receipt.

The receipt is written last. A task with a receipt is finished, and a resumed build skips it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from hashlib import sha256
from pathlib import Path

import numpy as np

from albert_data.clean.documents import batch_documents, clean_documents, leave_out
from albert_data.config import BuildConfig
from albert_data.corpus.blocks import Block
from albert_data.corpus.damage import OUTSIDE_SAMPLE, Damage
from albert_data.corpus.sources import MixtureSource
from albert_data.corpus.tasks import ReadTask
from albert_data.data import Documents, Lines
from albert_data.examples.masks import mask_pairs
from albert_data.examples.pairs import make_pairs
from albert_data.jobs.receipts import write_receipt
from albert_data.jobs.stages import Stages
from albert_data.kernels.draws import sample_keys, shuffle_keys, split_keys, threshold
from albert_data.pipeline.id_table import IdWriter
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
from albert_data.survey.without import Without
from albert_data.tokenizer.model import Tokenizer

RUN_BYTES = 32 << 20  # a sorted run is written as soon as the ids of the rows in memory have that many bytes


class MakeRows:
    """Makes the sorted runs of a task, a pure function of its documents, the tokenizer and the config.

    plan_hash: of the build's plan. With `syncs`, where workers can outlive the lock of their build, names of files
    begin with a hash of it and the task. So they replace none of the next build's, and spread over the prefixes of a
    store, each of which answers so many requests a second.
    syncs: whether a receipt waits until all that it names is safe from a crash of the machine; merges: whether a task
    makes one sorted run, however large it is.
    repeated, without: the files with the hashes of lines and documents to leave out, None to leave out none.
    sources: with their limits; none where all documents are used alike. counts_only: make lists, but no rows.
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
        without: Path | None = None,
        sources: Sequence[MixtureSource] = (),
        counts_only: bool = False,
    ) -> None:
        self.config, self.runs, self.syncs, self.scratch = config, runs, syncs, RowScratch(tokenizer.id_dtype)
        self._tokenizer, self._receipts, self._merges, self._plan_hash = tokenizer, receipts, merges, plan_hash
        self._benchmarks, self._repeated, self._sources = benchmarks, repeated, sources
        self._counts_only, self._without = counts_only, without
        self._word_rule = tokenizer.word_rule(config.examples)  # how pieces form words, the units of masking

    def __call__(self, task: ReadTask) -> Made:
        made = Made(fingerprint=self._plan_hash + task.fingerprint, damage=Damage(strict=self.config.text.strict))
        with machine_scratch() if self._merges else nullcontext(self.runs) as folder, ExitStack() as files:
            rows, lists = _SortedRows(self, task, folder), _Lists(self, task, files)
            for block in made.seconds.time_each("read", task.read(made.damage)):
                for lines, documents in self.tokenise(block, made, task):
                    if task.source is not None:
                        documents = name_source(documents, task.source)
                    lists.add(lines, documents)
                    for chosen, pass_index in self._choose_passes(documents):
                        rows.add(self.make_rows(chosen, pass_index, made.seconds))
            made.add(rows.finish())
            made.add(lists.finish())
        made.counts += made.damage.layout
        if self.syncs:
            for name in made.files:
                find_storage(self.runs).sync(self.runs / name)
        write_receipt(self._receipts / f"{task.name}.json", made, sync=self.syncs)
        return made

    def tokenise(self, block: Block, made: Made, task: ReadTask) -> Iterator[tuple[Lines, Documents]]:
        """Tokenise the documents of a block of a task, a part at a time, and count them in `made`."""
        config, source, stages = task.text, task.source, made.seconds
        with stages.time("clean"):
            repeated = None if self._repeated is None else map_u64(self._repeated)
            without = Without(self._without)
            cleaned = clean_documents(block, config, made.damage, repeated, without)
            made.found = np.union1d(made.found, without.found)
            if (share := self.config.sample or 1.0) < 1.0 and not (task.is_validation or is_benchmark(source)):
                keys = sample_keys(np.uint64(self.config.examples.seed), cleaned.document_keys)
                cleaned = leave_out(cleaned, keys < threshold(share), OUTSIDE_SAMPLE, made.damage)
        for lines in batch_documents(cleaned):
            if self._benchmarks is not None and source is not None and not is_benchmark(source):
                with stages.time("clean"):
                    lines, num_out = self._benchmarks.leave_out(lines)
                made.counts.update({"contaminated_documents": num_out, count_contaminated(source): num_out})
                if not len(lines.document_keys):
                    continue
            with stages.time("segment"):
                text = find_sentences(lines, config)
            with stages.time("tokenise"):
                documents = self._tokenizer.encode_documents(text)
            num_empty = _count_documents(lines, documents, made)
            for _ in range(num_empty):
                made.damage.add("no_tokens", block.origin.path, block.locate(0))
            yield lines, documents

    def _choose_passes(self, documents: Documents) -> Iterator[tuple[Documents, int]]:
        if self._counts_only:
            return iter(())
        if self.config.alpha is not None:
            documents = number_documents(documents, self._sources)
        return choose_passes(documents, self._sources, self.config.examples)

    def make_rows(self, documents: Documents, pass_index: int, stages: Stages) -> KeyedRows:
        """Make the masked rows of one pass, with their keys."""
        config, tokenizer = self.config.examples, self._tokenizer
        with stages.time("pair"):
            pairs = make_pairs(documents, tokenizer.specials, self._word_rule, config, pass_index)
        with stages.time("mask"):
            examples = mask_pairs(
                pairs, tokenizer.specials, self._word_rule, tokenizer.ordinary_ids, config, pass_index
            )
        document_keys, source_codes, groups, forms = pairs.columns
        keys = RowKeys(
            shuffle_keys=shuffle_keys(np.uint64(config.seed), document_keys, pass_index, pairs.indices),
            document_keys=document_keys,
            passes=np.full(len(pairs), pass_index, np.uint16),
            indices=pairs.indices,
            forms=np.zeros(len(pairs), np.uint64) if forms is None else forms,
        )
        source_codes = np.zeros(len(pairs), np.uint32) if source_codes is None else source_codes
        return KeyedRows(examples=examples, keys=keys, source_codes=source_codes, groups=groups)

    def name(self, task: ReadTask) -> str:
        """How the names of a task's files begin."""
        seal = sha256((self._plan_hash + task.name).encode()).hexdigest()[:16]
        return f"{seal}-{task.name}" if self.syncs else task.name


class _SortedRows:
    """The sorted runs of a task. folder: where they are written first, if the task makes one of them in the end."""

    def __init__(self, job: MakeRows, task: ReadTask, folder: Path) -> None:
        self._job, self._task, self._folder, self._name = job, task, folder, job.name(task)
        self._held, self._made = list[KeyedRows](), Made()

    def add(self, rows: KeyedRows) -> None:
        self._held.append(rows)
        if sum(part.examples.input_ids.nbytes for part in self._held) >= RUN_BYTES:
            self._write(self._folder)

    def finish(self) -> Made:
        # The only run of a task goes straight to the build's folder; of several the last one too goes to `folder`.
        has_several = bool(self._made.runs)
        if self._held:
            self._write(self._folder if has_several else self._job.runs)
        if self._folder != self._job.runs and has_several:
            self._join()
        return self._made

    def _write(self, folder: Path) -> None:
        held, made, config = self._held, self._made, self._job.config
        with made.seconds.time("sort"):
            keys = join_keys(held)
            groups = [part.groups for part in held if part.groups is not None]
            deciding = np.concatenate(groups) if groups else keys.document_keys
            row_split_keys = split_keys(np.uint64(config.examples.seed), deciding)
            is_validation = (row_split_keys < threshold(config.drawn_fraction)) | self._task.is_validation
            rows = sort_rows(held, keys, is_validation, self._job.scratch, keep_copies=config.keep_duplicates)
        if len(keys.indices):
            name = f"{self._name}-{len(made.runs):03d}.run"
            with made.seconds.time("write runs"):
                write_sorted_run(folder / name, rows)
            made.runs.append(name)
            made.dropped = made.dropped.add(rows.dropped)
            _count_rows(held, keys, row_split_keys, is_validation, made)
        held.clear()

    def _join(self) -> None:
        """Replace the runs by one in the build's folder."""
        made, name = self._made, f"{self._name}-all.run"
        with made.seconds.time("write runs"):
            runs, keep_copies = [self._folder / run for run in made.runs], self._job.config.keep_duplicates
            dropped = join_runs(runs, self._job.runs / name, self._job.scratch, keep_copies=keep_copies)
        made.runs, made.dropped = [name], made.dropped.add(dropped)
        made.least = {name: min(made.least.values())} if made.least else {}


class _Lists:
    """What is listed of a task's documents. files: closes open files, also if the task fails."""

    def __init__(self, job: MakeRows, task: ReadTask, files: ExitStack) -> None:
        self._folder, self._name, self._source, config = job.runs, job.name(task), find_source(task), job.config
        self._names_sources = config.alpha is not None  # each document its own
        self._listed, self._seconds = list[np.ndarray](), Stages()
        # Only where copies or near-duplicates are dropped.
        bands = choose_bands(config.similarity) if config.drop_near_duplicates else None
        of_texts, of_parts = files.enter_context(ExitStack()), files.enter_context(ExitStack())
        self._texts = None if config.keep_duplicates else FormTexts(job.runs, self._name, of_texts)
        self._ids = IdWriter(job.runs, self._name)
        self._parts = PartWriter(job.runs, self._name, self._source, bands, of_parts) if bands else None

    def add(self, lines: Lines, documents: Documents) -> None:
        texts = self._texts.add(lines) if self._texts else None
        self._listed.append(list_documents(documents, None if self._names_sources else self._source, texts))
        self._ids.add(lines, documents)
        if self._parts:
            with self._seconds.time("sign"):
                tokens = np.diff(documents.sentence_offsets[documents.document_offsets])
                self._parts.add(lines, tokens, documents.columns.source_codes)

    def finish(self) -> Made:
        made = Made(seconds=self._seconds)
        if any(part.size for part in self._listed):
            name = self._texts.finish() if self._texts else None
            made.lists.append(write_list(self._folder, self._name, self._source, self._listed, name))
        made.ids = self._ids.finish()
        if self._parts:
            made.parts = self._parts.finish()
        return made


def _count_rows(
    parts: list[KeyedRows], keys: RowKeys, row_split_keys: np.ndarray, is_validation: np.ndarray, made: Made
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
        made.counts[f"{split}_rows"] += int(np.count_nonzero(is_here))
        made.counts[f"{split}_tokens"] += int(tokens[is_here].sum())
        made.counts[f"{split}_masked"] += int(masked[is_here].sum())
    # The samples need hashes that are random, and equal for equal documents: so are the keys of their first rows.
    made.sizes.add_documents(is_validation[firsts], keys.shuffle_keys[firsts], row_split_keys[firsts], sizes)
    if not is_validation.all():
        made.least[made.runs[-1]] = int(row_split_keys[~is_validation].min())


def _count_documents(lines: Lines, documents: Documents, made: Made) -> int:
    """Count the documents in `made`. Returns how many of them have no tokens, and so no rows."""
    keys, source_codes, groups, _ = documents.columns
    made.counts.update(
        documents=len(keys),
        sentences=len(documents.sentence_offsets) - 1,
        text_bytes=len(lines.utf8),
        tokens=len(documents.ids),
    )
    has_rows = np.diff(documents.sentence_offsets[documents.document_offsets]) > 0
    if groups is not None:
        made.counts["grouped_documents"] += int(np.count_nonzero(groups != keys))
    made.digest = (made.digest + int(keys[has_rows].sum(dtype=np.uint64))) % DIGESTS
    if source_codes is not None:
        made.source_codes |= set(np.unique(source_codes[has_rows]).tolist())
    return int(np.count_nonzero(~has_rows))
