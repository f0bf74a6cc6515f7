"""Advice on options from the counts of a finished build, for the commands and for the audit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from albert_data.config import TextConfig
from albert_data.corpus.damage import LABELS, REASONS, REMOVALS, CountsByInput, Damage, InputCounts, RemovedLines
from albert_data.corpus.fields import list_names
from albert_data.corpus.inputs import Input
from albert_data.corpus.layout import Advice, advise
from albert_data.corpus.sources import advise_names
from albert_data.errors import InputError
from albert_data.shards.manifest import DamagedInput, DamagedInputs, Manifest, RemovedEntry
from albert_data.text.escaping import escape_controls, name_as_text
from albert_data.text.wording import count_of, format_share, list_some

Removed = Mapping[str, RemovedLines] | Mapping[str, RemovedEntry]  # by reason
_LISTED, _SHOWN, _FIELDS = 20, 3, 8  # inputs in a manifest, inputs in a sentence, fields of an input
_MOST = 0.5  # of the corpus, or of a file that the user named, may be lost


def advise_on(manifest: Manifest) -> list[Advice]:
    """Options that would read the corpus better."""
    counts = {name: value or 0 for name, value in dataclasses.asdict(manifest.counts).items()}
    return advise(counts, dataclasses.asdict(manifest.config.text), [item.path for item in manifest.inputs])


def advise_on_parts(manifest: Manifest) -> list[str]:
    """What to know of single sources and inputs, a sentence each."""
    found = advise_names(manifest.sources or ()) if manifest.plan.mixture is None else []
    num_missing, num_documents = manifest.damage.get("missing_id", 0), manifest.counts.documents
    if 2 * num_missing > num_documents:
        field = list_names([manifest.config.text.id_field or ""])
        found.append(f"{num_missing:,} of {num_documents:,} documents have no id in {field}: check --id-field")
    return found + advise_separators(manifest.unused_separators or ()) + advise_inputs(manifest.damaged_inputs)


def list_unused(texts: Iterable[TextConfig], damage: Damage) -> tuple[str, ...]:
    """The document separators of settings that no text has. damage: of all inputs."""
    return tuple(sorted({one.document_separator for one in texts if one.document_separator} - damage.matched))


def advise_separators(unused: Iterable[str]) -> list[str]:
    """A sentence for each document separator that no text has."""
    return [
        f"no .txt input holds {name!r}, so it ended no document: check --document-separator, or leave it out so that "
        "blank lines end documents"
        for name in unused
    ]


def list_damaged(inputs: CountsByInput) -> DamagedInputs | None:
    """The inputs that gave no document or had damage, the worst of them by name; None if there are none."""
    found, total = inputs.finish()
    if not found:
        return None
    return DamagedInputs(
        num_without_documents=total.num_empty,
        num_damaged=total.num_damaged,
        num_losing=total.num_losing or None,
        worst=tuple(_describe_input(path, counts) for path, counts in found[:_LISTED]),
    )


def _describe_input(path: str, counts: InputCounts) -> DamagedInput:
    fields = None if counts.num_documents else counts.fields
    return DamagedInput(
        path=path,
        num_documents=counts.num_documents,
        damage=dict(sorted(counts.damage.items())),
        fields=tuple(fields.rank()[:_FIELDS]) if fields else (),
        lost_share=round(counts.lost_share, 4) if counts.loses_much else None,
    )


def check_losses(inputs: Sequence[Input], damage: Damage) -> None:
    """Raise InputError if over half of the corpus is lost, or of a file that the user named."""
    found, total = damage.inputs.finish()
    by_name = {name_as_text(item.path): item for item in inputs}
    share = total.lost_bytes / max(total.num_bytes, 1)
    lost = [(by_name[path], one) for path, one in found if one.lost_share > _MOST and path in by_name]
    lost = [(item, one) for item, one in lost if share > _MOST or item.is_named]
    if not lost:
        return
    item, worst = lost[0]
    what = f"{format_share(share)} of the corpus" if share > _MOST else f"over half of {count_of(len(lost), 'input')}"
    described = replace(_describe_input(item.path, worst), lost_share=worst.lost_share)
    why = "; ".join(filter(None, (item.oddity, describe_losses(described))))
    raise InputError(
        f"{what} would be lost; the worst is {escape_controls(item.path)} ({why}). Nothing was published; give all of "
        "the text, or go on without what is lost by --allow-loss"
    )


def list_removed(removed: Removed | None) -> list[str]:
    """A sentence for each reason: how much was removed."""
    return [
        f"{count_of(entry.num_lines, 'line')} of {entry.num_bytes:,} bytes, {REMOVALS.get(reason, reason)}"
        for reason, entry in (removed or {}).items()
    ]


def list_notes(damage: Mapping[str, int], removed: Removed | None, advice: Sequence[str]) -> list[str]:
    """What was noticed, repaired, left out and removed, and the advice: a line each, behind its label in 11 columns."""
    found = [
        (LABELS.get(reason, "damage"), f"{reason} {count:,}: {REASONS[reason]}")
        for reason, count in sorted(damage.items())
    ]
    found += [*(("removed", line) for line in list_removed(removed)), *(("warning", line) for line in advice)]
    return [f"{label:<10} {line}" for label, line in found]


def advise_inputs(damaged: DamagedInputs | None) -> list[str]:
    """A sentence that names the inputs without documents, and one for those that lost much."""
    if damaged is None:
        return []
    empty = [item for item in damaged.worst if not item.num_documents]
    losing = [item for item in damaged.worst if item.lost_share is not None]
    return [
        f"{count_of(count, 'input')} {what}: "
        + list_some([f"{escape_controls(one.path)} ({describe_losses(one)})" for one in items], _SHOWN, count)
        + ("; name the fields of text with --text-field" if any(one.fields for one in items) else "")
        for items, count, what in (
            (empty, damaged.num_without_documents, "gave no document"),
            (losing, damaged.num_losing or 0, "lost much text"),
        )
        if count
    ]


def describe_losses(item: DamagedInput) -> str:
    """What was lost of an input, and the fields of its records if it gave no document."""
    parts = [f"{reason} {count:,}" for reason, count in item.damage.items()] or ["it holds no text"]
    if item.lost_share is not None:
        least = "at least " if "damaged_compression" in item.damage and item.lost_share < 1 else ""
        parts.insert(0, f"{least}{format_share(item.lost_share)} lost")
    return "; ".join([*parts, *([f"its fields are {list_names(item.fields)}"] if item.fields else [])])
