"""manifest.json: what a shard folder holds, where it came from, and the proof that it is finished.

The classes are the format: docs/reference/format.md says what each key means. A field is a key of the same name, and
None where the file lacks it; only a BuildConfig is flat in the file: one object with the settings of all its classes.
manifest_file.py reads the file.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any, Self

import msgspec

from albert_data.config import AS_IS, AUTO, LATER, BuildConfig, TextConfig, swap_documents
from albert_data.errors import AlbertDataError, ShardError
from albert_data.rules import RULES_VERSION
from albert_data.shards.schema import FORMAT_VERSION, Count, ShardReceipt, Totals
from albert_data.text.languages import choose_rules, is_source_name

MANIFEST_NAME = "manifest.json"
FORMAT_NAME = "albert-data"
# Settings that a manifest may lack, because its build knew none: they have their defaults. A new one comes here.
YOUNGER = {"document_separator", "min_chars", "exclude", "sample", "header", "format"}
SEAL = "manifest_sha256"
SPLITS = ("train", "validation")
SplitName = Annotated[str, msgspec.Meta(pattern=rf"^({'|'.join(SPLITS)})\Z")]
_SUMMARY = (
    *("format", "format_version", "albert_data_version", "rules_version", "config", "tokenizer", "counts", "damage"),
    *("splits", "mixture", "damaged_inputs", "removed", "digest"),
)


@dataclass(frozen=True, kw_only=True)
class Versions:
    """What made a build, besides its config (see rules.py)."""

    rules_version: int
    unicode_version: str
    libraries: Mapping[str, str]

    def __post_init__(self) -> None:
        if not 1 <= self.rules_version <= RULES_VERSION:
            raise ShardError(
                f"rules_version is {self.rules_version}; allowed are 1 to {RULES_VERSION}: use the version of "
                "albert-data that built it, or a newer one"
            )

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Self:
        """Values of JSON in any state. Unknown keys are no fault, and null is a missing key where one may be missing.

        `vars` of what is made lacks the fields that took their default. Raises ShardError, naming the first key that is
        missing, or whose value is of another type or out of range.
        """
        if cls is Manifest and isinstance(config := values.get("config"), dict):
            values = {**values, "config": _read_config(config)}
        try:
            return msgspec.convert(values, cls)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:  # of a key with half of a surrogate pair
            raise ShardError(str(error)) from error

    def to_values(self) -> dict[str, Any]:
        """The values as JSON has them."""
        values: dict[str, Any] = to_value(self)
        return values


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """A file of the folder, by its path inside it."""

    file: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class TokenizerEntry(FileEntry):
    vocab_size: Count
    pad_id: Count
    unk_id: Count
    cls_id: Count
    sep_id: Count
    mask_id: Count
    normalization: str | None = None
    added: tuple[FileEntry, ...] | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name.endswith("_id") and value >= self.vocab_size:
                raise ShardError(f"{name} is {value}; allowed are ids below vocab_size, {self.vocab_size}")


@dataclass(frozen=True, kw_only=True)
class InputEntry:
    """An input of the build. path: as found below the name that the user gave."""

    path: str
    bytes: Count
    modified_ns: int
    language: str | None = None
    split: str | None = None
    encoding: str | None = None


@dataclass(frozen=True, kw_only=True)
class SourceEntry:
    """A source of a mixture, or a language that has a share by alpha, with the settings that it has in the end.

    num_inputs: the inputs of the build are listed source by source
    language .. format: as in TextConfig
    """

    name: str
    paths: tuple[str, ...]
    num_inputs: Count
    weight: float | None = None
    tokens: Count | None = None
    alpha: float | None = None
    max_passes: float | None = None
    language: str
    text_field: str
    documents: str
    document_separator: str | None = None
    sentences: str
    unwrap: bool
    encoding: str | None = None
    unicode: str = AS_IS
    where: str | None = None
    min_chars: Count | None = None
    exclude: str | None = None
    delimiter: str = AUTO
    quoting: str = AUTO
    header: bool = True
    format: str = AUTO


@dataclass(frozen=True, kw_only=True)
class MixedSource(SourceEntry):
    """A source, and what was made of it."""

    num_documents: Count
    num_tokens: Count
    passes: float
    num_used_documents: Count
    num_used_tokens: Count


@dataclass(frozen=True, kw_only=True)
class Plan(Versions):
    """All that decides what a build makes: a build resumes another one only if both have the same plan.

    version: of albert-data
    config: each setting by its name
    tokenizer: {"sha256": ...} of a given one, with its "normalization" if it has one, its "file" if that is not
        spiece.model, and the hash of its "words" if it has a list; {"trained": settings} if the build trains one first
    mixture: its sources, None for other builds
    hub: the commit of each name on the Hugging Face Hub, None where there is none
    """

    version: str
    config: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    inputs: tuple[InputEntry, ...]
    mixture: tuple[SourceEntry, ...] | None = None
    hub: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Counts of the corpus in one pass, copies included."""

    documents: Count
    sentences: Count
    text_bytes: Count
    tokens: Count
    inner_lines: Count
    wrapped_lines: Count
    short_documents: Count
    uncomposed_documents: Count | None = None
    duplicate_documents: Count | None = None
    duplicate_tokens: Count | None = None
    left_out_documents: Count | None = None
    left_out_tokens: Count | None = None
    near_duplicate_documents: Count | None = None
    near_duplicate_tokens: Count | None = None
    contaminated_documents: Count | None = None
    moved_documents: Count | None = None


