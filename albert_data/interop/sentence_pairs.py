"""Pairs of a good and a bad sentence, and how many of them a model gets right. Imports no torch.

In: lines of JSON, `{"good": "The cats sleep.", "bad": "The cats sleeps.", "group": "agreement"}`. Out: SentencePair;
and from the scores of both sentences, the accuracy of each group. A pair is right if the good sentence has the higher
score; equal scores count as wrong.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from albert_data.errors import InputError
from albert_data.text.wording import format_share
from albert_data.train.config import TrainConfig
from albert_data.train.reading import explain

NO_GROUP = "all"  # the group of a pair that names none
_MAX_LINE = 1 << 20
_FIELDS = "each line needs the texts good and bad, and may have a group"


@dataclass(frozen=True, kw_only=True)
class ScoreConfig:
    """How to compute scores; it changes them by rounding only.

    batch_tokens: tokens that the model computes at once. On a CPU 1,024 is a fifth faster than 4,096 or 16,384 (preset
    tiny); a GPU needs large batches.
    """

    batch_tokens: int = 8192
    device: str = "auto"
    precision: str = "auto"

    def __post_init__(self) -> None:  # the rules for these settings are those of training
        TrainConfig(batch_tokens=self.batch_tokens, device=self.device, precision=self.precision)


@dataclass(frozen=True, kw_only=True)
class SentencePair:
    """origin: the file and line, for messages."""

    good: str
    bad: str
    group: str = NO_GROUP
    origin: str = ""


class _Line(msgspec.Struct):
    good: str
    bad: str
    group: str | None = None


_DECODER = msgspec.json.Decoder(_Line)


def read_pairs(path: str) -> list[SentencePair]:
    """Read a file of JSON lines. Blank lines are skipped.

    Raises InputError with file and line for a line without two sentences and for one over 1 MiB, and for a file without
    pairs.
    """
    pairs = list[SentencePair]()
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(iter(partial(file.readline, _MAX_LINE + 1), b""), 1):
                origin = f"{path}, line {number}"
                if len(line) > _MAX_LINE:
                    raise InputError(f"{origin} has over {_MAX_LINE:,} bytes; {_FIELDS}")
                if not line.isspace():
                    pairs.append(_parse_pair(line.removeprefix(codecs.BOM_UTF8) if number == 1 else line, origin))
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}; name a file of pairs (.jsonl)") from error
    if not pairs:
        raise InputError(f"{path} holds no pairs; {_FIELDS}")
    return pairs


def _parse_pair(text: bytes, origin: str) -> SentencePair:
    try:
        line = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{origin}: {explain(error)}; {_FIELDS}") from error
    group = NO_GROUP if line.group is None else line.group
    for field, value in (("good", line.good), ("bad", line.bad), ("group", group)):
        if not value.strip():
            raise InputError(f"{origin}: {field} is empty; {_FIELDS}")
    return SentencePair(good=line.good, bad=line.bad, group=group, origin=origin)


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Of how many pairs how many are right."""

    num_pairs: int
    num_right: int

    @property
    def share(self) -> float:
        return self.num_right / self.num_pairs

    @property
    def standard_error(self) -> float:
        """That of a share of independent pairs."""
        return math.sqrt(self.share * (1 - self.share) / self.num_pairs)

    def to_dict(self) -> dict[str, Any]:
        values = {"pairs": self.num_pairs, "right": self.num_right, "accuracy": self.share}
        return {**values, "standard_error": self.standard_error}


@dataclass(frozen=True, kw_only=True)
class ScoredPairs:
    """The scores of both sentences of each pair.

    good_scores, bad_scores: in nats, sums of log probabilities, below 0.
    num_sentences: distinct ones.
    num_pieces: scored pieces of all distinct sentences, each a forward pass of its sentence.
    seconds: of the passes.
    model: the folder that the weights are from.
    """

    pairs: Sequence[SentencePair]
    good_scores: list[float]
    bad_scores: list[float]
    num_sentences: int
    num_pieces: int
    seconds: float
    model: Path | None = None

    def __repr__(self) -> str:
        overall = self.overall
        return (
            f"ScoredPairs({overall.num_right:,} of {overall.num_pairs:,} pairs right, {format_share(overall.share, 1)})"
        )

    @property
    def is_right(self) -> list[bool]:
        return [good > bad for good, bad in zip(self.good_scores, self.bad_scores, strict=True)]

    @property
    def overall(self) -> Accuracy:
        return Accuracy(num_pairs=len(self.pairs), num_right=sum(self.is_right))

    def groups(self) -> dict[str, Accuracy]:
        """The accuracy of each group, in the order in which the groups first appear."""
        results: dict[str, list[bool]] = {}
        for pair, is_right in zip(self.pairs, self.is_right, strict=True):
            results.setdefault(pair.group, []).append(is_right)
        return {name: Accuracy(num_pairs=len(found), num_right=sum(found)) for name, found in results.items()}

    def mean_of_groups(self) -> tuple[float, float]:
        """The mean over groups, each with the same weight, and its standard error."""
        groups = self.groups().values()
        mean = sum(group.share for group in groups) / len(groups)
        return mean, math.sqrt(sum(group.standard_error**2 for group in groups)) / len(groups)

    def to_dict(self) -> dict[str, Any]:
        mean, standard_error = self.mean_of_groups()
        return {
            **({} if self.model is None else {"model": str(self.model)}),
            **self.overall.to_dict(),
            "mean_of_groups": {"accuracy": mean, "standard_error": standard_error},
            "groups": {name: group.to_dict() for name, group in self.groups().items()},
        }

    def to_records(self) -> Iterator[dict[str, Any]]:
        """Each pair with its two scores."""
        for pair, good_score, bad_score in zip(self.pairs, self.good_scores, self.bad_scores, strict=True):
            sentences = {"good": pair.good, "bad": pair.bad, "group": pair.group}
            yield {**sentences, "good_score": good_score, "bad_score": bad_score}
