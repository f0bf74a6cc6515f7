"""The model card: README.md of an exported folder. Says what the model is, how it was trained, and how to load it."""

from __future__ import annotations

import re
from pathlib import Path

from albert_data import __version__
from albert_data.errors import CheckpointError
from albert_data.escaping import escape_controls
from albert_data.train.config import AlbertConfig, TrainConfig
from albert_data.train.folder import CHECKPOINTS_FOLDER, METRICS_FILE, read_run_file
from albert_data.train.runs.figures import CURVES, Line, number, read_lines
from albert_data.train.sizes import count_parameters

CARD_FILE = "README.md"
_CARD = """\
---
library_name: transformers
pipeline_tag: fill-mask
tags:
- albert
- albert-data
- sentence-order-prediction
---
# ALBERT

A model of the architecture [ALBERT](https://arxiv.org/abs/1909.11942), pretrained by albert-data {version} on masked
language modelling (MLM) and sentence order prediction (SOP).

| | |
|---|---|
| layers | {layers} of hidden size {hidden:,}, {heads} attention heads, feed-forward size {ffn:,}, sharing: {share} |
| embeddings | {vocabulary:,} pieces of size {embedding:,} |
| parameters | {parameters:,}, shared ones counted once |
| longest input | {positions:,} tokens |

## Training

Checkpoint {checkpoint} of the run {run}: {batch:,} tokens a step, optimiser {optimizer}, learning rate {lr:g}.
The text: albert-data shards with the digest {digest}.

Language, sources and licence of the text are not known to albert-data. Add them here before you share the model.

## Figures
{figures}
## Use

    from transformers import pipeline
    pipeline("fill-mask", model=".")("A sentence with one [MASK].")

`AlbertForPreTraining` loads the MLM and SOP heads, `AlbertForMaskedLM` the MLM head. The other Albert classes load the
same encoder; their own heads are new and untrained.
"""
_FIGURES = """
On validation rows, which the model was not trained on, at the step of this checkpoint:

| MLM loss, nats | MLM accuracy | SOP loss, nats | SOP accuracy |
|---:|---:|---:|---:|
| {cells} |
"""
_NO_FIGURES = "\nNone are known for this checkpoint.\n"
_CURVES = [curve for curve in CURVES if curve.key.startswith(("mlm_", "sop_"))]  # the columns of _FIGURES


def make_card(run: Path, checkpoint: Path, config: AlbertConfig) -> bytes:
    """Return the content of README.md. Raises CheckpointError if run.json is damaged."""
    stored = read_run_file(run)
    training = TrainConfig(**stored["config"])
    line = _find_validation(run, checkpoint)
    text = _CARD.format(
        version=__version__,
        layers=config.num_layers,
        hidden=config.hidden_size,
        heads=config.num_heads,
        ffn=config.ffn_size,
        share=config.share,
        vocabulary=config.vocab_size,
        embedding=config.embedding_size,
        parameters=count_parameters(config).all,
        positions=config.max_positions,
        checkpoint=_as_code(checkpoint.name),
        run=_as_code(run.resolve().name),
        batch=training.batch_tokens,
        optimizer=training.optimizer,
        lr=training.lr,
        digest=_as_code(stored["identity"].get("shards' digest")),
        figures=_NO_FIGURES if line is None else _FIGURES.format(cells=" | ".join(_format_cells(line))),
    )
    # _as_code has escaped names that are not UTF-8 already; backslashreplace is a second safeguard.
    return text.encode(errors="backslashreplace")


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


def _format_cells(line: Line) -> list[str]:
    values = [(curve, number(line, curve.key)) for curve in _CURVES]
    return ["–" if value is None else curve.form(value) for curve, value in values]


def _as_code(text: object) -> str:
    """Text from the user as inline code, which Markdown and HTML leave as it is."""
    # A backtick would end the code: it becomes an apostrophe.
    return f"`{escape_controls(str(text)).replace('`', chr(39))}`"
