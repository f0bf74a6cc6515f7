"""Hyphens at the ends of wrapped lines: dropped in a broken word, kept in a compound.

"ex-" before "ample" is "example" or "ex-ample": the lines of the document decide. The form that is more frequent
inside them wins; the case of ASCII letters does not matter. If the two are equally frequent, the hyphen stays where
both halves are words elsewhere in the document. A break that is still undecided does what most breaks did that were
decided by counting the two forms; without a majority it keeps the hyphen.

Nothing is counted in three cases. The hyphen stays where another ASCII hyphen is next to a half ("five-and-" before
"twenty") and after a digit. Before one of a few conjunctions it stays, too, and a space follows ("pre- and post-war").
"""

from __future__ import annotations

import secrets

import numpy as np

from albert_data.ascii import CASE_BIT, HYPHEN_MINUS, is_capital, is_letter
from albert_data.character_bits import ALPHA
from albert_data.corpus.wrapped_lines import (
    END,
    TEXT,
    UNDECIDED,
    UNICODE_HYPHEN,
    WITH_NOTHING,
    WITH_SPACE,
    WITHOUT_HYPHEN,
)
from albert_data.draws import mix
from albert_data.fnv import FNV_BASIS, add_byte, hash_bytes
from albert_data.kernels import I64, U64, Pointer, helper, item, kernel, pointer
from albert_data.utf8 import read_character, step_back

_CONJUNCTIONS = np.array([hash_bytes(word) for word in (b"and", b"or", b"to", b"und", b"oder", b"bis")], np.uint64)
_SEED = U64(secrets.randbits(64))
JOINED, HYPHENATED, HEAD, TAIL = range(4)  # the two forms of a word, and its halves


def resolve_hyphens(
    raw: np.ndarray, facts: np.ndarray, document_lines: np.ndarray, joins: np.ndarray, properties: np.ndarray
) -> None:
    """Replace each UNDECIDED in `joins` by WITHOUT_HYPHEN, WITH_NOTHING or, after a suspended hyphen, WITH_SPACE."""
    undecided = np.flatnonzero(joins == UNDECIDED)
    if len(undecided) == 0:
        return
    bounds = np.searchsorted(undecided, document_lines)
    for document in np.flatnonzero(np.diff(bounds)):
        lines = facts[document_lines[document] : document_lines[document + 1]]
        breaks = undecided[bounds[document] : bounds[document + 1]]
        joins[breaks] = decide(raw, lines, breaks - document_lines[document], properties, _CONJUNCTIONS, _SEED)


@helper
def add_folded(state: U64, byte: int) -> U64:
    """Hash a byte, an ASCII capital as its small letter."""
    return add_byte(state, byte | CASE_BIT if is_capital(byte) else byte)


@helper
def hash_word(raw: Pointer, at: int, end: int, state: U64, table: Pointer) -> tuple[U64, int]:
    """Hash the letters from a position on; also returns where they end. state: of the bytes before."""
    while at < end:
        byte = I64(item(raw, at))
        if byte < 0x80:
            if not is_letter(byte):
                break
            state = add_byte(state, byte | CASE_BIT)
            at += 1
            continue
        code, after = read_character(raw, at)
        if I64(item(table, code)) & ALPHA == 0:
            break
        for i in range(at, after):
            state = add_folded(state, I64(item(raw, i)))
        at = after
    return state, at


@helper
def find_word_begin(raw: Pointer, begin: int, end: int, table: Pointer) -> int:
    """Where the letters before `end` begin."""
    while end > begin:
        at = step_back(raw, end)
        if I64(item(table, read_character(raw, at)[0])) & ALPHA == 0:
            break
        end = at
    return end


@helper
def find_slot(keys: np.ndarray, key: U64, seed: U64) -> int:
    """The slot of a key in an open-addressing hash table, or the free slot where it belongs. Keys are not 0.

    seed: unknown to the author of a text, who could otherwise choose words that share few slots. What the table holds
    for a key does not depend on it.
    """
    slot = I64(mix(key ^ seed) & U64(len(keys) - 1))
    while keys[slot] != U64(0) and keys[slot] != key:
        slot = (slot + 1) & (len(keys) - 1)
    return int(slot)


@helper
def count_word(keys: np.ndarray, counts: np.ndarray, hashed: U64, seed: U64) -> None:
    """Count a word if `keys` holds it."""
    slot = find_slot(keys, hashed | U64(1), seed)
    counts[slot] += keys[slot] != U64(0)


