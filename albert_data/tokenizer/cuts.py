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
  may change places. Both start from the same sum, and each addition errs by at most 2^-24 of it; so a part
  whose best two choices are closer than that, times the additions, is *fragile* in sentences of such a
  score (lattice.find_limit). A sentence in which a part is fragile is given to SentencePiece whole.

`explain_unsafe` names the condition that a model breaks; all its text then goes through SentencePiece.
"""

from __future__ import annotations

import numpy as np
import sentencepiece

from albert_data.kernels import kernel
from albert_data.tokenizer.proto import BPE, UNIGRAM, ModelSettings, change_settings
from albert_data.tokenizer.table import AFTER, ASCII_BEFORE, BEFORE, PAIR_BYTES, PLAIN, SOLID, CutRule, mark_pairs
from albert_data.tokenizer.words import SPACE

_NUM_CODES = 1 << 16  # characters beyond the basic plane are never cut at


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
    is_replaced, is_joined, keys = find_replaced(settings.charsmap)
    first, last = np.arange(_NUM_CODES, dtype=np.uint16), np.arange(_NUM_CODES, dtype=np.uint16)
    solid, plain = np.ones(_NUM_CODES, bool), ~is_replaced
    solid[[0, ord(" "), ord(SPACE)]] = False
    solid[0xD800:0xE000] = False
    solid &= not is_joined[ord(" ")]
    bare = sentencepiece.SentencePieceProcessor()
    bare.LoadFromSerializedProto(change_settings(model, add_dummy_prefix=False, remove_extra_whitespaces=False))
    codes = np.flatnonzero(is_replaced & solid).tolist()
    for code, text in zip(codes, bare.normalize([chr(code) for code in codes]), strict=True):
        solid[code] = bool(text) and SPACE not in text and " " not in text
        solid[code] = solid[code] and max(ord(text[0]), ord(text[-1])) < _NUM_CODES
        if solid[code]:
            first[code], last[code], plain[code] = ord(text[0]), ord(text[-1]), text == chr(code)
    bigrams = {
        ord(left) << 16 | ord(right)
        for piece in pieces
        for left, right in zip(piece, piece[1:], strict=False)
        if max(ord(left), ord(right)) < _NUM_CODES
    }
    bigrams |= find_contracted(bigrams, keys, bare.normalize(keys), first)
    loose = solid & ~is_joined
    flags = (BEFORE * loose + AFTER * loose + SOLID * solid + PLAIN * (solid & plain)).astype(np.uint8)
    flags[:128] |= ASCII_BEFORE * (flags[:128] & BEFORE)
    pairs = mark_pairs(np.array(sorted(bigrams), np.uint32), np.zeros(PAIR_BYTES, np.uint8))
    return CutRule(flags, first, last, pairs, _make_ascii_cuts(flags, first, last, bigrams))


def _make_ascii_cuts(flags: np.ndarray, first: np.ndarray, last: np.ndarray, bigrams: set[int]) -> np.ndarray:
    """Between two letters no cut is worth it."""
    cuts = np.zeros((128, 128), np.uint8)
    for left in range(128):
        for right in range(128):
            is_safe = flags[left] & AFTER and flags[right] & BEFORE
            is_word = chr(left).isalpha() and chr(right).isalpha()
            cuts[left, right] = is_safe and not is_word and int(last[left]) << 16 | int(first[right]) not in bigrams
    return cuts.reshape(-1)


def find_contracted(bigrams: set[int], keys: list[str], values: list[str], first: np.ndarray) -> set[int]:
    """The bigrams again with the character that a replacement of several begins with, for that alone a cut looks at."""
    heads: dict[int, set[int]] = {}
    for key, value in zip(keys, values, strict=True):
        if value and max(ord(key[0]), ord(value[0])) < _NUM_CODES:
            heads.setdefault(ord(value[0]), set()).add(int(first[ord(key[0])]))
    return {pair & 0xFFFF0000 | head for pair in bigrams for head in heads.get(pair & 0xFFFF, ())}


def find_replaced(charsmap: bytes) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Which characters some replacement begins with, and which it holds behind another (bool over the basic plane).

    And the replaced strings of more than one character.
    """
    if not charsmap:
        return np.zeros(_NUM_CODES, bool), np.zeros(_NUM_CODES, bool), []
    size = int.from_bytes(charsmap[:4], "little")
    units = np.frombuffer(charsmap[4 : 4 + size], "<u4").astype(np.int64)
    marks, data, num_bytes = walk_charsmap(units)
    keys = [key.decode() for key in data[:num_bytes].tobytes().split(b"\n")[:-1]]
    return marks & 1 != 0, marks & 2 != 0, [key for key in keys if len(key) > 1]


@kernel
def walk_charsmap(units: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Walk all keys of a double-array trie (the darts-clone layout) and mark their first character 1, others 2.

    And write down each key and a line feed.
    """
    marks, data, num_bytes = np.zeros(1 << 16, np.uint8), np.empty(64 * len(units), np.uint8), 0
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
            mark_characters(path, depth + 1, marks)
            for i in range(depth + 1):
                data[num_bytes + i] = path[i]
            num_bytes += depth + 2
            data[num_bytes - 1] = 10
        depth += 1
        nodes[depth] = at ^ ((units[at] >> 10) << ((units[at] & 512) >> 6))
        labels[depth] = 0
    return marks, data, num_bytes


@kernel
def mark_characters(path: np.ndarray, length: int, marks: np.ndarray) -> None:
    """Mark the characters of a key in UTF-8."""
    code, mark = -1, 1
    for i in range(length):
        byte = path[i]
        if byte & 0xC0 == 0x80:
            code = code << 6 | (byte & 0x3F)
        else:
            code = byte if byte < 0x80 else byte & (0x1F if byte < 0xE0 else 0x0F if byte < 0xF0 else 0x07)
        if i + 1 == length or path[i + 1] & 0xC0 != 0x80:
            if code < len(marks):
                marks[code] |= mark
            mark = 2
