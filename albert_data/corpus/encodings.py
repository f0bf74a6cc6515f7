"""Tell text of another encoding, or what is no text, from UTF-8 with some damage, by the beginning of a file.

Read as UTF-8, a file in UTF-16 or Latin-1 would become documents of unknown pieces. A few damaged bytes are none of
this check's business: they are repaired and counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from albert_data.errors import InputError

SAMPLE_BYTES = 1 << 16
_MARKS = (
    (b"\xff\xfe\x00\x00", "UTF-32LE"),
    (b"\x00\x00\xfe\xff", "UTF-32BE"),
    (b"\xff\xfe", "UTF-16LE"),
    (b"\xfe\xff", "UTF-16BE"),
)
_CUT_CHARACTER = re.compile(rb"[\xc2-\xf4][\x80-\xbf]{0,2}\Z")
_ASCII = re.compile("[\0-\x7f]+")
_DAMAGE = re.compile("\ufffd+")
_PLANES = bytes(range(0x11))  # the second bytes of all characters in UTF-32
# The first bytes of most characters of Chinese, Japanese and Korean in UTF-16.
_WIDE_BYTES = bytes((0x00, 0x30, *range(0x4E, 0xA0), *range(0xAC, 0xD8), 0xFF))


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """What a file seems to be. iconv: its name for the program iconv, None for no text."""

    name: str
    iconv: str | None


def check_encoding(sample: bytes, path: str, describe_conversion: Callable[[str], str]) -> None:
    """Raise InputError if a file that begins with `sample` is not UTF-8.

    describe_conversion: names the command that converts it from an encoding.
    """
    found = find_wrong_encoding(sample)
    if found is None:
        return
    if found.iconv is None:
        raise InputError(f"input {path} is no text: {found.name}; leave it out, or name the file that holds its text")
    command = describe_conversion(found.iconv)
    raise InputError(f"input {path} is not UTF-8: it looks like {found.name}; convert it: {command}")


def find_wrong_encoding(sample: bytes) -> Encoding | None:
    """What the beginning of a file is in, if that is not UTF-8."""
    for mark, name in _MARKS:
        if sample.startswith(mark) and not _is_clean(sample[len(mark) :]):
            return Encoding(name=name, iconv=name)
    return _judge_zeros(sample) or _judge_invalid(sample)


def _is_clean(data: bytes) -> bool:
    return 0 not in data and _is_utf8(data)


def _is_utf8(data: bytes) -> bool:
    """Whether it is UTF-8, up to a character cut at its end."""
    try:
        _CUT_CHARACTER.sub(b"", data).decode()
    except UnicodeDecodeError:
        return False
    return True


def _judge_zeros(sample: bytes) -> Encoding | None:
    """Text holds hardly a zero byte; in UTF-16 they have one parity, in UTF-32 they are most of all bytes."""
    zeros = [sample[place::4].count(0) for place in range(4)]
    total, size = sum(zeros), len(sample)
    is_one_sided = max(zeros[0] + zeros[2], zeros[1] + zeros[3]) >= 0.95 * total
    is_much = 3 * total > size and total >= (3 if is_one_sided else 64)
    is_pattern = 100 * total > size and total >= 16 and is_one_sided and _is_regular(sample)
    if is_much or is_pattern:
        for top, plane, name in ((3, 2, "UTF-32LE"), (0, 1, "UTF-32BE")):
            planes = sample[plane::4]
            num_planes = len(planes) - len(planes.translate(None, _PLANES))
            if min(zeros[top], num_planes) >= 0.95 * len(planes) and total - zeros[top] - zeros[plane] < 0.3 * size:
                return Encoding(name=name, iconv=name)
        if is_one_sided:
            name = "UTF-16LE" if zeros[1] + zeros[3] > zeros[0] + zeros[2] else "UTF-16BE"
            return Encoding(name=name, iconv=name)
        return Encoding(name=f"{100 * total // size} % of its first bytes are zero", iconv=None)
    return None


def _is_regular(sample: bytes) -> bool:
    """Whether every other byte is mostly the same, as of one script in UTF-16, or it is no UTF-8 at all."""
    most = max(half.count(value) for half in (sample[::2], sample[1::2]) for value in range(256))
    return 5 * most > len(sample) or not _is_utf8(sample)


def _judge_invalid(sample: bytes) -> Encoding | None:
    """Text is in another encoding if most of what is not ASCII is no UTF-8."""
    if _is_clean(sample):
        return None
    text = _CUT_CHARACTER.sub(b"", sample).decode(errors="replace")
    num_invalid = text.count("\ufffd") - sample.count(b"\xef\xbf\xbd")
    num_valid = len(_ASCII.sub("", text)) - num_invalid
    num_places = len(_DAMAGE.findall(text))
    if num_places < 5 or num_invalid <= num_valid or 500 * num_places < len(sample):
        return None
    return _guess(sample)


def _guess(sample: bytes) -> Encoding:
    first, second = sample[::2], sample[1::2]
    num_wide = [len(half) - len(half.translate(None, _WIDE_BYTES)) for half in (first, second)]
    if abs(num_wide[0] - num_wide[1]) > 0.3 * len(second):
        name = "UTF-16BE" if num_wide[0] > num_wide[1] else "UTF-16LE"
        return Encoding(name=name, iconv=name)
    text = sample.decode("gb18030", "replace")
    num_common = sum("\u4e00" <= character <= "\u9fff" for character in text)
    if num_common > 20 * text.count("\ufffd") and num_common > 0.5 * len(_ASCII.sub("", text)):
        name = "GBK or another encoding of two bytes a character"
        return Encoding(name=name, iconv="GB18030")
    name = "Latin-1, Windows-1252 or another encoding of one byte a character"
    return Encoding(name=name, iconv="WINDOWS-1252")
