"""Advice on options from the counts of a finished build, for the commands and for the audit."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence

from albert_data.conditions import EXCLUSIONS
from albert_data.corpus.damage import LOSES_NOTHING, REASONS, CountsByInput
from albert_data.corpus.fields import list_names
from albert_data.corpus.layout import Advice, advise
from albert_data.corpus.removed_lines import REMOVALS, RemovedLines
from albert_data.corpus.sources import advise_names
from albert_data.escaping import escape_controls
from albert_data.shards.manifest import DamagedInput, DamagedInputs, Manifest, RemovedEntry, RemovedLine
from albert_data.wording import count_of, list_some

_LISTED, _SHOWN, _FIELDS = 20, 3, 8  # inputs in a manifest, inputs in a sentence, fields of an input


def advise_on(manifest: Manifest) -> list[Advice]:
    """Options that would read the corpus better.

    Empty if the corpus looks sound, or the manifest lacks the counts.
    """
    counts = {name: value or 0 for name, value in vars(manifest.counts).items()}
    return advise(counts, dataclasses.asdict(manifest.config.text), [item.path for item in manifest.inputs])


def advise_on_parts(manifest: Manifest) -> list[str]:
    """What to know of single sources and inputs, a sentence each."""
    is_mixture, field = manifest.plan.mixture is not None, manifest.config.text.text_field
    found = [] if is_mixture else advise_names(manifest.sources or ())
    return found + advise_inputs(manifest.damaged_inputs, None if is_mixture else field)


def list_damaged(inputs: CountsByInput) -> DamagedInputs | None:
    """The inputs that gave no document or had damage, the worst of them by name; None if there are none."""
    found, num_empty, num_damaged = inputs.finish()
    worst = [
        DamagedInput(
            path=path,
            num_documents=counts.num_documents,
            damage=dict(sorted(counts.damage.items())),
            fields=counts.fields.rank_by_text()[:_FIELDS] if counts.fields and not counts.num_documents else (),
            text_field=counts.fields.find_text() if counts.fields and not counts.num_documents else None,
        )
        for path, counts in found[:_LISTED]
    ]
    if not worst:
        return None
    return DamagedInputs(num_without_documents=num_empty, num_damaged=num_damaged, worst=tuple(worst))


def describe_removed(lines: RemovedLines) -> RemovedEntry:
    """The lines that were removed for one reason, as a manifest has them."""
    examples = tuple(RemovedLine(text=text, num_lines=count) for text, count in lines.rank())
    return RemovedEntry(num_lines=lines.num_lines, num_bytes=lines.num_bytes, examples=examples)


def list_removed(removed: Mapping[str, RemovedEntry] | None) -> list[str]:
    """A sentence for each reason: how much was removed, and examples."""
    return [
        f"{count_of(entry.num_lines, 'line')} of {entry.num_bytes:,} bytes, {REMOVALS.get(reason, reason)}: "
        + list_some([escape_controls(repr(one.text)) for one in entry.examples], _SHOWN)
        for reason, entry in (removed or {}).items()
    ]


def list_notes(
    damage: Mapping[str, int], removed: Mapping[str, RemovedEntry] | None, advice: Sequence[str]
) -> list[str]:
    """What was noticed, repaired, left out and removed, and the advice: a line each, behind its label in 11 columns."""
    labels = dict.fromkeys(LOSES_NOTHING, "note") | dict.fromkeys(EXCLUSIONS, "left out")
    found = [
        (labels.get(reason, "damage"), f"{reason} {count:,}: {REASONS[reason]}")
        for reason, count in sorted(damage.items())
    ]
    found += [*(("removed", line) for line in list_removed(removed)), *(("warning", line) for line in advice)]
    return [f"{label:<10} {line}" for label, line in found]


def advise_inputs(damaged: DamagedInputs | None, text_field: str | None) -> list[str]:
    """A sentence that names the inputs without documents; none if there are none. text_field: None in a mixture."""
    if damaged is None or not damaged.num_without_documents:
        return []
    shown = [item for item in damaged.worst if not item.num_documents][:_SHOWN]
    named = [f"{escape_controls(item.path)} ({_explain(item, text_field)})" for item in shown]
    count = damaged.num_without_documents
    return [f"{count_of(count, 'input')} gave no document: {list_some(named, _SHOWN, count)}"]


def describe_losses(item: DamagedInput) -> str:
    """What was lost of an input, and the fields of its records if it gave no document."""
    parts = [f"{reason} {count:,}" for reason, count in item.damage.items()] or ["it holds no text"]
    return "; ".join([*parts, *([f"its fields are {list_names(item.fields)}"] if item.fields else [])])


def _explain(item: DamagedInput, text_field: str | None) -> str:
    parts = [describe_losses(item)]
    if item.text_field is not None:
        if text_field is None:
            parts.append(f"write text_field = {item.text_field!r} in its source")
        else:  # the field of the other inputs is read too
            parts.append(f"pass --text-field {shlex.quote(f'{text_field},{item.text_field}')}")
    return "; ".join(parts)
