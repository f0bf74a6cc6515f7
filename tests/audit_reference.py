"""Print the table of docs/reference/audit.md: every check with its limits, from audit/rules.py. A test compares."""

from __future__ import annotations

from albert_data.inspect.audit import rules as audit_rules
from albert_data.inspect.audit.rules import Rule

RULES = [rule for rule in vars(audit_rules).values() if isinstance(rule, Rule)]


def render() -> str:
    lines = ["| name | what | look from | bad from | why there |", "|---|---|---:|---:|---|"]
    for rule in RULES:
        limits = (str(limit) if limit >= 1 else f"{100 * limit:g} %" for limit in rule.limits)
        lines.append(f"| `{rule.name}` | {rule.title} | {' | '.join(limits)} | {rule.why} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(render(), end="")
