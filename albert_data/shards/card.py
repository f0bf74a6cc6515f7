"""README.md of shards, conversions and exported models: metadata for the Hugging Face Hub, then sections in Markdown.

Source of the metadata: huggingface.co/docs/hub/datasets-cards.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from albert_data.config import DEFAULT_TEXT
from albert_data.corpus.damage import REASONS
from albert_data.errors import ConfigError
from albert_data.examples.pair_tasks import NO_LABEL
from albert_data.shards.manifest import Manifest
from albert_data.shards.schema import shard_schema
from albert_data.text.escaping import escape_controls, escape_marks, to_yaml
from albert_data.text.languages import UNDETERMINED, is_language, list_languages, normalise_language
from albert_data.text.wording import count_of, format_share, list_some

LICENSE_ID = re.compile(r"[A-Za-z0-9.+-]{1,64}")
_MAX_LICENSE = 200  # characters
_SHOWN = 10  # languages; the metadata has all
_SIZES = (
    *("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B", "1B<n<10B"),
    *("10B<n<100B", "100B<n<1T", "n>1T"),
)
# What of the corpus is not in the rows, by its count in the manifest.
DROPPED = {
    "duplicate_documents": "equal to another document; of each text one is kept",
    "near_duplicate_documents": "similar to another document, which is kept",
    "left_out_documents": "training documents that validation has too",
    "contaminated_documents": "they contain text of a source of weight 0; counted nowhere else",
}
_COLUMNS = {
    "input_ids": "the tokens",
    "attention_mask": "1 for each token: nothing is padded",
    "token_type_ids": "0 for `[CLS] A [SEP]`, 1 for `B [SEP]`",
    "row_starts": "where in a pack each example begins: attention and positions must stay within an example",
    "segment_a_len": "tokens of segment A, without [CLS] and [SEP]",
    "sop_label": "{labels}",
    "masked_positions": "the positions to predict, from 0 at the start of the row",
    "masked_ids": "the original tokens there; `input_ids` has the masks applied",
    "document_key": "a hash of the document that the row is of",
    "source": "the document's language or source, by its number in the table of these, from 0",
    "document_key_b": "the same of segment B",
}
_SPECIALS = ("pad", "unk", "cls", "sep", "mask")
_LOAD = """\
    from albert_data import open_shards
    for example in open_shards("."):
        print(example.input_ids)

`manifest.json` holds the settings, counts and hashes; `albert-data verify` checks them."""


# ---- what all cards share ----


def write_card(metadata: Mapping[str, Any], title: str, *sections: str) -> bytes:
    """The bytes of README.md. sections: in Markdown; empty ones are left out."""
    text = "\n\n".join((f"---\n{to_yaml(metadata)}\n---\n# {title}", *filter(None, sections)))
    return f"{text}\n".encode(errors="backslashreplace")  # run.json may hold half characters


def make_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in (titles, ["---"] * len(titles), *cells))


def as_text(value: object) -> str:
    """A value of the user's as text that can't leave its place."""
    return escape_marks(escape_controls(str(value)))


def list_text_facts(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Rows of a table: what metadata say of the text."""
    facts = {"language": said.get("language"), "licence": said.get("license_details", said.get("license"))}
    for name, found in {**facts, **{key: said[key] for key in ("sources",) if said.get(key)}}.items():
        values = [as_text(value) for value in (found if isinstance(found, list) else [found]) if value]
        yield name, list_some(values, _SHOWN) or "not known: add it before you share this"


def check_license(license: str | None) -> None:
    """Raise ConfigError for a licence that a card can't show in one line."""
    if license is not None and not (0 < len(license.strip()) <= len(license) <= _MAX_LICENSE and license.isprintable()):
        raise ConfigError(
            f"license is {license!a:.80}; give 1 to {_MAX_LICENSE} characters in one line, such as cc0-1.0 or "
            "'free for research, see https://example.org/terms'"
        )


def describe_text(manifest: Manifest, **others: Any) -> dict[str, Any]:
    """The metadata `license` and `language`, as far as the user named them. others: more metadata.

    The Hub knows licences by ids in lower case; any other is described in words.
    """
    facts, license = dict[str, Any](), manifest.license
    if license is not None:
        is_id = LICENSE_ID.fullmatch(license)
        facts = {"license": license.lower()} if is_id else {"license": "other", "license_details": license}
    codes = [code for code in _list_codes(manifest) if code != UNDETERMINED]
    is_by_record = manifest.sources is not None and manifest.plan.mixture is None
    # The default language counts only if somebody said that the text is in it.
    is_named = is_by_record or manifest.language_named or _list_codes(manifest) != [DEFAULT_TEXT.language]
    return facts | ({"language": codes} if codes and is_named else {}) | others


def _list_codes(manifest: Manifest) -> list[str]:
    """The languages whose text is in the rows, as the settings or the records name them, by code or in English."""
    if manifest.mixture is not None and manifest.plan.mixture is not None:
        found = [one.language for one in manifest.mixture if one.num_used_documents]
    else:
        by_name = {name: code for code, name in list_languages().items() if len(code) == 2}
        names = [by_name.get(name, name) for name in manifest.sources or (manifest.config.text.language,)]
        found = [name for name in names if is_language(name)]
    return list(dict.fromkeys(map(normalise_language, found)))


