"""What Google's ALBERT code does to pieces after SentencePiece: `--normalization albert-v2`.

In: the ids of sentences. Out: those of `encode_pieces`, whose rule is: a piece that ends with a digit and a comma is
divided. The part before the comma is encoded again, without its "▁"; if the piece began with no "▁", the one that the
new pieces begin with is dropped. Then the comma is a piece of its own.

So each such piece always becomes the same ids, and a table has them. The rule also reads the text of unknown pieces,
which ids do not have. That matters only if the text of unknown characters can end with a digit and a comma, or spell a
piece that is not matched against text. Then sentences with unknown characters go through the rule in Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import sentencepiece

from albert_data.data import slice_sentences
from albert_data.kernels import kernel
from albert_data.tokenizer.albert_text import digits
from albert_data.tokenizer.buffers import Sentences
from albert_data.tokenizer.words import SPACE

_COMMA = ","


@dataclass(frozen=True, kw_only=True)
class CommaRule:
    """ids: int64, what pieces become; offsets: int64, vocab_size + 1, piece i becomes ids[offsets[i] : offsets[i + 1]].

    is_divided: bool, of each piece; reads_unknown: whether the text of unknown characters may matter.
    """

    processor: sentencepiece.SentencePieceProcessor
    ids: np.ndarray
    offsets: np.ndarray
    is_divided: np.ndarray
    reads_unknown: bool

    def apply(self, sentences: Sentences, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Apply the rule to the ids of all sentences; fills in the new lengths."""
        if self.reads_unknown and (ids == self.processor.unk_id()).any():
            return self._apply_slowly(sentences, ids, lengths)
        if not self.is_divided[ids].any():
            return ids
        out = np.empty(int(np.diff(self.offsets)[ids].sum()), ids.dtype)
        divide_pieces(ids, lengths, self.ids, self.offsets, out)
        return out

    def compile_rare(self, id_dtype: type[Any]) -> None:
        """Compile the kernel, which few words do not need, by an empty call."""
        no_ids = np.zeros(0, id_dtype)
        divide_pieces(no_ids, np.zeros(0, np.int64), self.ids, self.offsets, no_ids)

    def _apply_slowly(self, sentences: Sentences, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """As `apply`, a sentence at a time, those with unknown characters by their text."""
        texts, found = slice_sentences(*sentences), [np.zeros(0, ids.dtype)]
        for i, part in enumerate(np.split(ids, np.cumsum(lengths)[:-1])):
            if (part == self.processor.unk_id()).any():
                pieces = divide_all(self.processor, self.processor.encode(texts[i].decode(), out_type=str))
                found.append(np.array([self.processor.piece_to_id(piece) for piece in pieces], ids.dtype))
            else:
                found.append(
                    np.concatenate([found[0], *(self.ids[self.offsets[j] : self.offsets[j + 1]] for j in part)])
                )
            lengths[i] = len(found[-1])
        return np.concatenate(found).astype(ids.dtype)


def make_comma_rule(
    processor: sentencepiece.SentencePieceProcessor, pieces: list[str], is_matched: np.ndarray
) -> CommaRule:
    """is_matched: bool, which pieces are matched against text."""
    found = {
        i: [processor.piece_to_id(piece) for piece in divide(processor, pieces[i])]
        for i in np.flatnonzero(is_matched).tolist()
        if ends_with_comma(pieces[i])
    }
    parts = [found.get(i, [i]) for i in range(len(pieces))]
    known = {pieces[i] for i in np.flatnonzero(is_matched) if len(pieces[i]) == 1}
    unmatched = [pieces[i] for i in np.flatnonzero(~is_matched) if i != processor.unk_id()]
    return CommaRule(
        processor=processor,
        ids=np.array([i for part in parts for i in part], np.int64),
        offsets=np.cumsum([0, *map(len, parts)]),
        is_divided=np.array([i in found for i in range(len(pieces))]),
        reads_unknown=any(known.isdisjoint(piece) for piece in (_COMMA, *unmatched)),
    )


def ends_with_comma(piece: str) -> bool:
    """Whether the rule divides a piece: a digit, then a comma at its end."""
    return piece.endswith(_COMMA) and len(piece) > 1 and ord(piece[-2]) in digits()


def divide_all(processor: sentencepiece.SentencePieceProcessor, pieces: list[str]) -> list[str]:
    parts = (divide(processor, piece) if ends_with_comma(piece) else [piece] for piece in pieces)
    return [part for each in parts for part in each]


def divide(processor: sentencepiece.SentencePieceProcessor, piece: str) -> list[str]:
    """The pieces that a piece becomes. One without a digit left, after normalisation, becomes the comma alone."""
    parts = list(processor.encode(piece[:-1].replace(SPACE, ""), out_type=str))
    if parts and parts[0].startswith(SPACE) and not piece.startswith(SPACE):
        first = parts[0].removeprefix(SPACE)
        parts = [first, *parts[1:]] if first else parts[1:]
    return [*parts, _COMMA]


@kernel
def divide_pieces(
    ids: np.ndarray, lengths: np.ndarray, parts: np.ndarray, offsets: np.ndarray, out: np.ndarray
) -> None:
    """Write what each id becomes, and fill in the new lengths."""
    at, filled = 0, 0
    for sentence in range(len(lengths)):
        begin = filled
        for _ in range(lengths[sentence]):
            piece = ids[at]
            for part in range(offsets[piece], offsets[piece + 1]):
                out[filled] = parts[part]
                filled += 1
            at += 1
        lengths[sentence] = filled - begin
