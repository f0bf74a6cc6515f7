"""The model card: README.md of an exported folder. Says what the model is, how it was trained, and how to load it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from albert_data.errors import CheckpointError
from albert_data.escaping import escape_controls, to_yaml
from albert_data.pair_tasks import PairTask
from albert_data.train.config import AlbertConfig, TrainConfig
from albert_data.train.folder import CHECKPOINTS_FOLDER, DIGEST_KEY, METRICS_FILE, TEXT_KEY, read_run_file
from albert_data.train.history.figures import Line, name_curves, number, read_lines
from albert_data.train.model.sizes import count_parameters
from albert_data.version import __version__

CARD_FILE = "README.md"
_CARD = """\
---
library_name: transformers
pipeline_tag: fill-mask
{metadata}tags:
- albert
- albert-data
{tags}---
# ALBERT

A model of the architecture [ALBERT](https://arxiv.org/abs/1909.11942), pretrained by albert-data {version} on masked
language modelling (MLM){task}.

| | |
|---|---|
| layers | {model.num_layers} of hidden size {model.hidden_size:,}, {model.num_heads} attention heads, \
feed-forward size {model.ffn_size:,}, sharing: {model.share} |
| embeddings | {model.vocab_size:,} pieces of size {model.embedding_size:,} |
| parameters | {parameters:,}, shared ones counted once |
| longest input | {model.max_positions:,} tokens |

## Training

Checkpoint {checkpoint} of the run {run}: {training.batch_tokens:,} tokens a step, \
optimiser {training.optimizer}, learning rate {training.lr:g}.
The text: albert-data shards with the digest {digest}.

{text}

## Figures
{figures}
## Use

    from transformers import pipeline
    pipeline("fill-mask", model=".")("A sentence with one [MASK].")

{loads} The other Albert classes load the
same encoder; their own heads are new and untrained.
"""
_LOADS = {
    "sop": "`AlbertForPreTraining` loads the MLM and SOP heads, `AlbertForMaskedLM` the MLM head.",
    "nsp": "`AlbertForPreTraining` loads the MLM and NSP heads, `AlbertForMaskedLM` the MLM head. `sop_logits` are "
    "those\nof NSP: label 0 says that the second segment follows the first, label 1 that it is of another document.",
    "order3": "`AlbertForMaskedLM` loads the MLM head. The head of the sentence task has three labels and is not here, "
    "as\ntransformers has no class for it.",
    "none": "`AlbertForMaskedLM` loads the MLM head. There is no pooler, as no sentence task trained one.",
}
_TASKS = {
    "sop": " and sentence order prediction (SOP)",
    "nsp": " and next sentence prediction (NSP)",
    "order3": ", and on telling whether two segments are in order, swapped, or of two documents (order)",
    "none": "",
}
_FIGURES = """
On validation rows, which the model was not trained on, at the step of this checkpoint:

| {titles} |
|{rule}|
| {cells} |
"""
_NO_FIGURES = "\nNone are known for this checkpoint.\n"


def make_card(run: Path, checkpoint: Path, config: AlbertConfig) -> bytes:
    """Return the content of README.md. Raises CheckpointError if run.json is damaged."""
    stored = read_run_file(run)
    said = stored[TEXT_KEY]
    metadata = {key: said[key] for key in ("license", "license_details", "language") if key in said}
    line = _find_validation(run, checkpoint)
    text = _CARD.format(
        version=__version__,
        model=config,
        training=TrainConfig(**stored["config"]),
        parameters=count_parameters(config).all,
        checkpoint=_as_code(checkpoint.name),
        run=_as_code(run.resolve().name),
        digest=_as_code(stored["identity"].get(DIGEST_KEY)),
        tags="".join(f"- {tag}\n" for tag in config.task.tags),
        metadata=f"{to_yaml(metadata)}\n" if metadata else "",
        text=_describe_text(said),
        task=_TASKS[config.task.name],
        loads=_LOADS[config.task.name],
        figures=_NO_FIGURES if line is None else _format_figures(line, config.task),
    )
    # _as_code has escaped names that are not UTF-8 already; backslashreplace is a second safeguard.
    return text.encode(errors="backslashreplace")


def _describe_text(said: Mapping[str, Any]) -> str:
    """What run.json says of the text, and what only the user can add."""
    facts = {"language": said.get("language"), "sources": said.get("sources")}
    facts |= {"licence": said.get("license_details", said.get("license"))}
    listed = {name: value if isinstance(value, list) else [value] for name, value in facts.items() if value}
    lines = [f"- {name}: {', '.join(map(_as_code, values))}" for name, values in listed.items()]
    if missing := [name for name in facts if name not in listed]:
        lines += ["", f"Not known to albert-data: {', '.join(missing)}. Add this before you share the model."]
    return "\n".join(lines).strip()


def _find_validation(run: Path, checkpoint: Path) -> Line | None:
    """The metrics line of the validation at a checkpoint's step, if there is one."""
    try:
        lines = read_lines(run / METRICS_FILE)
    except CheckpointError:  # the card is complete without figures, so damaged metrics do not stop an export
        return None
    step = re.fullmatch(r"step-([0-9]+)", checkpoint.name)
    if step is None or checkpoint.resolve().parent != (run / CHECKPOINTS_FOLDER).resolve():
        return None
    found = [line for line in lines if line["split"] == "validation" and line["step"] == int(step[1])]
    return found[-1] if found else None


def _format_figures(line: Line, task: PairTask) -> str:
    heads = ("mlm_", "sop_") if task.orders else ("mlm_",)
    curves = [curve for curve in name_curves(task) if curve.key.startswith(heads)]
    values = [(curve, number(line, curve.key)) for curve in curves]
    return _FIGURES.format(
        titles=" | ".join(curve.title for curve in curves),
        rule="|".join("---:" for _ in curves),
        cells=" | ".join("–" if value is None else curve.form(value) for curve, value in values),
    )


def _as_code(text: object) -> str:
    """Text from the user as inline code, which Markdown and HTML leave as it is."""
    # A backtick would end the code: it becomes an apostrophe.
    return f"`{escape_controls(str(text)).replace('`', chr(39))}`"
