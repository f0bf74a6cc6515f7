"""What the corpus of a build tells that rows and manifest do not: lost characters, similar documents, missing ones.

In: the files that a build read. Out: their documents and characters, and which of these the tokenizer loses.
"""

from __future__ import annotations

import unicodedata
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from albert_data.clean.documents import clean_documents
from albert_data.config import BuildConfig, TextConfig
from albert_data.corpus.damage import Damage
from albert_data.corpus.inputs import Input
from albert_data.corpus.tasks import read_tasks
from albert_data.storage.scratch import machine_scratch
from albert_data.survey.near_duplicates import NearDuplicates, find_near_duplicates
from albert_data.survey.parts import PartWriter
from albert_data.survey.repeated_lines import count_here
from albert_data.survey.signatures import choose_bands
from albert_data.survey.sorted_columns import map_u64
from albert_data.text.escaping import JOINERS, name_as_text
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE

_NUM_CHARACTERS = 0x110000


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The documents and characters of files."""

    names: list[str]  # of the files
    keys: np.ndarray  # uint64, sorted, of all documents
    files: np.ndarray  # int32, the index in `names` of the first file that has each key
    characters: np.ndarray  # int64 [all code points], how often each occurs
    near_duplicates: NearDuplicates
    similar_keys: np.ndarray  # uint64, sorted: of the documents that are similar to another one

    def name_document(self, key: int) -> str:
        """A document of the corpus, and its file."""
        return f"{key:016x} in {self.names[self.files[np.searchsorted(self.keys, np.uint64(key))]]}"


def read_corpus(inputs: list[Input], text: TextConfig) -> Corpus:
    """Read all documents once, as a build with these settings does, and find the near-duplicates that it could drop.

    They take about as much disk as the text. Raises InputError as a build does.
    """
    names = [name_as_text(item.path) for item in inputs]
    numbers = {item.path: number for number, item in reversed(list(enumerate(inputs)))}  # the first, if one comes twice
    characters = np.zeros(_NUM_CHARACTERS, np.int64)
    keys, files = [np.zeros(0, np.uint64)], [np.zeros(0, np.int32)]
    damage, similarity = Damage(strict=False), BuildConfig.similarity
    repeated = count_here(inputs, text)
    with machine_scratch() as scratch, ExitStack() as opened:
        writer = PartWriter(scratch, "corpus", 0, choose_bands(similarity), opened)
        tasks = read_tasks(inputs, text, damage)
        for block, task_text in ((block, task.text) for task in tasks for block in task.read(damage, joins=False)):
            lines = clean_documents(block, task_text, damage, repeated)
            writer.add(lines)
            codes = np.frombuffer(lines.utf8.tobytes().decode().encode("utf-32-le"), np.uint32)
            counts = np.bincount(codes)
            characters[: len(counts)] += counts
            keys.append(lines.document_keys)
            files.append(np.full(len(lines.document_keys), numbers[block.origin.path], np.int32))
        found = find_near_duplicates(scratch, writer.finish(), similarity, scratch)
        similar = np.zeros(0, np.uint64) if found.file is None else map_u64(scratch / found.file).copy()
    all_keys, first = np.unique(np.concatenate(keys), return_index=True)
    return Corpus(
        names=names,
        keys=all_keys,
        files=np.concatenate(files)[first],
        characters=characters,
        near_duplicates=found,
        similar_keys=similar,
    )


@dataclass(frozen=True)
class Lost:
    """A character that the tokenizer loses. how: what happens to it."""

    character: str
    count: int
    how: str


def find_lost(characters: np.ndarray, tokenizer: Tokenizer) -> tuple[int, list[Lost]]:
    """The number of visible characters, and those that the tokenizer loses, the most frequent first.

    Each distinct character is normalised and encoded by itself. It is lost if normalisation removes it or its marks, or
    if the result is encoded as <unk>. Changes of case and of compatibility forms, such as full-width
    letters, are no loss.
    """
    found = map(chr, np.flatnonzero(characters).tolist())
    codes = [ord(one) for one in found if one in JOINERS or unicodedata.category(one)[0] not in "CZ"]
    normalised = [tokenizer.normalise(chr(code)).replace(VISIBLE_SPACE, "").strip() for code in codes]
    ids, offsets = tokenizer.encode(normalised)
    num_unk = np.diff(np.concatenate(([0], np.cumsum(ids == tokenizer.unk_id)))[offsets]).tolist()
    lost = []
    for code, after, unk in zip(codes, normalised, num_unk, strict=True):
        if how := _explain(chr(code), after, unk > 0):
            lost.append(Lost(chr(code), int(characters[code]), how))
    return int(characters[codes].sum()), sorted(lost, key=lambda one: (-one.count, one.character))


def _explain(character: str, after: str, is_unk: bool) -> str:
    """What the tokenizer makes of a character that it loses; empty for any other."""
    if not after:
        return "is removed"
    if is_unk:
        return "becomes <unk>"
    forms = (unicodedata.normalize("NFKD", text) for text in (character, after))
    marks = [sum(map(bool, map(unicodedata.combining, form))) for form in forms]
    return f"becomes {after}" if marks[0] > marks[1] else ""
