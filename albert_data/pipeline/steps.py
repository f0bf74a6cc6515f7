"""The steps of a build, in their order: tokenizer, map, what must be known of the whole corpus, merge.

Each runs what a killed build has not finished: a map task or a shard with a receipt is not made again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from albert_data.config import BuildConfig, VocabConfig
from albert_data.corpus.damage import Damage
from albert_data.corpus.inputs import STDIN, Input, count_bytes, list_samples
from albert_data.corpus.sources import MixtureSource
from albert_data.corpus.tasks import ReadTask, read_tasks
from albert_data.errors import InputError
from albert_data.jobs.compiling import compile_with_notice
from albert_data.jobs.engine import Engine, PreparedJob, spans_machines
from albert_data.jobs.progress import Progress
from albert_data.jobs.receipts import read_receipt, write_receipt
from albert_data.jobs.stages import Stages
from albert_data.pipeline.build_folder import BuildFolder
from albert_data.pipeline.exchanging import make_exchange
from albert_data.pipeline.id_table import merge_ids
from albert_data.pipeline.make_rows import MakeRows
from albert_data.pipeline.merge_rows import MadeShard, MergeRows, read_made_shard
from albert_data.pipeline.plan import check_size
from albert_data.pipeline.shard_plan import ShardTask, plan_shards
from albert_data.pipeline.shuffle import JoinedRun, JoinRuns, ShardGroup, Shuffle, group_tasks, list_held, plan_joins
from albert_data.pipeline.warming import Warming
from albert_data.shards.manifest import SPLITS, FileEntry, Plan
from albert_data.storage import find_storage, is_remote, remember_listings
from albert_data.storage.files import to_json
from albert_data.storage.scratch import machine_scratch
from albert_data.survey.benchmarks import Benchmarks, write_benchmarks
from albert_data.survey.decisions import Decisions, decide
from albert_data.survey.made import DIGESTS, Dropped, Made, read_made
from albert_data.survey.mixed_sources import (
    check_lists,
    describe_shares,
    list_languages,
)
from albert_data.survey.near_duplicates import NearDuplicates, find_near_duplicates
from albert_data.survey.sorted_columns import map_u64
from albert_data.tokenizer.model import MODEL_NAME, Tokenizer, load_tokenizer
from albert_data.vocab.folder import is_saved, save_vocabulary
from albert_data.vocab.learning import learn_vocabulary
from albert_data.vocab.reading import check_found

_LIMITS = "limits.json"  # the receipt of `share_sources`
_RECEIPTS_READ = 1000  # of shards, by one task of a cluster


@dataclass(frozen=True, kw_only=True)
class Build:
    """What the steps of one build share.

    vocab: settings of a vocabulary that is trained first
    syncs: whether each file is synced before its receipt
    stages: seconds of each stage, over all workers
    sources: those of a mixture
    allow_loss, language_named: see `build_shards`
    without: the file with the documents to leave out, see without.py
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
    allow_loss: bool = False
    sources: list[MixtureSource] = field(default_factory=list)
    language_named: bool = False
    without: Path | None = None

    @cached_property
    def plan_hash(self) -> str:
        """Names the plan: a receipt of another plan does not count."""
        return sha256(to_json(self.plan.to_values())).hexdigest()

    @property
    def has_validation(self) -> bool:
        """Whether there are inputs for validation, whose documents training leaves out."""
        return any(item.is_validation for item in self.inputs)

    def tell(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.progress.say(line)


def learn_tokenizer(build: Build, repeated: Path | None) -> Tokenizer:
    """Train a vocabulary on the corpus, unless a killed build has. repeated: see `map_documents`."""
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
            repeated=repeated,
            allow_loss=build.allow_loss,
        )
        save_vocabulary(folder, report)
        build.tell(report.describe_choices())
    return load_tokenizer(folder / MODEL_NAME, normalization=build.vocab.normalization)


# ---- map ----


