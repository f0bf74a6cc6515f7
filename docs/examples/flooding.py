"""Flooding: keep the training loss from falling to zero, where a model learns wrong labels by heart.

albert-data export RUN -o MODEL
python docs/examples/flooding.py MODEL

Source: Ishida, Yamane, Sakai, Niu and Sugiyama 2020, "Do We Need Zero Training Loss After Achieving Zero Training
Error?", arXiv 2002.08709. While the loss of a batch is above the flood level b, training is as usual; below it the sign
of the gradient changes, so the loss rises again and floats around b. That is one line, |loss - b| + b. The paper
expects that the model drifts to flat places of the loss, which generalise better.

The example fine-tunes a model on 64 remarks (toy_tasks.py), of which one in five has the wrong label, for many epochs,
without and with flooding. It prints the losses on these and on 400 remarks with other words and right labels.
Measured (docs/reference/results.md): the test loss after 40 epochs is 3.48 without flooding and 1.05 with it.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from classify import encode
from torch import Tensor
from toy_tasks import Labelled, load, make_remarks, model_folder
from transformers import AutoModelForSequenceClassification, AutoTokenizer, logging

NAMES = ["blame", "praise"]


def flood(loss: Tensor, level: float) -> Tensor:
    """The loss with which to train: the same value above the level, and its mirror image below."""
    return (loss - level).abs() + level


def spoil(rows: Labelled, every: int) -> Labelled:
    """Give one in so many rows the other label; as many of either label, since labels alternate."""
    return [
        (NAMES[row[0] == NAMES[0]] if number // 2 % every == 0 else row[0], *row[1:]) for number, row in enumerate(rows)
    ]


@torch.no_grad()
def measure(model, inputs, labels: Tensor) -> tuple[float, float]:
    """The mean loss and the share of right labels."""
    model.eval()
    logits_BK = model(**inputs).logits
    return F.cross_entropy(logits_BK, labels).item(), (logits_BK.argmax(-1) == labels).float().mean().item()


def train(model, tokenizer, rows: Labelled, held_out: Labelled, *, level: float, epochs: int, lr: float) -> list[float]:
    """Train, print a line for every tenth epoch and the last one, and return the test losses."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    inputs, labels = encode(tokenizer, rows, NAMES, model.device)
    test = encode(tokenizer, held_out, NAMES, model.device)
    test_losses = []
    for epoch in range(1, epochs + 1):
        model.train()
        for chosen in torch.randperm(len(rows)).split(16):
            batch = {name: tensor[chosen] for name, tensor in inputs.items()}
            flood(model(**batch, labels=labels[chosen]).loss, level).backward()
            optimizer.step()
            optimizer.zero_grad()
        loss, _ = measure(model, inputs, labels)
        test_loss, right = measure(model, *test)
        test_losses.append(test_loss)
        if epoch % 10 == 0 or epoch == epochs:
            print(f"b {level}, epoch {epoch}: loss {loss:.3f}, test loss {test_loss:.3f}, right {right:.1%}")
    return test_losses


def main() -> None:
    parser = argparse.ArgumentParser(description="Fine-tune on noisy labels without and with flooding.")
    parser.add_argument("model", type=model_folder, help="folder that `albert-data export` wrote")
    parser.add_argument("--level", type=float, default=0.3, help="flood level, in nats")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--lr", type=float, default=3e-4, help="learning rate (2e-5 for a model of size base)")
    arguments = parser.parse_args()
    logging.set_verbosity_error()  # no report of the weights that a head adds or leaves out
    tokenizer = load(AutoTokenizer, arguments.model)
    rows, held_out = spoil(make_remarks(64), every=5), make_remarks(400, test=True)
    for level in (0.0, arguments.level):
        torch.manual_seed(0)
        model = load(AutoModelForSequenceClassification, arguments.model, num_labels=len(NAMES))
        model.to("cuda" if torch.cuda.is_available() else "cpu")
        train(model, tokenizer, rows, held_out, level=level, epochs=arguments.epochs, lr=arguments.lr)


if __name__ == "__main__":
    main()
