"""The dataset card of a conversion to Parquet: README.md with the metadata that the Hugging Face Hub and datasets read.

Source: huggingface.co/docs/hub/datasets-cards and `DatasetInfo` of datasets.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from albert_data.convert.writers import SplitFiles
from albert_data.escaping import to_yaml
from albert_data.shards.manifest import Manifest
from albert_data.tokenizer.model import MODEL_NAME
from albert_data.version import __version__

# Each column with its description in the schema of the files, which the metadata repeats in its own words.
Features = list[tuple[str, dict[str, Any]]]

_CARD = """\
---
{metadata}
---
# ALBERT pretraining examples

{num_rows:,} {what} of masked language modelling{task}, `[CLS] {segments} [SEP]` of at most
{max_seq_len} tokens, from {documents:,} documents. Built by albert-data {built_by}, converted by {version}.

| column | meaning |
|---|---|
{columns}

Ids of special tokens: {special_ids}. The vocabulary has {vocab_size:,} pieces (SHA-256 of its {model}:
`{tokenizer}`).

    import datasets
    examples = datasets.load_dataset(".", split="{split}")

{masks}
"""
_MEANINGS = {
    "input_ids": "the tokens, with the masks applied",
    "attention_mask": "1 for each token: nothing is padded",
    "token_type_ids": "0 for `[CLS] A [SEP]`, 1 for `B [SEP]`",
    "row_starts": "where in a pack each example begins: attention and positions must stay within an example",
    "segment_a_len": "tokens of segment A, without [CLS] and [SEP]",
    "masked_positions": "the positions to predict, counted from [CLS]",
    "masked_ids": "the original tokens there",
    "document_key": "a hash of the document that the example comes from",
    "document_key_b": "the same for segment B; another one where the label is `random`",
}
_MASKS = "{:g} % of the maskable tokens are masked, in spans of 1 to {} words."
_NO_MASKS = "No token is masked: who trains on the examples draws masks, as `DataCollatorForLanguageModeling` does."
_SPECIALS = ("pad", "unk", "cls", "sep", "mask")


def make_card(manifest: Manifest, features: Features, files: SplitFiles, metadata: Mapping[str, Any]) -> bytes:
    """The bytes of README.md. files: of each split that was converted; metadata: what the user says of the data."""
    examples, tokenizer = manifest.config.examples, manifest.tokenizer
    origin = "source" if manifest.plan.mixture else "language"
    meanings = {
        **_MEANINGS,
        "source": f"the {origin} of the document",
        "sop_label": _describe_labels(examples.task.orders),
    }
    if is_packed := "row_starts" in dict(features):
        meanings["masked_positions"] = "the positions to predict, counted from the start of the pack"
    masks = _MASKS.format(100 * examples.mask_prob, examples.ngram)
    if "masked_ids" not in dict(features):
        masks, meanings["input_ids"] = _NO_MASKS, "the tokens"
    values = {**metadata, **_make_metadata(features, files, examples.task.tags)}
    text = _CARD.format(
        metadata=to_yaml(values),
        num_rows=sum(entry.num_rows for entries in files.values() for entry in entries),
        what="packs of examples" if is_packed else "examples",
        task="".join(f" and {tag.replace('-', ' ')}" for tag in examples.task.tags),
        segments="A [SEP] B" if examples.task.orders else "A",
        columns="\n".join(f"| `{name}` | {meanings[name]} |" for name, _ in features),
        max_seq_len=examples.max_seq_len,
        documents=manifest.counts.documents,
        built_by=manifest.albert_data_version,
        version=__version__,
        special_ids=", ".join(f"{name} {getattr(tokenizer, f'{name}_id')}" for name in _SPECIALS),
        vocab_size=tokenizer.vocab_size,
        tokenizer=tokenizer.sha256,
        model="SentencePiece model" if tokenizer.file.endswith(MODEL_NAME) else Path(tokenizer.file).name,
        split=next(iter(files)),
        masks=masks,
    )
    return text.encode()


def _make_metadata(features: Features, files: SplitFiles, tags: tuple[str, ...]) -> dict[str, Any]:
    row_bytes = {split: sum(entry.row_bytes or 0 for entry in entries) for split, entries in files.items()}
    num_rows = {split: sum(entry.num_rows for entry in entries) for split, entries in files.items()}
    info = {
        "features": [{"name": name, **_describe(feature)} for name, feature in features],
        "splits": [{"name": split, "num_bytes": row_bytes[split], "num_examples": num_rows[split]} for split in files],
        "download_size": sum(entry.num_bytes for entries in files.values() for entry in entries),
        "dataset_size": sum(row_bytes.values()),
    }
    return {
        "task_categories": ["fill-mask"],
        "tags": ["albert-data", *tags],
        "dataset_info": info,
        "configs": [
            {"config_name": "default", "data_files": [{"split": split, "path": f"data/{split}-*"} for split in files]}
        ],
    }


def _describe_labels(orders: tuple[str, ...]) -> str:
    if not orders:
        return "-1: an example has one segment"
    names = ", ".join(f"`{order.replace(' ', '_')}`" for order in orders)
    return f"{names}, or -1 for an example of one segment, which has no order"


def _describe(feature: Mapping[str, Any]) -> dict[str, Any]:
    if "names" in feature:
        return {"dtype": {"class_label": {"names": dict(enumerate(feature["names"]))}}}
    return {"sequence": feature["feature"]["dtype"]} if "feature" in feature else {"dtype": feature["dtype"]}
