"""Reads the corpus for what shards and manifest don't hold: the file of each document, and the lost characters.

In: the files that a build read. Out: a file for each document key, and counts of characters before normalisation.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from albert_data.config import TextConfig
from albert_data.corpus.damage import Damage
from albert_data.corpus.documents import clean_documents
from albert_data.corpus.inputs import Input
from albert_data.corpus.tasks import read_tasks
from albert_data.inspect.terminal import name_as_text
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.words import SPACE

_NUM_CHARACTERS = 0x110000
_JOINERS = "\u200c\u200d"  # of category Cf, yet Persian, Hindi and emoji need them


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """names: of the files; keys: uint64, sorted, of all documents; files: int32, the index in `names` of the first
    file that has each key; characters: int64 over all code points, how often each occurs.
    """

    names: list[str]
    keys: np.ndarray
    files: np.ndarray
    characters: np.ndarray

    def find_files(self, keys: np.ndarray) -> np.ndarray:
        """The file of each document: int32, -1 where no file has it."""
        if len(self.keys) == 0:
            return np.full(len(keys), -1, np.int32)
        indices = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        found: np.ndarray = np.where(self.keys[indices] == keys, self.files[indices], -1).astype(np.int32)
        return found


def read_corpus(inputs: list[Input], text: TextConfig) -> Corpus:
    """Read all documents once, as a build with these settings does. Raises InputError as a build does."""
    names = [name_as_text(item.path) for item in inputs]
    numbers = {item.path: number for number, item in reversed(list(enumerate(inputs)))}  # the first, if one comes twice
    characters = np.zeros(_NUM_CHARACTERS, np.int64)
    keys, files = [np.zeros(0, np.uint64)], [np.zeros(0, np.int32)]
    damage = Damage(strict=False)
    tasks = read_tasks(inputs, text, damage)
    for block, task_text in ((block, task.text) for task in tasks for block in task.read(damage)):
        lines = clean_documents(block, task_text, damage)
        codes = np.frombuffer(lines.utf8.tobytes().decode().encode("utf-32-le"), np.uint32)
        counts = np.bincount(codes)
        characters[: len(counts)] += counts
        keys.append(lines.document_keys)
        files.append(np.full(len(lines.document_keys), numbers[block.path], np.int32))
    all_keys, first = np.unique(np.concatenate(keys), return_index=True)
    return Corpus(names=names, keys=all_keys, files=np.concatenate(files)[first], characters=characters)


@dataclass(frozen=True, kw_only=True)
class Lost:
    """A character that the tokenizer loses. how: what happens to it."""

    character: str
    count: int
    how: str

    def to_dict(self) -> dict[str, Any]:
        return {"character": f"U+{ord(self.character):04X}", "count": self.count, "how": self.how}


def find_lost(characters: np.ndarray, tokenizer: Tokenizer) -> tuple[int, list[Lost]]:
    """The number of visible characters, and those that the tokenizer loses, the most frequent first.

    Each distinct character is normalised and encoded by itself. It is lost if normalisation removes it or its marks, or
    if the result is encoded as <unk>. Changes of case and of compatibility forms, such as full-width
    letters, are no loss.
    """
    codes = [code for code in np.flatnonzero(characters).tolist() if _is_visible(chr(code))]
    normalised = [tokenizer.normalise(chr(code)).replace(SPACE, "").strip() for code in codes]
    is_unk = _find_unk(normalised, tokenizer)
    lost = []
    for code, after, unk in zip(codes, normalised, is_unk, strict=True):
        if how := _explain(chr(code), after, unk):
            lost.append(Lost(character=chr(code), count=int(characters[code]), how=how))
    return int(characters[codes].sum()), sorted(lost, key=lambda one: (-one.count, one.character))


def _is_visible(character: str) -> bool:
    return character in _JOINERS or unicodedata.category(character)[0] not in "CZ"


def _find_unk(texts: Sequence[str], tokenizer: Tokenizer) -> list[bool]:
    ids, offsets = tokenizer.encode(texts)
    counts = np.concatenate(([0], np.cumsum(ids == tokenizer.unk_id)))
    found: list[bool] = (np.diff(counts[offsets]) > 0).tolist()
    return found


def _explain(character: str, after: str, is_unk: bool) -> str:
    if not after:
        return "is removed"
    if is_unk:
        return "becomes <unk>"
    before = unicodedata.normalize("NFKD", character)
    if _count_marks(before) > _count_marks(unicodedata.normalize("NFKD", after)):
        return f"becomes {after}"
    return ""


def _count_marks(text: str) -> int:
    return sum(unicodedata.combining(character) > 0 for character in text)
