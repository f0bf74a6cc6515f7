"""Find the text field of a JSON object without building the object.

For lines that json.loads refuses, or reads at a high price: it builds a Python object of every value, which takes
thirty times the bytes of nested objects, and it refuses deep nesting and long integers. The scanner accepts what
json.loads accepts otherwise (NaN and Infinity too), keeps one bit for each open bracket, and notes where the field's
value stands; of equal fields the last counts.
"""

from __future__ import annotations

import numpy as np

from albert_data.kernels import I64, U64, Pointer, helper, item, kernel, pointer, put

# Kinds of values; also what is found: NOTHING for a line without a value or a field, WRONG for no JSON.
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

# What may come next.
_NEXT, _VALUE, _KEY, _FIRST_VALUE, _FIRST_KEY = range(5)
_TRUE, _FALSE, _NULL, _NAN, _INFINITY = (
    U64(int.from_bytes(name, "little")) for name in (b"true", b"false", b"null", b"NaN", b"Infinity")
)


def name_kind(kind: int) -> str:
    """Python's type of what json.loads makes of such a value."""
    return _NAMES[kind]


def scan(line: np.ndarray, field: str) -> tuple[int, int, int, int]:
    """Find a field of a JSON object (uint8, UTF-8).

    Returns the kind of the line, NOTHING for one of white space, WRONG for no JSON; the kind of the field's value,
    NOTHING where it is missing; where the content of that begins and ends, or, of a WRONG line, where the error is.
    """
    codes = np.array([ord(character) for character in field], np.int64)
    kind, value, begin, end = scan_object(line, codes, np.zeros(len(line) // 8 + 1, np.uint8))
    return int(kind), int(value), int(begin), int(end)


def read_string(content: np.ndarray) -> tuple[bytes, int]:
    """The UTF-8 of a string's content (uint8), and the first lone surrogate in it, or 0: these become U+FFFD."""
    out = np.empty(len(content), np.uint8)
    length, lone = unescape_string(content, out)
    return out[:length].tobytes(), int(lone)


@helper
def read_hex(raw: Pointer, at: int, size: int) -> int:
    """The value of four hexadecimal digits; -1 for what is none."""
    if at + 4 > size:
        return -1
    code = 0
    for i in range(at, at + 4):
        byte = I64(item(raw, i))
        if 48 <= byte <= 57:
            digit = byte - 48
        elif 97 <= byte | 32 <= 102:
            digit = (byte | 32) - 87
        else:
            return -1
        code = code << 4 | digit
    return code


@helper
def unescape(byte: int) -> int:
    """What the character after a backslash stands for; -1 if it may not stand there, or for the u of a code."""
    if byte == 34 or byte == 92 or byte == 47:
        return byte
    if byte == 98:
        return 8
    if byte == 102:
        return 12
    if byte == 110:
        return 10
    if byte == 114:
        return 13
    return 9 if byte == 116 else -1


@helper
def read_code(raw: Pointer, at: int, size: int) -> tuple[int, int]:
    """The code point of an escape whose backslash stands at `at`, and its length: 2, 6, or 12 for two surrogates."""
    byte = I64(item(raw, at + 1))
    if byte != 117:
        return unescape(byte), 2
    code = read_hex(raw, at + 2, size)
    if 0xD800 <= code <= 0xDBFF and at + 12 <= size and item(raw, at + 6) == 92 and item(raw, at + 7) == 117:
        low = read_hex(raw, at + 8, size)
        if 0xDC00 <= low <= 0xDFFF:
            return 0x10000 + ((code - 0xD800) << 10 | low - 0xDC00), 12
    return code, 6


@helper
def skip_string(raw: Pointer, at: int, size: int) -> int:
    """From after the opening quote to the closing one; -1 - `at` where the string is wrong."""
    while at < size:
        byte = I64(item(raw, at))
        if byte == 34:
            return at
        if byte < 32:
            break
        if byte == 92:
            if at + 1 >= size:
                break
            code, length = read_code(raw, at, size)
            if code < 0:
                break
            at += length
        else:
            at += 1
    return -1 - at


@helper
def is_field(raw: Pointer, at: int, end: int, codes: Pointer, num_codes: int) -> bool:
    """Whether the content of a string, valid, is the field's name."""
    for i in range(num_codes):
        if at >= end:
            return False
        byte = I64(item(raw, at))
        if byte == 92:
            code, length = read_code(raw, at, end)
        elif byte < 0x80:
            code, length = byte, 1
        else:
            length = 2 + (byte >= 0xE0) + (byte >= 0xF0)
            code = byte & (0x7F >> length)
            for k in range(1, length):
                code = code << 6 | I64(item(raw, at + k)) & 0x3F
        if code != item(codes, i):
            return False
        at += length
    return at == end


@helper
def skip_digits(raw: Pointer, at: int, size: int) -> int:
    while at < size and 48 <= item(raw, at) <= 57:
        at += 1
    return at


@helper
def skip_number(raw: Pointer, at: int, size: int) -> tuple[int, int]:
    """Where a number ends, -1 for none, and its kind."""
    begin = at + 1 if item(raw, at) == 45 else at
    at = skip_digits(raw, begin, size)
    if at == begin:
        return -1, NUMBER
    if item(raw, begin) == 48:
        at = begin + 1
    kind = INTEGER
    if at < size and item(raw, at) == 46:
        after = skip_digits(raw, at + 1, size)
        if after > at + 1:
            at, kind = after, NUMBER
    if at < size and item(raw, at) | 32 == 101:
        begin = at + 1
        if begin < size and (item(raw, begin) == 43 or item(raw, begin) == 45):
            begin += 1
        after = skip_digits(raw, begin, size)
        if after > begin:
            at, kind = after, NUMBER
    return at, kind


@helper
def reads(raw: Pointer, at: int, size: int, word: U64, length: int) -> bool:
    """Whether a word of up to eight letters stands there."""
    if at + length > size:
        return False
    found = U64(0)
    for i in range(length):
        found |= U64(item(raw, at + i)) << U64(8 * i)
    return bool(found == word)


@helper
def skip_name(raw: Pointer, at: int, size: int) -> tuple[int, int]:
    """Where true, false, null, NaN, Infinity or -Infinity ends, -1 for none of them, and its kind."""
    if reads(raw, at, size, _TRUE, 4):
        return at + 4, TRUTH
    if reads(raw, at, size, _FALSE, 5):
        return at + 5, TRUTH
    if reads(raw, at, size, _NULL, 4):
        return at + 4, NULL
    if reads(raw, at, size, _NAN, 3):
        return at + 3, NUMBER
    begin = at + 1 if item(raw, at) == 45 else at
    return begin + 8 if reads(raw, begin, size, _INFINITY, 8) else -1, NUMBER


@helper
def skip_scalar(raw: Pointer, at: int, size: int) -> tuple[int, int]:
    """Where a number or a name ends, and its kind; -1 - `at` where none stands there."""
    after, kind = skip_number(raw, at, size)
    if after < 0:
        after, kind = skip_name(raw, at, size)
    return after if after > 0 else -1 - at, kind


@helper
def skip_white(raw: Pointer, at: int, size: int) -> int:
    while at < size and (item(raw, at) == 32 or item(raw, at) == 10 or item(raw, at) == 13 or item(raw, at) == 9):
        at += 1
    return at


@helper
def open_bracket(brackets: Pointer, depth: int, is_object: bool) -> None:
    """Note the kind of the bracket that is the innermost now."""
    bits, bit = I64(item(brackets, depth >> 3)), 1 << (depth & 7)
    put(brackets, depth >> 3, bits | bit if is_object else bits & ~bit)


@helper
def is_in_object(brackets: Pointer, depth: int) -> bool:
    """Whether the innermost of so many brackets is one of an object."""
    return depth > 0 and item(brackets, (depth - 1) >> 3) >> ((depth - 1) & 7) & 1 == 1


@kernel
def scan_object(line: np.ndarray, field: np.ndarray, bracket_bits: np.ndarray) -> tuple[int, int, int, int]:
    """What `scan` returns.

    field: int64, the code points of its name; bracket_bits: uint8, a bit for each byte, set for each open bracket
    of an object.
    """
    raw, size, brackets, codes = pointer(line), len(line), pointer(bracket_bits), pointer(field)
    depth, expected, is_ours = 0, _VALUE, False
    line_kind, kind, begin, end = NOTHING, NOTHING, 0, 0
    at = skip_white(raw, 0, size)
    while at < size:
        byte, first, after = I64(item(raw, at)), at + 1, at + 1
        if expected == _NEXT:
            is_object = is_in_object(brackets, depth)
            if depth > 0 and byte == 44:
                expected = _KEY if is_object else _VALUE
            elif depth > 0 and byte == (125 if is_object else 93):
                depth -= 1
            else:
                return WRONG, NOTHING, at, at
        elif expected >= _FIRST_VALUE and byte == (125 if is_in_object(brackets, depth) else 93):
            depth, expected = depth - 1, _NEXT
        elif expected in (_KEY, _FIRST_KEY):
            last = skip_string(raw, first, size) if byte == 34 else -1 - at
            if last < 0:
                return WRONG, NOTHING, -1 - last, -1 - last
            is_ours = depth == 1 and is_field(raw, first, last, codes, len(field))
            after = skip_white(raw, last + 1, size)
            if after == size or item(raw, after) != 58:
                return WRONG, NOTHING, after, after
            after, expected = after + 1, _VALUE
        else:
            last, found, expected = at, STRING, _NEXT
            if byte == 123 or byte == 91:
                found, expected = (OBJECT, _FIRST_KEY) if byte == 123 else (ARRAY, _FIRST_VALUE)
                open_bracket(brackets, depth, byte == 123)
            elif byte == 34:
                last = skip_string(raw, first, size)
                after = last + 1
            else:
                last, found = skip_scalar(raw, at, size)
                after = last
            if last < 0:
                return WRONG, NOTHING, -1 - last, -1 - last
            if depth == 0:
                line_kind = found
            elif is_ours:
                kind, begin, end, is_ours = found, first, last, False
            depth += found in (OBJECT, ARRAY)
        at = skip_white(raw, after, size)
    if expected == _NEXT and depth == 0 or expected == _VALUE and line_kind == NOTHING:
        return line_kind, kind, begin, end
    return WRONG, NOTHING, size, size


@kernel
def unescape_string(raw: np.ndarray, out: np.ndarray) -> tuple[int, int]:
    """Write the UTF-8 of a string's content, valid, and return its length and the first lone surrogate, or 0.

    raw, out: uint8, of one length. A lone surrogate becomes U+FFFD.
    """
    source, target = pointer(raw), pointer(out)
    at, filled, lone = 0, 0, 0
    while at < len(raw):
        byte = item(source, at)
        if byte != 92:
            put(target, filled, byte)
            at, filled = at + 1, filled + 1
            continue
        code, length = read_code(source, at, len(raw))
        at += length
        if 0xD800 <= code <= 0xDFFF:
            lone, code = lone if lone > 0 else code, 0xFFFD
        if code < 0x80:
            put(target, filled, code)
            filled += 1
            continue
        width = 2 + (code >= 0x800) + (code >= 0x10000)
        put(target, filled, (0xF00 >> width & 0xFF) | code >> 6 * (width - 1))
        for i in range(1, width):
            put(target, filled + i, 0x80 | code >> 6 * (width - 1 - i) & 0x3F)
        filled += width
    return filled, lone
