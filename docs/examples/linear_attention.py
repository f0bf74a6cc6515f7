"""Linear attention: time and memory in proportion to the length of a row, in an ALBERT that was trained with softmax.

albert-data export RUN -o MODEL
python docs/examples/linear_attention.py MODEL SHARDS

Source: Katharopoulos, Vyas, Pappas and Fleuret 2020, "Transformers are RNNs", arXiv 2006.16236, section 3.2. Softmax
attention weighs each value by exp(q k); a product of feature maps, phi(q) phi(k) with phi(x) = elu(x) + 1, takes its
place. Then sums over all keys come first, sum(phi(k) v) and sum(phi(k)), and each query reads them: no tokens x tokens
matrix. The result differs from softmax, so a model has to be trained with it.

The example measures both attentions alone at several lengths, and then the MLM loss on validation rows: with softmax,
with linear attention in its place, and with linear attention after some training.
Measured (docs/reference/results.md): at 8,192 tokens a token takes 3.7 microseconds, by PyTorch's softmax 162. The loss
rises from 4.45 to 6.17, and 300 updates later it is 5.63.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler, Subset
from toy_tasks import load, model_folder
from transformers import (
    AlbertForMaskedLM,
    AttentionInterface,
    AttentionMaskInterface,
    get_linear_schedule_with_warmup,
    logging,
)

from albert_data.interop import ShardDataset

# Letters: B rows, A heads, T tokens, D the size of a head.


def attend_linearly(q_BATD: Tensor, k_BATD: Tensor, v_BATD: Tensor, valid_BT: Tensor | None = None) -> Tensor:
    """Return, for each query, the mean of the values with the weights phi(q) phi(k). Padding has the weight 0."""
    q_BATD, k_BATD = F.elu(q_BATD) + 1, F.elu(k_BATD) + 1
    if valid_BT is not None:
        k_BATD = k_BATD * valid_BT[:, None, :, None]
    sums_BADD = k_BATD.transpose(2, 3) @ v_BATD
    weights_BAT1 = q_BATD @ k_BATD.sum(2)[..., None]
    return q_BATD @ sums_BADD / weights_BAT1


def attend(
    module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **_
) -> tuple[Tensor, None]:
    """The same, as transformers calls it: the result is B x T x A x D, and there is no matrix of weights to return."""
    return attend_linearly(query, key, value, attention_mask).transpose(1, 2), None


def keep_mask(*, attention_mask: Tensor | None = None, **_) -> Tensor | None:
    """The mask of padding as the caller gave it, B x T. That of softmax would be tokens x tokens."""
    return attention_mask


AttentionInterface.register("linear", attend)
AttentionMaskInterface.register("linear", keep_mask)


def time_attentions(num_tokens: int, *, num_heads: int = 4, head_size: int = 64, repeats: int = 5) -> dict[str, float]:
    """Microseconds a token, medians: of softmax by a matrix of tokens x tokens, by torch's fused kernel, and linear."""
    q_BATD, k_BATD, v_BATD = torch.randn(3, 1, num_heads, num_tokens, head_size)
    ways = {
        "matrix": lambda: (q_BATD @ k_BATD.transpose(2, 3) / head_size**0.5).softmax(-1) @ v_BATD,
        "fused": lambda: F.scaled_dot_product_attention(q_BATD, k_BATD, v_BATD),
        "linear": lambda: attend_linearly(q_BATD, k_BATD, v_BATD),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, run in ways.items():  # side by side, so that what else the machine does slows all of them
            begin = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(times) / num_tokens * 1e6 for name, times in seconds.items()}


@torch.no_grad()
def measure_loss(model, rows: ShardDataset, num_rows: int = 256) -> float:
    """The mean loss of the masked tokens of the first rows, in nats."""
    model.eval()
    nats, count = 0.0, 0
    for batch in DataLoader(Subset(rows, range(min(num_rows, len(rows)))), 32, collate_fn=rows.collate):
        batch = {name: tensor.to(model.device) for name, tensor in batch.items()}
        num_masked = int((batch["labels"] != -100).sum())
        nats += model(**batch).loss.item() * num_masked
        count += num_masked
    return nats / count


def train(model, rows: ShardDataset, *, steps: int, lr: float, batch_rows: int = 16) -> None:
    """Train all weights on masked rows; the rate falls to 0."""
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    model.train()
    sampler = RandomSampler(rows, num_samples=batch_rows * steps)  # as many epochs as are needed
    for batch in DataLoader(rows, batch_rows, sampler=sampler, collate_fn=rows.collate):
        model(**{name: tensor.to(model.device) for name, tensor in batch.items()}).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def main() -> None:
    parser = argparse.ArgumentParser(description="Put linear attention into a model that was trained with softmax.")
    parser.add_argument("model", type=model_folder, help="folder that `albert-data export` wrote")
    parser.add_argument("shards", help="shards of the model's tokenizer, with a validation split")
    parser.add_argument("--steps", type=int, default=300, help="updates of the weights with linear attention")
    parser.add_argument("--lr", type=float, default=5e-4, help="highest learning rate")
    arguments = parser.parse_args()
    logging.set_verbosity_error()  # no report of the weights that a head adds or leaves out
    print("tokens, microseconds a token: softmax by a matrix, fused softmax, linear")
    for num_tokens in (512, 1024, 2048, 4096, 8192):
        print(num_tokens, *(f"{microseconds:.1f}" for microseconds in time_attentions(num_tokens).values()))

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load(AlbertForMaskedLM, arguments.model).to(device)
    rows = ShardDataset(arguments.shards, model)
    validation = ShardDataset(arguments.shards, model, split="validation")
    print(f"softmax: MLM loss {measure_loss(model, validation):.3f}")
    model.set_attn_implementation("linear")
    print(f"linear, untrained: MLM loss {measure_loss(model, validation):.3f}")
    train(model, rows, steps=arguments.steps, lr=arguments.lr)
    print(f"linear, after {arguments.steps} updates: MLM loss {measure_loss(model, validation):.3f}")


if __name__ == "__main__":
    main()
