"""Recognise that a file is in another encoding than UTF-8, or is no text, and transcode it.

Read as UTF-8, a file in UTF-16 or Latin-1 would become documents of unknown pieces. UTF-16 and UTF-32 with a byte order
mark are transcoded. Any other encoding is refused, with a guess at its name by chardet, unless the settings name one or
let each file decide. UTF-16 and UTF-32 without a mark are refused as what is no text, unless they are named: chardet
takes some scripts in the wrong byte order. A few damaged bytes are no reason to refuse a file: they are repaired and
counted. The thresholds were chosen by trial.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

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
    """What a file seems to be in. name: for messages; codec: for --encoding, None for no text."""

    name: str
    codec: str | None


def refuse(path: str, found: Encoding) -> RefusedInput:
    """The error for a file that is in another encoding than expected, or is no text."""
    if found.codec is None:
        next_step = "leave out what is no text, or name the files that hold its text"
        next_step += "; name UTF-16 by --encoding utf-16-le or utf-16-be" if found is _WIDE else ""
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
    (b"PAR1\x15", "a Parquet file, as for --format parquet"),
    (b"ARROW1\x00\x00", "an Arrow file, as for --format arrow"),
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
    return _judge_bytes(sample) or _judge_invalid(sample)


def find_encoding(blocks: Iterable[bytes]) -> Encoding:
    """The encoding of a whole file.

    It is UTF-8 if at least half of what is beyond ASCII is. chardet is shown the first places beyond ASCII. They
    begin and end at a byte up to "/", such as a space, a full stop or a line end: it is no part of longer characters in
    any encoding, so a place holds whole ones.

    blocks: of the file; the first holds SAMPLE_BYTES, or all
    """
    blocks = iter(blocks)
    first = next(blocks, b"")
    sample = first[:SAMPLE_BYTES]
    if (marked := find_marked_encoding(sample)) is not None:
        return Encoding(name=marked, codec=marked)
    if (found := find_no_text(sample) or _judge_bytes(sample)) is not None:
        return found
    decoder = codecs.getincrementaldecoder(UTF8)("ignore")
    places, num_characters, num_wrong = bytearray(), 0, 0  # characters beyond ASCII, and bytes of none
    for block in chain([first], blocks):
        text = decoder.decode(block)
        num_characters += len(text) - int(np.count_nonzero(np.frombuffer(block, np.int8) >= 0))
        num_wrong += len(block) - len(text.encode())
        if len(places) < _PLACES_BYTES:
            places += b"".join(match[0] for match in islice(_PLACE.finditer(block), _MOST_PLACES))
    return Encoding(name=UTF8, codec=UTF8) if num_wrong <= num_characters else _guess(bytes(places) or sample)


# ---- other encodings of bytes, by chardet ----

_DAMAGE = re.compile("\ufffd+")
_PLACE = re.compile(rb"[\x00-/][\x00-\x7f]{0,64}+[\x80-\xff](?:[^\x00-/]*+[\x00-/]){1,30}")
_PLACES_BYTES, _MOST_PLACES = 1 << 18, 1 << 12  # of a file, and of a block
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


def _guess(sample: bytes) -> Encoding:
    """What text that is not UTF-8 is in. sample: at least some of what is beyond ASCII."""
    if 200 * _count_controls(sample) > len(sample):
        return _WIDE
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
_WIDE = Encoding(name="binary, or UTF-16 or UTF-32 without a byte order mark", codec=None)
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


def _judge_bytes(sample: bytes) -> Encoding | None:
    """Find what is no text, and UTF-16 and UTF-32, by zeros and other controls, which text in bytes hardly holds.

    In UTF-16 zeros are the high bytes of ASCII, so they are one-sided: 95 % of them at even, or at odd, positions. Few
    may be so by chance. So where over a third of all bytes are zeros, at least 3 are needed if they are one-sided, else
    64; where over 1 % are, 16 one-sided ones. UTF-16 of Burmese or Ethiopic is valid UTF-8, but a fifth or more of its
    bytes are controls (0x10, 0x12).
    """
    even, odd, size = sample[::2].count(0), sample[1::2].count(0), len(sample)
    total, is_one_sided = even + odd, max(even, odd) >= 0.95 * (even + odd)
    has_many = 3 * total > size and total >= (3 if is_one_sided else 64)
    # UTF-16 of another script has the zeros of its spaces and line ends, and one high byte that most characters share.
    has_some = 100 * total > size and total >= 16 and is_one_sided and _is_uniform_or_invalid(sample)
    has_controls = size >= 64 and 5 * _count_controls(sample) >= size
    return _WIDE if has_many or has_some or has_controls else None


def count_odd(text: str) -> int:
    """How many characters are controls, U+FFFD or unassigned; not tabs, nor what str.splitlines takes for line ends."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    numbers, names = categories()
    is_odd = np.isin(numbers[codes], [names.index(name) for name in ("Cc", "Cn", "Cs")]) | (codes == 0xFFFD)
    is_odd &= ~np.isin(codes, [ord(character) for character in "\t\n\v\f\r\x1c\x1d\x1e\x85"])
    return int(np.count_nonzero(is_odd))


def _is_uniform_or_invalid(sample: bytes) -> bool:
    """Whether one value fills 40 % of all even or odd bytes, as in UTF-16 of one script, or the sample is no UTF-8."""
    most = max(half.count(value) for half in (sample[::2], sample[1::2]) for value in range(256))
    return 5 * most > len(sample) or not _is_utf8(sample)


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
