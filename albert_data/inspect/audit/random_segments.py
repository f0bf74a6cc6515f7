"""Whether pairs with a segment B of another document can be recognised without reading, and how many there are.

In: the rows of splits whose sentence task has such pairs. Out: checks. They compare pairs in order with random ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from albert_data.config import ExampleConfig
from albert_data.inspect.audit import rules
from albert_data.inspect.audit.guesses import guess_from_columns, guess_order, judge_guess
from albert_data.inspect.audit.rows import RowFacts, Subject
from albert_data.inspect.audit.rules import Check
from albert_data.pair_tasks import IN_ORDER, RANDOM_B
from albert_data.shards.rows import restore_ids
from albert_data.wording import count_of, format_share

_ERRORS = 3  # standard errors that a share must differ from the intended one
_TOPIC_PAIRS = 20_000  # gives a standard error of 0.4 points, at best, in two seconds


def check_random(subject: Subject) -> Iterator[Check]:
    """Check shares, lengths and shared words of pairs in order and of random ones."""
    config, facts = subject.shards[0].manifest.config.examples, subject.facts
    yield _check_shares(facts, config)
    task = config.task
    is_random = facts.labels == task.label_of(RANDOM_B)
    is_compared = is_random | (facts.labels == task.label_of(IN_ORDER))
    guessed = guess_order(facts.lens_a[is_compared], facts.lens_b[is_compared], is_random[is_compared])
    for rule, found in ((rules.RANDOM_FROM_LENGTHS, guessed), (rules.RANDOM_FROM_TOPIC, _guess_from_topic(subject))):
        if found is None:
            finding = f"{count_of(int(is_compared.sum()), 'pair')} in order or random are too few"
            yield Check(rule=rule, figure=None, finding=finding)
        else:
            share = float(is_random[is_compared].mean())
            yield judge_guess(rule, *found, chance=max(share, 1 - share))


def _check_shares(facts: RowFacts, config: ExampleConfig) -> Check:
    rule, orders = rules.LABEL_SHARES, config.task.orders
    counts = np.bincount(facts.labels[facts.labels >= 0], minlength=len(orders))
    num_pairs, intended = int(counts.sum()), 1 / len(orders)
    if num_pairs == 0:
        return Check(rule=rule, figure=None, finding="no row has a pair")
    shares = counts / num_pairs
    most = float(np.abs(shares - intended).max())
    error = float(np.sqrt(intended * (1 - intended) / num_pairs))
    named = ", ".join(f"{format_share(share)} {order}" for order, share in zip(orders, shares.tolist(), strict=True))
    details = {order.replace(" ", "_"): share for order, share in zip(orders, shares.tolist(), strict=True)}
    finding = f"{named} of {count_of(num_pairs, 'pair')}; {format_share(intended)} each are intended"
    return Check(rule=rule, figure=most if most > _ERRORS * error else 0.0, finding=finding, details=details)


def _guess_from_topic(subject: Subject) -> tuple[float, float] | None:
    """Guess from the pieces that A and B share, rare ones counting more. None for few pairs."""
    scores, labels = [], []
    task, vocab_size = subject.shards[0].manifest.config.examples.task, subject.tokenizer.vocab_size
    counts = np.ones(vocab_size)
    rows: list[tuple[np.ndarray, np.ndarray]] = []
    for batch in (batch for shards in subject.shards for batch in shards.batches()):
        ids = restore_ids(batch)
        counts += np.bincount(ids, minlength=vocab_size)
        chosen = np.isin(batch.sop_label, [task.label_of(IN_ORDER), task.label_of(RANDOM_B)])
        for row in np.flatnonzero(chosen)[: _TOPIC_PAIRS - len(rows)].tolist():
            begin, end = int(batch.offsets[row]), int(batch.offsets[row + 1])
            sep = begin + 1 + int(batch.segment_a_len[row])
            rows.append((np.unique(ids[begin + 1 : sep]), np.unique(ids[sep + 1 : end - 1])))
            labels.append(bool(batch.sop_label[row] == task.label_of(RANDOM_B)))
        if len(rows) >= _TOPIC_PAIRS:
            break
    weights = np.log(counts.sum() / counts)
    for pieces_a, pieces_b in rows:
        shared = np.intersect1d(pieces_a, pieces_b, assume_unique=True)
        sums = [float(weights[pieces].sum()) for pieces in (shared, pieces_a, pieces_b)]
        scores.append([sums[0] / max(min(sums[1:]), 1.0), *sums])
    return guess_from_columns(np.array(scores), np.array(labels, np.bool_))
