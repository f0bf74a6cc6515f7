"""Sentences with the space before each, for a tokenizer that reads it as a part of the next word.

Such are byte-level BPE tokenizers without `add_prefix_space`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from albert_data.ascii import LINE_FEED, SPACE
from albert_data.character_bits import ALPHA, UNSPACED, character_properties
from albert_data.data import Text
from albert_data.kernels import I64, Pointer, helper, item, kernel, pointer
from albert_data.utf8 import read_character, step_back


def include_spaces(text: Text) -> Text:
    """The same sentences, each with the space before it: for a tokenizer that reads it as a part of the next word.

    The first sentence of a document has none, nor has one that follows the one before it without white space. A line
    end counts as a space, except between scripts without spaces: where the nearest letters on both sides, or the
    nearest marks such as "。", are of one.
    """
    is_first = np.zeros(len(text.sentence_begins) + 1, bool)
    is_first[text.document_offsets] = True
    found = find_spaces(text.utf8, text.sentence_begins, text.sentence_ends, is_first, character_properties())
    utf8, begins = text.utf8.copy(), text.sentence_begins - found
    utf8[begins[found]] = SPACE  # some are line feeds
    return replace(text, utf8=utf8, sentence_begins=begins)


@helper
def begins_unspaced(utf8: Pointer, at: int, end: int, properties: Pointer) -> bool:
    """Whether the first letter, or mark of a script without spaces, is of such a script."""
    while at < end:
        code, at = read_character(utf8, at)
        found = I64(item(properties, code))
        if found & (ALPHA | UNSPACED):
            return bool(found & UNSPACED)
    return False


@helper
def ends_unspaced(utf8: Pointer, begin: int, end: int, properties: Pointer) -> bool:
    """The same of the last one."""
    while end > begin:
        end = step_back(utf8, end)
        found = I64(item(properties, read_character(utf8, end)[0]))
        if found & (ALPHA | UNSPACED):
            return bool(found & UNSPACED)
    return False


@kernel
def find_spaces(
    utf8: np.ndarray, begins: np.ndarray, ends: np.ndarray, is_first: np.ndarray, properties: np.ndarray
) -> np.ndarray:
    """Whether a space stands before each sentence, as in `include_spaces`: bool. is_first: of its document."""
    found, source, table = np.zeros(len(begins), np.bool_), pointer(utf8), pointer(properties)
    for i in range(len(begins)):
        if not is_first[i]:
            before = item(source, begins[i] - 1)
            found[i] = before == SPACE or (
                before == LINE_FEED
                and not (
                    ends_unspaced(source, begins[i - 1], ends[i - 1], table)
                    and begins_unspaced(source, begins[i], ends[i], table)
                )
            )
    return found
