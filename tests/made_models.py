"""SentencePiece models made of given pieces, of any kind and score, without training."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from tempfile import NamedTemporaryFile

import numpy as np
import sentencepiece

from albert_data.tokenizer.sentencepiece.proto import NORMAL, read_settings

UNKNOWN, CONTROL, UNUSED = 2, 3, 5
SPECIAL = [
    ("<pad>", 0.0, CONTROL),
    ("<unk>", 0.0, UNKNOWN),
    *((f"[{name}]", 0.0, CONTROL) for name in ("CLS", "SEP", "MASK")),
]
Piece = tuple[str, float, int]  # its text, score and type


def make_model(
    pieces: Sequence[Piece],
    *,
    model_type: int,
    charsmap: bytes = b"",
    add_dummy_prefix: bool = True,
    remove_extra_whitespaces: bool = True,
    special_type: int = CONTROL,
) -> bytes:
    """The special pieces of ALBERT, and then these. special_type: of all but <unk>."""
    special = [(text, score, special_type if kind == CONTROL else kind) for text, score, kind in SPECIAL]
    encoded = [
        _field(1, text.encode()) + b"\x15" + np.float32(score).tobytes() + bytes([3 << 3, kind])
        for text, score, kind in [*special, *pieces]
    ]
    normalizer = _field(2, charsmap) + bytes([3 << 3, add_dummy_prefix, 4 << 3, remove_extra_whitespaces])
    return (
        b"".join(_field(1, piece) for piece in encoded) + _field(2, bytes([3 << 3, model_type])) + _field(3, normalizer)
    )


def _field(number: int, value: bytes) -> bytes:
    """A field of bytes: its number, its length in groups of seven bits, its value."""
    size, length = len(value), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + value


def compile_charsmap(rules: Mapping[str, str]) -> bytes:
    """The table of replacements of a model that replaces the given strings."""
    with NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as file:
        for key, value in rules.items():
            codes = (" ".join(f"{ord(character):X}" for character in text) for text in (key, value))
            file.write("\t".join(codes) + "\n")
        file.flush()
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(["xy z"]),
            model_writer=model,
            model_type="char",
            vocab_size=30,
            hard_vocab_limit=False,
            num_threads=1,
            minloglevel=2,
            normalization_rule_tsv=file.name,
        )
    assert (read_settings(model.getvalue()).types == NORMAL).any()
    return read_settings(model.getvalue()).charsmap
