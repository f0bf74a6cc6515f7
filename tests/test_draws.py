"""Random numbers are what SplitMix64 gives, and depend on what they are for alone."""

from __future__ import annotations

import numpy as np
import references
from callable_helpers import around
from hypothesis import given
from hypothesis import strategies as st

from albert_data.kernels import draws
from albert_data.kernels.draws import SHUFFLING, SPLITTING, shuffle_keys, split_keys, threshold

mix, stream, draw, below = map(around, (draws.mix, draws.stream, draws.draw, draws.below))

bits_64 = st.integers(0, 2**64 - 1)
counts = st.integers(0, 2**32 - 1)


@given(bits_64)
def test_mix_equals_its_plain_twin(x):
    assert mix(np.uint64(x)) == references.mix(x)


def test_mix_gives_the_published_numbers_of_splitmix64():
    # The first outputs of SplitMix64 seeded with 1234567, as in the tests of many implementations.
    state = 1234567
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [int(draw(np.uint64(state), i)) for i in range(4)] == expected


@given(st.integers(0, 2**63 - 1), st.integers(1, 4), bits_64, counts, counts)
def test_stream_equals_its_plain_twin(seed, purpose, key, pass_index, index):
    found = stream(np.uint64(seed), purpose, np.uint64(key), pass_index, index)
    assert found == references.stream(seed, purpose, key, pass_index, index)


@given(bits_64, st.integers(0, 2**40))
def test_draw_equals_its_plain_twin(state, counter):
    assert draw(np.uint64(state), counter) == references.draw(state, counter)


@given(bits_64, st.integers(1, 2**32 - 1))
def test_below_equals_its_plain_twin_and_stays_below(bits, limit):
    found = below(np.uint64(bits), limit)
    assert found == references.below(bits, limit)
    assert 0 <= found < limit


@given(st.floats(0.0, 1.0))
def test_threshold_is_the_exact_share_of_64_bits(probability):
    assert int(threshold(probability)) == references.threshold(probability)


@given(st.integers(0, 2**63 - 1), st.lists(bits_64, max_size=5), counts)
def test_shuffle_and_split_keys_are_the_streams_of_their_purpose(seed, keys, pass_index):
    array = np.array(keys, np.uint64)
    indices = np.arange(len(keys), dtype=np.uint32)
    shuffled = shuffle_keys(np.uint64(seed), array, pass_index, indices)
    assert shuffled.tolist() == [references.stream(seed, SHUFFLING, key, pass_index, i) for i, key in enumerate(keys)]
    split = split_keys(np.uint64(seed), array)
    assert split.tolist() == [references.stream(seed, SPLITTING, key, 0, 0) for key in keys]
