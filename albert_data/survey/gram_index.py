"""Look up hashes of n-grams among many: nearly all that are asked are not there.

    hash  ->  filter[upper bits]: 0 for most  ->  begins[upper bits]: some hashes in one cache line to compare

The filter is small, and its loads do not wait for each other. An index can be a file, which all workers map:

    u64  number of hashes | hashes | begins | filter          13 to 17 bytes a hash
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from albert_data.kernels import U64, helper, kernel

_FILTER_BITS = 5  # 32 to 64 bits of the filter a hash
_BEGIN_BITS = 3  # 4 to 8 hashes a begin
_6, _63, _1 = U64(6), U64(63), U64(1)


class GramIndex(NamedTuple):
    """hashes: uint64, ascending, each once.

    begins: int64, the first hash with each value of the bits from `shift` on, and the end
    filter: uint64, a bit for each value of the bits from `filter_shift` on: whether any hash has these
    """

    hashes: np.ndarray
    begins: np.ndarray
    shift: np.uint64
    filter: np.ndarray
    filter_shift: np.uint64

    @classmethod
    def take(cls, content: np.ndarray) -> GramIndex:
        """An index from its parts one after another, as in a file: uint64."""
        count = int(content[0])
        bits = _count_bits(count)
        begins_end = 2 + count + (1 << (bits - _BEGIN_BITS))
        return cls(
            hashes=content[1 : 1 + count],
            begins=content[1 + count : begins_end].view(np.int64),
            shift=U64(64 - bits + _BEGIN_BITS),
            filter=content[begins_end:],
            filter_shift=U64(64 - bits - _FILTER_BITS),
        )


def _count_bits(num_hashes: int) -> int:
    """The upper bits of a hash that are as many values as there are hashes, or up to twice as many."""
    return max(1 + _BEGIN_BITS, num_hashes.bit_length())


def sort_grams(hashes: np.ndarray) -> np.ndarray:
    """The distinct ones, ascending: np.unique takes twenty times as long (NumPy 2.4)."""
    hashes = np.sort(hashes)
    distinct: np.ndarray = hashes[np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)]]
    return distinct


def make_index(hashes: np.ndarray) -> np.ndarray:
    """The parts of an index, one after another. hashes: as `sort_grams` returns them."""
    bits = _count_bits(len(hashes))
    num_begins = (1 << (bits - _BEGIN_BITS)) + 1
    content = np.zeros(1 + len(hashes) + num_begins + (1 << (bits + _FILTER_BITS - 6)), np.uint64)
    content[0] = len(hashes)
    index = GramIndex.take(content)
    index.hashes[:] = hashes
    index.begins[:] = np.searchsorted(hashes >> index.shift, np.arange(num_begins, dtype=np.uint64))
    fill_filter(index)
    return content


def index_grams(hashes: np.ndarray) -> GramIndex:
    return GramIndex.take(make_index(hashes))


@kernel
def fill_filter(index: GramIndex) -> None:
    for value in index.hashes:
        bit = value >> index.filter_shift
        index.filter[bit >> _6] |= _1 << (bit & _63)


@helper
def find_gram(index: GramIndex, value: np.uint64) -> int:
    """The place of a hash; -1 if it is not there."""
    bit = value >> index.filter_shift
    if index.filter[bit >> _6] >> (bit & _63) & _1:
        bucket = value >> index.shift
        for at in range(index.begins[bucket], index.begins[bucket + _1]):
            if index.hashes[at] == value:
                return at
    return -1
