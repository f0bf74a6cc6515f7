"""A SentencePiece model, and sentences through it into token ids.

In: sentences, as a sequence of str or as a `Text` buffer. Out: flat ids and offsets, token for token what
`SentencePieceProcessor.encode` gives.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from albert_data.config import ExampleConfig
from albert_data.errors import TokenizerError
from albert_data.rules import RULES_VERSION
from albert_data.sentences.text import Text, slice_sentences
from albert_data.storage import find_storage
from albert_data.tokenizer.buffers import GrowingArray, Sentences
from albert_data.tokenizer.chunks import SLICE_BYTES, ChunkEncoder, ChunkModel, encode_whole, make_chunk_model
from albert_data.tokenizer.cuts import explain_unsafe
from albert_data.tokenizer.cutting import PADDING
from albert_data.tokenizer.proto import read_settings
from albert_data.tokenizer.strings import read_strings
from albert_data.tokenizer.words import WordRule

MODEL_NAME = "spiece.model"
_BYTES_PER_ID = 4  # most text has more, so its ids fit the first array and are not copied
_MAX_RESERVED = 1 << 26  # ids; the sentences to come may be far shorter than those before
PAD_PIECES = ("<pad>", "[PAD]")


@dataclass(frozen=True, kw_only=True)
class Specials:
    """The ids of the special pieces. is_special: bool over the vocabulary, true for those that are never masked."""

    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    is_special: np.ndarray

    def to_dict(self) -> dict[str, int]:
        names = ("pad_id", "unk_id", "cls_id", "sep_id", "mask_id")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class Documents:
    """Token ids of whole documents.

    ids: uint16 or uint32, flat; sentence_offsets: int64, num_sentences + 1, in tokens;
    is_heading: bool, of each sentence; document_offsets: int64, num_documents + 1, in sentences; document_keys: uint64.
    languages: uint32, packed codes (albert_data.languages) of the documents; None where the build has one language.
    """

    ids: np.ndarray
    sentence_offsets: np.ndarray
    is_heading: np.ndarray
    document_offsets: np.ndarray
    document_keys: np.ndarray
    languages: np.ndarray | None = None


class Tokenizer:
    """A SentencePiece model with the special pieces that ALBERT needs.

    Threads may share one: each encodes with its own table and buffers, of 8 to 130 MB. A pickle or copy has the
    model alone.

    word_starts: bool over the vocabulary, whether a piece begins a word (see words.py for the rule over
    a sequence); ordinary_ids: uint32, the pieces that may stand in for a masked token;
    id_dtype: uint16, or uint32 for vocabularies of over 65,536 pieces.
    slow_reason: why this model's text goes through SentencePiece alone, or None if the chunk table serves it.
    """

    def __init__(self, model: bytes, name: str) -> None:
        """Raises TokenizerError if `model` is no SentencePiece model or lacks a special piece."""
        self.model, self._name = model, name
        self.sha256 = sha256(model).hexdigest()
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except (RuntimeError, OSError, UnicodeDecodeError) as error:  # its message may quote bytes that are not UTF-8
            raise TokenizerError(f"{name} is no SentencePiece model; train one with `albert-data vocab`") from error
        self.vocab_size: int = self._processor.get_piece_size()
        self.pieces = self._read_pieces()
        self.specials = self._find_specials(name)
        try:
            self._settings = read_settings(model)
        except ValueError as error:
            raise TokenizerError(f"{name} is damaged: {error}") from error
        self.slow_reason = explain_unsafe(self._settings, self.pieces)
        self.id_dtype: type[Any] = np.uint16 if self.vocab_size <= 1 << 16 else np.uint32
        self._of_thread = threading.local()
        self._word_rules: dict[int, WordRule] = {}

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[bytes, str]]:
        return type(self), (self.model, self._name)

    def _read_pieces(self) -> list[str]:
        try:
            pieces: list[str] = self._processor.id_to_piece(list(range(self.vocab_size)))
        except UnicodeDecodeError as error:
            raise TokenizerError(
                f"{self._name} is damaged: the piece {error.object!r} is not valid UTF-8; copy or train it again"
            ) from error
        return pieces

    def _find_specials(self, name: str) -> Specials:
        index = {piece: i for i, piece in enumerate(self.pieces)}
        found = {piece: index.get(piece) for piece in ("[CLS]", "[SEP]", "[MASK]")}
        pad = self._processor.pad_id()
        found["<pad>"] = pad if pad >= 0 else next((index[p] for p in PAD_PIECES if p in index), None)
        if missing := [piece for piece, i in found.items() if i is None]:
            raise TokenizerError(
                f"{name} lacks {', '.join(missing)}; ALBERT needs [CLS], [SEP], [MASK] and <pad>: "
                "train a model with `albert-data vocab`, or with SentencePiece's --control_symbols and --pad_id"
            )
        ids = {piece: i for piece, i in found.items() if i is not None}
        is_special = np.zeros(self.vocab_size, bool)
        is_special[list(ids.values())] = True
        return Specials(
            pad_id=ids["<pad>"],
            unk_id=self._processor.unk_id(),
            cls_id=ids["[CLS]"],
            sep_id=ids["[SEP]"],
            mask_id=ids["[MASK]"],
            is_special=is_special,
        )

    def prepare(self) -> None:
        """Make what encoding needs besides the model, if it is not made yet.

        Processes forked later share its constant part, and each has its own copy of the chunk table.
        Raises TokenizerError if the model's table of replacements is damaged.
        """
        _ = self._chunks

    def compile_rare(self) -> None:
        """Compile the kernels that the encoding of a few words does not compile. Raises what `prepare` raises."""
        if (chunks := self._chunks) is not None:
            chunks.compile_rare()

    @cached_property
    def _chunk_model(self) -> ChunkModel | None:
        if self.slow_reason is not None:
            return None
        try:
            return make_chunk_model(self.model, self._settings, self._processor, self.pieces)
        except ValueError as error:
            raise TokenizerError(f"{self._name} is damaged: {error}") from error

    @property
    def _chunks(self) -> ChunkEncoder | None:
        """The encoder of this thread, made on first use."""
        found: ChunkEncoder | None = getattr(self._of_thread, "chunks", None)
        if found is None and self._chunk_model is not None:
            found = self._of_thread.chunks = ChunkEncoder(self._chunk_model)
        return found

    @property
    def pad_id(self) -> int:
        return self.specials.pad_id

    @property
    def unk_id(self) -> int:
        return self.specials.unk_id

    @property
    def cls_id(self) -> int:
        return self.specials.cls_id

    @property
    def sep_id(self) -> int:
        return self.specials.sep_id

    @property
    def mask_id(self) -> int:
        return self.specials.mask_id

    def word_rule(self, rules_version: int = RULES_VERSION) -> WordRule:
        if rules_version not in self._word_rules:
            self._word_rules[rules_version] = WordRule.from_pieces(self.pieces, rules_version)
        return self._word_rules[rules_version]

    def choose_words(self, config: ExampleConfig, rules_version: int = RULES_VERSION) -> WordRule:
        """The rule of words for a build with these settings and this version of the rules."""
        return self.word_rule(rules_version) if config.masks_words else WordRule.every_piece(self.vocab_size)

    @property
    def word_starts(self) -> np.ndarray:
        starts: np.ndarray = self.word_rule().starts > 0
        return starts

    @cached_property
    def ordinary_ids(self) -> np.ndarray:
        return np.flatnonzero(self._settings.is_matched & ~self.specials.is_special).astype(np.uint32)

    def encode(self, texts: Sequence[str] | Text) -> tuple[np.ndarray, np.ndarray]:
        """Tokenise sentences: flat ids (id_dtype) and offsets (int64, one more than sentences).

        Raises TypeError for a single string and for a text that is no string, UnicodeEncodeError for a surrogate.
        """
        if isinstance(texts, (str, bytes)):
            raise TypeError(f"encode takes a sequence of str, not one {type(texts).__name__}; give it as [text]")
        if not isinstance(texts, Text):
            texts = texts if type(texts) is list else list(texts)
        num_sentences = len(texts.sentence_begins) if isinstance(texts, Text) else len(texts)
        ids, offsets, done = GrowingArray(self.id_dtype), np.zeros(num_sentences + 1, np.int64), 0
        for sentences in _read_batches(texts, num_sentences):
            ids.reserve(len(ids) + len(sentences.utf8) // _BYTES_PER_ID)
            end = done + len(sentences.begins)
            for part in self._encode_batch(sentences, offsets[1 + done : 1 + end]):
                ids.append(part)
            done = end
            if done < num_sentences:  # as many ids a sentence as so far, and an eighth more
                ids.reserve(min(len(ids) * num_sentences // done * 9 // 8, _MAX_RESERVED))
        return ids.take(), np.cumsum(offsets, out=offsets)

    def _encode_batch(self, sentences: Sentences, lengths: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the ids of all sentences, part by part, and fill in how many each has."""
        if (chunks := self._chunks) is not None:
            yield from chunks.encode(sentences, lengths)
        elif len(lengths):
            encoded = encode_whole(self._processor, slice_sentences(*sentences))
            lengths[:] = [len(ids) for ids in encoded]
            yield np.concatenate(encoded)

    def encode_documents(self, text: Text) -> Documents:
        """Tokenise whole documents. A sentence may have no tokens."""
        ids, offsets = self.encode(text)
        return Documents(
            ids=ids,
            sentence_offsets=offsets,
            is_heading=text.is_heading,
            document_offsets=text.document_offsets,
            document_keys=text.document_keys,
            languages=text.languages,
        )

    def normalise(self, text: str) -> str:
        """Text as the model sees it: normalised by its rules, spaces as "▁"."""
        return str(self._processor.normalize(text))

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of a sequence of ids, without special pieces."""
        return str(self._processor.decode([int(i) for i in ids]))


def _read_batches(texts: list[str] | Text, num_sentences: int) -> Iterator[Sentences]:
    if isinstance(texts, Text):
        yield Sentences(texts.utf8, texts.sentence_begins, texts.sentence_ends)
        return
    for utf8, offsets in read_strings(texts, num_sentences, SLICE_BYTES, PADDING):
        yield Sentences(utf8, offsets[:-1], offsets[1:])


def load_tokenizer(path: str | Path, *, to_encode: bool = True) -> Tokenizer:
    """Load a SentencePiece model from a file, or from a folder that holds `spiece.model` or one *.model.

    to_encode: prepare it for encoding now; if not, the first encoding does it.
    Raises TokenizerError with the reason.
    """
    find_storage(path)
    path = Path(path)
    if path.is_dir():
        path = _find_model(path)
    try:
        model = path.read_bytes()
    except OSError as error:
        raise TokenizerError(f"tokenizer {path} can't be read: {error.strerror}") from error
    tokenizer = Tokenizer(model, f"tokenizer {path}")
    if to_encode:
        tokenizer.prepare()
    return tokenizer


def _find_model(folder: Path) -> Path:
    if (folder / MODEL_NAME).is_file():
        return folder / MODEL_NAME
    models = sorted(folder.glob("*.model"))
    if len(models) != 1:
        raise TokenizerError(
            f"tokenizer folder {folder} holds {len(models)} *.model files; "
            f"it needs exactly one, or one named {MODEL_NAME}; or pass the path of a file"
        )
    return models[0]
