"""Publish: move the finished shards to OUT, then write the manifest, which makes them a finished build.

After a kill every step can be repeated: a file is still in .build, or already in OUT. First the new manifest is put
into .build, and the old one is moved there, so that a later build recognises the files of both even though OUT has no
manifest at that time.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path

from albert_data.corpus.inputs import Input, list_texts
from albert_data.corpus.sources import ONE_PASS
from albert_data.examples.pair_tasks import PairTask
from albert_data.examples.spans import span_shares
from albert_data.jobs.engine import Engine, PreparedJob, spans_machines
from albert_data.pipeline.build_folder import TOKENIZER_FOLDER, WORDS_FILE, BuildFolder
from albert_data.pipeline.merge_rows import MadeShard
from albert_data.pipeline.shard_plan import ShardTask
from albert_data.pipeline.shuffle import ShardGroup
from albert_data.pipeline.steps import Build, Merged
from albert_data.shards.advice import list_damaged, list_unused
from albert_data.shards.card import make_card
from albert_data.shards.manifest import (
    MANIFEST_NAME,
    SPLITS,
    TOTALS,
    Counts,
    FileEntry,
    Manifest,
    MixedSource,
    RemovedEntry,
    ShardEntry,
    SkippedEntry,
    SourceEntry,
    SplitEntry,
    TokenizerEntry,
    hash_content,
)
from albert_data.shards.paths import CARD_NAME
from albert_data.shards.schema import SHARD_SUFFIX
from albert_data.storage import find_storage
from albert_data.storage.files import is_there, write_bytes
from albert_data.survey.decisions import Decisions, SourceCounts
from albert_data.survey.made import Made
from albert_data.survey.mixed_sources import describe_source, list_languages
from albert_data.text.escaping import name_as_text
from albert_data.tokenizer.huggingface import added_files
from albert_data.tokenizer.model import Tokenizer

_SHARDS_OF_TASK = 100  # some seconds in a store: a node that outlives the lock moves no more of them
_MAX_SKIPPED = 1000  # paths of each reason: a folder may hold a million that are no text
_DROPPED_COUNTS = ("duplicate_documents", "duplicate_tokens")
_LEFT_OUT_COUNTS = ("left_out_documents", "left_out_tokens")
_NEAR_DUPLICATE_COUNTS = ("near_duplicate_documents", "near_duplicate_tokens")


def make_manifest(build: Build, tokenizer: Tokenizer, made: Made, decisions: Decisions, merged: Merged) -> Manifest:
    """The manifest of a build, for `finish_manifest`; docs/reference/format.md has every key."""
    plan, config, shards = build.plan, build.config, merged.shards
    splits = {split: _describe_split(split, shards, config.examples.task) for split in SPLITS}
    names = [field.name for field in dataclasses.fields(Counts)]
    added = _add_files(tokenizer, config.examples.max_seq_len).items()
    missing = set(_DROPPED_COUNTS if config.keep_duplicates else ())
    missing |= set() if config.drop_near_duplicates else set(_NEAR_DUPLICATE_COUNTS)
    missing |= set() if any(source.weight == 0 for source in plan.mixture or ()) else {"contaminated_documents"}
    missing |= set() if any(item.split for item in plan.inputs) else set(_LEFT_OUT_COUNTS)
    missing |= set() if config.validation_fraction is None else {"moved_documents"}
    manifest = Manifest(
        albert_data_version=plan.version,
        rules_version=plan.rules_version,
        unicode_version=plan.unicode_version,
        libraries=plan.libraries,
        config=config,
        ngram_shares=tuple(span_shares(config.examples.longest_span, config.examples.masking).tolist()),
        tokenizer=TokenizerEntry(
            file=f"{TOKENIZER_FOLDER}/{tokenizer.file_name}",
            sha256=tokenizer.sha256,
            vocab_size=tokenizer.vocab_size,
            **tokenizer.specials.to_dict(),
            normalization=None if tokenizer.normalization == "none" else tokenizer.normalization,
            added=tuple(FileEntry(file=name, sha256=sha256(data).hexdigest()) for name, data in added) or None,
        ),
        inputs=plan.inputs,
        plan=plan,
        documents_digest=f"{merged.digest:016x}",
        counts=Counts(**{name: merged.counts[name] for name in names if name not in missing}),
        damage=dict(sorted(made.damage.counts.items())),
        damaged_inputs=list_damaged(made.damage.inputs),
        removed={why: RemovedEntry(**vars(lines)) for why, lines in sorted(made.damage.removed.items())} or None,
        skipped=_list_skipped(build.inputs),
        splits=splits,
        digest=hash_content(shard.sha256 for split in splits.values() for shard in split.shards),
        sources=tuple(made.sources) or None,
        ids=merged.ids or None,
        words=FileEntry(file=WORDS_FILE, sha256=tokenizer.words_sha256) if tokenizer.words_sha256 else None,
        unused_separators=list_unused(list_texts(build.inputs, config.text), made.damage) or None,
        near_duplicates=decisions.near_duplicates,
        label_names=config.examples.task.label_names,
        source_tokens=tuple(map(sum, zip(*(shard.source_tokens for shard in shards), strict=True))) or None,
        language_named=build.language_named or None,
    )
    if decisions.used:
        entries = plan.mixture or map(describe_source, list_languages(config, made.sources))
        mixture = tuple(map(_describe_source, entries, decisions.used))
        manifest = dataclasses.replace(manifest, sources=tuple(one.name for one in mixture), mixture=mixture)
    return manifest


@lru_cache(maxsize=1)  # for the manifest, and for writing them
def _add_files(tokenizer: Tokenizer, max_len: int) -> dict[str, bytes]:
    files = added_files(tokenizer, max_len=max_len)
    return {f"{TOKENIZER_FOLDER}/{name}": data for name, data in files.items()}


def finish_manifest(manifest: Manifest, license: str | None) -> Manifest:
    """The manifest with the licence of the text, the hash of its card and its seal."""
    manifest = dataclasses.replace(manifest, license=license)
    card = FileEntry(file=CARD_NAME, sha256=sha256(make_card(manifest)).hexdigest())
    return dataclasses.replace(manifest, card=card).seal()


def _list_skipped(inputs: Sequence[Input]) -> dict[str, SkippedEntry] | None:
    """What the names of the inputs led to that is not read, by reason; None if there is nothing."""
    found = defaultdict[str, set[str]](set)  # sources of a mixture may lead to one path
    for reason, paths in (pair for item in inputs for pair in item.skipped.items()):
        found[reason] |= set(map(name_as_text, paths))
    listed = ((reason, sorted(names)) for reason, names in found.items())
    return {why: SkippedEntry(num_paths=len(names), paths=tuple(names[:_MAX_SKIPPED])) for why, names in listed} or None


def _describe_source(source: SourceEntry, counts: SourceCounts) -> MixedSource:
    return MixedSource(
        **vars(source),
        num_documents=counts.documents,
        num_tokens=counts.tokens,
        passes=counts.limit / ONE_PASS,
        num_used_documents=counts.used_documents,
        num_used_tokens=counts.used_tokens,
    )


def _describe_split(split: str, shards: list[MadeShard], pair_task: PairTask) -> SplitEntry:
    ours = sorted((made for made in shards if made.task.split == split), key=lambda made: made.task.shard)
    names = [total for total in TOTALS if total != "num_random" or pair_task.has_random]
    totals = {total: sum(getattr(made.shard, total) for made in ours) for total in names}
    return SplitEntry(**totals, shards=tuple(ShardEntry(file=made.task.file, **vars(made.shard)) for made in ours))


def publish(
    work: BuildFolder,
    manifest: Manifest,
    tokenizer: Tokenizer,
    tasks: Sequence[ShardTask],
    engine: Engine,
) -> list[str]:
    """Put shards, tokenizer and card into OUT, and the manifest last, in place of an older build's files.

    tasks: which made the shards. engine: of several machines moves them, if they are many.
    Returns lines that the user should read. Raises OutputError, before anything is changed, if one of the names is
    taken by a file that no build wrote, and OSError if another build has taken the lock.
    """
    work.check_lock()
    ours, storage = work.find_ours(), find_storage(work.out)
    ours.check()
    files = {manifest.tokenizer.file: tokenizer.model, **_add_files(tokenizer, manifest.config.examples.max_seq_len)}
    if tokenizer.words is not None:
        files[WORDS_FILE] = tokenizer.words
    notes, card = list[str](), work.out / CARD_NAME
    if is_there(card) and not ours.holds(CARD_NAME):
        notes.append(f"{card} is not as a build wrote it, and stays as it is")
    else:
        files[CARD_NAME] = make_card(manifest)
    for name, data in files.items():
        write_bytes(work.shards / name, data)
    kept = work.keep_manifest(manifest)
    names, ids = {shard.file for shard in manifest.shards}, [entry.file for entry in manifest.ids or ()]
    ours.remove(kept={*names, *ids, manifest.tokenizer.file, *files})
    work.check_lock()
    place = partial(_place, work.out, work.shards)
    if spans_machines(engine) and len(tasks) > _SHARDS_OF_TASK:
        groups = (ShardGroup(tuple(tasks[i : i + _SHARDS_OF_TASK])) for i in range(0, len(tasks), _SHARDS_OF_TASK))
        job = PreparedJob(job=place, name="publish", places=(str(work.plan_path),))
        for _ in engine.run(job, groups):
            work.check_lock(asks=False)
    else:
        place(ShardGroup(tuple(tasks)))
    storage.publish(work.out, {**{name: work.shards / name for name in (*ids, *files)}, MANIFEST_NAME: kept})
    for split in SPLITS:  # programs that read all of a folder read all of its Arrow files
        for name in sorted(storage.list_names(work.out / split)):
            if name.endswith(SHARD_SUFFIX) and f"{split}/{name}" not in names:
                notes.append(
                    f"{work.out / split / name} does not belong to this build and stays; "
                    "programs that read all of the folder read it too"
                )
    return notes


def _place(out: Path, shards: Path, group: ShardGroup) -> None:
    find_storage(out).place(out, {task.file: shards / task.made_file for task in group.tasks})
