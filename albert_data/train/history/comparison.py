"""What keeps the losses of several runs from being compared: other vocabularies, tasks, rows or masks.

In: the files of the runs. Out: sentences for the terminal, the page of several runs, and JSON. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from albert_data.train.folder import NORMALIZATION_KEY, TOKENIZER_KEY
from albert_data.train.history.figures import RunFigures, number
from albert_data.wording import format_share

_HASH_LEN = 8  # characters of a hash that are shown


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What runs differ in, its value for each run in order, and what can't be compared therefore."""

    what: str
    values: list[str]
    means: str

    def describe(self) -> str:
        return f"{self.what}: {'; '.join(self.values)}. {self.means}"


def find_differences(runs: Sequence[RunFigures]) -> list[Difference]:
    """The differences that forbid comparing figures; none for one run."""
    found = []
    for what, read, means in _CHECKS:
        values = [read(run) for run in runs]
        if len(set(values)) > 1:
            more = _compare_bytes(runs) if read is _read_vocabulary else ""
            found.append(Difference(what=what, values=values, means=means + more))
    return found


def _compare_bytes(runs: Sequence[RunFigures]) -> str:
    """Of the same text, all vocabularies have the same bytes."""
    losses = [number(run.last_validation, "mlm_nats_per_byte") for run in runs]
    known = [f"{loss:.3f}" for loss in losses if loss is not None]
    if len(known) < len(runs):
        return ""
    return f" Losses for a byte of the masked text are comparable if both read the same text: {'; '.join(known)} nats."


def _read_vocabulary(run: RunFigures) -> str:
    identity = run.sections.get("identity", {})
    size, normalization = number(identity, "model's vocab_size") or 0, identity.get(NORMALIZATION_KEY)
    rules = f", {normalization}" if normalization else ""
    return f"{size:,.0f} pieces{rules} ({_shorten(identity.get(TOKENIZER_KEY))})"


def _read_task(run: RunFigures) -> str:
    return run.task.name


def _read_rows(run: RunFigures) -> str:
    rows = number(run.sections.get("config", {}), "eval_rows") or 0
    digest = run.sections.get("identity", {}).get("shards' digest")
    return f"at most {rows:,.0f} of shards {_shorten(digest)}"


def _read_masks(run: RunFigures) -> str:
    first, last = (number(run.sections.get("config", {}), name) for name in ("mask_prob", "last_mask_prob"))
    if first is None:
        return "as built"
    return format_share(first, 0) + ("" if last is None else f" to {format_share(last, 0)}")


def _shorten(value: Any) -> str:
    return str(value)[:_HASH_LEN]


_CHECKS: tuple[tuple[str, Callable[[RunFigures], str], str], ...] = (
    (
        "Vocabulary",
        _read_vocabulary,
        "MLM losses and accuracies can't be compared: longer pieces are harder to guess.",
    ),
    ("Sentence task", _read_task, "The losses and accuracies of the sentence tasks can't be compared."),
    (
        "Validation rows",
        _read_rows,
        "Other rows, or other masks and lengths of rows: differences of the losses say little about the models.",
    ),
    ("Masked in training", _read_masks, "Training losses can't be compared; those of validation can."),
)
