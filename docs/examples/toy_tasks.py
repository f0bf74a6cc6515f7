"""Small tasks in simple English, made by chance, for the examples. A task of your own comes from a file (`read_tsv`).
All examples check by `model_folder` that the model is there.

A third of the words are in the test alone. So a model can't learn them by heart: it is right only by what pretraining
taught it about words, or by what their place in the text tells.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

NAMES = "Tom Anna John Mary Henry Jane George Emma William Alice Charles Kate Robert Lucy James Helen"
THINGS = (
    "horse lamp book chair knife coat table dog boat hat bell clock sword cup ring basket parcel mirror candle flag "
    "pipe bridge carpet barrel blanket bottle cart drum fan gun hammer key ladder map needle"
)
PLACES = (
    "garden church river forest market castle harbour village station mountain kitchen island school prison palace "
    "theatre valley farm tavern meadow museum cellar desert cottage"
)
PRAISE = (
    "good excellent beautiful delightful charming pleasant wonderful lovely splendid noble kind graceful brilliant "
    "sweet cheerful admirable perfect magnificent clever generous gentle glorious happy fine"
)
BLAME = (
    "bad horrible ugly dreadful terrible miserable wretched dull stupid foolish cruel nasty vile disgusting awful "
    "gloomy poor wicked hideous false mean selfish rude base"
)
ON_PEOPLE = (
    "He is a most {} man.",
    "I never saw so {} a face.",
    "Her brother was always {}.",
    "They say that the captain is {}.",
)
ON_THINGS = (
    "It was a very {} day.",
    "The dinner was {}, as always.",
    "They told us a rather {} story.",
    "His last letter was {}.",
)
STORIES = (
    "{name} took the {thing} to the {place}.",
    "In the evening the {thing} was taken to the {place} by {name}.",
    "To the {place} came {name} with the {thing}.",
)
Labelled = list[tuple[str, ...]]  # the label, and then one text or two


def part(words: str, test: bool) -> list[str]:
    """The words of the training or of the test: every third one is for the test alone."""
    return [word for place, word in enumerate(words.split()) if (place % 3 == 2) == test]


def make_remark(rng: random.Random, praises: bool, on_people: bool, test: bool) -> str:
    """A remark that praises or blames a person or a thing."""
    return rng.choice(ON_PEOPLE if on_people else ON_THINGS).format(
        rng.choice(part(PRAISE if praises else BLAME, test))
    )


def make_remarks(count: int, *, test: bool = False, seed: int = 0) -> Labelled:
    """Remarks that praise or blame: ("praise", "It was a very lovely day.")."""
    rng = random.Random(f"{seed} {test}")
    return [
        (("blame", "praise")[number % 2], make_remark(rng, number % 2 == 1, rng.random() < 0.5, test))
        for number in range(count)
    ]


def make_pairs(count: int, *, test: bool = False, seed: int = 0) -> Labelled:
    """Two remarks, and which is the kinder one: the first or the second, or equal if both praise or both blame."""
    rng = random.Random(f"{seed} {test}")
    rows: Labelled = []
    for _ in range(count):
        label = rng.choice(["first", "second", "equal"])
        first = label == "first" or (label == "equal" and rng.random() < 0.5)
        second = first == (label == "equal")
        rows.append((label, *(make_remark(rng, praises, rng.random() < 0.5, test) for praises in (first, second))))
    return rows


def make_questions(count: int, *, test: bool = False, seed: int = 0) -> Labelled:
    """An answer, the question, and the text in which the answer stands once."""
    rng = random.Random(f"{seed} {test}")
    rows: Labelled = []
    for number in range(count):
        words = {"name": NAMES, "thing": THINGS, "place": PLACES}
        story = {kind: rng.choice(part(choices, test)) for kind, choices in words.items()}
        answer, question = (
            (story["name"], "Who was it?"),
            (f"the {story['thing']}", "What was taken?"),
            (f"the {story['place']}", "Where was it taken to?"),
        )[number % 3]
        text = make_remark(rng, rng.random() < 0.5, False, test) + " " + rng.choice(STORIES).format(**story)
        rows.append((answer, question, text))
    return rows


def read_tsv(path: Path, num_fields: int) -> Labelled:
    """Read lines of fields with tabs between them. Stops the program at a line of another form."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SystemExit(f"{path}: can't be read as UTF-8 text ({error})") from None
    rows: Labelled = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            fields = tuple(line.split("\t"))
            if len(fields) != num_fields:
                wanted = f"{num_fields} are needed, with tabs between them"
                raise SystemExit(f"{path}, line {number}: has {len(fields)} fields, but {wanted}")
            rows.append(fields)
    if not rows:
        raise SystemExit(f"{path}: has no lines")
    return rows


def model_folder(path: str) -> str:
    """A command line's model, if it is a folder: transformers would ask a server for any other name."""
    if not Path(path).is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path!r}; `albert-data export RUN -o MODEL` writes one")
    return path


def load(kind: Any, folder: str, **options: Any) -> Any:
    """A model, a tokenizer or a configuration of a folder. No code of the folder is run, and no server is asked."""
    return kind.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **options)
