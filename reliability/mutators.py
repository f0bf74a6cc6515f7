"""Damages bytes: flips, cuts, inserts, repeats, splices, other numbers and lengths.

In: a random generator and bytes. Out: other bytes; equal generators make equal bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from random import Random

Mutator = Callable[[Random, bytes], bytes]

MAX_STEPS = 4
MAX_BYTES = 1 << 20  # of a mutated input: many small inputs find more than a few large ones
_LONG = 1 << 18
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
NUMBERS = [
    *(b"0", b"-0", b"-1", b"1", b"7", b"255", b"65535", b"65536", b"2147483647", b"2147483648", b"4294967296"),
    *(b"9223372036854775807", b"9223372036854775808", b"18446744073709551616", b"-9223372036854775809"),
    *(b"0.5", b"1e308", b"1e999", b"-1e999", b"1e-400", b"NaN", b"Infinity", b"00", b"1.", b"9" * 5000),
]
WORDS = [
    *(b"\x00", b"\n", b"\r", b"\r\n", b"\n\n", b"\t", b" ", b"\x0b", b"\x0c", b"\x1b[31m", b"\x7f", b"\xff", b"\xfe"),
    *(b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x80"),
    *(b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9", b"\xe3\x80\x80", b"\xe3\x80\x82", b"\xef\xbf\xbd"),
    *(b"\xe2\x80\x8b", b"\xe2\x80\xae", b"\xcc\x81" * 40, b"\xf0\x9f\x91\xa9\xe2\x80\x8d", b"\xe2\x96\x81"),
    *(b"`", b'"', b"'", b"(", b")", b"[", b"]", b"{", b"}", b"<", b"\\", b"/", b".", b"...", b"!", b"?", b",", b":"),
    *(b"('12','foo','bar'),", b"| a | b |", b"Mr. ", b"U.S.A. ", b"e.g. ", b"[MASK]", b"[CLS]", b"<unk>", b"\\ud800"),
    *(b"{}", b"[]", b"null", b"true", b'"text"', b'{"text": "x"}', b'{"a":', b"\\u0000", b"\\n"),
]


def mutate_bytes(rng: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Apply one to four damages. others: inputs whose parts are spliced in."""
    for _ in range(rng.randint(1, MAX_STEPS)):
        step = rng.choice(STEPS)
        data = splice(rng, data, rng.choice(others)) if others and rng.random() < 0.1 else step(rng, data)
    return data[:MAX_BYTES]


def flip_bit(rng: Random, data: bytes) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def change_byte(rng: Random, data: bytes) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))]) + data[at + 1 :]


def cut_end(rng: Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def cut_out(rng: Random, data: bytes) -> bytes:
    begin, end = choose_range(rng, data)
    return data[:begin] + data[end:]


def insert_word(rng: Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(WORDS) + data[at:]


def insert_noise(rng: Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.choice((1, 2, 8, 64, 1000))) + data[at:]


def repeat_word(rng: Random, data: bytes) -> bytes:
    """Insert a word many times, to find code that takes more than linear time."""
    word = rng.choice(WORDS)
    size = _LONG if rng.random() < 0.01 else rng.choice((4, 100, 3000))
    at = rng.randrange(len(data) + 1)
    return data[:at] + word * (size // len(word) + 1) + data[at:]


def repeat_part(rng: Random, data: bytes) -> bytes:
    begin, end = choose_range(rng, data)
    return data[:end] + data[begin:end] * rng.choice((1, 1, 2, 10)) + data[end:]


def move_part(rng: Random, data: bytes) -> bytes:
    begin, end = choose_range(rng, data)
    rest = data[:begin] + data[end:]
    at = rng.randrange(len(rest) + 1)
    return rest[:at] + data[begin:end] + rest[at:]


def blank_out(rng: Random, data: bytes) -> bytes:
    """Replace a part by zeros, as a failing disk does."""
    begin, end = choose_range(rng, data)
    return data[:begin] + bytes(end - begin) + data[end:]


def change_word(rng: Random, data: bytes) -> bytes:
    """Change a binary number, such as a length or an offset."""
    form = rng.choice(["<B", "<H", "<I", "<Q", ">H", ">I", ">Q"])
    size = struct.calcsize(form)
    if len(data) < size:
        return data
    at = rng.randrange(len(data) - size + 1)
    if rng.random() < 0.7:  # most are aligned
        at -= at % size
    (old,) = struct.unpack_from(form, data, at)
    top = 256**size - 1
    new = rng.choice((0, 1, top, top >> 1, (top >> 1) + 1, old + 1, old - 1, old * 2, old + 8, old ^ 1 << 4, len(data)))
    return data[:at] + struct.pack(form, new & top) + data[at + size :]


def change_number(rng: Random, data: bytes) -> bytes:
    """Change a number written in digits."""
    found = list(_NUMBER.finditer(data[:100_000]))
    if not found:
        return insert_word(rng, data)
    number = rng.choice(found)
    return data[: number.start()] + rng.choice(NUMBERS) + data[number.end() :]


def splice(rng: Random, data: bytes, other: bytes) -> bytes:
    """Join the beginning of one and the end of another, or insert a part of the other."""
    if rng.random() < 0.5:
        return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]
    begin, end = choose_range(rng, other)
    at = rng.randrange(len(data) + 1)
    return data[:at] + other[begin:end] + data[at:]


def choose_range(rng: Random, data: bytes) -> tuple[int, int]:
    """Choose a part of the bytes, short ones more often."""
    begin = rng.randrange(len(data) + 1)
    return begin, min(len(data), begin + rng.choice((1, 2, 4, 8, 64, 512, 4096)))


STEPS: Sequence[Mutator] = (
    *(flip_bit, flip_bit, change_byte, cut_end, cut_out, insert_word, insert_word, insert_noise, repeat_word),
    *(repeat_part, move_part, blank_out, change_word, change_word, change_number, change_number),
)
