"""Random numbers that depend on what they are for, never on when they are drawn.

A stream is a 64-bit state mixed from (seed, purpose, document key, pass, index). Its i-th number is a function of
(stream, i) only. So every worker draws the same numbers, in any order, before or after a kill. A pass is one of the
`dupe_factor` rounds over the corpus. The mixing is the finaliser of SplitMix64 (Steele, Lea and Flood 2014).
"""

from __future__ import annotations

import numpy as np

from albert_data.kernels import helper, kernel

# The purposes of streams. A new one needs a new number, or it would draw as another does. A changed one changes builds.
SPLITTING = 1
PAIRING = 2
MASKING = 3
SHUFFLING = 4
CHOOSING = 7
SIGNING = 8
SAMPLING = 9

# SplitMix64's constants: its increment (2**64 divided by the golden ratio) and its two multipliers.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)


@helper
def mix(x: np.uint64) -> np.uint64:
    """A bijection of uint64: each input bit flips each output bit in about half of the cases."""
    # Both steps can be undone: x ^ (x >> n), and a product with an odd number modulo 2**64. So it is one to one.
    x = (x ^ (x >> _30)) * _MIX_A
    x = (x ^ (x >> _27)) * _MIX_B
    return x ^ (x >> _31)


@helper
def stream(seed: np.uint64, purpose: int, key: np.uint64, pass_index: int, index: int) -> np.uint64:
    """Return the state that all draws for one thing come from. It is itself 64 random bits, and serves as a key too.

    Each part is mixed in before the next, so that the order counts: (1, 2) and (2, 1) give different states. GOLDEN is
    added because `mix` leaves zero as it is.
    """
    state = mix(np.uint64(seed) + GOLDEN)
    state = mix(state ^ np.uint64(purpose)) + GOLDEN
    state = mix(state ^ np.uint64(key)) + GOLDEN
    state = mix(state ^ np.uint64(pass_index)) + GOLDEN
    return mix(state ^ np.uint64(index))


@helper
def draw(state: np.uint64, counter: int) -> np.uint64:
    """Return number `counter` of the stream with this state: 64 random bits."""
    return mix(state + (np.uint64(counter) + np.uint64(1)) * GOLDEN)


@helper
def below(bits: np.uint64, limit: int) -> np.int64:
    """Return a whole number in [0, limit), limit < 2**32. Each has the probability 1 / limit, to within 2**-32."""
    # The upper 32 bits are a fraction of 2**32; their product with the limit fits 64 bits. No division, and no loop.
    return np.int64(((bits >> _32) * np.uint64(limit)) >> _32)


def threshold(probability: float) -> np.uint64:
    """Return the bound that 64 random bits are below with this probability (1.0 counts as 1 - 2**-64)."""
    return np.uint64(min(int(probability * 2.0**64), 2**64 - 1))


def shuffle_keys(seed: np.uint64, keys: np.ndarray, pass_index: int, indices: np.ndarray) -> np.ndarray:
    """Return each row's position in the global shuffle: uint64, uniform."""
    return make_streams(seed, SHUFFLING, keys, pass_index, indices)


def split_keys(seed: np.uint64, keys: np.ndarray) -> np.ndarray:
    """Return the bits that decide each document's split: uint64, uniform, equal for equal texts."""
    return make_streams(seed, SPLITTING, keys, 0, np.zeros(len(keys), np.uint32))


def choice_keys(seed: np.uint64, keys: np.ndarray) -> np.ndarray:
    """Return the bits that decide how often a document of a mixture is used: uint64, uniform, equal for equal texts."""
    return make_streams(seed, CHOOSING, keys, 0, np.zeros(len(keys), np.uint32))


def sample_keys(seed: np.uint64, keys: np.ndarray) -> np.ndarray:
    """Return the bits that decide whether a document is in a sample: uint64, uniform, equal for equal texts."""
    return make_streams(seed, SAMPLING, keys, 0, np.zeros(len(keys), np.uint32))


@kernel
def make_streams(seed: np.uint64, purpose: int, keys: np.ndarray, pass_index: int, indices: np.ndarray) -> np.ndarray:
    """The state of a stream for each key and index: uint64."""
    out = np.empty(len(keys), np.uint64)
    for i in range(len(keys)):
        out[i] = stream(seed, purpose, keys[i], pass_index, indices[i])
    return out
