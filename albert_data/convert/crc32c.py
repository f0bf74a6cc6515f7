"""CRC-32C (Castagnoli), the checksum of TFRecord files, for kernels: 16 bytes a step, by tables ("slicing-by-16")."""

from __future__ import annotations

import numpy as np

from albert_data.kernels import U64, Pointer, helper, item, load_u64

_POLYNOMIAL = 0x82F63B78  # bits reversed
_NUM_TABLES = 16
_MASK_DELTA = 0xA282EAD8  # TFRecord's "masked" checksum: tensorflow/core/lib/hash/crc32c.h


def make_tables() -> np.ndarray:
    """Table k of 16 at [256 * k, 256 * k + 256): the checksum of a byte that k zero bytes follow. uint32."""
    tables = np.zeros((_NUM_TABLES, 256), np.uint32)
    tables[0] = np.arange(256)
    for _ in range(8):
        tables[0] = (tables[0] >> 1) ^ np.where(tables[0] & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    for k in range(1, _NUM_TABLES):
        tables[k] = (tables[k - 1] >> 8) ^ tables[0][tables[k - 1] & 255]
    return tables.ravel()


@helper
def look_up(tables: Pointer, k: int, bits: U64) -> U64:
    """The entry of table k for the lowest byte of `bits`."""
    return U64(item(tables, 256 * k + (bits & U64(255))))


@helper
def masked_crc(tables: Pointer, data: Pointer, at: int, count: int) -> U64:
    """The masked checksum of `count` bytes from item `at` on. tables: what `make_tables` made; data: uint8."""
    crc, end = U64(0xFFFFFFFF), at + count
    while at + 16 <= end:
        low, high = load_u64(data, at) ^ crc, load_u64(data, at + 8)
        crc = U64(0)
        for i in range(8):
            crc ^= look_up(tables, 15 - i, low >> U64(8 * i)) ^ look_up(tables, 7 - i, high >> U64(8 * i))
        at += 16
    while at < end:
        crc = look_up(tables, 0, crc ^ U64(item(data, at))) ^ (crc >> U64(8))
        at += 1
    crc ^= U64(0xFFFFFFFF)
    return (((crc >> U64(15)) | (crc << U64(17))) + U64(_MASK_DELTA)) & U64(0xFFFFFFFF)
