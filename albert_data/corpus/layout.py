"""Signs that a corpus is read in the wrong way, and which option reads it in the right one.

In: documents as they were read. Out: counts, which are sums over documents and so the same however these lie in files;
and the advice that follows from the counts of a whole corpus. Before the work, the first bytes of a few files show
whether their documents are separated.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from albert_data.config import TextConfig
from albert_data.corpus.formats.recognition import match_name
from albert_data.corpus.inputs import SHOWN, Input, open_input, read_beginning
from albert_data.corpus.lines.line_ends import break_lines
from albert_data.corpus.lines.white_space import BLANK_LINE, has_text
from albert_data.kernels import I64, Pointer, helper, item, kernel, pointer
from albert_data.text.wording import list_some

SHORT_BYTES = 400  # of canonical text: about 100 tokens, too few for two segments of some length
_NARROWEST, _WIDEST = 50, 90  # columns of a line that a program has wrapped
_ENOUGH = 100  # lines or documents to judge by
_FINAL = tuple(b".!?:;\"')")  # ASCII that ends a sentence, or may follow a stop
_NEW = tuple(b"0123456789[{<")  # ASCII that begins a line of a log, but is rare inside a sentence
_FEW_UNCOMPOSED = 1000  # one of so many documents is not worth a word
_FEW_LINES = 12  # wrapped documents of fewer inner lines on average are probably paragraphs
_EACH_FILE = "--documents file to read each file as one document"
MARKERS = r"<\|?(?:endoftext|end_of_text|eot_id|im_end|eos|eod|eot)\|?>|</s>"  # between documents of other programs
_MARKER = re.compile(MARKERS.encode(), re.IGNORECASE)
_JUDGED, _BEGINNING, _LARGE = 20, 1 << 20, 1_000_000  # files, bytes of each, and bytes of a large document
_FULL_LINE = re.compile(rb"[^\n]{100,}(?:[.!?:;\"')]|[\xe2\xe3\xef][\x80-\xbf]{2})\s*\Z")
# The first lines of a document count, then every 16th. To count all lines, this module would take half as long again.
_FIRST_LINES, _STEP = 32, 16


class Advice(NamedTuple):
    """What would read a corpus better. options: words of a command line; text: a sentence that names them."""

    options: tuple[str, ...]
    text: str


def count_layout(
    utf8: np.ndarray, line_offsets: np.ndarray, document_offsets: np.ndarray, layout: Counter[str]
) -> None:
    """Add the counts of some documents of canonical text to `layout`.

    inner_lines: of all lines but the last of each document, the first 32 of the document and then every 16th
    wrapped_lines: the inner lines that are 50 to 90 columns wide, end without a stop, and are not followed by a line
        that begins as those of a log do, with a digit or a bracket
    short_documents: documents of under 400 bytes
    """
    if len(document_offsets) < len(line_offsets):  # a document has two lines or more
        inner, wrapped = count_wrapped(utf8, line_offsets, document_offsets)
        layout["inner_lines"] += int(inner)
        layout["wrapped_lines"] += int(wrapped)
    lengths = np.diff(line_offsets[document_offsets])
    layout["short_documents"] += int(np.count_nonzero(lengths < SHORT_BYTES))


def advise(counts: Mapping[str, int], settings: Mapping[str, Any], paths: Iterable[str]) -> list[Advice]:
    """What to change, for each option, judged by the counts of a corpus; empty if nothing is odd.

    counts: also `documents` and `uncomposed_documents`; settings: those of the build's text; paths: of its inputs.
    """
    lines, wrapped, short = (counts.get(name, 0) for name in ("inner_lines", "wrapped_lines", "short_documents"))
    num_documents, found = counts["documents"], list[Advice]()
    is_wrapped = lines >= _ENOUGH and 2 * wrapped > lines and not settings.get("unwrap")
    if is_wrapped:
        text = (
            f"{100 * wrapped // lines} % of the line ends inside documents look as if a program had wrapped the "
            "lines, so that sentences are cut there: pass --unwrap to join them"
        )
        found.append(Advice(("--unwrap",), text))
    is_by_blank = settings.get("document_rule") == TextConfig.document_rule and not settings.get("document_separator")
    is_by_blank = is_by_blank and any(map(_may_be_text, paths))
    is_short = 2 * short > num_documents or (is_wrapped and _FEW_LINES * num_documents > lines)
    if is_by_blank and num_documents >= _ENOUGH and is_short:
        text = (
            f"{100 * short // num_documents} % of the {num_documents:,} documents are under {SHORT_BYTES} bytes, too "
            f"short for pairs of some length: if blank lines separate the paragraphs of a .txt file, pass {_EACH_FILE}"
        )
        found.append(Advice(("--documents", "file"), text))
    if _FEW_UNCOMPOSED * (uncomposed := counts.get("uncomposed_documents", 0)) >= max(num_documents, 1):
        text = (
            f"{uncomposed:,} of {num_documents:,} documents are not in NFC (an accent may be a character of its own): "
            "pass --unicode nfc, to vocab and to build, so that each word is always written alike"
        )
        found.append(Advice(("--unicode", "nfc"), text))
    return found


def advise_on_beginnings(inputs: list[Input], text: TextConfig) -> list[str]:
    """A line for people if the documents of large .txt files do not seem to be separated, or if all is one document."""
    files = [one for one in inputs if one.format == "txt" and not one.is_stream]
    is_only, found = sum(not one.is_validation for one in inputs) == 1, dict[str, list[str]]()
    for file in sorted(files, key=lambda one: -one.size)[:_JUDGED]:
        with open_input(file)[0] as stream:
            beginning = break_lines(read_beginning(stream, _BEGINNING)[0])
        if advice := _judge(beginning, file.source.text if file.source else text, is_only=is_only):
            found.setdefault(advice, []).append(file.path)
    return [f"{list_some(paths, SHOWN)}: {advice}" for advice, paths in [*found.items()][:1]]


def _judge(data: bytes, text: TextConfig, *, is_only: bool) -> str | None:
    """What to do about a file that begins so. is_only: whether it is all of the corpus."""
    divider, markers = text.divider, Counter(_MARKER.findall(data))
    if text.document_rule != TextConfig.document_rule or (divider and divider in data):
        return None
    if markers:
        name = markers.most_common(1)[0][0].decode()
        return f"{name} stands in the text: pass --document-separator '{name}' if it ends documents"
    is_large = len(data) > _LARGE or (is_only and has_text(data))
    if not is_large or (divider is None and BLANK_LINE.search(data.strip())):
        return None
    lines = [line for line in data.split(b"\n") if has_text(line)]
    is_full = len(lines) > 1 and 2 * sum(map(bool, map(_FULL_LINE.match, lines))) > len(lines)
    what = "blank line" if divider is None else repr(text.document_separator)
    option = "s line if each line is a document" if is_full else "-separator TEXT with what ends a document"
    return f"no {what} in the first MiB, so it is one document: pass --document{option}, or {_EACH_FILE}"


def _may_be_text(path: str) -> bool:
    return (match_name(os.path.basename(path)) or ("txt",))[0] == "txt"


@helper
def ends_in_stop(data: Pointer, begin: int, end: int) -> bool:
    """Whether a line ends in a stop or in a mark that may follow one."""
    last = I64(item(data, end - 1))
    if last < 0x80:
        return last in _FINAL
    if end - begin < 3:
        return False
    lead, middle = I64(item(data, end - 3)), I64(item(data, end - 2))
    # U+2000 to U+203F: quotes, the ellipsis; U+3000 to U+303F: ideographic stops; U+F000 to U+FFFF: full-width ones.
    return bool(lead == 0xEF or (lead == 0xE2 or lead == 0xE3) and middle == 0x80)


@kernel
def count_wrapped(utf8: np.ndarray, line_offsets: np.ndarray, document_offsets: np.ndarray) -> tuple[int, int]:
    """The counts of inner and of wrapped lines, as in `count_layout`.

    The columns of a line are estimated from its bytes, by its first character. Text in characters of three bytes is
    mostly of wide ones, two columns each. In characters of two bytes, a word of three letters and its space are seven
    bytes and four columns.
    """
    data, inner, wrapped = pointer(utf8), 0, 0
    for document in range(len(document_offsets) - 1):
        line, last = document_offsets[document], document_offsets[document + 1] - 1
        dense = line + _FIRST_LINES
        while line < last:
            begin, end = line_offsets[line], line_offsets[line + 1] - 1
            inner += 1
            line += 1 if line < dense else _STEP
            columns = end - begin
            if not _NARROWEST <= columns <= 2 * _WIDEST:  # most lines: their text is not read
                continue
            first = I64(item(data, begin))
            if first >= 0xE0:
                columns = columns * 2 // 3
            elif first >= 0xC0:
                columns = columns * 4 // 7
            goes_on = I64(item(data, end + 1)) not in _NEW
            if _NARROWEST <= columns <= _WIDEST and goes_on and not ends_in_stop(data, begin, end):
                wrapped += 1
    return inner, wrapped
