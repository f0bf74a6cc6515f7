"""Made-up pairs of a good and a bad sentence: `python tests/sentence_pairs.py 2000 > pairs.jsonl`."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator

_ADJECTIVES = "old young small large quiet loud clever tired happy green red strange slow quick"
_NOUNS = "cat dog teacher student river city book child bird doctor farmer ship house story friend king"
_VERBS = "sleep walk sing wait fall run swim speak laugh work listen move stop travel"
_PLACES = "near the water,in the garden,on the mountain,at the old school,behind a small house,with their friends"


def _plural(noun: str) -> str:
    return {"child": "children", "city": "cities", "story": "stories"}.get(noun, noun + "s")


def make_pairs(count: int, seed: int = 0) -> Iterator[dict[str, str]]:
    """Yield different pairs, by turns of agreement (the verb's number) and of word order (two words swapped)."""
    rng, seen = random.Random(seed), set()
    while len(seen) < count:
        noun, verb, is_plural = rng.choice(_NOUNS.split()), rng.choice(_VERBS.split()), rng.random() < 0.5
        subject = f"The {rng.choice(_ADJECTIVES.split())} {_plural(noun) if is_plural else noun}"
        place = rng.choice(_PLACES.split(","))
        forms = [verb, verb + "s"] if is_plural else [verb + "s", verb]
        good = f"{subject} {forms[0]} {place}."
        if len(seen) % 2 == 0:
            pair = {"good": good, "bad": f"{subject} {forms[1]} {place}.", "group": "agreement"}
        else:
            words = good.split()
            at = rng.randrange(len(words) - 2)
            words[at], words[at + 1] = words[at + 1], words[at]
            pair = {"good": good, "bad": " ".join(words), "group": "word order"}
        if good not in seen:
            seen.add(good)
            yield pair


if __name__ == "__main__":
    for made in make_pairs(int(sys.argv[1])):
        print(json.dumps(made))
