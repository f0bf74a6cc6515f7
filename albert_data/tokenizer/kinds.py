"""What each kind of tokenizer provides: SentencePiece models, WordPiece vocabularies, other tokenizers of `tokenizers`.

`Tokenizer` (model.py) is the same for all kinds, and asks its kind for what differs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence, Sized
from typing import Any, Protocol

import numpy as np

from albert_data.data import Specials
from albert_data.tokenizer.buffers import Sentences


class TextEncoder(Protocol):
    """Encodes for one thread: it may have scratch buffers."""

    def encode(self, sentences: Sentences, lengths: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the ids of all sentences, part by part. An array is valid until the next one is asked for.

        lengths: int64 [S], filled in with the number of ids of each sentence, before its ids are yielded.
        """
        ...


class Kind(ABC):
    """A kind of tokenizer, with its model loaded. Threads share one."""

    file_name: str  # of the model in a folder
    library: str  # the name of the library whose ids it gives
    packages: tuple[str, ...] = ()  # libraries that affect the ids, beside those of every build, as pip names them
    pieces: list[str]  # the vocabulary as the library has it
    texts: list[str]  # what each piece is in text, with "▁" for a space before or after it
    specials: Specials
    is_ordinary: np.ndarray  # bool [vocabulary], the pieces that may stand in for a masked token
    has_prefix: bool  # whether the first word of a text has the pieces that it has after a space, and shows its begin
    slow_reason: str | None  # why all text goes through the library, or None if the chunk table serves it
    note: str | None = None  # what was decided that is not in the model, for the user; None for nothing

    @property
    def reads_spaces(self) -> bool:
        """Whether a space is a part of the word after it, so sentences of a document are encoded with theirs."""
        return False

    @abstractmethod
    def make_encoder(self) -> TextEncoder:
        """An encoder for one thread. The constant part of what it needs is made once, and forked processes share it."""

    @abstractmethod
    def normalise(self, text: str) -> str:
        """Text as the model sees it, spaces as "▁"."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """The text of a sequence of ids, without special pieces."""


def id_dtype_of(pieces: Sized) -> type[Any]:
    """The type of the ids of a vocabulary."""
    return np.uint16 if len(pieces) <= 1 << 16 else np.uint32
