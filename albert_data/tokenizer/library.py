"""Any other tokenizer.json: byte-level BPE as in RoBERTa and ModernBERT, Unigram, WordPiece with other rules.

In: a tokenizer.json. Out: the ids of the library `tokenizers`, which encodes all text, at its speed. Text that spells a
special piece is text.

Where words begin is seen by the marks of the pre-tokeniser: a space as a byte-level character ("Ġ"), "▁", or no "##".
Byte-level BPE without `add_prefix_space` reads a space as a part of the next word, so it is given the sentences of a
document with the spaces before them (`include_spaces`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from albert_data.data import Text, slice_sentences
from albert_data.errors import TokenizerError
from albert_data.kernels import I64, Pointer, helper, item, kernel, pointer
from albert_data.text.ascii import LINE_FEED, SPACE
from albert_data.text.character_bits import ALPHA, OTHER, UNSPACED, character_properties
from albert_data.text.utf8 import read_character, step_back
from albert_data.tokenizer.backend import JsonKind, list_rules
from albert_data.tokenizer.buffers import Sentences
from albert_data.tokenizer.chunks.encoder import SLICE_BYTES
from albert_data.tokenizer.kinds import TextEncoder
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE
from albert_data.tokenizer.tokenizer_json import CONTINUING
from albert_data.tokenizer.wordpiece import show_piece

_BYTES, _SPACES, _CONTINUED = "bytes", "spaces", "##"  # how pieces show where words begin
_IS_SPACED, _IS_JOINED = 1, 2  # of sentences: a space before it, it goes on the one before
_MODELS = ("BPE", "Unigram", "WordPiece")
_RARE = "\U0010fffd"  # a private character, of which no vocabulary has a piece
# Byte-level pieces that canonical text hardly ever gives: parts of characters, controls, and white space other than one
# space at the beginning.
_NEVER_GIVEN = re.compile(rf"<0x[0-9A-F]{{2}}>|[\s\0-\x1f\x7f-\x9f]|.{VISIBLE_SPACE}", re.DOTALL)
_UNUSED = re.compile(r"\W*unused\W*\d+\W*", re.IGNORECASE)


class LibraryKind(JsonKind):
    """A tokenizer of the library `tokenizers`."""

    library = "the library tokenizers"

    def __init__(self, values: dict[str, Any], name: str, slow_reason: str | None) -> None:
        """Raises TokenizerError for a kind that is not supported, or if a special piece is missing."""
        super().__init__(values, name)
        self._marks = marks = _find_marks(values, self.pieces, name)
        added = {token["content"]: bool(token.get("special")) for token in values.get("added_tokens") or []}
        show = {_BYTES: _show_bytes, _CONTINUED: show_piece}.get(marks, str)
        self.texts = [piece if added.get(piece) else show(piece) for piece in self.pieces]
        self.is_ordinary = (
            np.array([not (added.get(piece) or _UNUSED.fullmatch(piece)) for piece in self.pieces])
            & ~self.specials.is_special
        )
        self.is_ordinary[self.specials.unk_id] = False
        if marks == _BYTES:
            self.is_ordinary &= np.array([not _NEVER_GIVEN.search(text) for text in self.texts])
        self.has_prefix = marks == _CONTINUED or any(
            map(_adds_space, list_rules(values.get("normalizer"), values.get("pre_tokenizer")))
        )
        self.slow_reason = slow_reason

    @cached_property
    def reads_spaces(self) -> bool:
        """Yes for byte-level pieces, if no normaliser adds or strips spaces."""
        return self._marks == _BYTES and self.normalise(" a") == f"{VISIBLE_SPACE}a"

    def make_encoder(self) -> TextEncoder:
        self._backend.encode([_RARE])  # fails now, and not later, if the model has no unknown piece
        return self  # it keeps nothing between sentences

    def encode(self, sentences: Sentences, lengths: np.ndarray) -> Iterator[np.ndarray]:
        for chosen in sentences.slices(SLICE_BYTES):
            ids, lengths[chosen], _ = self.encode_texts(slice_sentences(*sentences.part(chosen)))
            yield ids

    def normalise(self, text: str) -> str:
        return "".join(self.texts[i] for i in self._backend.encode([text])[0])

    def decode(self, ids: Sequence[int]) -> str:
        shown = [i for i in ids if not self.specials.is_special[i]]
        if not self._values.get("decoder"):  # the library would put a space between two pieces
            return "".join(self.texts[i] for i in shown).replace(VISIBLE_SPACE, " ").strip(" ")
        return self._backend.decode(shown).removeprefix(" ")


def _find_marks(values: dict[str, Any], pieces: Sequence[str], name: str) -> str:
    """How pieces show where words begin. Raises TokenizerError for what is not supported."""
    kind = values["model"].get("type")
    rules = list_rules(*map(values.get, ("normalizer", "pre_tokenizer", "decoder")))
    if kind not in _MODELS:
        raise TokenizerError(
            f"{name} is {kind or 'of an unnamed kind'}; supported are {', '.join(_MODELS)}, and SentencePiece models"
        )
    if any(rule.get("type") == "ByteLevel" for rule in rules):
        return _BYTES
    is_wordpiece = kind == "WordPiece" and values["model"].get("continuing_subword_prefix") == CONTINUING
    return _CONTINUED if is_wordpiece and not any(piece.startswith(VISIBLE_SPACE) for piece in pieces) else _SPACES


def _adds_space(rule: dict[str, Any]) -> bool:
    """Whether a rule puts a space before a text."""
    kind = rule.get("type")
    if kind == "Metaspace":
        return bool(rule.get("prepend_scheme", "always" if rule.get("add_prefix_space", True) else "never") != "never")
    return kind == "Prepend" or (kind == "ByteLevel" and bool(rule.get("add_prefix_space")))


def _show_bytes(piece: str) -> str:
    """The text of a byte-level piece. Bytes that are no whole characters are shown as <0xE2>."""
    table = read_bytes()
    if any(character not in table for character in piece):
        return piece  # an added token
    data = bytes(table[character] for character in piece)
    try:
        return data.decode().replace(" ", VISIBLE_SPACE)
    except UnicodeDecodeError:
        space = VISIBLE_SPACE if data.startswith(b" ") else ""
        return space + "".join(f"<0x{byte:02X}>" for byte in data.removeprefix(b" "))


@cache
def read_bytes() -> dict[str, int]:
    """The byte that each byte-level character stands for: visible Latin-1 for itself, the others from U+0100 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


