"""Recognise that a file is in another encoding than UTF-8, or is no text, and transcode it.

Read as UTF-8, a file in UTF-16 or Latin-1 would become documents of unknown pieces. UTF-16 and UTF-32 with a byte order
mark are transcoded. Any other encoding is refused, with a guess at its name, unless the settings name one or let each
file decide. A few damaged bytes are no reason to refuse a file: they are repaired and counted.

UTF-16 and UTF-32 without a mark are recognised here, because chardet takes UTF-16 of some scripts in the wrong byte
order; other encodings are recognised by chardet. The thresholds were chosen by trial: of 18,000 samples of text in 500
languages, in UTF-16 of both byte orders, all but 4 were named right.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from albert_data.corpus.refused import RefusedInput, group_paths
from albert_data.errors import InputError
from albert_data.text.unicode_tables import categories
from albert_data.text.wording import count_of, list_some

SAMPLE_BYTES = 1 << 16
UTF8 = "utf-8"
_MIN_PLACES = 5  # fewer damaged sequences, or odd characters, are no proof


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """What a file seems to be in.

    name: for messages
    codec: for --encoding, None for no text
    """

    name: str
    codec: str | None


def refuse(path: str, found: Encoding) -> RefusedInput:
    """The error for a file that is in another encoding than expected, or is no text."""
    if found.codec is None:
        next_step = "leave out what is no text, or name the files that hold its text"
        return RefusedInput(path, f"no text: it is {found.name}", next_step)
    next_step = "if all inputs are in one encoding, pass --encoding with its name, else --encoding auto"
    return RefusedInput(path, f"not UTF-8: it looks like {found.name}", next_step)


def describe_encodings(found: Iterable[tuple[str, str]], most: int) -> list[str]:
    """A line for each encoding with the first paths in it. found: encodings and paths."""
    groups = group_paths(found)
    return [
        f"{codec} {count_of(len(paths), 'input')}" + ("" if codec == UTF8 else f": {list_some(paths, most)}")
        for codec, paths in groups.items()
    ]


# ---- by the beginning of a file, or by all of it ----

_MARKS = (
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
# How files begin that are no text, whatever their names say.
_NO_TEXT = (
    (b"%PDF-", "a PDF file"),
    (b"PK\x03\x04", "a zip file, as .docx, .odt and .epub are"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a file of an office program, as .doc is"),
    (b"{\\rtf", "an RTF file"),
    (b"\x1f\x8b\x08", "compressed by gzip, so its name must end in .gz"),
    (b"BZh91AY&SY", "compressed by bzip2, so its name must end in .bz2"),
    (b"\xfd7zXZ\x00", "compressed by xz, so its name must end in .xz"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd, so its name must end in .zst"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z file"),
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
)


def check_encoding(sample: bytes, path: str, named: str | None = None) -> str | None:
    """The encoding that the settings (`named`) or the byte order mark of a file names; None for UTF-8.

    sample: the beginning of the file
    Raises RefusedInput if the file seems to be in another one, or is not text.
    """
    if (no_text := find_no_text(sample)) is not None:
        raise refuse(path, no_text)
    if named not in (None, UTF8):
        _check_named(sample, path, named)
        return named
    if (marked := find_marked_encoding(sample)) is None and (found := find_wrong_encoding(sample)) is not None:
        raise refuse(path, found)
    return marked


def _check_named(sample: bytes, path: str, codec: str) -> None:
    """Raise InputError if a file is surely not in the encoding that the settings name for all inputs."""
    marked = UTF8 if sample.startswith(codecs.BOM_UTF8) else find_marked_encoding(sample)
    # Both byte orders of UTF-16 fit "utf-16", and likewise UTF-32.
    if marked and marked.removesuffix("-le").removesuffix("-be") != codec and marked != codec:
        problem: str | None = f"it begins with the byte order mark of {marked}"
    elif _is_clean(sample) and (
        # UTF-16 and UTF-32 of even a few characters are not valid UTF-8, and neither is text in other codecs with some
        # characters beyond ASCII.
        (codec.startswith(("utf-16", "utf-32")) and len(sample) >= 8)
        or len(_ASCII.sub("", sample.decode(errors="ignore"))) >= _MIN_PLACES
    ):
        problem = "it is valid UTF-8"
    else:
        problem = _judge_decoded(sample, codec)
    if problem:
        raise RefusedInput(path, f"not in {codec}: {problem}", "give inputs of one encoding, or pass --encoding auto")


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


def find_no_text(sample: bytes) -> Encoding | None:
    """What a file is that begins as one of no text, such as a PDF file."""
    names = (name for beginning, name in _NO_TEXT if sample.startswith(beginning))
    return next((Encoding(name=name, codec=None) for name in names), None)


def find_wrong_encoding(sample: bytes) -> Encoding | None:
    """The encoding of the beginning of a file without a byte order mark, if it is not UTF-8."""
    return _judge_zeros(sample) or _judge_controls(sample) or _judge_invalid(sample)


def find_encoding(blocks: Iterable[bytes]) -> Encoding:
    """The encoding of a whole file.

    It is UTF-8 if at least half of what is beyond ASCII is. blocks: of the file; the first holds SAMPLE_BYTES, or all.
    """
    blocks = iter(blocks)
    first = next(blocks, b"")
    sample = first[:SAMPLE_BYTES]
    if (marked := find_marked_encoding(sample)) is not None:
        return Encoding(name=marked, codec=marked)
    if (found := find_no_text(sample) or _judge_zeros(sample) or _judge_controls(sample)) is not None:
        return found
    decoder = codecs.getincrementaldecoder(UTF8)("ignore")
    evidence, num_characters, num_wrong = _Evidence(), 0, 0  # characters beyond ASCII, and bytes of none
    for block in chain([first], blocks):
        text = decoder.decode(block)
        num_characters += len(text) - int(np.count_nonzero(np.frombuffer(block, np.int8) >= 0))
        num_wrong += len(block) - len(text.encode())
        evidence.add(block)
    return Encoding(name=UTF8, codec=UTF8) if num_wrong <= num_characters else _guess(evidence.join())


# ---- other encodings of bytes, by chardet ----

_DAMAGE = re.compile("\ufffd+")
_HIGH = re.compile(rb"[\x80-\xff]+")
_LONE_BYTE = re.compile(rb"[\x00-/]")
_EVIDENCE_BYTES, _AROUND = 1 << 18, 64
_USUAL_CODEC, _EQUAL = "cp1252", 0.9995  # the share of the highest confidence that is no less


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
    found = _guess(sample)
    return None if found.codec == UTF8 else found


class _Evidence:
    """What chardet is shown of a file: its beginning, places beyond ASCII that follow, and one of each later byte.

    A place begins and ends at a byte up to "/", such as a space, a full stop or a line end. These are no part of longer
    characters in any encoding, so a place holds whole ones. The beginning may end inside one, so it comes last.
    """

    def __init__(self) -> None:
        self._beginning: bytes | None = None
        self._places: list[bytes] = []
        self._num_bytes, self._seen = 0, bytes(range(0x80))

    def add(self, block: bytes) -> None:
        if self._beginning is None:
            self._beginning, block = block[:SAMPLE_BYTES], block[SAMPLE_BYTES:]
            self._seen = bytes({*self._seen, *self._beginning})
        if self._num_bytes >= _EVIDENCE_BYTES and not block.translate(None, self._seen):
            return
        done = 0
        for match in _HIGH.finditer(block):
            is_needed = self._num_bytes < _EVIDENCE_BYTES or match[0].translate(None, self._seen)
            if match.start() <= done or not is_needed:
                continue
            before = _LONE_BYTE.search(block, max(match.start() - _AROUND, done), match.start())
            if before is None:
                continue
            after = _LONE_BYTE.search(block, match.end() + _AROUND)
            if after is None:  # nor is there one after later places
                break
            done = after.end()
            self._places.append(block[before.start() : done])
            self._num_bytes += len(self._places[-1])
            self._seen = bytes({*self._seen, *self._places[-1]})

    def join(self) -> bytes:
        return b"\n".join([*self._places, self._beginning or b""])


def _guess(sample: bytes) -> Encoding:
    """What text that is not UTF-8 is in. sample: at least some of what is beyond ASCII."""
    likeness, order = _find_order(sample)
    if likeness > 0.9 and 200 * _count_controls(sample) > len(sample):
        return _name_unmarked(order)
    import chardet  # here, since most builds have no use for it

    # With supersets, bytes beyond the sample can be decoded too: cp1252 for ISO-8859-1.
    ranked = chardet.detect_all(sample, max_bytes=len(sample), prefer_superset=True, compat_names=False)
    found, most = ranked[0]["encoding"], ranked[0]["confidence"]
    if found is None:
        return Encoding(name="a binary file", codec=None)
    # Of equals the usual one: English with fractions and pounds alone could be ISO-8859-15 too, where "½" is "œ".
    if any(one["encoding"] == _USUAL_CODEC and one["confidence"] >= _EQUAL * most for one in ranked):
        found = _USUAL_CODEC
    codec = UTF8 if found == "ascii" else codecs.lookup(found).name  # then what is wrong is damage
    return Encoding(name=codec, codec=codec)


# ---- UTF-16 and UTF-32 without a byte order mark ----

_CUT_CHARACTER = re.compile(rb"[\xc2-\xf4][\x80-\xbf]{0,2}\Z")
_ASCII = re.compile("[\0-\x7f]+")
_PLANES = bytes(range(0x11))  # the values of the byte above the lower two in UTF-32: the plane of the character
# Most characters of text, but not U+2000 and U+2E00: they are a space and a full stop with their bytes swapped.
_USUAL = re.compile("[\n\t -~\u00a0-\u1fff\u2001-\u20cf\u3000-\u30ff\u4e00-\u9fff\ua000-\ud7a3\uff00-\uffef]")
_STOPS = re.compile("[\n ,.\u3001\u3002\uff0c\uff1f]")
_CONTROLS = bytes((*range(9), *range(0x0E, 0x1B)))  # text holds hardly any of these bytes, except in UTF-16 and UTF-32


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
    if not (has_many or has_some):
        return None
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
    return Encoding(name=f"a binary file: {100 * total // size} % of its first bytes are zero", codec=None)


def _name_unmarked(codec: str) -> Encoding:
    return Encoding(name=f"{codec} without a byte order mark", codec=codec)


def _find_order(sample: bytes) -> tuple[float, str]:
    """The byte order in which a sample is more like text, and how much: about 1 or more in the right one.

    Zeros alone don't show the order: they are the high bytes of ASCII, but also the low byte of U+4E00, a frequent
    character.
    """
    rates = []
    for codec in ("utf-16-le", "utf-16-be"):
        text = sample.decode(codec, "replace")
        num_text = len(_USUAL.findall(text)) + len(_STOPS.findall(text)) - count_odd(text)
        num_ascii = len(text) - len(_ASCII.sub("", text))  # decides where both orders are equally like text
        rates.append((num_text / max(len(text), 1), num_ascii, codec))
    likeness, _, codec = max(rates)
    return likeness, codec


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


# ---- read a stream of another encoding as UTF-8, in bounded memory ----
#
# In: a stream of bytes and the name of a codec. Out: a stream of UTF-8. What can't be decoded becomes bytes that are
# not UTF-8, so that the reader of the stream repairs and counts them like damaged UTF-8.

_CHUNK = 1 << 20
_DAMAGED = "albert_data.damaged"  # the name of the error handler


def _mark_damage(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replace damage by bytes 0xFF, which no UTF-8 holds.

    It is called twice: decoding puts U+DCFF for damage, a character that can't be encoded, and encoding puts 0xFF for
    that. Some codecs report several damaged bytes as one error: each byte becomes one such character. In UTF-16 and
    UTF-32 each error becomes one, because there a character is several bytes.
    """
    if isinstance(error, UnicodeDecodeError):
        is_wide = error.encoding.lower().replace("-", "").startswith(("utf16", "utf32"))
        return "\udcff" * (1 if is_wide else error.end - error.start), error.end
    if isinstance(error, UnicodeEncodeError):
        return b"\xff" * (error.end - error.start), error.end
    raise error


codecs.register_error(_DAMAGED, _mark_damage)


def transcode(stream: io.BufferedIOBase, codec: str, path: str, *, strict: bool) -> Iterator[bytes]:
    """Yield a stream as UTF-8. strict: raise InputError at the first byte that can't be decoded."""
    decoder = codecs.getincrementaldecoder(codec)("strict" if strict else _DAMAGED)
    at, is_ended = 0, False
    while not is_ended:
        data = stream.read1(_CHUNK)
        is_ended = not data
        # Bytes of a cut character that the decoder kept from the last read; error.start counts from the first of them.
        held = len(decoder.getstate()[0])
        try:
            text = decoder.decode(data, final=is_ended)
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}, byte {at - held + error.start}: not {codec}: byte 0x{error.object[error.start]:02x}, "
                f"{error.reason}; fix the file, name its encoding with --encoding, or leave out --strict to repair "
                "such places"
            ) from error
        at += len(data)
        yield text.encode(errors=_DAMAGED)
