"""ASCII characters by name, and their classes, for kernels."""

from __future__ import annotations

from albert_data.kernels import helper

TAB, LINE_FEED, CARRIAGE_RETURN, SPACE = b"\t\n\r "
HYPHEN_MINUS, FULL_STOP = b"-."
DIGIT_0, DIGIT_9, CAPITAL_A, CAPITAL_Z, SMALL_A, SMALL_Z = b"09AZaz"
CASE_BIT = 0x20  # the difference between a capital letter and its small one


@helper
def is_white(code: int) -> bool:
    """Whether a byte or a code point is ASCII white space."""
    return code == SPACE or TAB <= code <= CARRIAGE_RETURN


@helper
def is_digit(code: int) -> bool:
    return DIGIT_0 <= code <= DIGIT_9


@helper
def is_capital(code: int) -> bool:
    return CAPITAL_A <= code <= CAPITAL_Z


@helper
def is_letter(code: int) -> bool:
    """Whether a byte or a code point is an ASCII letter of either case."""
    return SMALL_A <= (code | CASE_BIT) <= SMALL_Z
