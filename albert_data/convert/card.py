"""The dataset card of a conversion to Parquet: README.md with the metadata that the Hugging Face Hub and datasets read.

Source: huggingface.co/docs/hub/datasets-cards and `DatasetInfo` of datasets. Texts of the user and of a manifest are
written as JSON strings, which are YAML too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from albert_data import __version__
from albert_data.convert.writers import SplitFiles
from albert_data.shards.manifest import Manifest

# Each column with its description in the schema of the files, which the metadata repeats in its own words.
Features = list[tuple[str, dict[str, Any]]]

_CARD = """\
---
{metadata}
---
# ALBERT pretraining examples

{num_rows:,} examples of masked language modelling and sentence order prediction, `[CLS] A [SEP] B [SEP]` of at most
{max_seq_len} tokens, from {documents:,} documents. Built by albert-data {built_by}, converted by {version}.

| column | meaning |
|---|---|
| `input_ids` | the tokens, with the masks applied |
| `segment_a_len` | tokens of segment A, without [CLS] and [SEP] |
| `sop_label` | `in_order`, `swapped`, or -1 for an example of one segment, which has no order |
| `masked_positions` | the positions to predict, counted from [CLS] |
| `masked_ids` | the original tokens there |
| `document_key` | a hash of the document that the example comes from |
{source}
Ids of special tokens: {special_ids}. The vocabulary has {vocab_size:,} pieces (SHA-256 of its SentencePiece model:
`{tokenizer}`).

    import datasets
    examples = datasets.load_dataset(".", split="{split}")

{percent:g} % of the maskable tokens are masked, in spans of 1 to {ngram} words.
"""
_SOURCE = "| `source` | the language of the document |\n"
_SPECIALS = ("pad", "unk", "cls", "sep", "mask")


def make_card(
    manifest: Manifest, features: Features, files: SplitFiles, license: str | None, languages: tuple[str, ...]
) -> bytes:
    """The bytes of README.md. files: of each split that was converted."""
    examples, tokenizer = manifest.config.examples, manifest.tokenizer
    text = _CARD.format(
        metadata="\n".join(_write_metadata(features, files, license, languages)),
        num_rows=sum(entry.num_rows for entries in files.values() for entry in entries),
        max_seq_len=examples.max_seq_len,
        documents=manifest.counts.documents,
        built_by=manifest.albert_data_version,
        version=__version__,
        source=_SOURCE if manifest.sources else "",
        special_ids=", ".join(f"{name} {getattr(tokenizer, f'{name}_id')}" for name in _SPECIALS),
        vocab_size=tokenizer.vocab_size,
        tokenizer=tokenizer.sha256,
        split=next(iter(files)),
        percent=100 * examples.mask_prob,
        ngram=examples.ngram,
    )
    return text.encode()


def _write_metadata(
    features: Features, files: SplitFiles, license: str | None, languages: tuple[str, ...]
) -> Iterator[str]:
    """The lines of YAML."""
    if license:
        yield f"license: {_quote(license)}"
    if languages:
        yield from ("language:", *(f"- {_quote(language)}" for language in languages))
    yield from ("task_categories:", "- fill-mask", "tags:", "- albert-data", "- sentence-order-prediction")
    yield from ("dataset_info:", "  features:")
    for name, feature in features:
        yield f"  - name: {name}"
        yield from _write_feature(feature)
    yield "  splits:"
    for split, entries in files.items():
        yield f"  - name: {split}"
        yield f"    num_bytes: {sum(entry.row_bytes or 0 for entry in entries)}"
        yield f"    num_examples: {sum(entry.num_rows for entry in entries)}"
    flat = [entry for entries in files.values() for entry in entries]
    yield f"  download_size: {sum(entry.num_bytes for entry in flat)}"
    yield f"  dataset_size: {sum(entry.row_bytes or 0 for entry in flat)}"
    yield from ("configs:", "- config_name: default", "  data_files:")
    for split in files:
        yield from (f"  - split: {split}", f"    path: data/{split}-*")


def _write_feature(feature: dict[str, Any]) -> Iterator[str]:
    if "names" in feature:
        yield from ("    dtype:", "      class_label:", "        names:")
        yield from (f"          '{number}': {_quote(name)}" for number, name in enumerate(feature["names"]))
    elif "feature" in feature:
        yield f"    sequence: {feature['feature']['dtype']}"
    else:
        yield f"    dtype: {feature['dtype']}"


def _quote(text: str) -> str:
    """A text as a JSON string. Beyond ASCII it stays as it is: JSON escapes half characters, which YAML refuses."""
    return json.dumps(text, ensure_ascii=False)
