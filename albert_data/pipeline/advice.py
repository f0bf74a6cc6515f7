"""Advice on options from the counts of a finished build, for the `build` command and for the audit."""

from __future__ import annotations

import dataclasses

from albert_data.corpus.labels import advise_names
from albert_data.corpus.layout import advise
from albert_data.shards.manifest import Manifest


def advise_on(manifest: Manifest) -> list[str]:
    """Options that would read the corpus better, a sentence each.

    Empty if the corpus looks sound, or the manifest lacks the counts.
    """
    counts = {name: value or 0 for name, value in vars(manifest.counts).items()}
    found = advise(counts, dataclasses.asdict(manifest.config.text), [item.path for item in manifest.inputs])
    return found + advise_names(manifest.sources or () if manifest.mixture is None else ())
