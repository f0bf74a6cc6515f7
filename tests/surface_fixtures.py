"""Pairs of made-up text without a build: sound ones, and ones with a fault of a given share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from toy_language import chinese_sentence, english_sentence, make_sentences, train_model

from albert_data.data import Examples
from albert_data.inspect.audit.guesses import check_surface
from albert_data.inspect.audit.rules import Check
from albert_data.tokenizer.model import Tokenizer

Sentences = list[str]
Pair = tuple[str, str]  # the earlier segment and the later one
Fault = Callable[[random.Random, Sentences, int], Pair]
_QUOTED = [f"“{line}”" for line in make_sentences(300, seed=1)]


@cache
def get_tokenizer() -> Tokenizer:
    """Of toy_language, with quotation marks and brackets."""
    lines = [*make_sentences(3000, seed=0), *_QUOTED, *(f"[{line}] ({line})" for line in make_sentences(200, seed=2))]
    return Tokenizer(train_model(sentence_iterator=iter(lines)), "the tests' tokenizer")


def write_english(count: int, seed: int) -> Sentences:
    rng = random.Random(seed)
    return [english_sentence(rng) for _ in range(count)]


def write_chinese(count: int, seed: int) -> Sentences:
    rng = random.Random(seed)
    return [chinese_sentence(rng) for _ in range(count)]


def part(rng: random.Random, taken: Sentences, joint: str = " ") -> Pair:
    """A sound pair: parted between two sentences."""
    at = rng.randrange(1, len(taken))
    return joint.join(taken[:at]), joint.join(taken[at:])


def cut_sentence(rng: random.Random, taken: Sentences) -> Pair:
    """One sentence cut at its middle."""
    words = max(taken, key=len).split(" ")
    return " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])


def part_heading(rng: random.Random, taken: Sentences) -> Pair:
    """A heading as the earlier segment."""
    return f"{taken[0].split()[0]} {rng.randint(1, 99)}", " ".join(taken[1:])


def put_longest_outside(rng: random.Random, taken: Sentences) -> Pair:
    """The sentences that are longest at the outer edges."""
    ranked = sorted(taken, key=len)
    return part(rng, [ranked[-1], *ranked[:-2], ranked[-2]])


def quote_across(rng: random.Random, taken: Sentences) -> Pair:
    """A quotation that goes on across the boundary."""
    earlier, later = part(rng, taken)
    return f"“{earlier}", f"{later}”"


def make_pairs(
    count: int, seed: int, lines: Sentences, fault: Callable[..., Pair] = part, share: float = 0.0
) -> Iterator[Pair]:
    """Pairs of two to six sentences, a share of them with a fault."""
    rng = random.Random(seed)
    for _ in range(count):
        taken = rng.choices(lines, k=rng.randint(2, 6))
        yield fault(rng, taken) if rng.random() < share else part(rng, taken)


def lay_out(pairs: Sequence[Pair], labels: Sequence[int], keys: Sequence[int]) -> Examples:
    """Rows without masks. labels: 0, 1, or -1 for a row of the earlier segment alone."""
    tokenizer = get_tokenizer()
    texts = [
        text
        for pair, label in zip(pairs, labels, strict=True)
        for text in (pair[::-1] if label == 1 else pair if label == 0 else (pair[0], ""))
    ]
    ids, offsets = tokenizer.encode(texts)
    rows, lens_a = [], []
    for i, label in enumerate(labels):
        a, b = ids[offsets[2 * i] : offsets[2 * i + 1]], ids[offsets[2 * i + 1] : offsets[2 * i + 2]]
        sep = np.array([tokenizer.sep_id], ids.dtype)
        rows.append(np.concatenate([[tokenizer.cls_id], a, sep, *((b, sep) if label >= 0 else ())]))
        lens_a.append(len(a))
    return Examples(
        input_ids=np.concatenate(rows).astype(ids.dtype),
        offsets=np.cumsum([0, *map(len, rows)]),
        segment_a_len=np.array(lens_a, np.int32),
        sop_label=np.array(labels, np.int8),
        masked_positions=np.zeros(0, np.uint16),
        masked_ids=np.zeros(0, ids.dtype),
        mask_offsets=np.zeros(len(rows) + 1, np.int64),
        document_keys=np.array(keys, np.uint64),
    )


def give_labels(pairs: Sequence[Pair], seed: int, num_documents: int = 300) -> Examples:
    """Rows of these pairs, swapped at random, dealt out to documents."""
    rng = random.Random(seed)
    labels = [rng.randrange(2) for _ in pairs]
    documents = [rng.getrandbits(64) for _ in range(num_documents)]
    return lay_out(pairs, labels, rng.choices(documents, k=len(pairs)))


def as_shards(*batches: Examples) -> Any:
    """What a check asks of a split."""
    return SimpleNamespace(tokenizer=get_tokenizer(), batches=lambda: iter(batches))


def audit_pairs(examples: Examples) -> dict[str, Check]:
    """The checks of the surface by name."""
    return {check.rule.name: check for check in check_surface([as_shards(examples)])}
