"""Mixtures of made-up documents, built, beside the plain builds of the same documents."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import references
from build_fixtures import InlineEngine

from albert_data.corpus.mixtures import find_sources
from albert_data.jobs.engine import Engine
from albert_data.kernels.draws import CHOOSING
from albert_data.pipeline.build import BuildReport, build_shards
from albert_data.shards.reader import Example, open_shards
from albert_data.tokenizer.model import Tokenizer

Row = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """A source of a test. keys: other lines of its table, as in TOML."""

    documents: Sequence[str]
    weight: float | None = None
    tokens: int | None = None
    keys: Mapping[str, str] = field(default_factory=dict)


def write_mixture(folder: Path, sources: Sequence[Mixed], layout: str = "txt", seed: int = 0) -> Path:
    """Write the documents of source i to the folder si, and the mixture beside them."""
    lines = []
    for number, source in enumerate(sources):
        fixtures.write_corpus(folder / f"s{number}", source.documents, layout, random.Random(seed))
        lines += ["[[source]]", f'name = "source {number}"', f'paths = ["s{number}"]']
        lines += [f"weight = {source.weight}"] if source.weight is not None else []
        lines += [f"tokens = {source.tokens}"] if source.tokens is not None else []
        lines += [f"{key} = {value}" for key, value in source.keys.items()]
    path = folder / "mixture.toml"
    path.write_text("\n".join(lines))
    return path


def build_mixture(
    path: Path, out: Path, tokenizer: Tokenizer, engine: Engine | None = None, overwrite: bool = False, **settings: Any
) -> BuildReport:
    config = fixtures.make_config(**settings)
    inputs = find_sources([str(path)], text=config.text)
    return build_shards(inputs, out, tokenizer, config, engine or InlineEngine(), overwrite=overwrite)


def choice_key(document: str, seed: int = 0) -> int:
    return references.stream(seed, CHOOSING, fixtures.document_key(document), 0, 0)


def count_passes(document: str, weight: float, dupe_factor: int = 1, seed: int = 0) -> int:
    """The passes p with p + choice key / 2**64 < weight * dupe_factor, counted one by one."""
    limit, count = Fraction(str(weight)) * dupe_factor, 0
    while count + Fraction(choice_key(document, seed), 2**64) < limit:
        count += 1
    return count


def expect(sources: Sequence[Mixed], dupe_factor: int = 1) -> dict[str, tuple[int, int]]:
    """The source and the passes of each document that is used: it belongs to the first source that has it."""
    found: dict[str, tuple[int, int]] = {}
    for number, source in enumerate(sources):
        for document in source.documents:
            weight = 1.0 if source.weight is None else source.weight
            found.setdefault(document, (number, count_passes(document, weight, dupe_factor)))
    return {document: (number, passes) for document, (number, passes) in found.items() if passes}


def describe(row: Example) -> Row:
    """All columns but the source."""
    lists = (row.input_ids, row.masked_positions, row.masked_ids)
    return (*(tuple(values.tolist()) for values in lists), row.segment_a_len, row.sop_label)


def read_rows(out: Path) -> dict[int, list[tuple[int | None, Row]]]:
    """The source and the columns of the rows of each document key, in their order, of both splits."""
    found: dict[int, list[tuple[int | None, Row]]] = {}
    for split in ("train", "validation"):
        for row in open_shards(out, split):
            found.setdefault(row.document_key, []).append((row.source, describe(row)))
    return found


def count_text(row: Example) -> int:
    return len(row.input_ids) - (2 if row.sop_label < 0 else 3)
