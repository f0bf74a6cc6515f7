"""What a finished build's counts say about how its corpus was read: for `build`, and for the audit to name a cause."""

from __future__ import annotations

import dataclasses

from albert_data.corpus.layout import advise
from albert_data.shards.manifest import Manifest


def advise_on(manifest: Manifest) -> list[str]:
    """Which options read the corpus rightly, a sentence each; empty where it looks sound, or was not looked at."""
    counts = {name: value or 0 for name, value in vars(manifest.counts).items()}
    return advise(counts, dataclasses.asdict(manifest.config.text), [item.path for item in manifest.inputs])
