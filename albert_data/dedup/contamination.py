"""Documents that contain text of a benchmark, by n-grams of 13 words.

In: documents of canonical text. Out: 64-bit hashes of their n-grams, or which of them have one of a benchmark. Words
are those of shingles.py. In scripts without spaces each character counts as one, and an n-gram that begins with one has
18 of them: 7 to 5, as in shingles. A text of fewer words is one n-gram, so only a document that has no more than these
words is found by it.
"""

from __future__ import annotations

import numpy as np

from albert_data.dedup.gram_index import GramIndex, find_gram
from albert_data.dedup.shingles import find_unspaced, find_words, pad_text
from albert_data.draws import mix
from albert_data.kernels import U64, kernel, pointer

GRAM_WORDS, GRAM_CHARACTERS = 13, 18
_FACTOR = U64(0x9E3779B97F4A7C15)
_POWERS = tuple(U64(pow(int(_FACTOR), num_words, 2**64)) for num_words in (GRAM_WORDS, GRAM_CHARACTERS))


def hash_grams(utf8: np.ndarray, document_bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The n-grams of documents, in order: uint64, and their offsets: int64. document_bounds: int64 [D + 1], in bytes.

    >>> text = b"one two three\\n"
    >>> len(hash_grams(np.frombuffer(text, np.uint8), np.array([0, len(text)]))[0])
    1
    """
    most = int(np.diff(document_bounds).max(initial=0)) // 2 + 1  # words of a document
    values = np.empty(len(utf8) // 2 + len(document_bounds), np.uint64)
    scratch = np.empty(most, np.uint64), np.empty(most, np.bool_)
    offsets = fill_grams(pad_text(utf8), document_bounds, find_unspaced(), *scratch, values)
    return values[: offsets[-1]], offsets


def find_contaminated(utf8: np.ndarray, document_bounds: np.ndarray, index: GramIndex) -> np.ndarray:
    """Which documents have an n-gram of the index: bool [D]."""
    values, offsets = hash_grams(utf8, document_bounds)
    return find_documents(values, offsets, index)


@kernel
def fill_grams(
    utf8: np.ndarray,
    document_bounds: np.ndarray,
    is_unspaced: np.ndarray,
    words: np.ndarray,
    is_character: np.ndarray,
    values: np.ndarray,
) -> np.ndarray:
    """Write the n-grams of all documents to `values`, and return their offsets.

    words, is_character: scratch buffers for the words of one document, and whether each is a lone character.
    """
    text, offsets, count = pointer(utf8), np.zeros(len(document_bounds), np.int64), 0
    for document in range(len(document_bounds) - 1):
        begin, end = document_bounds[document], document_bounds[document + 1]
        num_words = find_words(text, begin, end, is_unspaced, words, is_character)
        for word in range(1, num_words):  # now each holds the hash of all words up to it
            words[word] += words[word - 1] * _FACTOR
        first = count
        for word in range(num_words):
            end, factor = (
                word + (GRAM_CHARACTERS if is_character[word] else GRAM_WORDS),
                _POWERS[int(is_character[word])],
            )
            if end <= num_words:
                before = words[word - 1] * factor if word > 0 else U64(0)
                values[count] = mix(words[end - 1] - before + U64(end - word))
                count += 1
        if count == first and num_words:
            values[count] = mix(words[num_words - 1] + U64(num_words))
            count += 1
        offsets[document + 1] = count
    return offsets


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
