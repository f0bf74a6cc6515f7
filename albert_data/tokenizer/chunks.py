"""Tokenise by a table of chunks: text is cut where cuts.py allows, and each chunk looked up.

In: sentences as places in a buffer of UTF-8. Out: ids and how many each has, those of SentencePiece. A compiled loop
(encoding.py) cuts, hashes and looks up each chunk. Sentences with chunks never seen wait until these have
their ids, all at once; then they are encoded again. The table is bounded: when it is full, a new one is
begun. What is in the table changes the speed, never the ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import sentencepiece

from albert_data.tokenizer import encoding, table
from albert_data.tokenizer.cuts import make_cut_rule
from albert_data.tokenizer.cutting import BLOCK, PADDING, CutRule, make_places, mark_cuts
from albert_data.tokenizer.encoding import NOT_DONE, SPARE_IDS, make_workplace
from albert_data.tokenizer.growing import with_room
from albert_data.tokenizer.lattice import segment
from albert_data.tokenizer.proto import UNIGRAM, ModelSettings, change_settings
from albert_data.tokenizer.table import Table, make_slots
from albert_data.tokenizer.trie import Trie, make_trie

FIRST_SLOTS, MAX_SLOTS = 1 << 18, 1 << 21  # of 32 bytes
MAX_KEY_BYTES = 24 << 20  # of chunks of over 16 bytes
MAX_IDS = 4 << 20  # of chunks of over four pieces
SLICE_BYTES = 2 << 20
_MIN_LIST = 64  # sentences; for a list SentencePiece starts a thread, and is slower than one by one if it is shorter
_TRIES = 3  # the first finds what the table lacks, the second may find it full; then SentencePiece does the rest


@dataclass(frozen=True, kw_only=True)
class ChunkModel:
    """What encoding by chunks needs of a model. Nothing in it changes, so threads share one.

    outer, inner: the processors or normalisers of chunks behind a space, which get a "▁", and of those that get none;
    has_prefix: whether the first chunk of a sentence is of the former.
    """

    processor: sentencepiece.SentencePieceProcessor
    outer: Any
    inner: Any
    has_prefix: bool
    is_unigram: bool
    rule: CutRule
    trie: Trie


def make_chunk_model(
    model: bytes, settings: ModelSettings, processor: sentencepiece.SentencePieceProcessor, pieces: list[str]
) -> ChunkModel:
    """Raises ValueError if the model's table of replacements is damaged."""
    is_unigram, has_prefix = settings.model_type == UNIGRAM, settings.add_dummy_prefix
    other = _load_other(model, is_unigram, add_dummy_prefix=not has_prefix)
    return ChunkModel(
        processor=processor,
        outer=processor if has_prefix else other,
        inner=other if has_prefix else processor,
        has_prefix=has_prefix,
        is_unigram=is_unigram,
        rule=make_cut_rule(settings, pieces),
        trie=_make_trie(settings, pieces, processor.unk_id()),
    )


