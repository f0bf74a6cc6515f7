"""Read the settings that decide about cuts from a serialised SentencePiece model, and change some of them.

The format is a protocol buffer; only these fields of sentencepiece_model.proto are read, so no library is needed:

    ModelProto        pieces 1, trainer_spec 2, normalizer_spec 3
    SentencePiece     score 2, type 3
    TrainerSpec       model_type 3, treat_whitespace_as_suffix 24, byte_fallback 35
    NormalizerSpec    precompiled_charsmap 2, add_dummy_prefix 3, remove_extra_whitespaces 4, escape_whitespaces 5
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from albert_data.kernels import I64, helper, kernel

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# Tags: the number of a field << 3 | its wire type.
_PIECE, _TRAINER, _NORMALIZER = (field << 3 | _BYTES for field in (1, 2, 3))
_SCORE, _TYPE = 2 << 3 | _FIXED32, 3 << 3 | _VARINT
_MODEL_TYPE, _WHITESPACE_AS_SUFFIX, _BYTE_FALLBACK = (field << 3 | _VARINT for field in (3, 24, 35))
_CHARSMAP = 2 << 3 | _BYTES
_DUMMY_PREFIX, _EXTRA_WHITESPACES, _ESCAPE_WHITESPACES = (field << 3 | _VARINT for field in (3, 4, 5))
UNIGRAM, BPE = 1, 2
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The settings of a model that decide where its text can be cut.

    types: uint8 [vocabulary]
    scores: float32 [vocabulary]
    """

    model_type: int
    types: np.ndarray
    scores: np.ndarray
    byte_fallback: bool
    treat_whitespace_as_suffix: bool
    charsmap: bytes
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    escape_whitespaces: bool

    @property
    def is_matched(self) -> np.ndarray:
        """Which pieces are matched against text (bool): all except control, unknown, unused and byte pieces."""
        return np.isin(self.types, (NORMAL, USER_DEFINED))


def read_settings(model: bytes) -> ModelSettings:
    """Raises ValueError if the bytes are no protocol buffer."""
    data = np.frombuffer(model, np.uint8)
    fields = _read_message(data, 0, len(data))
    trainer, normalizer = _read_messages(data, fields, _TRAINER), _read_messages(data, fields, _NORMALIZER)
    pieces = fields[fields[:, 0] == _PIECE]
    types, score_bits = np.full(len(pieces), NORMAL, np.uint8), np.zeros(len(pieces), np.uint32)
    read_pieces(data, pieces, types, score_bits)
    begin, end = normalizer.get(_CHARSMAP, (0, 0))
    return ModelSettings(
        model_type=_number(trainer, _MODEL_TYPE, UNIGRAM),
        types=types,
        scores=score_bits.view(np.float32),
        byte_fallback=bool(_number(trainer, _BYTE_FALLBACK, 0)),
        treat_whitespace_as_suffix=bool(_number(trainer, _WHITESPACE_AS_SUFFIX, 0)),
        charsmap=model[begin:end],
        add_dummy_prefix=bool(_number(normalizer, _DUMMY_PREFIX, 1)),
        remove_extra_whitespaces=bool(_number(normalizer, _EXTRA_WHITESPACES, 1)),
        escape_whitespaces=bool(_number(normalizer, _ESCAPE_WHITESPACES, 1)),
    )


def change_settings(model: bytes, *, add_dummy_prefix: bool, remove_extra_whitespaces: bool) -> bytes:
    """The model with other settings: if a protocol buffer holds a message twice, readers take the later fields."""
    later = bytes([_DUMMY_PREFIX, add_dummy_prefix, _EXTRA_WHITESPACES, remove_extra_whitespaces])
    return model + bytes([_NORMALIZER, len(later)]) + later


