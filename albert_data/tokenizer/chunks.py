"""Tokenise by a table of chunks: text is cut where cuts.py allows, and each chunk looked up.

In: sentences as bytes of UTF-8 with offsets. Out: ids and offsets, those of SentencePiece. A compiled loop
cuts, hashes and looks up each chunk; chunks never seen go through SentencePiece once, together. The table
is bounded: when it is full, sentences with new chunks go through SentencePiece whole, and the next call
starts a new table. What is in the table changes the speed, never the ids.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import sentencepiece

from albert_data.draws import mix
from albert_data.kernels import inline_kernel, kernel
from albert_data.tokenizer.cuts import MARGIN, CutRule, make_cut_rule
from albert_data.tokenizer.lattice import Trie, make_trie, segment
from albert_data.tokenizer.proto import UNIGRAM, ModelSettings, change_settings

MAX_CHUNKS = 1 << 20
MAX_KEY_BYTES = 24 << 20
MAX_IDS = 8 << 20
SLICE_BYTES = 4 << 20
LONG_SENTENCE = 4096  # bytes; a longer one's rounding could exceed cuts.MARGIN
_NONE = -1
_UNSPACED = 0x0E00  # Thai and all after it: below are letters that make words between spaces, not worth a cut
_FNV_BASIS, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)

Batch = Callable[[list[bytes]], list[np.ndarray]]


class ChunkEncoder:
    """Encodes sentences by the chunk table. whole: SentencePiece's own encoding of a batch of sentences."""

    def __init__(
        self,
        model: bytes,
        settings: ModelSettings,
        processor: sentencepiece.SentencePieceProcessor,
        pieces: list[str],
        whole: Batch,
    ) -> None:
        self._processor, self._whole = processor, whole
        self._inner = sentencepiece.SentencePieceProcessor()
        self._inner.LoadFromSerializedProto(
            change_settings(model, add_dummy_prefix=False, remove_extra_whitespaces=True)
        )
        self._rule: CutRule = make_cut_rule(model, settings, pieces)
        self._bigrams = make_pair_set(self._rule.bigrams)
        self._trie: Trie | None = _make_trie(processor, pieces) if settings.model_type == UNIGRAM else None
        self._unk_id = processor.unk_id()
        self._byte_fallback = settings.byte_fallback
        self._clear()

    def _clear(self) -> None:
        self._slots = np.full(2 * MAX_CHUNKS, _NONE, np.int32)
        self._hashes = np.empty(MAX_CHUNKS, np.uint64)
        self._key_offsets = np.zeros(MAX_CHUNKS + 1, np.int64)
        self._id_begins, self._id_ends = np.zeros(MAX_CHUNKS, np.int64), np.zeros(MAX_CHUNKS, np.int64)
        self._is_inner, self._is_whole = np.zeros(MAX_CHUNKS, bool), np.zeros(MAX_CHUNKS, bool)
        self._keys, self._ids = np.empty(MAX_KEY_BYTES, np.uint8), np.empty(MAX_IDS, np.int32)
        self._num_chunks = self._num_ids = 0

    def encode(self, utf8: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ids (int32) of all sentences and offsets (int64)."""
        parts = [self._encode_slice(utf8, part) for part in _slice_offsets(offsets)]
        ids = np.concatenate([np.zeros(0, np.int32), *(part[0] for part in parts)])
        lengths = np.concatenate([np.zeros(1, np.int64), *(part[1] for part in parts)])
        return ids, np.cumsum(lengths)

    def _encode_slice(self, utf8: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ids of some sentences, and the length of each."""
        if self._num_chunks > MAX_CHUNKS // 2 or self._num_ids > MAX_IDS // 2:
            self._clear()
        rule, begin = self._rule, self._num_chunks
        chunks, sentence_chunks, self._num_chunks = look_up(
            utf8,
            offsets,
            rule.before,
            rule.after,
            rule.first,
            rule.last,
            self._bigrams,
            self._slots,
            self._hashes,
            self._key_offsets,
            self._keys,
            self._is_inner,
            begin,
        )
        self._learn(np.arange(begin, self._num_chunks))
        ids, lengths = copy_ids(
            chunks, sentence_chunks, self._ids, self._id_begins, self._id_ends, self._is_whole, self._unk_id
        )
        return self._insert_whole(utf8, offsets, ids, lengths)

    def _learn(self, numbers: np.ndarray) -> None:
        """Find the ids of new chunks."""
        rest = np.ones(len(numbers), bool)
        if self._trie is not None:
            rest, text, offsets = lay_out_plain(
                self._keys, self._key_offsets, self._is_inner, numbers, self._rule.plain
            )
            self._segment(numbers[~rest], text, offsets, self._trie)
        for is_inner, processor in ((False, self._processor), (True, self._inner)):
            asked = numbers[rest & (self._is_inner[numbers] == is_inner)]
            texts = [self._key(number) for number in asked.tolist()]
            if texts and self._trie is not None:
                normal = processor.normalize(texts)
                offsets = np.cumsum([0, *map(len, normal)], dtype=np.int64)
                self._segment(asked, np.frombuffer(b"".join(normal), np.uint8), offsets, self._trie)
            elif texts:
                found = processor.encode(texts, out_type="numpy", num_threads=1)
                lengths = np.array([len(ids) for ids in found], np.int64)
                self._store(asked, np.concatenate(found), lengths, np.zeros(len(asked), bool))

    def _segment(self, numbers: np.ndarray, text: np.ndarray, offsets: np.ndarray, trie: Trie) -> None:
        """Segment chunks of normalised text. Where rounding or bytes decide, their sentences go whole."""
        ids, lengths, margins = segment(
            text, offsets, trie.keys, trie.nodes, trie.ids, trie.scores, trie.unk_id, trie.unknown_score
        )
        is_whole = margins < MARGIN
        if self._byte_fallback:
            owners = np.repeat(np.arange(len(numbers)), lengths)
            is_whole[owners[ids == trie.unk_id]] = True
        self._store(numbers, ids, lengths, is_whole)

    def _store(self, numbers: np.ndarray, ids: np.ndarray, lengths: np.ndarray, is_whole: np.ndarray) -> None:
        """Keep the ids of chunks, as far as there is room."""
        ends = self._num_ids + np.cumsum(lengths)
        fits = int(np.searchsorted(ends, MAX_IDS, side="right"))
        total = int(ends[fits - 1]) - self._num_ids if fits else 0
        self._ids[self._num_ids : self._num_ids + total] = ids[:total]
        self._id_begins[numbers], self._id_ends[numbers] = ends - lengths, ends
        self._is_whole[numbers] = is_whole
        self._is_whole[numbers[fits:]] = True
        self._num_ids += total

    def _key(self, number: int) -> bytes:
        return self._keys[self._key_offsets[number] : self._key_offsets[number + 1]].tobytes()

    def _insert_whole(
        self, utf8: np.ndarray, offsets: np.ndarray, ids: np.ndarray, lengths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Fill in the sentences that the table could not do, their length _NONE."""
        whole = np.flatnonzero(lengths == _NONE)
        if len(whole) == 0:
            return ids, lengths
        found = self._whole([utf8[offsets[i] : offsets[i + 1]].tobytes() for i in whole.tolist()])
        lengths[whole] = [len(part) for part in found]
        is_whole = np.zeros(len(lengths), bool)
        is_whole[whole] = True
        of_whole = np.repeat(is_whole, lengths)
        out = np.empty(len(of_whole), np.int32)
        out[of_whole] = np.concatenate(found)
        out[~of_whole] = ids
        return out, lengths


def _make_trie(processor: sentencepiece.SentencePieceProcessor, pieces: list[str]) -> Trie:
    kinds = (processor.is_control, processor.is_unknown, processor.is_unused, processor.is_byte)
    matched = [i for i in range(len(pieces)) if not any(is_kind(i) for is_kind in kinds)]
    return make_trie(
        [pieces[i].encode() for i in matched],
        matched,
        [processor.get_score(i) for i in matched],
        processor.unk_id(),
    )


def _slice_offsets(offsets: np.ndarray) -> list[np.ndarray]:
    """The offsets of consecutive sentences of about SLICE_BYTES at a time."""
    bounds = np.searchsorted(offsets, np.arange(offsets[0], offsets[-1], SLICE_BYTES))
    bounds = np.unique([0, *bounds.tolist(), len(offsets) - 1])
    return [offsets[begin : end + 1] for begin, end in pairwise(bounds.tolist())]


def make_pair_set(pairs: np.ndarray) -> np.ndarray:
    """An open hash of pairs of characters: uint32, 0 where empty. No piece holds the pair (0, 0)."""
    size = 1 << max(4, (4 * len(pairs)).bit_length())
    return fill_pair_set(pairs, np.zeros(size, np.uint32))


@kernel
def fill_pair_set(pairs: np.ndarray, table: np.ndarray) -> np.ndarray:
    for pair in pairs:
        slot = np.int64(mix(np.uint64(pair)) & np.uint64(len(table) - 1))
        while table[slot] != 0:
            slot = (slot + 1) & (len(table) - 1)
        table[slot] = pair
    return table


@inline_kernel
def has_pair(table: np.ndarray, first: int, second: int) -> bool:
    """Whether some piece holds these two characters side by side."""
    pair = np.uint64(first) << np.uint64(16) | np.uint64(second)
    slot = np.int64(mix(pair) & np.uint64(len(table) - 1))
    while table[slot] != 0:
        if table[slot] == pair:
            return True
        slot = (slot + 1) & (len(table) - 1)
    return False


@inline_kernel
def decode_character(utf8: np.ndarray, at: int) -> tuple[int, int]:
    """A character's code, 0 beyond the basic plane, and its width in bytes."""
    byte = np.int64(utf8[at])
    if byte < 0x80:
        return int(byte), 1
    second = np.int64(utf8[at + 1]) & 0x3F
    if byte < 0xE0:
        return int((byte & 0x1F) << 6 | second), 2
    if byte < 0xF0:
        return int((byte & 0x0F) << 12 | second << 6 | (np.int64(utf8[at + 2]) & 0x3F)), 3
    return 0, 4


@kernel
def look_up(
    utf8: np.ndarray,
    offsets: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    first: np.ndarray,
    last: np.ndarray,
    bigrams: np.ndarray,
    slots: np.ndarray,
    hashes: np.ndarray,
    key_offsets: np.ndarray,
    keys: np.ndarray,
    is_inner: np.ndarray,
    num_chunks: int,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Cut sentences into chunks, adding new ones to the table.

    Returns the chunks' numbers (int32, _NONE where the table is full), the offsets of sentences in them, and how
    many chunks the table holds.
    """
    chunks = np.empty(offsets[-1] - offsets[0] + len(offsets), np.int32)
    sentence_chunks = np.zeros(len(offsets), np.int64)
    filled = 0
    for sentence in range(len(offsets) - 1):
        begin, end = offsets[sentence], offsets[sentence + 1]
        inner = False
        if end - begin > LONG_SENTENCE:
            chunks[filled] = _NONE
            filled += 1
            begin = end
        previous, at, value = 0, begin, _FNV_BASIS
        while begin < end:
            cut, next_begin, next_inner = at == end, end, False
            if not cut and utf8[at] == 32:
                behind = at
                while behind < end and utf8[behind] == 32:
                    behind += 1
                if behind < end and after[previous] and before[decode_character(utf8, behind)[0]]:
                    cut, next_begin = True, behind
                else:
                    for i in range(at, behind):
                        value = (value ^ np.uint64(utf8[i])) * _FNV_PRIME
                    previous, at = 32, behind
                    continue
            elif not cut:
                code, width = decode_character(utf8, at)
                if (
                    code >= _UNSPACED
                    and previous >= _UNSPACED
                    and after[previous]
                    and before[code]
                    and not has_pair(bigrams, last[previous], first[code])
                ):
                    cut, next_begin, next_inner = True, at, True
                    previous = 0
                else:
                    for i in range(at, at + width):
                        value = (value ^ np.uint64(utf8[i])) * _FNV_PRIME
                    previous = code
                    at += width
                    continue
            if cut:
                number, num_chunks = find_chunk(
                    utf8, begin, at, value, inner, slots, hashes, key_offsets, keys, is_inner, num_chunks
                )
                chunks[filled] = number
                filled += 1
                begin, at, inner, value, previous = next_begin, next_begin, next_inner, _FNV_BASIS, 0
        sentence_chunks[sentence + 1] = filled
    return chunks[:filled], sentence_chunks, num_chunks


@inline_kernel
def find_chunk(
    utf8: np.ndarray,
    begin: int,
    end: int,
    value: np.uint64,
    inner: bool,
    slots: np.ndarray,
    hashes: np.ndarray,
    key_offsets: np.ndarray,
    keys: np.ndarray,
    is_inner: np.ndarray,
    num_chunks: int,
) -> tuple[int, int]:
    """A chunk's number and how many there are now; it is added if it is new and there is room."""
    value = mix(value ^ np.uint64(inner))
    slot = np.int64(value & np.uint64(len(slots) - 1))
    while slots[slot] != _NONE:
        number = np.int64(slots[slot])
        key = key_offsets[number]
        if hashes[number] == value and is_inner[number] == inner and key_offsets[number + 1] - key == end - begin:
            same = True
            for i in range(end - begin):
                same = same and keys[key + i] == utf8[begin + i]
            if same:
                return int(number), num_chunks
        slot = (slot + 1) & (len(slots) - 1)
    key = key_offsets[num_chunks]
    if num_chunks == len(hashes) or key + end - begin > len(keys):
        return _NONE, num_chunks
    slots[slot], hashes[num_chunks], is_inner[num_chunks] = num_chunks, value, inner
    keys[key : key + end - begin] = utf8[begin:end]
    key_offsets[num_chunks + 1] = key + end - begin
    return num_chunks, num_chunks + 1


@kernel
def lay_out_plain(
    keys: np.ndarray, key_offsets: np.ndarray, is_inner: np.ndarray, numbers: np.ndarray, plain: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The normalised text of the chunks that normalisation leaves as they are: "▁", if they begin a word, and the key.

    Returns which chunks are not so (bool), and of the others the text (uint8) and offsets (int64).
    """
    rest, bound = np.zeros(len(numbers), np.bool_), 0
    for i in range(len(numbers)):
        bound += 3 + key_offsets[numbers[i] + 1] - key_offsets[numbers[i]]
    text, offsets = np.empty(bound, np.uint8), np.zeros(len(numbers) + 1, np.int64)
    filled, count = 0, 0
    for i in range(len(numbers)):
        begin, end = key_offsets[numbers[i]], key_offsets[numbers[i] + 1]
        at = begin
        while at < end and not rest[i]:
            code, width = decode_character(keys, at)
            rest[i] = not plain[code]
            at += width
        if rest[i]:
            continue
        if not is_inner[numbers[i]]:
            text[filled], text[filled + 1], text[filled + 2] = 0xE2, 0x96, 0x81
            filled += 3
        text[filled : filled + end - begin] = keys[begin:end]
        filled += end - begin
        count += 1
        offsets[count] = filled
    return rest, text[:filled], offsets[: count + 1]


@kernel
def copy_ids(
    chunks: np.ndarray,
    sentence_chunks: np.ndarray,
    table_ids: np.ndarray,
    id_begins: np.ndarray,
    id_ends: np.ndarray,
    is_whole: np.ndarray,
    unk_id: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Ids (int32) of all sentences, and their lengths (int64), _NONE for those that the table can't do."""
    bound = 0
    for chunk in chunks:
        if chunk != _NONE:
            bound += id_ends[chunk] - id_begins[chunk]
    ids, lengths = np.empty(bound, np.int32), np.empty(len(sentence_chunks) - 1, np.int64)
    filled = 0
    for sentence in range(len(lengths)):
        begin, whole = filled, False
        for i in range(sentence_chunks[sentence], sentence_chunks[sentence + 1]):
            chunk = chunks[i]
            if chunk == _NONE or is_whole[chunk]:
                whole = True
                break
            for at in range(id_begins[chunk], id_ends[chunk]):
                if table_ids[at] != unk_id or filled == begin or ids[filled - 1] != unk_id:
                    ids[filled] = table_ids[at]
                    filled += 1
        if whole:
            filled = begin
        lengths[sentence] = _NONE if whole else filled - begin
    return ids[:filled].copy(), lengths
