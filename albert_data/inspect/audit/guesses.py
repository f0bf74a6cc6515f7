"""How well the labels of pairs can be guessed from lengths, surface or shared words, and whether they fit quotations.

In: the splits of a folder. Out: checks. A logistic regression guesses, cross-validated. For the surface, all
pairs of a document are in one fold, because they are alike; for lengths, folds are of rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from albert_data.examples.pair_tasks import IN_ORDER, RANDOM_B
from albert_data.inspect.audit import rules
from albert_data.inspect.audit.regression import FOLD_INFLATION, FOLDS, NumberDesign, StateDesign, cross_validate
from albert_data.inspect.audit.rows import RowFacts, Subject, read_batches
from albert_data.inspect.audit.rules import Check, Rule
from albert_data.inspect.audit.surface import Features, Surface, gather_surface, make_features
from albert_data.shards.reader import Shards
from albert_data.shards.rows import restore_ids
from albert_data.text.wording import count_of, format_share

CHANCE = 0.5
MAX_ROWS = 200_000  # for lengths: gives a standard error of 0.15 points, in half a second
_MIN_ROWS = 50
MIN_PAIRS, MIN_DOCUMENTS = 200, 20
MIN_TELLING = 5  # at least so many documents must have a pair whose quotation marks show the order
_MAX_SIGNS = 5
_ERRORS = 3  # standard errors that a guess must differ from chance, and a share from the intended one
_CERTAINTY = 0.999  # the probability that no sign is named by chance alone
_GROUPS = {  # groups of features that tell the order only if pairs are faulty
    rules.ORDER_FROM_FRAGMENTS: ("lower case", "stops", "brackets", "headings"),
    rules.ORDER_FROM_OUTER_SENTENCES: ("lengths",),
}


@dataclass(frozen=True)
class Sign:
    """A state that one segment of each of `count` pairs has, and the other has not."""

    name: str
    count: int
    later: float  # the share of these in which it is the later segment
    gain: float  # by how much guessing so beats chance, as a share of all pairs

    def describe(self) -> str:
        order, share = ("later", self.later) if self.later >= CHANCE else ("earlier", 1 - self.later)
        return f"a segment that {self.name} is the {order} one in {format_share(share)} of {self.count:,}"

    def to_dict(self) -> dict[str, Any]:
        return {"sign": self.name, "count": self.count, "later_share": self.later, "gain": self.gain}


def judge_guess(
    rule: Rule, accuracy: float, error: float, extra: str = "", *, chance: float = CHANCE, **details: Any
) -> Check:
    """A check whose figure is what a guess gains over chance; 0 if that is within three standard errors."""
    finding = (
        f"{format_share(accuracy)} of the guesses are right; chance, {format_share(chance)}, is "
        f"{abs(accuracy - chance) / error:.1f} standard errors of {format_share(error)} away{extra}"
    )
    gain = accuracy - chance if accuracy - chance > _ERRORS * error else 0.0
    measured = {"accuracy": accuracy, "chance": chance, "standard_error": error}
    return Check(rule, gain, finding, {**measured, **details})


def check_surface(opened: Sequence[Shards]) -> Iterator[Check]:
    """Check how well the whole surface tells the order, and the parts of it that tell it only if pairs are faulty."""
    surface = gather_surface(opened)
    num_documents = len(np.unique(surface.keys))
    if len(surface) < MIN_PAIRS or num_documents < MIN_DOCUMENTS:
        found = f"{count_of(len(surface), 'pair')} of {count_of(num_documents, 'document')}"
        finding = f"{found} are too few; at least {MIN_PAIRS} of {MIN_DOCUMENTS} are needed"
        for rule in (rules.ORDER_FROM_SURFACE, *_GROUPS):
            yield Check(rule, None, finding)
    else:
        features = make_features(surface, opened[0].tokenizer)
        by_group = {group: guess_from(surface, features, (group,))[0] for group in features.all_groups}
        none = "; no single sign shows it"
        yield _guess(rules.ORDER_FROM_SURFACE, surface, features, features.all_groups, none, accuracy_by_group=by_group)
        for rule, groups in _GROUPS.items():
            yield _guess(rule, surface, features, groups)
    yield _check_quotes(surface)


def _guess(
    rule: Rule, surface: Surface, features: Features, groups: tuple[str, ...], extra: str = "", **details: Any
) -> Check:
    """extra: said where no single sign shows the order."""
    strongest = find_strongest(features, surface.is_swapped, groups)
    if strongest:
        extra = f"; strongest sign: {strongest[0].describe()}"
    signs = [sign.to_dict() for sign in strongest]
    return judge_guess(rule, *guess_from(surface, features, groups), extra, **details, signs=signs)


def guess_from(surface: Surface, features: Features, groups: tuple[str, ...]) -> tuple[float, float]:
    """The share of right guesses from some groups; its standard error, by documents, as the pairs of one are alike."""
    design = _make_design(features.choose(groups))
    fold = (surface.keys % np.uint64(FOLDS)).astype(np.int64)
    right = cross_validate(design, surface.is_swapped, fold)
    accuracy = float(right.mean())
    _, owners = np.unique(surface.keys, return_inverse=True)
    clustered = math.sqrt(float((np.bincount(owners, right - accuracy) ** 2).sum())) / len(right)
    # Never 0, even if all documents are guessed equally well, as figures are divided by it.
    return accuracy, FOLD_INFLATION * max(clustered, CHANCE / len(right))


def _make_design(features: Features) -> StateDesign:
    """The design without the states in which A and B differ in no pair, as for most joins: they tell nothing."""
    tells = np.zeros(len(features.names), np.bool_)
    for a, b in zip(features.states_a.T, features.states_b.T, strict=True):
        tells[a[a != b]] = tells[b[a != b]] = True
    numbers: np.ndarray = (np.cumsum(tells) - tells).astype(np.int16)
    numbers[~tells] = 0  # any number will do: both segments have the same one, so they cancel out
    states_a, states_b = numbers[features.states_a], numbers[features.states_b]
    return StateDesign(states_a=states_a, states_b=states_b, num_states=int(tells.sum()))


def find_strongest(features: Features, is_swapped: np.ndarray, groups: tuple[str, ...]) -> list[Sign]:
    """The signs by which guesses gain most, the strongest first, without those that chance can explain.

    Chance is that of fair coins, and the limit such that with probability _CERTAINTY no sign exceeds it by chance.
    Of several signs with the same figures only one is named.
    """
    chosen = features.choose(groups)
    shown, later = count_states(chosen, is_swapped)
    limit = NormalDist().inv_cdf(1 - (1 - _CERTAINTY) / (2 * len(chosen.names)))
    gains = np.abs(later - shown / 2)
    is_sure = 2 * gains > limit * np.sqrt(shown)
    ranked = [i for i in np.argsort(-gains, kind="stable").tolist() if is_sure[i]]
    # "With" and "without" a mark have the same figures: only the first is named.
    first: dict[tuple[float, float], int] = {}
    for i in ranked:
        first.setdefault((gains[i], shown[i]), i)
    order = list(first.values())[:_MAX_SIGNS]
    gains /= len(is_swapped)
    return [Sign(chosen.names[i], int(shown[i]), float(later[i] / shown[i]), float(gains[i])) for i in order]


def count_states(features: Features, is_swapped: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """In how many pairs exactly one segment has each state, and in how many of these it is the later one."""
    num_states = len(features.names)
    shown, later = np.zeros(num_states), np.zeros(num_states)
    for a, b in zip(features.states_a.T, features.states_b.T, strict=True):
        differs = a != b
        for states, is_later in ((a, is_swapped), (b, ~is_swapped)):
            shown += np.bincount(states[differs], minlength=num_states)
            later += np.bincount(states[differs], is_later[differs], num_states)
    return shown, later


def _check_quotes(surface: Surface) -> Check:
    """Check how many of the pairs whose quotation marks show the order have the opposite label."""
    rule = rules.LABELS_AGAINST_QUOTES
    is_telling, is_wrong = find_contradictions(surface)
    count, wrong, pairs = int(is_telling.sum()), int(is_wrong.sum()), count_of(int(is_telling.sum()), "pair")
    documents = np.unique(surface.keys[is_telling], return_inverse=True)[1]
    if len(set(documents.tolist())) < MIN_TELLING:
        finding = f"{pairs} with a quotation or bracket across the segments are too few"
        return Check(rule, None, finding, {"count": wrong, "of": count})
    excess = np.bincount(documents, is_wrong[is_telling] - wrong / count)
    error = math.sqrt(float(excess @ excess)) / count  # by documents, as the pairs of one are not independent
    finding = (
        f"{format_share(1 - wrong / count)} of {pairs} with a quotation or bracket across the segments have the order "
        "that it suggests; 70 to 81 % have in books, and half of them with random labels"
    )
    return Check(rule, max(0.0, wrong / count - 2 * error), finding, {"count": wrong, "of": count})


def find_contradictions(surface: Surface) -> tuple[np.ndarray, np.ndarray]:
    """Pairs whose quotation marks tell the order, and those of them with the opposite label.

    In these, one segment only leaves quotations open, and the other only closes ones that it did not open.

    Mostly it is one quotation across the boundary of A and B. But the earlier segment can also close one that began
    before the row, and the later one can open one that ends after it. Guillemets are left out: which of them opens
    depends on the language.
    """
    a_first = b_first = np.zeros(len(surface), np.bool_)
    for unopened, unclosed in (
        (surface.unopened, surface.unclosed),
        (surface.unopened_brackets, surface.unclosed_brackets),
    ):
        opens, closes = (unclosed > 0) & (unopened == 0), (unopened > 0) & (unclosed == 0)
        a_first, b_first = a_first | (opens[:, 0] & closes[:, 1]), b_first | (opens[:, 1] & closes[:, 0])
    return a_first ^ b_first, np.where(surface.is_swapped, a_first & ~b_first, b_first & ~a_first)


def check_lengths(facts: RowFacts, is_pair: np.ndarray) -> Check:
    """Check how well the lengths of the segments tell the order. is_pair: bool [rows], the pairs that have one."""
    guessed = guess_order(facts.lens_a[is_pair], facts.lens_b[is_pair], facts.labels[is_pair] == 1)
    if guessed is None:
        return Check(rules.ORDER_FROM_LENGTHS, None, f"{count_of(int(is_pair.sum()), 'pair')} are too few")
    return judge_guess(rules.ORDER_FROM_LENGTHS, *guessed)


def guess_order(lens_a: np.ndarray, lens_b: np.ndarray, is_swapped: np.ndarray) -> tuple[float, float] | None:
    """Guess the order from the lengths of the segments, their difference and its size, the logarithm of their ratio.

    The share of right guesses, and the standard error of chance; None for few rows.
    """
    rows = slice(0, MAX_ROWS)  # rows are shuffled, so the first are a random sample
    lens_a, lens_b = lens_a[rows].astype(float), lens_b[rows].astype(float)
    ratio = np.log(np.maximum(lens_a, 1) / np.maximum(lens_b, 1))
    columns = np.stack([lens_a, lens_b, lens_a - lens_b, np.abs(lens_a - lens_b), ratio], axis=1)
    return guess_from_columns(columns, is_swapped[rows])


def guess_from_columns(columns: np.ndarray, labels: np.ndarray) -> tuple[float, float] | None:
    """The share of right guesses, and the standard error of chance; None for few rows. columns: float [rows, features]

    A constant is one more feature, so labels that mostly have one value are guessed right too.
    """
    if len(labels) < _MIN_ROWS:
        return None
    deviations = columns.std(axis=0)
    scaled = (columns - columns.mean(axis=0)) / np.where(deviations > 0, deviations, 1)
    design = NumberDesign(values=np.concatenate([scaled, np.ones((len(scaled), 1))], axis=1))
    right = cross_validate(design, labels, np.arange(len(labels)) % FOLDS)
    return float(right.mean()), FOLD_INFLATION * 0.5 / math.sqrt(len(labels))


# ---- random segments ----

_TOPIC_PAIRS = 20_000  # gives a standard error of 0.4 points, at best, in two seconds


def check_random(subject: Subject) -> Iterator[Check]:
    """Check shares, lengths and shared words of pairs in order and of random ones."""
    task, facts = subject.config.task, subject.facts
    yield _check_shares(facts, task.orders)
    is_random = facts.labels == task.label_of(RANDOM_B)
    is_compared = is_random | (facts.labels == task.label_of(IN_ORDER))
    guessed = guess_order(facts.lens_a[is_compared], facts.lens_b[is_compared], is_random[is_compared])
    for rule, found in ((rules.RANDOM_FROM_LENGTHS, guessed), (rules.RANDOM_FROM_TOPIC, _guess_from_topic(subject))):
        if found is None:
            finding = f"{count_of(int(is_compared.sum()), 'pair')} in order or random are too few"
            yield Check(rule, None, finding)
        else:
            share = float(is_random[is_compared].mean())
            yield judge_guess(rule, *found, chance=max(share, 1 - share))


def _check_shares(facts: RowFacts, orders: tuple[str, ...]) -> Check:
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


def _guess_from_topic(subject: Subject) -> tuple[float, float] | None:
    """Guess from the pieces that A and B share, rare ones counting more. None for few pairs."""
    scores, labels = [], []
    task, vocab_size = subject.config.task, subject.tokenizer.vocab_size
    counts = np.ones(vocab_size)
    rows: list[tuple[np.ndarray, np.ndarray]] = []
    for batch in read_batches(subject.shards):
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
