"""Judges a share of the rows by that of the worst source, so that no average hides a language.

In: two numbers for each row: what counts, and of how much. Out: a check. A source is judged if it has enough documents,
and if its share is known well. Standard errors are by documents, as the rows of one are alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_data.inspect.audit.rows import Subject
from albert_data.inspect.audit.rules import OK, Check, Rule
from albert_data.inspect.sources import MIN_DOCUMENTS
from albert_data.text.wording import format_share

_ERRORS = 4  # the least standard errors in the share of a source that is judged, or in what is bad if that is more


class SourceShare(NamedTuple):
    """The share of one source. error: its standard error."""

    name: str
    share: float
    num_documents: int
    error: float

    def is_judged(self, rule: Rule) -> bool:
        is_known = _ERRORS * self.error <= max(self.share, rule.limits[1])
        return self.num_documents >= MIN_DOCUMENTS and is_known


def judge_share(
    subject: Subject,
    rule: Rule,
    noun: str,
    parts: np.ndarray,
    wholes: np.ndarray | None = None,
    *,
    rows: np.ndarray | None = None,
    asked: float = 0.0,
    more: Sequence[str] = (),
    details: Mapping[str, Any] | None = None,
) -> Check:
    """A check whose figure is the share of all rows, or of the worst source that can be judged if that is more.

    parts, wholes: numbers, one for each row of `rows`, or of all rows; wholes: None if each row is one thing
    noun: what is counted; asked: the share that is intended, which the figure leaves out; more: parts of the finding
    """
    wholes = np.ones(len(parts), np.int64) if wholes is None else wholes
    check = Check.of_share(rule, int(parts.sum()), int(wholes.sum()), noun, *more, **(details or {}))
    found = sorted(share_by_source(subject, parts, wholes, rows), key=lambda one: -one.share)
    judged = [one for one in found if one.is_judged(rule)]
    figure, findings = check.figure or 0.0, [check.finding]
    if judged:
        figure = max(figure, judged[0].share)
        if rule.judge(judged[0].share - asked) != OK:
            findings.append(f"worst is source {judged[0].name} with {format_share(judged[0].share)}")
    small = next((one for one in found if one not in judged), None)
    if small and rule.judge(small.share - asked) != OK:
        findings.append(f"source {small.name} has {format_share(small.share)}, but is too small to be judged")
    if found:
        check.details["by_source"] = {one.name: {**one._asdict(), "is_judged": one in judged} for one in found}
    return dataclasses.replace(check, figure=max(0.0, figure - asked), finding="; ".join(findings))


def share_by_source(
    subject: Subject, parts: np.ndarray, wholes: np.ndarray, rows: np.ndarray | None = None
) -> list[SourceShare]:
    """The share of each source that has any of `wholes`; empty unless rows have two sources or more."""
    names = subject.shards[0].manifest.sources or ()
    if len(names) < 2:
        return []
    groups, sources = subject.groups
    of_rows = groups if rows is None else groups[rows]
    part, whole = (np.bincount(of_rows, values, len(sources)) for values in (parts, wholes))
    sums, totals = (np.bincount(sources, values, len(names)) for values in (part, whole))
    shares = sums / np.maximum(totals, 1)
    numbers = np.bincount(sources[whole > 0], minlength=len(names))
    excess = np.bincount(sources, (part - shares[sources] * whole) ** 2, len(names))
    errors = np.sqrt(excess * numbers / np.maximum(numbers - 1, 1)) / np.maximum(totals, 1)
    values = zip(names, shares.tolist(), numbers.tolist(), errors.tolist(), strict=True)
    return [SourceShare(*found) for found, total in zip(values, totals, strict=True) if total]
