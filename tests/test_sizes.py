"""A sample of sizes depends on the set of documents alone, merges in any order, and estimates their sum."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_data.jobs.receipts import from_values, to_values
from albert_data.survey.sizes import SAMPLE, SizeSample

documents = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), max_size=60)


def make_sample(*parts: list[tuple[int, int]], limit: int = SAMPLE) -> SizeSample:
    sample = SizeSample(limit=limit)
    for part in parts:
        hashes, found = np.array(part, np.int64).reshape(-1, 2).T
        sample.add(hashes.astype(np.uint64), found)
    return sample


def list_sample(sample: SizeSample) -> list[tuple[int, int]]:
    return list(zip(sample.hashes.tolist(), sample.sizes.tolist(), strict=True))


@pytest.mark.parametrize("capacity", [1, 5, SAMPLE])
@given(documents=documents, data=st.data())
def test_a_sample_holds_the_least_hashes_of_a_set_in_whatever_order_it_grows(capacity, documents, data):
    shuffled = data.draw(st.permutations(documents))
    at = data.draw(st.integers(0, len(documents)))
    joined = make_sample(shuffled[at:], limit=capacity)
    rest = make_sample(shuffled[:at], limit=capacity)
    joined.add(rest.hashes, rest.sizes)
    wanted = sorted(dict(sorted(documents, reverse=True)).items())[:capacity]
    grown = make_sample(shuffled[:at], shuffled[at:], limit=capacity)
    for sample in (make_sample(documents, limit=capacity), grown, joined):
        assert list_sample(sample) == wanted
        assert sample.count() == len(wanted)


@given(documents)
def test_a_sample_survives_a_round_trip_through_json(documents):
    sample = make_sample(documents)
    assert list_sample(from_values(json.loads(json.dumps(to_values(sample))), SizeSample)) == list_sample(sample)


@pytest.mark.parametrize("copies", [1, 3])
def test_the_sizes_of_many_documents_are_estimated_within_four_standard_errors(copies):
    """30,000 sizes that vary as much as their mean; four standard errors of sqrt(2 / SAMPLE)."""
    rng = np.random.default_rng(0)
    hashes, found = rng.integers(0, 2**64, 30_000, np.uint64), rng.exponential(5000, 30_000).astype(np.int64) + 1
    sample = SizeSample()
    for part in np.array_split(np.tile(np.arange(30_000), copies), 7):
        sample.add(hashes[part], found[part])
    assert len(sample.hashes) == SAMPLE
    assert abs(sample.estimate() / int(found.sum()) - 1) < 4 * (2 / SAMPLE) ** 0.5


def test_documents_that_are_left_out_count_no_bytes():
    rng = np.random.default_rng(1)
    hashes = np.unique(rng.integers(0, 2**64, 30_000, np.uint64))
    sample, half = SizeSample(), rng.permutation(hashes)[::2]
    sample.add(hashes, np.full(len(hashes), 1000))
    sample.leave_out(half)
    assert abs(sample.estimate() / (1000 * (len(hashes) - len(half))) - 1) < 0.2
    assert SizeSample().estimate() == 0
    assert make_sample([(5, 100), (9, 7), (5, 100)], [(9, 7)]).estimate() == 107, "few are summed exactly"
    few = make_sample([(5, 100), (9, 7)])
    few.leave_out(np.array([5, 6], np.uint64))
    assert few.estimate() == 7
