"""A .json file as JSON lines: an array of objects or strings, objects one after another, or lines of them.

Objects one after another may have record separators before them, as RFC 7464 has them.

In: a stream of bytes. Out: a stream with a line for each element. A line feed inside an element becomes a space, which
changes nothing: a string can't hold one. A string, as an element, becomes the text field of an object. A line feed
inside a string is damage; there the next element begins, so that only one is lost.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import numpy as np

from albert_data.corpus.streams import join_parts
from albert_data.kernels import I64, item, kernel, pointer, put
from albert_data.text.ascii import CARRIAGE_RETURN, LINE_FEED, SPACE

_CHUNK = 1 << 20
_QUOTE, _BACKSLASH, _COMMA = b'"\\,'
_SEPARATOR = 0x1E  # before each record of a JSON text sequence (RFC 7464)
_OPEN_BRACE, _CLOSE_BRACE, _OPEN_BRACKET, _CLOSE_BRACKET = b"{}[]"


def as_json_lines(stream: io.BufferedIOBase, text_field: str) -> io.BufferedReader:
    """The stream of lines. text_field: the field that a string, as an element, becomes. Closing it closes `stream`."""
    return join_parts(_make_lines(stream, text_field), stream)


def _make_lines(stream: io.BufferedIOBase, text_field: str) -> Iterator[memoryview]:
    prefix, state = np.frombuffer(b'{%s:"' % json.dumps(text_field).encode(), np.uint8), np.zeros(4, np.int64)
    while data := stream.read1(_CHUNK):
        raw = np.frombuffer(data, np.uint8)
        # Each element may get a line feed, and each string also a prefix and a brace.
        out = np.empty(2 * len(raw) + data.count(b'"') * (len(prefix) + 2), np.uint8)
        yield out[: write_lines(raw, prefix, state, out)].data


@kernel
def write_lines(raw: np.ndarray, prefix: np.ndarray, state: np.ndarray, out: np.ndarray) -> int:
    """Write a part of a file (uint8) as lines to `out`, and return their bytes.

    state: int64, four values that are kept for the next part: the depth inside of an element, and whether the position
    is in the array of elements, in a string, and after a backslash. prefix: what replaces the quote that begins a
    string which is an element.
    """
    source, target, filled = pointer(raw), pointer(out), 0
    depth, is_in_array, is_in_string, is_escaped = state[0], state[1] != 0, state[2] != 0, state[3] != 0
    for at in range(len(raw)):
        byte = I64(item(source, at))
        is_end = False
        if is_in_string:
            if byte == LINE_FEED:  # damage
                depth, is_in_string, is_escaped = 0, False, False
            elif is_escaped:
                is_escaped = False
            elif byte == _BACKSLASH:
                is_escaped = True
            elif byte == _QUOTE:
                is_in_string, is_end = False, depth == 0
        elif byte == _QUOTE:
            is_in_string = True
            if depth == 0:
                for i in range(len(prefix) - 1):
                    put(target, filled + i, prefix[i])
                filled += len(prefix) - 1
        elif byte in (_OPEN_BRACE, _OPEN_BRACKET):
            if depth == 0 and byte == _OPEN_BRACKET and not is_in_array:
                is_in_array, byte = True, LINE_FEED
            else:
                depth += 1
        elif byte in (_CLOSE_BRACE, _CLOSE_BRACKET):
            if depth == 0 and byte == _CLOSE_BRACKET and is_in_array:
                is_in_array, byte = False, LINE_FEED
            elif depth > 0:
                depth -= 1
                is_end = depth == 0
        elif depth == 0 and ((byte == _COMMA and is_in_array) or byte == _SEPARATOR):
            byte = LINE_FEED
        elif depth > 0 and byte in (LINE_FEED, CARRIAGE_RETURN):
            byte = SPACE
        put(target, filled, byte)
        filled += 1
        if is_end:
            if byte == _QUOTE:
                put(target, filled, _CLOSE_BRACE)
                filled += 1
            put(target, filled, LINE_FEED)
            filled += 1
    state[0], state[1], state[2], state[3] = depth, is_in_array, is_in_string, is_escaped
    return filled
