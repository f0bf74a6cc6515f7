"""ALBERT (Lan et al. 2020, section 3) with its two pretraining heads.

In: a Batch. Out: the MLM logits of the masked tokens, the SOP logits of the rows, and the sums of their losses. The SOP
head is that of the shards' sentence task: it has as many labels, and without a task there is none.
It differs from BERT in three ways: embeddings of size E are projected to the hidden size H (factorised embedding),
layers share parameters in groups, and sentence order prediction replaces next sentence prediction.
Deviation: there is a projection even if E = H, as in transformers; Google's code has none then.
The heads read the first cell of each row and the masked ones, about a sixth of all. So only these go through the last
layer behind its attention, and through the MLM head.
Shape letters: see batch.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from albert_data.train.attention import PackedRows, attend_by_products, attend_packed, is_short_on_cpu, mask_groups
from albert_data.train.batch import NO_LABEL, Batch
from albert_data.train.config import AlbertConfig

LAYER_NORM_EPS = 1e-12
INIT_STD = 0.02


@dataclass(frozen=True, kw_only=True, eq=False)
class Output:
    """The predictions of the two heads, and the sums of their losses.

    mlm_nats, sop_nats: float32 [], over the labels that are not -1. A mean divides them by counts of other batches too.
    mlm_logits_NV: float32, or the dtype of autocast.
    sop_logits_BK: the same; None without a sentence task.
    """

    mlm_nats: Tensor
    sop_nats: Tensor
    mlm_logits_NV: Tensor
    sop_logits_BK: Tensor | None


class LayerNorm(nn.LayerNorm):
    """LayerNorm that computes in float32 under autocast too, and returns the dtype of its input.

    float16 can't hold eps, and bfloat16 has too few digits for a sum of squares. The result is what the next layer
    reads: in 16 bits it is half the bytes to move, and autocast would round it before the next product anyway.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size, eps=LAYER_NORM_EPS)

    def forward(self, x: Tensor) -> Tensor:
        exact = F.layer_norm(x.to(self.weight.dtype), self.normalized_shape, self.weight, self.bias, self.eps)
        return exact.to(x.dtype)


class Embeddings(nn.Module):
    """Token, position and segment vectors of size E, summed, normalised, projected to H."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        size = config.embedding_size
        self.token = nn.Embedding(config.vocab_size, size)
        self.position = nn.Embedding(config.max_positions, size)
        self.segment = nn.Embedding(2, size)
        self.norm = LayerNorm(size)
        self.dropout = nn.Dropout(config.dropout)
        self.project = nn.Linear(size, config.hidden_size)

    def forward(self, input_ids_BT: Tensor, segment_ids_BT: Tensor, positions_BT: Tensor | None = None) -> Tensor:
        first_TE = self.position.weight[: input_ids_BT.shape[1]]
        position_TE = first_TE if positions_BT is None else self.position(positions_BT)
        sum_BTE = self.token(input_ids_BT) + position_TE + self.segment(segment_ids_BT)
        x_BTH: Tensor = self.project(self.dropout(self.norm(sum_BTE)))
        return x_BTH


class Attention(nn.Module):
    """Self-attention, then residual and LayerNorm (post-norm)."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.dropout_prob = config.dropout
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.out = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.norm = LayerNorm(config.hidden_size)

    def forward(self, x_BTH: Tensor, rows: Tensor | PackedRows, cells_C: Tensor | None = None) -> Tensor:
        """cells_C: which cells of the flattened batch to return, as [C, H]; None: all."""
        qkv_BT3AD = self.qkv(x_BTH).unflatten(-1, (3, self.num_heads, -1))
        q_BATD, k_BATD, v_BATD = qkv_BT3AD.permute(2, 0, 3, 1, 4)
        dropout = self.dropout_prob if self.training else 0.0
        if isinstance(rows, PackedRows):
            mixed_BATD = attend_packed(q_BATD, k_BATD, v_BATD, rows, dropout)
        elif is_short_on_cpu(q_BATD):
            mixed_BATD = attend_by_products(q_BATD, k_BATD, v_BATD, rows, dropout)
        else:
            mixed_BATD = F.scaled_dot_product_attention(q_BATD, k_BATD, v_BATD, rows, dropout_p=dropout)
        mixed_BTH = mixed_BATD.transpose(1, 2).flatten(2)
        if cells_C is not None:
            x_BTH, mixed_BTH = (cells.flatten(0, 1).index_select(0, cells_C) for cells in (x_BTH, mixed_BTH))
        y_BTH: Tensor = self.norm(x_BTH + self.dropout(self.out(mixed_BTH)))
        return y_BTH


