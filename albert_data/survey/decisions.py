"""What must be known of the whole corpus before rows are merged: lists in, `Decisions` out.

A decision is made of the lists that map tasks wrote, by an order that depends on documents alone. It is a number in
`Decisions`, or a document's exception (exceptions.py), by which the merge drops rows. The reader of the lists says
which source a document belongs to (document_lists.py); the merge could not, since a source without a pass over it has
no row to compare with.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from albert_data.config import MIN_VALIDATION, BuildConfig
from albert_data.corpus.fields import name_field
from albert_data.corpus.sources import MixtureSource
from albert_data.errors import InputError
from albert_data.kernels.draws import shuffle_keys, split_keys, threshold
from albert_data.shards.manifest import SPLITS, NearDuplicateEntry
from albert_data.survey.budgets import find_limits
from albert_data.survey.document_lists import VALIDATION_SOURCE, DocumentReader, Listed
from albert_data.survey.exceptions import COPY, COUNTED, LEFT_OUT, ExceptionWriter
from albert_data.survey.forms import find_lost
from albert_data.survey.grouping import Groups
from albert_data.survey.made import DIGESTS, Made
from albert_data.survey.near_duplicates import NearDuplicates
from albert_data.survey.passes import Limits
from albert_data.survey.sizes import SplitSizes, estimate_bytes, measure_rows
from albert_data.survey.sorted_columns import SortedFile, map_u64
from albert_data.survey.splits import Move, find_move
from albert_data.text.wording import count_of


class SourceCounts(NamedTuple):
    """What is used of a source. limit: see `MixtureSource.count_limit`.

    documents: those that belong to the source, each once; tokens: their tokens of text in one pass; used_documents:
    those with a pass; used_tokens: in all passes.
    """

    limit: int
    documents: int
    tokens: int
    used_documents: int
    used_tokens: int


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """What is decided of the whole corpus.

    sizes: about the bytes of each split as Arrow data
    num_validation: documents of validation; of many, about a thousand are counted
    move: the documents that change their split
    limits, used: of sources with passes of their own, and what is used of each; None and empty in other builds
    source_codes: in the order of the manifest's `sources`; empty where the build has one language
    exceptions: the file of the rows that the merge drops; None without any
    counts: of documents, for the manifest; digest: as in `Made`, without the documents that are counted here
    near_duplicates: for the manifest; None where they stay
    """

    sizes: dict[str, int]
    num_validation: int
    move: Move | None
    limits: Limits | None
    used: tuple[SourceCounts, ...]
    source_codes: tuple[int, ...]
    exceptions: SortedFile | None
    counts: Counter[str]
    digest: int
    near_duplicates: NearDuplicateEntry | None


def decide(
    made: Made,
    sources: Sequence[MixtureSource],
    similar: NearDuplicates | None,
    config: BuildConfig,
    folder: Path,
    id_bytes: int,
    *,
    has_validation: bool = False,
) -> Decisions:
    """Decide which rows the merge keeps, and under which split.

    made: of all map tasks, with their lists in `folder`, which gets the files of the decisions
    sources: those that have passes of their own; similar: documents to drop; id_bytes: of a token in a shard
    has_validation: whether there are inputs for validation, whose documents training leaves out
    Raises InputError where a split gets no document, or a mixture uses none.
    """
    _check(made, config, has_validation=has_validation)
    reader = DocumentReader(folder, made.lists, sources, config)
    if made.counts["uncomposed_documents"] and not config.keep_duplicates:
        reader.lost = find_lost(folder, made.lists, by_source=config.alpha is None)
    if similar and similar.file:
        reader.similar = map_u64(folder / similar.file)
    of_sources = find_limits(reader)
    limits = Limits.divide(of_sources) if sources else None
    groups = None if config.text.group_field is None else Groups(reader, limits, id_bytes)
    grouping = groups.decide(made) if groups else None
    torn_groups = groups if grouping and not grouping.move else None
    survey = _Survey(reader, made, limits, torn_groups, id_bytes, has_validation=has_validation)
    if sources or torn_groups or has_validation or reader.lost is not None or reader.similar is not None:
        survey.read()
    if sources and not survey.used_sizes.nearest.count():
        raise InputError("the mixture uses no document; raise the weights or budgets of its sources")
    samples = survey.used_sizes if sources or reader.similar is not None else survey.made_sizes
    move = grouping.move if grouping else find_move(made, samples, config)
    if grouping:
        sizes = _move_bytes(grouping.sizes, move, 1)
    elif sources:
        sizes = _move_bytes(survey.num_bytes, move, 1)
    else:
        num_passes = config.examples.dupe_factor
        sizes = {split: sample.estimate() * num_passes for split, sample in samples.samples.items()}
        sizes = _move_bytes(measure_held(made, id_bytes) if config.keep_duplicates else sizes, move, num_passes)
    if move or has_validation:  # training has rows, however large what is taken from an estimate
        sizes["train"] = max(1, sizes["train"])
    counts, digest = Counter(survey.counts if sources else {}), survey.digest if sources else made.digest
    names = {source.code: source.name for source in sources} or {code: name for name, code in made.sources.items()}
    if similar:
        counts.update(near_duplicate_documents=similar.documents.total(), near_duplicate_tokens=similar.tokens.total())
        digest = digest if sources else (digest - similar.digest) % DIGESTS
    counts["moved_documents"] = max(0, move.num_documents - move.num_drawn) if move else 0
    num_validation = move.num_documents if move else samples.samples["validation"].count()
    used = zip(of_sources, survey.by_source.T.tolist(), strict=True)
    return Decisions(
        sizes=sizes,
        num_validation=grouping.num_validation if grouping else num_validation,
        move=move,
        limits=limits,
        used=tuple(SourceCounts(limit, *numbers) for limit, numbers in used),
        source_codes=tuple(range(len(sources)) if sources else made.sources.values()),
        exceptions=survey.exceptions.finish(),
        counts=counts,
        digest=digest,
        near_duplicates=_describe_similar(similar, names) if similar else None,
    )


def _move_bytes(sizes: dict[str, int], move: Move | None, num_passes: int) -> dict[str, int]:
    """About the bytes of each split after the move. num_passes: that `sizes` has, of one that the move has."""
    if move is None:
        return {**sizes}
    moved = move.num_bytes * num_passes
    return {"train": sum(sizes.values()) - moved, "validation": moved}


def _describe_similar(similar: NearDuplicates, names: dict[int, str]) -> NearDuplicateEntry:
    """names: of the sources, by their codes."""
    sources = {name: similar.documents[code] for code, name in sorted(names.items())}
    return NearDuplicateEntry(sources=sources or None, num_partly_compared=similar.num_partly_compared)


def _check(made: Made, config: BuildConfig, *, has_validation: bool) -> None:
    group, id = config.text.group_field, config.text.id_field
    found = {"a group": (group, made.counts["grouped_documents"]), "an id": (id, id in made.damage.matched)}
    for what, (name, is_there) in found.items():
        if name is not None and not is_there:
            raise InputError(
                f"no record has the field {name_field(name)} with {what} in it; pass --{what.split()[1]}-field NAME "
                "with the one that names it, or leave it out"
            )
    for split, what in (("train", "training"), ("validation", "validation")):
        if has_validation and not made.counts[f"{split}_rows"]:
            raise InputError(f"no document of the {what} inputs gives a token; give files with text in them")


def measure_held(made: Made, id_bytes: int) -> dict[str, int]:
    """How many bytes of Arrow data the rows of each split in all sorted runs make, copies included."""
    held = {}
    for split in SPLITS:
        rows, tokens, masked = (made.counts[f"{split}_{what}"] for what in ("rows", "tokens", "masked"))
        held[split] = int(measure_rows(rows, tokens, masked, id_bytes))
    return held


class _Survey:
    """One reading of all lists: counts what is used, and lists the exceptions.

    made_sizes: those of the rows that were made, without what training leaves out; used_sizes: by the tokens of what is
    used, with its passes where sources have their own. num_bytes: of each split, all passes; digest: see `Decisions`
    by_source: int64 [4, sources], as in `SourceCounts`
    """

    def __init__(
        self,
        reader: DocumentReader,
        made: Made,
        limits: Limits | None,
        torn_groups: Groups | None,
        id_bytes: int,
        *,
        has_validation: bool,
    ) -> None:
        """torn_groups: None where no group is torn between the splits."""
        self._reader, self._config, self._limits, self._id_bytes = reader, reader.config, limits, id_bytes
        self._torn_groups, self._has_validation = torn_groups, has_validation
        self.made_sizes, self.used_sizes = copy.deepcopy(made.sizes), SplitSizes()
        self.num_bytes, self.digest = dict.fromkeys(SPLITS, 0), 0
        self.by_source, self.counts = np.zeros((4, len(reader.sources)), np.int64), Counter[str]()
        self.exceptions = ExceptionWriter(reader.folder)

    def read(self) -> None:
        for listed in self._reader.read():
            self._count(listed)
            self._list_exceptions(listed)

    def _count(self, listed: Listed) -> None:
        own, config = listed.is_own, self._config
        copied_tokens = int(listed.tokens[~own].sum())
        self.counts.update(duplicate_documents=int(np.count_nonzero(~own)), duplicate_tokens=copied_tokens)
        own = own & ~listed.is_similar
        keys, sources, tokens = listed.keys[own], listed.sources[own], listed.tokens[own]
        passes = np.ones(len(keys), np.int64)
        if self._limits is not None:
            passes = self._limits.count_passes(sources, config.examples.seed, keys).astype(np.int64)
            for counts, values in zip(self.by_source, (1, tokens, passes > 0, tokens * passes), strict=True):
                np.add.at(counts, sources, values)
        used = passes > 0
        keys, sources, tokens = keys[used], sources[used], tokens[used]
        sizes = estimate_bytes(tokens, passes[used], config.examples, self._id_bytes)
        bits = split_keys(np.uint64(config.examples.seed), keys)
        is_validation = bits < threshold(config.drawn_fraction)
        if self._has_validation:
            is_validation = sources == VALIDATION_SOURCE
        for split, is_here in zip(SPLITS, (~is_validation, is_validation), strict=True):
            self.num_bytes[split] += int(sizes[is_here].sum())
        self.digest = (self.digest + int(keys.sum(dtype=np.uint64))) % DIGESTS
        self.used_sizes.add_documents(is_validation, bits, bits, sizes)

    def _list_exceptions(self, listed: Listed) -> None:
        is_out, is_torn = listed.is_similar, np.zeros(len(listed.keys), bool)
        if self._limits is not None:
            is_out = is_out | listed.is_foreign
        if self._torn_groups is not None:
            is_torn = self._torn_groups.find_torn(listed)
        reasons = np.where(listed.is_lost, COPY, np.where(is_out, COUNTED, 0)).astype(np.uint64)
        of_train = np.where(is_torn, COPY, reasons).astype(np.uint64)
        if self._has_validation:
            is_given = np.isin(listed.keys, listed.keys[listed.sources == VALIDATION_SOURCE])
            of_train[is_given & (of_train != COPY)] = LEFT_OUT
            self._leave_out(np.unique(listed.keys[is_given]))
        sources = 0 if self._limits is None else listed.sources
        self.exceptions.add(listed.keys, sources, listed.forms, {"train": of_train, "validation": reasons})

    def _leave_out(self, keys: np.ndarray) -> None:
        """Count no bytes of these documents for training."""
        first_rows = shuffle_keys(np.uint64(self._config.examples.seed), keys, 0, np.zeros(len(keys), np.uint32))
        self.made_sizes.samples["train"].leave_out(first_rows)


def describe_validation(decisions: Decisions, *, has_validation: bool) -> list[str]:
    """A line if validation has few documents."""
    if not 0 < decisions.num_validation < MIN_VALIDATION:
        return []
    more = "" if has_validation else ", a larger --validation-fraction, or text of your own by --validation"
    return [
        f"validation: {count_of(decisions.num_validation, 'document')}, fewer than {MIN_VALIDATION}, so its figures "
        f"are rough; use more documents{more}"
    ]
