"""Where text can be cut so that its parts, tokenised alone, give the tokens of the whole.

Why that is exact. SentencePiece normalises the text, then chooses among the ways to write it as pieces: for
a unigram model the one of the best score, for BPE the one that its merges lead to. Between two characters
that stand next to each other in no piece, no piece can lie across, and no merge can happen; so the choice
on the left and that on the right do not touch each other. What has to be seen to:

- *Normalisation* is by longest match of a table of replacements. A cut is made only before a character that
  no replacement holds behind another character (a combining mark, say), so none lies across; and the
  characters beside it are *solid*: what they become, alone or with others, is not empty and holds no space.
- *Spaces* become "▁", one for each run of them. A cut at spaces leaves them out, and the part behind gets the
  "▁" again. No piece may hold an inner "▁". The first part of a sentence gets a "▁" too if the model adds one there
  (add_dummy_prefix). If not, it is normalised like a part that continues a word: without "▁". The chunk table
  keeps both kinds of parts, for the same bytes have other ids behind a space.
- *Unknown characters* in a row give one unknown id, so two that meet at a cut become one. At a space they meet
  only where "▁" itself is no piece, so that it is unknown too.
- *Rounding.* A unigram model sums scores in float32 along the sentence, so two choices of nearly equal score
  may change places. Both start from the same sum, and each addition errs by at most 2^-24 of it; so a part
  whose best two choices are closer than that, times the additions, is *fragile* where the sentence up to its end
  has such a score (lattice.find_limit). A sentence in which a part is fragile is given to SentencePiece whole.

`explain_unsafe` names the condition that a model breaks; all its text then goes through SentencePiece.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from albert_data.kernels import Pointer, helper, item, kernel, pointer
from albert_data.tokenizer.cutting import AFTER, BEFORE, SINGLE, SOLID, CutRule, make_rule
from albert_data.tokenizer.proto import BPE, UNIGRAM, USER_DEFINED, ModelSettings
from albert_data.tokenizer.trie import MAX_CHARACTERS
from albert_data.tokenizer.words import SPACE
from albert_data.utf8 import read_character

_NUM_CODES = 1 << 16  # characters beyond the basic plane are never cut at
_SPACE, _VISIBLE_SPACE = ord(" "), ord(SPACE)
_MAX_NODES, _MAX_KEY = 1 << 24, 256  # more than a table has; nodes are shared, each of its paths is walked
_NO_CHARSMAP = bytes([4, 0, 0, 0, 0, 0, 0, 0])  # a trie of a root alone


class Replacements(NamedTuple):
    """What normalisation makes of the characters of the basic plane.

    single: bool, one alone becomes one, or stays what it is; solid: bool, what it becomes is not empty, holds no space,
    and begins and ends in the basic plane; first, last: uint16, its first and last character, if it is solid;
    joined: bool, some replaced string holds the character behind another, or it is the space and replaced;
    unsure: bool, it is in a string of several that becomes nothing or something with a space, or begins one that then
    begins beyond the plane;
    heads: uint32, the first character of each replacement of several << 16 | the first of these.
    """

    single: np.ndarray
    solid: np.ndarray
    first: np.ndarray
    last: np.ndarray
    joined: np.ndarray
    unsure: np.ndarray
    heads: np.ndarray


def explain_unsafe(settings: ModelSettings, pieces: list[str]) -> str | None:
    """Why text can't be cut for this model, or None if it can."""
    if settings.model_type not in (UNIGRAM, BPE):
        return "it is neither a unigram nor a BPE model"
    if not (settings.remove_extra_whitespaces and settings.escape_whitespaces):
        return "it keeps spaces as they are (remove_extra_whitespaces or escape_whitespaces off)"
    if settings.treat_whitespace_as_suffix:
        return "it puts a space behind each word (treat_whitespace_as_suffix)"
    if any(SPACE in piece[1:] for piece in pieces):
        return "it has pieces with a space inside or at the end"
    if (settings.types == USER_DEFINED).any():
        return "it has user-defined pieces, which are exempt from normalisation"
    if sum(map(len, pieces)) >= MAX_CHARACTERS:
        return f"its pieces hold {MAX_CHARACTERS:,} characters or more"
    return None


def make_cut_rule(settings: ModelSettings, pieces: list[str]) -> CutRule:
    """Find the cuts from the model's own pieces and replacements."""
    found = read_charsmap(settings.charsmap)
    solid = found.solid & ~found.unsure
    solid[[0, _SPACE, _VISIBLE_SPACE]] = False
    solid[0xD800:0xE000] = False
    solid &= not found.joined[_SPACE]
    loose = solid & ~found.joined
    flags = (BEFORE * loose + AFTER * loose + SOLID * solid + SINGLE * (solid & found.single)).astype(np.uint8)
    bigrams = find_bigrams(pieces)
    bigrams = np.concatenate((bigrams, find_contracted(bigrams, found.heads, found.first)))
    return make_rule(flags, found.first, found.last, bigrams)


def find_bigrams(pieces: list[str]) -> np.ndarray:
    """The pairs of neighbours in some piece, left << 16 | right (uint32), sorted."""
    codes = np.frombuffer("\0".join(pieces).encode("utf-32-le"), np.uint32)
    is_code = (codes > 0) & (codes < _NUM_CODES)
    return np.unique((codes[:-1] << 16 | codes[1:])[is_code[:-1] & is_code[1:]])