def share_sources(build: Build, tokenizer: Tokenizer, repeated: Path | None) -> list[MixtureSource]:
    """The sources that have passes of their own, those with an alpha with a limit.

    It is found by a reading of its own, in which tokens are counted: a map without rows, so all that decides whose a
    document is, and whether it stays, is as in the map of the build, which then makes the rows that are wanted and no
    others. It also finds the languages that records name. repeated: see `map_documents`.
    """
    config, path = build.config, build.work.receipts / _LIMITS
    if config.alpha is None and not any(source.alpha is not None for source in build.sources):
        return build.sources
    found = read_receipt(path, dict[str, Any])
    if not found or found["plan"] != build.plan_hash:
        counting = replace(build, plan=replace(build.plan, inputs=()))  # its receipts are those of another plan
        made = map_documents(counting, tokenizer, [], repeated, counts_only=True).made
        sources = build.sources or list_languages(config, made.sources)
        used = decide_on(counting, tokenizer, made, sources).used
        limits = {source.name: counts.limit for source, counts in zip(sources, used, strict=True)}
        found = {"plan": build.plan_hash, "limits": limits, "lines": describe_shares(sources, used)}
        write_receipt(path, found, sync=build.syncs)
    build.tell(found["lines"])
    limits = found["limits"]
    return [replace(one, limit=limits[one.name]) for one in build.sources or list_languages(config, limits)]


class Mapped(NamedTuple):
    """The sum of what all tasks made. num_resumed: tasks that an earlier, killed build had finished."""

    made: Made
    num_resumed: int


def map_documents(
    build: Build,
    tokenizer: Tokenizer,
    sources: list[MixtureSource],
    repeated: Path | None,
    *,
    counts_only: bool = False,
) -> Mapped:
    """Make the sorted runs and the lists of all documents.

    sources: with their limits. repeated: the file with the hashes of lines to remove, or None. counts_only: no rows.
    """
    work, text, several = build.work, build.config.text, spans_machines(build.engine)
    lines = None if repeated is None else map_u64(repeated)
    benchmarks = write_benchmarks(work.runs, build.inputs, text, lines, build.without)
    job = MakeRows(
        build.config,
        tokenizer,
        work.runs,
        work.receipts,
        plan_hash=build.plan_hash,
        syncs=build.syncs,
        merges=several,
        benchmarks=Benchmarks(benchmarks) if benchmarks else None,
        repeated=repeated,
        without=build.without,
        sources=sources,
        counts_only=counts_only,
    )
    texts = tuple(source.text for source in build.sources)
    warming = Warming(job, tokenizer, texts, make_exchange(build.config, tokenizer))
    compile_with_notice(warming, build.progress.say)
    places = (str(work.plan_path), *list_samples(build.inputs))
    prepared = PreparedJob(job=job, name="map", prepare=warming, places=places, packages=tokenizer.packages)

    damage, done, finished = Damage(strict=text.strict), list[Made](), _FinishedTasks(build)
    tasks = read_tasks(
        build.inputs,
        text,
        damage,
        # A compressed file is one task on a cluster, and here if a killed build, perhaps on one, finished it as one.
        lambda task: several or finished.read(task) is not None,
    )
    title = "counting tokens" if counts_only else "tokenising, pairing, masking"
    build.progress.start(title, count_bytes(build.inputs))
    total = Made()
    for task, made in build.engine.run(prepared, finished.skip(tasks, done)):
        work.check_lock(asks=False)
        total.add(made)
        build.progress.advance(task.num_bytes, made.counts["text_bytes"])
    for made in done:
        total.add(made)
    # What this process met while it split streams into blocks.
    total.damage.merge(damage)
    build.stages.add(total.seconds)
    if build.without is not None and (num_unknown := len(entries := map_u64(build.without)) - len(total.found)):
        total.damage.counts["unknown_keys"] = num_unknown
        if not counts_only:
            build.progress.say(f"{num_unknown:,} of {len(entries):,} keys of --without-keys are of no document")
    check_found(build.inputs, text, total.damage, total.counts["documents"], allow_loss=build.allow_loss)
    check_lists(build.sources, total)
    if not total.runs and not total.lists:
        raise InputError("no document of the corpus gives a token; is this tokenizer for this text?")
    return Mapped(total, len(done))


