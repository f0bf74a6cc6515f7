"""Inputs that broke something once, or might break something. They are not mutated.

If an oddity has `means`, a build of it must give the documents of that plain text, or refuse it. To count valid data as
damage, or to read other documents, is as wrong as a traceback.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from functools import partial

from reliability.cases import Oddity
from reliability.format_mutators import to_gz, to_zst

LONG = 1_000_000  # bytes of a line, which must not take longer than as many bytes of prose
NESTED = 120 << 20
PLAIN = b"The river is long.\nIt runs to the sea.\n\nA second document.\n"

# Text that fills a line. Each took quadratic time once, or is an example of common text.
FILLINGS = {
    "backticks": "`",
    "double quotes": '"',
    "single quotes": "'",
    "open brackets": "(",
    "closed brackets": ")",
    "square brackets": "[",
    "stops": ".",
    "stops and spaces": ". ",
    "question marks": "?",
    "ellipses": "... ",
    "abbreviations": "Mr. ",
    "initials": "U.S.A. ",
    "an insert of SQL": "('12','foo','bar'),",
    "a table of Markdown": "| a | `b` | **c** |",
    "code": "f(x)[i] = \"a\" + 'b'; ",
    "brackets of all kinds": "([{<",
    "spaces": "a ",
    "wide spaces": "\u3000",
    "ideographs": "学",
    "ideographs with stops": "学习。",
    "marks": "\u0301",
    "joined emoji": "👩\u200d",
    "characters without a space": "ab",
    "line separators": "a\u2028",
    "numbers": "1.",
    "apostrophes": "it's ",
}


def text_oddities() -> list[Oddity]:
    """Text files."""
    slow = [Oddity(name=f"a long line of {name}", make=partial(_fill, word)) for name, word in FILLINGS.items()]
    return [
        *slow,
        Oddity(name="nothing", make=lambda: b""),
        Oddity(name="blank lines", make=lambda: b"\n" * 1000),
        Oddity(name="no byte of UTF-8", make=lambda: b"\xff\xfe\xfd" * 1000),
        Oddity(name="zeros", make=lambda: bytes(100_000)),
        Oddity(name="UTF-16 with a mark", make=partial(_encode, "utf-16"), means=PLAIN),
        Oddity(name="UTF-16 LE", make=partial(_encode, "utf-16-le"), means=PLAIN),
        Oddity(name="UTF-16 BE", make=partial(_encode, "utf-16-be"), means=PLAIN),
        Oddity(name="UTF-32", make=partial(_encode, "utf-32"), means=PLAIN),
        Oddity(name="UTF-8 with a mark", make=lambda: b"\xef\xbb\xbf" + PLAIN, means=PLAIN),
        Oddity(name="CRLF", make=lambda: PLAIN.replace(b"\n", b"\r\n"), means=PLAIN),
        Oddity(name="CR alone", make=lambda: PLAIN.replace(b"\n", b"\r"), means=PLAIN),
        Oddity(name="NEL alone", make=lambda: PLAIN.replace(b"\n", b"\xc2\x85"), means=PLAIN),
        Oddity(name="U+2028 alone", make=lambda: PLAIN.replace(b"\n", "\u2028".encode()), means=PLAIN),
        Oddity(name="no line feed at the end", make=lambda: PLAIN.rstrip(), means=PLAIN),
        Oddity(name="a long document", make=lambda: PLAIN.replace(b"\n\n", b"\n") * 90_000),
    ]


def json_oddities() -> list[Oddity]:
    """JSON lines."""
    text = json.dumps(PLAIN.decode())
    means = PLAIN.replace(b"\n\n", b"\n")
    depth = 5_000
    huge = {name: f'{{"id": {value}, "text": {text}}}\n' for name, value in _odd_numbers().items()}
    return [
        *(Oddity(name=f"{name} beside the text", make=line.encode, means=means) for name, line in huge.items()),
        Oddity(name="deep nesting beside the text", make=partial(_nest, depth, text)),
        Oddity(name="deeper nesting beside the text", make=partial(_nest, 1_000_000, text)),
        Oddity(name="deep nesting alone", make=lambda: b"[" * 1_000_000 + b"\n"),
        Oddity(name="half a pair", make=lambda: b'{"text": "a\\ud800b"}\n'),
        Oddity(name="the text twice", make=lambda: b'{"text": "a", "text": "b"}\n'),
        Oddity(name="no object", make=lambda: b'[]\n1\nnull\n"text"\n{}\n'),
        Oddity(name="control characters in a key", make=lambda: b'{"\\u001b[31mred": 1}\n'),
        Oddity(name="separators inside the text", make=partial(_separate, "\u2028\x85\r"), means=_separated(3)),
        Oddity(name="raw separators inside the text", make=partial(_separate, "\u2028\x85", True), means=_separated(2)),
        Oddity(name="UTF-16 LE", make=lambda: f'{{"text": {text}}}\n'.encode("utf-16-le"), means=means),
        Oddity(name="a long text of backticks", make=lambda: json.dumps({"text": "`" * LONG}).encode()),
        Oddity(name="many fields", make=_widen),
    ]


def gz_oddities() -> list[Oddity]:
    """JSON lines, compressed with gzip."""
    return [
        Oddity(name="a bomb of nested objects", make=_bomb),
        Oddity(name="a bomb of spaces", make=lambda: to_gz(b" " * (1 << 28))),
        Oddity(name="a bomb of one line", make=lambda: to_gz(b'{"text": "' + b"some words " * (2 << 20) + b'"}\n')),
        Oddity(name="cut short", make=lambda: to_gz(_one_line() * 1000)[:-20]),
        Oddity(name="zeros behind it", make=lambda: to_gz(_one_line()) + bytes(512), means=_one_text()),
        Oddity(name="two members", make=lambda: to_gz(_one_line()[:9]) + to_gz(_one_line()[9:]), means=_one_text()),
        Oddity(name="not compressed", make=_one_line),
    ]


def zst_oddities() -> list[Oddity]:
    """JSON lines, compressed with zstd."""
    skippable = struct.pack("<II", 0x184D2A50, 4) + b"abcd"
    line = _one_line()
    return [
        Oddity(name="a window of 2 GB", make=lambda: frame_zst(line, window_log=31), means=_one_text()),
        Oddity(name="a window of 256 MB", make=lambda: frame_zst(line, window_log=28), means=_one_text()),
        Oddity(name="a window of 8 MB", make=lambda: frame_zst(line, window_log=23), means=_one_text()),
        Oddity(name="two frames", make=lambda: to_zst(line[:9]) + to_zst(line[9:]), means=_one_text()),
        Oddity(name="a frame to skip", make=lambda: skippable + to_zst(line), means=_one_text()),
        Oddity(name="cut short", make=lambda: to_zst(line * 1000)[:-5]),
        Oddity(name="a bomb of spaces", make=lambda: to_zst(b" " * (1 << 28))),
        Oddity(name="not compressed", make=_one_line),
    ]


def csv_oddities() -> list[Oddity]:
    """Tables as text."""
    head = b"id,text\n"
    return [
        Oddity(name="a row of many fields", make=lambda: head + b"ab," * 10_000_000 + b"\n"),
        Oddity(name="rows of many fields", make=lambda: head + (b"ab," * 1_000_000 + b"\n") * 9),
        Oddity(name="a header of many fields", make=lambda: b"text," + b"ab," * 900_000 + b"\nx\n"),
        Oddity(name="a quote without an end", make=lambda: head + b'1,"' + b"word\n" * 10_000_000),
        Oddity(name="long rows", make=lambda: head + (b"1," + b"word " * 6_000_000 + b"\n") * 3),
        Oddity(name="two texts", make=lambda: b"text,text\na,b\n"),
        Oddity(name="a mark in each row", make=lambda: head + b'1,"word\n' * 1_000_000),
        Oddity(name="marks that close late", make=lambda: head + (b'1,"' + b"a,b\n" * 65 + b'"\n') * 10_000),
        Oddity(name="doubled marks", make=lambda: head + (b'1,"' + b'"' * (1 << 20) + b'"\n') * 9),
        Oddity(name="a row of many lines", make=lambda: head + b'1,"a\nb"' + b',"a\nb"' * 1_000_000),
    ]


def wiki_oddities() -> list[Oddity]:
    """The output of WikiExtractor."""
    return [
        Oddity(name="beginnings without an end", make=lambda: b"<doc x\n" * 150_000 + b"a\n</doc>\n"),
        Oddity(name="beginnings without any end", make=lambda: b"<doc x\n" * 150_000),
        Oddity(name="ends without a beginning", make=lambda: b"<doc x>\na\n" + b"</doc>\n" * 150_000),
        Oddity(name="a beginning without a line end", make=lambda: b"<doc " * 300_000),
        Oddity(name="a long article", make=lambda: b"<doc x>\n" + b"word\n" * 10_000_000),
    ]


def mixture_oddities() -> list[Oddity]:
    """Mixtures, in TOML."""
    texts = {
        "a key of many parts": "a" + ".a" * 20_000 + " = 1\n",
        "a table of many parts": "[a" + ".'a'" * 20_000 + "]\n",
        "many keys of some parts": "".join(f"{'a.' * 31}b{i} = 1\n" for i in range(14_000)),
        "many strings without an end": "." * 40 + '"\\' * 300_000,
        "deep lists": "a = " + "[" * 100_000,
        "deep tables": "a = " + "{a=" * 100_000,
        "many sources": "[[source]]\n" * 90_000,
        "a number of 5,000 digits": "[[source]]\nname = 'a'\npaths = 'a.txt'\nweight = " + "9" * 5000,
    }
    return [Oddity(name=name, make=partial(str.encode, text)) for name, text in texts.items()]


def plan_oddities() -> list[Oddity]:
    """.build/plan.json, and other files of one JSON object."""
    return [
        Oddity(name="an empty object", make=lambda: b"{}"),
        Oddity(name="nothing", make=lambda: b""),
        Oddity(name="a list", make=lambda: b"[]"),
        Oddity(name="null", make=lambda: b"null"),
        Oddity(name="deep nesting", make=lambda: b'{"config":' * 100_000 + b"1" + b"}" * 100_000),
        Oddity(name="deep lists", make=lambda: b'{"config":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        Oddity(name="a number of 5,000 digits", make=lambda: b'{"version": ' + b"9" * 5000 + b"}"),
        Oddity(name="no UTF-8", make=lambda: b'{"version": "\xff"}'),
        Oddity(name="zeros", make=lambda: bytes(700)),
    ]


def metrics_oddities() -> list[Oddity]:
    """metrics.jsonl."""
    line = b'{"step": 2, "split": "train", "mlm_loss": %s, "tokens_per_second": 5.0}\n'
    numbers = {name: line % value.encode() for name, value in _odd_numbers().items()}
    steps = {name: b'{"step": %s, "split": "train"}\n' % value.encode() for name, value in _odd_numbers().items()}
    return [
        *(Oddity(name=f"{name} as a loss", make=partial(bytes, made)) for name, made in numbers.items()),
        *(Oddity(name=f"{name} as a step", make=partial(bytes, made)) for name, made in steps.items()),
        Oddity(name="no UTF-8", make=lambda: line % b"1.0" + b"\xff\n" + line % b"2.0"),
        Oddity(name="deep nesting", make=lambda: b"[" * 100_000 + b"\n" + line % b"1.0"),
    ]


def model_oddities(sound: bytes) -> list[Oddity]:
    """SentencePiece models. sound: one that is sound."""
    return [
        Oddity(name="a bad byte in a piece", make=lambda: sound.replace("▁the".encode(), b"\xe2\x96\xffthe", 1)),
        Oddity(name="nothing", make=lambda: b""),
        Oddity(name="zeros", make=lambda: bytes(1000)),
        Oddity(name="half of it", make=lambda: sound[: len(sound) // 2]),
        Oddity(name="twice", make=lambda: sound * 2),
    ]


def safetensors_oddities(sound: bytes) -> list[Oddity]:
    """safetensors files. sound: one that is sound."""
    return [
        Oddity(name="a header of 2**63 bytes", make=lambda: struct.pack("<Q", 1 << 63) + sound[8:]),
        Oddity(name="a header longer than the file", make=lambda: struct.pack("<Q", len(sound)) + sound[8:]),
        Oddity(name="deep nesting", make=lambda: struct.pack("<Q", 100_000) + b"[" * 100_000),
        Oddity(name="nothing", make=lambda: b""),
        Oddity(name="without its end", make=lambda: sound[:-4]),
    ]


def _odd_numbers() -> dict[str, str]:
    return {
        "an integer of 5,000 digits": "9" * 5000,
        "a negative integer of 5,000 digits": "-" + "9" * 5000,
        "a number of 5,000 decimals": "0." + "9" * 5000,
        "1e999": "1e999",
        "an integer of 400 digits": "9" * 400,
    }


def _fill(word: str) -> bytes:
    return word.encode() * (LONG // len(word.encode())) + b"\n"


def _encode(encoding: str) -> bytes:
    return PLAIN.decode().encode(encoding)


def _nest(depth: int, text: str) -> bytes:
    return b'{"x": ' + b"[" * depth + b"]" * depth + f', "text": {text}}}\n'.encode()


def _separate(marks: str, is_raw: bool = False) -> bytes:
    text = "".join(f"Line {number}.{mark}" for number, mark in enumerate(marks))
    return json.dumps({"text": text}, ensure_ascii=not is_raw).encode() + b"\n"


def _separated(count: int) -> bytes:
    return "".join(f"Line {number}.\n" for number in range(count)).encode()


def _widen() -> bytes:
    return json.dumps({**{f"field {i}": i for i in range(100_000)}, "text": "a b"}).encode() + b"\n"


def _bomb() -> bytes:
    part = b'{"a":{"b":{}}},' * 1000
    return to_gz(b'{"x": [' + part * (NESTED // len(part)) + b'{}], "text": "a"}\n')


def _one_line() -> bytes:
    return json.dumps({"text": PLAIN.decode()}).encode() + b"\n"


def _one_text() -> bytes:
    return PLAIN.replace(b"\n\n", b"\n")


def frame_zst(data: bytes, window_log: int) -> bytes:
    """Make a zstd frame of one raw block with a window of 2**window_log bytes, as `zstd --long=N` writes it."""
    head = struct.pack("<IBB", 0xFD2FB528, 0, window_log - 10 << 3)
    return head + struct.pack("<I", len(data) << 3 | 1)[:3] + data


ODDITIES: dict[str, Callable[[], list[Oddity]]] = {
    "txt": text_oddities,
    "jsonl": json_oddities,
    "jsonl.gz": gz_oddities,
    "jsonl.zst": zst_oddities,
}
