"""The page on messages quotes what the package says: its fixed words stand in one literal of the sources."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "guides" / "when-something-goes-wrong.md"


def read_literals() -> list[str]:
    """All strings of the package; what an f-string puts in is a tab."""
    found = []
    for path in (ROOT / "albert_data").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(part.value if isinstance(part, ast.Constant) else "\t" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def test_each_message_of_the_page_is_one_of_the_package():
    rows = re.findall(r"^\| (``?)(.+?) ?\1 \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    messages, literals = [message for _, message in rows], read_literals()
    assert len(messages) > 35
    lost = [
        message
        for message in messages
        if not any(re.search(re.escape(message).replace(r"\.\.\.", ".+"), text, re.DOTALL) for text in literals)
    ]
    assert not lost, "the page quotes messages that no source has"
