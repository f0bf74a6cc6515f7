"""Build shards: plan, map, reduce, publish.

In: inputs, a tokenizer, a config. Out: a shard folder, which is a pure function of the documents, the tokenizer and the
config. A killed build resumes when it is started again with the same arguments.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, reduce
from hashlib import sha256
from pathlib import Path

import numpy as np

from albert_data.config import BuildConfig, TextConfig, VocabConfig
from albert_data.corpus.damage import Damage
from albert_data.corpus.inputs import STDIN, Input, check_language_field, check_reach, count_bytes, list_samples
from albert_data.corpus.mixtures import Names, find_sources
from albert_data.corpus.tasks import ReadTask, read_tasks
from albert_data.draws import shuffle_keys
from albert_data.errors import AlbertDataError, ConfigError, InputError
from albert_data.files import to_json
from albert_data.jobs.compiling import compile_with_notice
from albert_data.jobs.engine import Engine, MultiprocessEngine, PreparedJob, explain_disk_error, spans_machines
from albert_data.jobs.progress import NullProgress, Progress
from albert_data.pipeline.choosing import Choice, choose_documents
from albert_data.pipeline.document_lists import RANGE_DOCUMENTS, map_u64, write_left_out
from albert_data.pipeline.exchanging import Exchange, describe_shortages
from albert_data.pipeline.identity import check_encoding, check_finished, check_size, choose_fraction, make_plan
from albert_data.pipeline.mapping import MapJob
from albert_data.pipeline.mixed_sources import (
    check_lists,
    check_passes,
    describe_budgets,
    list_sources,
)
from albert_data.pipeline.ownership import read_our_manifest
from albert_data.pipeline.publish import make_manifest, publish
from albert_data.pipeline.receipts import TaskReceipt, read_task_receipt
from albert_data.pipeline.records import Dropped
from albert_data.pipeline.reducing import (
    GroupJob,
    ReduceJob,
    ReduceReceipt,
    ReduceRules,
    ReduceTask,
    describe_validation,
    group_tasks,
    make_rules,
    plan_reduce,
    read_reduce_receipt,
)
from albert_data.pipeline.stages import Stages
from albert_data.pipeline.warming import Warming
from albert_data.pipeline.workdir import WorkDir
from albert_data.shards.manifest import SPLITS, Manifest, Plan
from albert_data.shards.schema import ShardReceipt
from albert_data.storage import find_storage, make_path
from albert_data.tokenizer.lexicon import NO_WORDS
from albert_data.tokenizer.model import MODEL_NAME, Tokenizer, load_tokenizer
from albert_data.vocab.folder import check_normalization, is_saved, save_vocabulary
from albert_data.vocab.learning import learn_vocabulary, missing_labels, no_document


@dataclass(frozen=True, kw_only=True)
class BuildReport:
    """What a build did.

    resumed_tasks: map tasks that an earlier, killed build had finished; was_finished: there was nothing left to do;
    stages: seconds of each stage, summed over all workers.
    """

    manifest: Manifest
    seconds: float
    resumed_tasks: int
    was_finished: bool
    stages: Stages


def build(
    inputs: Names,
    output: str | os.PathLike[str],
    *,
    validation: Names = (),
    tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    normalization: str = "none",
    config: BuildConfig | None = None,
    workers: int | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
) -> BuildReport:
    """Build the shards of a corpus into the folder `output`, as `albert-data build` does.

    inputs: names of files, folders and globs, or "-" for stdin; "corpus/de:de" is an input in German. Or the name of a
    mixture, a .toml file that names the sources of the corpus.
    validation: inputs whose documents are the validation split; training leaves out documents that equal one of them.
    With them, leave validation_fraction at its default.
    tokenizer: one that is loaded, or the path of a SentencePiece model, vocab.txt or tokenizer.json, or of its folder.
    None trains a vocabulary with default settings on the corpus first.
    normalization: of text before a tokenizer that is not loaded yet: "none", or "albert-v2" for what Google's ALBERT
    code does.
    workers: processes; None for one a core. engine: in their place, as a RayEngine. They change no byte of the shards.
    overwrite: see `build_shards`.
    Raises AlbertDataError: InputError, TokenizerError, OutputError or WorkerError for what the user can fix. Finished
    tasks are kept then, so the same call resumes.
    """
    config, progress = config or BuildConfig(), progress or NullProgress()
    try:
        found, loaded = load_arguments(
            inputs, tokenizer, config.text, progress, normalization=normalization, validation=validation
        )
        engine, vocab = engine or MultiprocessEngine(workers), VocabConfig(normalization=normalization)
        out = make_path(output)
        return build_shards(found, out, loaded, config, engine, progress, vocab=vocab, overwrite=overwrite)
    except OSError as error:
        raise explain_disk_error(error) from error


def load_arguments(
    inputs: Names,
    tokenizer: Tokenizer | str | os.PathLike[str] | None,
    text: TextConfig,
    progress: Progress,
    *,
    normalization: str = "none",
    words: str = NO_WORDS,
    validation: Names = (),
) -> tuple[list[Input], Tokenizer | None]:
    """Find the inputs and load the tokenizer of a build.

    Raises TokenizerError if `vocab` trained it on text of another normalization, and ConfigError for words without a
    tokenizer.
    """
    if tokenizer is None and words != NO_WORDS:
        raise ConfigError("a word list needs a tokenizer; train one first with `albert-data vocab`")
    found = find_sources(inputs, progress.say, text, validation)
    if not isinstance(tokenizer, str | os.PathLike):
        return found, tokenizer
    path = make_path(tokenizer)
    check_normalization(path, normalization)
    return found, load_tokenizer(path, normalization=normalization, words=words)


def build_shards(
    inputs: list[Input],
    out: Path,
    tokenizer: Tokenizer | None,
    config: BuildConfig,
    engine: Engine,
    progress: Progress | None = None,
    *,
    vocab: VocabConfig | None = None,
    overwrite: bool = False,
) -> BuildReport:
    """Build the shards of inputs into `out` on any engine.

    tokenizer: None to train one on the corpus first. vocab: its settings; None for the defaults.
    out: a folder that is missing, empty or of a build; any other is an OutputError. So is a file that no build wrote
    under a name that builds give to theirs. All other files stay.
    overwrite: replace another build in `out`; a finished one stays until the new one is finished.
    Raises InputError, TokenizerError, OutputError, WorkerError, or OSError if the disk fails. Finished tasks are kept.
    """
    started, progress = time.monotonic(), progress or NullProgress()
    config = choose_fraction(inputs, config)
    check_encoding(inputs, config)
    check_reach(inputs, spans_machines=spans_machines(engine))
    check_language_field(inputs, config.text)
    check_passes(list_sources(inputs), config)
    if tokenizer is not None and tokenizer.words is not None and not config.examples.masks_words:
        raise ConfigError("a word list is for masks of whole words; leave it out, or mask whole words")
    vocab = vocab or VocabConfig()
    plan = make_plan(inputs, tokenizer, config, vocab)
    check_size(plan)
    work = WorkDir(out)
    if not overwrite and (finished := _find_finished(out, plan)) is not None:
        work.sweep(plan)
        return finished
    work.open()
    try:
        if not overwrite and (finished := _find_finished(out, plan)) is not None:  # by a build that ran until now
            work.remove()
            return finished
        syncs = work.begin(plan, overwrite, syncs=spans_machines(engine))
        making = _Build(work, inputs, plan, config, vocab, engine, progress)
        making.syncs = syncs
        manifest, resumed = making.run(tokenizer)
        work.remove()
    except AlbertDataError:
        work.remove_if_empty()
        raise
    finally:
        work.close()
    seconds = time.monotonic() - started
    return BuildReport(
        manifest=manifest, seconds=seconds, resumed_tasks=resumed, was_finished=False, stages=making.stages
    )


def _find_finished(out: Path, plan: Plan) -> BuildReport | None:
    """The build in OUT, if it is finished. Raises OutputError if it is not of this plan."""
    if (manifest := read_our_manifest(out)) is None:
        return None
    check_finished(manifest, plan, out)
    return BuildReport(manifest=manifest, seconds=0.0, resumed_tasks=0, was_finished=True, stages=Stages())


class _Build:
    """The stages of one build."""

    def __init__(
        self,
        work: WorkDir,
        inputs: list[Input],
        plan: Plan,
        config: BuildConfig,
        vocab: VocabConfig,
        engine: Engine,
        progress: Progress,
    ) -> None:
        self._work, self._inputs, self._plan, self._config, self._vocab = work, inputs, plan, config, vocab
        self._engine, self._progress = engine, progress
        self._sources = list_sources(inputs)
        self._has_validation = any(item.is_validation for item in inputs)
        self._seal = sha256(to_json(plan.to_values())).hexdigest()
        self.stages, self.syncs = Stages(), False  # syncs: whether each file is synced before its receipt

    def run(self, tokenizer: Tokenizer | None) -> tuple[Manifest, int]:
        """Returns the manifest, and how many map tasks an earlier, killed build had finished."""
        tokenizer = tokenizer or self._learn_tokenizer()
        work, merges, seal = self._work, spans_machines(self._engine), self._seal
        job = MapJob(self._config, tokenizer, work.runs, work.receipts, seal=seal, syncs=self.syncs, merges=merges)
        if tokenizer.note:
            self._progress.say(tokenizer.note)
        if tokenizer.slow_reason:
            self._progress.say(
                f"this tokenizer is slow: {tokenizer.library} itself encodes each sentence, because "
                f"{tokenizer.slow_reason}"
            )
        examples = self._config.examples
        exchange = Exchange(examples, tokenizer) if examples.task.has_random else None
        warming = Warming(job, tokenizer, tuple(source.text for source in self._sources), exchange)
        compile_with_notice(warming, self._progress)
        places, packages = (str(work.plan_path), *list_samples(self._inputs)), tokenizer.packages
        prepared = PreparedJob(job=job, prepare=warming, places=places, packages=packages)
        total, resumed = self._map(prepared, is_slow=tokenizer.slow_reason is not None)
        choice = self._choose(total, tokenizer) if self._sources else None
        left_out = self._leave_out(total) if self._has_validation else None
        rules = make_rules(total, self._config, tokenizer.id_dtype, choice, left_out)
        shards = self._reduce(total, rules, exchange)
        manifest = make_manifest(self._plan, self._config, tokenizer, total, shards, choice)
        notes = publish(self._work, manifest, tokenizer)
        for note in [*notes, *describe_shortages(manifest), *describe_validation(total, rules)]:
            self._progress.say(note)
        return manifest, resumed

    def _learn_tokenizer(self) -> Tokenizer:
        path = self._work.tokenizer / MODEL_NAME
        if not is_saved(self._work.tokenizer):
            inputs = [item for item in self._inputs if not item.is_validation]
            if streams := [item.path for item in inputs if item.is_stream]:
                name = "stdin" if streams[0] == STDIN else streams[0]
                raise InputError(
                    f"without --tokenizer the corpus is read twice, and {name} can be read only once; "
                    "train a vocabulary with `albert-data vocab` first, or give files"
                )
            self._progress.say("no --tokenizer given: a vocabulary is trained on the corpus first")
            report = learn_vocabulary(
                inputs,
                self._config.text,
                self._vocab,
                self._engine,
                self._progress,
                shrink=True,
                shared=self._work.candidates if spans_machines(self._engine) else None,
            )
            save_vocabulary(self._work.tokenizer, report)
            for line in report.describe_choices():
                self._progress.say(line)
        return load_tokenizer(path, normalization=self._vocab.normalization)

    def _map(self, job: PreparedJob[ReadTask, TaskReceipt], *, is_slow: bool) -> tuple[TaskReceipt, int]:
        """Run the tasks that have no receipt yet. Returns the sum of all receipts, and how many were there before."""
        damage = Damage(strict=self._config.text.strict)
        done: list[TaskReceipt] = []
        tasks = read_tasks(self._inputs, self._config.text, damage, self._is_whole, is_slow=is_slow)
        self._progress.start("tokenising, pairing, masking", count_bytes(self._inputs))
        total = TaskReceipt()
        for task, receipt in self._engine.run(job, self._skip_done(tasks, done)):
            self._work.check_lock(asks=False)
            total.add(receipt)
            self._progress.advance(task.num_bytes, receipt.counts["text_bytes"])
        for receipt in done:
            total.add(receipt)
        # What this process met while it split streams into blocks.
        total.damage.merge(damage)
        self.stages.add(total.seconds)
        if not total.counts["documents"]:
            raise no_document(total.damage)
        if total.damage.unlabelled.num_records and not total.damage.num_labelled:
            raise missing_labels(self._config.text, total.damage.unlabelled)
        check_lists(self._sources, total)
        if not total.runs and not self._sources:
            raise InputError("no document of the corpus gives a token; is this tokenizer for this text?")
        return total, len(done)

    def _is_whole(self, task: ReadTask) -> bool:
        """Whether a file that can't be split is read where its task runs, or was so by a build that was killed."""
        return spans_machines(self._engine) or self._read_receipt(task) is not None

    @cached_property
    def _finished_tasks(self) -> set[str]:
        """The names of receipts that a killed build left."""
        return set(find_storage(self._work.receipts).list_names(self._work.receipts))

    def _read_receipt(self, task: ReadTask) -> TaskReceipt | None:
        name = f"{task.name}.json"
        if name not in self._finished_tasks:
            return None
        receipt = read_task_receipt(self._work.receipts / name, self._work.runs)
        return receipt if receipt is not None and receipt.fingerprint == self._seal + task.fingerprint else None

    def _skip_done(self, tasks: Iterator[ReadTask], done: list[TaskReceipt]) -> Iterator[ReadTask]:
        """Yield the tasks without a receipt, and add the receipts of the others to `done`.

        The engine's feed runs this in a thread, and `_map` reads `done` after the feed's end.
        """
        for task in tasks:
            if (receipt := self._read_receipt(task)) is not None:
                done.append(receipt)
                self._progress.advance(task.num_bytes)
            else:
                yield task

    def _choose(self, total: TaskReceipt, tokenizer: Tokenizer) -> Choice:
        """Decide what is used of each source of a mixture."""
        id_bytes = np.dtype(tokenizer.id_dtype).itemsize
        choice = choose_documents(self._work.runs, self._sources, self._config, total, id_bytes)
        for line in describe_budgets(self._sources, choice):
            self._progress.say(line)
        return choice

    def _leave_out(self, total: TaskReceipt) -> Path:
        """List the documents of the validation inputs, which training leaves out. Returns the path of the list."""
        for split, what in (("train", "training"), ("validation", "validation")):
            if not total.counts[f"{split}_rows"]:
                raise InputError(f"no document of the {what} inputs gives a token; give files with text in them")
        path = write_left_out(self._work.runs, total.lists)
        keys, seed = map_u64(path), np.uint64(self._config.examples.seed)
        for begin in range(0, len(keys), RANGE_DOCUMENTS):
            some = keys[begin : begin + RANGE_DOCUMENTS]
            total.samples["train"].leave_out(shuffle_keys(seed, some, 0, np.zeros(len(some), np.uint32)))
        return path

    def _reduce(
        self, total: TaskReceipt, rules: ReduceRules, exchange: Exchange | None
    ) -> list[tuple[ReduceTask, ShardReceipt]]:
        tasks = plan_reduce(total, self._config, rules)
        runs = [self._work.runs / name for name in sorted(total.runs)]
        job = ReduceJob(runs, self._work.shards, rules, exchange, syncs=self.syncs)
        self._work.begin_shards(f"{total.documents_digest} {sorted(total.counts.items())} {sorted(total.runs)}")
        self._progress.start("shuffling, writing", len(tasks), "shards")
        shards = self._read_shards(tasks)
        # A receipt alone shows that a shard is finished: the file may be in OUT already, see `_sync_shard`.
        done = {task.file for task, _ in shards}
        with ThreadPoolExecutor(max_workers=1) as disk:  # syncs finished shards while workers make others
            # With `syncs` each shard was synced before its receipt.
            synced = [] if self.syncs else [disk.submit(self._sync_shard, task) for task, _ in shards]
            try:
                groups = group_tasks([task for task in tasks if task.file not in done], len(runs))
                for _, made in self._engine.run(GroupJob(job), groups):
                    self._work.check_lock(asks=False)
                    for task, receipt, stages in made:
                        synced += [] if self.syncs else [disk.submit(self._sync_shard, task)]
                        shards.append((task, receipt))
                        self.stages.add(stages)
                    self._progress.advance(len(made))
            except BaseException:
                disk.shutdown(wait=False, cancel_futures=True)
                raise
        for outcome in synced:
            outcome.result()
        if rules.choice is None:  # else all copies are counted already
            total.drop(reduce(Dropped.add, (receipt.dropped for _, receipt in shards)))
        if rules.left_out is not None:
            total.leave_out(reduce(Dropped.add, (receipt.left_out for _, receipt in shards)))
            if not any(receipt.shard.num_rows for task, receipt in shards if task.split == "train"):
                raise InputError(
                    "every document of the training inputs is one of validation too, so none is left for training; "
                    "give other inputs, and --overwrite"
                )
        return [(task, receipt.shard) for task, receipt in shards]

    def _read_shards(self, tasks: list[ReduceTask]) -> list[tuple[ReduceTask, ReduceReceipt]]:
        """The shards that a killed build has finished. It may have published some of them."""
        folder = self._work.shards / "receipts"
        storage = find_storage(folder)
        there = set(storage.list_names(folder))
        places = [place / split for place in (self._work.shards, self._work.out) for split in SPLITS if there]
        found = {f"{place.name}/{name}" for place in places for name in storage.list_names(place)}
        begun = [task for task in tasks if task.receipt_name in there and task.file in found]
        receipts = storage.at_once(lambda task: read_reduce_receipt(self._receipt_path(task)), begun)
        return [(task, receipt) for task, receipt in zip(begun, receipts, strict=True) if receipt is not None]

    def _sync_shard(self, task: ReduceTask) -> None:
        storage = find_storage(self._work.shards)
        try:
            storage.sync(self._work.shards / task.file)
        except FileNotFoundError:
            pass  # a build that was killed while publishing has moved it to OUT; all shards were synced before that
        except OSError:
            # The system reports a failed write only once. Without its receipt, the next build makes the shard again.
            storage.remove(self._receipt_path(task))
            raise

    def _receipt_path(self, task: ReduceTask) -> Path:
        return self._work.shards / "receipts" / task.receipt_name
