"""Rows of a shard folder as a data set of PyTorch, under the names that a model of transformers gives its inputs.

In: a finished shard folder, and the model that is to read it. Out: rows as tensors, and padded batches of them.
transformers computes a mean of the losses over the labels of a batch that are not -100. A batch without any such label
has the loss NaN, in each of the two tasks; `ShardDataset.collate` says what is done about that.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from albert_data.config import MASK_PROB_RANGE, check_range
from albert_data.errors import ConfigError, ShardError
from albert_data.interop.huggingface import NUM_LABELS
from albert_data.interop.packed_inputs import POSITIONS, PackedInputs, count_positions, number_tokens
from albert_data.shards.manifest import Manifest
from albert_data.shards.packing import ROW_STARTS, PackedExamples, check_pack, cut_rows, join_packs, pack_split
from albert_data.shards.reader import open_shards, to_row_number
from albert_data.shards.rows import locate_masks, mark_segment_b
from albert_data.text.wording import count_of
from albert_data.train.loader import Remasker

IGNORED = -100  # the label that the losses of transformers, and torch's cross entropy, leave out
LEN_MULTIPLE = 8  # tensor cores need sizes that are multiples of 8
_IDS, _TYPES, _VALID, _LABELS = "input_ids", "token_type_ids", "attention_mask", "labels"
_CONVERTED = {_IDS, _TYPES, ROW_STARTS, "segment_a_len", "sop_label", "masked_positions", "masked_ids"}  # of Parquet
_SENTENCE_LABELS = ("sentence_order_label", "next_sentence_label")  # of ALBERT; of BERT and models like it
Row = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class ModelInputs:
    """What a model is given. sentence_label: the name of its label of the pair, None for a model without that task.

    has_types, has_mask: whether it takes token_type_ids and attention_mask. max_len: tokens of the longest row.
    """

    sentence_label: str | None = _SENTENCE_LABELS[0]
    has_types: bool = True
    has_mask: bool = True
    max_len: int = 1 << 30


class ShardDataset(Dataset[Row]):
    """The rows of a split, memory-mapped, as a map-style data set of PyTorch.

        rows = ShardDataset("shards", model)
        Trainer(model, args, train_dataset=rows, data_collator=rows.collate).train()

    A row is a dict of int64 tensors: input_ids, token_type_ids (0 for `[CLS] A [SEP]`, 1 for `B [SEP]`) and labels,
    each as long as the row, and the label of the pair, a scalar: that of the shards' sentence task, by default 0 in
    order, 1 swapped. Labels are -100 where nothing is to be predicted, and where a row has no pair. Inputs that the
    model does not take are left out.

    With `remask` epoch 0 has the stored masks, and each later one new masks, a function of (seed, epoch, row). With
    `mask_prob` all epochs have new masks. `set_epoch` begins an epoch. Workers of a DataLoader see the epoch in shared
    memory, also persistent ones.

    With `pack` an item is a pack: rows one after another, in up to so many tokens, with position_ids, which begin anew
    in each row, and row_starts (int32), where rows begin. The packs are the same in all epochs. Some rows may be cut:
    see shards/packing.py.

    It can be pickled, and then opens its folder again.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        model: nn.Module | None = None,
        *,
        split: str = "train",
        remask: bool | None = None,
        mask_prob: float | Sequence[float] | None = None,
        epochs: int | None = None,
        pack: int | None = None,
        seed: int = 0,
    ) -> None:
        """Open a split. model: decides which inputs a row has; without one they are those of AlbertForPreTraining.

        remask: by default only in the training split, so that all evaluations have the same masks.
        mask_prob: the share of tokens to mask, instead of the build's. Two shares are those of the first and the last
        of `epochs` epochs (2 or more), between which it changes evenly.
        pack: tokens of a pack, at least those of the longest row.
        Raises ShardError if the split is missing, empty or damaged, ConfigError if the model can't learn from it.
        """
        self._shards = open_shards(folder, split)
        if not len(self._shards):
            raise ShardError(f"{folder}: the split {split} has no rows; build the shards from more text")
        check_range("seed", seed, 0, 2**63 - 1)
        manifest = self._shards.manifest
        self._pad_id = manifest.tokenizer.pad_id
        task = manifest.config.examples.task
        default = ModelInputs(sentence_label=_SENTENCE_LABELS[0] if task.orders else None)
        self._inputs = default if model is None else _choose_inputs(model, manifest)
        totals, label, why = manifest.splits[split], self._inputs.sentence_label, ""
        if model is not None and label and len(task.orders) > NUM_LABELS:
            why = f"was built with --pairs {task.name}, which has {len(task.orders)} labels, but the sentence head of "
            why += f"{type(model).__name__} has {NUM_LABELS}"
        elif label and totals.num_unpaired == totals.num_rows:
            why = f"no row of the split {split} has a pair, so there is no {label}"
        if why:
            advice = "train a masked language model without this label, such as AlbertForMaskedLM"
            raise ConfigError(f"{folder}: {why}; {advice}")
        self._mask_probs = _check_mask_prob(mask_prob, epochs, remask)
        if pack is not None:
            check_pack(pack, manifest, folder)
        self._pack, self._packs = pack or 0, None if pack is None else pack_split(self._shards, pack)
        self._packed = PackedInputs() if pack is None or model is None else PackedInputs.of(model)
        remask = mask_prob is not None or split == "train" if remask is None else remask
        self._remask = Remasker(manifest, self._shards.tokenizer, seed=seed) if remask else None
        # In shared memory: workers copy the data set when they start, and persistent ones start only once.
        self._epoch = torch.tensor(-1)  # -1: `set_epoch` was not called yet
        _share(self._epoch)
        self._read(np.zeros(1, np.int64), epoch=1)  # loads the kernels, so that forked workers have them

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _share(self._epoch)  # does nothing in a worker, which is given the same memory

    def set_epoch(self, epoch: int) -> None:
        """Draw the masks of this epoch from now on. Call it in the main process, before the epoch's iterator is made.

        transformers' Trainer calls it, except on several processes; see `__getitems__`.
        """
        check_range("epoch", epoch, 0, 2**31 - 1)
        self._epoch.fill_(epoch)

    def __repr__(self) -> str:
        packs = "" if self._packs is None else f", {count_of(len(self), 'pack')} of {self._pack:,} tokens"
        return f"ShardDataset({self._shards!r}{packs})"

    def __len__(self) -> int:
        return len(self._shards) if self._packs is None else len(self._packs.offsets) - 1

    def __getitem__(self, index: SupportsIndex) -> Row:
        return self.__getitems__([to_row_number(index, len(self))])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Row]:
        """Return several rows: a DataLoader asks for those of a batch at once.

        Raises ConfigError on several processes if new masks are to be drawn and `set_epoch` was never called.
        """
        epoch = int(self._epoch)
        if epoch < 0 and self._remask is not None and os.environ.get("WORLD_SIZE", "1") != "1":
            # accelerate calls the sampler's set_epoch or the data set's, and here the sampler has one.
            raise ConfigError(
                "nobody calls set_epoch, so all epochs would have the same masks: with transformers' Trainer set "
                "TrainingArguments(accelerator_config={'use_seedable_sampler': False}), in your own loop call "
                "set_epoch(epoch), or use the stored masks with remask=False"
            )
        return self._read(np.asarray(indices), max(epoch, 0))

    def _read(self, numbers: np.ndarray, epoch: int) -> list[Row]:
        packs = None if self._packs is None else self._packs.take(numbers)
        numbers = numbers if packs is None else packs.rows
        examples = self._shards.rows(numbers)
        if self._remask is not None and (epoch or self._mask_probs):
            mask_prob = self._mask_probs[min(epoch, len(self._mask_probs) - 1)] if self._mask_probs else None
            examples = self._remask(examples, numbers, epoch, mask_prob)
        if packs is not None:
            examples = join_packs(cut_rows(examples, packs.begins, packs.ends), packs.offsets)
        flat = {_IDS: examples.input_ids.astype(np.int64), _LABELS: np.full(len(examples.input_ids), IGNORED, np.int64)}
        flat[_LABELS][locate_masks(examples)] = examples.masked_ids
        if self._inputs.has_types:
            flat[_TYPES] = mark_segment_b(examples).astype(np.int64)
        if packs is not None:
            begins = np.cumsum(packs.lengths) - packs.lengths - self._packed.first_position
            flat[POSITIONS] = np.arange(len(examples.input_ids)) - np.repeat(begins, packs.lengths)
        lengths = np.diff(examples.offsets).tolist()
        columns: dict[str, Sequence[Tensor]] = {
            name: torch.split(torch.from_numpy(values), lengths) for name, values in flat.items()
        }
        if isinstance(examples, PackedExamples):
            counts = np.diff(examples.row_offsets).tolist()
            columns[ROW_STARTS] = torch.split(torch.from_numpy(examples.row_starts), counts)
        if self._inputs.sentence_label is not None:
            labels = np.where(examples.sop_label < 0, IGNORED, examples.sop_label).astype(np.int64)
            columns[self._inputs.sentence_label] = torch.from_numpy(labels).unbind()
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def collate(self, rows: Sequence[Row]) -> Row:
        """Pad rows to the longest, rounded up to a multiple of 8, and make a batch of them. attention_mask: int64.

        Where no row has a pair, or no token is masked, the batch gets one more row. It has labels of that task only,
        so the mean loss of the other task is that of the given rows. Which row that is depends on the tokens given.

        Rows that `albert-data convert --to parquet` wrote are taken too. Those of `--unmasked` get no labels.

        Packs become one line with the bounds of rows, or padded lines with a mask, as the model computes attention:
        see interop/packed_inputs.py.
        """
        rows = self._complete([row if _LABELS in row else self._adapt(row) for row in rows])
        fills = {_IDS: self._pad_id, _LABELS: IGNORED}
        if self._packs is not None:
            return self._packed.collate(rows, self._pack, {name: fills[name] for name in fills if name in rows[0]})
        lengths = torch.tensor([len(row[_IDS]) for row in rows])
        longest = int(lengths.max())
        padded = max(longest, min(-(-longest // LEN_MULTIPLE) * LEN_MULTIPLE, self._inputs.max_len))
        batch = {}
        for name in rows[0]:
            values = [row[name] for row in rows]
            if name == self._inputs.sentence_label:
                batch[name] = torch.stack(values)
                continue
            fill = fills.get(name, 0)
            batch[name] = F.pad(pad_sequence(values, True, fill), (0, padded - longest), value=fill)
        if self._inputs.has_mask:
            batch[_VALID] = (torch.arange(padded) < lengths[:, None]).long()
        return batch

    def _adapt(self, row: Mapping[str, Any]) -> Row:
        """A converted row or pack, of tensors or lists, as this data set returns it."""
        if (ROW_STARTS in row) != (self._packs is not None):
            raise ConfigError("rows of `convert --pack`, and no others, are collated by ShardDataset(..., pack=)")
        row = {name: torch.as_tensor(row[name]).long() for name in _CONVERTED & row.keys()}
        found, length = {_IDS: row[_IDS]}, len(row[_IDS])
        if "masked_ids" in row:
            found[_LABELS] = torch.full((length,), IGNORED).scatter(0, row["masked_positions"], row["masked_ids"])
        if ROW_STARTS in row:
            return {**found, POSITIONS: number_tokens(row[ROW_STARTS], length) + self._packed.first_position}
        if self._inputs.has_types:
            is_b = row[_TYPES] if _TYPES in row else torch.arange(length) >= row["segment_a_len"] + 2
            found[_TYPES] = is_b.long()
        if self._inputs.sentence_label is not None:
            found[self._inputs.sentence_label] = torch.where(row["sop_label"] < 0, IGNORED, row["sop_label"])
        return found

    def _complete(self, rows: list[Row]) -> list[Row]:
        """Add a row if the loss of a task would be the mean over no label: 0 / 0."""
        tasks = [name for name in (_LABELS, self._inputs.sentence_label) if name in rows[0]]
        lacking = [name for name in tasks if not any(_has_label(row, name) for row in rows)]
        if not lacking:
            return rows
        # The first fitting row from a place on that differs from batch to batch, so that no row is learned by heart.
        begin = sum(int(row[_IDS].sum()) for row in rows)
        for number in range(begin, begin + len(self)):
            found = self[number % len(self)]
            if all(_has_label(found, name) for name in lacking):
                others = {name: torch.full_like(found[name], IGNORED) for name in tasks if name not in lacking}
                return [*rows, {**found, **others}]
        raise ShardError(f"no row of the split has {' and '.join(lacking)}; build the shards from more text")


def _check_mask_prob(mask_prob: float | Sequence[float] | None, epochs: int | None, remask: bool | None) -> list[float]:
    """The shares of the epochs; the last one holds for all later epochs. Empty: that of the build."""
    if mask_prob is None:
        return []
    if remask is False:
        raise ConfigError(f"mask_prob is {mask_prob}, but remask=False keeps the stored masks; leave one of them out")
    shares = mask_prob if isinstance(mask_prob, Sequence) else (mask_prob, mask_prob)
    if len(shares) != 2:
        raise ConfigError(f"mask_prob is {mask_prob}; give one share, or those of the first and the last epoch")
    first, last = shares
    for value in (first, last):
        check_range("mask_prob", value, *MASK_PROB_RANGE)
    if first == last:
        return [first]
    if epochs is None or epochs < 2:
        raise ConfigError(f"mask_prob changes from {first} to {last}, but epochs is {epochs}; give 2 or more")
    return [float(value) for value in np.linspace(first, last, epochs)]


def _share(tensor: Any) -> None:
    tensor.share_memory_()


def _has_label(row: Row, name: str) -> bool:
    return bool((row[name] != IGNORED).any())


def _choose_inputs(model: nn.Module, manifest: Manifest) -> ModelInputs:
    """Return what the model takes. Raises ConfigError if it is not made for the task or for these rows."""
    kind, names, wrong = type(model).__name__, inspect.signature(model.forward).parameters, ""
    sentence_label = next((name for name in _SENTENCE_LABELS if name in names), None)
    is_masked_lm = any(parent.__name__.endswith("ForMaskedLM") for parent in type(model).__mro__)
    if _LABELS not in names or not (is_masked_lm or sentence_label):
        raise ConfigError(
            f"{kind} does not learn from masked rows; give a model such as AlbertForPreTraining, BertForPreTraining or "
            "RobertaForMaskedLM"
        )
    config: Any = model.config
    vocab_size, pad_id = manifest.tokenizer.vocab_size, manifest.tokenizer.pad_id
    max_len, longest = count_positions(model), manifest.config.examples.max_seq_len
    if config.vocab_size < vocab_size:
        wrong = f"has {config.vocab_size:,} pieces, but the shards' tokenizer has {vocab_size:,}; "
        wrong += f"make it with vocab_size={vocab_size}"
    elif config.pad_token_id not in (None, pad_id):
        # A real piece of this id would get no gradient, and RoBERTa would not count it as a position.
        wrong = f"pads with id {config.pad_token_id}, but the shards' <pad> is {pad_id}; "
        wrong += f"make it with pad_token_id={pad_id}"
    elif max_len < longest:
        wrong = f"has positions for {max_len} tokens, but rows of the shards have up to {longest}; "
        wrong += f"make it with more positions, or build the shards with --max-seq-len {max_len}"
    if wrong:
        raise ConfigError(f"the {kind} {wrong}")
    has_types = _TYPES in names and getattr(config, "type_vocab_size", 2) > 1
    return ModelInputs(sentence_label=sentence_label, has_types=has_types, has_mask=_VALID in names, max_len=max_len)
