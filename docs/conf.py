"""The site: `make site` makes it from these pages, which also read well without it.

Contents are not written twice: an index page contains those pages that it links to. A page that no index links to, a
link that leads nowhere and a docstring that can't be read are warnings, and `make site` fails on any. The site has an
llms.txt, a list of all pages for language models (https://llmstxt.org).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent.parent))

project = "albert-data"
html_title = "albert-data"
html_theme = "furo"
html_show_copyright = False
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["examples", "lab"]
highlight_language = "text"
myst_heading_anchors = 4
python_maximum_signature_line_length = 100

_API = """
```{eval-rst}
.. automodule:: albert_data
   :members:
```
"""


def _list_linked(index: str) -> list[str]:
    """The pages that an index page links to, each once; only the index pages if there are any."""
    pages = list(dict.fromkeys(re.findall(r"\]\(([\w/.-]+\.md)\)", index)))
    return [page for page in pages if page.endswith("index.md")] or pages


def _take_first(page: str) -> tuple[str, str]:
    """The title of a page, and the first sentence of its first paragraph, without the marks of links and code."""
    title, *paragraphs = re.sub(r"(?ms)^```.*?^```$|^(    |[-|#>]).*?$", "", page.removeprefix("# ")).split("\n\n")
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(next(filter(str.strip, paragraphs), "").split()))
    return title, re.sub(r"[`*]|:$", "", re.split(r"(?<=[.:?])\s(?=[A-Z`])", text)[0])


def list_pages(docs: Path) -> str:
    """The text of llms.txt: what albert-data is, then the pages of each shelf with their first sentences."""
    home, seen = (docs / "index.md").read_text(encoding="utf-8"), set[Path]()
    lines = ["# {}\n\n> {}".format(*_take_first(home))]
    for index in [docs / name for name in _list_linked(home)]:
        shelf = index.read_text(encoding="utf-8")
        lines.append(f"\n## {_take_first(shelf)[0]}\n")
        paths = [(index.parent / name).resolve() for name in _list_linked(shelf)]
        for path in [path for path in paths if path not in seen]:
            title, sentence = _take_first(path.read_text(encoding="utf-8"))
            address = path.relative_to(docs.resolve()).with_suffix(".html").as_posix()
            lines.append(f"- [{title}]({address}): {sentence}")
        seen.update(paths)
    return "\n".join([*lines, ""])


def _write_list(app: Sphinx, error: Exception | None) -> None:
    if error is None:
        Path(app.outdir, "llms.txt").write_text(list_pages(Path(app.srcdir)), encoding="utf-8")


def _add_directives(app: Sphinx, page: str, source: list[str]) -> None:
    """Give index pages their contents and reference/api.md the docstrings of the public names."""
    if page.endswith("index"):
        source[0] += "\n".join(["", "", "```{toctree}", ":hidden:", *_list_linked(source[0]), "```", ""])
    if page == "reference/api":
        source[0] += _API


def _keep_lines_of_fields(app: Sphinx, kind: str, name: str, it: object, options: object, lines: list[str]) -> None:
    """In docstrings a field has a line of its own; reStructuredText would join these lines."""
    paragraphs = "\n".join(lines).split("\n\n")
    for number, paragraph in enumerate(paragraphs):
        if re.search(r"^\w+(, \w+)*: ", paragraph, re.MULTILINE):
            paragraphs[number] = re.sub(r"^", "| ", paragraph, flags=re.MULTILINE)
    lines[:] = "\n\n".join(paragraphs).split("\n")


def setup(app: Sphinx) -> None:
    """What Sphinx calls."""
    app.connect("autodoc-process-docstring", _keep_lines_of_fields)
    app.connect("source-read", _add_directives)
    app.connect("build-finished", _write_list)
