"""Packs as the input of a model of transformers, so that no token attends to another row.

In: packs of ShardDataset. Out: for a model that computes attention by FlashAttention, the rows of a batch in one line
without padding, and their bounds, under the names of transformers' DataCollatorWithFlattening. For SDPA and eager
attention, a line for each pack, and a mask of the pairs of tokens that attend to each other.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from albert_data.errors import ConfigError

POSITIONS, _MASK = "position_ids", "attention_mask"
_FULL, _SLIDING = "full_attention", "sliding_attention"  # kinds of layers, and the names of their masks
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class PackedInputs:
    """How a model is given packs.

    mask_dtype: of the mask: bool, or the model's own for one that is added; None: one line and the bounds of rows
    window: in layers of sliding attention, how far away a token is seen at most; None for models without them
    first_position: the position of a row's first token
    """

    mask_dtype: torch.dtype | None = None
    window: int | None = None
    first_position: int = 0

    @classmethod
    def of(cls, model: Any) -> PackedInputs:
        """Raises ConfigError for a model that would let rows see each other."""
        config, names, wrong = model.config, inspect.signature(model.forward).parameters, ""
        attention = str(getattr(config, "_attn_implementation", None))
        kinds = set(getattr(config, "layer_types", None) or [_FULL])
        if not {POSITIONS, _MASK} <= set(names):
            wrong = f"does not take both {POSITIONS} and {_MASK}"
        elif not kinds <= {_FULL, _SLIDING}:
            wrong = f"has layers of {', '.join(sorted(kinds - {_FULL, _SLIDING}))}"
        elif "flash" not in attention and attention not in ("sdpa", "eager"):
            wrong = f"computes attention by {attention}; make it with attn_implementation='sdpa'"
        if wrong:
            raise ConfigError(f"can't pack rows: the {type(model).__name__} {wrong}")
        dtype = torch.bool if attention == "sdpa" else model.dtype
        positions = getattr(config, "max_position_embeddings", None)
        return cls(
            mask_dtype=None if "flash" in attention else dtype,
            window=config.sliding_window if _SLIDING in kinds else None,
            first_position=positions - count_positions(model) if positions else 0,
        )

    def collate(self, packs: Sequence[Tensors], pack_len: int, fills: Mapping[str, int]) -> dict[str, Any]:
        """Make a batch. fills: the columns to take, and what stands in the room of a padded pack."""
        fills = {**fills, POSITIONS: self.first_position}  # a cell of the room is a row: a softmax over nothing is NaN
        if self.mask_dtype is None:
            return self._flatten({name: torch.cat([pack[name] for pack in packs]) for name in fills})
        batch: dict[str, Any] = {
            name: torch.stack([F.pad(pack[name], (0, pack_len - len(pack[name])), value=fill) for pack in packs])
            for name, fill in fills.items()
        }
        row_BT = (batch[POSITIONS] == self.first_position).cumsum(1)
        sees_B1TT = (row_BT[:, :, None] == row_BT[:, None, :])[:, None]
        batch[_MASK] = self._to_mask(sees_B1TT)
        if self.window is not None:
            cells_T = torch.arange(pack_len)
            is_near_TT = (cells_T[:, None] - cells_T).abs() <= self.window
            batch[_MASK] = {_FULL: batch[_MASK], _SLIDING: self._to_mask(sees_B1TT & is_near_TT)}
        return batch

    def _to_mask(self, sees_B1TT: Tensor) -> Tensor:
        if self.mask_dtype == torch.bool:
            return sees_B1TT
        zeros_B1TT = torch.zeros(sees_B1TT.shape, dtype=self.mask_dtype)
        return zeros_B1TT.masked_fill(~sees_B1TT, torch.finfo(zeros_B1TT.dtype).min)

    def _flatten(self, columns: Mapping[str, Tensor]) -> dict[str, Any]:
        begins = torch.nonzero(columns[POSITIONS] == self.first_position)[:, 0]
        bounds = F.pad(begins, (0, 1), value=len(columns[POSITIONS])).int()
        longest = int(bounds.diff().max())
        return {
            **{name: values[None] for name, values in columns.items()},
            **dict.fromkeys(("cu_seq_lens_q", "cu_seq_lens_k"), bounds),
            **dict.fromkeys(("max_length_q", "max_length_k"), longest),
        }


def number_tokens(row_starts: Tensor, length: int) -> Tensor:
    """Each token of a pack by its place in its row, from 0 on.

    >>> number_tokens(torch.tensor([0, 3]), 5)
    tensor([0, 1, 2, 0, 1])
    """
    counts = torch.diff(row_starts, append=row_starts.new_tensor([length]))
    return torch.arange(length) - torch.repeat_interleave(row_starts, counts)


def count_positions(model: Any) -> int:
    """The longest sequence. RoBERTa and its like number positions from padding_idx + 1."""
    positions = int(getattr(model.config, "max_position_embeddings", None) or 1 << 30)
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return positions - int(module.padding_idx) - 1
    return positions
