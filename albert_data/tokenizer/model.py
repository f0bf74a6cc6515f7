"""A tokenizer: sentences into token ids, and back.

In: sentences, as a sequence of str or as a `Text` buffer. Out: flat ids and offsets, token for token what the library
of the tokenizer gives: SentencePiece, or `tokenizers` for what is saved as vocab.txt or tokenizer.json.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np

from albert_data.config import ExampleConfig
from albert_data.data import Documents, Text
from albert_data.errors import TokenizerError
from albert_data.storage import FOLDER, find_kind, find_storage, make_path
from albert_data.storage.files import read_bytes
from albert_data.tokenizer import tokenizer_json
from albert_data.tokenizer.buffers import Sentences, join_strings
from albert_data.tokenizer.byte_level import ByteLevelKind, explain_slow
from albert_data.tokenizer.kinds import Kind, TextEncoder, id_dtype_of
from albert_data.tokenizer.lexicon import NO_WORDS, Lexicon, match_words, parse_words, read_words
from albert_data.tokenizer.library import LibraryKind, include_spaces
from albert_data.tokenizer.sentencepiece.kind import MODEL_NAME, SentencePieceKind, name_specials
from albert_data.tokenizer.tokenizer_json import JSON_NAME, ROLES, VOCAB_NAME
from albert_data.tokenizer.wordpiece import WordPieceKind
from albert_data.tokenizer.words import WordRule, check_marks

__all__ = ["MODEL_NAME", "MODEL_NAMES", "Tokenizer", "find_model", "load_tokenizer"]

MODEL_NAMES = (MODEL_NAME, JSON_NAME)  # of the one file that shards and runs keep of their tokenizer
_MAX_MODEL_BYTES = 1 << 27  # the largest published ones have 60 MB


class Tokenizer:
    """A tokenizer with the special pieces that ALBERT needs.

    Threads may share one: each encodes with its own table and buffers, of 8 to 130 MB. A pickle or copy has the
    model alone.

    pieces: the vocabulary
    piece_texts: what each piece is in text, with "▁" for a space before it
    specials: the ids of the special pieces; pad_id, unk_id, cls_id, sep_id and mask_id are those
    ordinary_ids: uint32, the pieces that may stand in for a masked token
    id_dtype: uint16, or uint32 for vocabularies of over 65,536 pieces
    sha256, words_sha256: of the model and of the word list, in hexadecimal
    normalization: "none", or "albert-v2" (albert.py)
    words: the content of a word list (lexicon.py), or None. It changes which pieces are one word, and no id
    note: what was decided when it was loaded and is not in the file, for the user; None for nothing
    file_name, library, packages, has_prefix, slow_reason: see `Kind`
    """

    def __init__(self, model: bytes, name: str, normalization: str = "none", words: bytes | None = None) -> None:
        """model: what a spiece.model or tokenizer.json holds.

        Raises TokenizerError if it is no such model or lacks a special piece.
        """
        kind = self._kind = _make_kind(model, name, normalization)
        self.model, self._name, self.normalization, self.note = model, name, normalization, kind.note
        self.sha256, self.words = sha256(model).hexdigest(), words
        self.words_sha256 = None if words is None else sha256(words).hexdigest()
        self.file_name, self.library, self.packages = kind.file_name, kind.library, kind.packages
        self.has_prefix, self.slow_reason = kind.has_prefix, kind.slow_reason
        self.pieces, self.piece_texts, specials = kind.pieces, kind.texts, kind.specials
        self.vocab_size, self.id_dtype, self.specials = len(self.pieces), id_dtype_of(self.pieces), specials
        self.pad_id, self.unk_id, self.mask_id = specials.pad_id, specials.unk_id, specials.mask_id
        self.cls_id, self.sep_id = specials.cls_id, specials.sep_id
        self.ordinary_ids = np.flatnonzero(kind.is_ordinary).astype(np.uint32)
        self._of_thread = threading.local()

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[bytes, str, str, bytes | None]]:
        return type(self), (self.model, self._name, self.normalization, self.words)

    def prepare(self) -> None:
        """Make what encoding needs besides the model, if it is not made yet.

        Processes forked later share its constant part, and each has its own copy of the chunk table.
        Raises TokenizerError if the model's table of replacements is damaged, its library is not installed, or no word
        of the word list can be joined.
        """
        _ = self._encoder, self._lexicon

    @property
    def _encoder(self) -> TextEncoder:
        """The encoder of this thread, made on first use."""
        found: TextEncoder | None = getattr(self._of_thread, "encoder", None)
        if found is None:
            found = self._of_thread.encoder = self._kind.make_encoder()
        return found

    def word_rule(self, config: ExampleConfig | None = None) -> WordRule:
        """How pieces form words; for a build with --pieces, where each piece is one. Raises as `check_words` does."""
        if config is not None and not config.masks_words:
            return WordRule.every_piece(self.vocab_size)
        if config is not None:
            self.check_words()
        return self._word_rule

    def check_words(self) -> None:
        """Raise TokenizerError if its pieces do not show where words begin, as masks of whole words need it."""
        check_marks(self.piece_texts, self._name)

    @cached_property
    def _word_rule(self) -> WordRule:
        return WordRule.from_pieces(self.piece_texts, self._lexicon)

    @cached_property
    def _lexicon(self) -> Lexicon | None:
        if self.words is None:
            return None
        return match_words(self.piece_texts, parse_words(self.words, "the word list"), self.normalise)

    def encode(self, texts: Sequence[str] | Text) -> tuple[np.ndarray, np.ndarray]:
        """Tokenise sentences: flat ids (id_dtype) and offsets (int64, one more than sentences).

        Raises TypeError for a single string and for a text that is no string, UnicodeEncodeError for a surrogate.
        """
        if isinstance(texts, (str, bytes)):
            raise TypeError(f"encode takes a sequence of str, not one {type(texts).__name__}; give it as [text]")
        sentences = Sentences.of(texts) if isinstance(texts, Text) else join_strings(texts)
        offsets = np.zeros(len(sentences.begins) + 1, np.int64)
        # Copies: the encoder reuses its array.
        parts = [part.astype(self.id_dtype) for part in self._encoder.encode(sentences, offsets[1:])]
        return np.concatenate([np.zeros(0, self.id_dtype), *parts]), np.cumsum(offsets, out=offsets)

    def encode_documents(self, text: Text) -> Documents:
        """Tokenise whole documents. A sentence may have no tokens; see `include_spaces` for the space before it."""
        text = include_spaces(text) if self._kind.reads_spaces else text
        ids, offsets = self.encode(text)
        return Documents(
            ids=ids,
            sentence_offsets=offsets,
            is_heading=text.is_heading,
            document_offsets=text.document_offsets,
            columns=text.columns,
        )

    def normalise(self, text: str) -> str:
        """Text as the model sees it: normalised by its rules, spaces as "▁"."""
        return self._kind.normalise(text)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of a sequence of ids, without special pieces."""
        return self._kind.decode([int(i) for i in ids])


