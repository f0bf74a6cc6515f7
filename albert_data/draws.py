"""Random numbers that depend on what they are for, never on when they are drawn.

A stream is a 64-bit state mixed from (seed, purpose, document key, pass, index); its i-th number is a
function of (stream, i) alone. So any worker, in any order, before or after a kill, draws the same.
The mixing is the finaliser of SplitMix64 (Steele, Lea and Flood 2014).
"""

from __future__ import annotations

import numpy as np

from albert_data.kernels import helper, kernel

# The purposes of streams: no two of them share a number.
SPLITTING = 1
PAIRING = 2
MASKING = 3
SHUFFLING = 4

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)


@helper
def mix(x: np.uint64) -> np.uint64:
    """Scatter 64 bits: a bijection in which every input bit reaches every output bit."""
    x = (x ^ (x >> _30)) * _MIX_A
    x = (x ^ (x >> _27)) * _MIX_B
    return x ^ (x >> _31)


@helper
def stream(seed: np.uint64, purpose: int, key: np.uint64, pass_index: int, index: int) -> np.uint64:
    """The state that all draws for one thing come from."""
    state = mix(np.uint64(seed) + _GOLDEN)
    state = mix(state ^ np.uint64(purpose)) + _GOLDEN
    state = mix(state ^ np.uint64(key)) + _GOLDEN
    state = mix(state ^ np.uint64(pass_index)) + _GOLDEN
    return mix(state ^ np.uint64(index))


@helper
def draw(state: np.uint64, counter: int) -> np.uint64:
    """Number `counter` of a stream: 64 random bits."""
    return mix(state + (np.uint64(counter) + np.uint64(1)) * _GOLDEN)


@helper
def below(bits: np.uint64, limit: int) -> np.int64:
    """A whole number in [0, limit), limit < 2**32; the bias is under limit / 2**32."""
    return np.int64(((bits >> _32) * np.uint64(limit)) >> _32)


def threshold(probability: float) -> np.uint64:
    """The bound under which 64 random bits fall with this probability; 1.0 only almost always."""
    return np.uint64(min(int(probability * 2.0**64), 2**64 - 1))


def shuffle_keys(seed: np.uint64, keys: np.ndarray, pass_index: int, indices: np.ndarray) -> np.ndarray:
    """The place of each example in the global shuffle: uint64, uniform."""
    out = np.empty(len(keys), np.uint64)
    fill_streams(seed, SHUFFLING, keys, pass_index, indices, out)
    return out


def split_keys(seed: np.uint64, keys: np.ndarray) -> np.ndarray:
    """The bits that send a document to training or validation: uint64, uniform, equal for equal texts."""
    out = np.empty(len(keys), np.uint64)
    fill_streams(seed, SPLITTING, keys, 0, np.zeros(len(keys), np.uint32), out)
    return out


@kernel
def fill_streams(
    seed: np.uint64, purpose: int, keys: np.ndarray, pass_index: int, indices: np.ndarray, out: np.ndarray
) -> None:
    """Write the state of a stream for each key and index."""
    for i in range(len(keys)):
        out[i] = stream(seed, purpose, keys[i], pass_index, indices[i])