def find_contracted(bigrams: np.ndarray, heads: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The bigrams again with the character that a replacement of several begins with, for that alone a cut looks at."""
    heads = np.unique(heads & 0xFFFF0000 | first[heads & 0xFFFF])
    begins, ends = (np.searchsorted(heads >> 16, bigrams & 0xFFFF, side) for side in ("left", "right"))
    counts = ends - begins
    places = np.arange(counts.sum()) + np.repeat(ends - np.cumsum(counts), counts)
    contracted: np.ndarray = np.repeat(bigrams, counts) & 0xFFFF0000 | heads[places] & 0xFFFF
    return contracted


def read_charsmap(charsmap: bytes) -> Replacements:
    """Read a model's table of replacements: the bytes of a trie, the trie, and the strings that its values point to."""
    charsmap = charsmap or _NO_CHARSMAP
    end = 4 + int.from_bytes(charsmap[:4], "little")
    units = np.frombuffer(charsmap[4:end], "<u4").astype(np.int64)
    charsmap[end:].decode()  # raises ValueError: a replacement that ends within a character would lead behind the text
    strings = np.frombuffer(charsmap[end:] + bytes(8), np.uint8)
    yes, codes = np.ones(_NUM_CODES, np.bool_), np.arange(_NUM_CODES, dtype=np.uint16)
    found = Replacements(yes, yes.copy(), codes, codes.copy(), ~yes, ~yes, np.empty(_MAX_NODES, np.uint32))
    num_heads = walk_charsmap(
        units,
        strings,
        np.zeros((len(units) | 255) + 1, np.int64),
        np.zeros(len(units), np.int64),
        np.zeros(_MAX_KEY + 2, np.int64),
        np.zeros(_MAX_KEY + 8, np.uint8),
        found,
    )
    if num_heads < 0:
        raise ValueError("the table of replacements is damaged")
    return found._replace(heads=found.heads[:num_heads].copy())


@kernel
def walk_charsmap(
    units: np.ndarray,
    strings: np.ndarray,
    eldest: np.ndarray,
    sibling: np.ndarray,
    nodes: np.ndarray,
    key: np.ndarray,
    found: Replacements,
) -> int:
    """Walk all keys of a double-array trie (the darts-clone layout). strings: each ends with a 0.

    A node stands at a unit and has a base; its child by a label, a byte of the key, stands at base ^ label and holds
    the label. So each unit tells the base that it is a child of.
    eldest, sibling: int64, zeros, for each base and each unit; nodes, key: int64 and uint8, of the path walked.
    Returns the number of heads, -1 for a damaged table.
    """
    for at in range(1, len(units)):
        if units[at] >> 31 == 0 and units[at] & 255:
            base = at ^ (units[at] & 255)
            eldest[base], sibling[at] = at, eldest[base]
    if len(units) == 0 or find_base(units, 0) >= len(eldest):
        return -1
    num_heads, depth, num_nodes = 0, 0, 0
    nodes[0] = eldest[find_base(units, 0)]
    while depth >= 0:
        at = nodes[depth]
        if at == 0:
            depth -= 1
            continue
        nodes[depth], key[depth], base = sibling[at], units[at] & 255, find_base(units, at)
        num_nodes += 1
        if num_nodes > _MAX_NODES or depth == _MAX_KEY or base >= len(eldest):
            return -1
        depth += 1
        nodes[depth] = eldest[base]
        if units[at] >> 8 & 1:
            begin = units[base] & 0x7FFFFFFF if base < len(units) else len(strings)
            if begin >= len(strings) - 8 or strings[begin] & 0xC0 == 0x80:
                return -1
            head = add_replacement(pointer(key), depth, pointer(strings), begin, found)
            found.heads[num_heads] = head
            num_heads += head != 0
    return num_heads


@helper
def find_base(units: np.ndarray, at: int) -> int:
    return at ^ int(units[at] >> 10 << ((units[at] & 512) >> 6))


@helper
def add_replacement(key: Pointer, key_len: int, strings: Pointer, begin: int, found: Replacements) -> int:
    """Note what a replaced string tells of its characters. Returns its item of `heads`, 0 if it has none."""
    code, at = read_character(key, 0)
    if at == key_len and code < _NUM_CODES:
        add_character(code, strings, begin, found)
    if at == key_len:
        return 0
    first, _ = read_character(strings, begin)
    is_unsure, has_head = first == 0 or has_space(strings, begin), 0 < first < _NUM_CODES
    if code < _NUM_CODES:
        found.unsure[code] |= is_unsure or not has_head
    while at < key_len:
        other, at = read_character(key, at)
        if other < _NUM_CODES:
            found.joined[other] = True
            found.unsure[other] |= is_unsure
    return first << 16 | code if has_head and code < _NUM_CODES else 0


@helper
def has_space(strings: Pointer, at: int) -> bool:
    """Whether a string holds a space, or what stands for one."""
    while item(strings, at) != 0:
        code, at = read_character(strings, at)
        if code in (_SPACE, _VISIBLE_SPACE):
            return True
    return False


@helper
def add_character(code: int, strings: Pointer, begin: int, found: Replacements) -> None:
    """Note what becomes of a character alone."""
    first, after = read_character(strings, begin)
    at, last = begin, first
    while item(strings, at) != 0:
        last, at = read_character(strings, at)
    found.single[code] = at == after
    found.solid[code] = 0 < first < _NUM_CODES and last < _NUM_CODES and not has_space(strings, begin)
    found.joined[code] |= code == _SPACE
    if found.solid[code]:
        found.first[code], found.last[code] = first, last
