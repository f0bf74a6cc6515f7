"""Conditions on the fields of records, which `--where` names: `metadata.score >= 0.65 and lang in ["en", "de"]`.

In: a text. Out: `Condition`s, all of which must hold. Nothing of it is run as code. A string that reads as a number or
boolean is compared as one with a number or boolean, because .csv has strings alone. Any other value of another type is
unequal, and neither less nor greater; a list or an object is an error. Numbers are compared exactly, a float64 with the
float64 that is nearest to the number of the condition. Dates have types in tables alone (`count_nanoseconds`).
"""

from __future__ import annotations

import json
import operator
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, NamedTuple

from albert_data.errors import ConfigError, InputError

EXCLUSIONS = EXCLUDED, WITHOUT_FIELD = ("excluded", "excluded_without_field")  # reasons for which a record is excluded
_TESTS: dict[str, Any] = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}  # others: ==
_STRING = r""""(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|'[^']*'"""
_VALUE = rf"(?:{_STRING}|(?:true|false|-?(?:0|[1-9][0-9]{{0,300}})(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{{1,4}})?)(?![\w.]))"
_CONDITION = re.compile(
    rf"({_STRING}|[^\s\"'=!<>~&|,()\[\]]+)\s*"
    rf"(?:(==|!=|<=|>=|<|>)\s*({_VALUE})|(in)\b\s*(\[\s*{_VALUE}(?:\s*,\s*{_VALUE})*\s*\]))\s*(?:$|and\s+(?=\S))"
)
_BOOLEANS = {"true": True, "false": False}
_COMPARED = (str, int, float, Decimal)
_TIME, _ZONE = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.([0-9]{1,9}))?)?", "Z|[+-][0-9]{2}:[0-9]{2}"
_MOMENT = re.compile(rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})(?:[T ]({_TIME})({_ZONE})?)?")


class Condition(NamedTuple):
    """A field is compared with values: any of them for `in`, otherwise one."""

    field: str
    operator: str
    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        """Whether it holds for the value of a field. Raises InputError for a value that is no string and no number.

        >>> Condition("score", ">=", (Decimal("0.5"),)).holds("0.65"), Condition("lang", "!=", ("en",)).holds(7)
        (True, True)
        """
        if not isinstance(value, _COMPARED):
            raise InputError(
                f"the field {self.field!r:.80} holds a {type(value).__name__}, which --where can't compare; name a "
                "field of strings, numbers or booleans"
            )
        test, found = _TESTS.get(self.operator, operator.eq), [_align(value, one) for one in self.values]
        return (self.operator == "!=") != any(value is not None and test(value, one) for value, one in found)


def _align(value: Any, wanted: Any) -> tuple[Any, Any]:
    """A value of a record and that of a condition, so that they can be compared; None and it if they can't be."""
    if isinstance(wanted, str):
        return value if isinstance(value, str) else None, wanted
    if isinstance(wanted, bool):
        value = _BOOLEANS.get(value.lower()) if isinstance(value, str) else value
        return value if isinstance(value, bool) else None, wanted
    if isinstance(value, str):
        try:
            number = Decimal(value)
        except InvalidOperation:
            return None, wanted
        return None if number.is_nan() else number, wanted
    if isinstance(value, float) and isinstance(wanted, Decimal):
        return value, float(wanted)
    return None if isinstance(value, bool) else value, wanted


def count_nanoseconds(text: str, needs_zone: bool = False) -> int:
    """The nanoseconds from 1970 to a date or time in the form of ISO 8601; one without a zone is in UTC.

    Raises ValueError for anything else.

    >>> count_nanoseconds("1970-01-02T00:00:00.5"), count_nanoseconds("1970-01-01T01:00+01:00")
    (86400500000000, 0)
    """
    if (found := _MOMENT.fullmatch(text)) is None or needs_zone > bool(found[4]):
        raise ValueError(text)
    moment = datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}{found[4] or 'Z'}")
    seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    return seconds * 10**9 + int((found[3] or "").ljust(9, "0"))


@cache
def parse_conditions(text: str) -> tuple[Condition, ...]:
    """Raises ConfigError, in one line, for anything else than conditions joined by `and`.

    >>> parse_conditions("a.b >= 0.65 and lang in ['en', 'de']")[1]
    Condition(field='lang', operator='in', values=('en', 'de'))
    """
    found, rest = list[Condition](), text.strip()
    while not found or rest:
        if (match := _CONDITION.match(rest)) is None:
            raise ConfigError(
                f"where is {text!r:.200}, in which {rest!r:.80} is no condition; write FIELD OPERATOR VALUE with "
                "==, !=, <, <=, > or >= and a number, true, false or a string in quotes, or FIELD in ['en', 'de']"
            )
        field, symbol, value, is_in, values = match.groups()
        field = _read_value(field) if field[0] in "\"'" else field
        listed = map(_read_value, re.findall(_VALUE, values or value))
        found.append(Condition(field, symbol or is_in, tuple(listed)))
        rest = rest[match.end() :]
    return tuple(found)


def _read_value(text: str) -> Any:
    return text[1:-1] if text[0] == "'" else json.loads(text, strict=False, parse_float=Decimal)
