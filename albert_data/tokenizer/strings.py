"""Python's strings as UTF-8 in one buffer, a slice at a time.

The strings of a list are scattered over memory, and Python keeps the UTF-8 of a string that is not ASCII elsewhere
again. Most of the time of copying would be spent waiting for memory. So the kernel prefetches each string 16 strings
before it copies it, and its UTF-8 eight before. It calls Python's own C functions, and therefore holds the GIL.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numba
import numpy as np

from albert_data.kernels import Pointer, copy_items, helper, kernel, pointer, pointer_at, prefetch
from albert_data.tokenizer.buffers import Sentences, grow

_SLICE_STRINGS = 1 << 16
_AHEAD = 8  # strings; a power of two
_LINES = 3  # cache lines of UTF-8 to prefetch; the processor itself fetches those after them

_types: Any = numba.types
_int = _types.intp
_get_item = _types.ExternalFunction("PyList_GetItem", _int(_int, _int))
_get_utf8 = _types.ExternalFunction("PyUnicode_AsUTF8AndSize", _int(_int, _types.CPointer(_int)))
_forget_error = _types.ExternalFunction("PyErr_Clear", _types.void())


def read_strings(texts: list[str], num_strings: int, size: int, padding: int) -> Iterator[Sentences]:
    """Yield the first `num_strings` strings in buffers with `padding` bytes after them.

    The strings of a part have at most `size` bytes, or there is only one. The arrays are valid until the next part
    is asked for. Raises TypeError for an item that is no string, UnicodeEncodeError for a surrogate, IndexError if the
    list has become shorter.
    """
    utf8, done = np.zeros(size + padding, np.uint8), 0
    offsets, ahead = np.zeros(min(num_strings, _SLICE_STRINGS) + 1, np.int64), np.zeros((_AHEAD, 2), np.intp)
    while done < num_strings:
        max_strings = min(num_strings - done, len(offsets) - 1)
        count = copy_strings(id(texts), done, max_strings, utf8[: len(utf8) - padding], offsets, ahead)
        if count:
            yield Sentences(utf8[: offsets[count] + padding], offsets[:count], offsets[1 : count + 1])
            done += count
        else:  # the next string has no UTF-8 or is too long
            text = texts[done]
            if not isinstance(text, str):
                raise TypeError(f"the texts hold {text!r:.80}, which is no string")
            utf8 = grow(utf8, padding + len(str.encode(text)))  # not by the method of a subclass


@partial(kernel, nogil=False)
def copy_strings(
    texts: int, begin: int, num_strings: int, utf8: np.ndarray, offsets: np.ndarray, ahead: np.ndarray
) -> int:
    """Copy the UTF-8 of a list's strings from number `begin` on, up to the first that does not fit or has none.

    texts: the list's address, which CPython's `id` gives; ahead: intp [_AHEAD, 2], scratch: the
    addresses and sizes of the UTF-8 of the next strings.
    Fills in `offsets`. Returns how many strings were copied.
    """
    out, filled, count = pointer(utf8), 0, 0
    # Three strings are handled in a step: string i + 8 is prefetched, the UTF-8 of string i is found and
    # prefetched, and string i - 8, whose entry in `ahead` string i takes over, is copied.
    for i in range(-_AHEAD, num_strings + _AHEAD):  # the first and the last steps handle fewer
        if i + _AHEAD < num_strings:
            prefetch(pointer_at(out, find_string(texts, begin + i + _AHEAD)), 0)  # `out` gives the pointer's type
        entry = i & (_AHEAD - 1)
        if i >= _AHEAD:
            # The string has no UTF-8, or does not fit: the caller continues with it.
            if ahead[entry, 0] == 0 or filled + ahead[entry, 1] > len(utf8):
                break
            copy_items(out, filled, pointer_at(out, ahead[entry, 0]), 0, ahead[entry, 1])
            filled += ahead[entry, 1]
            count += 1
            offsets[count] = filled
        if 0 <= i < num_strings:
            ahead[entry, 0] = find_utf8(find_string(texts, begin + i), pointer(ahead[entry, 1:]))
            for line in range(_LINES):
                prefetch(pointer_at(out, ahead[entry, 0]), 64 * line)
    return count


@helper
def find_string(texts: int, index: int) -> int:
    """The address of a list's item, 0 if the list has become shorter."""
    found: int = _get_item(texts, index)
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
