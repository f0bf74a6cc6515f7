"""Signatures: a few hashes by which similar documents find each other without being compared with all others.

Of a document's shingles, each of many hash functions keeps the least value: two documents agree in one with a
probability that equals their similarity s (MinHash: Broder 1997). Some of these minima together are a band; documents
that agree in all r minima of one of b bands are compared, with a probability of 1 - (1 - s**r)**b (Leskovec,
Rajaraman and Ullman, Mining of Massive Datasets, section 3.4).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from albert_data.kernels import U64, helper, kernel
from albert_data.kernels.draws import SIGNING, make_streams, mix

_MISSES = 0.005  # of pairs that are just as similar as is asked
_MOST_MINIMA = 128  # more rows a band mean fewer comparisons in vain, but more hash functions
_MOST_ROWS = 16
_MAXIMUM, _32 = np.uint32(2**32 - 1), U64(32)


class Bands(NamedTuple):
    """num_bands: of a signature; num_rows: minima of each band."""

    num_bands: int
    num_rows: int


def choose_bands(similarity: float) -> Bands:
    """The bands that find 99.5 % of the pairs of this similarity, or more, and the fewest of less similar ones.

    >>> choose_bands(0.8), choose_bands(0.5)
    (Bands(num_bands=18, num_rows=6), Bands(num_bands=40, num_rows=3))
    """
    found = [Bands(1, 1)]
    for rows in range(1, _MOST_ROWS + 1):
        agree = similarity**rows
        count = 1 if agree == 1 else math.ceil(math.log(_MISSES) / math.log1p(-agree))
        found += [Bands(count, rows)] if count * rows <= _MOST_MINIMA else []
    return found[-1]


def make_signatures(shingles: np.ndarray, offsets: np.ndarray, bands: Bands) -> np.ndarray:
    """The hash of each band of each document: uint64 [D, bands]. Equal minima of two bands have different hashes.

    shingles: uint32; offsets: int64 [D + 1], in shingles.
    """
    numbers = np.arange(bands.num_bands * bands.num_rows, dtype=np.uint64)
    bits = make_streams(U64(0), SIGNING, numbers, 0, np.zeros(len(numbers), np.uint32))
    signatures = np.empty((len(offsets) - 1, bands.num_bands), np.uint64)
    fill_signatures(
        shingles, offsets, (bits >> _32).astype(np.uint32) | np.uint32(1), bits.astype(np.uint32), signatures
    )
    return signatures


@kernel
def fill_signatures(
    shingles: np.ndarray, offsets: np.ndarray, factors: np.ndarray, summands: np.ndarray, signatures: np.ndarray
) -> None:
    """factors, summands: uint32, of the hash functions x -> factor * x + summand modulo 2**32."""
    minima = np.empty(len(factors), np.uint32)
    num_rows = len(factors) // signatures.shape[1]
    for document in range(len(signatures)):
        find_minima(shingles[offsets[document] : offsets[document + 1]], factors, summands, minima)
        for band in range(signatures.shape[1]):
            state = U64(band + 1)
            for row in range(num_rows):
                state = mix(state ^ (U64(minima[band * num_rows + row]) << U64(16)))
            signatures[document, band] = state


@helper
def find_minima(shingles: np.ndarray, factors: np.ndarray, summands: np.ndarray, minima: np.ndarray) -> None:
    """Write the least value of each hash function."""
    minima[:] = _MAXIMUM
    at = 0
    # Four at a time, so that each minimum is loaded and stored once for four: 1.4 GB of text a second, not 0.6.
    while at + 4 <= len(shingles):
        a, b, c, d = shingles[at], shingles[at + 1], shingles[at + 2], shingles[at + 3]
        for i in range(len(factors)):
            factor, summand = factors[i], summands[i]
            first = min(np.uint32(a * factor + summand), np.uint32(b * factor + summand))
            second = min(np.uint32(c * factor + summand), np.uint32(d * factor + summand))
            minima[i] = min(minima[i], min(first, second))
        at += 4
    while at < len(shingles):
        for i in range(len(factors)):
            minima[i] = min(minima[i], np.uint32(shingles[at] * factors[i] + summands[i]))
        at += 1