class FeedForward(nn.Module):
    """Two linear layers around a tanh-gelu, then residual and LayerNorm (post-norm)."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.hidden_size, config.ffn_size)
        self.down = nn.Linear(config.ffn_size, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.norm = LayerNorm(config.hidden_size)

    def forward(self, x_BTH: Tensor) -> Tensor:
        inner_BTI = F.gelu(self.up(x_BTH), approximate="tanh")
        y_BTH: Tensor = self.norm(x_BTH + self.dropout(self.down(inner_BTI)))
        return y_BTH


class Encoder(nn.Module):
    """Runs the attentions and feed-forwards in the order of `config.inner_layers`.

    recompute: in training, the backward pass gets only the input of each inner layer, and computes the rest again.
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.inner_layers = config.inner_layers()
        self.recompute = False
        self.attentions = nn.ModuleList(Attention(config) for _ in range(config.num_attentions))
        self.ffns = nn.ModuleList(FeedForward(config) for _ in range(config.num_ffns))

    def forward(self, x_BTH: Tensor, rows: Tensor | PackedRows, cells_C: Tensor | None = None) -> Tensor:
        """cells_C: which cells of the flattened batch to return, as [C, H]; None: all."""
        for number, (attention, ffn) in enumerate(self.inner_layers, 1):
            read = (cells_C,) if number == len(self.inner_layers) else ()
            if self.recompute and self.training:
                x_BTH = checkpoint(self.run_inner_layer, attention, ffn, x_BTH, rows, *read, use_reentrant=False)
            else:
                x_BTH = self.run_inner_layer(attention, ffn, x_BTH, rows, *read)
        return x_BTH

    def run_inner_layer(
        self, attention: int, ffn: int, x_BTH: Tensor, rows: Tensor | PackedRows, cells_C: Tensor | None = None
    ) -> Tensor:
        """Run an attention and a feed-forward, given by their indices. It is compiled as one graph."""
        y_BTH: Tensor = self.ffns[ffn](self.attentions[attention](x_BTH, rows, cells_C))
        return y_BTH


class MlmHead(nn.Module):
    """Projects hidden states back to size E, then decodes with the token embedding itself, plus a bias."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.embedding_size)
        self.norm = LayerNorm(config.embedding_size)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x_NH: Tensor, token_embedding_VE: Tensor) -> Tensor:
        x_NE = self.norm(F.gelu(self.dense(x_NH), approximate="tanh"))
        return F.linear(x_NE, token_embedding_VE, self.bias)

    def measure(self, x_NH: Tensor, token_embedding_VE: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits and the sum of the losses. Compiled, it makes no float32 tensor of N x V."""
        logits_NV = self(x_NH, token_embedding_VE)
        return logits_NV, sum_losses(logits_NV, labels_N)