@helper
def count_words(
    raw: Pointer, begin: int, end: int, table: Pointer, keys: np.ndarray, counts: np.ndarray, seed: U64
) -> None:
    """Count in a line the words that `keys` holds: runs of letters, and two of them with one hyphen between."""
    at = begin
    pair, pair_at = U64(0), -1  # the hash of the last word and its hyphen, and the position after that hyphen
    while at < end:
        word, after = hash_word(raw, at, end, FNV_BASIS, table)
        if after == at:
            _, at = read_character(raw, at)
            continue
        count_word(keys, counts, word, seed)
        if at == pair_at:
            count_word(keys, counts, hash_word(raw, at, end, pair, table)[0], seed)
        at = after
        if at < end:
            code, after = read_character(raw, at)
            if code in (HYPHEN_MINUS, UNICODE_HYPHEN):
                pair, pair_at, at = add_byte(word, HYPHEN_MINUS), after, after


@helper
def read_break(
    raw: Pointer, fact: np.ndarray, following: np.ndarray, table: Pointer, conjunctions: np.ndarray, keys: np.ndarray
) -> int:
    """Write the keys of a broken word to `keys`, and return how its lines are joined; UNDECIDED if counts decide that.

    A key is a hash with its lowest bit set, so none is 0.
    """
    hyphen = step_back(raw, fact[END])
    begin, end = find_word_begin(raw, fact[TEXT], hyphen, table), following[END]
    head, _ = hash_word(raw, begin, hyphen, FNV_BASIS, table)
    tail, after = hash_word(raw, following[TEXT], end, FNV_BASIS, table)
    joined, _ = hash_word(raw, following[TEXT], end, head, table)
    hyphenated, _ = hash_word(raw, following[TEXT], end, add_byte(head, HYPHEN_MINUS), table)
    keys[JOINED], keys[HYPHENATED] = joined | U64(1), hyphenated | U64(1)
    keys[HEAD], keys[TAIL] = head | U64(1), tail | U64(1)
    if after < end and item(raw, after) == HYPHEN_MINUS:  # "day-" before "to-day"
        return WITH_NOTHING
    if begin > fact[TEXT] and item(raw, begin - 1) == HYPHEN_MINUS:  # "five-and-"
        return WITH_NOTHING
    if begin == hyphen:  # after a digit: "12-" before "year"
        return WITH_NOTHING
    for conjunction in conjunctions:
        if tail == conjunction:
            return WITH_SPACE
    return UNDECIDED


@kernel
def decide(
    raw: np.ndarray,
    facts: np.ndarray,
    breaks: np.ndarray,
    properties: np.ndarray,
    conjunctions: np.ndarray,
    seed: np.uint64,
) -> np.ndarray:
    """How the lines `breaks` of a document, which end in a hyphen, continue: uint8.

    facts: of the document's lines; properties: of all characters; conjunctions: uint64, their hashes; seed: see
    `find_slot`.
    """
    source, table = pointer(raw), pointer(properties)
    size = 8
    while size < 8 * len(breaks):  # at most half full: each break has four keys
        size *= 2
    keys, counts = np.zeros(size, np.uint64), np.zeros(size, np.int64)
    words = np.zeros((len(breaks), 4), np.uint64)
    joins = np.empty(len(breaks), np.uint8)
    for i in range(len(breaks)):
        joins[i] = read_break(source, facts[breaks[i]], facts[breaks[i] + 1], table, conjunctions, words[i])
        for key in words[i]:
            keys[find_slot(keys, key, seed)] = key
        for half in (HEAD, TAIL):  # count_words counts these two halves as words, which they are not
            counts[find_slot(keys, words[i, half], seed)] -= 1
    for i in range(len(facts)):
        count_words(source, facts[i, TEXT], facts[i, END], table, keys, counts, seed)
    votes = 0
    for i in range(len(breaks)):
        if joins[i] == UNDECIDED:
            joined, hyphenated = find_slot(keys, words[i, JOINED], seed), find_slot(keys, words[i, HYPHENATED], seed)
            margin = counts[joined] - counts[hyphenated]
            if margin != 0:
                joins[i] = WITHOUT_HYPHEN if margin > 0 else WITH_NOTHING
                votes += 1 if margin > 0 else -1
            else:
                head, tail = find_slot(keys, words[i, HEAD], seed), find_slot(keys, words[i, TAIL], seed)
                if counts[head] > 0 and counts[tail] > 0:
                    joins[i] = WITH_NOTHING
    for i in range(len(breaks)):
        if joins[i] == UNDECIDED:
            joins[i] = WITHOUT_HYPHEN if votes > 0 else WITH_NOTHING
    return joins
