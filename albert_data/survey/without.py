"""Documents that are left out by name (`--without-keys`).

A line of the file is an *entry* of 64 bits: a document key as it is, an id as a hash. The distinct entries, sorted, lie
on the disk, where each process maps them: uint64. An id that looks like a key is found too.
"""

from __future__ import annotations

import re
from array import array
from functools import partial
from pathlib import Path

import numpy as np
from xxhash import xxh3_64_intdigest

from albert_data.config import TextConfig
from albert_data.corpus.fields import MAX_ID_BYTES
from albert_data.data import Lines
from albert_data.errors import InputError, readable
from albert_data.storage import Address, find_storage, make_path
from albert_data.survey.sorted_columns import find_changes, find_keys, map_u64

_KEY = re.compile("[0-9a-fA-F]{16}")


def hash_entry(entry: str) -> int:
    """The seed differs from that of keys, so an id of somebody's text is not the key of that."""
    return int(entry, 16) if _KEY.fullmatch(entry) else xxh3_64_intdigest(entry.encode(), 1)


def read_entries(path: Address, text: TextConfig) -> np.ndarray:
    """The distinct entries of a file, ascending: uint64. Raises InputError for a line that can't be used."""
    entries = array("Q")
    with readable(f"--without-keys {path}", "name a text file"), find_storage(path).open(make_path(path)) as file:
        for number, line in enumerate(iter(partial(file.readline, MAX_ID_BYTES + 9), b""), 1):
            entry = line.decode(errors="replace").removeprefix("\ufeff").strip()
            is_key, is_long, why = _KEY.fullmatch(entry), len(line) > MAX_ID_BYTES + 2, ""
            if not is_long and (not entry or entry.startswith("#")):
                continue
            if is_long or "\ufffd" in entry:
                why = f"no key and no id: over {MAX_ID_BYTES:,} bytes, or not UTF-8"
            elif is_key and text.drop_repeated_lines is not None:
                why = "a key, and keys are those of text without repeated lines: give ids, or no --drop-repeated-lines"
            elif not is_key and text.id_field is None:
                why = "no key of 16 hex digits, so it is an id: name the field of ids with --id-field"
            if why:
                raise InputError(f"--without-keys {path}, line {number:,}: {entry!a:.40} is {why}")
            entries.append(hash_entry(entry))
    found: np.ndarray = np.array(entries, np.uint64)
    found.sort()  # np.unique takes three times the memory
    found = found[find_changes(found[None])]
    return found


class Without:
    """Says which documents stay. path: of the entries, None for none; found: those of documents that were seen."""

    def __init__(self, path: Path | None) -> None:
        self._entries, self.found = None if path is None else map_u64(path), np.zeros(0, np.uint64)

    def __call__(self, lines: Lines) -> np.ndarray:
        stays = np.ones(len(lines.document_keys), bool)
        if self._entries is not None:
            ids = () if lines.ids is None else [hash_entry(id) for id in lines.ids]
            for values in (lines.document_keys, np.array(ids, np.uint64)):
                is_out, _ = find_keys(values, self._entries)
                self.found = np.union1d(self.found, values[is_out])
                stays[: len(is_out)] &= ~is_out
        return stays
