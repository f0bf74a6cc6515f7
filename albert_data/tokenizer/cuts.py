"""Where text can be cut so that its parts, tokenised alone, give the tokens of the whole.

Why that is exact. SentencePiece normalises the text, then chooses among the ways to write it as pieces: for
a unigram model the one of the best score, for BPE the one that its merges lead to. Between two characters
that stand next to each other in no piece, no piece can lie across, and no merge can happen; so the choice
on the left and that on the right do not touch each other. What has to be seen to:

- *Normalisation* is by longest match of a table of replacements. A cut is made only before a character that
  no replacement holds behind another character (a combining mark, say), so none lies across; and the
  characters beside it are *solid*: what they become is not empty and holds no space.
- *Spaces* become "▁", one for each run of them; a sentence begins with one. A cut at spaces leaves them
  out, and the part behind starts a sentence of its own, with the same "▁". No piece may hold an inner "▁".
- *Unknown characters* in a row give one unknown id, so two that meet at a cut inside a word become one.
  At a space they can't meet, for "▁" itself is a piece.
- *Rounding.* A unigram model sums scores in float32 along the sentence, so two choices of nearly equal score
  may change places. A part whose best two choices differ by less than MARGIN is *fragile*, and a
  sentence that holds one, or that is long, is given to SentencePiece whole.

`explain_unsafe` names the condition that a model breaks; all its text then goes through SentencePiece.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import sentencepiece

from albert_data.kernels import kernel
from albert_data.tokenizer.proto import BPE, UNIGRAM, ModelSettings, change_settings
from albert_data.tokenizer.words import SPACE

MARGIN = 0.02
_NUM_CODES = 1 << 16  # characters beyond the basic plane are never cut at


@dataclass(frozen=True, kw_only=True)
class CutRule:
    """Arrays over the characters of the basic plane.

    before: bool, a cut may be made before it; after: bool, behind it.
    plain: bool, it may stand on both sides of a cut and is normalised to itself;
    first, last: uint16, the first and last character of what it is normalised to.
    bigrams: uint32, sorted, first << 16 | second of neighbours in some piece.
    """

    before: np.ndarray
    after: np.ndarray
    plain: np.ndarray
    first: np.ndarray
    last: np.ndarray
    bigrams: np.ndarray


def explain_unsafe(settings: ModelSettings, pieces: list[str]) -> str | None:
    """Why text can't be cut for this model, or None if it can."""
    if settings.model_type not in (UNIGRAM, BPE):
        return "it is neither a unigram nor a BPE model"
    if not (settings.add_dummy_prefix and settings.remove_extra_whitespaces and settings.escape_whitespaces):
        return "it keeps spaces as they are (add_dummy_prefix, remove_extra_whitespaces or escape_whitespaces off)"
    if any(SPACE in piece[1:] for piece in pieces):
        return "it has pieces with a space inside or at the end"
    if SPACE not in pieces:
        return "it has no piece for a space alone"
    if settings.has_user_defined:
        return "it has user-defined pieces, which are exempt from normalisation"
    return None


def make_cut_rule(model: bytes, settings: ModelSettings, pieces: list[str]) -> CutRule:
    """Find the cuts from the model's own pieces and replacements."""
    bare = sentencepiece.SentencePieceProcessor()
    bare.LoadFromSerializedProto(change_settings(model, add_dummy_prefix=False, remove_extra_whitespaces=False))
    codes = [code for code in range(1, _NUM_CODES) if not 0xD800 <= code < 0xE000]
    normal = dict(zip(codes, bare.normalize([chr(code) for code in codes]), strict=True))
    joined = find_joined(settings.charsmap)
    after, plain = np.zeros(_NUM_CODES, bool), np.zeros(_NUM_CODES, bool)
    first, last = np.zeros(_NUM_CODES, np.uint16), np.zeros(_NUM_CODES, np.uint16)
    for code, text in normal.items():
        if text and SPACE not in text and " " not in text and max(ord(text[0]), ord(text[-1])) < _NUM_CODES:
            after[code], plain[code] = True, text == chr(code)
            first[code], last[code] = ord(text[0]), ord(text[-1])
    pairs = {
        ord(left) << 16 | ord(right)
        for piece in pieces
        for left, right in zip(piece, piece[1:], strict=False)
        if max(ord(left), ord(right)) < _NUM_CODES
    }
    return CutRule(
        before=after & ~joined,
        after=after,
        plain=plain & ~joined,
        first=first,
        last=last,
        bigrams=np.array(sorted(pairs), np.uint32),
    )


def find_joined(charsmap: bytes) -> np.ndarray:
    """Which characters some replacement holds behind another character: bool over the basic plane."""
    if not charsmap:
        return np.zeros(_NUM_CODES, bool)
    size = int.from_bytes(charsmap[:4], "little")
    units = np.frombuffer(charsmap[4 : 4 + size], "<u4").astype(np.int64)
    return walk_charsmap(units)


@kernel
def walk_charsmap(units: np.ndarray) -> np.ndarray:
    """Walk all keys of a double-array trie (the darts-clone layout) and mark their characters but the first."""
    joined = np.zeros(1 << 16, np.bool_)
    nodes, labels = np.zeros(256, np.int64), np.zeros(256, np.int64)
    path = np.zeros(256, np.int64)
    depth = 0
    nodes[0] = (units[0] >> 10) << ((units[0] & 512) >> 6)
    while depth >= 0:
        labels[depth] += 1
        label = labels[depth]
        if label > 255:
            depth -= 1
            continue
        at = nodes[depth] ^ label
        if at >= len(units) or units[at] & 0x800000FF != label:
            continue
        path[depth] = label
        if units[at] >> 8 & 1:
            mark_joined(path, depth + 1, joined)
        depth += 1
        nodes[depth] = at ^ ((units[at] >> 10) << ((units[at] & 512) >> 6))
        labels[depth] = 0
    return joined


@kernel
def mark_joined(path: np.ndarray, length: int, joined: np.ndarray) -> None:
    """Mark the characters of a key in UTF-8 but the first."""
    code, is_first = -1, True
    for i in range(length):
        byte = path[i]
        if byte & 0xC0 == 0x80:
            code = code << 6 | (byte & 0x3F)
        else:
            code = byte if byte < 0x80 else byte & (0x1F if byte < 0xE0 else 0x0F if byte < 0xF0 else 0x07)
        ends = i + 1 == length or path[i + 1] & 0xC0 != 0x80
        if ends:
            if not is_first and code < len(joined):
                joined[code] = True
            is_first = False
