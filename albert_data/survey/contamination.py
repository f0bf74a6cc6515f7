"""Documents that contain text of a benchmark, by n-grams of 13 words.

In: documents of canonical text. Out: 64-bit hashes of their n-grams, or which of them have one of a benchmark. Words
are those of shingles.py. In scripts without spaces each character counts as one, and an n-gram that begins with one has
18 of them, in the proportion of a shingle's 7 to 5. A text of fewer words is one n-gram, so only a document that has no
more than these words is found by it.
"""

from __future__ import annotations

import numpy as np

from albert_data.kernels import kernel
from albert_data.survey import shingles
from albert_data.survey.gram_index import GramIndex, find_gram

GRAM_WORDS, GRAM_CHARACTERS = 13, 18


def hash_grams(utf8: np.ndarray, document_bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The n-grams of documents, in order: uint64, and their offsets: int64. document_bounds: int64 [D + 1], in bytes.

    >>> text = b"one two three\\n"
    >>> len(hash_grams(np.frombuffer(text, np.uint8), np.array([0, len(text)]))[0])
    1
    """
    return shingles.hash_grams(utf8, document_bounds, GRAM_WORDS, GRAM_CHARACTERS)


def find_contaminated(utf8: np.ndarray, document_bounds: np.ndarray, index: GramIndex) -> np.ndarray:
    """Which documents have an n-gram of the index: bool [D]."""
    values, offsets = hash_grams(utf8, document_bounds)
    return find_documents(values, offsets, index)


@kernel
def find_documents(values: np.ndarray, offsets: np.ndarray, index: GramIndex) -> np.ndarray:
    """For each list of hashes, whether one of them is in the index: bool."""
    is_found = np.zeros(len(offsets) - 1, np.bool_)
    for document in range(len(is_found)):
        for at in range(offsets[document], offsets[document + 1]):
            if find_gram(index, values[at]) >= 0:
                is_found[document] = True
                break
    return is_found
