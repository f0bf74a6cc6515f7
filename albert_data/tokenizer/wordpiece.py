"""WordPiece vocabularies with BERT's rules, on the chunk table.

In: a tokenizer.json. Out: ids, token for token what the library `tokenizers` gives; but text that spells a special
piece is text. wordpiece_cuts.py says where text is cut. The library itself encodes new chunks.

WordPiece marks the pieces that continue a word, "##ing". `texts` has them as SentencePiece would: "▁go", "ing". Before
punctuation that follows a word, and in scripts without spaces, it has no space, so that decoded text reads like text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np

from albert_data.tokenizer.backend import Backend
from albert_data.tokenizer.chunks import ChunkEncoder, ChunkModel, join_ids
from albert_data.tokenizer.kinds import Kind
from albert_data.tokenizer.table import ChunkRules
from albert_data.tokenizer.tokenizer_json import (
    CONTINUING,
    JSON_NAME,
    find_specials,
    list_pieces,
    read_rules,
)
from albert_data.tokenizer.trie import make_trie
from albert_data.tokenizer.wordpiece_cuts import is_ideograph, is_punctuation, make_cut_rule
from albert_data.tokenizer.words import SPACE, is_unspaced
from albert_data.unicode_tables import category

_CLOSING = frozenset(".,;:!?%)]}")
_NO_UNKNOWN = -1  # no id: each unknown word is one [UNK], also beside another one


class WordPieceKind(Kind):
    """A WordPiece vocabulary."""

    file_name = JSON_NAME
    library = "tokenizers"
    packages = ("tokenizers",)
    has_prefix = True
    slow_reason = None

    def __init__(self, values: dict[str, Any], name: str) -> None:
        """values: of a tokenizer.json that `is_wordpiece`. Raises TokenizerError if it lacks a special piece."""
        self._values, self._name, self.rules = values, name, read_rules(values)
        self.pieces = list_pieces(values, name)
        self.specials = find_specials(self.pieces, name)
        is_special = self.specials.is_special.tolist()
        self.texts = [
            piece if special else show_piece(piece) for piece, special in zip(self.pieces, is_special, strict=True)
        ]
        self.is_ordinary = np.array([self._is_reachable(piece) for piece in self.pieces]) & ~self.specials.is_special
        self.is_ordinary[self.specials.unk_id] = False

    def _is_reachable(self, piece: str) -> bool:
        """Whether text can give a piece: not if it joins characters that are words of their own, as [unused1] does.

        A third of the vocabulary of a Chinese BERT are such pieces: ideographs that continue a word.
        """
        body = piece.removeprefix(CONTINUING) if len(piece) > len(CONTINUING) else piece
        if body == piece and len(piece) == 1:
            return True
        return not any(map(self._is_alone, body))

    def _is_alone(self, character: str) -> bool:
        return is_punctuation(character) or (self.rules.handle_chinese_chars and is_ideograph(ord(character)))

    @cached_property
    def _backend(self) -> Backend:
        return Backend(self._values, self._name)

    @cached_property
    def _chunk_model(self) -> ChunkModel:
        vocab_size = len(self.pieces)
        trie = make_trie([], [], [], lowest_score=0.0, unk_id=_NO_UNKNOWN, vocab_size=vocab_size, byte_fallback=False)
        return ChunkModel(
            rules=ChunkRules(cuts=make_cut_rule(self._backend.split), trie=trie, first_is_inner=0),
            encode=self._encode,
            learn=lambda texts, is_inner: join_ids(self._encode(texts)),
        )

    def _encode(self, texts: list[bytes]) -> list[np.ndarray]:
        return [np.array(ids, np.int32) for ids in self._backend.encode(text.decode() for text in texts)]

    def prepare(self) -> None:
        _ = self._chunk_model

    def compile_rare(self, encoder: ChunkEncoder) -> None:
        encoder.compile_rare()

    def make_encoder(self) -> ChunkEncoder:
        return ChunkEncoder(self._chunk_model)

    def normalise(self, text: str) -> str:
        return "".join(map(show_piece, self._backend.split(text)))

    def decode(self, ids: Sequence[int]) -> str:
        is_special, texts = self.specials.is_special, self.texts
        return "".join(texts[i] for i in ids if not is_special[i]).replace(SPACE, " ").removeprefix(" ")


def show_piece(piece: str) -> str:
    """A piece or a word as text, with "▁" where a space is before it."""
    if piece.startswith(CONTINUING) and piece != CONTINUING:
        return piece.removeprefix(CONTINUING)
    return piece if _joins_left(piece[:1]) else SPACE + piece


@cache
def _joins_left(character: str) -> bool:
    """Whether a word that begins with this character follows the word before it without a space."""
    if character.isascii():
        return character in _CLOSING
    return is_unspaced(character) or category(character) in ("Pe", "Pf", "Po")
