"""The sources of a mixture, as build and manifest see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from albert_data.config import BuildConfig, check_range, swap_documents
from albert_data.corpus.inputs import STDIN, Input
from albert_data.corpus.mixtures import TEXT_KEYS
from albert_data.corpus.sources import MAX_PASSES, ONE_PASS, MixtureSource
from albert_data.errors import ConfigError, InputError
from albert_data.shards.manifest import SourceEntry
from albert_data.survey.benchmarks import count_contaminated
from albert_data.survey.decisions import SourceCounts
from albert_data.survey.made import Made
from albert_data.text.languages import choose_rules
from albert_data.text.wording import count_of, format_share

_SHOWN = 20  # sources


def list_sources(inputs: Sequence[Input]) -> list[MixtureSource]:
    """The sources of all inputs in their order; none if the inputs are of no mixture."""
    found = {item.source.number: item.source for item in inputs if item.source is not None}
    return [found[number] for number in sorted(found)]


def describe_sources(inputs: Sequence[Input]) -> tuple[SourceEntry, ...] | None:
    """The sources for plan and manifest; None if the inputs are of no mixture."""
    counts = Counter(item.source.number for item in inputs if item.source is not None)
    entries = tuple(describe_source(source, counts[source.number]) for source in list_sources(inputs))
    return entries or None


def describe_source(source: MixtureSource, num_inputs: int = 0) -> SourceEntry:
    written = swap_documents(vars(source.text))
    return SourceEntry(
        name=source.name,
        paths=source.paths,
        num_inputs=num_inputs,
        weight=1.0 if (source.weight, source.tokens, source.alpha) == (None, None, None) else source.weight,
        tokens=source.tokens,
        alpha=source.alpha,
        max_passes=None if source.alpha is None else source.max_passes,
        **{key: written[key] for key in TEXT_KEYS},
    )


def list_languages(config: BuildConfig, names: Iterable[str]) -> list[MixtureSource]:
    """The languages that share the text by alpha, as sources in the order of their names."""
    return [
        MixtureSource(
            number=number,
            name=name,
            paths=(),
            text=replace(config.text, language=choose_rules(name)),
            alpha=config.alpha,
            max_passes=config.max_passes,
        )
        for number, name in enumerate(sorted(names))
    ]


def check_alpha(inputs: Sequence[Input], config: BuildConfig) -> None:
    """Raise ConfigError or InputError where languages can't have shares by size."""
    if config.alpha is None:
        return
    if config.text.language_field is None and not any(item.language for item in inputs):
        raise ConfigError(
            f"alpha is {config.alpha:g}, but neither --language-field nor an INPUT:LANGUAGE names languages; give one, "
            "or in a mixture write alpha into its file"
        )
    check_range("max_passes", config.max_passes, 1, MAX_PASSES // config.examples.dupe_factor)
    if any(item.is_validation for item in inputs):
        raise ConfigError("--alpha is for a build that draws its validation documents; leave out --validation")
    if streams := [item.path for item in inputs if item.is_stream]:
        name = "stdin" if streams[0] == STDIN else streams[0]
        raise InputError(f"--alpha reads the corpus twice, and {name} can be read only once; give files")


def check_passes(sources: Sequence[MixtureSource], config: BuildConfig) -> None:
    """Raise ConfigError if weight and --dupe-factor together give too many passes."""
    dupe_factor = config.examples.dupe_factor
    for source in sources:
        if source.count_limit(dupe_factor) > MAX_PASSES * ONE_PASS:
            raise ConfigError(
                f"source {source.name!r} has the weight {source.count_limit(1) / ONE_PASS:g}, times dupe_factor "
                f"{dupe_factor}; at most {MAX_PASSES:,} passes are allowed"
            )


def check_lists(sources: Sequence[MixtureSource], made: Made) -> None:
    """Raise InputError if a source has no document with a token: its settings are mostly wrong then."""
    listed = {item.source for item in made.lists}
    for source in sources:
        if source.number not in listed and not made.counts[count_contaminated(source)]:
            fields = f"; {made.damage.fields.describe()}" if made.damage.fields.describe() else ""
            raise InputError(
                f"source {source.name!r} of the mixture holds no document with a token{fields}; "
                "check its paths, its text_field, and --where, --min-chars and --sample"
            )


def describe_shares(sources: Sequence[MixtureSource], used: Sequence[SourceCounts]) -> list[str]:
    """How many tokens the sources give by alpha, and a line for each of those with the most."""
    total = sum(counts.used_tokens for counts in used)
    found = [one for one in zip(sources, used, strict=True) if one[0].alpha is not None]
    if others := sorted(found, key=lambda one: -one[1].used_tokens)[_SHOWN:]:
        found = [one for one in found if one not in others]
    shares = [
        f"  {source.name}: {format_share(counts.used_tokens / total)}, {counts.limit / ONE_PASS:.3g} passes over "
        f"{count_of(counts.tokens, 'token')}"
        for source, counts in found
    ]
    if others:
        share = format_share(sum(counts.used_tokens for _, counts in others) / total)
        shares.append(f"  {count_of(len(others), 'other')}: {share}; the manifest has all")
    return [f"by alpha the sources give {count_of(total, 'token')} of text:", *shares]


def describe_budgets(sources: Sequence[MixtureSource], used: Sequence[SourceCounts]) -> list[str]:
    """A line for each source that has fewer tokens than its budget."""
    return [
        f"source {source.name} has {count_of(counts.tokens, 'token')} of text, fewer than its budget of "
        f"{source.tokens:,}: all of it is used"
        for source, counts in zip(sources, used, strict=True)
        if source.tokens is not None and counts.tokens < source.tokens
    ]
