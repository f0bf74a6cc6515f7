"""A model's table of replacements (`precompiled_charsmap`): what normalisation makes of characters.

At each position the normaliser replaces the longest string that the table holds. The table is a double-array trie of
these strings, in the layout of darts-clone, followed by the replacements, each with a 0 after it. A node of the trie is
a uint32, called a unit:

    bits    0..7                     8                    9, 10..30               31
    node    label, a byte of the     whether a replaced   offset to the base      0
            string                   string ends here     (find_base)
    leaf    0..30: where in the replacements the string's replacement begins      1

The child of a node by a byte is at index base ^ byte, if it has that label. Where a string ends, the leaf is at the
base itself. So the string "ab" is found like this:

    units[0], the root   -> base ^ "a"   -> base ^ "b", with bit 8   -> base: the leaf
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from albert_data.kernels import I64, Pointer, helper, item, kernel, pointer
from albert_data.text.utf8 import read_character
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE

NUM_BASIC = 1 << 16  # codes of the basic plane
_SPACE, _VISIBLE_SPACE = ord(" "), ord(VISIBLE_SPACE)
_MAX_STEPS = 1 << 24  # a sound table takes fewer; nodes of a damaged one may share children: exponentially many paths
_MAX_KEY = 256  # bytes of a replaced string, more than any has
_MAX_REPLACEMENT = 256  # bytes: Unicode's longest has 33, and a user may spell out a symbol
_ROOT_ALONE = bytes([4, 0, 0, 0, 0, 0, 0, 0])  # the table of a model that replaces nothing


class Replacements(NamedTuple):
    """What normalisation makes of the characters of the basic plane, [65536] each. In brackets: the rule nmt_nfkc."""

    single: np.ndarray  # bool, alone it becomes one character or stays what it is [A, but not the ligature fi]
    solid_alone: np.ndarray  # bool, alone it is not empty, holds no space, and begins and ends in the basic plane
    first: np.ndarray  # uint16, the first character of what it becomes alone, if it is solid_alone
    last: np.ndarray  # uint16, the last one
    joined: np.ndarray  # bool, a replaced string holds it after another character [U+0301 after e]; or a replaced space
    # bool, what it becomes with its neighbours rules out a cut beside it [none]: either it is in a replaced string of
    # several characters whose replacement is empty or holds a space, or it begins a replaced string of several
    # characters whose replacement begins beyond the basic plane, so that `contractions` lacks the string
    unsure: np.ndarray
    # uint32, of each replaced string of several characters (not of each character): the first character of the
    # replacement << 16 | the first character of the string [é << 16 | e]
    contractions: np.ndarray


def split_charsmap(charsmap: bytes) -> tuple[np.ndarray, bytes]:
    """The units of the trie (int64), and the replacements. Raises ValueError if one is too long."""
    charsmap = charsmap or _ROOT_ALONE
    end = 4 + int.from_bytes(charsmap[:4], "little")
    if (longest := max(map(len, charsmap[end:].split(b"\0")))) > _MAX_REPLACEMENT:
        raise ValueError(f"it replaces a string by {longest:,} bytes; at most {_MAX_REPLACEMENT} are allowed")
    return np.frombuffer(charsmap[4:end], "<u4").astype(np.int64), charsmap[end:]


def read_charsmap(charsmap: bytes) -> Replacements:
    """Read a table of replacements. Raises ValueError if it is damaged."""
    units, replacements = split_charsmap(charsmap)
    replacements.decode()  # raises ValueError: kernels would read beyond a replacement that ends inside a character
    strings = np.frombuffer(replacements + bytes(8), np.uint8)
    yes, codes = np.ones(NUM_BASIC, np.bool_), np.arange(NUM_BASIC, dtype=np.uint16)
    found = Replacements(yes, yes.copy(), codes, codes.copy(), ~yes, ~yes, np.empty(_MAX_STEPS, np.uint32))
    num_contractions = walk_charsmap(units, strings, found)
    if num_contractions < 0:
        raise ValueError("the table of replacements is damaged")
    return found._replace(contractions=found.contractions[:num_contractions].copy())


@kernel
def walk_charsmap(units: np.ndarray, strings: np.ndarray, found: Replacements) -> int:
    """Visit each replaced string, depth first. Returns the number of contractions, -1 for a damaged table."""
    # The last child of each base, and the child before each child; 0 for none. index ^ label changes 8 bits.
    youngest, elder = np.zeros((len(units) | 255) + 1, np.int64), np.zeros(len(units), np.int64)
    # At each depth of the path the node to visit next; the string so far.
    nodes, key = np.zeros(_MAX_KEY + 2, np.int64), np.zeros(_MAX_KEY + 8, np.uint8)
    # A unit at index i with a label is a child of base i ^ label, so one pass over the units links all children.
    for i in range(1, len(units)):
        if units[i] >> 31 == 0 and units[i] & 255:  # no leaf, and not empty
            base = i ^ (units[i] & 255)
            youngest[base], elder[i] = i, youngest[base]
    if len(units) == 0 or find_base(units, 0) >= len(youngest):
        return -1
    num_contractions, depth, num_steps = 0, 0, 0
    nodes[0] = youngest[find_base(units, 0)]
    while depth >= 0:
        node = nodes[depth]
        if node == 0:  # all children of the node above are visited
            depth -= 1
            continue
        nodes[depth], key[depth], base = elder[node], units[node] & 255, find_base(units, node)
        num_steps += 1
        if num_steps > _MAX_STEPS or depth == _MAX_KEY or base >= len(youngest):
            return -1
        depth += 1
        nodes[depth] = youngest[base]
        if units[node] >> 8 & 1:  # a replaced string ends here
            begin = units[base] & 0x7FFFFFFF if base < len(units) else len(strings)
            # Beyond the replacements, or inside a character of one.
            if begin >= len(strings) - 8 or strings[begin] & 0xC0 == 0x80:
                return -1
            contraction = add_replacement(pointer(key), depth, pointer(strings), begin, found)
            found.contractions[num_contractions] = contraction  # the next one overwrites a 0
            num_contractions += contraction != 0
    return num_contractions


@helper
def find_base(units: np.ndarray, node: int) -> int:
    """The base of a node: its index ^ an offset. Bits 10 to 30 hold the offset, in units of 256 where bit 9 is set."""
    return node ^ int(units[node] >> 10 << ((units[node] & 512) >> 6))


@helper
def match_longest(text: Pointer, position: int, end: int, units: np.ndarray) -> tuple[int, int]:
    """Find the longest replaced string at a position.

    Returns where its replacement begins, -1 if no string is replaced there, and where the string ends.
    """
    begin, after, base = -1, position, find_base(units, 0)
    while position < end:
        byte = I64(item(text, position))
        node = base ^ byte
        if units[node] & 0x800000FF != byte:  # a leaf (bit 31), or the child of another node
            break
        position, base = position + 1, find_base(units, node)
        if units[node] >> 8 & 1:
            begin, after = units[base] & 0x7FFFFFFF, position  # the longest so far
    return begin, after


@helper
def add_replacement(key: Pointer, key_len: int, strings: Pointer, begin: int, found: Replacements) -> int:
    """Record what a replaced string tells about its characters. Returns its contraction, 0 if it has none."""
    code, position = read_character(key, 0)
    if position == key_len and code < NUM_BASIC:
        add_character(code, strings, begin, found)
    if position == key_len:
        return 0  # a string of one character contracts nothing
    first, _ = read_character(strings, begin)
    is_unsure, is_basic = first == 0 or has_space(strings, begin), 0 < first < NUM_BASIC
    if code < NUM_BASIC:
        found.unsure[code] |= is_unsure or not is_basic
    while position < key_len:
        other, position = read_character(key, position)
        if other < NUM_BASIC:
            found.joined[other] = True
            found.unsure[other] |= is_unsure
    return first << 16 | code if is_basic and code < NUM_BASIC else 0


@helper
def has_space(strings: Pointer, position: int) -> bool:
    """Whether a replacement holds a space, or the "▁" that stands for one."""
    while item(strings, position) != 0:
        code, position = read_character(strings, position)
        if code in (_SPACE, _VISIBLE_SPACE):
            return True
    return False


@helper
def add_character(code: int, strings: Pointer, begin: int, found: Replacements) -> None:
    """Record what a character becomes alone."""
    first, after_first = read_character(strings, begin)
    position, last = begin, first
    while item(strings, position) != 0:
        last, position = read_character(strings, position)
    found.single[code] = position == after_first
    found.solid_alone[code] = 0 < first < NUM_BASIC and last < NUM_BASIC and not has_space(strings, begin)
    found.joined[code] |= code == _SPACE  # forbids all cuts, see make_cut_rule
    if found.solid_alone[code]:
        found.first[code], found.last[code] = first, last