def hide_pieces(model: bytes, ids: Iterable[int]) -> bytes:
    """The model with these pieces as control symbols, which text never gives. Each has under 126 bytes."""
    data = np.frombuffer(model, np.uint8)
    fields = _read_message(data, 0, len(data))
    pieces = fields[fields[:, 0] == _PIECE, 1:].tolist()
    for begin, end in sorted((pieces[i] for i in ids), reverse=True):
        body = model[begin:end] + bytes([_TYPE, CONTROL])
        model = model[: begin - 1] + bytes([len(body)]) + body + model[end:]
    return model


def _read_messages(data: np.ndarray, fields: np.ndarray, tag: int) -> dict[int, tuple[int, int]]:
    """The fields, by tag, of all messages of one tag, as `_read_message` gives them."""
    found: dict[int, tuple[int, int]] = {}
    for begin, end in fields[fields[:, 0] == tag, 1:].tolist():
        found |= {tag: (value, end) for tag, value, end in _read_message(data, begin, end).tolist()}
    return found


def _number(fields: dict[int, tuple[int, int]], tag: int, default: int) -> int:
    return fields.get(tag, (default, 0))[0]


def _read_message(data: np.ndarray, begin: int, end: int) -> np.ndarray:
    """The fields of a message, a row each (int64): tag, its number or where its bytes begin, where it ends."""
    fields = np.empty(((end - begin) // 2, 3), np.int64)  # a field has two bytes at least
    return fields[: read_fields(data, begin, end, fields)].copy()


@kernel
def read_fields(data: np.ndarray, begin: int, end: int, fields: np.ndarray) -> int:
    """Fill in the fields of a message, and return how many it has."""
    count = 0
    while begin < end:
        tag, value, begin = read_field(data, begin, end)
        fields[count, 0], fields[count, 1], fields[count, 2] = tag, value, begin
        count += 1
    return count


@kernel
def read_pieces(data: np.ndarray, fields: np.ndarray, types: np.ndarray, scores: np.ndarray) -> None:
    """Fill in the type (uint8) and the bits of the score (uint32) of each piece that gives them; fields: a row each."""
    for i in range(len(fields)):
        at, end = fields[i, 1], fields[i, 2]
        while at < end:
            tag, value, at = read_field(data, at, end)
            if tag == _TYPE:
                types[i] = value
            elif tag == _SCORE:  # a float32, lowest byte first, that ends where the next field begins
                scores[i] = I64(data[at - 1]) << 24 | I64(data[at - 2]) << 16 | I64(data[at - 3]) << 8 | data[at - 4]


@helper
def read_field(data: np.ndarray, at: int, end: int) -> tuple[int, int, int]:
    """The tag of the field at a position, its number or where its bytes begin, and where it ends."""
    tag, at = read_varint(data, at, end)
    value, wire_type = at, tag & 7
    if wire_type == _VARINT:
        value, at = read_varint(data, at, end)
    elif wire_type == _BYTES:  # a length, then so many bytes
        size, value = read_varint(data, at, end)
        at = value + size
    elif wire_type in (_FIXED64, _FIXED32):
        at += 8 if wire_type == _FIXED64 else 4
    else:
        raise ValueError("the protocol buffer holds a field of an unknown wire type")
    # Of bytes and fixed numbers `value` is a position; of a varint it is not, and read_varint has checked where that
    # ends. A size may be negative, if its varint has ten bytes.
    if not value <= at <= end and wire_type != _VARINT:
        raise ValueError("the protocol buffer is cut short")
    return tag, value, at


@helper
def read_varint(data: np.ndarray, at: int, end: int) -> tuple[int, int]:
    """A number in groups of seven bits, the lowest first; bit 7 of a byte says that another follows."""
    value = shift = 0
    while True:
        if at >= end or shift > 63:
            raise ValueError("the protocol buffer is cut short")
        byte = I64(data[at])
        value |= (byte & 0x7F) << shift  # 0xAC 0x02 is 0x2C | 2 << 7 = 300
        shift += 7
        at += 1
        if byte < 0x80:
            return value, at
