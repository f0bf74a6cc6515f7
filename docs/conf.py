"""The site: `make site` makes it from these pages, which also read well without it.

Contents are not written twice: an index page contains those pages that it links to. A page that no index links to, a
link that leads nowhere and a docstring that can't be read are warnings, and `make site` fails on any.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

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


def _add_directives(app: Sphinx, page: str, source: list[str]) -> None:
    """Give index pages their contents and reference/api.md the docstrings of the public names."""
    if page.endswith("index"):
        pages = re.findall(r"\]\(([\w/.-]+\.md)\)", source[0])
        source[0] += "\n".join(["", "", "```{toctree}", ":hidden:", *dict.fromkeys(pages), "```", ""])
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
