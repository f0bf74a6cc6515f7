"""ASCII characters by name, and the classes of them that kernels test."""

from __future__ import annotations

from albert_data.kernels import helper

TAB, LINE_FEED, CARRIAGE_RETURN, SPACE = 0x09, 0x0A, 0x0D, 0x20
EXCLAMATION_MARK, QUOTATION_MARK, APOSTROPHE, LEFT_PARENTHESIS, RIGHT_PARENTHESIS = 0x21, 0x22, 0x27, 0x28, 0x29
ASTERISK, PLUS, COMMA, HYPHEN_MINUS, FULL_STOP, SLASH = 0x2A, 0x2B, 0x2C, 0x2D, 0x2E, 0x2F
DIGIT_0, COLON, SEMICOLON, QUESTION_MARK = 0x30, 0x3A, 0x3B, 0x3F
LEFT_BRACKET, BACKSLASH, RIGHT_BRACKET, LEFT_BRACE, RIGHT_BRACE = 0x5B, 0x5C, 0x5D, 0x7B, 0x7D
CAPITAL_A, CAPITAL_Z, SMALL_A, SMALL_Z = 0x41, 0x5A, 0x61, 0x7A
CASE_BIT = 0x20  # the difference between a capital letter and its small one
WHITE_SPACE = b" \t\n\v\f\r"  # what is stripped from the ends of lines


@helper
def is_white(code: int) -> bool:
    """Whether a byte or a code point is ASCII white space."""
    return code == SPACE or TAB <= code <= CARRIAGE_RETURN


@helper
def is_digit(code: int) -> bool:
    return DIGIT_0 <= code <= DIGIT_0 + 9


@helper
def is_letter(code: int) -> bool:
    return SMALL_A <= code | CASE_BIT <= SMALL_Z
