"""Classify texts, or pairs of texts: fine-tune your own model on labelled lines, without a network.

albert-data export RUN -o MODEL
python docs/examples/classify.py MODEL --train train.tsv --test test.tsv
python docs/examples/classify.py MODEL --pairs
python docs/examples/classify.py MODEL --train train.tsv --test test.tsv --save CLASSIFIER
python docs/examples/classify.py CLASSIFIER --predict texts.txt

A line is `label<TAB>text`, with --pairs `label<TAB>first text<TAB>second text`. Without files the task is made up
(toy_tasks.py): does a remark praise or blame; with --pairs: which of two remarks is the kinder one.
`--save` writes the classifier with its tokenizer and labels. With that folder, `--predict` prints `label<TAB>text` for
each line of a file without labels. transformers loads the folder too: pipeline("text-classification", "CLASSIFIER").

Source: Devlin et al. 2018, BERT, arXiv 1810.04805, section 4.1. A new linear layer reads the pooled vector of [CLS],
and all weights are trained. A pair is one row, [CLS] A [SEP] B [SEP], so that each token attends to those of both
texts.
Measured (docs/reference/results.md): of remarks with other words 80 to 90 % are right after 22,000 updates of
pretraining, 54.8 % after 4,699, and 48.8 % from random weights.
`--scratch` begins with random weights: the difference is what pretraining gave. For a model of size base use a rate of
2e-5.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import torch
from torch import Tensor
from toy_tasks import Labelled, load, make_pairs, make_remarks, model_folder, read_tsv
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    get_linear_schedule_with_warmup,
    logging,
)

MAX_LEN = 128  # tokens
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def encode(tokenizer, rows: Labelled, names: list[str], device: str) -> tuple[dict[str, Tensor], Tensor]:
    """Encode texts or pairs as padded rows, and labels as their numbers."""
    texts = [list(column) for column in zip(*(row[1:] for row in rows), strict=True)]
    inputs = tokenizer(
        *texts, padding=True, truncation=True, max_length=min(MAX_LEN, tokenizer.model_max_length), return_tensors="pt"
    )
    return inputs.to(device), torch.tensor([names.index(row[0]) for row in rows], device=device)


def train(model, tokenizer, rows: Labelled, names: list[str], *, steps: int, lr: float, batch_rows: int = 16) -> None:
    """Train all weights; the rate rises for a tenth of the steps and then falls to 0."""
    rng = random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    model.train()
    for step in range(1, steps + 1):
        inputs, labels = encode(tokenizer, rng.sample(rows, min(batch_rows, len(rows))), names, model.device)
        loss = model(**inputs, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step == 1 or step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}")


@torch.no_grad()
def predict(model, tokenizer, rows: Labelled, names: list[str]) -> list[str]:
    """The label that the model gives each row."""
    model.eval()
    chosen: list[str] = []
    for begin in range(0, len(rows), 64):
        inputs, _ = encode(tokenizer, rows[begin : begin + 64], names, model.device)
        chosen += [names[number] for number in model(**inputs).logits.argmax(-1).tolist()]
    return chosen


def label_file(folder: str, path: Path) -> None:
    """Print each line of a file of texts, or of pairs, behind the label that a saved classifier gives it."""
    config = load(AutoConfig, folder)
    if not hasattr(config, "num_texts"):
        raise SystemExit(f"{folder}: is no classifier that --save wrote")
    texts, names = read_tsv(path, config.num_texts), [config.id2label[number] for number in range(config.num_labels)]
    model, tokenizer = load(AutoModelForSequenceClassification, folder), load(AutoTokenizer, folder)
    chosen = predict(model.to(DEVICE), tokenizer, [(names[0], *row) for row in texts], names)
    for label, row in zip(chosen, texts, strict=True):
        print(label, *row, sep="\t")


def main() -> None:
    parser = argparse.ArgumentParser(description="Fine-tune a model on labelled texts or pairs of texts.")
    parser.add_argument("model", type=model_folder, help="folder that `albert-data export` or --save wrote")
    parser.add_argument("--pairs", action="store_true", help="classify pairs of texts")
    parser.add_argument("--train", type=Path, help="file of labelled lines (default: a made-up task)")
    parser.add_argument("--test", type=Path, help="file of other labelled lines")
    parser.add_argument("--save", type=Path, help="new folder for the classifier")
    parser.add_argument(
        "--predict", type=Path, help="instead of training: file of texts to label by a saved classifier"
    )
    parser.add_argument("--steps", type=int, default=200, help="updates of the weights")
    parser.add_argument("--lr", type=float, default=3e-4, help="highest learning rate")
    parser.add_argument("--scratch", action="store_true", help="begin with random weights")
    parser.add_argument("--seed", type=int, default=0, help="of new weights and of dropout")
    arguments = parser.parse_args()
    logging.set_verbosity_error()  # no report of the weights that a head adds or leaves out
    if arguments.predict:
        label_file(arguments.model, arguments.predict)
        return
    if arguments.save and arguments.save.exists():
        parser.error(f"{arguments.save} exists; give --save a new folder")
    if (arguments.train is None) != (arguments.test is None):
        parser.error("give both --train and --test, or neither")
    if arguments.train:
        rows, held_out = (read_tsv(path, 2 + arguments.pairs) for path in (arguments.train, arguments.test))
    else:
        make = make_pairs if arguments.pairs else make_remarks
        rows, held_out = make(2000), make(400, test=True)
    names = sorted({row[0] for row in rows})
    unknown = sorted({row[0] for row in held_out} - set(names))
    if unknown:
        raise SystemExit(f"{arguments.test}: the label {unknown[0]!r} is not in {arguments.train}")

    print(f"{len(rows)} lines to learn from, {len(held_out)} for the test; labels: {', '.join(names)}")
    torch.manual_seed(arguments.seed)
    tokenizer = load(AutoTokenizer, arguments.model)
    labels = {name: number for number, name in enumerate(names)}
    config = load(AutoConfig, arguments.model, label2id=labels, id2label=dict(enumerate(names)))
    config.num_texts = 1 + arguments.pairs  # of a line; tells label_file that this is a classifier
    model = (
        AutoModelForSequenceClassification.from_config(config)
        if arguments.scratch
        else load(AutoModelForSequenceClassification, arguments.model, config=config)
    ).to(DEVICE)
    train(model, tokenizer, rows, names, steps=arguments.steps, lr=arguments.lr)
    chosen = predict(model, tokenizer, held_out, names)
    for row, label in list(zip(held_out, chosen, strict=True))[:6]:
        print(f"{label} ({row[0]}): {' / '.join(row[1:])}")
    right = sum(label == row[0] for label, row in zip(chosen, held_out, strict=True))
    print(f"right: {right / len(held_out):.1%} of {len(held_out)}")
    if arguments.save:
        model.save_pretrained(arguments.save)
        tokenizer.save_pretrained(arguments.save)


if __name__ == "__main__":
    main()
