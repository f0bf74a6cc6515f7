"""Counts the parameters of an ALBERT by part and compares them with the paper's counts. Imports no torch.

In: an AlbertConfig. Out: counts by formula (the tests compare them with the model and with transformers), and text
of at most 80 columns. A shared or tied parameter counts once.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

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


class PaperRow(NamedTuple):
    """A row of Lan et al. 2020, table 1. millions: the parameters as stated there."""

    name: str
    config: AlbertConfig
    millions: int


_BERT_BASE = AlbertConfig(embedding_size=768, share="none", dropout=0.1)
_BERT_LARGE = AlbertConfig(
    embedding_size=1024, hidden_size=1024, num_layers=24, num_heads=16, ffn_size=4096, share="none", dropout=0.1
)
PAPER = (
    PaperRow("ALBERT base", MODEL_PRESETS["base"], 12),
    PaperRow("ALBERT large", MODEL_PRESETS["large"], 18),
    PaperRow("ALBERT xlarge", MODEL_PRESETS["xlarge"], 60),
    PaperRow("ALBERT xxlarge", MODEL_PRESETS["xxlarge"], 235),
    PaperRow("BERT base", _BERT_BASE, 108),
    PaperRow("BERT large", _BERT_LARGE, 334),
)
_PAPER_HEAD = """\
Millions        the paper   embeddings   with projection   with the
                  says      and layers     and pooler        heads
"""
_PAPER_NOTES = """
  Of xxlarge the paper says 235M; Google's released code makes 223M, as here.
  BERT is this code with share none and E = H. The paper's 108M and 334M are its
  embeddings and layers; its count of ALBERT includes projection and pooler."""


def describe_sizes(name: str) -> str:
    """Describe a preset: its shape, its parameters by part, and the paper's table."""
    c = MODEL_PRESETS[name]
    return (
        f"Preset {name}\n"
        f"  E {c.embedding_size:,}, H {c.hidden_size:,}, {c.num_layers} layers, {c.num_heads} heads, "
        f"feed-forward {c.ffn_size:,}\n"
        f"  {c.vocab_size:,} pieces, {c.max_positions:,} positions, share {c.share}, groups {c.num_groups}, "
        f"inner groups {c.num_inner_groups}, dropout {c.dropout}\n\n{describe_parts(c)}\n\n{describe_paper()}"
    )


def sizes_to_dict(name: str) -> dict[str, Any]:
    """The same as values that JSON can hold."""
    config = MODEL_PRESETS[name]
    paper = [{"name": row.name, "paper_millions": row.millions, **parts_to_dict(row.config)} for row in PAPER]
    return {"preset": name, "config": asdict(config), "parameters": parts_to_dict(config), "paper": paper}


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


def describe_paper() -> str:
    """Compare the paper's table with the counts of the same models here."""
    lines = []
    for row in PAPER:
        sizes = count_parameters(row.config)
        layers, kept, whole = (n / 1e6 for n in (sizes.embeddings + sizes.layers, sizes.without_heads, sizes.all))
        lines.append(f"  {row.name:<16}{row.millions:>5}{layers:>14.1f}{kept:>16.1f}{whole:>14.1f}")
    return _PAPER_HEAD + "\n".join(lines) + _PAPER_NOTES
