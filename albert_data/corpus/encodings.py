"""Recognise by the beginning of a file that it is in another encoding than UTF-8, or is not text.

Read as UTF-8, a file in UTF-16 or Latin-1 would become documents of unknown pieces. UTF-16 and UTF-32 with a byte
order mark are transcoded (transcoding.py); any other encoding is refused, with a guess at its name. A few damaged bytes
are no reason to refuse a file: they are repaired and counted. The thresholds were chosen by trial: of 18,000 samples of
text in 500 languages, in UTF-16 of both byte orders, all but 4 were named right.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from albert_data.errors import InputError
from albert_data.unicode_tables import categories

SAMPLE_BYTES = 1 << 16
UTF8 = "utf-8"
_MARKS = (
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_NAMES = {"utf-16-le": "UTF-16LE", "utf-16-be": "UTF-16BE", "utf-32-le": "UTF-32LE", "utf-32-be": "UTF-32BE"}
# Encodings to choose from: a codec, characters that are frequent in its text, and their least share among those beyond
# ASCII. The score is the share divided by the least share. The highest score of at least 1 wins, of equal ones the
# first.
_KANA, _HAN, _HANGUL = r"\u3041-\u30ff", r"\u4e00-\u9fff", r"\uac00-\ud7a3"
_GUESSES = (
    ("shift_jis", f"[{_KANA}]", 0.25),
    ("euc_jp", f"[{_KANA}]", 0.25),
    ("euc_kr", f"[{_HANGUL}]", 0.5),
    ("gb18030", "[\u7684\u4e00\u662f\u4e0d\u4e86\u4eba\u6211\u5728\u6709\u4ed6\u4e4b\u66f0]", 0.02),
    ("big5", "[\u7684\u4e00\u662f\u4e0d\u4e86\u4eba\u6211\u5728\u6709\u4ed6\u4e4b\u66f0]", 0.02),
    ("gb18030", f"[{_HAN}]", 0.5),
    ("cp1251", "[\u0430-\u044f]", 0.6),
    ("koi8_r", "[\u0430-\u044f]", 0.6),
    ("cp1253", "[\u03ac-\u03ce]", 0.6),
)
_SURE = ("shift_jis", "euc_jp", "euc_kr")  # UTF-16 decoded as these by mistake gives hardly any kana or hangul
_ONE_BYTE = ("cp1251", "koi8_r", "cp1253")
_LETTERS = re.compile(rb"[A-Za-z]")
_ICONV = {
    "shift_jis": "SHIFT_JIS",
    "euc_jp": "EUC-JP",
    "euc_kr": "EUC-KR",
    "koi8_r": "KOI8-R",
    "cp1252": "WINDOWS-1252",
}
_MIN_PLACES = 5  # fewer damaged sequences, or odd characters, are no proof
_CUT_CHARACTER = re.compile(rb"[\xc2-\xf4][\x80-\xbf]{0,2}\Z")
_ASCII = re.compile("[\0-\x7f]+")
_DAMAGE = re.compile("\ufffd+")
_PLANES = bytes(range(0x11))  # the values of the byte above the lower two in UTF-32: the plane of the character
# Most characters of text, but not U+2000 and U+2E00: they are a space and a full stop with their bytes swapped.
_USUAL = re.compile(f"[\n\t -~\u00a0-\u1fff\u2001-\u20cf\u3000-\u30ff{_HAN}\ua000-\ud7a3\uff00-\uffef]")
_STOPS = re.compile("[\n ,.\u3001\u3002\uff0c\uff1f]")
_CONTROLS = bytes((*range(9), *range(0x0E, 0x1B)))  # text holds hardly any of these bytes, except in UTF-16 and UTF-32


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """What a file seems to be in. codec: its name for --encoding, None for no text."""

    name: str
    codec: str | None

    @property
    def iconv(self) -> str | None:
        """Its name in the program iconv."""
        return self.codec and _ICONV.get(self.codec, _NAMES.get(self.codec, self.codec.upper()))


def check_encoding(
    sample: bytes, path: str, describe_conversion: Callable[[str], str], named: str | None = None
) -> str | None:
    """The encoding that the settings (`named`) or the byte order mark of a file names; None for UTF-8.

    sample: the beginning of the file; describe_conversion: names the command that converts it from an encoding.
    Raises InputError if the file seems to be in another one, or is not text.
    """
    if named not in (None, UTF8):
        _check_named(sample, path, named)
        return named
    if (marked := find_marked_encoding(sample)) is not None:
        return marked
    found = find_wrong_encoding(sample)
    if found is None:
        return None
    if found.codec is None or found.iconv is None:
        raise InputError(f"input {path} is no text: {found.name}; leave it out, or name the file that holds its text")
    raise InputError(
        f"input {path} is not UTF-8: it looks like {found.name}; if all inputs are in it, pass --encoding "
        f"{found.codec}; if only this file is, convert it: {describe_conversion(found.iconv)}"
    )


def _check_named(sample: bytes, path: str, codec: str) -> None:
    """Raise InputError if a file is surely not in the encoding that the settings name for all inputs."""
    marked = UTF8 if sample.startswith(codecs.BOM_UTF8) else find_marked_encoding(sample)
    # Both byte orders of UTF-16 fit "utf-16", and likewise UTF-32.
    if marked and marked.removesuffix("-le").removesuffix("-be") != codec and marked != codec:
        problem: str | None = f"it begins with the byte order mark of {marked}"
    elif _is_clean(sample) and _rules_out(sample, codec):
        problem = "it is valid UTF-8"
    else:
        problem = _judge_decoded(sample, codec)
    if problem:
        raise InputError(f"input {path} does not look like text in {codec}: {problem}; give inputs of one encoding")


def _rules_out(sample: bytes, codec: str) -> bool:
    """Whether a sample can't be text in another codec because it is valid UTF-8.

    UTF-16 and UTF-32 of even a few characters are not valid UTF-8, and neither is text in other codecs with some
    characters beyond ASCII.
    """
    is_wide = codec.startswith(("utf-16", "utf-32")) and len(sample) >= 8
    return is_wide or len(_ASCII.sub("", sample.decode(errors="ignore"))) >= _MIN_PLACES


def _judge_decoded(sample: bytes, codec: str) -> str | None:
    try:
        text = codecs.getincrementaldecoder(codec)("replace").decode(sample)
    except UnicodeError:  # "utf-16" does not replace a missing mark
        return f"it has no byte order mark; if all inputs have none, pass --encoding {codec}-le or {codec}-be"
    num_odd = count_odd(text)
    if num_odd < _MIN_PLACES or 10 * num_odd <= len(text):
        return None
    return f"{num_odd:,} of the first {len(text):,} characters are controls or unassigned"


def find_marked_encoding(sample: bytes) -> str | None:
    """The codec that the byte order mark at the beginning of a file names; None for UTF-8 and where there is none."""
    for mark, codec in _MARKS:
        if sample.startswith(mark) and not _is_clean(sample[len(mark) :]):  # else it is UTF-8 with a damaged beginning
            return codec
    return None


def find_wrong_encoding(sample: bytes) -> Encoding | None:
    """The encoding of the beginning of a file without a byte order mark, if it is not UTF-8."""
    return _judge_zeros(sample) or _judge_controls(sample) or _judge_invalid(sample)


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
    """Find UTF-16, UTF-32 or no text by zero bytes, which other text hardly holds.

    In UTF-16 they are the high bytes of ASCII, so they are one-sided: 95 % of them at even, or at odd, positions. In
    UTF-32 they are half or more of all bytes. A few zeros may be one-sided by chance. So where over a third of all
    bytes are zeros, at least 3 are needed if they are one-sided, else 64; where over 1 % are, 16 one-sided ones.
    """
    zeros = [sample[first::4].count(0) for first in range(4)]
    total, size = sum(zeros), len(sample)
    is_one_sided = max(zeros[0] + zeros[2], zeros[1] + zeros[3]) >= 0.95 * total
    has_many = 3 * total > size and total >= (3 if is_one_sided else 64)
    # UTF-16 of another script has the zeros of its spaces and line ends, and one high byte that most characters share.
    has_some = 100 * total > size and total >= 16 and is_one_sided and _is_uniform_or_invalid(sample)
    if has_many or has_some:
        # UTF-32: the highest byte is zero, the next is the plane. In ASCII one of the other two is zero, too: at most a
        # quarter of all bytes.
        for top, plane, codec in ((3, 2, "utf-32-le"), (0, 1, "utf-32-be")):
            planes = sample[plane::4]
            num_planes = len(planes) - len(planes.translate(None, _PLANES))
            if min(zeros[top], num_planes) >= 0.95 * len(planes) and total - zeros[top] - zeros[plane] < 0.3 * size:
                return _name_unmarked(codec)
        likeness, codec = _find_order(sample)
        if is_one_sided or likeness > 0.9:
            return _name_unmarked(codec)
        return Encoding(name=f"{100 * total // size} % of its first bytes are zero", codec=None)
    return None


def _name_unmarked(codec: str) -> Encoding:
    return Encoding(name=f"{_NAMES[codec]} without a byte order mark", codec=codec)


def _find_order(sample: bytes) -> tuple[float, str]:
    """The byte order in which a sample is more like text, and how much: about 1 or more in the right one.

    Zeros alone don't show the order: they are the high bytes of ASCII, but also the low byte of U+4E00, a frequent
    character.
    """
    rates = [(*_rate_order(sample.decode(codec, "replace")), codec) for codec in ("utf-16-le", "utf-16-be")]
    likeness, _, codec = max(rates)
    return likeness, codec


def _rate_order(text: str) -> tuple[float, int]:
    """How much a decoded sample is like text; if that is equal in both orders, the count of ASCII decides."""
    num_usual, num_stops = len(_USUAL.findall(text)), len(_STOPS.findall(text))
    num_ascii = len(text) - len(_ASCII.sub("", text))
    return (num_usual + num_stops - count_odd(text)) / max(len(text), 1), num_ascii


def count_odd(text: str) -> int:
    """How many characters are controls, U+FFFD or unassigned.

    Tabs do not count, nor do the controls that str.splitlines takes for line ends.
    """
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    numbers, names = categories()
    is_odd = np.isin(numbers[codes], [names.index(name) for name in ("Cc", "Cn", "Cs")]) | (codes == 0xFFFD)
    is_odd &= ~np.isin(codes, [ord(character) for character in "\t\n\v\f\r\x1c\x1d\x1e\x85"])
    return int(np.count_nonzero(is_odd))


def _is_uniform_or_invalid(sample: bytes) -> bool:
    """Whether one value fills 40 % of all even or odd bytes, as in UTF-16 of one script, or the sample is no UTF-8."""
    most = max(half.count(value) for half in (sample[::2], sample[1::2]) for value in range(256))
    return 5 * most > len(sample) or not _is_utf8(sample)


def _judge_controls(sample: bytes) -> Encoding | None:
    """Find UTF-16 of Burmese or Ethiopic: valid UTF-8, but a fifth or more of its bytes are controls (0x10, 0x12)."""
    if len(sample) < 64 or 5 * _count_controls(sample) < len(sample):
        return None
    likeness, codec = _find_order(sample)
    return _name_unmarked(codec) if likeness > 0.9 else None


def _count_controls(sample: bytes) -> int:
    return len(sample) - len(sample.translate(None, _CONTROLS))


def _judge_invalid(sample: bytes) -> Encoding | None:
    """Find another encoding where most of what is not ASCII is no UTF-8."""
    if _is_clean(sample):
        return None
    text = _CUT_CHARACTER.sub(b"", sample).decode(errors="replace")
    num_invalid = text.count("\ufffd") - sample.count(b"\xef\xbf\xbd")
    num_valid = len(_ASCII.sub("", text)) - num_invalid
    num_places = len(_DAMAGE.findall(text))
    if num_places < _MIN_PLACES or num_invalid <= num_valid or 500 * num_places < len(sample):
        return None
    return _guess(sample)


def _guess(sample: bytes) -> Encoding:
    likeness, order = _find_order(sample)
    is_wide = likeness > 0.9 and 200 * _count_controls(sample) > len(sample)
    fits = [(_rate(sample, codec, usual) / least, codec) for codec, usual, least in _GUESSES]
    if is_wide:  # rather UTF-16, unless one of these fits: the others also fit much that is UTF-16
        fits = [fit for fit in fits if fit[1] in _SURE]
    best, codec = max(fits, key=lambda fit: fit[0])
    if best >= 1:
        return Encoding(name=codec, codec=codec)
    if is_wide:
        return _name_unmarked(order)
    return Encoding(name="Latin-1, Windows-1252 or another encoding of one byte a character", codec="cp1252")


def _rate(sample: bytes, codec: str, usual: str) -> float:
    """The share of usual characters among those beyond ASCII; 0 if the sample is not in this encoding."""
    try:
        text = _ASCII.sub("", codecs.getincrementaldecoder(codec)().decode(sample))
    except UnicodeDecodeError:
        return 0.0
    if codec in _ONE_BYTE and len(text) < len(_LETTERS.findall(sample)):  # most letters are ASCII: another script
        return 0.0
    return len(re.findall(usual, text)) / max(len(text), 1)