def _make_kind(model: bytes, name: str, normalization: str) -> Kind:
    if not tokenizer_json.is_json(model, name):
        return SentencePieceKind(model, name, normalization)
    if normalization != "none":
        raise TokenizerError(
            f"{name} has rules of its own for case and accents; --normalization {normalization} is for SentencePiece "
            "models, so leave it out"
        )
    values = tokenizer_json.parse_json(model, name)
    if tokenizer_json.is_wordpiece(values):
        return WordPieceKind(values, name)
    slow_reason = explain_slow(values)
    return (LibraryKind if slow_reason else ByteLevelKind)(values, name, slow_reason)


def load_tokenizer(
    path: str | Path,
    *,
    normalization: str = "none",
    words: str | os.PathLike[str] = NO_WORDS,
    specials: Mapping[str, str] | None = None,
    to_encode: bool = True,
) -> Tokenizer:
    """Load a SentencePiece model, a tokenizer.json or a vocab.txt from a file, or from a folder that holds one.

    The arguments are those of `library.tokenizers.load_tokenizer`. A link to a regular file is followed; a FIFO or a
    device is refused. Raises TokenizerError with the reason.
    """
    path = make_path(path)
    if find_kind(path) == FOLDER:
        path = find_model(path)
    try:
        model = read_bytes(path, _MAX_MODEL_BYTES)
    except OSError as error:
        raise TokenizerError(f"tokenizer {path} can't be read: {error.strerror}") from error
    if path.suffix == ".txt":
        model = tokenizer_json.read_vocab(path, model)
    if specials:
        rename = tokenizer_json.name_specials if tokenizer_json.is_json(model, path.name) else name_specials
        model = rename(model, specials, f"tokenizer {path}")
    tokenizer = Tokenizer(model, f"tokenizer {path}", normalization, read_words(words))
    for role in specials or ():
        if (piece := tokenizer.pieces[tokenizer.specials.to_dict()[f"{role}_id"]]) != ROLES[role][0]:
            raise TokenizerError(f"tokenizer {path} itself has {piece} as {role}, so leave out --special {role}")
    if to_encode:
        tokenizer.prepare()
    return tokenizer


def find_model(folder: Path) -> Path:
    """The tokenizer's file in a folder: spiece.model, the only *.model, tokenizer.json or vocab.txt.

    Raises TokenizerError if there is none, or two *.model.
    """
    names = find_storage(folder).list_names(folder)
    if MODEL_NAME in names:
        return folder / MODEL_NAME
    models = [folder / name for name in sorted(names) if name.endswith(".model")]
    models = models or [folder / name for name in (JSON_NAME, VOCAB_NAME) if name in names][:1]
    if len(models) != 1:
        raise TokenizerError(
            f"tokenizer folder {folder} holds {len(models)} *.model files; it needs exactly one, or one named "
            f"{MODEL_NAME}, or a {JSON_NAME} or {VOCAB_NAME}; or pass the path of a file"
        )
    return models[0]
