"""Counts the parameters of an ALBERT by part. Imports no torch.

In: an AlbertConfig. Out: counts by formula (the tests compare them with the model, with transformers and with the
paper), and text of at most 80 columns. A shared or tied parameter counts once.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from albert_data.train.config import MODEL_PRESETS, AlbertConfig


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Parameters of each part. The MLM head uses the token embeddings; they count in embeddings, not in mlm_head."""

    embeddings: int
    projection: int
    attention: int
    ffn: int
    pooler: int
    mlm_head: int
    sop_head: int

    @property
    def layers(self) -> int:
        return self.attention + self.ffn

    @property
    def without_heads(self) -> int:
        """What is kept after pretraining. The output calls it "encoder"; `model.Encoder` is only the layers."""
        return self.embeddings + self.projection + self.layers + self.pooler

    @property
    def all(self) -> int:
        return self.without_heads + self.mlm_head + self.sop_head


def count_parameters(config: AlbertConfig) -> Sizes:
    """Count the parameters of the `Albert` with this config."""
    v, e, h, ffn = config.vocab_size, config.embedding_size, config.hidden_size, config.ffn_size
    num_segments, num_labels = 2, len(config.task.orders)
    return Sizes(
        embeddings=(v + config.max_positions + num_segments) * e + 2 * e,  # 2 * e: the LayerNorm
        projection=_linear(e, h),
        attention=config.num_attentions * (4 * _linear(h, h) + 2 * h),
        ffn=config.num_ffns * (_linear(h, ffn) + _linear(ffn, h) + 2 * h),
        pooler=_linear(h, h) if num_labels else 0,
        mlm_head=_linear(h, e) + 2 * e + v,  # v: the bias
        sop_head=_linear(h, num_labels),
    )


def _linear(num_inputs: int, num_outputs: int) -> int:
    return num_inputs * num_outputs + num_outputs


def describe_sizes(name: str) -> str:
    """Describe a preset: its shape, and its parameters by part."""
    c = MODEL_PRESETS[name]
    return (
        f"Preset {name}\n"
        f"  E {c.embedding_size:,}, H {c.hidden_size:,}, {c.num_layers} layers, {c.num_heads} heads, "
        f"feed-forward {c.ffn_size:,}\n"
        f"  {c.vocab_size:,} pieces, {c.max_positions:,} positions, share {c.share}, groups {c.num_groups}, "
        f"inner groups {c.num_inner_groups}, dropout {c.dropout}\n\n{describe_parts(c)}"
    )


def sizes_to_dict(name: str) -> dict[str, Any]:
    """The same as values that JSON can hold."""
    config = MODEL_PRESETS[name]
    return {"preset": name, "config": asdict(config), "parameters": parts_to_dict(config)}


def parts_to_dict(config: AlbertConfig) -> dict[str, int]:
    """The parameters of each part, and the sums of them that are shown."""
    sizes = count_parameters(config)
    return {**asdict(sizes), "encoder": sizes.without_heads, "all": sizes.all}


def describe_parts(config: AlbertConfig) -> str:
    """List the parameters of a model by part."""
    sizes, num_runs = count_parameters(config), len(config.inner_layers())
    rows = [
        ("embeddings", sizes.embeddings, "tokens, positions, segments, and a LayerNorm"),
        ("projection", sizes.projection, "from E to H"),
        ("attention", sizes.attention, f"{config.num_attentions} stored, {num_runs} computed"),
        ("feed-forward", sizes.ffn, f"{config.num_ffns} stored, {num_runs} computed"),
        ("pooler", sizes.pooler, ""),
        ("encoder", sizes.without_heads, "the sum so far: what one keeps"),
        ("MLM head", sizes.mlm_head, "its table is the embedding of tokens"),
        *([(f"{config.task.title} head", sizes.sop_head, "")] if config.task.orders else []),
        ("all", sizes.all, ""),
    ]
    return "Parameters\n" + "\n".join(f"  {part:<14}{count:>13,}  {note}".rstrip() for part, count, note in rows)
