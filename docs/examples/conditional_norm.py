"""Conditional LayerNorm: one model for several tasks that give the same text different labels.

albert-data export RUN -o MODEL
python docs/examples/conditional_norm.py MODEL

Source: de Vries et al. 2017, "Modulating early visual processing by language", arXiv 1707.00683, for batch
normalisation; Su Jianlin 2019, https://spaces.ac.cn/archives/7124, for LayerNorm in BERT. The gain and the shift of
each LayerNorm get a term that depends on a condition, here on which task is asked. These terms begin at zero, so the
model begins as it was pretrained. All other weights are shared by the tasks, and no token of the row is spent on the
condition.

The example has two tasks on remarks (toy_tasks.py): does the remark praise, and is it on a person? Half of the remarks
have different labels in the two. It prints the share of right labels on remarks with other words, with the condition
and without it: a model that is not told the task can be right in 75 % at best.
"""

from __future__ import annotations

import argparse
import random

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from toy_tasks import make_remark
from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_linear_schedule_with_warmup, logging

NUM_TASKS = 2


class ConditionalLayerNorm(nn.Module):
    """A LayerNorm whose gain and shift depend on the task of the row.

    A task is a one-hot vector, so the matrix that maps it to a change of the gain is a table with a row for each task.
    tasks_B: the tasks of the batch, in a list of one tensor that all norms of the model share.
    """

    def __init__(self, norm: nn.LayerNorm, tasks_B: list[Tensor]) -> None:
        super().__init__()
        self.norm, self.tasks_B = norm, tasks_B
        self.gain = nn.Embedding(NUM_TASKS, norm.normalized_shape[0])
        self.shift = nn.Embedding(NUM_TASKS, norm.normalized_shape[0])
        nn.init.zeros_(self.gain.weight)
        nn.init.zeros_(self.shift.weight)

    def forward(self, x_BTH: Tensor) -> Tensor:
        norm = self.norm
        gain_B1H = norm.weight + self.gain(self.tasks_B[0])[:, None]
        shift_B1H = norm.bias + self.shift(self.tasks_B[0])[:, None]
        return F.layer_norm(x_BTH, norm.normalized_shape, eps=norm.eps) * gain_B1H + shift_B1H


def add_condition(model: nn.Module) -> list[Tensor]:
    """Make all LayerNorms of a model conditional, and return the list in which they look for the tasks of a batch."""
    tasks_B: list[Tensor] = []
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.LayerNorm):
                setattr(module, name, ConditionalLayerNorm(child, tasks_B))
    return tasks_B


def make_rows(count: int, *, test: bool = False, seed: int = 0) -> tuple[list[str], Tensor, Tensor]:
    """Texts, tasks and labels. All combinations of a task and the labels of both tasks are equally frequent."""
    rng = random.Random(f"{seed} {test}")
    tasks = torch.arange(count) % NUM_TASKS
    praises, on_people = torch.arange(count) // 2 % 2, torch.arange(count) // 4 % 2
    texts = [make_remark(rng, bool(one), bool(other), test) for one, other in zip(praises, on_people, strict=True)]
    return texts, tasks, torch.where(tasks == 0, praises, on_people)


def learn(
    model, tokenizer, tasks_B: list[Tensor] | None, *, steps: int, lr: float, batch_rows: int = 16
) -> list[float]:
    """Train on both tasks together, and return the share of right labels in each, on other words."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)

    def predict(texts: list[str], tasks: Tensor) -> Tensor:
        if tasks_B is not None:
            tasks_B[:] = [tasks.to(model.device)]
        return model(**tokenizer(texts, padding=True, return_tensors="pt").to(model.device)).logits.cpu()

    model.train()
    for step in range(steps):
        texts, tasks, labels = make_rows(batch_rows, seed=step)
        loss = F.cross_entropy(predict(texts, tasks), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.3f}")
    model.eval()
    texts, tasks, labels = make_rows(400, test=True)
    with torch.no_grad():
        right = predict(texts, tasks).argmax(-1) == labels
    return [right[tasks == task].float().mean().item() for task in range(NUM_TASKS)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn two tasks in one model, with and without a condition.")
    parser.add_argument("model", help="folder that `albert-data export` wrote")
    parser.add_argument("--steps", type=int, default=200, help="updates of the weights")
    parser.add_argument("--lr", type=float, default=3e-4, help="highest learning rate (2e-5 for a model of size base)")
    arguments = parser.parse_args()
    logging.set_verbosity_error()  # no report of the weights that a head adds or leaves out
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    for conditional in (False, True):
        torch.manual_seed(0)
        model = AutoModelForSequenceClassification.from_pretrained(arguments.model)
        tasks_B = add_condition(model) if conditional else None
        model.to("cuda" if torch.cuda.is_available() else "cpu")
        judgement, subject = learn(model, tokenizer, tasks_B, steps=arguments.steps, lr=arguments.lr)
        name = "conditional" if conditional else "plain"
        print(f"{name}: right {judgement:.1%} (praise or blame), {subject:.1%} (person or thing)")


if __name__ == "__main__":
    main()