@dataclass(frozen=True, kw_only=True)
class NearDuplicateEntry:
    """sources: how many documents of each were dropped. num_partly_compared: of those that stayed."""

    sources: Mapping[str, Count] | None = None
    num_partly_compared: Count = 0


@dataclass(frozen=True, kw_only=True)
class DamagedInput:
    """An input without documents, or with damage. fields: of its records, the most frequent first."""

    path: str
    num_documents: Count
    damage: Mapping[str, Count]
    fields: tuple[str, ...] = ()
    lost_share: float | None = None


@dataclass(frozen=True, kw_only=True)
class DamagedInputs:
    """How many inputs gave no document, had damage, or gave documents and lost much; and the worst of them."""

    num_without_documents: Count
    num_damaged: Count
    num_losing: Count | None = None
    worst: tuple[DamagedInput, ...]


@dataclass(frozen=True, kw_only=True)
class RemovedEntry:
    """Lines that were removed for one reason, copies of documents included. num_bytes: of their text."""

    num_lines: Count
    num_bytes: Count


@dataclass(frozen=True, kw_only=True)
class SkippedEntry:
    """Files and folders that the names of the inputs led to, and that are not read for one reason. paths: the first."""

    num_paths: Count
    paths: tuple[str, ...]


TOTALS = tuple(field.name for field in dataclasses.fields(Totals))


@dataclass(frozen=True, kw_only=True)
class ShardEntry(ShardReceipt):
    file: str


@dataclass(frozen=True, kw_only=True)
class SplitEntry(Totals):
    shards: tuple[ShardEntry, ...]

    @property
    def num_bytes(self) -> int:
        return sum(shard.num_bytes for shard in self.shards)


