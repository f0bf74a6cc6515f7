"""What Google's ALBERT code does to text before SentencePiece, and to pieces after it: `--normalization albert-v2`.

**Before** (`normalise`). In: sentences in a buffer. Out: normalised sentences in another one. In this order, as
`preprocess_text` does:

1. white space at both ends is removed, and every other run of it becomes one space;
2. two backticks or two apostrophes become a quotation mark (transformers' AlbertTokenizer does that, Google's published
   code does not);
3. NFKD;
4. combining characters are removed;
5. lower case.

NFKD reorders combining characters only, and step 4 removes all of these. So steps 3 to 5 replace each character alone,
except a capital sigma, whose lower case depends on its neighbours. The table of replacements is part of the package
(normalization.tsv, written by scripts/make_unicode_table.py), so that every Python makes the same build.

**After** (`CommaRule`). In: the ids of sentences. Out: those of `encode_pieces`, whose rule is: a piece that ends with
a digit and a comma is divided. The part before the comma is encoded again, without its "▁"; if the piece began with no
"▁", the one that the new pieces begin with is dropped. Then the comma is a piece of its own.

So each such piece always becomes the same ids, and a table has them. The rule also reads the text of unknown pieces,
which ids do not have. That matters only if the text of unknown characters can end with a digit and a comma, or spell
a piece that is not matched against text. A model of which that is so is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import sentencepiece

from albert_data.data import Text
from albert_data.errors import TokenizerError
from albert_data.kernels import I64, Pointer, copy_items, helper, item, kernel, pointer, put, rarely
from albert_data.text.utf8 import read_character, step_back, write_character
from albert_data.tokenizer.buffers import Sentences
from albert_data.tokenizer.chunks.cutting import PADDING
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE

_PATH = Path(__file__).parent.with_name("normalization.tsv")
_NUM_CODES = 0x110000
_SIGMA, _SMALL_SIGMA, _FINAL_SIGMA = "Σ", 0x3C3, 0x3C2
_SIGMA_CODE = ord(_SIGMA)
_COMMA = ","

# An entry of TextTable. QUOTE: two of it become a quotation mark. WITH_SIGMA: its replacement holds a capital sigma.
#
#     bits    0..17                         18..23           24..29
#             where its replacement         its length in    REPLACED and the other flags
#             begins in `replacements`      bytes
_LENGTH_SHIFT = 18
_OFFSET, _LENGTH = (1 << _LENGTH_SHIFT) - 1, (1 << 6) - 1
REPLACED, SPACE_LIKE, QUOTE, CASED, IGNORABLE, WITH_SIGMA = (1 << bit for bit in range(24, 30))
_PROPERTIES = {"space": SPACE_LIKE, "cased": CASED, "ignorable": IGNORABLE}
_QUOTES, _QUOTE_MARK, _BLANK = "`'", np.uint8(ord('"')), np.uint8(ord(" "))


class TextTable(NamedTuple):
    """What each character becomes."""

    entries: np.ndarray  # uint32 [0x110000], see above
    replacements: np.ndarray  # uint8, all of them
    ascii: np.ndarray  # uint16 [128], what a byte becomes, and from bit 8 on 1 for a space and 2 for a quote
    growth: int  # bytes that one byte becomes, at most


@cache
def read_ranges() -> tuple[tuple[int, int, str], ...]:
    """The ranges of normalization.tsv: first code point, last one, and the fact about each."""
    found = []
    for line in _PATH.read_text(encoding="ascii").splitlines()[1:]:
        codes, fact = line.split("\t")
        first, _, last = codes.partition("..")
        found.append((int(first, 16), int(last or first, 16), fact))
    return tuple(found)


@cache
def digits() -> frozenset[int]:
    """The code points that str.isdigit accepts."""
    return frozenset(code for first, last, fact in read_ranges() if fact == "digit" for code in range(first, last + 1))


@cache
def make_table() -> TextTable:
    entries, texts = np.zeros(_NUM_CODES, np.uint32), bytearray()
    growth = 1

    def add(first: int, last: int, text: str) -> None:
        nonlocal growth
        encoded = text.encode()
        flags = REPLACED | (WITH_SIGMA if _SIGMA in text else 0)
        entries[first : last + 1] |= np.uint32(flags | len(encoded) << _LENGTH_SHIFT | len(texts))
        texts.extend(encoded)
        growth = max(growth, -(-len(encoded) // len(chr(first).encode())))

    for first, last, fact in read_ranges():
        if fact in _PROPERTIES:
            entries[first : last + 1] |= np.uint32(_PROPERTIES[fact])
        elif fact != "digit":
            add(first, last, "".join(chr(int(code, 16)) for code in fact.split()))
    add(_SIGMA_CODE, _SIGMA_CODE, _SIGMA)
    for index in range(11_172):  # Hangul syllables: 19 first letters, 21 vowels, 28 last letters, the first for none
        letters = (0x1100 + index // 588, 0x1161 + index % 588 // 28, 0x11A7 + index % 28)
        add(0xAC00 + index, 0xAC00 + index, "".join(map(chr, letters[: 3 if index % 28 else 2])))
    for quote in _QUOTES:
        entries[ord(quote)] |= np.uint32(QUOTE)
    ascii_table = np.arange(128, dtype=np.uint16)
    for code, entry in enumerate(entries[:128].tolist()):
        if entry & REPLACED:
            ascii_table[code] = texts[entry & _OFFSET]
        if entry & SPACE_LIKE:
            ascii_table[code] = int(_BLANK) | 1 << 8
        elif entry & QUOTE:
            ascii_table[code] |= 2 << 8
    return TextTable(entries, np.frombuffer(bytes(texts), np.uint8), ascii_table, growth)


def normalise(sentences: Sentences) -> Sentences:
    """The normalised sentences, followed by PADDING bytes."""
    table, (_, begins, ends) = make_table(), sentences
    # Most of this memory is never written, and so never allocated.
    out = np.empty(int((ends - begins).sum()) * table.growth + PADDING + 1, np.uint8)
    offsets = np.zeros(len(begins) + 1, np.int64)
    normalise_sentences(sentences, table, out, offsets)
    filled = int(offsets[-1])
    out[filled : filled + PADDING] = 0
    return Sentences(out[: filled + PADDING], offsets[:-1], offsets[1:])


def normalise_text_of(text: Text) -> Text:
    """The same documents, of normalised sentences. A sentence may be empty then."""
    found = normalise(Sentences.of(text))
    return replace(text, utf8=found.utf8, sentence_begins=found.begins, sentence_ends=found.ends)


def normalise_text(text: str) -> str:
    """As `normalise`, one text."""
    utf8 = np.frombuffer(text.encode(), np.uint8)
    found = normalise(Sentences(utf8, np.zeros(1, np.int64), np.full(1, len(utf8))))
    return found.utf8[: found.ends[0]].tobytes().decode()


@kernel
def normalise_sentences(sentences: Sentences, table: TextTable, out: np.ndarray, offsets: np.ndarray) -> None:
    """Write normalised sentences one after another, and where each ends.

    out: uint8, with `growth` times the capacity of the sentences, and one byte.
    """
    text, target, filled = pointer(sentences.utf8), pointer(out), 0
    entries, ascii_table, replacements = pointer(table.entries), pointer(table.ascii), pointer(table.replacements)
    for sentence in range(len(sentences.begins)):
        position, end, begin = sentences.begins[sentence], sentences.ends[sentence], filled
        after_space, has_sigma = 1, False  # so that spaces at the beginning are not written
        while position < end:
            byte = I64(item(text, position))
            if byte < 128:
                found = I64(item(ascii_table, byte))
                if rarely(found >> 9 != 0) and position + 1 < end and I64(item(text, position + 1)) == byte:
                    put(target, filled, _QUOTE_MARK)
                    position += 1
                else:
                    put(target, filled, np.uint8(found))
                # A space after a space is written too, but the next byte overwrites it.
                is_space = found >> 8 & 1
                filled += 1 - (is_space & after_space)
                after_space = is_space
                position += 1
                continue
            code, after = read_character(text, position)
            entry = I64(item(entries, code))
            if entry & SPACE_LIKE:
                put(target, filled, _BLANK)
                filled += 1 - after_space
                after_space = 1
            else:
                after_space = 0
                if entry & REPLACED:
                    length = entry >> _LENGTH_SHIFT & _LENGTH
                    copy_items(target, filled, replacements, entry & _OFFSET, length)
                    filled += length
                    has_sigma = has_sigma or entry & WITH_SIGMA != 0
                else:
                    copy_items(target, filled, text, position, after - position)
                    filled += after - position
            position = after
        if after_space and filled > begin:  # the spaces at the end
            filled -= 1
        if has_sigma:
            lower_sigmas(target, begin, filled, entries)
        offsets[sentence + 1] = filled


@helper
def lower_sigmas(text: Pointer, begin: int, end: int, entries: Pointer) -> None:
    """Write each capital sigma as the final one, if a cased character precedes it and none follows; else as the small.

    Case-ignorable characters in between do not count. (Unicode, section 3.13, Final_Sigma.)
    """
    position = begin
    while position < end:
        code, after = read_character(text, position)
        if code == _SIGMA_CODE:
            is_final = finds_cased(text, begin, position, True, entries)
            is_final = is_final and not finds_cased(text, after, end, False, entries)
            write_character(text, position, _FINAL_SIGMA if is_final else _SMALL_SIGMA)  # of two bytes, too
        position = after


@helper
def finds_cased(text: Pointer, begin: int, end: int, at_end: bool, entries: Pointer) -> bool:
    """Whether the first character of a text, or the last, that is not case-ignorable is cased."""
    while begin < end:
        if at_end:
            end = step_back(text, end)
            code = read_character(text, end)[0]
        else:
            code, begin = read_character(text, begin)
        entry = I64(item(entries, code))
        if entry & IGNORABLE == 0:
            return bool(entry & CASED != 0)
    return False


# ---- after SentencePiece ----


@dataclass(frozen=True, kw_only=True)
class CommaRule:
    """What the rule makes of each of V pieces."""

    ids: np.ndarray  # int64, flat; piece i becomes ids[offsets[i] : offsets[i + 1]]
    offsets: np.ndarray  # int64 [V + 1]

    def apply(self, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Apply the rule to the ids of all sentences; fills in the new lengths."""
        out = np.empty(int(np.diff(self.offsets)[ids].sum()), ids.dtype)
        divide_pieces(ids, lengths, self.ids, self.offsets, out)
        return out


