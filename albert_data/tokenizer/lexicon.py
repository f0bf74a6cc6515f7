"""Words of languages without spaces, by a list of words and how often each occurs.

In: a word list, and token ids. Out: for each token, whether it belongs to the word of the token before it.
Text is divided into the words whose frequencies have the largest product, as jieba does with its dictionary
(`jieba.cut` without its model for unknown words). Of equally likely divisions that with the longest first word is
taken. In a list without frequencies all words are equally likely, so a division has as few words as possible. A
character with which no word begins is a word of its own.

The words are found in the text of the pieces, so all that is needed to mask rows anew is in the rows. A piece that
reaches over the end of a word belongs to both words.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from albert_data.errors import TokenizerError, readable
from albert_data.kernels import I64, Pointer, copy_items, helper, item, kernel, pointer, put
from albert_data.storage import make_path
from albert_data.storage.files import read_bytes
from albert_data.text.utf8 import step_back
from albert_data.tokenizer.chunks.trie import MAX_CHARACTERS, Trie, make_trie, point_to_trie, step
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE, is_unspaced

NO_WORDS, JIEBA = "none", "jieba"  # what a user may give instead of a path
WORDS_NAME = "words.txt"  # in a folder with its tokenizer
_MAX_BYTES = 32 << 20  # of a word list: that of jieba has 5 MB
_MAX_FREQUENCY = 1e15


class Lexicon(NamedTuple):
    """A word list for the V pieces of one vocabulary."""

    utf8: np.ndarray  # uint8, the text of each piece that is all in scripts without spaces, nothing of the others
    offsets: np.ndarray  # int64 [V + 1], where it begins
    is_first: np.ndarray  # bool [V], whether a piece begins with a space
    words: Trie  # with the logarithm of the share of each as its score
    unknown_score: float  # of a character with which no word begins

    def find_joined(self, ids: np.ndarray) -> np.ndarray:
        """Whether each token belongs to the word of the one before it: bool. ids: any number of rows."""
        joined = np.zeros(len(ids), np.bool_)
        mark_joined(ids, self, joined)
        return joined


def match_words(pieces: Sequence[str], frequencies: Mapping[str, float], normalise: Callable[[str], str]) -> Lexicon:
    """The lexicon of a word list for a vocabulary.

    pieces: what each is in text; frequencies: see `parse_words`; normalise: how the tokenizer sees text. Words that
    have other characters than those of scripts without spaces join nothing. Raises TokenizerError if no word is left.
    """
    found: dict[str, float] = {}
    for word, frequency in frequencies.items():
        text = normalise(word).replace(VISIBLE_SPACE, "")
        if text and all(map(is_unspaced, text)):
            found[text] = found.get(text, 0.0) + frequency
    if not found:
        raise TokenizerError(
            "the pieces spell no word of the word list in a script without spaces, such as Chinese or Thai; "
            "a line is a word, or a word, a space and how often it occurs"
        )
    texts = [
        text.encode() if all(map(is_unspaced, text := piece.removeprefix(VISIBLE_SPACE))) else b"" for piece in pieces
    ]
    log_total = math.log(sum(found.values()))
    return Lexicon(
        utf8=np.frombuffer(b"".join(texts), np.uint8),
        offsets=np.cumsum([0, *map(len, texts)], dtype=np.int64),
        is_first=np.array([piece.startswith(VISIBLE_SPACE) for piece in pieces]),
        words=make_trie(
            list(found),
            range(len(found)),
            [math.log(frequency) - log_total for frequency in found.values()],
            unk_id=0,
            vocab_size=len(found),
        ),
        unknown_score=-log_total,
    )


def read_words(name: str | os.PathLike[str]) -> bytes | None:
    """The content of a word list: of a file, of jieba's own dictionary for "jieba", or None for "none".

    Raises TokenizerError if it can't be read, or is no word list.
    """
    if name == NO_WORDS:
        return None
    path = _find_jieba() if name == JIEBA else make_path(name)
    with readable(f"word list {path}", f"give a file, {JIEBA}, or {NO_WORDS}", TokenizerError):
        content = read_bytes(path, _MAX_BYTES)
    parse_words(content, f"word list {path}")
    return content


def _find_jieba() -> Path:
    found = importlib.util.find_spec("jieba")  # imports nothing
    if found is None or found.origin is None:
        raise TokenizerError(
            f"--words {JIEBA} needs the library jieba; install it with: pip install 'albert-data[jieba]'"
        )
    return Path(found.origin).with_name("dict.txt")


def parse_words(content: bytes, name: str) -> dict[str, float]:
    """The words of a list and their frequencies, 1 where a line has none.

    A line is a word, or a word, a number and anything after it, as in jieba's dictionaries. The frequencies of a word
    that occurs twice are added. Raises TokenizerError with the number of the line.

    >>> parse_words("河 20\\n学习 5 v\\n河 1".encode(), "a list")
    {'河': 21.0, '学习': 5.0}
    """
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise TokenizerError(f"{name}: line {line} is not UTF-8; a word list is UTF-8, a word a line") from error
    frequencies: dict[str, float] = {}
    for number, text in enumerate(lines, 1):
        if not (fields := text.split(None, 2)):
            continue
        try:
            frequency = float(fields[1]) if len(fields) > 1 else 1.0
        except ValueError:
            frequency = math.nan
        if not 0 < frequency <= _MAX_FREQUENCY:
            raise TokenizerError(
                f"{name}: line {number} has {fields[1]!r} after the word; allowed is how often the word occurs, above 0"
            )
        frequencies[fields[0]] = frequencies.get(fields[0], 0.0) + frequency
    if not frequencies:
        raise TokenizerError(f"{name} has no words; a word list is UTF-8, a word a line")
    if sum(map(len, frequencies)) >= MAX_CHARACTERS:
        raise TokenizerError(f"{name} has over {MAX_CHARACTERS:,} characters; leave out rare words")
    return frequencies


@kernel
def mark_joined(ids: np.ndarray, lexicon: Lexicon, joined: np.ndarray) -> None:
    """Set `joined` where a token belongs to the word of the one before it."""
    offsets, trie, longest, end = lexicon.offsets, point_to_trie(lexicon.words), 0, 0
    while end < len(ids):
        begin, (end, num_bytes) = end, find_stretch(ids, end, lexicon)
        longest = max(longest, num_bytes)
    # A stretch of text; of each position the score of the text from there on, and where the word there ends.
    stretch, best, ends = np.empty(longest, np.uint8), np.empty(longest + 1), np.empty(longest + 1, np.int64)
    utf8, source, end = pointer(stretch), pointer(lexicon.utf8), 0
    while end < len(ids):
        begin, (end, _) = end, find_stretch(ids, end, lexicon)
        if end - begin < 2:
            continue
        filled = 0
        for token in range(begin, end):
            first, last = offsets[ids[token]], offsets[ids[token] + 1]
            copy_items(utf8, filled, source, first, last - first)
            filled += last - first
        divide(utf8, filled, trie, lexicon.unknown_score, pointer(best), pointer(ends))
        at = word = 0  # where the token begins, and a word
        for token in range(begin, end):
            while word < at:
                word = ends[word]
            joined[token] = word > at
            at += offsets[ids[token] + 1] - offsets[ids[token]]


@helper
def find_stretch(ids: np.ndarray, begin: int, lexicon: Lexicon) -> tuple[int, int]:
    """The end of the tokens from `begin` on that are without spaces, or begin + 1 if there is none; and their bytes."""
    num_bytes = 0
    for token in range(begin, len(ids)):
        piece = I64(ids[token])
        length = lexicon.offsets[piece + 1] - lexicon.offsets[piece]
        if length == 0 or (token > begin and lexicon.is_first[piece]):
            return max(token, begin + 1), num_bytes
        num_bytes += length
    return len(ids), num_bytes


@helper
def divide(utf8: Pointer, length: int, words: Trie, unknown_score: float, best: Pointer, ends: Pointer) -> None:
    """Fill in `ends`: for each character's position, where its word ends if a word begins there."""
    put(best, length, 0.0)
    start = length
    while start > 0:
        start = step_back(utf8, start)
        put(best, start, -np.inf)
        node, end = words.settings.root, start
        while end < length:
            node, word = step(words.entries, node, I64(item(utf8, end)))
            if node < 0:
                break
            end += 1
            if word >= 0:
                score = item(words.scores, word) + item(best, end)
                if score >= item(best, start):  # of equal scores that of the longest word
                    put(best, start, score)
                    put(ends, start, end)
        if item(best, start) == -np.inf:
            end = start + 1
            while end < length and item(utf8, end) & 0xC0 == 0x80:
                end += 1
            put(best, start, unknown_score + item(best, end))
            put(ends, start, end)