class ChunkEncoder:
    """Encodes sentences by the chunk table. It learns, and works in its own buffers: each thread needs one."""

    def __init__(self, model: ChunkModel) -> None:
        self._processor, self._outer, self._inner = model.processor, model.outer, model.inner
        self._is_unigram, self._first_inner = model.is_unigram, int(not model.has_prefix)
        self._rule, self._trie = model.rule, model.trie
        self._dtype: type[Any] = np.uint32 if self._trie.is_wide else np.uint16
        self._workplace = make_workplace()
        self._cuts, self._places = np.empty(0, np.uint64), make_places()
        self._rooms = [np.empty(0, self._dtype)] * _TRIES
        self._clear()

    def _clear(self) -> None:
        self._table = Table(
            slots=make_slots(FIRST_SLOTS),
            long_keys=np.empty(1 << 16, np.uint8),
            long_ids=np.empty(1 << 12, np.int64),
            counts=np.zeros(3, np.int64),
        )

    def compile_rare(self) -> None:
        """Run on nothing the kernels that a few words don't come to."""
        nothing, no_ids = np.zeros(0, np.int64), np.zeros(0, self._dtype)
        if self._is_unigram:
            segment(np.frombuffer(b" ", np.uint8), np.zeros(1, np.int64), self._trie)
        self._store(nothing, np.zeros(0, np.int32), nothing, nothing)
        encoding.fill_in(no_ids, nothing, no_ids, nothing)
        table.copy_slots(np.zeros(4, np.uint64), np.zeros(8, np.uint64))

    def encode(
        self, utf8: np.ndarray, begins: np.ndarray, ends: np.ndarray, lengths: np.ndarray
    ) -> Iterator[np.ndarray]:
        """Yield the ids (uint16, or uint32 for a large vocabulary) of all sentences, those of a slice at a time.

        begins, ends: int64, where the sentences stand in `utf8`, in order; the kernels rely on each being valid UTF-8.
        lengths: int64, filled in for a slice before its ids are yielded. An array is good until the next is asked for.
        """
        begin = 0
        while begin < len(begins):
            end = max(begin + 1, int(np.searchsorted(ends, begins[begin] + SLICE_BYTES, side="right")))
            yield self._encode_slice(utf8, begins[begin:end], ends[begin:end], lengths[begin:end])
            begin = end

    def _encode_slice(self, utf8: np.ndarray, begins: np.ndarray, ends: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Ids of some sentences, in a room for reuse; fills in the length of each."""
        first, end = begins[0], ends[-1] + PADDING
        text = utf8[first:end] if end <= len(utf8) else np.concatenate((utf8[first:], np.zeros(PADDING, np.uint8)))
        self._cuts = with_room(self._cuts, len(text) // BLOCK)
        mark_cuts(text, len(text) - PADDING, self._rule, self._cuts, self._places)
        return self._encode(text, begins - first, ends - first, lengths, _TRIES)

    def _encode(
        self, text: np.ndarray, begins: np.ndarray, ends: np.ndarray, lengths: np.ndarray, tries: int
    ) -> np.ndarray:
        if tries == 0:
            sentences = [text[begin:end].tobytes() for begin, end in zip(begins, ends, strict=True)]
            found = encode_whole(self._processor, sentences)
            lengths[:] = [len(ids) for ids in found]
            return np.concatenate(found).astype(self._dtype)
        ids = self._look_up(text, begins, ends, lengths, tries - 1)
        rest = np.flatnonzero(lengths == NOT_DONE)
        if len(rest) == 0:
            return ids
        lengths_of_rest = np.empty(len(rest), np.int64)
        ids_of_rest = self._encode(text, begins[rest], ends[rest], lengths_of_rest, tries - 1)
        return encoding.fill_in(ids, lengths, ids_of_rest, lengths_of_rest)

    def _look_up(
        self, text: np.ndarray, begins: np.ndarray, ends: np.ndarray, lengths: np.ndarray, room: int
    ) -> np.ndarray:
        """Ids of the sentences that the table can do, and what it lacked learnt. They stand in a room for reuse."""
        num_bytes = int((ends - begins).sum())
        self._make_room(num_bytes)
        max_chunks = 3 * len(self._table.slots) // 16
        self._rooms[room] = ids = with_room(self._rooms[room], num_bytes + len(begins) + SPARE_IDS)
        fresh = np.empty((min(num_bytes, max_chunks - int(self._table.counts[0])), 3), np.int64)
        filled, num_fresh = encoding.encode_sentences(
            text,
            begins,
            ends,
            self._cuts,
            self._rule,
            self._table,
            self._trie,
            self._workplace,
            self._first_inner,
            max_chunks,
            ids,
            lengths,
            fresh,
        )
        if num_fresh:
            slots, chunk_begins, chunk_ends = fresh[:num_fresh].T.copy()
            self._learn(text, slots, chunk_begins, chunk_ends)
        return ids[:filled]

    def _make_room(self, num_bytes: int) -> None:
        """Room for the chunks of so much text: a table a third full is doubled, or begun anew if it is large."""
        num_chunks, num_key_bytes, num_ids = self._table.counts.tolist()
        if 3 * num_chunks > MAX_SLOTS or num_key_bytes > MAX_KEY_BYTES or num_ids > MAX_IDS:
            self._clear()
        elif 12 * num_chunks > len(self._table.slots):
            slots = make_slots(len(self._table.slots) // 2)
            table.copy_slots(self._table.slots, slots)
            self._table = self._table._replace(slots=slots)
        self._table = self._table._replace(
            long_keys=with_room(self._table.long_keys, int(self._table.counts[1]) + num_bytes),
            long_ids=with_room(self._table.long_ids, int(self._table.counts[2]) + num_bytes // 16),
        )

    def _learn(self, text: np.ndarray, slots: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> None:
        """Find the ids of pending chunks: those of SentencePiece, or of the trie for what it normalises them to."""
        is_inner = self._table.slots[slots + 2] >> table.INNER_SHIFT & np.uint64(1) != 0
        for inner, processor in ((False, self._outer), (True, self._inner)):
            asked = np.flatnonzero(is_inner == inner)
            texts = [text[begins[i] : ends[i]].tobytes() for i in asked.tolist()]
            if texts and self._is_unigram:
                normal = processor.normalize(texts)
                offsets = np.cumsum([0, *map(len, normal)], dtype=np.int64)
                self._store(slots[asked], *segment(np.frombuffer(b"".join(normal), np.uint8), offsets, self._trie))
            elif texts:
                found = encode_whole(processor, texts)
                lengths = np.array([len(ids) for ids in found], np.int64)
                self._store(slots[asked], np.concatenate(found), lengths, np.full(len(asked), table.STURDY))

    def _store(self, slots: np.ndarray, ids: np.ndarray, lengths: np.ndarray, limits: np.ndarray) -> None:
        num_ids = int(self._table.counts[2]) + len(ids)
        self._table = self._table._replace(long_ids=with_room(self._table.long_ids, num_ids))
        table.store_chunks(slots, ids, lengths, limits, self._table, self._trie)


def encode_whole(processor: sentencepiece.SentencePieceProcessor, sentences: list[bytes]) -> list[np.ndarray]:
    """SentencePiece's own encoding: the ids (int32) of each sentence."""
    if len(sentences) < _MIN_LIST:
        return [processor.encode(sentence, out_type="numpy") for sentence in sentences]
    encoded: list[np.ndarray] = processor.encode(sentences, out_type="numpy", num_threads=1)
    return encoded


def _load_other(model: bytes, is_unigram: bool, *, add_dummy_prefix: bool) -> Any:
    """The processor of the chunks that begin otherwise than a sentence: with a "▁", or without. Chunks of a unigram
    model are only normalised, and the normaliser alone loads in a tenth of the time.
    """
    if is_unigram:
        return sentencepiece.SentencePieceNormalizer(
            model_proto=model, add_dummy_prefix=add_dummy_prefix, remove_extra_whitespaces=True, escape_whitespaces=True
        )
    return sentencepiece.SentencePieceProcessor(
        model_proto=change_settings(model, add_dummy_prefix=add_dummy_prefix, remove_extra_whitespaces=True)
    )


def _make_trie(settings: ModelSettings, pieces: list[str], unk_id: int) -> Trie:
    is_matched = settings.is_matched & (settings.model_type == UNIGRAM)
    return make_trie(
        list(compress(pieces, is_matched.tolist())),
        np.flatnonzero(is_matched).tolist(),
        settings.scores[is_matched].tolist(),
        unk_id=unk_id,
        vocab_size=len(pieces),
        unknown_is_whole=settings.byte_fallback,
    )