def make_comma_rule(
    processor: sentencepiece.SentencePieceProcessor, pieces: list[str], is_matched: np.ndarray
) -> CommaRule:
    """Raises TokenizerError if unknown text may matter. is_matched: bool, which pieces are matched against text."""
    known = {pieces[i] for i in np.flatnonzero(is_matched) if len(pieces[i]) == 1}
    unmatched = [pieces[i] for i in np.flatnonzero(~is_matched) if i != processor.unk_id()]
    spelled = [piece for piece in unmatched if normalise_text(piece) == piece]  # text in lower case spells no [CLS]
    if lacking := [piece for piece in (_COMMA, *spelled) if known.isdisjoint(piece)]:
        raise TokenizerError(
            f"--normalization albert-v2 needs a model with a piece for a character of {lacking[0]!r}; leave it out"
        )
    found = {
        i: [processor.piece_to_id(piece) for piece in divide_piece(processor, pieces[i])]
        for i in np.flatnonzero(is_matched).tolist()
        if ends_with_comma(pieces[i])
    }
    parts = [found.get(i, [i]) for i in range(len(pieces))]
    return CommaRule(
        ids=np.array([i for part in parts for i in part], np.int64), offsets=np.cumsum([0, *map(len, parts)])
    )


def ends_with_comma(piece: str) -> bool:
    """Whether the rule divides a piece: a digit, then a comma at its end."""
    return piece.endswith(_COMMA) and len(piece) > 1 and ord(piece[-2]) in digits()


def divide_piece(processor: sentencepiece.SentencePieceProcessor, piece: str) -> list[str]:
    """The pieces that a piece becomes. One without a digit left, after normalisation, becomes the comma alone."""
    parts = list(processor.encode(piece[:-1].replace(VISIBLE_SPACE, ""), out_type=str))
    if parts and parts[0].startswith(VISIBLE_SPACE) and not piece.startswith(VISIBLE_SPACE):
        first = parts[0].removeprefix(VISIBLE_SPACE)
        parts = [first, *parts[1:]] if first else parts[1:]
    return [*parts, _COMMA]


@kernel
def divide_pieces(
    ids: np.ndarray, lengths: np.ndarray, parts: np.ndarray, offsets: np.ndarray, out: np.ndarray
) -> None:
    """Write what each id becomes, and fill in the new lengths."""
    at, filled = 0, 0
    for sentence in range(len(lengths)):
        begin = filled
        for _ in range(lengths[sentence]):
            piece = ids[at]
            for part in range(offsets[piece], offsets[piece + 1]):
                out[filled] = parts[part]
                filled += 1
            at += 1
        lengths[sentence] = filled - begin
