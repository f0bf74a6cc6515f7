"""SentencePiece models: unigram and BPE.

In: a serialised model. Out: ids, token for token what `SentencePieceProcessor.encode` gives. Text goes through the
chunk table (encoder.py) where cuts.py allows that, else through SentencePiece alone. With the normalization albert-v2,
text is normalised before it and some pieces are divided after it (albert.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial

import numpy as np
import sentencepiece

from albert_data.config import NORMALIZATIONS, check_choice
from albert_data.data import slice_sentences
from albert_data.errors import TokenizerError
from albert_data.tokenizer.buffers import Sentences
from albert_data.tokenizer.chunks.encoder import SLICE_BYTES, ChunkEncoder, ChunkModel
from albert_data.tokenizer.chunks.lattice import ChunkIds, encode_chunks
from albert_data.tokenizer.chunks.table import CERTAIN_LIMIT, ChunkRules
from albert_data.tokenizer.chunks.trie import Trie, make_trie
from albert_data.tokenizer.kinds import Kind, id_dtype_of
from albert_data.tokenizer.sentencepiece import proto
from albert_data.tokenizer.sentencepiece.albert import CommaRule, make_comma_rule, normalise, normalise_text
from albert_data.tokenizer.sentencepiece.cuts import explain_unsafe, make_cut_rule
from albert_data.tokenizer.tokenizer_json import choose_names, find_specials

MODEL_NAME = "spiece.model"
_MIN_LIST = 64  # sentences. SentencePiece starts a thread for a list, so a shorter one is faster one by one


class SentencePieceKind(Kind):
    """A SentencePiece model, and a normalization of text before it: "none" or "albert-v2"."""

    file_name = MODEL_NAME
    library = "SentencePiece"

    def __init__(self, model: bytes, name: str, normalization: str) -> None:
        """Raises TokenizerError if `model` is no SentencePiece model or lacks a special piece."""
        check_choice("normalization", normalization, NORMALIZATIONS)
        self._name, self._normalization = name, normalization
        self.processor = sentencepiece.SentencePieceProcessor()
        self._load(model)
        try:
            self.pieces = self.texts = self.processor.id_to_piece(list(range(self.processor.get_piece_size())))
        except UnicodeDecodeError as error:
            raise TokenizerError(
                f"{name} is damaged: the piece {error.object!r} is not valid UTF-8; copy or train it again"
            ) from error
        own = {"unk": self.processor.unk_id(), "pad": self.processor.pad_id()}  # negative for none
        self.specials = find_specials(self.pieces, name, {role: i for role, i in own.items() if i >= 0})
        if len(found := np.flatnonzero(self.settings.is_matched & self.specials.is_special)):
            self._load(proto.hide_pieces(model, found.tolist()))
            spelt = ", ".join(self.pieces[i] for i in found)
            self.note = f"{name} finds {spelt:.80} in text; a build does not, as text never gives a special piece"
        self.is_ordinary = self.settings.is_matched & ~self.specials.is_special
        self.slow_reason = explain_unsafe(self.settings, self.pieces)
        self.has_prefix = self.settings.add_dummy_prefix and not self.settings.treat_whitespace_as_suffix

    def _load(self, model: bytes) -> None:
        try:
            self.processor.LoadFromSerializedProto(model)
            self._model, self.settings = model, proto.read_settings(model)
        except (RuntimeError, OSError, UnicodeDecodeError) as error:  # its message may quote bytes that are not UTF-8
            what = f"{self._name} is no SentencePiece model; train one with `albert-data vocab`"
            raise TokenizerError(what) from error
        except ValueError as error:
            raise TokenizerError(f"{self._name} is damaged: {error}") from error

    def make_encoder(self) -> SentencePieceEncoder:
        chunks = None if self._chunk_model is None else ChunkEncoder(self._chunk_model)
        return SentencePieceEncoder(self.processor, chunks, self.comma_rule)

    @cached_property
    def _chunk_model(self) -> ChunkModel | None:
        if self.slow_reason is not None:
            return None
        try:
            return make_chunk_model(self._model, self.settings, self.processor, self.pieces)
        except ValueError as error:
            raise TokenizerError(f"{self._name} is damaged: {error}") from error

    @cached_property
    def comma_rule(self) -> CommaRule | None:
        if self._normalization == "none":
            return None
        return make_comma_rule(self.processor, self.pieces, self.settings.is_matched)

    def normalise(self, text: str) -> str:
        return str(self.processor.normalize(text if self._normalization == "none" else normalise_text(text)))

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.processor.decode(list(ids)))


def name_specials(model: bytes, specials: Mapping[str, str], name: str) -> bytes:
    """As the function of this name in tokenizer_json.py, for a SentencePiece model."""
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        pieces = processor.id_to_piece(list(range(processor.get_piece_size())))
        names = choose_names(pieces, specials, name)
        return proto.name_pieces(model, {pieces.index(piece): usual for piece, usual in names.items()})
    except (RuntimeError, OSError, ValueError) as error:
        raise TokenizerError(f"{name} is no SentencePiece model, or a damaged one; copy or train it again") from error


class SentencePieceEncoder:
    """Encodes for one thread.

    chunks: None if all text goes through the processor; comma_rule: None without the normalization albert-v2.
    """

    def __init__(
        self, processor: sentencepiece.SentencePieceProcessor, chunks: ChunkEncoder | None, comma_rule: CommaRule | None
    ) -> None:
        self._processor, self.chunks, self._comma_rule = processor, chunks, comma_rule
        self._dtype = id_dtype_of(range(processor.get_piece_size()))

    def encode(self, sentences: Sentences, lengths: np.ndarray) -> Iterator[np.ndarray]:
        if self._comma_rule is None:
            yield from self._encode(sentences, lengths)
            return
        for chosen in sentences.slices(SLICE_BYTES):
            part, counts = normalise(sentences.part(chosen)), lengths[chosen]
            parts = [ids.astype(self._dtype) for ids in self._encode(part, counts)]
            yield self._comma_rule.apply(np.concatenate(parts), counts)

    def _encode(self, sentences: Sentences, lengths: np.ndarray) -> Iterator[np.ndarray]:
        """As `encode`, SentencePiece's own ids."""
        if self.chunks is not None:
            yield from self.chunks.encode(sentences, lengths)
        elif len(lengths):
            encoded = encode_whole(self._processor, slice_sentences(*sentences))
            lengths[:] = [len(ids) for ids in encoded]
            yield np.concatenate(encoded)


