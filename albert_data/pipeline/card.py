"""The dataset card: README.md in OUT, which describes the folder in words and in metadata for the Hugging Face Hub.

Source of the metadata: huggingface.co/docs/hub/datasets-cards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from albert_data.corpus.damage import REASONS
from albert_data.errors import ConfigError
from albert_data.escaping import escape_marks, to_yaml
from albert_data.languages import is_language, list_languages
from albert_data.shards.manifest import Manifest
from albert_data.shards.text_facts import describe_text, is_language_named, list_codes
from albert_data.wording import count_of, format_share, list_some

CARD_NAME = "README.md"
# What of the corpus is not in the rows, by its count in the manifest.
_DROPPED = {
    "duplicate_documents": "equal to another document; of each text one is kept",
    "near_duplicate_documents": "similar to another document, which is kept",
    "left_out_documents": "training documents that validation has too",
    "contaminated_documents": "they contain text of a source of weight 0; counted nowhere else",
}
_CARD = """\
---
{metadata}
---
# ALBERT pretraining shards

Made by albert-data {version}: {documents:,} documents, {text_mb:,.1f} MB of text, {tokens:,} tokens.

{facts}

{splits}

Each row is one example, `[CLS] {segments} [SEP]` of at most {max_seq_len} tokens; "full" says how much of
that the rows fill.

| column | type | meaning |
|---|---|---|
| `input_ids` | list of {id_type} | the row, its masks applied |
| `segment_a_len` | int32 | tokens of segment A, without [CLS] and [SEP] |
| `sop_label` | int8 | {labels}-1 no second segment |
| `masked_positions` | list of uint16 | positions to predict, counted from [CLS] |
| `masked_ids` | list of {id_type} | what stood there |
| `document_key` | uint64 | the document that the row was cut from |
{source}{key_b}
Of the maskable tokens {mask_percent:g} % are masked, {spans}.

    from albert_data import open_shards
    for example in open_shards("."):
        print(example.input_ids)
{sources}
## What was dropped or repaired

{dropped}

`manifest.json` holds the settings, counts and hashes; `albert-data verify` checks them.
"""
_KEY_B = "| `document_key_b` | uint64 | the document of segment B; another one where the label is random |\n"
_SOURCE = "| `source` | uint16 | the document's {}, counted from 0: {} |\n"
_MIXTURE = "The documents are of a mixture of sources; a document in several is used as one of the first.\n\n"
_SIZES = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")
_MAX_LICENSE = 200  # characters
_SHOWN = 10  # languages; the metadata has all


def check_license(license: str | None) -> None:
    """Raise ConfigError for a licence that a card can't show in one line."""
    if license is not None and not (0 < len(license.strip()) <= len(license) <= _MAX_LICENSE and license.isprintable()):
        raise ConfigError(
            f"license is {license!a:.80}; give 1 to {_MAX_LICENSE} characters in one line, such as cc0-1.0 or "
            "'free for research, see https://example.org/terms'"
        )


def make_card(manifest: Manifest) -> bytes:
    """The bytes of README.md for a build with this manifest."""
    examples = manifest.config.examples
    text = _CARD.format(
        metadata=to_yaml(_make_metadata(manifest)),
        version=manifest.albert_data_version,
        documents=manifest.counts.documents,
        text_mb=manifest.counts.text_bytes / 1e6,
        tokens=manifest.counts.tokens,
        facts=_make_table(("", ""), _list_facts(manifest)),
        splits=_describe_splits(manifest),
        source=_describe_column(manifest) if manifest.sources else "",
        sources=_describe_sources(manifest) if manifest.source_tokens else "",
        dropped=_describe_dropped(manifest),
        segments="A [SEP] B" if examples.task.orders else "A",
        labels="".join(f"{label} {order}, " for label, order in enumerate(examples.task.orders)),
        key_b=_KEY_B if examples.task.has_random else "",
        max_seq_len=examples.max_seq_len,
        id_type="uint16" if manifest.tokenizer.vocab_size <= 1 << 16 else "uint32",
        mask_percent=100 * examples.mask_prob,
        spans=_describe_spans(manifest),
    )
    return text.encode()


def _make_table(titles: Sequence[str], rows: Iterable[Sequence[object]], num_texts: int = 2) -> str:
    """A table in Markdown. Counts get commas; the columns after the first `num_texts` are aligned to the right."""
    rule = ("---" if number < num_texts else "---:" for number in range(len(titles)))
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in ((titles), *cells)]
    return "\n".join([lines[0], f"|{'|'.join(rule)}|", *lines[1:]])


# ---- metadata and facts ----


def _make_metadata(manifest: Manifest) -> dict[str, Any]:
    filled = {name: split for name, split in manifest.splits.items() if split.num_rows}
    return {
        **describe_text(manifest),
        "size_categories": [_choose_size(sum(split.num_rows for split in filled.values()))],
        "task_categories": ["fill-mask"],
        "tags": ["albert-data", *manifest.config.examples.task.tags, "n-gram-masking"],
        "configs": [
            {"config_name": "default", "data_files": [{"split": name, "path": f"{name}/*.arrow"} for name in filled]}
        ],
    }


