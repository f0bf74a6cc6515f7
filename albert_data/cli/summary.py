"""What a command says at its end: plain lines, 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from albert_data.config import BuildConfig
from albert_data.corpus.damage import REASONS
from albert_data.corpus.inputs import Input
from albert_data.examples.spans import ngram_shares
from albert_data.pipeline.advice import advise_on
from albert_data.pipeline.build import BuildReport
from albert_data.pipeline.plan import plan_tasks
from albert_data.pipeline.stages import format_stages
from albert_data.pipeline.vocabulary import VocabReport
from albert_data.tokenizer.model import Tokenizer

_UNSET = {"encoding": "UTF-8", "language_field": "none"}  # what None means


def describe_vocabulary(report: VocabReport, model: Path) -> str:
    trained = report.trained
    total = trained.num_bytes + trained.skipped_bytes
    lines = [
        f"{model}: {report.config.vocab_size:,} pieces ({report.config.model_type})",
        f"  learnt from {_count(trained.num_sentences, 'sentence')}, {trained.num_bytes / 1e6:,.1f} MB, "
        f"of {_count(report.num_documents, 'document')}, {report.text_bytes / 1e6:,.1f} MB",
    ]
    if trained.num_skipped:
        lines.append(
            f"  left out {_count(trained.num_skipped, 'sentence')} of over 4,192 bytes, "
            f"{100 * trained.skipped_bytes / total:.2f} % of the sample"
        )
    return "\n".join([*lines, *_describe_damage(report.damage), *_describe_advice(report.advice)])


def describe_plan(inputs: list[Input], out: Path, tokenizer: Tokenizer | None, config: BuildConfig) -> str:
    files, streams = [i for i in inputs if i.is_splittable], [i for i in inputs if not i.is_splittable]
    size, num_tasks = sum(item.size for item in files) / 1e6, len(plan_tasks(files, config.text))
    vocabulary = f"{tokenizer.vocab_size:,} pieces" if tokenizer else "none given: one is trained first"
    return "\n".join(
        [
            f"would write {out}, from",
            f"  {_count(len(files), 'plain file')}, {size:,.1f} MB, in {_count(num_tasks, 'task')}",
            f"  {_count(len(streams), 'compressed file or stream', 'compressed files or streams')}",
            f"tokenizer  {vocabulary}",
            *_describe_config(config, ngram_shares(config.examples.ngram).tolist()),
        ]
    )


def describe_build(report: BuildReport, out: Path) -> str:
    manifest = report.manifest
    counts, splits = manifest.counts, manifest.splits
    if report.was_finished:
        return f"{out} is finished: {splits['train'].num_rows:,} training examples; nothing to do"
    lines = [f"{out}: finished in {report.seconds:,.1f} s, {_rate(report)}"]
    if report.resumed_tasks:
        lines.append(f"resumed    {_count(report.resumed_tasks, 'task')} found done")
    lines.append(
        f"documents  {counts.documents:,} ({counts.text_bytes / 1e6:,.1f} MB, "
        f"{counts.sentences:,} sentences, {counts.tokens:,} tokens)"
    )
    if counts.duplicate_documents:
        copies = _count(counts.duplicate_documents, "copy of a document", "copies of documents")
        lines.append(f"dropped    {copies}, {counts.duplicate_tokens:,} tokens; --keep-duplicates keeps them")
    for name, split in splits.items():
        shards = _count(len(split.shards), "shard")
        lines.append(f"{name:<10} {split.num_rows:,} examples, {split.num_tokens:,} tokens, {shards}")
    if not splits["validation"].num_rows and manifest.config.validation_fraction:
        lines.append("           there is only one distinct document, so none is left to evaluate on; give two or more")
    lines += _describe_damage(manifest.damage)
    lines += _describe_advice(advise_on(manifest))
    lines += _describe_config(manifest.config, manifest.ngram_shares)
    lines.append(f"next       albert-data inspect {out}")
    return "\n".join(lines)


def describe_stages(report: BuildReport) -> str:
    """Seconds of each stage, over all workers, and how much of the text it did in one."""
    return "\n".join(format_stages(report.stages, report.manifest.counts.text_bytes))


def _rate(report: BuildReport) -> str:
    if report.resumed_tasks:
        return "the rest of a build begun before"
    return f"{report.manifest.counts.text_bytes / 1e6 / max(report.seconds, 1e-9):,.1f} MB/s of text"


def _describe_damage(damage: Mapping[str, int]) -> list[str]:
    return [f"{'damage':<10} {reason} {count:,}: {REASONS[reason]}" for reason, count in sorted(damage.items())]


def _describe_advice(sentences: list[str]) -> list[str]:
    return [f"{'warning':<10} {sentence}" for sentence in sentences]


def _describe_config(config: BuildConfig, shares: Sequence[float]) -> list[str]:
    lines, line = [], "config    "
    for name, value in config.to_flat_dict().items():
        item = f" {name}={_UNSET.get(name, 'auto') if value is None else value}"
        if len(line) + len(item) > 80:
            lines.append(line)
            line = " " * 10
        line += item
    listed = ", ".join(f"p({n}) = {100 * share:.2f} %" for n, share in enumerate(shares, 1))
    return [*lines, line, f"spans      {listed}"]


def _count(number: int, singular: str, plural: str | None = None) -> str:
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
