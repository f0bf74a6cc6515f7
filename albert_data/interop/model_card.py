"""The model card: README.md of an exported folder. Says what the model is, how it was trained, and how to load it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from albert_data.errors import CheckpointError
from albert_data.examples.pair_tasks import PairTask
from albert_data.runs.figures import name_curves, number, read_lines
from albert_data.shards.card import as_text, list_text_facts, make_table, write_card
from albert_data.train.config import AlbertConfig, TrainConfig
from albert_data.train.folder import CHECKPOINTS_FOLDER, DIGEST_KEY, METRICS_FILE, TEXT_KEY, read_run_file
from albert_data.version import __version__

_INTRO = """\
A model of the architecture [ALBERT](https://arxiv.org/abs/1909.11942), pretrained by albert-data {version} on {tasks}.

    from transformers import pipeline
    pipeline("fill-mask", model=".")("A sentence with one [MASK].")

{heads} The other Albert classes load the same encoder; their own heads are new and untrained."""
# By the number of labels of the sentence task.
_HEADS = {
    2: "`AlbertForPreTraining` loads both heads, `AlbertForMaskedLM` that of MLM. The labels of `sop_logits`: {}.",
    3: "`AlbertForMaskedLM` loads the head of MLM. That of the sentence task has three labels and is not here, as "
    "transformers has no class for it.",
    0: "`AlbertForMaskedLM` loads the head. There is no pooler, as no sentence task trained one.",
}


def make_card(run: Path, checkpoint: Path, config: AlbertConfig, num_parameters: int) -> bytes:
    """Return the content of README.md. Raises CheckpointError if run.json is damaged."""
    stored, task = read_run_file(run), config.task
    said = stored[TEXT_KEY]
    metadata = {
        **{"library_name": "transformers", "pipeline_tag": "fill-mask"},
        **{key: said[key] for key in ("license", "license_details", "language") if key in said},
        "tags": ["albert", "albert-data", *task.tags],
    }
    tasks = " and ".join(tag.replace("-", " ") for tag in ("masked-language-modelling", *task.tags))
    labels = (f"{label} {task.describe(label)}" for label in range(len(task.orders)))
    heads = _HEADS[len(task.orders)].format("; ".join(labels))
    size = ("parameters", f"{num_parameters:,}, shared ones counted once")
    rows = (size, *_list_facts(stored, config), *list_text_facts(said), *_list_figures(run, checkpoint, config.task))
    intro = _INTRO.format(version=__version__, tasks=tasks, heads=heads)
    trained = f"Checkpoint {as_text(checkpoint.name)} of the run {as_text(run.resolve().name)}:"
    return write_card(metadata, "ALBERT", intro, trained, make_table(("", ""), rows))


def _list_facts(stored: Mapping[str, Any], model: AlbertConfig) -> Iterator[tuple[str, str]]:
    shape = f"{model.num_layers} of hidden size {model.hidden_size:,}, {model.num_heads} attention heads"
    yield "layers", f"{shape}, feed-forward size {model.ffn_size:,}, sharing: {model.share}"
    yield "embeddings", f"{model.vocab_size:,} pieces of size {model.embedding_size:,}"
    yield "longest input", f"{model.max_positions:,} tokens"
    training = TrainConfig(**stored["config"])
    rate = f"optimiser {training.optimizer}, learning rate {training.lr:g}"
    yield "training", f"{training.batch_tokens:,} tokens a step, {rate}"
    yield "shards", f"digest {as_text(stored['identity'].get(DIGEST_KEY))}"


def _list_figures(run: Path, checkpoint: Path, task: PairTask) -> Iterator[tuple[str, str]]:
    """The figures of the validation at the checkpoint's step, if there is one."""
    try:
        lines = read_lines(run / METRICS_FILE)
    except CheckpointError:  # the card is complete without figures, so damaged metrics do not stop an export
        lines = []
    folder, path = (run / CHECKPOINTS_FOLDER).resolve(), checkpoint.resolve()
    found = [line for line in lines if line["split"] == "validation" and path == folder / f"step-{line['step']:08d}"]
    for curve in name_curves(task):
        value = number(found[-1], curve.key) if found else None
        if value is not None and curve.key.startswith(("mlm_", "sop_") if task.orders else "mlm_"):
            yield f"validation: {curve.title}", curve.form(value)