# ---- data sets ----


def make_card(manifest: Manifest) -> bytes:
    """The card of a build."""
    length, has_pairs = manifest.config.examples.max_seq_len, bool(manifest.config.examples.task.orders)
    splits: dict[str, dict[str, Any]] = {
        name: {
            **{"rows": split.num_rows, "tokens": split.num_tokens, "masked": split.num_masked},
            **({"without a pair": format_share(split.num_unpaired / split.num_rows, 1)} if has_pairs else {}),
            "full": format_share(split.num_tokens / (split.num_rows * length), 1),
        }
        for name, split in manifest.splits.items()
        if split.num_rows
    }
    columns = shard_schema(np.uint16, **manifest.optional_columns).names
    return make_dataset_card(manifest, columns, splits, "{}/*.arrow", _LOAD)


def make_dataset_card(
    manifest: Manifest, columns: Sequence[str], splits: Mapping[str, Mapping[str, Any]], files: str, load: str
) -> bytes:
    """The card of rows or packs.

    splits: the figures of each, "rows" first; files: those of a split, where {} is its name; load: how, in Markdown
    """
    said, task = describe_text(manifest), manifest.config.examples.task
    masks = _describe_masks(manifest) if "masked_ids" in columns else ""
    num_rows = sum(figures["rows"] for figures in splits.values())
    metadata = {
        **said,
        "size_categories": [_SIZES[min(max(len(str(num_rows)) - 3, 0), len(_SIZES) - 1)]],
        "task_categories": ["fill-mask"],
        "tags": ["albert-data", *task.tags, *(["n-gram-masking"] if masks else [])],
        "configs": [
            {"config_name": "default", "data_files": [{"split": name, "path": files.format(name)} for name in splits]}
        ],
    }
    labels = "; ".join(f"{label} {task.describe(label)}" for label in (*range(len(task.orders)), NO_LABEL))
    meanings = ((f"`{name}`", _COLUMNS[name].format(labels=labels)) for name in columns)
    segments, length = "A [SEP] B" if task.orders else "A", manifest.config.examples.max_seq_len
    titles = ("split", *next(iter(splits.values()), ()))
    return write_card(
        metadata,
        "ALBERT pretraining data",
        f"Each row is {'a pack of examples' if 'row_starts' in columns else 'one example'} `[CLS] {segments} [SEP]` "
        f"of at most {length:,} tokens. {masks or 'No token is masked: who trains on the rows draws masks.'}",
        make_table(titles, ((name, *figures.values()) for name, figures in splits.items())),
        make_table(("column", "meaning"), meanings),
        load,
        "## The text",
        make_table(("", ""), (*list_text_facts(said), *_list_facts(manifest))),
        _describe_sources(manifest),
        "What was dropped or repaired:",
        _describe_dropped(manifest),
    )


def _describe_masks(manifest: Manifest) -> str:
    examples = manifest.config.examples
    unit = "words" if examples.masks_words else "pieces"
    spans = f"in spans of 1 to {examples.longest_span} {unit}" if examples.longest_span > 1 else f"as single {unit}"
    return f"Of the maskable tokens {100 * examples.mask_prob:g} % are masked, {spans}."


def _list_facts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    counts, tokenizer, num_bytes = manifest.counts, manifest.tokenizer, sum(item.bytes for item in manifest.inputs)
    yield "inputs", f"{count_of(len(manifest.inputs), 'file or stream', 'files or streams')}, {num_bytes / 1e6:,.1f} MB"
    for name, commit in (manifest.plan.hub or {}).items():
        yield "from the Hugging Face Hub", f"`{name}`, commit `{commit}`"
    text = f"{counts.text_bytes / 1e6:,.1f} MB of text, {count_of(counts.tokens, 'token')}"
    yield "content", f"{count_of(counts.documents, 'document')}, {text}"
    specials = ", ".join(f"{name} {getattr(tokenizer, f'{name}_id')}" for name in _SPECIALS)
    yield "tokenizer", f"{tokenizer.vocab_size:,} pieces ({specials}); SHA-256 of its file `{tokenizer.sha256}`"
    yield "made by", f"albert-data {manifest.albert_data_version}, seed {manifest.config.examples.seed}"


def _describe_sources(manifest: Manifest) -> str:
    tokens = manifest.source_tokens or ()
    shares = [(count, format_share(count / sum(tokens), 1)) for count in tokens]
    rows = [(as_text(name), *figures) for name, figures in zip(manifest.sources or (), shares, strict=bool(tokens))]
    return make_table(("source", "tokens in rows", "share"), rows) if rows else ""


def _describe_dropped(manifest: Manifest) -> str:
    counts = dataclasses.asdict(manifest.counts)
    unused = sum(source.num_documents - source.num_used_documents for source in manifest.mixture or ())
    rows = (
        [("documents not used", "the weights, budgets and shares of sources leave them out", unused)] if unused else []
    )
    rows += [(name.replace("_", " "), why, counts[name]) for name, why in DROPPED.items() if counts[name]]
    rows += [(f"`{name}`", REASONS.get(name, ""), count) for name, count in manifest.damage.items()]
    return make_table(("what", "why", "count"), rows) if rows else "Nothing."
