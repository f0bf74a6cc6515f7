"""Counts and shares as every message, report and page writes them: `1 row`, `1,234 rows`, `15.00 %`."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import TextWrapper


def count_of(number: int, singular: str, plural: str | None = None) -> str:
    """A number with its noun: `1 row`, `2 rows`. plural: for a noun that takes more than an s at its end."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def list_some(names: Sequence[str], most: int, count: int | None = None) -> str:
    """The first names and the number of the others: `a, b and 3 more`. count: of all, where some are not in `names`."""
    num_more = (len(names) if count is None else count) - len(names[:most])
    return ", ".join(names[:most]) + (f" and {num_more:,} more" if num_more else "")


def wrap_words(text: str, width: int, indent: str = "", hanging: str = "", *, cuts: bool = True) -> list[str]:
    """Lines broken at spaces. hanging: of all but the first line; cuts: whether words longer than a line are cut."""
    return TextWrapper(width, indent, hanging or indent, break_long_words=cuts, break_on_hyphens=False).wrap(text)


def format_duration(seconds: float) -> str:
    """Seconds as the two largest units: `5 min 3 s`, `3 h 20 min`, `12 d 5 h`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours_left = divmod(hours, 24)
    if days:
        return f"{days:,} d {hours_left} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def divide(part: int, whole: int) -> float | None:
    """A share; None of nothing."""
    return part / whole if whole else None


def format_share(share: float, digits: int = 2) -> str:
    """A share of 1 as a percentage, with a space before the sign: `15.00 %`."""
    return f"{100 * share:,.{digits}f} %"


def about(number: float) -> str:
    """Two digits, as an estimate has no more: 16,000,000."""
    return f"{float(f'{number:.2g}'):,.0f}"


def about_bytes(number: float) -> str:
    unit, name = (1e9, "GB") if number >= 1e9 else (1e6, "MB")
    return f"{float(f'{number / unit:.2g}'):,g} {name}"