class Albert(nn.Module):
    """The model for pretraining. Afterwards all but the two heads is kept: what `encode` runs, and the pooler."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config)
        num_labels = len(config.task.orders)
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if num_labels else None
        self.sop_head = nn.Linear(config.hidden_size, num_labels) if num_labels else None
        self.mlm_head = MlmHead(config)
        self.apply(_init_weights)

    @torch.no_grad()
    def set_sinusoids(self) -> None:
        """Let positions begin as sinusoids (Vaswani et al. 2017, section 3.5), turned at random.

        "The token before" is then one matrix for all positions. From random vectors it is learnt for each of them.
        Wavelengths are 2 pi to pi times the number of positions, and elements have the deviation that they had.
        """
        position_PE = self.embeddings.position.weight
        num_positions, size = position_PE.shape
        rates = (num_positions / 2) ** -(torch.arange(0, size, 2) / size)
        angles = torch.arange(num_positions)[:, None] * rates
        waves_PE = torch.cat((angles.sin(), angles.cos()), dim=1)[:, :size]
        position_PE.copy_(INIT_STD * 2**0.5 * waves_PE @ nn.init.orthogonal_(torch.empty(size, size)))

    def encode(self, batch: Batch, window: int = 0) -> Tensor:
        """Return the hidden states of the last layer, x_BTH; at padding they have no meaning.

        window: how many tokens before and after a token it attends to; 0: to all of its row.
        """
        return self._encode(batch, window, None)

    def _encode(self, batch: Batch, window: int, cells_C: Tensor | None) -> Tensor:
        # A mask even if there is no padding: without one, torch would compile another graph.
        rows: Tensor | PackedRows = batch.valid_BT[:, None, None, :]
        if batch.row_offsets_R is not None and batch.longest is not None:
            rows = PackedRows(batch.row_offsets_R, batch.longest, window)
        elif window:
            rows = mask_groups(batch.valid_BT, window)  # padding attends to padding: softmax of nothing would be NaN
        x_BTH: Tensor = self.embeddings(batch.input_ids_BT, batch.segment_ids_BT, batch.positions_BT)
        x_BTH = self.encoder(x_BTH, rows, cells_C)
        return x_BTH

    def forward(self, batch: Batch, window: int = 0) -> Output:
        first_B = self._find_first_cells(batch)
        x_CH = self._encode(batch, window, torch.cat((first_B, batch.masked_indices_N)))
        first_BH, masked_NH = x_CH[: len(first_B)], x_CH[len(first_B) :]
        sop_logits_BK = None
        if self.pooler is not None and self.sop_head is not None:
            sop_logits_BK = self.sop_head(torch.tanh(self.pooler(first_BH)))
        mlm_logits_NV, mlm_nats = self.mlm_head.measure(masked_NH, self.embeddings.token.weight, batch.masked_labels_N)
        sop_nats = torch.zeros_like(mlm_nats)
        if sop_logits_BK is not None:
            sop_nats = sum_losses(sop_logits_BK, batch.sop_labels_B)
        return Output(mlm_nats=mlm_nats, sop_nats=sop_nats, mlm_logits_NV=mlm_logits_NV, sop_logits_BK=sop_logits_BK)

    def _find_first_cells(self, batch: Batch) -> Tensor:
        """The cell of each row's [CLS] in the flattened batch, int64; none without a sentence task."""
        num_rows, row_len = batch.input_ids_BT.shape
        if self.pooler is None:
            return batch.masked_indices_N[:0]
        if batch.row_offsets_R is None:
            return torch.arange(num_rows, device=batch.input_ids_BT.device) * row_len
        # The empty rows at the end begin after the last cell, and have no label.
        return batch.row_offsets_R[:-1].clamp(max=num_rows * row_len - 1).long()

    def num_parameters(self) -> int:
        """Count the parameters, a shared or tied one once."""
        return sum(parameter.numel() for parameter in self.parameters())


def sum_losses(logits_NV: Tensor, labels_N: Tensor) -> Tensor:
    """Return the sum of the losses, in nats, over the labels that are not -1; 0 without labels."""
    if not torch.compiler.is_compiling():
        return F.cross_entropy(logits_NV.float(), labels_N, reduction="sum", ignore_index=NO_LABEL)
    # Compiled, the gradient of this comparison is one more term of the kernel that writes the gradient of the logits.
    # That of `F.cross_entropy`, or of an index, would first be written as float32 zeros of N x V.
    is_label_NV = torch.arange(logits_NV.shape[1], device=logits_NV.device) == labels_N[:, None]
    picked_N = torch.where(is_label_NV, logits_NV.float(), 0.0).sum(-1)
    nats_N = logits_NV.float().logsumexp(-1) - picked_N
    return torch.where(labels_N == NO_LABEL, 0.0, nats_N).sum()


def _init_weights(module: nn.Module) -> None:
    """Draw matrices from a normal distribution truncated at two deviations, as Google's code does; biases are 0."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.trunc_normal_(module.weight, std=INIT_STD, a=-2 * INIT_STD, b=2 * INIT_STD)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
