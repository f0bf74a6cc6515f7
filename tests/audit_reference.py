"""Print how the section of each check begins in docs/reference/audit.md, from audit/rules.py. A test compares."""

from __future__ import annotations

from textwrap import fill

from albert_data.inspect.audit import rules as audit_rules
from albert_data.inspect.audit.rules import Rule

RULES = [rule for rule in vars(audit_rules).values() if isinstance(rule, Rule)]


def render(rule: Rule) -> str:
    look, bad = (str(limit) if limit >= 1 else f"{100 * limit:g} %" for limit in rule.limits)
    title = rule.title[0].upper() + rule.title[1:]
    why = rule.why[0].upper() + rule.why[1:]
    text = f"{title}. Look from {look}, bad from {bad}. {why}."
    return f"### `{rule.name}`\n\n{fill(text, 132, break_on_hyphens=False)}\n"


if __name__ == "__main__":
    print(*map(render, RULES), sep="\n", end="")
