"""Write the checks into docs/reference/audit.md, from the rules; `make docs` does, and a test compares.

What stands above them in the page is written by hand.
"""

from __future__ import annotations

import re
from pathlib import Path

from albert_data.inspect.audit import rules
from albert_data.inspect.audit.rules import Rule

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "audit.md"
RULES = [rule for rule in vars(rules).values() if isinstance(rule, Rule)]
_BEGINNING = "\n## The checks\n\nMade from `albert_data/inspect/audit/rules.py` by `make docs`.\n"


def complete(page: str) -> str:
    """The page with these checks in place of those that it has. Raises ValueError if it has no section of checks."""
    by_hand, beginning, _ = page.partition(_BEGINNING)
    if not beginning:
        raise ValueError(f"{PAGE} lacks this: {_BEGINNING}")
    return by_hand + beginning + "".join(map(_render, RULES))


def _render(rule: Rule) -> str:
    look, bad = (f"{100 * limit:g} %" for limit in rule.limits)
    title = rule.title[0].upper() + rule.title[1:]
    text = f"{title}. {rule.reason} Look from {look}, bad from {bad}.\n\nTo do: {rule.advice}.\n"
    return f"\n### `{rule.name}`\n\n" + re.sub(r"(?<!`)--[a-z-]+( \d+)?", r"`\g<0>`", text)


if __name__ == "__main__":
    PAGE.write_text(complete(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
