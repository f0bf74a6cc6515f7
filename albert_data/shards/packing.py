"""Fills packs, lines of a fixed number of tokens, with finished rows; where rows are long, some are cut before a word.

In: the lengths of rows in an order. Out: which rows, or parts of rows, are in which pack; a pure function of the
lengths and of where words begin. Rows go into packs by best fit, a window of rows at a time. If the packs are less than
FILL full, the emptiest ones are taken apart, and their rows fill the room of the others: whole where they fit,
otherwise cut, the largest room first. A part has a [CLS] and a [SEP] of its own, and the masks of its tokens.
Of a window whose rows are on average shorter than a quarter of a pack, at most one row in twenty is cut: there best fit
alone leaves little room. Rows with a sentence task are never cut.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from albert_data.config import check_range
from albert_data.data import Examples
from albert_data.errors import ConfigError
from albert_data.kernels import I64, kernel
from albert_data.shards.manifest import Manifest
from albert_data.shards.reader import Shards
from albert_data.shards.rows import restore_ids
from albert_data.tokenizer.words import find_word_starts

ROW_STARTS = "row_starts"  # the column of converted packs
WINDOW_PACKS = 1024
MAX_PACK_LEN = 1 << 16  # masked_positions of a pack are uint16
FILL = 0.992  # of all packs of a window but one, so that all of them are 99 % full
_SHORT_ROWS, _ROWS_PER_CUT = 4, 20
_LEAST_TOKENS, _LEAST_SHARE = 8, 128  # of a part: 8 tokens, and a 128th of a pack
FindWords = Callable[[int], np.ndarray]
Part = tuple[int, int, int]  # the number of a row, and where the part begins and ends, as in `Packs`


class Packs(NamedTuple):
    """Which rows, or parts of rows, are in which pack.

    rows: int64 [parts], the number of each row
    begins, ends: int64 [parts]; a part is [CLS], the row's tokens `begin` to `end` - 1, [SEP]. A whole row of n tokens
        has 1 and n - 1
    offsets: int64 [packs + 1]; pack i has the parts offsets[i] to offsets[i + 1] - 1
    """

    rows: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    offsets: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """The tokens of each part."""
        lengths: np.ndarray = self.ends - self.begins + 2
        return lengths

    def take(self, numbers: np.ndarray) -> Packs:
        """These packs, in this order. Raises IndexError."""
        if (first := numbers.min(initial=0)) < 0:
            raise IndexError(f"pack {first} of {len(self.offsets) - 1}; allowed are 0 to {len(self.offsets) - 2}")
        counts = np.diff(self.offsets)[numbers]
        offsets = np.append(0, np.cumsum(counts))
        parts = np.repeat(self.offsets[numbers] - offsets[:-1], counts) + np.arange(offsets[-1])
        return Packs(self.rows[parts], self.begins[parts], self.ends[parts], offsets)

    def measure(self) -> dict[str, int]:
        """Sums over the packs, for reports; num_parts: rows and parts of rows."""
        parts_of_row = np.unique(self.rows, return_counts=True)[1]
        return {
            "num_tokens": int(self.lengths.sum()),
            "num_parts": len(self.rows),
            "num_rows": len(parts_of_row),
            "num_cut_rows": int(np.count_nonzero(parts_of_row > 1)),
        }


@dataclass(frozen=True, kw_only=True)
class PackedExamples(Examples):
    """Packs in place of rows: positions count from the start of the pack, and the key is that of the first row.

    row_starts: int32, where rows begin in their pack
    row_offsets: int64 [packs + 1], in row_starts
    """

    row_starts: np.ndarray
    row_offsets: np.ndarray


def check_pack(pack_len: int, manifest: Manifest, folder: object) -> None:
    """Raise ConfigError unless the rows of a folder may be packed, and each fits into a pack."""
    if type(pack_len) is not int:
        raise ConfigError(f"pack is {pack_len!r}; give the tokens of a pack as a whole number, such as 8192")
    check_range("pack", pack_len, 8, MAX_PACK_LEN)
    examples = manifest.config.examples
    if examples.task.orders:
        raise ConfigError(
            f"{folder} was built with --pairs {examples.pairs}, whose rows have a label each; leave out pack, or build "
            "with --pairs none"
        )
    if pack_len < examples.max_seq_len:
        raise ConfigError(
            f"pack is {pack_len}, but rows of {folder} have up to {examples.max_seq_len} tokens; give "
            f"{examples.max_seq_len} or more, or build with --max-seq-len {pack_len}"
        )


def pack_split(shards: Shards, pack_len: int) -> Packs:
    """Pack all rows of a split, in the order of the shards."""
    lengths, finder = shards.lengths, partial(find_words, shards)
    num_windows = max(1, min(len(lengths), round(lengths.sum(dtype=np.int64) / (WINDOW_PACKS * pack_len))))
    edges = [len(lengths) * i // num_windows for i in range(num_windows + 1)]
    windows = [
        pack_rows(np.arange(begin, end), lengths[begin:end], pack_len, find_words=finder)
        for begin, end in pairwise(edges)
    ]
    rows, begins, ends = (np.concatenate([packs[column] for packs in windows]) for column in range(3))
    counts = np.concatenate([np.diff(packs.offsets) for packs in windows])
    return Packs(rows, begins, ends, np.append(0, np.cumsum(counts)))


def pack_rows(
    rows: np.ndarray,
    lengths: np.ndarray,
    pack_len: int,
    *,
    max_rows: int | None = None,
    find_words: FindWords | None = None,
) -> Packs:
    """Fill packs with the rows of one window, none of which is longer than a pack.

    rows: their numbers, int64; max_rows: the most rows and parts of a pack; find_words: returns the tokens of a row, by
    number, that begin words: int64, rising. Without it no row is cut.

    >>> pack_rows(np.array([70, 71, 72]), np.array([6, 7, 4]), 10).rows
    array([70, 72, 71])
    """
    most = len(rows) if max_rows is None else max_rows
    numbers = best_fit(lengths.astype(np.int64), pack_len, most)
    order = np.argsort(numbers, kind="stable")
    ends = lengths[order].astype(np.int64) - 1
    offsets = np.append(0, np.cumsum(np.bincount(numbers)))
    packs = Packs(rows[order], np.ones(len(rows), np.int64), ends, offsets)
    room = pack_len - np.bincount(numbers, lengths)
    if find_words is None or len(room) < 2 or room.sum() - room.max() <= (1 - FILL) * pack_len * (len(room) - 1):
        return packs
    parts: list[Part] = list(zip(*(column.tolist() for column in packs[:3]), strict=True))
    is_short = lengths.sum() * _SHORT_ROWS < pack_len * len(parts)
    most_cuts = len(parts) // _ROWS_PER_CUT if is_short else len(parts)
    filled = fill_room([parts[begin:end] for begin, end in pairwise(offsets)], pack_len, most, most_cuts, find_words)
    filled.append(filled.pop(min(range(len(filled)), key=lambda i: sum(map(measure, filled[i])))))
    numbers, begins, ends = np.array([part for pack in filled for part in pack], np.int64).T
    return Packs(numbers, begins, ends, np.cumsum([0, *map(len, filled)]))


@kernel
def best_fit(lengths: np.ndarray, pack_len: int, max_rows: int) -> np.ndarray:
    """The pack of each row: the one that then has the least room, or a new one where none has enough."""
    packs, counts = np.empty(len(lengths), np.int64), np.zeros(len(lengths), np.int64)
    # The packs that may take another row, least room first: the room in the high 32 bits, the number in the low ones.
    rooms = np.empty(len(lengths), np.int64)
    least, num_open, num_packs = lengths.min() if len(lengths) else 0, 0, 0
    for row in range(len(lengths)):
        at = np.searchsorted(rooms[:num_open], lengths[row] << 32)
        if at == num_open:
            rooms[at] = (I64(pack_len) << 32) | num_packs
            num_open, num_packs = num_open + 1, num_packs + 1
        left, number = rooms[at] - (lengths[row] << 32), rooms[at] & 0xFFFFFFFF
        packs[row] = number
        counts[number] += 1
        if counts[number] < max_rows and left >> 32 >= least:
            while at > 0 and rooms[at - 1] > left:  # the room got smaller, so its place is further to the front
                rooms[at] = rooms[at - 1]
                at -= 1
            rooms[at] = left
        else:
            num_open -= 1
            for i in range(at, num_open):
                rooms[i] = rooms[i + 1]
    return packs


def fill_room(
    packs: list[list[Part]], pack_len: int, max_rows: int, cuts_left: int, find_words: FindWords
) -> list[list[Part]]:
    """Take the emptiest packs apart, and fill the others with their rows, until all but one are FILL full.

    cuts_left: how many rows may be cut. Ends where that makes no fewer packs.
    """
    used = np.array([sum(map(measure, pack)) for pack in packs])
    fullest = np.argsort(-used, kind="stable").tolist()
    num_kept = int(used.sum() / (FILL * pack_len))
    if num_kept == 0 or used.sum() - used.min() >= FILL * pack_len * (len(packs) - 1):
        return packs
    kept = [packs[i].copy() for i in sorted(fullest[:num_kept])]
    taken = [part for i in fullest[num_kept:] for part in packs[i]]
    left, cuts_left = add_rows(taken, kept, pack_len, max_rows, cuts_left, find_words)
    rest: list[list[Part]] = [[] for _ in left]
    for part, number in zip(left, best_fit(np.array([*map(measure, left)], np.int64), pack_len, max_rows), strict=True):
        rest[number].append(part)
    found = kept + [pack for pack in rest if pack]
    if len(found) >= len(packs):
        return packs
    return fill_room(found, pack_len, max_rows, cuts_left, find_words)


def add_rows(
    rows: list[Part], packs: list[list[Part]], pack_len: int, max_rows: int, cuts_left: int, find_words: FindWords
) -> tuple[list[Part], int]:
    """Add rows to packs, the longest first, whole or cut. Returns what finds no room, and how many cuts are left."""
    least = max(_LEAST_TOKENS, pack_len // _LEAST_SHARE) - 2  # tokens of text in a part
    rooms = [(pack_len - sum(map(measure, pack)), i) for i, pack in enumerate(packs) if len(pack) < max_rows]
    rooms.sort()  # the least room first
    left: list[Part] = []
    for row, begin, end in sorted(rows, key=measure, reverse=True):
        words: np.ndarray | None = None
        while True:
            at, stop = bisect_left(rooms, (end - begin + 2, 0)), end
            if at == len(rooms):  # it fits nowhere, so a part of it goes where most room is
                at, stop = -1, 0
                if rooms and (begin > 1 or cuts_left):
                    words = find_words(row) if words is None else words
                    latest = min(begin + rooms[-1][0] - 2, end - least)
                    stop = max(words[: np.searchsorted(words, latest, side="right")][-1:].tolist(), default=0)
                if stop < begin + least:
                    left.append((row, begin, end))
                    break
                cuts_left -= begin == 1
            room, pack = rooms.pop(at)
            packs[pack].append((row, begin, stop))
            if len(packs[pack]) < max_rows:
                insort(rooms, (room - (stop - begin + 2), pack))
            if stop == end:
                break
            begin = stop
    return left, cuts_left


def measure(part: Part) -> int:
    """The tokens of a part."""
    return part[2] - part[1] + 2


def find_words(shards: Shards, row: int) -> np.ndarray:
    """The tokens of a row that begin words: int64, rising. Raises ShardError as `Shards.rows` does."""
    text = restore_ids(shards.rows([row]))[1:-1]
    starts: np.ndarray = np.flatnonzero(find_word_starts(text, shards.tokenizer.word_rule())) + 1
    return starts


def cut_rows(rows: Examples, begins: np.ndarray, ends: np.ndarray) -> Examples:
    """Of each row the part from `begin` to `end`, see `Packs`, with its masks. The rows have one segment."""
    lengths = ends - begins + 2
    if np.array_equal(lengths, np.diff(rows.offsets)):
        return rows
    offsets = np.append(0, np.cumsum(lengths))
    tokens = np.repeat(rows.offsets[:-1] + begins - 1 - offsets[:-1], lengths) + np.arange(offsets[-1])
    input_ids = rows.input_ids[tokens]
    input_ids[offsets[:-1]], input_ids[offsets[1:] - 1] = rows.input_ids[0], rows.input_ids[-1]  # [CLS] and [SEP]
    owners = np.repeat(np.arange(len(rows)), np.diff(rows.mask_offsets))
    is_kept = (begins[owners] <= rows.masked_positions) & (rows.masked_positions < ends[owners])
    owners = owners[is_kept]
    return replace(
        rows,
        input_ids=input_ids,
        offsets=offsets,
        segment_a_len=(lengths - 2).astype(np.int32),
        masked_positions=(rows.masked_positions[is_kept] - (begins[owners] - 1)).astype(np.uint16),
        masked_ids=rows.masked_ids[is_kept],
        mask_offsets=np.append(0, np.cumsum(np.bincount(owners, minlength=len(rows)))),
    )


def join_packs(parts: Examples, row_offsets: np.ndarray) -> PackedExamples:
    """Packs of whole or cut rows that follow one another. row_offsets: as `Packs.offsets`."""
    offsets, counts = parts.offsets[row_offsets], np.diff(row_offsets)
    starts = parts.offsets[:-1] - np.repeat(offsets[:-1], counts)
    return PackedExamples(
        input_ids=parts.input_ids,
        offsets=offsets,
        segment_a_len=(np.diff(offsets) - 2).astype(np.int32),
        sop_label=parts.sop_label[row_offsets[:-1]],
        document_keys=parts.document_keys[row_offsets[:-1]],
        masked_positions=(parts.masked_positions + np.repeat(starts, np.diff(parts.mask_offsets))).astype(np.uint16),
        masked_ids=parts.masked_ids,
        mask_offsets=parts.mask_offsets[row_offsets],
        row_starts=starts.astype(np.int32),
        row_offsets=row_offsets,
    )