@dataclass(frozen=True, kw_only=True)
class Manifest(Versions):
    """All that is known about a build. skipped, license, language_named: no part of the plan."""

    format: str = FORMAT_NAME
    format_version: int = FORMAT_VERSION
    albert_data_version: str
    config: BuildConfig
    ngram_shares: tuple[float, ...]
    tokenizer: TokenizerEntry
    inputs: tuple[InputEntry, ...]
    plan: Plan
    documents_digest: str
    counts: Counts
    damage: Mapping[str, Count]
    damaged_inputs: DamagedInputs | None = None
    removed: Mapping[str, RemovedEntry] | None = None
    skipped: Mapping[str, SkippedEntry] | None = None
    splits: Mapping[SplitName, SplitEntry]
    digest: str
    sources: tuple[str, ...] | None = None
    words: FileEntry | None = None
    ids: tuple[FileEntry, ...] | None = None
    mixture: tuple[MixedSource, ...] | None = None
    unused_separators: tuple[str, ...] | None = None
    near_duplicates: NearDuplicateEntry | None = None
    label_names: tuple[str, ...] | None = None
    source_tokens: tuple[Count, ...] | None = None
    license: str | None = None
    language_named: bool | None = None
    card: FileEntry | None = None
    manifest_sha256: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.sources or ():
            if not is_source_name(name):
                raise ShardError(f"sources holds {name!a:.80}, which is no name of a source; build anew")
        if self.mixture is not None and self.sources != tuple(source.name for source in self.mixture):
            raise ShardError("mixture names other sources than `sources`; both must have the same names in one order")

    def to_summary(self) -> dict[str, Any]:
        """What `inspect --json` and `build --json` say of a build: the values that do not grow with its files."""
        values = self.to_values()
        splits = {
            name: {key: value for key, value in split.items() if key != "shards"} | {"num_shards": len(split["shards"])}
            for name, split in values["splits"].items()
        }
        return {key: splits if key == "splits" else values[key] for key in _SUMMARY if key in values}

    def seal(self) -> Manifest:
        """The same manifest, with the hash of all its other values."""
        return dataclasses.replace(self, manifest_sha256=hash_manifest(self.to_values()))

    @property
    def optional_columns(self) -> dict[str, bool]:
        """Which of the columns that only some shards have are in these, as `shard_schema` takes it."""
        return {"has_source": self.sources is not None, "has_key_b": self.config.examples.task.has_random}

    def find_text_config(self, source: int | None) -> TextConfig:
        """How the text of a row was read. source: of the row."""
        if source is None or self.sources is None:
            return self.config.text
        if self.mixture is None:
            return dataclasses.replace(self.config.text, language=choose_rules(self.sources[source]))
        entry = self.mixture[source]
        return dataclasses.replace(self.config.text, language=choose_rules(entry.language), sentences=entry.sentences)

    @property
    def shards(self) -> list[ShardEntry]:
        """The shards of all splits, in the order of SPLITS."""
        return [shard for name in SPLITS if name in self.splits for shard in self.splits[name].shards]


def _read_config(settings: Mapping[str, Any]) -> BuildConfig:
    """The config of a flat object, which holds every setting that format version 2 had at first."""
    try:
        younger = {*YOUNGER, *LATER}
        names = {*BuildConfig().to_flat_dict()} - younger | settings.keys() & younger
        return BuildConfig.from_settings(**swap_documents({name: settings[name] for name in names}))
    except KeyError as error:
        raise ShardError(f"config.{error.args[0]} is missing") from error
    except AlbertDataError as error:
        raise ShardError(f"config.{error}") from error


def to_value(value: Any) -> Any:
    """The JSON value of an object; a field that is None is not written."""
    if isinstance(value, BuildConfig):
        return value.to_flat_dict()
    if dataclasses.is_dataclass(value):
        found = ((name, getattr(value, name)) for name in value.__dataclass_fields__)
        return {name: to_value(item) for name, item in found if item is not None}
    if isinstance(value, Mapping):
        return {name: to_value(item) for name, item in value.items()}
    return [to_value(item) for item in value] if isinstance(value, tuple) else value


def hash_manifest(values: Mapping[str, Any]) -> str:
    """SHA-256 of all values of a file except the seal. Indentation and the order of keys do not matter."""
    others = {key: value for key, value in values.items() if key != SEAL}
    return sha256(json.dumps(others, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def hash_content(sha256s: Iterable[str]) -> str:
    """SHA-256 over the hashes of a build's shards, in the order of `Manifest.shards`: it identifies the content."""
    return sha256("".join(sha256s).encode()).hexdigest()
