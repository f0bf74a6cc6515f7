"""The words of decoded text, by which a kernel measures spans and words are counted, however they were masked."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from albert_data.shards.decoding import find_byte_pieces
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE
from albert_data.tokenizer.words import NEVER, judge_piece


class WordArrays(NamedTuple):
    """How pieces form words, as in WordRule: one value for each piece."""

    is_apart: np.ndarray  # bool, no part of a word: a special piece, or white space alone
    starts: np.ndarray
    standalone: np.ndarray
    num_inside: np.ndarray  # int64, words that begin inside the piece


@lru_cache(maxsize=2)  # 0.14 s for 30,000 pieces, and asked for by several readers of a split
def find_text_words(tokenizer: Tokenizer) -> WordArrays:
    """Judge each piece by its text, decoded between two letters."""
    decode, texts, is_shown = tokenizer.decode, list(tokenizer.piece_texts), ~find_byte_pieces(tokenizer)
    is_shown[tokenizer.unk_id] = False
    letters = (i for i in tokenizer.ordinary_ids.tolist() if texts[i].isalpha())
    letter = next((i for i in letters if decode([i] * 3) == decode([i] * 2) + texts[i]), None)
    if letter is not None:  # else no piece continues a word
        first, last = decode([letter]), texts[letter]
        for i in np.flatnonzero(is_shown).tolist():
            texts[i] = decode([letter, i, letter])[len(first) : -len(last)].replace(" ", VISIBLE_SPACE)
    num_words = np.array([len(text.replace(VISIBLE_SPACE, " ").split()) for text in texts])
    starts, standalone = np.array([judge_piece(text) for text in texts], np.int8).T.copy()
    is_blank = num_words == 0
    starts[is_blank], standalone[is_blank] = NEVER, 1
    is_apart = tokenizer.specials.is_special | is_blank
    return WordArrays(is_apart, starts, standalone, np.maximum(num_words, 1) - 1)


def count_words(ids: np.ndarray, offsets: np.ndarray, words: WordArrays, joined: np.ndarray) -> np.ndarray:
    """The words of each row: int64 [rows].

    ids, offsets: of rows before masking, each with [CLS] in front; joined: see `WordRule.find_joined`
    """
    is_apart = words.is_apart[ids]
    begins = np.append(False, words.starts[ids[1:]] + words.standalone[ids[:-1]] > 0)
    if len(joined):
        begins &= ~joined
    begins[1:] |= is_apart[:-1]
    counts = np.where(is_apart, 0, begins + words.num_inside[ids])
    return np.diff(np.append(0, np.cumsum(counts))[offsets])
