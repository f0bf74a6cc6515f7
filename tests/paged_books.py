"""Books as page after page, with page numbers and running heads, for tests of their removal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

PROSE = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness. Mr. "
    "Lorry said that it was the epoch of belief, the epoch of incredulity, the season of Light, and the season of "
    "Darkness. We had everything before us! Had we nothing before us? We were all going direct to Heaven."
)
PARAGRAPHS = [
    " ".join(f"{PROSE} In {year} he was {year % 97} years old." for year in range(begin, begin + 4))
    for begin in range(1800, 1840, 4)
]
_ROMAN = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii", "xiii", "xiv", "xv")
# Of page N of a book: what stands at its foot, and at its head.
STYLES: dict[str, tuple[Callable[[int], list[str]], Callable[[int], list[str]]]] = {
    "number": (lambda page: ["", str(page).center(70), ""], lambda page: []),
    "number between lines": (lambda page: [str(page)], lambda page: []),
    "dashes and a head": (lambda page: ["", f"- {page} -", ""], lambda page: [f"{page} BLEAK HOUSE.", ""]),
    "heads by sides": (
        lambda page: [],
        lambda page: [f"{page}      Bleak House" if page % 2 else f"In Chancery      {page}"],
    ),
    "head without number": (lambda page: [], lambda page: ["\fBLEAK HOUSE", ""]),
    "number and a head": (lambda page: ["", f"[{page}]", ""], lambda page: ["\fBleak House", ""]),
    "roman": (lambda page: ["", _ROMAN[page - 1], ""], lambda page: []),
    "words": (lambda page: ["", f"Page {page}", ""], lambda page: []),
}


def paginate(style: str, paragraphs: list[str] | None = None, height: int = 10) -> tuple[str, list[str]]:
    """Up to 15 pages of so many lines, and their furniture. A form feed begins a page."""
    foot, head = STYLES[style]
    lines = "\n\n".join(textwrap.fill(text, 72) for text in paragraphs or PARAGRAPHS).split("\n")
    pages = [lines[at : at + height] for at in range(0, len(lines), height)][:15]
    text, furniture = [*pages[0]], list[str]()
    for page, body in enumerate(pages[1:], 1):
        text += [*foot(page), *head(page + 1), *body]
        furniture += [line.strip() for line in (*foot(page), *head(page + 1)) if line.strip()]
    return "\n".join(text), furniture
