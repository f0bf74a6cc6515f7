"""Whether lengths alone give the order of segments away: a logistic regression, cross-validated.

In: the lengths of A and B and the label of each row. Out: how often a guess fitted on other rows is right.
"""

from __future__ import annotations

import math

import numpy as np

from albert_data.inspect.audit.regression import FOLDS, SPREAD, Columns, cross_validate

MAX_ROWS = 200_000  # gives a standard error of 0.15 points, in half a second
_MIN_ROWS = 50


def guess_order(lens_a: np.ndarray, lens_b: np.ndarray, is_swapped: np.ndarray) -> tuple[float, float] | None:
    """The share of right guesses, and the standard error that guessing by chance has; None for few rows.

    The guess may use the constant too: labels that are mostly one value are guessable without any length.
    """
    rows = slice(0, MAX_ROWS)  # rows are shuffled: the first are any
    lens_a, lens_b, labels = lens_a[rows].astype(float), lens_b[rows].astype(float), is_swapped[rows]
    if len(labels) < _MIN_ROWS:
        return None
    right = cross_validate(Columns(values=_make_features(lens_a, lens_b)), labels, np.arange(len(labels)) % FOLDS)
    return float(right.mean()), SPREAD * 0.5 / math.sqrt(len(labels))


def _make_features(lens_a: np.ndarray, lens_b: np.ndarray) -> np.ndarray:
    """Both lengths, their difference and its size, the logarithm of their ratio, each of deviation 1; a constant."""
    ratio = np.log(np.maximum(lens_a, 1) / np.maximum(lens_b, 1))
    columns = np.stack([lens_a, lens_b, lens_a - lens_b, np.abs(lens_a - lens_b), ratio], axis=1)
    deviations = columns.std(axis=0)
    scaled = (columns - columns.mean(axis=0)) / np.where(deviations > 0, deviations, 1)
    return np.concatenate([scaled, np.ones((len(scaled), 1))], axis=1)
