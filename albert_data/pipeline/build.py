"""Build shards: plan, map, decide, merge, publish.

In: inputs, a tokenizer, a config. Out: a shard folder, which is a pure function of the documents, the tokenizer and the
config. A killed build resumes when it is started again with the same arguments.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from albert_data.config import BuildConfig, VocabConfig
from albert_data.corpus.inputs import SHOWN, Input, check_fields, check_reach
from albert_data.errors import AlbertDataError, ConfigError
from albert_data.jobs.engine import Engine, spans_machines
from albert_data.jobs.progress import NullProgress, Progress
from albert_data.jobs.stages import Stages
from albert_data.pipeline.build_folder import BuildFolder, find_plan, read_our_manifest
from albert_data.pipeline.exchanging import describe_shortages
from albert_data.pipeline.plan import check_finished, check_size, choose_fraction, make_plan, trust_moved
from albert_data.pipeline.publish import finish_manifest, make_manifest, publish
from albert_data.pipeline.steps import Build, decide_on, learn_tokenizer, map_documents, merge_rows, share_sources
from albert_data.shards.advice import advise_on, advise_on_parts, list_notes
from albert_data.shards.card import check_license
from albert_data.shards.manifest import MANIFEST_NAME, Manifest, Plan
from albert_data.shards.manifest_file import check_readable
from albert_data.shards.paths import CARD_NAME
from albert_data.storage import Address
from albert_data.survey.decisions import describe_validation
from albert_data.survey.mixed_sources import check_alpha, check_passes, describe_budgets, list_sources
from albert_data.survey.repeated_lines import check_rereadable, find_repeated_lines
from albert_data.survey.sorted_columns import write_u64
from albert_data.survey.without import read_entries
from albert_data.text.wording import count_of
from albert_data.tokenizer.model import Tokenizer


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

    def __repr__(self) -> str:
        splits, counts = self.manifest.splits, self.manifest.counts
        parts = [f"{count_of(split.num_rows, 'row')} of {name}" for name, split in splits.items()]
        parts += [count_of(counts.documents, "document"), count_of(counts.tokens, "token")]
        parts.append("finished before" if self.was_finished else f"{self.seconds:,.1f} s")
        return "\n".join([f"BuildReport({', '.join(parts)})", *self.list_notes()])

    def list_notes(self) -> list[str]:
        """Lines for people: what was repaired, left out and removed, and the advice."""
        return list_notes(self.manifest.damage, self.manifest.removed, self.advice)

    @property
    def advice(self) -> list[str]:
        """What to know of the text, and options that would read it better, a sentence each."""
        return [*(one.text for one in advise_on(self.manifest)), *advise_on_parts(self.manifest)]

    def to_dict(self) -> dict[str, Any]:
        """The figures for JSON, by stable names. Those of the manifest are described in docs/reference/format.md."""
        return {
            "was_finished": self.was_finished,
            "resumed_tasks": self.resumed_tasks,
            "seconds": self.seconds,
            "stage_seconds": dict(self.stages),
            **self.manifest.to_summary(),
            "advice": self.advice,
        }


def build_shards(
    inputs: list[Input],
    out: Path,
    tokenizer: Tokenizer | None,
    config: BuildConfig,
    engine: Engine,
    progress: Progress | None = None,
    *,
    vocab: VocabConfig | None = None,
    license: str | None = None,
    language_named: bool = False,
    overwrite: bool = False,
    allow_loss: bool = False,
    trust_inputs: bool = False,
    without_keys: Address | None = None,
    dry_run: bool = False,
) -> BuildReport | None:
    """Build the shards of inputs into `out` on any engine.

    tokenizer: None to train one on the corpus first. vocab: its settings; None for the defaults.
    out: a folder that is missing, empty or of a build; any other is an OutputError. So is a file that no build wrote
    under a name that builds give to theirs. All other files stay.
    license, overwrite, allow_loss, trust_inputs, without_keys: see `library.building.build`. Licence and loss are no
    part of what identifies a build: the same call with others resumes an unfinished build.
    language_named: whether the user named the language of the config, for the card.
    dry_run: only check what is known before the work, and write nothing. Returns None then, unless it is finished.
    Raises InputError, TokenizerError, OutputError, WorkerError, or OSError if the disk fails. Finished tasks are kept.
    """
    started, progress = time.monotonic(), progress or NullProgress()
    config, vocab = choose_fraction(inputs, config), vocab or VocabConfig()
    check_build(inputs, tokenizer, config, engine)
    entries = None if without_keys is None else read_entries(without_keys, config.text)
    if config.without_keys if entries is None else tokenizer is None:
        needed = "the file that names the documents" if entries is None else "a tokenizer that did not learn from them"
        raise ConfigError(f"--without-keys needs {needed}; give both")
    if entries is not None:
        config = dataclasses.replace(config, without_keys=sha256(entries.tobytes()).hexdigest())
    check_license(license)
    vocab = dataclasses.replace(vocab, alpha=config.alpha, max_passes=config.max_passes)
    plan = make_plan(inputs, tokenizer, config, vocab)
    check_size(plan, config.num_shards or 0)
    check_readable(plan)
    work = BuildFolder(out)
    if trust_inputs:
        plan = trust_moved(plan, find_plan(out, overwrite=overwrite), progress.say)
    finished = None if overwrite else _find_finished(out, plan)
    if dry_run and finished is None:
        work.check()
        work.compare(plan, overwrite=overwrite)
    if dry_run:
        return finished
    if finished is not None:
        if license not in (None, finished.manifest.license):
            progress.say(f"{out} is finished with another licence; edit {CARD_NAME}, or build anew with --overwrite")
        if work.read_plan() in (plan, None):  # a build of this plan was killed after it had written its manifest
            work.sweep()
        return finished
    work.lock()
    try:
        # Another build may have finished it before this one got the lock.
        if not overwrite and (finished := _find_finished(out, plan)) is not None:
            work.remove()
            return finished
        syncs = work.begin(plan, overwrite=overwrite, syncs=spans_machines(engine))
        build = Build(
            work=work,
            inputs=inputs,
            plan=plan,
            config=config,
            vocab=vocab,
            engine=engine,
            progress=progress,
            syncs=syncs,
            allow_loss=allow_loss,
            sources=list_sources(inputs),
            language_named=language_named,
            without=None if entries is None else write_u64(work.runs / "without.keys", [entries], sync=True),
        )
        report = _make(build, tokenizer, license)
        work.remove()
    except AlbertDataError:
        work.remove_if_empty()
        raise
    finally:
        work.unlock()
    return dataclasses.replace(report, seconds=time.monotonic() - started)


def check_build(inputs: list[Input], tokenizer: Tokenizer | None, config: BuildConfig, engine: Engine) -> None:
    """Raise ConfigError or InputError for settings that do not fit the inputs, the tokenizer or the engine."""
    check_reach(inputs, spans_machines=spans_machines(engine))
    check_fields(inputs, config.text)
    if config.text.group_field is not None and any(item.is_validation for item in inputs):
        raise ConfigError("--validation names the documents of validation, so leave out --group-field")
    check_rereadable(inputs, config.text)
    check_passes(list_sources(inputs), config)
    check_alpha(inputs, config)
    if tokenizer is not None and config.examples.masks_words:
        tokenizer.check_words()
    elif tokenizer is not None and tokenizer.words is not None:
        raise ConfigError("a word list is for masks of whole words; leave it out, or mask whole words")


def _make(build: Build, tokenizer: Tokenizer | None, license: str | None) -> BuildReport:
    """Documents in, shards out. Any line may be killed and repeated.

    Each keeps what it made in the working folder, with receipts. `decide_on` keeps only the comparison of
    near-duplicates; the rest of it is quick. `publish` puts the manifest into OUT last.
    """
    config, work, engine, progress = build.config, build.work, build.engine, build.progress
    repeated = find_repeated_lines(build.inputs, config.text, work.lines, engine, progress, build.without)
    tokenizer = tokenizer or learn_tokenizer(build, repeated)
    build.tell(_describe_tokenizer(tokenizer))
    sources = share_sources(build, tokenizer, repeated)
    made, num_resumed = map_documents(build, tokenizer, sources, repeated)
    decisions = decide_on(build, tokenizer, made, sources)
    build.tell(describe_budgets(sources, decisions.used))
    merged = merge_rows(build, tokenizer, made, decisions)
    manifest = finish_manifest(make_manifest(build, tokenizer, made, decisions, merged), license)
    build.tell(publish(work, manifest, tokenizer, [shard.task for shard in merged.shards], engine))
    if any(len(entry.paths) > SHOWN for entry in (manifest.skipped or {}).values()):
        progress.say(f"{work.out / MANIFEST_NAME} names all that was skipped")
    build.tell(describe_shortages(manifest))
    build.tell(describe_validation(decisions, has_validation=build.has_validation))
    return BuildReport(
        manifest=manifest,
        seconds=0.0,
        resumed_tasks=num_resumed,
        was_finished=False,
        stages=build.stages,
    )


def _describe_tokenizer(tokenizer: Tokenizer) -> list[str]:
    notes = [tokenizer.note] if tokenizer.note else []
    if tokenizer.slow_reason:
        notes.append(
            f"this tokenizer is slow: {tokenizer.library} itself encodes each sentence, because {tokenizer.slow_reason}"
        )
    return notes


def _find_finished(out: Path, plan: Plan) -> BuildReport | None:
    """The build in OUT, if it is finished. Raises OutputError if it is not of this plan."""
    if (manifest := read_our_manifest(out)) is None:
        return None
    check_finished(manifest, plan, out)
    return BuildReport(manifest=manifest, seconds=0.0, resumed_tasks=0, was_finished=True, stages=Stages())
