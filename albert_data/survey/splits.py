"""Which documents are validation: those with split keys below a bound.

The bound follows from the settings, and rows lie in the sorted runs by it. Where too few documents are below it, or all
are, a `Move` changes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from pathlib import Path

import numpy as np

from albert_data.config import MIN_VALIDATION, BuildConfig
from albert_data.errors import InputError
from albert_data.kernels.draws import split_keys, threshold
from albert_data.survey.made import Made
from albert_data.survey.sizes import SplitSizes
from albert_data.survey.sorted_columns import find_keys, map_u64

_KEYS = 2**64


@dataclass(frozen=True, kw_only=True)
class Move:
    """Documents change their split: those of validation are now all with split keys below `bound`.

    In the sorted runs, the rows of those that change lie under `from_split`, and only in `runs`, by their names.
    num_documents: of validation; num_drawn: those that were drawn for it; num_bytes: of the rows of one pass, in a
    mixture and with groups of all passes.
    keys: with groups, the file of the keys of all documents of validation, in place of `bound`.
    """

    seed: int
    bound: int
    from_split: str
    to_split: str
    runs: frozenset[str]
    num_documents: int
    num_drawn: int
    num_bytes: int
    keys: Path | None = None

    def find_rows(self, document_keys: np.ndarray, split: str) -> np.ndarray:
        """Which rows belong to a split: bool."""
        if self.keys is None:
            is_validation = split_keys(np.uint64(self.seed), document_keys) < np.uint64(self.bound)
        else:
            is_validation, _ = find_keys(document_keys, map_u64(self.keys))
        return is_validation if split == "validation" else ~is_validation


def count_wanted(num_documents: int) -> int:
    """How many documents validation gets at least: MIN_VALIDATION, or a tenth of all, or one of several.

    >>> [count_wanted(number) for number in (1, 2, 100, 1000)]
    [0, 1, 10, 30]
    """
    return min(MIN_VALIDATION, num_documents // 10) or int(num_documents > 1)


def is_validation_emptied(made: Made, num_validation: int) -> bool:
    """Whether all that was drawn for validation is dropped. If none follows, training reads it: copies are counted."""
    return not num_validation and made.counts["validation_rows"] > 0


def check_drawn(config: BuildConfig, num_documents: Sequence[int], bits: np.ndarray) -> None:
    """Raise InputError if a given fraction draws no document for validation, or all.

    num_documents: in the order of SPLITS; bits: the least distinct split keys, ascending.
    """
    if not config.validation_fraction or all(num_documents):
        return
    at = min(count_wanted(sum(num_documents)), len(bits) - 1)  # so many split keys would be drawn by default
    drawn, most = int(bits[at - 1]) if at else _KEYS, int(bits[-1])
    rounded = (Context(prec, ROUND_CEILING).create_decimal_from_float((drawn + 1) / _KEYS) for prec in range(2, 18))
    works = next((one for one in map(float, rounded) if one <= 0.5 and drawn < threshold(one) <= most), None)
    what = "all documents, and leaves none for training" if num_documents[1] else "no document for validation"
    other = "" if works is None else f", or pass {works}"
    raise InputError(
        f"--validation-fraction {config.validation_fraction:g} draws {what}; a given share is never adjusted, so leave "
        f"the option out{other}, and give --overwrite"
    )


def find_move(made: Made, sizes: SplitSizes, config: BuildConfig) -> Move | None:
    """The documents that must change their split; None where none must, as with a given fraction.

    Documents with split keys below a bound go to validation. If these are too few, those with the next split keys
    follow until there are MIN_VALIDATION, or a tenth of all, or one. If all are below the bound, validation keeps only
    so many. A lone document goes to training.
    """
    num_train, num_validation = (sample.count() for sample in sizes.samples.values())
    nearest, keys = sizes.nearest, np.unique(sizes.nearest.hashes)
    check_drawn(config, (num_train, num_validation), keys)
    wanted, is_emptied = count_wanted(num_train + num_validation), is_validation_emptied(made, num_validation)
    is_enough = num_train and num_validation >= wanted and not is_emptied
    if config.validation_fraction is not None or is_enough:
        return None
    # The last key has a part if the keys of many documents collide. Those of dropped documents may be below all.
    bound = int(keys[min(wanted, len(keys) - 1)]) if wanted else 0
    to_training = not num_train or not wanted
    runs = made.runs if to_training else (run for run, least in made.least.items() if least < bound)
    return Move(
        seed=config.examples.seed,
        bound=bound,
        from_split="validation" if to_training else "train",
        to_split="train" if to_training else "validation",
        runs=frozenset(runs),
        num_documents=int(np.count_nonzero(keys < bound)),
        num_drawn=num_validation,
        num_bytes=int(nearest.sizes[nearest.hashes < bound].sum()),
    )