def make_chunk_model(
    model: bytes, settings: proto.ModelSettings, processor: sentencepiece.SentencePieceProcessor, pieces: list[str]
) -> ChunkModel:
    """Raises ValueError if the model's table of replacements is damaged."""
    trie = _make_trie(settings, pieces, processor.unk_id())
    # Chunks after a space get a "▁", those inside a word do not. The model itself does one of both.
    changed = proto.change_prefix(model, add_dummy_prefix=not settings.add_dummy_prefix)
    other = sentencepiece.SentencePieceProcessor(model_proto=changed)
    outer, inner = (processor, other) if settings.add_dummy_prefix else (other, processor)

    def learn(texts: list[bytes], is_inner: bool) -> ChunkIds:
        chosen = inner if is_inner else outer
        if settings.model_type != proto.UNIGRAM:
            found = encode_whole(chosen, texts)
            lengths = np.array([len(ids) for ids in found], np.int64)
            return ChunkIds(np.concatenate(found), lengths, np.full(len(found), CERTAIN_LIMIT))  # no scores to round
        normal = chosen.normalize(texts)
        offsets = np.cumsum([0, *map(len, normal)], dtype=np.int64)
        return encode_chunks(np.frombuffer(b"".join(normal), np.uint8), offsets, trie)

    rules = ChunkRules(
        cuts=make_cut_rule(settings, pieces), trie=trie, first_is_inner=int(not settings.add_dummy_prefix)
    )
    return ChunkModel(rules=rules, encode=partial(encode_whole, processor), learn=learn)


def encode_whole(processor: sentencepiece.SentencePieceProcessor, sentences: list[bytes]) -> list[np.ndarray]:
    """SentencePiece's own encoding: the ids (int32) of each sentence."""
    if len(sentences) < _MIN_LIST:
        return [processor.encode(sentence, out_type="numpy") for sentence in sentences]
    encoded: list[np.ndarray] = processor.encode(sentences, out_type="numpy", num_threads=1)
    return encoded


def _make_trie(settings: proto.ModelSettings, pieces: list[str], unk_id: int) -> Trie:
    """The pieces that text is matched against: all ordinary ones of a unigram model, none of a BPE model.

    SentencePiece ignores the scores of user-defined pieces. Each gets 0.1 for each of its bytes after the first, so it
    nearly always wins. (Versions before 0.2.3 computed others.)
    """
    matched = np.flatnonzero(settings.is_matched & (settings.model_type == proto.UNIGRAM))
    scores = settings.scores.astype(np.float64)
    for i in np.flatnonzero(settings.types == proto.USER_DEFINED):
        scores[i] = len(pieces[i].encode()) * 0.1 - 0.1
    return make_trie(
        [pieces[i] for i in matched.tolist()],
        matched,
        scores[matched],
        lowest_score=float(settings.scores[settings.types == proto.NORMAL].min()),
        unk_id=unk_id,
        vocab_size=len(pieces),
        byte_fallback=settings.byte_fallback,
    )
