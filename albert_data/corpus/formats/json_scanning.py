"""Find the text field of a JSON object without building the object.

For lines that json.loads refuses, because of deep nesting or long integers, or for which it needs much memory:
json.loads builds a Python object for each value, thirty times the bytes of nested objects. Apart from these limits the
scanner accepts what json.loads accepts (NaN and Infinity, too). It keeps one bit for each open bracket, and the
position of the field's value; of equal fields the last counts.
"""

from __future__ import annotations

import numpy as np

from albert_data.ascii import (
    CARRIAGE_RETURN,
    CASE_BIT,
    DIGIT_0,
    FULL_STOP,
    HYPHEN_MINUS,
    LINE_FEED,
    SPACE,
    TAB,
    is_digit,
)
from albert_data.kernels import I64, U64, Pointer, helper, item, kernel, pointer, put
from albert_data.utf8 import read_character

# Kinds of values. NOTHING: a line without a value, or an object without the field. WRONG: no JSON.
NOTHING, WRONG, STRING, OBJECT, ARRAY, NUMBER, INTEGER, TRUTH, NULL = range(9)
_NAMES = {
    STRING: "str",
    OBJECT: "dict",
    ARRAY: "list",
    NUMBER: "float",
    INTEGER: "int",
    TRUTH: "bool",
    NULL: "NoneType",
}

# What must come next: a comma or the closing bracket; a value; a key; a value or `]`; a key or `}`.
_NEXT, _VALUE, _KEY, _FIRST_VALUE, _FIRST_KEY = range(5)
_TRUE, _FALSE, _NULL, _NAN, _INFINITY = (
    U64(int.from_bytes(name, "little")) for name in (b"true", b"false", b"null", b"NaN", b"Infinity")
)


def name_kind(kind: int) -> str:
    """The name of the type that json.loads makes of such a value."""
    return _NAMES[kind]


