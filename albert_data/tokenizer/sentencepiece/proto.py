"""Read the settings that decide about cuts from a serialised SentencePiece model, and change some of them.

The format is a protocol buffer; only these fields of sentencepiece_model.proto are read, so no library is needed:

    ModelProto        pieces 1, trainer_spec 2, normalizer_spec 3
    SentencePiece     piece 1, score 2, type 3
    TrainerSpec       model_type 3, treat_whitespace_as_suffix 24, byte_fallback 35
    NormalizerSpec    precompiled_charsmap 2, add_dummy_prefix 3, remove_extra_whitespaces 4, escape_whitespaces 5
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from struct import unpack_from

import numpy as np

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# Tags: the number of a field << 3 | its wire type.
_PIECE, _TRAINER, _NORMALIZER = (field << 3 | _BYTES for field in (1, 2, 3))
_NAME, _SCORE, _TYPE = 1 << 3 | _BYTES, 2 << 3 | _FIXED32, 3 << 3 | _VARINT
_MODEL_TYPE, _WHITESPACE_AS_SUFFIX, _BYTE_FALLBACK = (field << 3 | _VARINT for field in (3, 24, 35))
_CHARSMAP = 2 << 3 | _BYTES
_DUMMY_PREFIX, _EXTRA_WHITESPACES, _ESCAPE_WHITESPACES = (field << 3 | _VARINT for field in (3, 4, 5))
UNIGRAM, BPE = 1, 2
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The settings of a model that decide where its text can be cut."""

    model_type: int
    types: np.ndarray  # uint8 [vocabulary]
    scores: np.ndarray  # float32 [vocabulary]
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


@lru_cache(maxsize=2)  # a tenth of a second for 30,000 pieces, at loading and at publishing
def read_settings(model: bytes) -> ModelSettings:
    """Raises ValueError if the bytes are no protocol buffer."""
    types, scores, later = list[int](), list[float](), {_TRAINER: dict[int, int](), _NORMALIZER: dict[int, int]()}
    charsmap = b""
    for tag, begin, end in _read_fields(model, 0, len(model)):
        if tag == _PIECE:
            piece_type, score = NORMAL, 0.0
            for field, value, field_end in _read_fields(model, begin, end):
                if field == _TYPE:
                    piece_type = value & 0xFF
                elif field == _SCORE:
                    (score,) = unpack_from("<f", model, field_end - 4)
            types.append(piece_type)
            scores.append(score)
        elif tag in later:
            for field, value, field_end in _read_fields(model, begin, end):
                later[tag][field] = value
                if (tag, field) == (_NORMALIZER, _CHARSMAP):
                    charsmap = model[value:field_end]
    trainer, normalizer = later[_TRAINER], later[_NORMALIZER]
    return ModelSettings(
        model_type=trainer.get(_MODEL_TYPE, UNIGRAM),
        types=np.array(types, np.uint8),
        scores=np.array(scores, np.float32),
        byte_fallback=bool(trainer.get(_BYTE_FALLBACK, 0)),
        treat_whitespace_as_suffix=bool(trainer.get(_WHITESPACE_AS_SUFFIX, 0)),
        charsmap=charsmap,
        add_dummy_prefix=bool(normalizer.get(_DUMMY_PREFIX, 1)),
        remove_extra_whitespaces=bool(normalizer.get(_EXTRA_WHITESPACES, 1)),
        escape_whitespaces=bool(normalizer.get(_ESCAPE_WHITESPACES, 1)),
    )


def change_prefix(model: bytes, *, add_dummy_prefix: bool) -> bytes:
    """The model with or without it: if a protocol buffer holds a message twice, readers take the later fields."""
    later = bytes([_DUMMY_PREFIX, add_dummy_prefix])
    return model + bytes([_NORMALIZER, len(later)]) + later


def hide_pieces(model: bytes, ids: Iterable[int]) -> bytes:
    """The model with these pieces as control symbols, which text never gives."""
    return _add_fields(model, dict.fromkeys(ids, bytes([_TYPE, CONTROL])))


def name_pieces(model: bytes, names: Mapping[int, str]) -> bytes:
    """The model with other names for these pieces (ids), each under 128 bytes."""
    return _add_fields(model, {i: bytes([_NAME, len(name)]) + name.encode() for i, name in names.items()})


def _add_fields(model: bytes, later: Mapping[int, bytes]) -> bytes:
    """The model with more fields at the end of some pieces: of a field that is there twice, readers take the later."""
    parts, number, at = list[bytes](), 0, 0
    for tag, begin, end in _read_fields(model, 0, len(model)):
        if tag == _PIECE and number in later:
            body = model[begin:end] + later[number]
            parts.append(bytes([_PIECE]) + _to_varint(len(body)) + body)
        else:
            parts.append(model[at:end])
        number, at = number + (tag == _PIECE), end
    return b"".join(parts)


def _to_varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + _to_varint(value >> 7) if value > 0x7F else bytes([value])


def _read_fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The tag of each field of a message, its number or where its bytes begin, and where it ends."""
    while at < end:
        tag, at = _read_varint(data, at, end)
        value, wire_type = at, tag & 7
        if wire_type == _VARINT:
            value, at = _read_varint(data, at, end)
        elif wire_type == _BYTES:  # a length, then so many bytes
            size, value = _read_varint(data, at, end)
            at = value + size
        elif wire_type in (_FIXED64, _FIXED32):
            at += 8 if wire_type == _FIXED64 else 4
        else:
            raise ValueError("the protocol buffer holds a field of an unknown wire type")
        if at > end:
            raise ValueError("the protocol buffer is cut short")
        yield tag, value, at


def _read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number in groups of seven bits, the lowest first; bit 7 of a byte says that another follows."""
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift  # 0xAC 0x02 is 0x2C | 2 << 7 = 300
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("the protocol buffer is cut short")
