"""Errors as tables: a call, the class of its error, and what the message must name.

    @refused(
        (lambda: ExampleConfig(max_seq_len=7), ConfigError, "max_seq_len & 7 & 8 to 32768"),
    )
    def test_a_setting_out_of_range_names_itself(call, kind, named):
        check_refused(call, kind, named)

A message may be worded anew at any time; it has to name the value, where it stands, and the option or the next step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Row = tuple[Any, type[Exception], str]


def refused(*rows: Row) -> pytest.MarkDecorator:
    """Run a test for each row. The first value is the call, or what the test calls something with."""
    return pytest.mark.parametrize(("call", "kind", "named"), [pytest.param(*row, id=row[2]) for row in rows])


def check_refused(call: Callable[[], object], kind: type[Exception], named: str) -> str:
    """The call raises this very class, with each part (they are divided by " & ") in its message of one line."""
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    message = str(caught.value)
    missing = [part for part in named.split(" & ") if part not in message]
    assert not missing, f"{missing} not in: {message}"
    assert "\n" not in message, message
    return message
