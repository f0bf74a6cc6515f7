"""Python's strings as UTF-8 in one buffer, a slice at a time.

A list's strings lie anywhere in memory, and waiting for them is most of what copying them takes. So the kernel asks for
each a few strings before it comes to it. It reads them by Python's own C functions, and so keeps Python's lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numba
import numpy as np

from albert_data.kernels import copy_items, kernel, pointer, pointer_at, prefetch
from albert_data.tokenizer.growing import with_room

_SLICE_STRINGS = 1 << 16
_AHEAD = 8  # strings
_LINES = 3  # cache lines that are asked for of each; the rest come by themselves

_types: Any = numba.types
_int = _types.intp
_get_string = _types.ExternalFunction("PyList_GetItem", _int(_int, _int))
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
    offsets, sizes = np.zeros(min(num_strings, _SLICE_STRINGS) + 1, np.int64), np.zeros(1, np.intp)
    while done < num_strings:
        count = copy_strings(id(texts), done, num_strings, utf8, len(utf8) - padding, offsets, sizes)
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
    texts: int, begin: int, end: int, utf8: np.ndarray, max_bytes: int, offsets: np.ndarray, sizes: np.ndarray
) -> int:
    """Copy the UTF-8 of a list's strings begin .. end - 1, up to the first that does not fit or has none.

    texts: the list's id; sizes: intp, one, to work in. Fills in `offsets`. Returns how many were copied.
    """
    out, size, filled, count = pointer(utf8), pointer(sizes), 0, 0
    while count < min(end - begin, len(offsets) - 1):
        at = begin + count
        if at + _AHEAD < end:
            ahead = pointer_at(out, _get_string(texts, at + _AHEAD))
            for line in range(_LINES):
                prefetch(ahead, 64 * line)
        string = _get_string(texts, at)  # 0 where the list has become shorter
        source = _get_utf8(string, size) if string else 0
        if source == 0 or filled + sizes[0] > max_bytes:
            break
        copy_items(out, filled, pointer_at(out, source), 0, sizes[0])
        filled += sizes[0]
        count += 1
        offsets[count] = filled
    _forget_error()
    return count
