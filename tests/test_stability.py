"""What stability.md promises: names, options, defaults and versions change only together with a list."""

from __future__ import annotations

from pathlib import Path

import public_names
import pytest

LIST = Path(__file__).parent / "public_names.txt"


def test_public_names_options_and_versions_are_those_of_the_list():
    pytest.importorskip("torch", reason="the train extra is not installed")
    recorded, found = LIST.read_text(encoding="utf-8").splitlines(), public_names.render().splitlines()
    gone = [line for line in recorded if line not in found]
    assert not gone, "what others rely on is gone or another; stability.md says when it may be"
    assert recorded == found, "something is new: run `make docs`"


def test_the_list_tells_a_parameter_that_became_required():
    def before(text, *, language=""):
        pass

    def after(text, *, language):
        pass

    assert public_names._describe_parameters(before) == "(text, *, language=)"
    assert public_names._describe_parameters(after) == "(text, *, language)"
