"""Read what the fast path must know from a serialised SentencePiece model, and change two settings of it.

The format is a protocol buffer; only the few fields below are read, so no protobuf library is needed.
Fields of sentencepiece_model.proto: ModelProto.pieces 1, .trainer_spec 2, .normalizer_spec 3; SentencePiece.type 3;
TrainerSpec.model_type 3, .byte_fallback 35;
NormalizerSpec.precompiled_charsmap 2, .add_dummy_prefix 3, .remove_extra_whitespaces 4,
.escape_whitespaces 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
UNIGRAM, BPE = 1, 2
_USER_DEFINED = 4


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The settings of a model that decide how its text falls apart."""

    model_type: int
    has_user_defined: bool
    byte_fallback: bool
    charsmap: bytes
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    escape_whitespaces: bool


def read_settings(model: bytes) -> ModelSettings:
    """Raises ValueError where the bytes are no protocol buffer."""
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    has_user_defined = False
    for field, value in _read_fields(model):
        if not isinstance(value, bytes):
            continue
        if field in (2, 3):
            (trainer if field == 2 else normalizer).update(_read_fields(value))
        elif field == 1 and bytes([3 << 3, _USER_DEFINED]) in value:
            has_user_defined |= dict(_read_fields(value)).get(3) == _USER_DEFINED
    charsmap = normalizer.get(2, b"")
    return ModelSettings(
        model_type=_number(trainer.get(3, UNIGRAM)),
        has_user_defined=has_user_defined,
        byte_fallback=bool(_number(trainer.get(35, 0))),
        charsmap=charsmap if isinstance(charsmap, bytes) else b"",
        add_dummy_prefix=bool(_number(normalizer.get(3, 1))),
        remove_extra_whitespaces=bool(_number(normalizer.get(4, 1))),
        escape_whitespaces=bool(_number(normalizer.get(5, 1))),
    )


def change_settings(model: bytes, *, add_dummy_prefix: bool, remove_extra_whitespaces: bool) -> bytes:
    """The model with other settings: of a message given twice, a protocol buffer takes the later fields."""
    later = bytes([3 << 3, add_dummy_prefix, 4 << 3, remove_extra_whitespaces])
    return model + bytes([3 << 3 | _BYTES, len(later)]) + later


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("a number is needed, found bytes")
    return value


def _read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _read_varint(data, at)
            yield tag >> 3, value
        elif kind == _BYTES:
            size, at = _read_varint(data, at)
            yield tag >> 3, data[at : at + size]
            at += size
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind} is none of a protocol buffer")


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("the protocol buffer is cut short")
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at
