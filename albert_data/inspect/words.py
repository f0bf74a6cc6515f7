"""The maskable words of a row, as those who read rows want them: where each begins and ends."""

from __future__ import annotations

import numpy as np

from albert_data.kernels import helper
from albert_data.tokenizer.words import begins_word


@helper
def find_words(
    ids: np.ndarray,
    begin: int,
    end: int,
    segment_a_len: int,
    is_special: np.ndarray,
    starts: np.ndarray,
    standalone: np.ndarray,
    word_begins: np.ndarray,
    word_ends: np.ndarray,
) -> tuple[int, int]:
    """Fill in the token ranges of a row's maskable words; returns their number and how many are of A.

    `examples.masks.begin_words` finds the same words faster, but not where they end.
    """
    count, count_a = 0, 0
    sep = begin + 1 + segment_a_len
    for segment in range(2):
        first, last = (begin + 1, sep) if segment == 0 else (sep + 1, end - 1)
        open_word = False
        for at in range(first, last):
            if is_special[ids[at]]:
                open_word = False
                continue
            if not open_word or begins_word(ids, at, first, starts, standalone):
                word_begins[count] = at
                count += 1
                open_word = True
            word_ends[count - 1] = at + 1
        if segment == 0:
            count_a = count
    return count, count_a
