"""The shingles of documents: hashes of every few consecutive words, by which texts are compared.

In: documents of canonical text. Out: 32 bits for each shingle. The similarity of two documents is the Jaccard
similarity of their sets of shingles (Broder 1997): of all shingles that one of them has, the share that both have.

    "a rose is a rose is" -> "a rose is a rose", "rose is a rose is"

A word is what stands between white space. In scripts without spaces each character counts as a word, and a shingle that
begins with one has 7 of them instead of 5: then two texts share about as many by chance. Of all shingles, 2.4 % occur
again elsewhere in 1,300 chapters of English books, and 2.6 % in 1,495 of Chinese ones (6 characters: 6.2 %).
A document of fewer words is one shingle.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from albert_data.kernels import (
    U64,
    Pointer,
    count_trailing_zeros,
    find_bytes,
    helper,
    kernel,
    load_u64,
    multiply_and_fold,
    pointer,
    rarely,
)
from albert_data.kernels.draws import mix
from albert_data.text.character_bits import UNSPACED, character_properties
from albert_data.text.utf8 import read_character

SHINGLE_WORDS, SHINGLE_CHARACTERS = 5, 7
_PADDING = 64 + 8  # bytes after the text that may be read
# Sets of bytes as find_bytes takes them. All characters of scripts without spaces have three bytes or four: the first
# is 0xE0 or above.
_SPACES = (np.uint8(0), np.uint8(ord(" ")), np.uint8(1))
_LINE_FEEDS = (np.uint8(0), np.uint8(ord("\n")), np.uint8(1))
_LONG = (np.uint8(0), np.uint8(0xE0), np.uint8(0x20))
_0, _1, _32, _ALL = U64(0), U64(1), U64(32), U64(2**64 - 1)
_FACTOR, _STEP = U64(0x9E3779B97F4A7C15), U64(0xD6E8FEB86659FD93)  # odd, with about as many ones as zeros


@cache
def find_unspaced() -> np.ndarray:
    """Whether each code point belongs to a script without spaces: bool."""
    return (character_properties() & UNSPACED).astype(bool)


def pad_text(utf8: np.ndarray) -> np.ndarray:
    """The text with as many bytes behind it as `find_words` may read."""
    return np.append(utf8, np.zeros(_PADDING, np.uint8))


def hash_shingles(utf8: np.ndarray, document_bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The shingles of documents of canonical text, in order, copies included: uint32, and their offsets: int64.

    document_bounds: int64 [D + 1], in bytes.

    >>> text = b"a rose is a rose is a rose\\n"
    >>> shingles, _ = hash_shingles(np.frombuffer(text, np.uint8), np.array([0, len(text)]))
    >>> len(shingles), len(set(shingles.tolist()))  # "a rose is a rose" stands there twice
    (4, 3)
    """
    grams, offsets = hash_grams(utf8, document_bounds, SHINGLE_WORDS, SHINGLE_CHARACTERS)
    return (grams >> _32).astype(np.uint32), offsets


def hash_grams(
    utf8: np.ndarray, document_bounds: np.ndarray, num_words: int, num_characters: int
) -> tuple[np.ndarray, np.ndarray]:
    """The same with any number of words, and of characters where an n-gram begins with one: uint64, int64."""
    sizes = np.array([num_words, num_characters])
    powers = np.array([pow(int(_FACTOR), int(size), 2**64) for size in sizes], np.uint64)
    # A word has a byte at least, and white space after it; a character that counts as a word has three.
    most = int(np.diff(document_bounds).max(initial=0)) // 2 + 1
    values = np.empty(len(utf8) // 2 + len(document_bounds), np.uint64)
    words, is_character = np.empty(most, np.uint64), np.empty(most, np.bool_)
    offsets = fill_grams(pad_text(utf8), document_bounds, find_unspaced(), sizes, powers, words, is_character, values)
    return values[: offsets[-1]], offsets


@kernel
def fill_grams(
    utf8: np.ndarray,
    document_bounds: np.ndarray,
    is_unspaced: np.ndarray,
    sizes: np.ndarray,
    powers: np.ndarray,
    words: np.ndarray,
    is_character: np.ndarray,
    values: np.ndarray,
) -> np.ndarray:
    """Write the n-grams of all documents to `values`, and return their offsets.

    sizes, powers: of n-grams that begin with a word, and with a character: n, and _FACTOR to the power of n
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
            kind = int(is_character[word])
            stop = word + sizes[kind]
            if stop <= num_words:
                before = words[word - 1] * powers[kind] if word > 0 else _0
                values[count] = mix(words[stop - 1] - before + U64(stop - word))
                count += 1
        if count == first and num_words:
            values[count] = mix(words[num_words - 1] + U64(num_words))
            count += 1
        offsets[document + 1] = count
    return offsets


@helper
def find_words(
    text: Pointer, begin: int, end: int, is_unspaced: np.ndarray, words: np.ndarray, is_character: np.ndarray
) -> int:
    """Write the hash of each word of a document, and return how many there are. White space ends each."""
    count, has_long = 0, False
    for at in range(begin, end, 64):
        inside = _ALL if at + 64 <= end else (_1 << U64(end - at)) - _1
        ends = (find_bytes(text, at, *_SPACES) | find_bytes(text, at, *_LINE_FEEDS)) & inside
        long = find_bytes(text, at, *_LONG)
        while ends:
            lowest = ends & (~ends + _1)
            word_end = at + count_trailing_zeros(ends)
            if rarely(has_long or (long & (lowest - _1)) != _0):
                count = divide_word(text, begin, word_end, is_unspaced, words, is_character, count)
            elif word_end > begin:
                words[count], is_character[count] = hash_text(text, begin, word_end), False
                count += 1
            begin, has_long = word_end + 1, False
            long, ends = long & ~(lowest - _1), ends ^ lowest
        has_long = has_long or long != _0
    return count


@helper
def divide_word(
    text: Pointer,
    begin: int,
    end: int,
    is_unspaced: np.ndarray,
    words: np.ndarray,
    is_character: np.ndarray,
    count: int,
) -> int:
    """Write the hashes of what stands between two white spaces: words, and characters of scripts without spaces."""
    at = begin
    while at < end:
        code, after = read_character(text, at)
        if is_unspaced[code]:
            if at > begin:
                words[count], is_character[count] = hash_text(text, begin, at), False
                count += 1
            words[count], is_character[count] = hash_text(text, at, after), True
            count, begin = count + 1, after
        at = after
    if end > begin:
        words[count], is_character[count] = hash_text(text, begin, end), False
        count += 1
    return count


@helper
def hash_text(text: Pointer, begin: int, end: int) -> U64:
    """A hash of some bytes, eight at a time."""
    state = U64(end - begin) * _FACTOR
    while begin + 8 <= end:
        state = multiply_and_fold(state ^ load_u64(text, begin), _STEP)
        begin += 8
    if begin < end:
        rest = load_u64(text, begin) & ((_1 << U64(8 * (end - begin))) - _1)
        state = multiply_and_fold(state ^ rest, _STEP)
    return state
