"""Sums over steps, the figures computed from them, and the file with the figures.

The sums stay on the device and are read only when a line is due, so that a GPU does not wait at each step.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from albert_data.runs.figures import parse_line, read_lines, split_lines
from albert_data.storage.files import write_bytes
from albert_data.train.batch import NO_LABEL, Batch
from albert_data.train.device import Ranks
from albert_data.train.model import Output
from albert_data.train.reading import FREE_SPACE, explain_writing

Figures = dict[str, float | None]


@torch.no_grad()
def measure(output: Output, batch: Batch) -> Tensor:
    """Return float64 [6]: MLM nats, masked tokens, MLM hits, SOP nats, rows with a SOP label, SOP hits."""
    labels_N, labels_B, logits_BK = batch.masked_labels_N, batch.sop_labels_B, output.sop_logits_BK
    sums = (
        output.mlm_nats,
        (labels_N != NO_LABEL).sum(),
        (output.mlm_logits_NV.max(-1).indices == labels_N).sum(),  # argmax of bfloat16 takes a CPU six times as long
        output.sop_nats,
        (labels_B != NO_LABEL).sum(),
        labels_B.new_zeros(()) if logits_BK is None else (logits_BK.max(-1).indices == labels_B).sum(),
    )
    return torch.stack([figure.double() for figure in sums])


def figures(sums: Sequence[float]) -> Figures:
    """Return means over what was measured; None where nothing was measured."""
    found: Figures = {}
    for head, (nats, count, hits) in (("mlm", sums[:3]), ("sop", (sums[3], sums[4], sums[5]))):
        found |= {f"{head}_loss": nats / count if count else None, f"{head}_accuracy": hits / count if count else None}
    return found


class Tally:
    """The sums of one rank since the last line of metrics, or since the run resumed.

    num_tokens, num_cells: int, tokens of real rows, and cells with padding.
    num_flops: int, of the model.
    seconds: float, between the updates' beginnings, without evaluations and checkpoints.
    On the device: the six sums of `measure`; the updates that were skipped, and how many of the newest in a row.
    """

    def __init__(self, device: torch.device) -> None:
        self._sums_F = torch.zeros(6, dtype=torch.float64, device=device)
        self._num_skipped = torch.zeros((), dtype=torch.int64, device=device)
        self._num_in_row = torch.zeros_like(self._num_skipped)
        self.begin_line()

    def begin_line(self) -> None:
        """Set all to 0, except the number of skipped updates in a row: such a row may go on over several lines."""
        self._sums_F.zero_()
        self._num_skipped.zero_()
        self.num_tokens, self.num_cells, self.num_flops, self.seconds = 0, 0, 0, 0.0

    def add(self, sums_F: Tensor) -> None:
        """Add what `measure` returned for a batch, except sums of which one is not finite: it would spoil a line."""
        self._sums_F += torch.where(sums_F.isfinite().all(), sums_F, 0.0)

    def count(self, batch: Batch) -> None:
        self.num_tokens += batch.num_tokens
        self.num_cells += batch.input_ids_BT.numel()

    def count_update(self, gradient_norm: Tensor) -> None:
        """Count an update, which is skipped if this norm is not finite. Does not wait for the device."""
        is_skipped = ~gradient_norm.isfinite()
        self._num_skipped += is_skipped
        self._num_in_row.copy_(torch.where(is_skipped, self._num_in_row + 1, 0))

    def read(self, ranks: Ranks) -> Figures:
        """Return the figures of the interval over all ranks. Waits for the device."""
        return figures(ranks.sum(self._sums_F.tolist()))

    def num_skipped(self) -> int:
        """The updates since the last line that were skipped. Waits for the device."""
        return int(self._num_skipped.item())

    def num_in_row(self) -> int:
        """The newest updates that were all skipped, in a row. Waits for the device."""
        return int(self._num_in_row.item())


class MetricsFile:
    """metrics.jsonl: a JSON object per line, each with `step` and `split`, "train" or "validation".

    A resumed run writes the lines after `keep_until_step` again. The old ones are removed when its first new line is
    written, so a run that fails before that keeps them.
    """

    def __init__(self, path: Path, *, keep_until_step: int) -> None:
        """Raises CheckpointError for what is no regular file, and for lines that are no metrics."""
        read_lines(path)
        self._path = path
        self._keep_until_step: int | None = keep_until_step

    def has_validation(self, step: int, *, is_final: bool) -> bool:
        """Whether a validation of this step is there. is_final: the last of a run, with the baseline beside it.

        Without labels, mlm_loss is None and there is no baseline.
        """
        found = [one for one in read_lines(self._path) if one["split"] == "validation" and one["step"] == step]
        return any(not is_final or "unigram_loss" in line or line.get("mlm_loss") is None for line in found)

    def write(self, **line: Any) -> None:
        """Raises OutputError on a full disk."""
        text = (json.dumps(line, allow_nan=False) + "\n").encode()
        with explain_writing(f"{self._path}: can't write the metrics", FREE_SPACE):
            if self._keep_until_step is None:
                with self._path.open("ab") as file:
                    file.write(text)
            else:
                read_lines(self._path)  # what was added meanwhile may be no line of metrics
                lines = ((one, parse_line(one)) for one in split_lines(self._path))
                kept = [one + b"\n" for one, line in lines if line and line["step"] <= self._keep_until_step]
                write_bytes(self._path, b"".join((*kept, text)))
                self._keep_until_step = None
