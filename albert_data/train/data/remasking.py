"""Draws new masks for the rows of a later epoch, as the build draws them.

In: masked rows and their numbers in the split. Out: the same rows with other masks, drawn by the build's own code and
config. A row's masks are a function of its text and of (seed, epoch, row number), and do not depend on its batch, rank
or thread.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from albert_data.data import Examples
from albert_data.errors import ShardError
from albert_data.examples.masks import Pieces, make_rows, mask_by_tables
from albert_data.examples.spans import span_tables
from albert_data.shards.manifest import Manifest
from albert_data.shards.rows import unmask
from albert_data.tokenizer.model import Tokenizer
from albert_data.train.data.order import derive_keys

_REMASK_PURPOSE = 2  # so that these keys differ from those that shuffle the batches


class Remasker:
    """Draws new masks for rows of later epochs."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, *, seed: int) -> None:
        """Raises ShardError if the tokenizer is not the one that the shards were built with."""
        if tokenizer.sha256 != manifest.tokenizer.sha256:
            name = Path(manifest.tokenizer.file).name
            raise ShardError(
                f"the tokenizer beside the shards has the SHA-256 {tokenizer.sha256}, but they were built with "
                f"{manifest.tokenizer.sha256}; put the build's {name} back, or build again"
            )
        config = self._config = manifest.config.examples
        self._words = tokenizer.word_rule(config)
        self._pieces = Pieces.of(tokenizer.specials, self._words, tokenizer.ordinary_ids, config)
        # Not the seed itself: the build may have used the same number, and would have drawn equal masks from it.
        self._seed = derive_keys(seed, 0, 0, _REMASK_PURPOSE, num=1)[0]

    def __call__(self, examples: Examples, rows: np.ndarray, epoch: int, mask_prob: float | None = None) -> Examples:
        """Mask the original ids anew. rows: the row numbers (int64). mask_prob: by default that of the build."""
        config = self._config
        share = config.mask_prob if mask_prob is None else mask_prob
        tables = span_tables(config.max_seq_len, config.longest_span, share, config.masking)
        pairs = unmask(examples)
        # The build draws by document key and row of the document. Here the row number takes the place of both.
        masked = make_rows(pairs, self._words, rows.astype(np.uint64), self._seed, epoch)
        return mask_by_tables(pairs, masked, tables, self._pieces)
