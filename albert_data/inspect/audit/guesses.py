"""How well the labels of pairs can be guessed without reading them.

In: the rows of a folder. Out: checks. A linear classifier guesses, by ridge regression on labels of 1 and -1, which is
the first step of Newton's method for a logistic regression; near chance, where precision matters, further steps
hardly change a guess. It is cross-validated. All pairs of a document are in one fold, because they are alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from albert_data.inspect.audit import rules
from albert_data.inspect.audit.rows import RowFacts, Subject
from albert_data.inspect.audit.rules import Check, Rule
from albert_data.inspect.audit.surface import FRAGMENTS, LENGTHS, Surface, measure_pairs
from albert_data.text.wording import count_of, format_share

MIN_PAIRS, MIN_DOCUMENTS = 200, 20
_FOLDS = 5
_CHANCE = 0.5  # the share of right guesses
_RIDGE = 0.004  # for each row that a guess learns from
_NO_GUESS = 1e-9  # a score nearer to 0 is no guess
# Folds share training rows: in simulations the deviation is 1.15 to 1.33 times that of independent guesses.
_FOLD_INFLATION = 4 / 3
_ERRORS = 3  # standard errors that a guess must differ from chance, and a share from the intended one
_SIGN_ERRORS = 4.5  # of one sign among some 150: chance names any in one set of a thousand
_MAX_SIGNS, _SHOWN_TOKENS = 5, 12


def cross_validate(columns: np.ndarray, labels: np.ndarray, keys: np.ndarray) -> tuple[float, float]:
    """The share of right guesses, and its standard error by documents, as the pairs of one are alike.

    columns: float [rows, features]; labels: bool; keys: uint64, of the documents.
    """
    fold, right = keys % np.uint64(_FOLDS), np.empty(len(labels))
    parts = [(columns[fold == i], labels[fold == i]) for i in range(_FOLDS)]
    grams = np.array([part.T @ part for part, _ in parts], float)
    sums = np.array([part.T @ np.where(is_so, np.float32(1), np.float32(-1)) for part, is_so in parts], float)
    for i, (part, is_so) in enumerate(parts):
        penalty = _RIDGE * (len(labels) - len(part)) + _NO_GUESS
        gram = grams.sum(axis=0) - grams[i] + penalty * np.eye(columns.shape[1])
        scores = part @ np.linalg.solve(gram, sums.sum(axis=0) - sums[i])
        right[fold == i] = np.where(np.abs(scores) < _NO_GUESS, 0.5, (scores > 0) == is_so)
    accuracy = float(right.mean())
    excess = np.bincount(np.unique(keys, return_inverse=True)[1], right - accuracy)
    # Never 0, even if all documents are guessed equally well, as figures are divided by it.
    return accuracy, _FOLD_INFLATION * max(math.sqrt(float(excess @ excess)), 0.5) / len(right)


def judge_guess(
    rule: Rule, columns: np.ndarray, labels: np.ndarray, keys: np.ndarray, errors: float = _ERRORS
) -> Check:
    """A check whose figure is what a guess gains over chance; 0 if that is within so many standard errors."""
    num_documents = len(np.unique(keys))
    if len(labels) < MIN_PAIRS or num_documents < MIN_DOCUMENTS:
        found = f"{count_of(len(labels), 'pair')} of {count_of(num_documents, 'document')}"
        return Check(rule, None, f"{found} are too few; at least {MIN_PAIRS} of {MIN_DOCUMENTS} are needed")
    accuracy, error = cross_validate(columns, labels, keys)
    finding = (
        f"{format_share(accuracy)} of the guesses are right; chance, {format_share(_CHANCE)}, is "
        f"{abs(accuracy - _CHANCE) / error:.1f} standard errors of {format_share(error)} away"
    )
    details = {"accuracy": accuracy, "chance": _CHANCE, "standard_error": error}
    return Check(rule, accuracy - _CHANCE if accuracy - _CHANCE > errors * error else 0.0, finding, details)


# ---- order ----


def check_order(subject: Subject) -> Iterator[Check]:
    """Check how well lengths, the whole surface, and what is always a fault tell the order of pairs."""
    surface = measure_pairs(subject)
    for rule, names in (
        (rules.ORDER_FROM_LENGTHS, LENGTHS),
        (rules.ORDER_FROM_SURFACE, surface.names),
        (rules.ORDER_FROM_FRAGMENTS, FRAGMENTS),
    ):
        pairs = surface.take(names)
        check = judge_guess(rule, pairs.columns, pairs.is_swapped, pairs.keys)
        if check.figure is None:
            yield check
            continue
        findings, of_sources = [check.finding], _judge_sources(subject, rule, pairs)
        name, worst, some = max(of_sources, key=lambda one: one[1].figure or 0.0, default=("", check, pairs))
        if (worst.figure or 0.0) > check.figure:
            findings.append(f"worst is source {name}: {worst.finding}")
            check, pairs = replace(check, figure=worst.figure), some
        signs = find_signs(subject, pairs)
        findings.append(_describe(signs[0]) if signs else "no single sign shows it")
        yield replace(check, finding="; ".join(findings), details={**check.details, "signs": signs})


def _judge_sources(subject: Subject, rule: Rule, pairs: Surface) -> Iterator[tuple[str, Check, Surface]]:
    """Judge the pairs of each source: its name, the check and its pairs. The more sources, the more errors it takes."""
    names, sources = subject.shards[0].manifest.sources or (), subject.facts.sources[pairs.rows]
    errors = math.sqrt(_ERRORS**2 + 2 * math.log(max(len(names), 1)))
    for number, name in enumerate(names):
        some = pairs.pick(sources == number)
        yield name, judge_guess(rule, some.columns, some.is_swapped, some.keys, errors), some


def _describe(sign: dict[str, Any]) -> str:
    order = f"is the later one in {format_share(sign['later_share'])} of {sign['count']:,}"
    return f'strongest sign: a segment that {sign["sign"]} {order}, as "{sign["example"]}"'


def find_signs(subject: Subject, pairs: Surface) -> list[dict[str, Any]]:
    """The features by which guesses gain most, the strongest first, without those that chance can explain.

    Chance is that of fair coins. Of several features with the same figures only one is named.
    count: pairs in which one segment has more of it; later_share: of these, those in which that is the later one;
    gain: by how much guessing so beats chance, as a share of all pairs; example: how such a segment begins and ends.
    """
    signs, labels = np.sign(pairs.columns), np.where(pairs.is_swapped, 1, -1)
    counts, later = np.count_nonzero(signs, axis=0), (signs == labels[:, None]).sum(axis=0)
    gains = np.abs(later - counts / 2)
    found: dict[tuple[int, float], dict[str, Any]] = {}
    for i in np.argsort(-gains, kind="stable")[: 2 * _MAX_SIGNS].tolist():
        figures = count, gain = int(counts[i]), float(gains[i])
        if figures not in found and 2 * gain > _SIGN_ERRORS * math.sqrt(count):
            row = int(np.flatnonzero(signs[:, i])[0])
            found[figures] = {
                "sign": pairs.names[i],
                "count": count,
                "later_share": float(later[i] / count),
                "gain": gain / len(signs),
                "example": _show_segment(subject, int(pairs.rows[row]), is_b=bool(signs[row, i] < 0)),
            }
    return list(found.values())[:_MAX_SIGNS]


def _show_segment(subject: Subject, row: int, *, is_b: bool) -> str:
    """How a segment begins and ends."""
    example = subject.read_row(row)
    sep = 1 + example.segment_a_len
    ids = example.original_ids[sep + 1 : -1] if is_b else example.original_ids[1:sep]
    parts = (ids[:_SHOWN_TOKENS], ids[-_SHOWN_TOKENS:]) if len(ids) > 2 * _SHOWN_TOKENS else (ids,)
    return " … ".join(map(subject.tokenizer.decode, parts))


# ---- all pairs ----


def check_shares(facts: RowFacts, orders: tuple[str, ...]) -> Check:
    """Check whether each label is as frequent as intended."""
    rule = rules.LABEL_SHARES
    counts = np.bincount(facts.labels[facts.labels >= 0], minlength=len(orders))
    num_pairs, intended = int(counts.sum()), 1 / len(orders)
    if num_pairs == 0:
        return Check(rule, None, "no row has a pair")
    shares = (counts / num_pairs).tolist()
    most = max(abs(share - intended) for share in shares)
    error = math.sqrt(intended * (1 - intended) / num_pairs)
    named = ", ".join(f"{format_share(share)} {order}" for order, share in zip(orders, shares, strict=True))
    details = dict(zip((order.replace(" ", "_") for order in orders), shares, strict=True))
    finding = f"{named} of {count_of(num_pairs, 'pair')}; {format_share(intended)} each are intended"
    return Check(rule, most if most > _ERRORS * error else 0.0, finding, details)
