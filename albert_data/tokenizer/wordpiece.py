"""WordPiece vocabularies with BERT's rules, on the chunk table.

In: a tokenizer.json. Out: ids, token for token what the library `tokenizers` gives; but text that spells a special
piece is text. The library itself encodes new chunks.

Why cuts are exact. BERT's rules replace each character alone, except that NFD sorts the combining marks that follow one
another. Then words are divided at white space and around each punctuation mark and ideograph, and each word is
segmented alone. So text falls apart on both sides of a character that is always a word, or the white space between two:
it is no combining mark, so no sorting reaches across it. At spaces each cut is exact.

The library decides which characters these are: its Unicode tables are not ours. Each candidate is tried between two
letters. All that is not a candidate, or beyond the basic plane, gets no cut beside it, which makes longer chunks and no
other ids. For cutting.py every character becomes one of two classes, and a pair of two joined ones is no cut.

WordPiece marks the pieces that continue a word, "##ing". `texts` has them as SentencePiece would: "▁go", "ing". Before
punctuation that follows a word, and in scripts without spaces, it has no space, so that decoded text reads like text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np

from albert_data.text.unicode_tables import categories, category
from albert_data.tokenizer.backend import JsonKind
from albert_data.tokenizer.chunks.cutting import AFTER, BEFORE, SOLID, CutRule, make_rule
from albert_data.tokenizer.chunks.encoder import ChunkEncoder, ChunkModel
from albert_data.tokenizer.chunks.table import ChunkRules
from albert_data.tokenizer.chunks.trie import make_trie
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE, is_unspaced
from albert_data.tokenizer.sentencepiece.charsmap import NUM_BASIC
from albert_data.tokenizer.tokenizer_json import CONTINUING, read_rules
from albert_data.tokenizer.words import read_codes

_JOINED, _ALONE = 1, 2  # classes of characters
# BERT's ideographs, of which each is a word.
_IDEOGRAPHS = read_codes("4E00-9FFF 3400-4DBF F900-FAFF 20000-2A6DF 2A700-2B73F 2B740-2B81F 2B920-2CEAF 2F800-2FA1F")
_LEFT, _RIGHT = "a", "b"  # letters around a character that is tried; they stay what they are in lower case
_CLOSING = frozenset(".,;:!?%)]}")
_NO_UNKNOWN = -1  # no id: each unknown word is one [UNK], also beside another one


def is_punctuation(character: str) -> bool:
    """BERT's punctuation: all of ASCII that is visible and neither a letter nor a digit, and Unicode's."""
    if character.isascii():
        return "!" <= character <= "~" and not character.isalnum()
    return category(character)[0] == "P"


def make_cut_rule(split: Callable[[str], list[str]]) -> CutRule:
    """split: the words of a text, after normalisation, as the library gives them."""
    classes, (numbers, names) = np.full(NUM_BASIC, _JOINED, np.uint16), categories()
    # ASCII, and the punctuation and white space of the basic plane, except the space.
    may_be = np.array([name[0] in "PZ" for name in names])[numbers[:NUM_BASIC]]
    may_be[:0x80] = True
    may_be[ord(" ")] = False
    candidates = np.flatnonzero(may_be)
    classes[candidates[find_alone(candidates.tolist(), split)]] = _ALONE
    for codes in _IDEOGRAPHS:
        ends = [codes.start, codes.stop - 1]
        if codes.stop <= NUM_BASIC and all(find_alone(ends, split)):  # all or none, as tokenize_chinese_chars says
            classes[codes.start : codes.stop] = _ALONE
    flags = np.full(NUM_BASIC, BEFORE | AFTER | SOLID, np.uint8)
    flags[ord(" ")] = 0
    pairs = np.array([_JOINED << 16 | _JOINED], np.uint32)
    return make_rule(flags, classes, classes, pairs, joins_spaces=True)


def find_alone(codes: list[int], split: Callable[[str], list[str]]) -> np.ndarray:
    """Whether each character is always a word or the white space between two: bool."""
    words = split("".join(f"{_LEFT}{chr(code)}{_LEFT} {_RIGHT} " for code in codes))
    found: list[bool] = []
    group: list[str] = []
    for word in words:
        if word == _RIGHT:
            found.append(len(group) > 1 and group[0] == group[-1] == _LEFT)
            group = []
        else:
            group.append(word)
    return np.array(found, bool)


class WordPieceKind(JsonKind):
    """A WordPiece vocabulary."""

    library = "tokenizers"
    has_prefix = True
    slow_reason = None

    def __init__(self, values: dict[str, Any], name: str) -> None:
        """values: of a tokenizer.json that `is_wordpiece`. Raises TokenizerError if it lacks a special piece."""
        super().__init__(values, name)
        self._divides_ideographs, is_special = read_rules(values).handle_chinese_chars, self.specials.is_special
        self.texts = [
            piece if special else show_piece(piece) for piece, special in zip(self.pieces, is_special, strict=True)
        ]
        self.is_ordinary = np.array([self._is_reachable(piece) for piece in self.pieces]) & ~is_special
        self.is_ordinary[self.specials.unk_id] = False

    def _is_reachable(self, piece: str) -> bool:
        """Whether text can give a piece: not if it joins characters that are words of their own, as [unused1] does.

        A third of the vocabulary of a Chinese BERT are such pieces: ideographs that continue a word.
        """
        body = piece.removeprefix(CONTINUING) if len(piece) > len(CONTINUING) else piece
        if body == piece and len(piece) == 1:
            return True
        ranges = _IDEOGRAPHS if self._divides_ideographs else ()
        return not any(is_punctuation(c) or any(ord(c) in codes for codes in ranges) for c in body)

    @cached_property
    def _chunk_model(self) -> ChunkModel:
        trie = make_trie([], [], [], unk_id=_NO_UNKNOWN, vocab_size=len(self.pieces))
        return ChunkModel(
            rules=ChunkRules(cuts=make_cut_rule(self._backend.split), trie=trie, first_is_inner=0),
            encode=self.encode_each,
            learn=lambda chunks, is_inner: self.encode_texts(chunks),
        )

    def make_encoder(self) -> ChunkEncoder:
        return ChunkEncoder(self._chunk_model)

    def normalise(self, text: str) -> str:
        return "".join(map(show_piece, self._backend.split(text)))

    def decode(self, ids: Sequence[int]) -> str:
        is_special, texts = self.specials.is_special, self.texts
        return "".join(texts[i] for i in ids if not is_special[i]).replace(VISIBLE_SPACE, " ").removeprefix(" ")


def show_piece(piece: str) -> str:
    """A piece or a word as text, with "▁" where a space is before it.

    >>> [show_piece(piece) for piece in ("go", "##ing", ",", "##")]
    ['▁go', 'ing', ',', '▁##']
    """
    if piece.startswith(CONTINUING) and piece != CONTINUING:
        return piece.removeprefix(CONTINUING)
    return piece if _joins_left(piece[:1]) else VISIBLE_SPACE + piece


@cache
def _joins_left(character: str) -> bool:
    """Whether a word that begins with this character follows the word before it without a space."""
    if character.isascii():
        return character in _CLOSING
    return is_unspaced(character) or category(character) in ("Pe", "Pf", "Po")
