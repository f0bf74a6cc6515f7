"""Tokenise with a table of chunks: text is cut where cuts.py or wordpiece.py allows, and each chunk is looked up.

In: sentences. Out: ids and how many each sentence has, equal to those of the model's own library. A compiled loop
(table.py) cuts, hashes and looks up each chunk. New chunks of a unigram model mostly get their ids in that loop. The
others, and those of other models, wait until a slice of sentences is through. Then the library is asked for all of them
at once (SentencePiece for the normalised text of a unigram model), and their sentences are encoded again. The table is
bounded: a large one that fills up is replaced by an empty one. What is in the table changes the speed, never the ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from albert_data.data import slice_sentences
from albert_data.errors import TokenizerError
from albert_data.tokenizer.buffers import Sentences, grow
from albert_data.tokenizer.chunks import table
from albert_data.tokenizer.chunks.cutting import BLOCK, PADDING, make_cut_scratch, mark_cuts
from albert_data.tokenizer.chunks.lattice import ChunkIds

FIRST_SLOTS, MAX_SLOTS = 1 << 18, 1 << 21  # of 32 bytes
MAX_KEY_BYTES = 24 << 20  # of chunks of over 16 bytes
MAX_IDS = 4 << 20  # of chunks of over four pieces
SLICE_BYTES = 2 << 20
_BYTES_PER_LONG_ID = 16  # capacity of long_ids: an id for so much text. Chunks that find it full wait for `_learn`
# The first look-up learns new chunks, the second finds them. Where the first left the table full, the second doubles it
# or begins a new one, and learns, and the third finds them. The library encodes what is left: long sentences, and those
# whose score reaches the limit of a fragile chunk.
_LOOK_UPS = 3
_FIRST_COMPARED, _LATER_COMPARED = 200, 1  # sentences of the first slice that an encoder gets, and of each later one


@dataclass(frozen=True, kw_only=True)
class ChunkModel:
    """What encoding by chunks needs of a tokenizer. Nothing in it changes, so threads share one."""

    rules: table.ChunkRules  # their trie is empty where the compiled loop finds no ids itself
    encode: Callable[[list[bytes]], list[np.ndarray]]  # the library's own ids (int32) of each text
    learn: Callable[[list[bytes], bool], ChunkIds]  # the ids of chunks; the bool says whether they continue a word
    is_compared: bool = False  # whether the library encodes a sample of all text too


class ChunkEncoder:
    """Encodes sentences with a chunk table. It learns, and has its own scratch buffers: each thread needs one."""

    def __init__(self, model: ChunkModel) -> None:
        self._model, self._rules = model, model.rules
        self._dtype: type[Any] = np.uint32 if self._rules.trie.settings.is_wide else np.uint16
        self._cuts, self._cut_scratch = np.empty(0, np.uint64), make_cut_scratch()
        self._scratch = table.make_encoding_scratch()
        self._id_buffers = [np.empty(0, self._dtype)] * _LOOK_UPS
        self._num_compared = _FIRST_COMPARED if model.is_compared else 0
        self._clear()
        # It is compiled before much text needs it.
        table.copy_slots(np.zeros(table.SLOT, np.uint64), np.zeros(2 * table.SLOT, np.uint64))

    def _clear(self) -> None:
        self._table = table.Table(
            slots=table.make_slots(FIRST_SLOTS),
            long_keys=np.empty(1 << 16, np.uint8),
            long_ids=np.empty(1 << 12, np.int64),
            counts=np.zeros(3, np.int64),
        )

    def encode(self, sentences: Sentences, lengths: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the ids (uint16, or uint32 for a large vocabulary) of all sentences, a slice of them at a time.

        Each sentence must be valid UTF-8: the kernels rely on it. lengths: int64, the number of ids of each sentence,
        filled in for a slice before its ids are yielded. An array is valid until the next one is asked for.
        Raises TokenizerError if ids differ from the library's.
        """
        for chosen in sentences.slices(SLICE_BYTES):
            part, counts = sentences.part(chosen), lengths[chosen]
            ids = self._encode_slice(part, counts)
            if self._num_compared:
                self._compare(slice_sentences(*part.part(slice(self._num_compared))), ids, counts)
                self._num_compared = _LATER_COMPARED
            yield ids

    def _compare(self, texts: list[bytes], ids: np.ndarray, lengths: np.ndarray) -> None:
        parts = np.split(ids, np.cumsum(lengths[: len(texts)]))
        for text, found, expected in zip(texts, parts, self._model.encode(texts), strict=False):
            if not np.array_equal(found, expected):
                raise TokenizerError(
                    f"the chunk table gives other ids than the tokenizer's own library for {text.decode()!r:.200}; "
                    "this is a fault of albert-data: report it with this text"
                )

    def _encode_slice(self, sentences: Sentences, lengths: np.ndarray) -> np.ndarray:
        """The ids of some sentences, in a buffer that is reused; fills in the length of each."""
        utf8, begins, ends = sentences
        first, end = begins[0], ends[-1] + PADDING
        text = utf8[first:end] if end <= len(utf8) else np.concatenate((utf8[first:], np.zeros(PADDING, np.uint8)))
        self._cuts = grow(self._cuts, len(text) // BLOCK)  # the padding is a block or more, so this rounds up
        mark_cuts(text, len(text) - PADDING, self._rules.cuts, self._cuts, self._cut_scratch)
        part = Sentences(text, begins - first, ends - first)
        if not self._rules.cuts.joins_spaces:  # no cuts at spaces that end a sentence: its last chunk has them
            lasts = part.ends[ends > begins] - 1
            lasts = lasts[text[lasts] == ord(" ")]
            np.bitwise_and.at(self._cuts, lasts // BLOCK, ~(np.uint64(1) << (lasts % BLOCK).astype(np.uint64)))
        return self._encode(part, lengths, _LOOK_UPS)

    def _encode(self, sentences: Sentences, lengths: np.ndarray, look_ups: int) -> np.ndarray:
        """The ids of sentences after at most `look_ups` look-ups. The library encodes what these leave."""
        if look_ups == 0:
            text, begins, ends = sentences
            found = self._model.encode([text[begin:end].tobytes() for begin, end in zip(begins, ends, strict=True)])
            lengths[:] = [len(ids) for ids in found]
            return np.concatenate(found).astype(self._dtype)
        ids = self._look_up(sentences, lengths, look_ups - 1)
        rest = np.flatnonzero(lengths == table.NOT_DONE)
        if len(rest) == 0:
            return ids
        lengths_of_rest = np.empty(len(rest), np.int64)
        ids_of_rest = self._encode(sentences.part(rest), lengths_of_rest, look_ups - 1)
        return table.fill_in(ids, lengths, ids_of_rest, lengths_of_rest)

    def _look_up(self, sentences: Sentences, lengths: np.ndarray, buffer_index: int) -> np.ndarray:
        """The ids of the sentences for which the table suffices. Learns what the table lacks.

        Each look-up has an id buffer of its own: the ids of the one before are still needed.
        """
        num_bytes = int((sentences.ends - sentences.begins).sum())
        self._reserve(num_bytes)
        # Hardly any text has more ids than bytes and a "▁" for each sentence. A sentence for whose ids no capacity is
        # left is NOT_DONE (table.write_ids).
        capacity = num_bytes + len(lengths) + table.SPARE_IDS
        ids = self._id_buffers[buffer_index] = grow(self._id_buffers[buffer_index], capacity)
        free_slots = len(self._table.slots) // table.SLOT - int(self._table.counts[0])
        # Each fresh chunk has a byte or more, and takes a free slot.
        out = table.EncodedSlice(ids, lengths, np.empty((min(num_bytes, free_slots), 3), np.int64))
        filled, num_fresh = table.encode_sentences(sentences, self._cuts, self._rules, self._table, self._scratch, out)
        if num_fresh:
            self._learn(sentences.utf8, *out.fresh[:num_fresh].T.copy())
        return ids[:filled]

    def _reserve(self, num_bytes: int) -> None:
        """Reserve capacity for the chunks of so much text. A table a third full is doubled, or begun anew if large."""
        num_chunks, num_key_bytes, num_ids = self._table.counts.tolist()
        num_slots = len(self._table.slots) // table.SLOT
        if 3 * num_chunks > MAX_SLOTS or num_key_bytes > MAX_KEY_BYTES or num_ids > MAX_IDS:
            self._clear()
        elif 3 * num_chunks > num_slots:
            slots = table.make_slots(2 * num_slots)
            table.copy_slots(self._table.slots, slots)
            self._table = self._table._replace(slots=slots)
        _, num_key_bytes, num_ids = self._table.counts.tolist()
        self._table = self._table._replace(
            long_keys=grow(self._table.long_keys, num_key_bytes + num_bytes),
            long_ids=grow(self._table.long_ids, num_ids + num_bytes // _BYTES_PER_LONG_ID),
        )

    def _learn(self, text: np.ndarray, slots: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> None:
        """Find the ids of pending chunks with the model's library."""
        is_inner = self._table.slots[slots + table.TAG] >> table.INNER_SHIFT & np.uint64(1) != 0
        for inner in (False, True):
            chosen = np.flatnonzero(is_inner == inner)
            texts = [text[begins[i] : ends[i]].tobytes() for i in chosen.tolist()]
            if texts:
                found = self._model.learn(texts, inner)
                num_ids = int(self._table.counts[2]) + len(found.ids)
                self._table = self._table._replace(long_ids=grow(self._table.long_ids, num_ids))
                table.store_chunks(slots[chosen], found, self._table, self._rules.trie)
