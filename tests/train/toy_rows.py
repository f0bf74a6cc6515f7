"""Shards in memory and a data set over their loader, in a module that worker processes can import."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
from shard_fixtures import NO_TOTALS
from torch import Tensor

from albert_data.data import Examples, Specials
from albert_data.errors import ShardError
from albert_data.shards.manifest import SPLITS, Manifest, SplitEntry
from albert_data.shards.row_bounds import Bounds
from albert_data.tokenizer.words import WordRule
from albert_data.train import Batch
from albert_data.train.config import AlbertConfig, TrainConfig
from albert_data.train.model import Output

PAD, UNK, CLS, SEP, MASK = range(5)
FIRST_ORDINARY = 5

# The model and the training of most tests; `dataclasses.replace` names what one needs otherwise.
SMALL = AlbertConfig(embedding_size=16, hidden_size=32, num_layers=2, num_heads=2, ffn_size=64)
TINY = TrainConfig(
    preset="tiny", lr=1e-3, steps=4, batch_tokens=512, log_every=2, eval_every=2, save_every=2, device="cpu"
)


def pick(flat: np.ndarray, offsets: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    parts = [flat[offsets[row] : offsets[row + 1]] for row in rows]
    return np.concatenate([flat[:0], *parts]), np.cumsum([0, *map(len, parts)])


@dataclass
class FakeShards:
    examples: Examples
    manifest: Manifest

    def set_aside(self, num_rows: int) -> None:
        """Set the number of validation rows in the manifest."""
        splits = {name: SplitEntry(**NO_TOTALS, shards=()) for name in SPLITS}
        splits["train"] = replace(splits["train"], num_rows=len(self))
        splits["validation"] = replace(splits["validation"], num_rows=num_rows)
        self.manifest = replace(self.manifest, splits=splits)

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.examples.offsets).astype(np.int32)

    @property
    def rows_by_source(self) -> list[np.ndarray]:
        sources = self.examples.sources
        there = [] if sources is None else np.unique(sources).tolist()
        return [np.flatnonzero(sources == one) for one in there] if len(there) > 1 else []

    @property
    def tokenizer(self) -> SimpleNamespace:
        """The part of a tokenizer that masking and guesses use."""
        vocab_size = self.manifest.tokenizer.vocab_size
        is_special = np.isin(np.arange(vocab_size), [PAD, CLS, SEP, MASK])
        return SimpleNamespace(
            sha256="0" * 64,
            vocab_size=vocab_size,
            specials=Specials(pad_id=PAD, unk_id=UNK, cls_id=CLS, sep_id=SEP, mask_id=MASK, is_special=is_special),
            word_rule=lambda config: WordRule.every_piece(vocab_size),
            pieces=[f"\u2581w{i}" for i in range(vocab_size)],
            piece_texts=[f"\u2581w{i}" for i in range(vocab_size)],
            decode=lambda ids: " ".join(f"w{i}" for i in ids),
            pad_id=PAD,
            mask_id=MASK,
            ordinary_ids=np.arange(FIRST_ORDINARY, vocab_size, dtype=np.uint32),
        )

    def rows(self, indices: np.ndarray) -> Examples:
        all_rows = self.examples
        input_ids, offsets = pick(all_rows.input_ids, all_rows.offsets, indices)
        masked_ids, mask_offsets = pick(all_rows.masked_ids, all_rows.mask_offsets, indices)
        found = Examples(
            input_ids=input_ids,
            offsets=offsets,
            segment_a_len=all_rows.segment_a_len[indices],
            sop_label=all_rows.sop_label[indices],
            masked_positions=pick(all_rows.masked_positions, all_rows.mask_offsets, indices)[0],
            masked_ids=masked_ids,
            mask_offsets=mask_offsets,
            document_keys=all_rows.document_keys[indices],
            sources=None if all_rows.sources is None else all_rows.sources[indices],
        )
        bounds = Bounds.from_manifest(self.manifest)
        if (fault := next(bounds.find_faults(found), None)) is not None:
            raise ShardError(f"row {indices[fault.row]}: {bounds.explain(fault)}; run `albert-data verify`")
        return found


def mean_loss(output: Output, batch: Batch) -> Tensor:
    """The loss of an update with this batch alone."""
    return output.mlm_nats / max(batch.num_masked, 1) + output.sop_nats / max(batch.num_pairs, 1)
