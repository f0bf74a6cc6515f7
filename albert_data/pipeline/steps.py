"""The steps of a build, in their order: tokenizer, map, what must be known of the whole corpus, reduce.

Each runs what a killed build has not finished: a map task or a shard with a receipt is not made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from albert_data.config import BuildConfig, VocabConfig
from albert_data.corpus.damage import Damage
from albert_data.corpus.fields import name_field
from albert_data.corpus.inputs import STDIN, Input, count_bytes, list_samples
from albert_data.corpus.removed_lines import RemovedLines
from albert_data.corpus.sources import MixtureSource
from albert_data.corpus.tasks import ReadTask, read_tasks
from albert_data.errors import InputError
from albert_data.jobs.compiling import compile_with_notice
from albert_data.jobs.engine import Engine, PreparedJob, spans_machines
from albert_data.jobs.progress import Progress
from albert_data.jobs.receipts import read_receipt, write_receipt
from albert_data.kernels.draws import shuffle_keys
from albert_data.pipeline.benchmarks import Benchmarks, write_benchmarks
from albert_data.pipeline.build_folder import BuildFolder
from albert_data.pipeline.choosing import Choice, UsedSizes, choose_documents
from albert_data.pipeline.exchanging import Exchange
from albert_data.pipeline.grouping import group_documents
from albert_data.pipeline.identity import check_size
from albert_data.pipeline.mapping import MapJob
from albert_data.pipeline.mixed_sources import (
    check_lists,
    describe_budgets,
    describe_shares,
    list_languages,
    list_sources,
)
from albert_data.pipeline.receipts import TaskReceipt, read_task_receipt
from albert_data.pipeline.reducing import ReduceJob, ReduceReceipt, read_reduce_receipt
from albert_data.pipeline.row_buffer import Dropped
from albert_data.pipeline.shard_plan import ReduceRules, ReduceTask, find_move, plan_reduce
from albert_data.pipeline.shuffle import MergedRun, MergeJob, ReduceGroup, Shuffle, group_tasks, list_held, plan_merges
from albert_data.pipeline.stages import Stages
from albert_data.pipeline.warming import Warming
from albert_data.shards.manifest import SPLITS, NearDuplicateEntry, Plan
from albert_data.shards.typed_values import to_value
from albert_data.storage import find_storage, is_remote, remember_listings
from albert_data.storage.files import to_json
from albert_data.storage.scratch import machine_scratch
from albert_data.survey.document_lists import RANGE_DOCUMENTS, VALIDATION_PLACE, read_lists, write_left_out
from albert_data.survey.forms import find_lost
from albert_data.survey.near_duplicates import NearDuplicates, find_near_duplicates
from albert_data.survey.sorted_columns import find_keys, map_u64
from albert_data.tokenizer.model import MODEL_NAME, Tokenizer, load_tokenizer
from albert_data.vocab.folder import is_saved, save_vocabulary
from albert_data.vocab.learning import check_found, learn_vocabulary

_LIMITS = "limits.json"  # the receipt of `share_sources`
_RECEIPTS_READ = 1000  # of shards, by one task of a cluster


@dataclass(kw_only=True)
class Build:
    """What the steps of one build share.

    vocab: settings of a vocabulary that is trained first
    syncs: whether each file is synced before its receipt
    stages: seconds of each stage, over all workers
    repeated: the file with the hashes of lines to remove, None to remove none
    sources: those that have passes of their own, of a mixture or by alpha
    num_resumed: map tasks that an earlier, killed build had finished
    allow_loss, language_named: see `build_shards`
    removed: lines that settings removed, by reason, once all documents are mapped
    """

    work: BuildFolder
    inputs: list[Input]
    plan: Plan
    config: BuildConfig
    vocab: VocabConfig
    engine: Engine
    progress: Progress
    syncs: bool = False
    stages: Stages = field(default_factory=Stages)
    num_resumed: int = 0
    allow_loss: bool = False
    repeated: Path | None = None
    sources: list[MixtureSource] = field(default_factory=list)
    language_named: bool = False
    removed: Mapping[str, RemovedLines] = field(default_factory=dict)

    @cached_property
    def plan_hash(self) -> str:
        """Names the plan: a receipt of another plan does not count."""
        return sha256(to_json(to_value(self.plan))).hexdigest()

    def tell(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.progress.say(line)


def learn_tokenizer(build: Build) -> Tokenizer:
    """Train a vocabulary on the corpus, unless a killed build has."""
    folder, several = build.work.tokenizer, spans_machines(build.engine)
    if not is_saved(folder):
        inputs = [item for item in build.inputs if not item.is_validation]
        if streams := [item.path for item in inputs if item.is_stream]:
            raise InputError(
                f"without --tokenizer the corpus is read twice, and {'stdin' if streams[0] == STDIN else streams[0]} "
                "can be read only once; train a vocabulary with `albert-data vocab` first, or give files"
            )
        build.progress.say("no --tokenizer given: a vocabulary is trained on the corpus first")
        shared = build.work.candidates if several else None
        report = learn_vocabulary(
            inputs,
            build.config.text,
            build.vocab,
            build.engine,
            build.progress,
            shrink=True,
            shared=shared,
            repeated=build.repeated,
            allow_loss=build.allow_loss,
        )
        save_vocabulary(folder, report)
        build.tell(report.describe_choices())
    return load_tokenizer(folder / MODEL_NAME, normalization=build.vocab.normalization)


# ---- map ----


def share_sources(build: Build, tokenizer: Tokenizer) -> None:
    """Give each source with an alpha its limit, after a reading of its own in which tokens are counted.

    That is a map without rows, so all that decides whose a document is, and whether it stays, is as in the map of the
    build, which then makes the rows that are wanted and no others. It also finds the languages that records name.
    """
    config, path = build.config, build.work.receipts / _LIMITS
    if config.alpha is None and not any(source.alpha is not None for source in build.sources):
        return
    found = read_receipt(path, dict[str, Any])
    if not found or found["plan"] != build.plan_hash:
        counting = replace(build, plan=replace(build.plan, inputs=()))  # its receipts are those of another plan
        total = map_documents(counting, tokenizer, None, counts_only=True)
        lost = _find_lost(counting, total)
        removed = _drop_near_duplicates(counting, total) if config.drop_near_duplicates else None
        counting.sources = build.sources or list_languages(config, total.sources)
        choice = _choose(counting, total, tokenizer, removed, lost)
        limits = {source.name: counts.limit for source, counts in zip(counting.sources, choice.counts, strict=True)}
        found = {"plan": build.plan_hash, "limits": limits, "lines": describe_shares(counting.sources, choice)}
        write_receipt(path, found, sync=build.syncs)
    build.tell(found["lines"])
    limits, sources = found["limits"], build.sources or list_languages(config, found["limits"])
    build.sources = [replace(source, limit=limits[source.name]) for source in sources]


def map_documents(
    build: Build, tokenizer: Tokenizer, exchange: Exchange | None, *, counts_only: bool = False
) -> TaskReceipt:
    """Make the sorted runs of all documents. Returns the sum of all receipts. counts_only: make no rows."""
    work, sources, text = build.work, list_sources(build.inputs), build.config.text
    several = spans_machines(build.engine)
    repeated = None if build.repeated is None else map_u64(build.repeated)
    benchmarks = write_benchmarks(work.runs, build.inputs, text, repeated)
    job = MapJob(
        build.config,
        tokenizer,
        work.runs,
        work.receipts,
        plan_hash=build.plan_hash,
        syncs=build.syncs,
        merges=several,
        benchmarks=Benchmarks(benchmarks) if benchmarks else None,
        repeated=build.repeated,
        sources=None if counts_only else build.sources,
    )
    warming = Warming(job, tokenizer, tuple(source.text for source in sources), exchange)
    compile_with_notice(warming, build.progress.say)
    places = (str(work.plan_path), *list_samples(build.inputs))
    prepared = PreparedJob(job=job, name="map", prepare=warming, places=places, packages=tokenizer.packages)

    damage, done, finished = Damage(strict=text.strict), list[TaskReceipt](), _FinishedTasks(build)
    tasks = read_tasks(
        build.inputs,
        text,
        damage,
        # A compressed file is one task on a cluster, and here if a killed build, perhaps on one, finished it as one.
        lambda task: several or finished.read(task) is not None,
        is_slow=tokenizer.slow_reason is not None,
    )
    title = "counting tokens" if counts_only else "tokenising, pairing, masking"
    build.progress.start(title, count_bytes(build.inputs))
    total = TaskReceipt()
    for task, receipt in build.engine.run(prepared, finished.skip(tasks, done)):
        work.check_lock(asks=False)
        total.add(receipt)
        build.progress.advance(task.num_bytes, receipt.counts["text_bytes"])
    for receipt in done:
        total.add(receipt)
    # What this process met while it split streams into blocks.
    total.damage.merge(damage)
    build.stages.add(total.seconds)
    build.num_resumed = len(done)
    check_found(build.inputs, text, total.damage, total.counts["documents"], allow_loss=build.allow_loss)
    check_lists(sources, total)
    if not total.runs and not total.lists:
        raise InputError("no document of the corpus gives a token; is this tokenizer for this text?")
    return total


class _FinishedTasks:
    """The map tasks that a killed build has finished."""

    def __init__(self, build: Build) -> None:
        self._build, self._storage = build, find_storage(build.work.runs)
        self._names, self._files = (
            set(self._storage.list_names(folder)) for folder in (build.work.receipts, build.work.runs)
        )

    def read(self, task: ReadTask) -> TaskReceipt | None:
        """The receipt of a task; None if it is not finished."""
        name, folder = f"{task.name}.json", self._build.work.receipts
        receipt = read_task_receipt(folder / name, self._files) if name in self._names else None
        return receipt if receipt and receipt.fingerprint == self._build.plan_hash + task.fingerprint else None

    def skip(self, tasks: Iterator[ReadTask], done: list[TaskReceipt]) -> Iterator[ReadTask]:
        """Yield the tasks without a receipt, and add the receipts of the others to `done`.

        The engine's feed runs this in a thread, and `map_documents` reads `done` after the feed's end.
        """
        # On one machine tasks may hold blocks of a stream, so none is made ahead there.
        read = self._storage.at_once if spans_machines(self._build.engine) else map
        for task, receipt in read(lambda task: (task, self.read(task)), tasks):
            if receipt is not None:
                done.append(receipt)
                self._build.progress.advance(task.num_bytes)
            else:
                yield task


# ---- between map and reduce: what must be known of the whole corpus ----


def decide(build: Build, total: TaskReceipt, tokenizer: Tokenizer) -> ReduceRules:
    """Decide which rows reduce keeps, and under which split.

    total: of all map tasks. It is changed in this order, and read last by `make_manifest`: what a mixture uses, the
    sizes without left-out documents, then in `reduce_rows` the copies and rows that the merge dropped.
    """
    sources, field = build.sources, build.config.text.group_field
    if field is not None and not total.counts["grouped_documents"]:
        raise InputError(
            f"no record has the field {name_field(field)} with a group in it; pass --group-field NAME with the one "
            "that names the group, or leave it out"
        )
    lost = _find_lost(build, total)
    removed = _drop_near_duplicates(build, total) if build.config.drop_near_duplicates else None
    choice = _choose(build, total, tokenizer, removed, lost) if sources else None
    left_out = _leave_out(build, total) if any(item.is_validation for item in build.inputs) else None
    if removed and not sources:
        _count_again(build, total, tokenizer, removed, lost)
    id_bytes = np.dtype(tokenizer.id_dtype).itemsize
    grouping = None
    if field is not None:
        grouping = group_documents(build.work.runs, total, build.config, id_bytes, choice, removed)
    move = grouping.move if grouping else find_move(total, build.config)
    total.counts["moved_documents"] = max(0, move.num_documents - move.num_drawn) if move else 0
    return ReduceRules(
        id_dtype=tokenizer.id_dtype,
        compression=build.config.compression,
        keep_duplicates=build.config.keep_duplicates,
        move=move,
        sources=tuple(total.sources.values()) if choice is None else tuple(range(len(sources))),
        choice=choice,
        left_out=left_out,
        removed=removed,
        grouping=grouping,
        lost=lost,
    )


def _find_lost(build: Build, total: TaskReceipt) -> Path | None:
    """The forms of texts that are dropped because another one stays, if any document is not in NFC."""
    if build.config.keep_duplicates or not total.counts["uncomposed_documents"]:
        return None
    return find_lost(build.work.runs, total.lists, by_source=build.config.alpha is None)


def _drop_near_duplicates(build: Build, total: TaskReceipt) -> Path | None:
    """Find and count the documents that are similar to one that stays. Returns the file of their keys."""
    found = _compare(build, total)
    total.remove(found)
    names = {source.code: source.name for source in build.sources} or {
        code: name for name, code in total.sources.items()
    }
    total.near_duplicates = NearDuplicateEntry(
        sources={name: found.documents[code] for code, name in sorted(names.items())} or None,
        num_partly_compared=found.num_partly_compared,
    )
    return build.work.runs / found.file if found.file else None


def _compare(build: Build, total: TaskReceipt) -> NearDuplicates:
    """Compare all documents, unless a killed build has."""
    runs, receipt = build.work.runs, build.work.receipts / "near-duplicates.json"
    basis = sha256(repr((build.plan_hash, total.documents_digest, sorted(total.parts))).encode()).hexdigest()
    known = read_receipt(receipt, tuple[str, NearDuplicates])
    if known and known[0] == basis:
        return known[1]
    build.progress.start("comparing documents", None, "")
    place = machine_scratch() if is_remote(runs) else nullcontext(runs)
    with place as scratch, build.stages.time("compare"):
        found = find_near_duplicates(runs, total.parts, build.config.similarity, scratch)
    if build.syncs and found.file:
        find_storage(runs).sync(runs / found.file)
    write_receipt(receipt, (basis, found), sync=build.syncs)
    return found


def _count_again(build: Build, total: TaskReceipt, tokenizer: Tokenizer, removed: Path, lost: Path | None) -> None:
    """Count sizes without removed documents, in a build without a mixture."""
    used, keys_removed = UsedSizes(build.config, np.dtype(tokenizer.id_dtype).itemsize), map_u64(removed)
    for listed in read_lists(build.work.runs, total.lists, lost):
        order = np.lexsort((listed.is_lost, listed.sources, listed.keys))
        keys, first = np.unique(listed.keys[order], return_index=True)  # of equal documents the first source's
        stays = ~find_keys(keys, keys_removed)[0]
        first = order[first[stays]]
        is_given = listed.sources[first] == VALIDATION_PLACE
        used.add(keys[stays], listed.tokens[first].astype(np.int64), 1, is_given)
    total.samples, total.nearest = used.samples, used.nearest


def _choose(build: Build, total: TaskReceipt, tokenizer: Tokenizer, removed: Path | None, lost: Path | None) -> Choice:
    """What is used of each source."""
    id_bytes = np.dtype(tokenizer.id_dtype).itemsize
    choice = choose_documents(build.work.runs, build.sources, build.config, total, id_bytes, removed, lost)
    build.tell(describe_budgets(build.sources, choice))
    return choice


def _leave_out(build: Build, total: TaskReceipt) -> Path:
    """List the documents of the validation inputs, which training leaves out. Returns the path of the list."""
    for split, what in (("train", "training"), ("validation", "validation")):
        if not total.counts[f"{split}_rows"]:
            raise InputError(f"no document of the {what} inputs gives a token; give files with text in them")
    path = write_left_out(build.work.runs, [item for item in total.lists if item.source == VALIDATION_PLACE])
    keys, seed = map_u64(path), np.uint64(build.config.examples.seed)
    for begin in range(0, len(keys), RANGE_DOCUMENTS):
        some = keys[begin : begin + RANGE_DOCUMENTS]
        total.samples["train"].leave_out(shuffle_keys(seed, some, 0, np.zeros(len(some), np.uint32)))
    return path


# ---- reduce ----


def reduce_rows(build: Build, total: TaskReceipt, rules: ReduceRules, exchange: Exchange | None) -> list[ReduceReceipt]:
    """Merge the sorted runs into shards. Takes out of `total` what the merge drops."""
    work = build.work
    tasks = [replace(task, seal=build.plan_hash[:16]) for task in plan_reduce(total, build.config, rules)]
    check_size(build.plan, len(tasks))
    basis = f"{total.documents_digest} {sorted(total.counts.items())} {sorted(total.runs)}"
    work.begin_shards(basis)
    shuffle = Shuffle.plan(tasks, len(total.runs))
    merged = _merge_rows(build, total, shuffle, MergeJob(work.runs, rules.id_dtype, syncs=build.syncs), basis)
    job = ReduceJob(list_held(work.runs, merged, rules.move), work.shards, rules, exchange, syncs=build.syncs)
    build.progress.start("shuffling, writing", len(tasks), "shards")
    made = _read_shards(build, tasks)
    # A receipt alone shows that a shard is finished: the file may be in OUT already, see `_sync_shard`.
    done = {receipt.task.file for receipt in made}
    with ThreadPoolExecutor(max_workers=1) as disk:  # syncs finished shards while workers make others

        def sync(receipts: list[ReduceReceipt]) -> None:
            if not build.syncs:  # or each shard was synced before its receipt
                synced.extend(disk.submit(_sync_shard, work, receipt.task) for receipt in receipts)

        synced: list[Future[None]] = []
        sync(made)
        try:
            groups = group_tasks([task for task in tasks if task.file not in done], shuffle)
            for _, (receipts, stages) in build.engine.run(job, groups):
                work.check_lock(asks=False)
                sync(receipts)
                made += receipts
                build.stages.add(stages)
                build.progress.advance(len(receipts))
        except BaseException:
            disk.shutdown(wait=False, cancel_futures=True)
            raise
    for outcome in synced:
        outcome.result()
    if rules.choice is None:  # else all copies are counted already
        total.drop(reduce(Dropped.add, (receipt.dropped for receipt in made)))
    if rules.left_out is not None:
        total.leave_out(reduce(Dropped.add, (receipt.left_out for receipt in made)))
        if not any(receipt.shard.num_rows for receipt in made if receipt.task.split == "train"):
            raise InputError(
                f"every document of the training inputs is {'similar to ' if rules.removed else ''}one of validation "
                "too, so none is left for training; give other inputs, and --overwrite"
            )
    return made


def _merge_rows(build: Build, total: TaskReceipt, shuffle: Shuffle, job: MergeJob, basis: str) -> list[MergedRun]:
    """What holds the rows for the reduce step. Makes what a killed build has not, if these are merged runs."""
    work, num_rows = build.work, {split: total.counts[f"{split}_rows"] for split in SPLITS}
    seal = sha256(f"{build.plan_hash} {basis}".encode()).hexdigest()
    merged = plan_merges(shuffle, sorted(total.runs), num_rows, seal)
    there = set(find_storage(work.runs).list_names(work.runs)) if shuffle.num_batches else set(total.runs)
    if left := [task for task in merged if task.name not in there]:
        build.progress.start("merging", len(left), "runs")
        for _, stages in build.engine.run(job, left):
            work.check_lock(asks=False)
            build.stages.add(stages)
            build.progress.advance(1)
    return merged


def _read_shards(build: Build, tasks: list[ReduceTask]) -> list[ReduceReceipt]:
    """The shards that a killed build has finished. It may have published some of them."""
    work, storage = build.work, find_storage(build.work.out)
    names = set(storage.list_names(work.shards / "receipts"))
    begun = [task for task in tasks if task.receipt_name in names]
    groups = [ReduceGroup(tuple(begun[i : i + _RECEIPTS_READ])) for i in range(0, len(begun), _RECEIPTS_READ)]
    job = PreparedJob(job=partial(_read_receipts, work.shards), name="read receipts", places=(str(work.plan_path),))
    is_shared = spans_machines(build.engine) and len(groups) > 1
    read = build.engine.run(job, groups) if is_shared else ((group, job(group)) for group in groups)
    receipts = [receipt for _, found in read for receipt in found if receipt is not None]
    with remember_listings():
        made, published = (
            {f"{split}/{name}" for split in SPLITS for name in storage.list_names(place / split) if receipts}
            for place in (work.shards, work.out)
        )

        def is_there(receipt: ReduceReceipt) -> bool:
            """Whether its shard is in .build, or one of its size in OUT, where shards of an older build may lie."""
            file = receipt.task.file
            is_published = file in published and storage.status(work.out / file).num_bytes == receipt.shard.num_bytes
            return receipt.task.made_file in made or is_published

        return list(filter(is_there, receipts))


def _read_receipts(shards: Path, group: ReduceGroup) -> list[ReduceReceipt | None]:
    return list(find_storage(shards).at_once(partial(read_reduce_receipt, shards), group.tasks))


def _sync_shard(work: BuildFolder, task: ReduceTask) -> None:
    storage = find_storage(work.shards)
    try:
        storage.sync(work.shards / task.made_file)
    except FileNotFoundError:
        pass  # a build that was killed while publishing has moved it to OUT; all shards were synced before that
    except OSError:
        # The system reports a failed write only once. Without its receipt, the next build makes the shard again.
        storage.remove(work.shards / "receipts" / task.receipt_name)
        raise
