"""Write the lines by which somebody installs albert-data for the first time; `make docs` runs this.

Everywhere else `pip install 'albert-data[s3]'` adds an extra to what is installed, which needs no release.
"""

from __future__ import annotations

import re
from pathlib import Path

IS_RELEASED = False  # whether PyPI has the package; until then the lines install a checkout

ROOT = Path(__file__).parent.parent
PAGES = (
    "README.md",
    "docs/index.md",
    "docs/tutorial/one-evening.md",
    "docs/guides/cluster.md",
    "docs/notebooks/first-model.ipynb",
)


def rewrite(page: str, is_released: bool = IS_RELEASED) -> str:
    """Replace what pip, at the beginning of a line, of code or of a notebook's line, and uvx install.

    >>> rewrite("    pip install '.[train]'", is_released=True)
    "    pip install 'albert-data[train]'"
    """
    package, option = ("albert-data", "") if is_released else (".", "--from . ")
    page = re.sub(r"(?m)((?:^ *|`|%)pip install '?)(?:\.|albert-data)(?=[\[`\s])", rf"\g<1>{package}", page)
    return re.sub(r"uvx (?:--from \. )?albert-data", f"uvx {option}albert-data", page)


if __name__ == "__main__":
    for name in PAGES:
        path = ROOT / name
        path.write_text(rewrite(path.read_text(encoding="utf-8")), encoding="utf-8")