def _choose_size(num_rows: int) -> str:
    """The Hub's category for a number of rows.

    >>> _choose_size(999), _choose_size(1_000), _choose_size(10**12)
    ('n<1K', '1K<n<10K', 'n>1T')
    """
    above = min(max(len(str(num_rows)) - 3, 0), len(_SIZES))
    if above == 0:
        return f"n<{_SIZES[0]}"
    return f"{_SIZES[above - 1]}<n<{_SIZES[above]}" if above < len(_SIZES) else f"n>{_SIZES[-1]}"


def _list_facts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    names, tokenizer, num_bytes = list_languages(), manifest.tokenizer, sum(item.bytes for item in manifest.inputs)
    named = [f"{names[code]} (`{code}`)" for code in list_codes(manifest)]
    languages = list_some(named, _SHOWN) or "not known"
    if not is_language_named(manifest):
        languages = f"not named; sentences are found by the rules of {languages}"
    elif not manifest.sources:
        languages += ", as `--language` says"
    yield "language", languages
    yield "licence", "not given" if manifest.license is None else escape_marks(manifest.license)
    is_trained = ", trained on this text" if "trained" in manifest.plan.tokenizer else ""
    normalization = f", text normalised by {tokenizer.normalization}" if tokenizer.normalization else ""
    pieces = f"{tokenizer.vocab_size:,} pieces{is_trained}{normalization}"
    yield "tokenizer", f"`{tokenizer.file}`: {pieces}; SHA-256 `{tokenizer.sha256}`"
    yield "inputs", f"{count_of(len(manifest.inputs), 'file or stream', 'files or streams')}, {num_bytes / 1e6:,.1f} MB"
    for name, commit in (manifest.plan.hub or {}).items():
        yield "from the Hugging Face Hub", f"`{name}`, commit `{commit}`"
    if manifest.mixture is None:
        yield "passes over the text", str(manifest.config.examples.dupe_factor)
    yield "seed", str(manifest.config.examples.seed)


# ---- rows, sources, losses ----


def _describe_splits(manifest: Manifest) -> str:
    has_pairs = bool(manifest.config.examples.task.orders)
    titles = ("split", "rows", "tokens", "masked", *(("without a pair",) if has_pairs else ()), "full", "shards")
    rows = (
        (
            *(name, split.num_rows, split.num_tokens, split.num_masked),
            *((_share(split.num_unpaired, split.num_rows),) if has_pairs else ()),
            _share(split.num_tokens, split.num_rows * manifest.config.examples.max_seq_len),
            len(split.shards),
        )
        for name, split in manifest.splits.items()
    )
    return _make_table(titles, rows, 1)


def _share(part: int, whole: int) -> str:
    return format_share(part / whole, 1) if whole else "–"


def _describe_column(manifest: Manifest) -> str:
    sources = manifest.sources or ()
    kind = "language" if manifest.plan.mixture is None and all(map(is_language, sources)) else "source"
    # Records name sources, so their marks must not be read as Markdown or HTML.
    return _SOURCE.format(kind, ", ".join(map(escape_marks, sources)))


def _describe_sources(manifest: Manifest) -> str:
    tokens = manifest.source_tokens or ()
    shares = [(count, _share(count, sum(tokens))) for count in tokens]
    titles = ("source", "language", "passes", "documents", "used", "tokens in rows", "share")
    if manifest.mixture is None:
        rows = [(escape_marks(name), *both) for name, both in zip(manifest.sources or (), shares, strict=True)]
        return f"\n## Sources\n\n{_make_table((titles[0], *titles[-2:]), rows, 1)}\n"
    mixed = (
        (*(escape_marks(one.name), one.language, f"{one.passes:.3g}", one.num_documents, one.num_used_documents), *both)
        for one, both in zip(manifest.mixture, shares, strict=True)
    )
    return f"\n## Sources\n\n{_MIXTURE}{_make_table(titles, mixed)}\n"


def _describe_dropped(manifest: Manifest) -> str:
    counts = vars(manifest.counts)
    rows: list[tuple[object, ...]] = [
        (name.replace("_", " "), why, counts[name], counts.get(name.replace("documents", "tokens"), ""))
        for name, why in _DROPPED.items()
        if counts[name]
    ]
    rows += [(f"`{name}`", REASONS.get(name, ""), count, "") for name, count in manifest.damage.items()]
    return _make_table(("what", "why", "count", "tokens"), rows) if rows else "Nothing."


def _describe_spans(manifest: Manifest) -> str:
    examples = manifest.config.examples
    unit = "words" if examples.masks_words else "pieces"
    if examples.longest_span == 1:
        return f"as single {unit}"
    shares = ", ".join(format_share(share) for share in manifest.ngram_shares)
    return f"in spans of 1 to {examples.longest_span} {unit} with the shares {shares}"
