"""Conditions on the fields of records, which `--where` names: `metadata.score >= 0.65 and lang in ["en", "de"]`.

In: a text. Out: `Condition`s, all of which must hold. Nothing of it is run as code. A string that reads as a number or
boolean is compared as one with a number or boolean, because .csv has strings alone. Any other value of another type is
unequal, and neither less nor greater.
"""

from __future__ import annotations

import json
import operator
import re
from functools import cache
from typing import Any, NamedTuple

from albert_data.errors import ConfigError

EXCLUSIONS = EXCLUDED, WITHOUT_FIELD = ("excluded", "excluded_without_field")  # reasons for which a record is excluded
_TESTS: dict[str, Any] = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}  # others: ==
_STRING = r""""(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|'[^']*'"""
_VALUE = rf"(?:{_STRING}|(?:true|false|-?(?:0|[1-9][0-9]{{0,300}})(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)(?![\w.]))"
_CONDITION = re.compile(
    rf"({_STRING}|[^\s\"'=!<>~&|,()\[\]]+)\s*"
    rf"(?:(==|!=|<=|>=|<|>)\s*({_VALUE})|(in)\b\s*(\[\s*{_VALUE}(?:\s*,\s*{_VALUE})*\s*\]))\s*(?:$|and\s+(?=\S))"
)
_BOOLEANS = {"true": True, "false": False}


class Condition(NamedTuple):
    """A field is compared with values: any of them for `in`, otherwise one."""

    field: str
    operator: str
    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        """Whether it holds for the value of a field.

        >>> Condition("score", ">=", (0.5,)).holds("0.65"), Condition("lang", "!=", ("en",)).holds(7)
        (True, True)
        """
        test, found = _TESTS.get(self.operator, operator.eq), [(_read_as(one, value), one) for one in self.values]
        return (self.operator == "!=") != any(value is not None and test(value, one) for value, one in found)


def _read_as(wanted: Any, value: Any) -> Any:
    """A value of a record as one of the type of `wanted`; None if it is none."""
    if isinstance(wanted, str):
        return value if isinstance(value, str) else None
    if isinstance(wanted, bool):
        return _BOOLEANS.get(value.lower()) if isinstance(value, str) else value if isinstance(value, bool) else None
    try:
        return None if isinstance(value, bool) else value if isinstance(value, int | float) else float(value)
    except (TypeError, ValueError):
        return None


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
    return text[1:-1] if text[0] == "'" else json.loads(text, strict=False)
