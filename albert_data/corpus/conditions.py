"""Conditions on the fields of records, which `--where` names: `metadata.score >= 0.65 and lang in ["en", "de"]`.

In: a text. Out: `Where`. Nothing of it is run as code. A string that reads as a number or boolean is compared as one
with a number or boolean, because .csv has strings alone. Any other value of another type is unequal, and neither less
nor greater; a list or an object is an error. Numbers are compared exactly, a float64 with the float64 that is nearest
to the number of the condition. Dates have types in tables alone (`count_nanoseconds`).
"""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, NamedTuple, cast

from albert_data.errors import ConfigError, InputError

EXCLUSIONS = EXCLUDED, WITHOUT_FIELD = ("excluded", "excluded_without_field")  # reasons for which a record is excluded
_TESTS: dict[str, Any] = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}  # others: ==
_STRING = r""""(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|'[^']*'"""
_VALUE = rf"(?:{_STRING}|(?:true|false|-?(?:0|[1-9][0-9]{{0,300}})(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{{1,4}})?)(?![\w.]))"
_CONDITION = re.compile(
    rf"({_STRING}|[^\s\"'=!<>~&|,()\[\]]+)\s*"
    rf"(?:(==|!=|<=|>=|<|>)\s*({_VALUE})|(not\s+in|in)\b\s*(\[\s*{_VALUE}(?:\s*,\s*{_VALUE})*\s*\]))\s*"
)
_JOINT = re.compile(r"(?:(?:and|or)\b|[()])\s*")
_BOOLEANS = {"true": True, "false": False}
_COMPARED = (str, int, float, Decimal)
_TIME, _ZONE = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.([0-9]{1,9}))?)?", "Z|[+-][0-9]{2}:[0-9]{2}"
_MOMENT = re.compile(rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})(?:[T ]({_TIME})({_ZONE})?)?")


class Condition(NamedTuple):
    """A field is compared with values: several for `in` and `not in`, otherwise one."""

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
        is_negated = self.operator in ("!=", "not in")
        return is_negated != any(value is not None and test(value, one) for value, one in found)


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


class Where(NamedTuple):
    """Conditions, and which must hold: a tree with their numbers, as Python parses `0 and (1 or 2)`; None for all."""

    conditions: tuple[Condition, ...] = ()
    tree: ast.expr | None = None

    def can_hold(self, is_there: Sequence[bool]) -> bool:
        """Whether it holds for some record with these fields of the conditions: none holds for a missing one."""
        return all(is_there) if self.tree is None else _holds(self.tree, is_there.__getitem__)

    def find_exclusion(self, values: Sequence[Any]) -> str | None:
        """The reason for which it excludes a record, None for none. values: of the conditions' fields, None for none.

        Raises InputError as `Condition.holds` does.
        """
        is_there = [value is not None for value in values]
        if self.tree is None:
            holds = all(is_there) and all(map(Condition.holds, self.conditions, values))
        else:
            holds = _holds(self.tree, lambda i: is_there[i] and self.conditions[i].holds(values[i]))
        return None if holds else EXCLUDED if all(is_there) else WITHOUT_FIELD


def _holds(tree: ast.expr, check: Callable[[int], bool]) -> bool:
    """check: whether the condition of a number holds; asked from the left, until the answer is known."""
    if isinstance(tree, ast.BoolOp):
        return (all if isinstance(tree.op, ast.And) else any)(_holds(part, check) for part in tree.values)
    return check(cast(Any, tree).value)


@cache
def parse_where(text: str | None) -> Where:
    """Conditions joined by `and` and `or`, of which `and` binds tighter; None excludes nothing. Raises ConfigError.

    >>> where = parse_where("a.b >= 0.65 or lang not in ['en', 'de']")
    >>> where.conditions[1], where.find_exclusion([0.5, "fr"]), where.find_exclusion([None, "en"])
    (Condition(field='lang', operator='not in', values=('en', 'de')), None, 'excluded_without_field')
    """
    if text is None:
        return Where()
    found, words, rest = list[Condition](), list[str](), text.strip()
    while match := _CONDITION.match(rest) or _JOINT.match(rest):
        rest = rest[match.end() :]
        if match.re is _JOINT:
            words.append(match[0].rstrip())
            continue
        words.append(str(len(found)))
        field, symbol, value, is_in, values = match.groups()
        field = _read_value(field) if field[0] in "\"'" else field
        listed = map(_read_value, re.findall(_VALUE, values or value))
        found.append(Condition(field, symbol or " ".join(is_in.split()), tuple(listed)))
    with suppress(SyntaxError):
        tree = ast.parse(" ".join(words), mode="eval").body
        if not rest and not re.search("Call|Tuple", ast.dump(tree)):  # 0 (1) and ()
            return Where(tuple(found), tree if "or" in words else None)
    raise ConfigError(
        f"where is {text!r:.200}, in which {rest or text!r:.80} is no condition; write FIELD OPERATOR VALUE with ==, "
        "!=, <, <=, > or >= and a number, true, false or a string in quotes, or FIELD in ['en', 'de'] or not in; join "
        "several by and, or and parentheses"
    )


def join_where(texts: Iterable[str]) -> str:
    """Texts that must all hold as one."""
    several = list(texts)
    return " and ".join(f"({one})" if several[1:] and re.search(r"\bor\b", one) else one for one in several)


def _read_value(text: str) -> Any:
    return text[1:-1] if text[0] == "'" else json.loads(text, strict=False, parse_float=Decimal)
