"""Any other tokenizer.json: byte-level BPE as in RoBERTa and ModernBERT, Unigram, WordPiece with other rules.

In: a tokenizer.json. Out: the ids of the library `tokenizers`, which encodes all text, at its speed. Text that spells a
special piece is text; if the vocabulary finds such a piece in text itself, that is unknown text.

Where words begin is seen by the marks of the pre-tokeniser: a space as a byte-level character ("Ġ"), "▁", or no "##".
Byte-level BPE without `add_prefix_space` is given the sentences of a document with the spaces before them (model.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np

from albert_data.data import Specials, slice_sentences
from albert_data.errors import TokenizerError
from albert_data.tokenizer.backend import Backend
from albert_data.tokenizer.buffers import Sentences
from albert_data.tokenizer.chunks.encoder import SLICE_BYTES
from albert_data.tokenizer.kinds import Kind, id_dtype_of
from albert_data.tokenizer.tokenizer_json import CONTINUING, JSON_NAME, find_specials, list_pieces
from albert_data.tokenizer.wordpiece import show_piece
from albert_data.tokenizer.words import SPACE

_BYTES, _SPACES, _CONTINUED = "bytes", "spaces", "##"  # how pieces show where words begin
_MODELS = ("BPE", "Unigram", "WordPiece")
_RARE = "\U0010fffd"  # a private character, of which no vocabulary has a piece
_UNUSED = re.compile(r"\W*unused\W*\d+\W*", re.IGNORECASE)
_BEFORE, _AFTER = ("normalizer", "pre_tokenizer"), ("decoder",)  # the parts that read text, and that write it


class LibraryKind(Kind):
    """A tokenizer of the library `tokenizers`."""

    file_name = JSON_NAME
    library = "the library tokenizers"
    packages = ("tokenizers",)

    def __init__(self, values: dict[str, Any], name: str) -> None:
        """Raises TokenizerError for a kind that is not supported, or if a special piece is missing."""
        self._values, self._name = values, name
        self.pieces = list_pieces(values, name)
        self.specials = find_specials(self.pieces, name)
        self._marks = marks = _find_marks(values, self.pieces, name)
        added = {token["content"]: bool(token.get("special")) for token in values.get("added_tokens") or []}
        self.texts = [piece if added.get(piece) else _show(piece, marks) for piece in self.pieces]
        self.is_ordinary = (
            np.array([not (added.get(piece) or _UNUSED.fullmatch(piece)) for piece in self.pieces])
            & ~self.specials.is_special
        )
        self.is_ordinary[self.specials.unk_id] = False
        self.has_prefix = marks == _CONTINUED or any(map(_adds_space, _list_parts(values, _BEFORE)))
        self.slow_reason = f"it is a tokenizer.json of {values['model']['type']}, and only WordPiece is fast there"

    @cached_property
    def _backend(self) -> Backend:
        return Backend(self._values, self._name)

    @cached_property
    def reads_spaces(self) -> bool:
        """Yes for byte-level pieces without `add_prefix_space`, if no normaliser strips the text."""
        is_bare = self._marks == _BYTES and not self.has_prefix
        return is_bare and self.normalise(" a") != self.normalise("a")

    def prepare(self) -> None:
        backend = self._backend
        try:
            backend.encode([_RARE])
        except TokenizerError as error:
            raise TokenizerError(
                f"{self._name} can't encode a character that it has no piece for: {error}; give its model the unknown "
                "piece in its own vocabulary"
            ) from error

    def make_encoder(self) -> LibraryEncoder:
        return LibraryEncoder(self._backend, self.specials)

    def normalise(self, text: str) -> str:
        return "".join(self.texts[i] for i in self._backend.encode([text])[0])

    def decode(self, ids: Sequence[int]) -> str:
        shown = [i for i in ids if not self.specials.is_special[i]]
        return self._backend.decode(shown).removeprefix(" ")


class LibraryEncoder:
    """Encodes one sentence after another."""

    def __init__(self, backend: Backend, specials: Specials) -> None:
        self._backend, self._specials = backend, specials
        self._dtype = id_dtype_of(specials.is_special)

    def encode(self, sentences: Sentences, lengths: np.ndarray) -> Iterator[np.ndarray]:
        for chosen in sentences.slices(SLICE_BYTES):
            texts = slice_sentences(*sentences.part(chosen))
            found = self._backend.encode(text.decode() for text in texts)
            lengths[chosen] = list(map(len, found))
            ids = np.array([i for part in found for i in part], self._dtype)
            ids[self._specials.is_special[ids]] = self._specials.unk_id
            yield ids


def _list_parts(values: dict[str, Any], names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The components that work on text, those of sequences too."""
    found = [values.get(name) for name in names]
    while found:
        part = found.pop()
        if isinstance(part, dict):
            yield part
            inner = part.get("pretokenizers") or part.get("normalizers") or part.get("decoders")
            found += inner if isinstance(inner, list) else []


def _find_marks(values: dict[str, Any], pieces: Sequence[str], name: str) -> str:
    """How pieces show where words begin. Raises TokenizerError for what is not supported."""
    kind, types = values["model"].get("type"), [part.get("type") for part in _list_parts(values, _BEFORE + _AFTER)]
    if kind not in _MODELS:
        raise TokenizerError(
            f"{name} is {kind or 'of an unnamed kind'}; supported are {', '.join(_MODELS)}, and SentencePiece models"
        )
    if "ByteLevel" in types:
        return _BYTES
    if any(piece.startswith(SPACE) for piece in pieces):
        return _SPACES
    if kind == "WordPiece" and values["model"].get("continuing_subword_prefix") == CONTINUING:
        return _CONTINUED
    raise TokenizerError(
        f"{name} is {kind} whose pieces do not show where words begin; supported are byte-level pieces, pieces with "
        f"{SPACE}, and WordPiece with {CONTINUING}"
    )


def _adds_space(part: dict[str, Any]) -> bool:
    """Whether a component puts a space before a text."""
    if part.get("type") == "Metaspace":
        return bool(part.get("prepend_scheme", "always" if part.get("add_prefix_space", True) else "never") != "never")
    return part.get("type") == "Prepend" or (part.get("type") == "ByteLevel" and bool(part.get("add_prefix_space")))


def _show(piece: str, marks: str) -> str:
    if marks == _BYTES:
        return _show_bytes(piece)
    return show_piece(piece) if marks == _CONTINUED else piece


def _show_bytes(piece: str) -> str:
    """The text of a byte-level piece. Bytes that are no whole characters are shown as <0xE2>."""
    table = _read_bytes()
    if any(character not in table for character in piece):
        return piece  # an added token
    data = bytes(table[character] for character in piece)
    try:
        return data.decode().replace(" ", SPACE)
    except UnicodeDecodeError:
        space = SPACE if data.startswith(b" ") else ""
        return space + "".join(f"<0x{byte:02X}>" for byte in data.removeprefix(b" "))


@cache
def _read_bytes() -> dict[str, int]:
    """The byte that each byte-level character stands for: visible Latin-1 for itself, the others from U+0100 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(0x100 + i): byte for i, byte in enumerate(others)}
