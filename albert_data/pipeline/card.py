"""The dataset card: README.md in OUT, which describes the folder in words and in metadata for the Hugging Face Hub."""

from __future__ import annotations

import re

from albert_data.languages import is_language
from albert_data.shards.manifest import Counts, Manifest
from albert_data.wording import format_share

CARD_NAME = "README.md"
_CARD = """\
---
task_categories:
- fill-mask
tags:
- albert-data
{task_tag}- n-gram-masking
configs:
- config_name: default
  data_files:
{data_files}
---
# ALBERT pretraining shards

Made by albert-data {version}: {documents:,} documents, {text_mb:,.1f} MB of text, {tokens:,} tokens.{dropped}
{mixture}
| split | examples | tokens | masked | shards |
|---|---:|---:|---:|---:|
{splits}

Each row is one example, `[CLS] {segments} [SEP]` of at most {max_seq_len} tokens.

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

`manifest.json` holds the settings, counts and hashes; `albert-data verify` checks them.
"""
_DROPPED = "\nOf equal documents one was kept. Copies dropped: {:,}."
_LEFT_OUT = "\nTraining documents left out, because validation has them too: {:,}."
_KEY_B = "| `document_key_b` | uint64 | the document of segment B; another one where the label is random |\n"
_SOURCE = "| `source` | uint16 | the document's {}, counted from 0: {} |\n"
_MARKS = re.compile(r"[!-+;-@\[-^`{-~]")
_MIXTURE = """
The documents are of a mixture of sources; a document in several is used as one of the first.

| source | language | passes | documents | used | tokens of text used |
|---|---|---:|---:|---:|---:|
"""


def make_card(manifest: Manifest) -> bytes:
    """The bytes of README.md for a build with this manifest."""
    examples, splits = manifest.config.examples, manifest.splits
    filled = [name for name, split in splits.items() if split.num_rows]
    text = _CARD.format(
        data_files="\n".join(f"  - split: {name}\n    path: {name}/*.arrow" for name in filled),
        version=manifest.albert_data_version,
        documents=manifest.counts.documents,
        text_mb=manifest.counts.text_bytes / 1e6,
        tokens=manifest.counts.tokens,
        dropped=_describe_dropped(manifest.counts),
        source=_describe_sources(manifest) if manifest.sources else "",
        mixture=_describe_mixture(manifest),
        splits="\n".join(
            f"| {name} | {split.num_rows:,} | {split.num_tokens:,} | {split.num_masked:,} | {len(split.shards)} |"
            for name, split in splits.items()
        ),
        task_tag="".join(f"- {tag}\n" for tag in examples.task.tags),
        segments="A [SEP] B" if examples.task.orders else "A",
        labels="".join(f"{label} {order}, " for label, order in enumerate(examples.task.orders)),
        key_b=_KEY_B if examples.task.has_random else "",
        max_seq_len=examples.max_seq_len,
        id_type="uint16" if manifest.tokenizer.vocab_size <= 1 << 16 else "uint32",
        mask_percent=100 * examples.mask_prob,
        spans=_describe_spans(manifest),
    )
    return text.encode()


def _describe_dropped(counts: Counts) -> str:
    lines = ((_DROPPED, counts.duplicate_documents), (_LEFT_OUT, counts.left_out_documents))
    return "".join(line.format(count) for line, count in lines if count)


def _describe_sources(manifest: Manifest) -> str:
    sources = manifest.sources or ()
    kind = "language" if manifest.mixture is None and all(map(is_language, sources)) else "source"
    # Records name sources, so their marks must not be read as Markdown or HTML.
    names = (_MARKS.sub(lambda mark: f"&#{ord(mark[0])};", name) for name in sources)
    return _SOURCE.format(kind, ", ".join(names))


def _describe_mixture(manifest: Manifest) -> str:
    if not manifest.mixture:
        return ""
    rows = (
        f"| {one.name} | {one.language} | {one.passes:.3g} | {one.num_documents:,} | {one.num_used_documents:,} | "
        f"{one.num_used_tokens:,} |\n"
        for one in manifest.mixture
    )
    return _MIXTURE + "".join(rows)


def _describe_spans(manifest: Manifest) -> str:
    examples = manifest.config.examples
    unit = "words" if examples.masks_words else "pieces"
    if examples.longest_span == 1:
        return f"as single {unit}"
    shares = ", ".join(format_share(share) for share in manifest.ngram_shares)
    return f"in spans of 1 to {examples.longest_span} {unit} with the shares {shares}"
