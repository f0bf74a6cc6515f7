"""Batches of the packs that `convert --pack --unmasked` wrote, for a model of transformers.

In: rows of those files, as `datasets.load_dataset` or any other reader gives them; the shards are not needed. Out: what
`ShardDataset.collate` makes of packs, with masks that are drawn for each batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from albert_data.errors import ConfigError
from albert_data.interop.packed_inputs import POSITIONS, PackedInputs, count_positions, number_tokens
from albert_data.interop.torch_dataset import IGNORED, LEN_MULTIPLE
from albert_data.shards.packing import ROW_STARTS

_IDS, _LABELS = "input_ids", "labels"


class PackCollator:
    """Masks packs and makes a batch of them, so that no token attends to another row, and positions begin anew in each.

        masker = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.3)
        args = TrainingArguments("run", remove_unused_columns=False)
        Trainer(model, args, train_dataset=packs, data_collator=PackCollator(model, masker)).train()

    The model's attention decides what a batch has: see interop/packed_inputs.py.
    """

    def __init__(self, model: nn.Module, masker: Callable[[list[dict[str, Tensor]]], Mapping[str, Tensor]]) -> None:
        """masker: masks tokens, but none of the special ones: of one line of input_ids it makes input_ids and labels.

        Raises ConfigError for a model that would let rows see each other.
        """
        self._packed, self._masker, self._max_len = PackedInputs.of(model), masker, count_positions(model)
        self._pad_id = getattr(model.config, "pad_token_id", None) or 0

    def __call__(self, packs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Raises ConfigError for what is no pack, is masked already, or has a row that is too long for the model."""
        positions = tuple(map(self._find_positions, packs))
        lengths = [len(each) for each in positions]
        line = torch.cat([torch.as_tensor(pack[_IDS]) for pack in packs]).long()
        masked = self._masker([{_IDS: line}])  # all packs in one line, which needs no padding
        ids, labels = (torch.split(masked[name][0, : len(line)], lengths) for name in (_IDS, _LABELS))
        names = (_IDS, _LABELS, POSITIONS)
        rows = [dict(zip(names, row, strict=True)) for row in zip(ids, labels, positions, strict=True)]
        padded = -(-max(lengths) // LEN_MULTIPLE) * LEN_MULTIPLE
        return self._packed.collate(rows, padded, {_IDS: self._pad_id, _LABELS: IGNORED})

    def _find_positions(self, pack: Mapping[str, Any]) -> Tensor:
        wrong = ""
        if ROW_STARTS not in pack:
            wrong = f"lacks {ROW_STARTS}: convert with --pack, and set TrainingArguments(remove_unused_columns=False)"
        elif found := sorted({"masked_ids", _LABELS} & pack.keys()):
            wrong = f"has {found[0]}, so it is masked: convert with --unmasked"
        else:
            positions = number_tokens(torch.as_tensor(pack[ROW_STARTS]), len(pack[_IDS]))
            if (longest := 1 + int(positions.max())) <= self._max_len:
                return positions + self._packed.first_position
            wrong = f"has a row of {longest:,} tokens, but the model has positions for {self._max_len:,}: build the "
            wrong += f"shards with --max-seq-len {self._max_len}"
        raise ConfigError(f"a pack with the columns {', '.join(pack)} {wrong}")