# ---- the space before each sentence ----


def include_spaces(text: Text) -> Text:
    """The same sentences, each with the space before it. Two that meet between two marks, as in `.”—“`, become one.

    The first sentence of a document has none, nor has one that follows the one before it without white space. A line
    end counts as a space, except between scripts without spaces: where the nearest letters on both sides, or the
    nearest marks such as "。", are of one.
    """
    is_first = np.zeros(len(text.sentence_begins) + 1, bool)
    is_first[text.document_offsets] = True
    found = find_spaces(text.utf8, text.sentence_begins, text.sentence_ends, is_first, character_properties())
    is_spaced, stays = found == _IS_SPACED, np.append(found != _IS_JOINED, True)
    utf8, begins = text.utf8.copy(), text.sentence_begins - is_spaced
    utf8[begins[is_spaced]] = SPACE  # some are line feeds
    return replace(
        text,
        utf8=utf8,
        sentence_begins=begins[stays[:-1]],
        sentence_ends=text.sentence_ends[stays[1:]],
        is_heading=text.is_heading[stays[1:]],
        document_offsets=np.append(0, np.cumsum(stays))[text.document_offsets],
    )


@helper
def is_unspaced_at(utf8: Pointer, begin: int, end: int, at_end: bool, properties: Pointer) -> bool:
    """Whether the first or last letter, or mark of a script without spaces, is of such a script."""
    while begin < end:
        if at_end:
            end = step_back(utf8, end)
            code = read_character(utf8, end)[0]
        else:
            code, begin = read_character(utf8, begin)
        found = I64(item(properties, code))
        if found & (ALPHA | UNSPACED):
            return bool(found & UNSPACED)
    return False


@kernel
def find_spaces(
    utf8: np.ndarray, begins: np.ndarray, ends: np.ndarray, is_first: np.ndarray, properties: np.ndarray
) -> np.ndarray:
    """What `include_spaces` does at the beginning of each sentence: uint8. is_first: of its document."""
    found, source, table = np.zeros(len(begins), np.uint8), pointer(utf8), pointer(properties)
    for i in range(len(begins)):
        if not is_first[i]:
            before = item(source, begins[i] - 1)
            if begins[i] == ends[i - 1]:
                last = read_character(source, step_back(source, begins[i]))[0]
                are_marks = I64(item(table, last)) & I64(item(table, read_character(source, begins[i])[0])) & OTHER
                found[i] = _IS_JOINED if are_marks else 0
            found[i] |= before == SPACE or (
                before == LINE_FEED
                and not (
                    is_unspaced_at(source, begins[i - 1], ends[i - 1], True, table)
                    and is_unspaced_at(source, begins[i], ends[i], False, table)
                )
            )
    return found
