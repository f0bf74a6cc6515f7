"""What `build` and `vocab` print at the end, and `build --dry-run` instead of building."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from albert_data.config import BuildConfig
from albert_data.corpus.inputs import Input
from albert_data.corpus.mixtures import TEXT_KEYS
from albert_data.corpus.tasks import plan_tasks
from albert_data.pipeline.build import BuildReport
from albert_data.pipeline.estimate import COMPARE_RATE, BuildEstimate, count_requests
from albert_data.shards.manifest import SourceEntry, to_value
from albert_data.survey.mixed_sources import describe_sources
from albert_data.text.escaping import quote
from albert_data.text.wording import about, about_bytes, count_of, format_duration
from albert_data.tokenizer.model import Tokenizer
from albert_data.vocab.report import VocabReport

_WIDTH = 80  # columns of the list of settings
# How None is shown; for all other settings, auto.
_NONE = ("document_separator", "language_field", "group_field", "drop_repeated_lines", "where", "min_chars", "exclude")
_UNSET = dict.fromkeys((*_NONE, "alpha", "sample"), "none")
_UNSET["encoding"] = "UTF-8"


def describe_vocabulary(report: VocabReport, model: Path) -> list[str]:
    """Size and sample of a new vocabulary, with damage and advice."""
    trained = report.trained
    return [
        f"{model}: {report.config.vocab_size:,} pieces ({report.config.model_type})",
        f"  learned from {count_of(trained.num_sentences, 'sentence')}, {trained.num_bytes / 1e6:,.1f} MB, "
        f"of {count_of(report.num_documents, 'document')}, {report.text_bytes / 1e6:,.1f} MB",
        *report.list_notes(),
    ]


def describe_plan(inputs: list[Input], out: Path, tokenizer: Tokenizer | None, config: BuildConfig) -> list[str]:
    """What `build --dry-run` prints: the inputs and the settings."""
    counts = _count_inputs(inputs, config)
    files, tasks = count_of(counts["num_plain_files"], "plain file"), count_of(counts["num_tasks"], "task")
    one_reader = count_of(counts["num_unsplit"], "file or stream", "files or streams")
    num_held_out = counts["num_validation"]
    vocabulary = f"{tokenizer.vocab_size:,} pieces" if tokenizer else "none given: one is trained first"
    if tokenizer and tokenizer.words is not None:
        vocabulary += ", and a word list"
    return [
        f"would write {out}, from",
        f"  {files}, {counts['plain_bytes'] / 1e6:,.1f} MB, in {tasks}",
        f"  {one_reader} for one process to read",
        *([f"  {num_held_out:,} of these for validation"] if num_held_out else []),
        *_list_sources(describe_sources(inputs) or ()),
        f"tokenizer  {vocabulary}",
        *_describe_config(config, describe_sources(inputs) or ()),
    ]


def _count_inputs(inputs: list[Input], config: BuildConfig) -> dict[str, int]:
    """num_plain_files, plain_bytes, num_tasks: files that are read in parts; num_unsplit: others, which one process
    reads each; num_validation: of both, those named for validation.
    """
    files = [item for item in inputs if item.is_splittable]
    return {
        "num_plain_files": len(files),
        "plain_bytes": sum(item.size for item in files),
        "num_tasks": len(plan_tasks(files, config.text)),
        "num_unsplit": len(inputs) - len(files),
        "num_validation": sum(item.is_validation for item in inputs),
    }


def plan_to_dict(
    inputs: list[Input], tokenizer: Tokenizer | None, config: BuildConfig, found: BuildEstimate | None
) -> dict[str, Any]:
    """What `build --dry-run --json` prints. found: None without a tokenizer, or where the files hold no token."""
    return {
        "inputs": _count_inputs(inputs, config),
        "sources": [to_value(one) for one in describe_sources(inputs) or ()],
        "vocab_size": tokenizer.vocab_size if tokenizer else None,
        "config": config.to_flat_dict(),
        "estimate": None if found is None else found.to_dict(),
    }


def describe_estimate(
    found: BuildEstimate | None, inputs: Sequence[Input], out: Path, config: BuildConfig
) -> list[str]:
    """What `build --dry-run` prints at the end. found: None where the files hold no token."""
    num_streams = sum(item.is_stream for item in inputs)
    streams = count_of(num_streams, "stream")
    if found is None:
        return [f"estimate   none: {f'{streams} can be read only once' if num_streams else 'a sample holds no token'}"]
    disk, tasks = found.shard_bytes + found.work_bytes, _count_inputs([*inputs], config)
    num_requests = count_requests(found, inputs, tasks["num_tasks"] + tasks["num_unsplit"], out)
    before = "" if config.compression == "none" else " before compression"
    lines = [
        f"about, by a sample of {about_bytes(found.sample_bytes)}; copies count as if they stayed",
        f"{about(found.tokens)} tokens, {about_bytes(found.text_bytes)} of text, {about(found.rows)} rows",
        f"{about_bytes(found.shard_bytes)} of shards{before}; while they are made, {about_bytes(disk)} of disk",
        *([f"{_describe_comparing(found)}, without its disk"] if config.drop_near_duplicates else []),
        *([f"{about(num_requests)} requests to stores"] if num_requests else []),
        *([f"and {streams}, not counted: it can be read only once"] if num_streams else []),
    ]
    return [f"{'' if number else 'estimate':<10} {line}" for number, line in enumerate(lines)]


def _describe_comparing(found: BuildEstimate) -> str:
    seconds = format_duration(found.text_bytes / COMPARE_RATE)
    return f"{seconds} more to compare documents, in one process"


def _list_sources(sources: Sequence[SourceEntry]) -> Iterator[str]:
    for number, one in enumerate(sources):
        amount = f"weight {one.weight:g}" if one.weight is not None else f"alpha {one.alpha}"
        amount = amount if one.tokens is None else f"budget of {count_of(one.tokens, 'token')}"
        inputs = count_of(one.num_inputs, "input")
        yield f"{'' if number else 'sources':<10} {one.name}: {amount}, {one.language}, {inputs}"


def describe_build(report: BuildReport, out: Path) -> list[str]:
    """Counts, damage, advice and settings of a build, and the next commands."""
    manifest = report.manifest
    counts, splits = manifest.counts, manifest.splits
    if report.was_finished:
        return [f"{out} is finished: {count_of(splits['train'].num_rows, 'training row')}; nothing to do"]
    lines = [f"{out}: finished in {report.seconds:,.1f} s, {_rate(report)}"]
    if report.resumed_tasks:
        lines.append(f"resumed    {count_of(report.resumed_tasks, 'task')} from before the interruption")
    lines.append(
        f"documents  {counts.documents:,} ({counts.text_bytes / 1e6:,.1f} MB, "
        f"{count_of(counts.sentences, 'sentence')}, {count_of(counts.tokens, 'token')})"
    )
    if counts.duplicate_documents:
        copies = count_of(counts.duplicate_documents, "copy of a document", "copies of documents")
        tokens = count_of(counts.duplicate_tokens or 0, "token")
        lines.append(f"dropped    {copies}, {tokens}; --keep-duplicates keeps them")
    if counts.left_out_documents:
        left_out = count_of(counts.left_out_documents, "training document")
        tokens = count_of(counts.left_out_tokens or 0, "token")
        lines.append(f"left out   {left_out}, {tokens}, that validation has too")
    if counts.contaminated_documents is not None:
        contaminated = count_of(counts.contaminated_documents, "other document")
        lines.append(f"left out   {contaminated} with text of a source of weight 0")
    if counts.near_duplicate_documents:
        similar = count_of(counts.near_duplicate_documents, "near-duplicate")
        lines.append(f"dropped    {similar}, {count_of(counts.near_duplicate_tokens or 0, 'token')}")
    if manifest.near_duplicates and (partly := manifest.near_duplicates.num_partly_compared):
        lines.append(f"           {count_of(partly, 'document')} may be similar to others that were not compared")
    for name, split in splits.items():
        shards = count_of(len(split.shards), "shard")
        lines.append(f"{name:<10} {count_of(split.num_rows, 'row')}, {count_of(split.num_tokens, 'token')}, {shards}")
    if counts.moved_documents:
        moved = count_of(counts.moved_documents, "document")
        lines.append(f"moved      {moved} drawn for training into validation; a given --validation-fraction moves none")
    for number, one in enumerate(manifest.mixture or () if manifest.plan.mixture else ()):
        used = f"{one.num_used_documents:,} of {count_of(one.num_documents, 'document')}"
        tokens = count_of(one.num_used_tokens, "token")
        lines.append(f"{'' if number else 'sources':<10} {one.name}: {one.passes:.3g} passes, {used}, {tokens} of text")
    if not splits["validation"].num_rows and manifest.config.drawn_fraction:
        lines.append("           there is only one distinct document, so none is left for validation; give two or more")
    lines += [*report.list_notes(), *_describe_config(manifest.config, manifest.plan.mixture or ())]
    return [*lines, f"next       albert-data inspect {quote(out)}", f"           albert-data audit {quote(out)}"]


def _rate(report: BuildReport) -> str:
    if report.resumed_tasks:  # the seconds are not those of the whole text
        return "completing an interrupted build"
    rate = report.manifest.counts.text_bytes / 1e6 / max(report.seconds, 1e-9)
    return f"{rate:,.1f} MB/s of text" if rate >= 1 else f"{rate:.1g} MB/s of text"


def _describe_config(config: BuildConfig, sources: Sequence[SourceEntry]) -> list[str]:
    """sources: of a mixture, which have settings of their own."""
    lines, line, values = [], "config    ", config.to_flat_dict()
    for name in (*TEXT_KEYS, "alpha", "max_passes") if sources else ():
        found = {getattr(source, name) for source in sources}
        values[name] = found.pop() if len(found) == 1 else "by-source"
    if config.text.abbreviations:
        values["abbreviations"] = len(config.text.abbreviations.splitlines())
    for name, value in values.items():
        item = f" {name}={_UNSET.get(name, 'auto') if value is None else quote(str(value))}"
        if len(line) + len(item) > _WIDTH:
            lines.append(line)
            line = " " * 10
        line += item
    return [*lines, line]
