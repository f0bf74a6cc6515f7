"""A drawn figure as SVG that stands inside a page: coloured by the page's style sheet, read aloud by its words.

In: a matplotlib figure whose colours are those of COLOURS. Out: an `svg` element. matplotlib writes colours and
fonts into `style` attributes, which would neither follow a dark page nor pass its content security policy: each
becomes a class or an attribute here. Ids get the name of the figure in front, for a page holds several.
"""

from __future__ import annotations

import io
import re
import warnings
from typing import Any
from xml.etree import ElementTree

_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
# What a chart draws with, and the class that each becomes: fill-ink, stroke-ink.
COLOURS = {
    "ink": "#000001",
    "muted": "#000002",
    "grid": "#000003",
    "band": "#000008",
    "first": "#000004",
    "second": "#000005",
    "third": "#000006",
    "paper": "#000007",
}
RC = {
    "svg.fonttype": "none",  # text as text: small, selectable, in the page's font
    "svg.hashsalt": "albert-data",
    "font.size": 10,
    "text.color": COLOURS["ink"],
    "axes.labelcolor": COLOURS["ink"],
    "axes.edgecolor": COLOURS["muted"],
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": COLOURS["grid"],
    "xtick.color": COLOURS["muted"],
    "ytick.color": COLOURS["muted"],
    "xtick.labelcolor": COLOURS["ink"],
    "ytick.labelcolor": COLOURS["ink"],
    "legend.frameon": False,
}
_CLASSES = {value: name for name, value in COLOURS.items()}
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def to_inline(figure: Any, name: str, title: str, description: str) -> str:
    """The figure as an element. title, description: what a screen reader says of it."""
    file = io.BytesIO()
    with warnings.catch_warnings():  # the browser has other fonts than matplotlib
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure.savefig(file, format="svg", transparent=True, metadata=_NO_METADATA)
    root = ElementTree.fromstring(file.getvalue())
    for parent in root.iter():
        for child in list(parent):
            if child.tag in (f"{_SVG}style", f"{_SVG}metadata"):
                parent.remove(child)
    for element in root.iter():
        _restyle(element)
        _rename(element, name)
    _describe(root, name, title, description)
    ElementTree.register_namespace("", _SVG.strip("{}"))
    ElementTree.register_namespace("xlink", _XLINK.strip("{}"))
    return ElementTree.tostring(root, encoding="unicode")


def _restyle(element: ElementTree.Element) -> None:
    classes = []
    for item in element.attrib.pop("style", "").split(";"):
        key, _, value = (part.strip() for part in item.partition(":"))
        if key in ("fill", "stroke") and value in _CLASSES:
            classes.append(f"{key}-{_CLASSES[value]}")
        elif key and key != "font-family":
            element.set(key, value)
    if classes:
        element.set("class", " ".join(classes))


def _rename(element: ElementTree.Element, name: str) -> None:
    for key, value in element.attrib.items():
        if key == "id":
            element.set(key, f"{name}-{value}")
        elif key == f"{_XLINK}href":
            element.set(key, f"#{name}-{value.removeprefix('#')}")
        elif "url(#" in value:
            element.set(key, re.sub(r"url\(#", f"url(#{name}-", value))


def _describe(root: ElementTree.Element, name: str, title: str, description: str) -> None:
    for key in ("width", "height"):
        del root.attrib[key]
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-desc")
    for i, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(f"{_SVG}{tag}", {"id": f"{name}-{tag}"})
        element.text = text
        root.insert(i, element)