def scan(line: np.ndarray, field: str) -> tuple[int, int, int, int]:
    """Find a field of a JSON object (uint8, UTF-8).

    Returns the kind of the line (NOTHING if it is white space), the kind of the field's value (NOTHING if it is
    missing), and where the content of that value begins and ends: of a string without its quotes, of an object with its
    brackets. For a WRONG line both are the position of the error.
    """
    codes = np.array([ord(character) for character in field], np.int64)
    kind, value, begin, end = scan_object(line, codes, np.zeros(len(line) // 8 + 1, np.uint8))
    return int(kind), int(value), int(begin), int(end)


def find_field(line: np.ndarray, name: str) -> tuple[int, np.ndarray]:
    """The kind and the content of a field of a valid JSON object; points in the name lead into its objects."""
    _, kind, begin, end = scan(line, name)
    if kind != NOTHING or "." not in name:
        return kind, line[begin:end]
    kind, content = OBJECT, line
    for part in name.split("."):
        if kind != OBJECT:
            return NOTHING, content[:0]
        _, kind, begin, end = scan(content, part)
        content = content[begin:end]
    return kind, content


def read_string(content: np.ndarray) -> tuple[bytes, int]:
    """The UTF-8 of a string's content (uint8), lone surrogates as U+FFFD; and the first of these surrogates, or 0."""
    out = np.empty(len(content), np.uint8)
    length, lone = unescape_string(content, out)
    return out[:length].tobytes(), int(lone)


_QUOTE, _BACKSLASH, _SLASH, _COMMA, _COLON, _PLUS = b'"\\/,:+'
_OPEN_BRACE, _CLOSE_BRACE, _OPEN_BRACKET, _CLOSE_BRACKET = b"{}[]"
_A, _B, _E, _F, _N, _R, _T, _U = b"abefnrtu"


@helper
def read_hex(raw: Pointer, at: int, size: int) -> int:
    """The value of four hexadecimal digits; -1 if the four characters are not such digits."""
    if at + 4 > size:
        return -1
    code = 0
    for i in range(at, at + 4):
        byte = I64(item(raw, i))
        if is_digit(byte):
            digit = byte - DIGIT_0
        elif _A <= byte | CASE_BIT <= _F:
            digit = (byte | CASE_BIT) - _A + 10
        else:
            return -1
        code = code << 4 | digit
    return code


@helper
def unescape(byte: int) -> int:
    """The character that a backslash and this byte stand for; -1 if they are no escape, or begin a code (`\\u0041`)."""
    if byte in (_QUOTE, _BACKSLASH, _SLASH):
        return byte
    if byte == _B:
        return 0x08
    if byte == _F:
        return 0x0C
    if byte == _N:
        return LINE_FEED
    if byte == _R:
        return CARRIAGE_RETURN
    return TAB if byte == _T else -1


@helper
def read_escape(raw: Pointer, at: int, size: int) -> tuple[int, int]:
    """The code point of the escape at a backslash, and its length: 2, 6, or 12 for two surrogates."""
    byte = I64(item(raw, at + 1))
    if byte != _U:
        return unescape(byte), 2
    code = read_hex(raw, at + 2, size)
    if 0xD800 <= code <= 0xDBFF and at + 12 <= size and item(raw, at + 6) == _BACKSLASH and item(raw, at + 7) == _U:
        low = read_hex(raw, at + 8, size)
        if 0xDC00 <= low <= 0xDFFF:
            return 0x10000 + ((code - 0xD800) << 10 | low - 0xDC00), 12
    return code, 6


@helper
def skip_string(raw: Pointer, at: int, size: int) -> int:
    """Where a string's content, which begins at `at`, ends with the closing quote; or `-1 - position` at an error."""
    while at < size:
        byte = I64(item(raw, at))
        if byte == _QUOTE:
            return at
        if byte < SPACE:  # controls must be escaped
            break
        if byte == _BACKSLASH:
            if at + 1 >= size:
                break
            code, length = read_escape(raw, at, size)
            if code < 0:
                break
            at += length
        else:
            at += 1
    return -1 - at


@helper
def is_field(raw: Pointer, at: int, end: int, codes: Pointer, num_codes: int) -> bool:
    """Whether the content of a valid string is the field's name. codes: its code points."""
    for i in range(num_codes):
        if at >= end:
            return False
        if item(raw, at) == _BACKSLASH:
            code, length = read_escape(raw, at, end)
            at += length
        else:
            code, at = read_character(raw, at)
        if code != item(codes, i):
            return False
    return at == end


@helper
def skip_digits(raw: Pointer, at: int, size: int) -> int:
    while at < size and is_digit(item(raw, at)):
        at += 1
    return at


@helper
def skip_number(raw: Pointer, at: int, size: int) -> tuple[int, int]:
    """Where a number ends, -1 if there is none, and its kind.

    It ends where it would no longer be a number: 012 is the number 0 and an error at the 1; 1.x is 1 and an error at
    the point.
    """
    begin = at + 1 if item(raw, at) == HYPHEN_MINUS else at
    at = skip_digits(raw, begin, size)
    if at == begin:
        return -1, NUMBER
    if item(raw, begin) == DIGIT_0:
        at = begin + 1
    kind = INTEGER
    if at < size and item(raw, at) == FULL_STOP:
        after = skip_digits(raw, at + 1, size)
        if after > at + 1:
            at, kind = after, NUMBER
    if at < size and item(raw, at) | CASE_BIT == _E:
        begin = at + 1
        if begin < size and item(raw, begin) in (_PLUS, HYPHEN_MINUS):
            begin += 1
        after = skip_digits(raw, begin, size)
        if after > begin:
            at, kind = after, NUMBER
    return at, kind


@helper
def has_name(raw: Pointer, at: int, size: int, name: U64, length: int) -> bool:
    """Whether a name of up to eight letters is at a position. name: its letters, the first in the lowest byte."""
    if at + length > size:
        return False
    found = U64(0)
    for i in range(length):
        found |= U64(item(raw, at + i)) << U64(8 * i)
    return bool(found == name)


@helper
def skip_name(raw: Pointer, at: int, size: int) -> tuple[int, int]:
    """Where true, false, null, NaN, Infinity or -Infinity ends, -1 if there is none of them, and its kind."""
    if has_name(raw, at, size, _TRUE, 4):
        return at + 4, TRUTH
    if has_name(raw, at, size, _FALSE, 5):
        return at + 5, TRUTH
    if has_name(raw, at, size, _NULL, 4):
        return at + 4, NULL
    if has_name(raw, at, size, _NAN, 3):
        return at + 3, NUMBER
    begin = at + 1 if item(raw, at) == HYPHEN_MINUS else at
    return begin + 8 if has_name(raw, begin, size, _INFINITY, 8) else -1, NUMBER


@helper
def skip_scalar(raw: Pointer, at: int, size: int) -> tuple[int, int]:
    """Where a number or a name ends, and its kind; `-1 - at` if there is none."""
    after, kind = skip_number(raw, at, size)
    if after < 0:
        after, kind = skip_name(raw, at, size)
    return after if after > 0 else -1 - at, kind


@helper
def skip_white(raw: Pointer, at: int, size: int) -> int:
    """Skip the white space of JSON, which has neither form feed nor vertical tab."""
    while at < size and item(raw, at) in (SPACE, LINE_FEED, CARRIAGE_RETURN, TAB):
        at += 1
    return at


@helper
def skip_key(raw: Pointer, at: int, size: int) -> tuple[int, int]:
    """Where the content of a key ends, and the position after its colon; the second is `-1 - position` at an error."""
    last = skip_string(raw, at + 1, size) if item(raw, at) == _QUOTE else -1 - at
    if last < 0:
        return last, last
    colon = skip_white(raw, last + 1, size)
    return last, colon + 1 if colon < size and item(raw, colon) == _COLON else -1 - colon


@helper
def skip_value(raw: Pointer, at: int, size: int) -> tuple[int, int, int]:
    """The kind of a value, where its content ends (`-1 - position` at an error), and the position after it.

    Of an object or array only the opening bracket is skipped.
    """
    byte = I64(item(raw, at))
    if byte in (_OPEN_BRACE, _OPEN_BRACKET):
        return OBJECT if byte == _OPEN_BRACE else ARRAY, at, at + 1
    if byte == _QUOTE:
        last = skip_string(raw, at + 1, size)
        return STRING, last, last + 1
    last, kind = skip_scalar(raw, at, size)
    return kind, last, last


@helper
def open_bracket(brackets: Pointer, depth: int, is_object: bool) -> None:
    """Write the bit of a bracket inside of `depth` others."""
    bits, bit = I64(item(brackets, depth >> 3)), 1 << (depth & 7)
    put(brackets, depth >> 3, bits | bit if is_object else bits & ~bit)


@helper
def is_in_object(brackets: Pointer, depth: int) -> bool:
    """Whether the innermost of `depth` brackets is one of an object."""
    return depth > 0 and item(brackets, (depth - 1) >> 3) >> ((depth - 1) & 7) & 1 == 1


@kernel
def scan_object(line: np.ndarray, field: np.ndarray, bracket_bits: np.ndarray) -> tuple[int, int, int, int]:
    """What `scan` returns.

    field: int64, the code points of its name; bracket_bits: uint8, scratch, a bit for each byte of the line: bit d is
    set if the open bracket inside of d others is one of an object.
    """
    raw, size, brackets, codes = pointer(line), len(line), pointer(bracket_bits), pointer(field)
    depth, expected, is_ours, is_open = 0, _VALUE, False, False  # is_open: inside of the field's object or array
    line_kind, kind, begin, end = NOTHING, NOTHING, 0, 0
    at = skip_white(raw, 0, size)
    while at < size:
        byte, after = I64(item(raw, at)), at + 1
        if expected == _NEXT:
            is_object = is_in_object(brackets, depth)
            if depth > 0 and byte == _COMMA:
                expected = _KEY if is_object else _VALUE
            elif depth > 0 and byte == (_CLOSE_BRACE if is_object else _CLOSE_BRACKET):
                depth -= 1
                if is_open and depth == 1:
                    end, is_open = after, False
            else:
                return WRONG, NOTHING, at, at
        elif expected >= _FIRST_VALUE and byte == (_CLOSE_BRACE if is_in_object(brackets, depth) else _CLOSE_BRACKET):
            depth, expected = depth - 1, _NEXT  # [] or {}
            if is_open and depth == 1:
                end, is_open = after, False
        elif expected in (_KEY, _FIRST_KEY):
            last, after = skip_key(raw, at, size)
            if after < 0:
                return WRONG, NOTHING, -1 - after, -1 - after
            is_ours, expected = depth == 1 and is_field(raw, at + 1, last, codes, len(field)), _VALUE
        else:
            found, last, after = skip_value(raw, at, size)
            if last < 0:
                return WRONG, NOTHING, -1 - last, -1 - last
            if depth == 0:
                line_kind = found
            elif is_ours:
                is_open = found in (OBJECT, ARRAY)
                kind, begin, end, is_ours = found, at if is_open else at + 1, last, False
            expected = _NEXT
            if found in (OBJECT, ARRAY):
                open_bracket(brackets, depth, found == OBJECT)
                depth, expected = depth + 1, _FIRST_KEY if found == OBJECT else _FIRST_VALUE
        at = skip_white(raw, after, size)
    # The line ends after its value, or it is white space.
    if expected == _NEXT and depth == 0 or expected == _VALUE and line_kind == NOTHING:
        return line_kind, kind, begin, end
    return WRONG, NOTHING, size, size


@kernel
def unescape_string(raw: np.ndarray, out: np.ndarray) -> tuple[int, int]:
    """Write the UTF-8 of a valid string's content, and return its length and the first lone surrogate, or 0.

    raw, out: uint8, of one length; an escape is never shorter than its UTF-8. A lone surrogate becomes U+FFFD.
    """
    source, target = pointer(raw), pointer(out)
    at, filled, lone = 0, 0, 0
    while at < len(raw):
        byte = item(source, at)
        if byte != _BACKSLASH:
            put(target, filled, byte)
            at, filled = at + 1, filled + 1
            continue
        code, length = read_escape(source, at, len(raw))
        at += length
        if 0xD800 <= code <= 0xDFFF:
            lone, code = lone if lone > 0 else code, 0xFFFD
        if code < 0x80:
            put(target, filled, code)
            filled += 1
            continue
        width = 2 + (code >= 0x800) + (code >= 0x10000)
        # 0xF00 >> width has as many high bits set in its lowest byte as the character has bytes: 0xC0, 0xE0, 0xF0.
        put(target, filled, (0xF00 >> width & 0xFF) | code >> 6 * (width - 1))
        for i in range(1, width):
            put(target, filled + i, 0x80 | code >> 6 * (width - 1 - i) & 0x3F)
        filled += width
    return filled, lone
