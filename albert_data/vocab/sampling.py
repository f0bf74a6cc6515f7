"""A sample of distinct sentences that depends on the sentences alone, not on their order.

The sentences with the smallest hashes are kept, up to a number of bytes. A repeated sentence is kept once, and
sentences of equal hashes are kept or dropped together. Memory is bounded: twice that number, and what one `add` brings.
A sentence of over MAX_SENTENCE_BYTES counts as several: DNA, or Chinese without stops, may be one sentence a document.
"""

from __future__ import annotations

import re

import numpy as np

from albert_data.data import Text, slice_sentences
from albert_data.kernels import kernel
from albert_data.kernels.draws import mix
from albert_data.kernels.fnv import FNV_BASIS, add_byte

MAX_SENTENCE_BYTES = 4192  # SentencePiece's default
# As much as may be up to a space or the end; else up to the end of a character.
_PART = re.compile(rb"(?s)(.{1,%d})(?: |\Z)|(.{1,%d})(?![\x80-\xBF])" % (MAX_SENTENCE_BYTES, MAX_SENTENCE_BYTES))
_MAX_HASH = 2**64 - 1


class SentenceSample:
    """Keeps the distinct sentences of the smallest hashes, at most `max_bytes` of them.

    share: sentences with hashes above this share of the range are ignored. Unless `is_full`, too many were ignored
    limit: a sentence with a larger hash can't be in the sample any more
    """

    def __init__(self, max_bytes: int, share: float = 1.0) -> None:
        self.limit = self._first_limit = min(int(share * 2**64), _MAX_HASH)
        self._max_bytes, self._num_bytes = max_bytes, 0
        self._kept: dict[bytes, int] = {}

    def add(self, found: dict[bytes, int]) -> None:
        """Add sentences and their hashes."""
        for sentence, hashed in found.items():
            if hashed <= self.limit and sentence not in self._kept:
                self._kept[sentence] = hashed
                self._num_bytes += len(sentence)
        if self._num_bytes > 2 * self._max_bytes:
            self._trim()

    def _trim(self) -> None:
        ordered = sorted(self._kept, key=lambda sentence: (self._kept[sentence], sentence))
        total, end = 0, 0
        while end < len(ordered) and total + len(ordered[end]) <= self._max_bytes:
            total += len(ordered[end])
            end += 1
        if end < len(ordered):
            self.limit = self._kept[ordered[end]] - 1
            # The first sentence that does not fit may share its hash with some that do: they are dropped too.
            while end and self._kept[ordered[end - 1]] > self.limit:
                end -= 1
                total -= len(ordered[end])
        self._kept, self._num_bytes = {sentence: self._kept[sentence] for sentence in ordered[:end]}, total

    @property
    def is_full(self) -> bool:
        """Whether the ignored sentences could not have been in the sample."""
        self._trim()
        return self._first_limit == _MAX_HASH or self.limit < self._first_limit

    def sentences(self, max_passes: float = 1.0) -> list[bytes]:
        """The sample, in the order of the hashes; all sentences that there are up to max_passes times, if they fit."""
        self._trim()
        chosen = list(self._kept)
        if max_passes == 1 or self.limit < _MAX_HASH or not self._num_bytes:
            return chosen
        passes, rest = divmod(min(self._max_bytes, max_passes * self._num_bytes), self._num_bytes)
        num_more = int(np.searchsorted(np.cumsum(list(map(len, chosen))), rest, side="right"))
        return chosen * int(passes) + chosen[:num_more]


def select_sentences(text: Text, seed: int, limit: int) -> dict[bytes, int]:
    """The distinct sentences whose hash is at most `limit`, and their hashes."""
    begins, ends = _cut_long(text)
    hashes = hash_slices(text.utf8, begins, ends, np.uint64(seed))
    chosen = np.flatnonzero(hashes <= np.uint64(limit))
    sentences = slice_sentences(text.utf8, begins[chosen], ends[chosen])
    return dict(zip(sentences, hashes[chosen].tolist(), strict=True))


def _cut_long(text: Text) -> tuple[np.ndarray, np.ndarray]:
    """Begins and ends of sentences, first of those that are short enough, then of the parts of the others."""
    begins, ends = text.sentence_begins, text.sentence_ends
    is_long = ends - begins > MAX_SENTENCE_BYTES
    if not is_long.any():
        return begins, ends
    data, long = text.utf8.tobytes(), zip(begins[is_long].tolist(), ends[is_long].tolist(), strict=True)
    parts = np.array([one.span(one.lastindex or 0) for begin, end in long for one in _PART.finditer(data, begin, end)])
    return np.append(begins[~is_long], parts[:, 0]), np.append(ends[~is_long], parts[:, 1])


@kernel
def hash_slices(utf8: np.ndarray, begins: np.ndarray, ends: np.ndarray, seed: np.uint64) -> np.ndarray:
    """A seeded 64-bit hash of each slice: FNV-1a, its bits mixed."""
    out = np.empty(len(begins), np.uint64)
    for i in range(len(out)):
        state = FNV_BASIS
        for position in range(begins[i], ends[i]):
            state = add_byte(state, utf8[position])
        out[i] = mix(mix(state) ^ seed)  # the upper bits of FNV-1a hardly differ between short sentences
    return out
