"""Hyphens at the ends of wrapped lines: of a broken word, which is dropped, or of a compound, which stays.

"ex-" before "ample" is "example" or "ex-ample": the document tells. The form that is more frequent inside its lines
wins, ASCII letters in either case. If none is, the hyphen stays where both halves are words elsewhere in the document,
or where another hyphen is next to one ("five-and-" before "twenty"); all others follow the majority of those that the
forms decided, and stay where there is none. Before one of a few conjunctions the hyphen is a suspended one ("pre- and
post-war"), and a space follows.
"""

from __future__ import annotations

import numpy as np

from albert_data.corpus.wrapped_lines import ALPHA, END, TEXT, read_code
from albert_data.kernels import I64, U64, Pointer, helper, item, kernel, pointer

_SPACE, _NOTHING, _DROP, _UNDECIDED = 1, 2, 3, 4  # as in unwrapping.py
_BASIS, _PRIME = U64(0xCBF29CE484222325), U64(0x100000001B3)  # FNV-1a
_CONJUNCTIONS = (b"and", b"or", b"to", b"und", b"oder", b"bis")
_DASH = 45


def resolve_hyphens(
    raw: np.ndarray, facts: np.ndarray, document_lines: np.ndarray, joins: np.ndarray, classes: np.ndarray
) -> None:
    """Replace each _UNDECIDED in `joins` by _DROP, _NOTHING or, after a suspended hyphen, _SPACE."""
    places = np.flatnonzero(joins == _UNDECIDED)
    if len(places) == 0:
        return
    bounds = np.searchsorted(places, document_lines)
    for document in np.flatnonzero(np.diff(bounds)):
        lines = facts[document_lines[document] : document_lines[document + 1]]
        mine = places[bounds[document] : bounds[document + 1]]
        joins[mine] = decide(raw, lines, mine - document_lines[document], classes, _SUSPENDED)


@helper
def add_byte(state: U64, byte: int) -> U64:
    folded = byte + 32 if 65 <= byte <= 90 else byte
    return (state ^ U64(folded)) * _PRIME


@helper
def add_word(raw: Pointer, at: int, end: int, state: U64, classes: Pointer) -> tuple[U64, int]:
    """Hash the letters from a place on; also returns where they end."""
    while at < end:
        byte = I64(item(raw, at))
        if byte < 0x80:
            if not 97 <= byte | 32 <= 122:
                break
            state = (state ^ U64(byte | 32)) * _PRIME
            at += 1
            continue
        code, after = read_code(raw, at)
        if I64(item(classes, code)) & ALPHA == 0:
            break
        for i in range(at, after):
            state = add_byte(state, I64(item(raw, i)))
        at = after
    return state, at


@helper
def find_word(raw: Pointer, begin: int, end: int, classes: Pointer) -> int:
    """Where the letters before `end` begin."""
    while end > begin:
        at = end - 1
        while item(raw, at) & 0xC0 == 0x80:
            at -= 1
        code, _ = read_code(raw, at)
        if I64(item(classes, code)) & ALPHA == 0:
            break
        end = at
    return end


@helper
def skip_back(raw: Pointer, end: int) -> int:
    """Where the last character before `end` begins."""
    end -= 1
    while item(raw, end) & 0xC0 == 0x80:
        end -= 1
    return end


@helper
def find_slot(keys: np.ndarray, key: U64) -> int:
    """The slot of a key in a hash table of a power of two, or the free one that it would take; 0 is no key."""
    slot = I64(key & U64(len(keys) - 1))
    while keys[slot] != U64(0) and keys[slot] != key:
        slot = (slot + 1) & (len(keys) - 1)
    return int(slot)