class _FinishedTasks:
    """The map tasks that a killed build has finished."""

    def __init__(self, build: Build) -> None:
        self._build, self._storage = build, find_storage(build.work.runs)
        self._names, self._files = (
            set(self._storage.list_names(folder)) for folder in (build.work.receipts, build.work.runs)
        )

    def read(self, task: ReadTask) -> Made | None:
        """The receipt of a task; None if it is not finished."""
        name, folder = f"{task.name}.json", self._build.work.receipts
        receipt = read_made(folder / name, self._files) if name in self._names else None
        return receipt if receipt and receipt.fingerprint == self._build.plan_hash + task.fingerprint else None

    def skip(self, tasks: Iterator[ReadTask], done: list[Made]) -> Iterator[ReadTask]:
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


# ---- between map and merge: what must be known of the whole corpus ----


def decide_on(build: Build, tokenizer: Tokenizer, made: Made, sources: list[MixtureSource]) -> Decisions:
    """Decide by the lists of all tasks. sources: those that have passes of their own."""
    similar = _compare(build, made) if build.config.drop_near_duplicates else None
    id_bytes = np.dtype(tokenizer.id_dtype).itemsize
    return decide(made, sources, similar, build.config, build.work.runs, id_bytes, has_validation=build.has_validation)


def _compare(build: Build, made: Made) -> NearDuplicates:
    """Compare all documents, unless a killed build has."""
    runs, receipt = build.work.runs, build.work.receipts / "near-duplicates.json"
    basis = sha256(repr((build.plan_hash, made.digest, sorted(made.parts))).encode()).hexdigest()
    known = read_receipt(receipt, tuple[str, NearDuplicates])
    if known and known[0] == basis:
        return known[1]
    build.progress.start("comparing documents", None, "")
    place = machine_scratch() if is_remote(runs) else nullcontext(runs)
    with place as scratch, build.stages.time("compare"):
        found = find_near_duplicates(runs, made.parts, build.config.similarity, scratch)
    if build.syncs and found.file:
        find_storage(runs).sync(runs / found.file)
    write_receipt(receipt, (basis, found), sync=build.syncs)
    return found


# ---- merge ----


class Merged(NamedTuple):
    """The shards, and what is known of the documents then.

    counts: of documents, for the manifest; digest: the sum of the keys of those that stay, modulo 2**64
    ids: see `merge_ids`
    """

    shards: list[MadeShard]
    counts: Counter[str]
    digest: int
    ids: tuple[FileEntry, ...]


def merge_rows(build: Build, tokenizer: Tokenizer, made: Made, decisions: Decisions) -> Merged:
    """Merge the sorted runs into shards, and the ids into their table."""
    work, config, id_dtype = build.work, build.config, tokenizer.id_dtype
    counts = made.counts + decisions.counts
    # Shards count only if they were made of the same sorted runs.
    basis = f"{build.plan_hash} {decisions.digest} {sorted(counts.items())} {sorted(made.runs)}"
    seal = sha256(basis.encode()).hexdigest()
    tasks = plan_shards(made, decisions, config, np.dtype(id_dtype).itemsize)
    tasks = [replace(task, seal=seal[:16]) for task in tasks]
    check_size(build.plan, len(tasks))
    shuffle = Shuffle.plan([task.num_bytes for task in tasks], len(made.runs))
    merged = _join_runs(build, made, shuffle, JoinRuns(work.runs, id_dtype, syncs=build.syncs), seal)
    held, exchange = list_held(work.runs, merged, decisions.move), make_exchange(config, tokenizer)
    job = MergeRows(config, id_dtype, decisions, held, work.runs, work.shards, exchange, syncs=build.syncs)
    shards = _write_shards(build, job, tasks, shuffle)
    digest = decisions.digest
    if decisions.limits is None:  # else all copies are counted already
        dropped = reduce(Dropped.add, (shard.dropped for shard in shards), made.dropped)
        counts.update(duplicate_documents=dropped.documents, duplicate_tokens=dropped.tokens)
        digest -= dropped.digest
    if build.has_validation:
        left_out = reduce(Dropped.add, (shard.left_out for shard in shards))
        counts.update(left_out_documents=left_out.documents, left_out_tokens=left_out.tokens)
        digest -= left_out.digest
        if not any(shard.shard.num_rows for shard in shards if shard.task.split == "train"):
            similar = "similar to " if decisions.counts["near_duplicate_documents"] else ""
            raise InputError(
                f"every document of the training inputs is {similar}one of validation too, so none is left for "
                "training; give other inputs, and --overwrite"
            )
    return Merged(shards, counts, digest % DIGESTS, merge_ids(work.runs, made.ids, work.shards))


