"""Removes the marks that another program left between words, as in Chinese text that was divided into words.

In: text, and what stands between its words. Out: the text without it, as if it had never been divided. White space is
removed beside a character of a script without spaces or its punctuation only, because elsewhere it belongs to the text:
"我 用 New York 地图" becomes "我用New York地图". Any white space counts then, not only the named one, as all are one in
canonical text. At the ends of lines it stays, because it shows paragraphs. Any other mark is removed everywhere.
"""

from __future__ import annotations

import numpy as np

from albert_data.corpus.lines.white_space import skip_white
from albert_data.kernels import I64, Pointer, copy_items, helper, item, kernel, pointer
from albert_data.text.character_bits import UNSPACED, character_properties
from albert_data.text.utf8 import find_width, read_character, step_back


def remove_separators(data: bytes, ends: np.ndarray, separator: str) -> tuple[bytes, np.ndarray]:
    """The text without separators, and where its documents end now: int64.

    data: valid UTF-8. ends: int64, where documents end, rising; may be empty.
    """
    raw, marks = np.frombuffer(data, np.uint8), np.frombuffer(separator.encode(), np.uint8)
    kept, new_ends = copy_without(raw, ends, marks, separator.isspace(), character_properties())
    return kept.tobytes(), new_ends


@kernel
def copy_without(
    raw: np.ndarray, ends: np.ndarray, mark: np.ndarray, is_space: bool, properties: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Copy all but the marks; if they are white space, all but those beside a character of a script without spaces."""
    out, new_ends = np.empty(len(raw), np.uint8), np.empty(len(ends), np.int64)
    source, target = pointer(raw), pointer(out)
    at, filled, uncopied, num_ended = 0, 0, 0, 0  # `uncopied` is where the stretch that is yet to be copied begins
    while at < len(raw):
        begin, num_feeds = at, 0
        if is_space:
            at, num_feeds = skip_white(source, at, len(raw))
        while not is_space and starts_with(source, at, len(raw), mark):
            at += len(mark)
        if begin == at:
            at += find_width(item(source, at))
        elif not is_space or num_feeds == 0 and touches_unspaced(source, begin, at, len(raw), properties):
            copy_items(target, filled, source, uncopied, begin - uncopied)
            filled += begin - uncopied
            uncopied = at
        while num_ended < len(ends) and ends[num_ended] <= at:
            new_ends[num_ended] = filled + max(ends[num_ended] - uncopied, 0)
            num_ended += 1
    copy_items(target, filled, source, uncopied, at - uncopied)
    return out[: filled + at - uncopied], new_ends


@helper
def starts_with(text: Pointer, at: int, end: int, mark: np.ndarray) -> bool:
    is_same = at + len(mark) <= end
    for i in range(len(mark)):
        is_same = is_same and item(text, at + i) == mark[i]
    return is_same


@helper
def touches_unspaced(text: Pointer, begin: int, end: int, size: int, properties: np.ndarray) -> bool:
    """Whether the character before `begin` (there is none at 0), or from `end` on, is of a script without spaces."""
    if begin == 0 or properties[read_character(text, step_back(text, begin))[0]] & UNSPACED:
        return begin > 0
    return end < size and properties[I64(read_character(text, end)[0])] & UNSPACED != 0
