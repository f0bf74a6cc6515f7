"""T-TA: the probability of each token given all others, for all tokens of a sentence in one pass.

albert-data export RUN -o MODEL
python docs/examples/text_autoencoder.py MODEL SHARDS

Source: Shin, Lee, Yoon and Jung 2020, "Fast and Accurate Deep Bidirectional Language Representations for Unsupervised
Learning" (T-TA), arXiv 2004.08097. A masked model gives the probability of one token a pass, the masked one. Here each
position asks with a query that contains no token, and no position attends to itself; keys and values are the embeddings
of the input in every layer, not the results of the layer before, which would contain all tokens. So the result at a
position depends on all tokens but its own, and every token of a row is a label.
Deviation: the first query is [MASK] with its position, where the paper has the position alone, and weights are not
random: those of the exported model are trained on.

The example trains for a while. Then it takes pieces of validation rows, exchanges two neighbouring tokens in a copy,
and counts how often the original is the more probable one: by the masked model in a pass for each token, and by T-TA in
one.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import AlbertForMaskedLM, AutoTokenizer, get_linear_schedule_with_warmup, logging

from albert_data.interop import ShardDataset

# Letters: B rows, T tokens, H hidden size, A heads, D the size of a head, V pieces.


class TextAutoencoder(nn.Module):
    """The weights of a masked ALBERT, connected as in T-TA."""

    def __init__(self, model: AlbertForMaskedLM, mask_id: int) -> None:
        super().__init__()
        self.model, self.mask_id = model, mask_id

    def forward(self, ids_BT: Tensor, types_BT: Tensor, valid_BT: Tensor) -> Tensor:
        """The logits of each token given all others, B x T x V."""
        albert, config = self.model.albert, self.model.config
        mapping = albert.encoder.embedding_hidden_mapping_in
        memory_BTH = mapping(albert.embeddings(ids_BT, token_type_ids=types_BT))
        x_BTH = mapping(albert.embeddings(torch.full_like(ids_BT, self.mask_id), token_type_ids=types_BT))
        others_TT = ~torch.eye(ids_BT.shape[1], dtype=torch.bool, device=ids_BT.device)
        allowed_B1TT = valid_BT.bool()[:, None, None, :] & others_TT
        for number in range(config.num_hidden_layers):
            group = albert.encoder.albert_layer_groups[number * config.num_hidden_groups // config.num_hidden_layers]
            for layer in group.albert_layers:
                x_BTH = run_layer(layer, x_BTH, memory_BTH, allowed_B1TT)
        return self.model.predictions(x_BTH)


def run_layer(layer: nn.Module, x_BTH: Tensor, memory_BTH: Tensor, allowed_B1TT: Tensor) -> Tensor:
    """A layer whose queries come from x, keys and values from the embeddings of the input."""
    attention = layer.attention
    projected = attention.query(x_BTH), attention.key(memory_BTH), attention.value(memory_BTH)
    q_BATD, k_BATD, v_BATD = (
        y_BTH.unflatten(-1, (attention.num_attention_heads, -1)).transpose(1, 2) for y_BTH in projected
    )
    mixed_BTH = F.scaled_dot_product_attention(q_BATD, k_BATD, v_BATD, allowed_B1TT).transpose(1, 2).flatten(2)
    y_BTH = attention.LayerNorm(x_BTH + attention.dense(mixed_BTH))
    return layer.full_layer_layer_norm(layer.ff_chunk(y_BTH) + y_BTH)


def restore(batch: dict[str, Tensor]) -> Tensor:
    """The ids of a batch without masks."""
    return torch.where(batch["labels"] >= 0, batch["labels"], batch["input_ids"])


def train(autoencoder: TextAutoencoder, rows: ShardDataset, special_ids: Tensor, *, steps: int, lr: float) -> None:
    """Train all weights to predict every token from the others, except special ones; for one epoch at most."""
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(autoencoder.parameters(), lr=lr)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    autoencoder.train()
    for step, batch in zip(range(steps), DataLoader(rows, 16, shuffle=True, collate_fn=rows.collate), strict=False):
        batch = {name: tensor.to(special_ids.device) for name, tensor in batch.items()}
        ids_BT = restore(batch)
        labels_BT = ids_BT.masked_fill(torch.isin(ids_BT, special_ids), -100)
        logits_BTV = autoencoder(ids_BT, batch["token_type_ids"], batch["attention_mask"])
        loss = F.cross_entropy(logits_BTV.flatten(0, 1), labels_BT.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(autoencoder.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 50 == 49:
            print(f"step {step + 1}: loss {loss.item():.3f}")


def score_in_one_pass(autoencoder: TextAutoencoder, ids_T: Tensor) -> float:
    """The sum of the log probabilities of all tokens but [CLS] and [SEP] given the others, in nats."""
    logits_TV = autoencoder(ids_T[None], torch.zeros_like(ids_T[None]), torch.ones_like(ids_T[None]))[0]
    return -F.cross_entropy(logits_TV[1:-1], ids_T[1:-1], reduction="sum").item()


def score_by_masks(model: AlbertForMaskedLM, ids_T: Tensor, mask_id: int) -> float:
    """The same by a masked model: a row for each token, in which it is masked."""
    places = torch.arange(1, len(ids_T) - 1, device=ids_T.device)
    masked_BT = ids_T.repeat(len(places), 1)
    masked_BT[torch.arange(len(places)), places] = mask_id
    logits_BV = model(input_ids=masked_BT).logits[torch.arange(len(places)), places]
    return -F.cross_entropy(logits_BV, ids_T[1:-1], reduction="sum").item()


def make_pairs(rows: ShardDataset, num_tokens: int) -> list[tuple[Tensor, Tensor]]:
    """[CLS], the first tokens of a row, [SEP]; and a copy in which two different neighbours are exchanged."""
    random = torch.Generator().manual_seed(0)
    pairs: list[tuple[Tensor, Tensor]] = []
    for row in rows:
        ids_T, in_a = restore(row), int((row["token_type_ids"] == 0).sum())  # with [CLS] and [SEP]
        if in_a < num_tokens + 2:
            continue
        good_T = torch.cat([ids_T[: num_tokens + 1], ids_T[in_a - 1 : in_a]])
        place = int(torch.randint(1, num_tokens, (), generator=random))
        bad_T = good_T.clone()
        bad_T[[place, place + 1]] = good_T[[place + 1, place]]
        if not torch.equal(good_T, bad_T):
            pairs.append((good_T, bad_T))
    return pairs


@torch.no_grad()
def compare(score, pairs: list[tuple[Tensor, Tensor]]) -> tuple[float, float]:
    """The share of pairs whose original has the higher score, and the seconds for a score."""
    begin = time.perf_counter()
    right = sum(score(good_T) > score(bad_T) for good_T, bad_T in pairs)
    return right / len(pairs), (time.perf_counter() - begin) / (2 * len(pairs))


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a text autoencoder (T-TA) and compare it with a masked model.")
    parser.add_argument("model", help="folder that `albert-data export` wrote")
    parser.add_argument("shards", help="shards of the model's tokenizer, with a validation split")
    parser.add_argument("--steps", type=int, default=300, help="updates of the weights")
    parser.add_argument("--lr", type=float, default=5e-4, help="highest learning rate")
    parser.add_argument("--tokens", type=int, default=24, help="tokens of a text that is scored")
    arguments = parser.parse_args()
    logging.set_verbosity_error()  # no report of the weights that a head adds or leaves out
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AlbertForMaskedLM.from_pretrained(arguments.model).to(device).eval()
    rows, validation = (
        ShardDataset(arguments.shards, model, split=split, remask=False) for split in ("train", "validation")
    )
    pairs = [(good.to(device), bad.to(device)) for good, bad in make_pairs(validation, arguments.tokens)[:200]]
    if not pairs:
        raise SystemExit(f"{arguments.shards}: no validation row begins with {arguments.tokens} tokens; lower --tokens")
    share, seconds = compare(lambda ids_T: score_by_masks(model, ids_T, tokenizer.mask_token_id), pairs)
    print(f"masked model: right {share:.1%} of {len(pairs)}, {1000 * seconds:.1f} ms a text")

    autoencoder = TextAutoencoder(model, tokenizer.mask_token_id)
    special_ids = torch.tensor(tokenizer.all_special_ids, device=device)
    train(autoencoder, rows, special_ids, steps=arguments.steps, lr=arguments.lr)
    share, seconds = compare(lambda ids_T: score_in_one_pass(autoencoder.eval(), ids_T), pairs)
    print(f"T-TA: right {share:.1%} of {len(pairs)}, {1000 * seconds:.1f} ms a text")


if __name__ == "__main__":
    main()