def _write_shards(build: Build, job: MergeRows, tasks: list[ShardTask], shuffle: Shuffle) -> list[MadeShard]:
    """Write what a killed build has not."""
    work = build.work
    build.progress.start("shuffling, writing", len(tasks), "shards")
    made = _read_shards(build, tasks)
    # A receipt alone shows that a shard is finished: the file may be in OUT already, see `_sync_shard`.
    done = {receipt.task.file for receipt in made}
    with ThreadPoolExecutor(max_workers=1) as disk:  # syncs finished shards while workers make others

        def sync(receipts: list[MadeShard]) -> None:
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
    return made


def _join_runs(build: Build, made: Made, shuffle: Shuffle, job: JoinRuns, seal: str) -> list[JoinedRun]:
    """What holds the rows for the merge. Makes what a killed build has not, if these are joined runs."""
    work, num_rows = build.work, {split: made.counts[f"{split}_rows"] for split in SPLITS}
    merged = plan_joins(shuffle, sorted(made.runs), num_rows, seal)
    there = set(find_storage(work.runs).list_names(work.runs)) if shuffle.num_batches else set(made.runs)
    if left := [task for task in merged if task.name not in there]:
        build.progress.start("merging", len(left), "runs")
        for _, stages in build.engine.run(job, left):
            work.check_lock(asks=False)
            build.stages.add(stages)
            build.progress.advance(1)
    return merged


def _read_shards(build: Build, tasks: list[ShardTask]) -> list[MadeShard]:
    """The shards that a killed build has finished. It may have published some of them."""
    work, storage = build.work, find_storage(build.work.out)
    names = set(storage.list_names(work.shards / "receipts"))
    begun = [task for task in tasks if task.receipt_name in names]
    groups = [ShardGroup(tuple(begun[i : i + _RECEIPTS_READ])) for i in range(0, len(begun), _RECEIPTS_READ)]
    job = PreparedJob(job=partial(_read_receipts, work.shards), name="read receipts", places=(str(work.plan_path),))
    is_shared = spans_machines(build.engine) and len(groups) > 1
    read = build.engine.run(job, groups) if is_shared else ((group, job(group)) for group in groups)
    receipts = [receipt for _, found in read for receipt in found if receipt is not None]
    with remember_listings():
        made, published = (
            {f"{split}/{name}" for split in SPLITS for name in storage.list_names(place / split) if receipts}
            for place in (work.shards, work.out)
        )

        def is_there(receipt: MadeShard) -> bool:
            """Whether its shard is in .build, or one of its size in OUT, where shards of an older build may lie."""
            file = receipt.task.file
            is_published = file in published and storage.status(work.out / file).num_bytes == receipt.shard.num_bytes
            return receipt.task.made_file in made or is_published

        return list(filter(is_there, receipts))


def _read_receipts(shards: Path, group: ShardGroup) -> list[MadeShard | None]:
    return list(find_storage(shards).at_once(partial(read_made_shard, shards), group.tasks))


def _sync_shard(work: BuildFolder, task: ShardTask) -> None:
    storage = find_storage(work.shards)
    try:
        storage.sync(work.shards / task.made_file)
    except FileNotFoundError:
        pass  # a build that was killed while publishing has moved it to OUT; all shards were synced before that
    except OSError:
        # The system reports a failed write only once. Without its receipt, the next build makes the shard again.
        storage.remove(work.shards / "receipts" / task.receipt_name)
        raise
