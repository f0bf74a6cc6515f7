"""BERT-of-Theseus: a model of half as many layers, trained by replacing the layers of the whole one at random.

albert-data export RUN -o MODEL
python docs/examples/theseus.py MODEL SHARDS -o HALF

Source: Xu, Zhou, Ge, Wei and Zhou 2020, "BERT-of-Theseus: Compressing BERT by Progressive Module Replacing", arXiv
2002.02925. Two layers of the model (the predecessor) are one module, and one new layer is its successor. In each update
a module is replaced by its successor with a probability that rises to 1, so the successors learn to work between
trained layers. The only loss is that of the task, and only the successors are trained.

Here the task is the MLM loss on shards. An ALBERT shares its layers, so all modules have one successor, with the
weights of the shared layer at first: half the time, and as many parameters. The example prints the loss on validation
rows of the whole model, of every second layer left out, of the half trained alone, and of the half trained by
replacing.
Measured (docs/reference/results.md): 4 layers 4.447, left out 5.128, 2 trained alone 4.605, by replacing 4.612: no
gain here.
"""

from __future__ import annotations

import argparse
import copy

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, Subset
from toy_tasks import load, model_folder
from transformers import AlbertForMaskedLM, AutoTokenizer, get_linear_schedule_with_warmup, logging
from transformers.modeling_outputs import BaseModelOutput

from albert_data.interop import ShardDataset


class TheseusEncoder(nn.Module):
    """Runs for every two layers of an encoder either these or, with the probability `rate`, the successor."""

    def __init__(self, predecessor: nn.Module) -> None:
        super().__init__()
        self.predecessor, self.rate = predecessor, 1.0
        self.successor = copy.deepcopy(predecessor.albert_layer_groups[0])

    def forward(self, x_BTE: Tensor, mask: Tensor | None = None, **options) -> BaseModelOutput:
        config, groups = self.predecessor.config, self.predecessor.albert_layer_groups
        x_BTH = self.predecessor.embedding_hidden_mapping_in(x_BTE)
        for number in range(0, config.num_hidden_layers, 2):
            if not self.training or torch.rand(()) < self.rate:
                x_BTH = self.successor(x_BTH, mask, **options)
            else:
                for layer in (number, number + 1):
                    group = groups[layer * config.num_hidden_groups // config.num_hidden_layers]
                    x_BTH = group(x_BTH, mask, **options)
        return BaseModelOutput(last_hidden_state=x_BTH)


def begin_half(model: AlbertForMaskedLM) -> AlbertForMaskedLM:
    """A copy of a model, of which only the successor is trained. In evaluation it runs the successor alone."""
    half = copy.deepcopy(model).requires_grad_(False)
    half.albert.encoder = TheseusEncoder(half.albert.encoder)
    half.albert.encoder.successor.requires_grad_(True)
    return half


def finish_half(half: AlbertForMaskedLM) -> AlbertForMaskedLM:
    """An ordinary ALBERT of half the layers, with the weights of the successor."""
    config = copy.deepcopy(half.config)
    config.num_hidden_layers, config.num_hidden_groups = config.num_hidden_layers // 2, 1
    theseus, model = half.albert.encoder, AlbertForMaskedLM(config)
    weights = {name: tensor for name, tensor in half.state_dict().items() if ".encoder." not in name}
    model.load_state_dict(weights, strict=False)
    model.albert.encoder.embedding_hidden_mapping_in = theseus.predecessor.embedding_hidden_mapping_in
    model.albert.encoder.albert_layer_groups[0] = theseus.successor
    return model.eval().to(half.device)


def train(half: AlbertForMaskedLM, rows: ShardDataset, *, steps: int, lr: float, first_rate: float) -> None:
    """Train the successor. The rate of replacing reaches 1 after half of the steps."""
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW([weight for weight in half.parameters() if weight.requires_grad], lr=lr)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    half.train()
    loader = DataLoader(rows, 16, sampler=RandomSampler(rows, num_samples=16 * steps), collate_fn=rows.collate)
    for step, batch in enumerate(loader):
        half.albert.encoder.rate = min(1.0, first_rate + (1 - first_rate) * step / (steps / 2))
        loss = half(**{name: tensor.to(half.device) for name, tensor in batch.items()}).loss
        if not loss.requires_grad:  # no module was replaced, so there is nothing to learn from this batch
            continue
        loss.backward()
        torch.nn.utils.clip_grad_norm_(half.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


@torch.no_grad()
def measure_loss(model: AlbertForMaskedLM, rows: ShardDataset, num_rows: int = 256) -> float:
    """The mean loss of the masked tokens of the first rows, in nats."""
    model.eval()
    nats, count = 0.0, 0
    for batch in DataLoader(Subset(rows, range(min(num_rows, len(rows)))), 32, collate_fn=rows.collate):
        num_masked = int((batch["labels"] != -100).sum())
        nats += model(**{name: tensor.to(model.device) for name, tensor in batch.items()}).loss.item() * num_masked
        count += num_masked
    return nats / count


def main() -> None:
    parser = argparse.ArgumentParser(description="Halve the layers of a model by replacing them at random.")
    parser.add_argument("model", type=model_folder, help="exported folder, of an even number of layers")
    parser.add_argument("shards", help="shards of the model's tokenizer, with a validation split")
    parser.add_argument("-o", "--output", help="folder for the model of half the layers")
    parser.add_argument("--steps", type=int, default=300, help="updates of the weights")
    parser.add_argument("--lr", type=float, default=5e-4, help="highest learning rate")
    parser.add_argument("--rate", type=float, default=0.5, help="probability of replacing at the first step")
    arguments = parser.parse_args()
    logging.set_verbosity_error()  # no report of the weights that a head adds or leaves out
    model = load(AlbertForMaskedLM, arguments.model).to("cuda" if torch.cuda.is_available() else "cpu")
    num_layers = model.config.num_hidden_layers
    if model.config.num_hidden_groups > 1:
        raise SystemExit(f"{arguments.model}: has {model.config.num_hidden_groups} groups of layers; one is needed")
    if num_layers % 2:
        raise SystemExit(f"{arguments.model}: has {num_layers} layers, an odd number, which can't be halved")
    rows = ShardDataset(arguments.shards, model)
    validation = ShardDataset(arguments.shards, model, split="validation")
    print(f"{num_layers} layers: MLM loss {measure_loss(model, validation):.3f}")
    print(f"every second layer left out: {measure_loss(begin_half(model), validation):.3f}")
    for name, first_rate in (("trained alone", 1.0), ("trained by replacing", arguments.rate)):
        half = begin_half(model)
        train(half, rows, steps=arguments.steps, lr=arguments.lr, first_rate=first_rate)
        print(f"{num_layers // 2} layers {name}: {measure_loss(half, validation):.3f}")
    if arguments.output:
        finish_half(half).save_pretrained(arguments.output)
        load(AutoTokenizer, arguments.model).save_pretrained(arguments.output)


if __name__ == "__main__":
    main()
