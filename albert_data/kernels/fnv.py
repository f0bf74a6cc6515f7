"""FNV-1a, a 64-bit hash of bytes (Fowler, Noll, Vo): each byte is XORed in, then the state is multiplied by a prime.

It takes one byte at a time, so a kernel can hash while it walks over a text, and leave bytes out or change their case.
"""

from __future__ import annotations

from albert_data.kernels import U64, helper

FNV_BASIS, FNV_PRIME = U64(0xCBF29CE484222325), U64(0x100000001B3)


@helper
def add_byte(state: U64, byte: int) -> U64:
    """The state after one more byte. The first state is FNV_BASIS, the last is the hash."""
    return (state ^ U64(byte)) * FNV_PRIME  # uint64 wraps around: modulo 2**64, as FNV has it


def hash_bytes(data: bytes) -> int:
    """The hash of `data`, computed in Python, for tables that kernels look up."""
    state = int(FNV_BASIS)
    for byte in data:
        state = (state ^ byte) * int(FNV_PRIME) % 2**64
    return state
