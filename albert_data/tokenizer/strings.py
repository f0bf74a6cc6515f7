"""Python's strings as UTF-8 in one buffer, a slice at a time.

A list's strings lie anywhere in memory, the UTF-8 of those that are not ASCII elsewhere; waiting for them is most of
what copying them takes. So the kernel asks for each string, and then for its UTF-8, a few strings before it comes to
it. It reads them by Python's own C functions, and so keeps Python's lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numba
import numpy as np

from albert_data.kernels import Pointer, copy_items, helper, kernel, pointer, pointer_at, prefetch
from albert_data.tokenizer.growing import with_room

_SLICE_STRINGS = 1 << 16
_AHEAD = 8  # strings; a power of two
_LINES = 3  # cache lines of UTF-8 that are asked for; the rest come by themselves

_types: Any = numba.types
_int = _types.intp
_get_item = _types.ExternalFunction("PyList_GetItem", _int(_int, _int))
_get_utf8 = _types.ExternalFunction("PyUnicode_AsUTF8AndSize", _int(_int, _types.CPointer(_int)))
_forget_error = _types.ExternalFunction("PyErr_Clear", _types.void())


def read_strings(
    texts: list[str], num_strings: int, size: int, padding: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield UTF-8 (uint8) of some strings and `padding` bytes behind them, and offsets (int64) in it.

    There are `size` bytes of strings or less, more if one has more. Both arrays are good until the next are asked for.
    Raises TypeError for what is no string, UnicodeEncodeError for a surrogate, IndexError where the list has become
    shorter.
    """
    utf8, done = np.zeros(size + padding, np.uint8), 0
    offsets, ahead = np.zeros(min(num_strings, _SLICE_STRINGS) + 1, np.int64), np.zeros((_AHEAD, 2), np.intp)
    while done < num_strings:
        count = copy_strings(id(texts), done, num_strings, utf8, len(utf8) - padding, offsets, ahead)
        if count:
            yield utf8[: offsets[count] + padding], offsets[: count + 1]
            done += count
        else:
            utf8 = with_room(utf8, padding + len(encode_alone(texts[done])))


def encode_alone(text: str) -> bytes:
    """UTF-8 of a string that copy_strings could not copy: it has none, or too much."""
    if not isinstance(text, str):
        raise TypeError(f"the texts hold {text!r:.80}, which is no string")
    return str.encode(text)  # not what its class may have in that place


@partial(kernel, nogil=False)
def copy_strings(
    texts: int, begin: int, end: int, utf8: np.ndarray, max_bytes: int, offsets: np.ndarray, ahead: np.ndarray
) -> int:
    """Copy the UTF-8 of a list's strings begin .. end - 1, up to the first that does not fit or has none.

    texts: the list's id; ahead: intp [_AHEAD, 2], to work in. Fills in `offsets`. Returns how many were copied.
    """
    out, filled, count, num_strings = pointer(utf8), 0, 0, min(end - begin, len(offsets) - 1)
    for number in range(-_AHEAD, num_strings + _AHEAD):
        if number + _AHEAD < num_strings:
            prefetch(pointer_at(out, find_string(texts, begin + number + _AHEAD)), 0)
        if number < 0:
            continue
        at = number & (_AHEAD - 1)
        if number >= _AHEAD:  # the string _AHEAD before
            if ahead[at, 0] == 0 or filled + ahead[at, 1] > max_bytes:
                break
            copy_items(out, filled, pointer_at(out, ahead[at, 0]), 0, ahead[at, 1])
            filled += ahead[at, 1]
            count += 1
            offsets[count] = filled
        if number < num_strings:
            ahead[at, 0] = find_utf8(find_string(texts, begin + number), pointer(ahead[at, 1:]))
            for line in range(_LINES):
                prefetch(pointer_at(out, ahead[at, 0]), 64 * line)
    return count


@helper
def find_string(texts: int, at: int) -> int:
    """The address of a list's item, 0 where the list has become shorter."""
    found: int = _get_item(texts, at)
    if found == 0:
        _forget_error()
    return found


@helper
def find_utf8(string: int, size: Pointer) -> int:
    """The address of a string's UTF-8, 0 if it has none."""
    found: int = _get_utf8(string, size) if string else 0
    if found == 0:
        _forget_error()
    return found
