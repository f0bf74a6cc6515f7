"""Damages JSON values, so that the code after the parser is reached.

In: a random generator and JSON. Out: other JSON, or almost JSON; equal generators make equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from reliability.mutators import mutate_bytes

Slot = tuple[Any, Any]  # a dict or list, and one of its keys

NAMES = ["", ".", "..", "../x", "../../x", "x/../../y", "\0", "a\0b", "\x1b[31mred", "\ud800", "é", "x" * 300, "x\ny"]
NAMES += ["train", "README.md", "notes.txt", "../outside.txt", "%s%n", "None", "1e5", "nan", "cuda:99", "/"]
NUMBERS: list[float] = [
    0,
    -1,
    1,
    2,
    7,
    255,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32,
    2**53,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63) - 1,
]
NUMBERS += [0.0, -0.0, 0.5, 1e-300, 1e300, float("nan"), float("inf"), float("-inf")]
HUGE = "9" * 5000  # Python's int() accepts at most 4,300 digits
PLACEHOLDER = "\ue000replaced below\ue000"


def mutate_json(rng: Random, data: bytes) -> bytes:
    """Damage one to four values; some of the results are also damaged as text."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return mutate_bytes(rng, data)
    value = mutate_value(rng, value)
    text = json.dumps(value, ensure_ascii=rng.random() < 0.7, indent=rng.choice((None, None, 2)))
    out = _fill_in(rng, text).encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:
        out = out.decode("utf-8", "replace").encode(rng.choice(("utf-16", "utf-16-le", "utf-8-sig", "utf-32")))
    return mutate_bytes(rng, out) if rng.random() < 0.15 else out


def mutate_value(rng: Random, value: Any) -> Any:
    """Return a copy of a value with one to four damages."""
    holder = [json.loads(json.dumps(value))]
    for _ in range(rng.randint(1, 4)):
        slots = list(list_slots(holder))
        if not slots:
            break
        change_slot(rng, rng.choice(slots), slots)
    return holder[0] if holder else None


def list_slots(value: Any) -> Iterator[Slot]:
    """Yield every key of every object and list in a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from list_slots(inner)


def change_slot(rng: Random, slot: Slot, slots: list[Slot]) -> None:
    """Damage one value in its object or list."""
    holder, key = slot
    kind = rng.random()
    if kind < 0.2:
        del holder[key]
    elif kind < 0.3 and isinstance(holder, dict):
        holder[odd_name(rng)] = holder.pop(key)
    elif kind < 0.4:
        other, other_key = rng.choice(slots)
        if _has(other, other_key):
            holder[key] = json.loads(json.dumps(other[other_key]))
    elif kind < 0.5:
        holder[key] = rng.choice(([holder[key]], {"x": holder[key]}, [holder[key]] * 3, {}, []))
    elif kind < 0.65:
        holder[key] = change_kind(rng, holder[key])
    else:
        holder[key] = odd_value(rng)


def _has(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)


def change_kind(rng: Random, value: Any) -> Any:
    """Return almost the same value."""
    if isinstance(value, bool) or value is None:
        return rng.choice((not value, int(bool(value)), str(value)))
    if isinstance(value, (int, float)):
        return rng.choice((value + 1, value - 1, -value, value * 2, str(value), float(value), [value], value * 10**6))
    if isinstance(value, str):
        return rng.choice((value + "x", value[:-1], value.upper(), value * 50, [value], len(value)))
    return rng.choice((None, str(value), len(value)))


def odd_value(rng: Random) -> Any:
    return rng.choice((None, True, False, {}, [], PLACEHOLDER, odd_name(rng), odd_name(rng), *rng.sample(NUMBERS, 6)))


def odd_name(rng: Random) -> str:
    return rng.choice(NAMES)


def _fill_in(rng: Random, text: str) -> str:
    """Replace the placeholders by what json.dumps can't write: numbers of thousands of digits, deep nesting."""
    marker = json.dumps(PLACEHOLDER)
    depth = rng.choice((10, 500, 990, 5_000, 100_000))
    odd = rng.choice(
        (HUGE, "-" + HUGE, f"1e{HUGE[:6]}", "[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth)
    )
    return text.replace(marker, odd).replace(json.dumps(PLACEHOLDER, ensure_ascii=False), odd)