@helper
def tally_words(raw: Pointer, begin: int, end: int, classes: Pointer, keys: np.ndarray, counts: np.ndarray) -> None:
    """Count in a line the words that the table holds: runs of letters, and two of them with one hyphen between."""
    at, joined, joined_at = (
        begin,
        U64(0),
        -1,
    )  # the hash of the word before with a hyphen, and where the next would begin
    while at < end:
        word, after = add_word(raw, at, end, _BASIS, classes)
        if after == at:
            _, at = read_code(raw, at)
            continue
        slot = find_slot(keys, word | U64(1))
        counts[slot] += keys[slot] != U64(0)
        if at == joined_at:
            pair, _ = add_word(raw, at, end, joined, classes)
            slot = find_slot(keys, pair | U64(1))
            counts[slot] += keys[slot] != U64(0)
        at = after
        if at < end:
            code, after = read_code(raw, at)
            if code == _DASH or code == 0x2010:
                joined, joined_at, at = add_byte(word, _DASH), after, after


@kernel
def decide(
    raw: np.ndarray, facts: np.ndarray, places: np.ndarray, classes: np.ndarray, suspended: np.ndarray
) -> np.ndarray:
    """How the lines `places` of a document, which end in a hyphen, go on: uint8.

    suspended: uint64, the hashes of conjunctions.
    """
    source, kinds = pointer(raw), pointer(classes)
    size = 8
    while size < 8 * len(places):
        size *= 2
    keys, counts = np.zeros(size, np.uint64), np.zeros(size, np.int64)
    words = np.zeros((len(places), 4), np.uint64)  # the hashes without the hyphen, with it, and of the halves
    joins = np.full(len(places), _UNDECIDED, np.uint8)
    for i in range(len(places)):
        fact, following = facts[places[i]], facts[places[i] + 1]
        hyphen = skip_back(source, fact[END])
        begin = find_word(source, fact[TEXT], hyphen, kinds)
        head, _ = add_word(source, begin, hyphen, _BASIS, kinds)
        alone, after = add_word(source, following[TEXT], following[END], _BASIS, kinds)
        is_compound = after < following[END] and item(source, after) == _DASH  # "day-" before "to-day"
        for conjunction in suspended:
            if alone == conjunction and not is_compound:
                joins[i] = _SPACE
        if begin == hyphen:  # after a digit: "12-" before "year"
            joins[i] = _NOTHING
        whole, _ = add_word(source, following[TEXT], following[END], head, kinds)
        pair, _ = add_word(source, following[TEXT], following[END], add_byte(head, _DASH), kinds)
        words[i, 0], words[i, 1] = whole | U64(1), pair | U64(1)
        words[i, 2], words[i, 3] = head | U64(1), alone | U64(1)
        for half in range(4):
            slot = find_slot(keys, words[i, half])
            keys[slot] = words[i, half]
            counts[slot] -= half >= 2  # these very places are no words
        if is_compound or begin > fact[TEXT] and item(source, begin - 1) == _DASH:
            joins[i] = _NOTHING
    for i in range(len(facts)):
        tally_words(source, facts[i, TEXT], facts[i, END], kinds, keys, counts)
    votes = 0
    for i in range(len(places)):
        if joins[i] == _UNDECIDED:
            margin = counts[find_slot(keys, words[i, 0])] - counts[find_slot(keys, words[i, 1])]
            if margin != 0:
                joins[i] = _DROP if margin > 0 else _NOTHING
                votes += 1 if margin > 0 else -1
            elif counts[find_slot(keys, words[i, 2])] > 0 and counts[find_slot(keys, words[i, 3])] > 0:
                joins[i] = _NOTHING
    for i in range(len(places)):
        if joins[i] == _UNDECIDED:
            joins[i] = _DROP if votes > 0 else _NOTHING
    return joins


def _hash_word(word: bytes) -> int:
    state = int(_BASIS)
    for byte in word:
        state = (state ^ byte) * int(_PRIME) % 2**64
    return state


_SUSPENDED = np.array([_hash_word(word) for word in _CONJUNCTIONS], np.uint64)
