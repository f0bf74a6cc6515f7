"""Conditional LayerNorm: one model for several matching tasks, which give the same pair of texts different labels.

albert-data export RUN -o MODEL
python docs/examples/conditional_norm.py MODEL

Source: de Vries et al. 2017, "Modulating early visual processing by language", arXiv 1707.00683, for batch
normalisation; Su Jianlin 2019, https://spaces.ac.cn/archives/7124, for LayerNorm in BERT. The gain and the shift of
each LayerNorm get a term that depends on a condition, here on which task is asked. These terms begin at zero, so the
model begins as it was pretrained. All other weights are shared by the tasks, and no token of the row is spent on the
condition.

The example has two tasks on pairs of remarks (toy_tasks.py): do both praise or both blame, and are both on a person or
both on a thing? Half of the pairs match in one task and not in the other. It prints the share of right labels on
remarks with other words, with the condition and without it: a model that is not told the task can be right in 75 % at
best.
Measured (docs/reference/results.md): 79 % with the condition, 75 % without it, on average of both tasks.
"""

from __future__ import annotations

import argparse
import random

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from toy_tasks import load, make_remark, model_folder
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


def make_rows(count: int, *, test: bool = False, seed: int = 0) -> tuple[list[str], list[str], Tensor, Tensor]:
    """First and second remarks, tasks and labels. Of 32 rows each combination of these has as many."""
    rng, numbers = random.Random(f"{seed} {test}"), torch.arange(count)
    tasks, both_judge, both_regard, praises, on_people = (numbers // 2**place % 2 for place in range(5))
    first = [make_remark(rng, bool(one), bool(other), test) for one, other in zip(praises, on_people, strict=True)]
    second = [
        make_remark(rng, bool(one), bool(other), test)
        for one, other in zip(praises == both_judge, on_people == both_regard, strict=True)
    ]
    return first, second, tasks, torch.where(tasks == 0, both_judge, both_regard)


def learn(
    model, tokenizer, tasks_B: list[Tensor] | None, *, steps: int, lr: float, batch_rows: int = 32
) -> list[float]:
    """Train on both tasks together, and return the share of right labels in each, on other words."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)

    def predict(first: list[str], second: list[str], tasks: Tensor) -> Tensor:
        if tasks_B is not None:
            tasks_B[:] = [tasks.to(model.device)]
        return model(**tokenizer(first, second, padding=True, return_tensors="pt").to(model.device)).logits.cpu()

    model.train()
    for step in range(steps):
        *rows, labels = make_rows(batch_rows, seed=step)
        loss = F.cross_entropy(predict(*rows), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.3f}")
    model.eval()
    *rows, labels = make_rows(384, test=True)
    with torch.no_grad():
        right = predict(*rows).argmax(-1) == labels
    return [right[rows[-1] == task].float().mean().item() for task in range(NUM_TASKS)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn two tasks in one model, with and without a condition.")
    parser.add_argument("model", type=model_folder, help="folder that `albert-data export` wrote")
    parser.add_argument("--steps", type=int, default=400, help="updates of the weights")
    parser.add_argument("--lr", type=float, default=3e-4, help="highest learning rate (2e-5 for a model of size base)")
    arguments = parser.parse_args()
    logging.set_verbosity_error()  # no report of the weights that a head adds or leaves out
    tokenizer = load(AutoTokenizer, arguments.model)
    for conditional in (False, True):
        torch.manual_seed(0)
        model = load(AutoModelForSequenceClassification, arguments.model)
        tasks_B = add_condition(model) if conditional else None
        model.to("cuda" if torch.cuda.is_available() else "cpu")
        judgement, subject = learn(model, tokenizer, tasks_B, steps=arguments.steps, lr=arguments.lr)
        name = "conditional" if conditional else "plain"
        print(f"{name}: right {judgement:.1%} (same judgement), {subject:.1%} (same kind of subject)")


if __name__ == "__main__":
    main()
