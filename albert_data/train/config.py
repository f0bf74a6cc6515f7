"""The settings of a model and of a training run, and the presets. Imports no torch.

All defaults are in these classes; the command line reads them from here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from albert_data.config import MASK_PROB_RANGE, check_choice, check_range, check_types, take_settings
from albert_data.errors import ConfigError
from albert_data.examples.pair_tasks import PAIR_TASKS, PairTask

SHARING = ("all", "attention", "ffn", "none")
PRECISIONS = ("auto", "bf16", "fp16", "fp32")
OPTIMIZERS = ("adamw", "lamb", "muon")
WEIGHT_INITS = ("paper", "sinusoid")
DEFAULT_RECIPE = "quick"
BUDGETS = ("steps", "epochs", "minutes")
MAX_LAYERS = 1024  # a damaged file that asks for a million layers would take hours, and all memory
_RANGES: tuple[tuple[str, float, float], ...] = (  # of settings of TrainConfig that are given
    ("steps batch_tokens micro_tokens eval_every eval_rows save_every log_every", 1, 2**31 - 1),
    ("keep", 1, 1000),
    ("seed", 0, 2**63 - 1),
    ("epochs minutes", 1e-3, 1e6),
    ("lr epsilon", 1e-12, 1.0),
    ("warmup_share weight_decay", 0.0, 1.0),
    ("beta1 beta2 dropout", 0.0, 0.9999),
    ("mask_prob last_mask_prob", *MASK_PROB_RANGE),
    ("max_grad_norm", 1e-6, 1e6),
    ("sentence_weight", 0.0, 1e6),
    ("first_window", 0, 2**31 - 1),
    ("window_share", 0.0, 1.0),
)


@dataclass(frozen=True, kw_only=True)
class AlbertConfig:
    """The shape of an ALBERT (Lan et al. 2020, table 1). The defaults are ALBERT base, version 2.

    share: which parameters the layers of a group share. "all" is the published model; the others are rows of table 4.
    num_groups: the number of groups of consecutive layers; groups share nothing.
    num_inner_groups: the number of inner layers in each layer (inner_group_num in transformers). An inner layer is an
    attention and then a feed-forward; they run one after another, each with its own parameters.
    dropout: of embeddings, attention weights and the outputs of both sublayers.
    sentence_task: that of the shards (pair_tasks.py), which decides the labels of its head. Without one there is
    neither head nor pooler.
    """

    vocab_size: int = 30_000
    max_positions: int = 512
    embedding_size: int = 128
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    ffn_size: int = 3072
    share: str = "all"
    num_groups: int = 1
    num_inner_groups: int = 1
    dropout: float = 0.0
    sentence_task: str = "sop"

    def __post_init__(self) -> None:
        check_types(self)
        check_range("vocab_size", self.vocab_size, 1, 2**31 - 1)
        check_range("max_positions", self.max_positions, 8, 2**16)
        for name in ("embedding_size", "hidden_size", "num_heads", "ffn_size"):
            check_range(name, getattr(self, name), 1, 2**20)
        for name in ("num_layers", "num_groups", "num_inner_groups"):
            check_range(name, getattr(self, name), 1, MAX_LAYERS)
        check_range("num_layers * num_inner_groups", self.num_layers * self.num_inner_groups, 1, MAX_LAYERS)
        check_choice("share", self.share, SHARING)
        check_choice("sentence_task", self.sentence_task, tuple(PAIR_TASKS))
        check_range("dropout", self.dropout, 0.0, 0.9)
        hidden, heads, groups = self.hidden_size, self.num_heads, self.num_groups
        if hidden % heads:
            raise ConfigError(f"hidden_size is {hidden}; it has to be a multiple of num_heads, {heads}")
        if self.num_layers % groups:
            raise ConfigError(f"num_groups is {groups}; it has to divide num_layers, {self.num_layers}")
        if self.share == "none" and groups > 1:
            why = "groups have nothing to share: set num_groups to 1"
            raise ConfigError(f"num_groups is {groups} while share is 'none'; {why}")

    @property
    def task(self) -> PairTask:
        return PAIR_TASKS[self.sentence_task]

    @property
    def num_attentions(self) -> int:
        """The number of attentions with their own parameters."""
        return (self.num_groups if self.share in ("all", "attention") else self.num_layers) * self.num_inner_groups

    @property
    def num_ffns(self) -> int:
        """The number of feed-forwards with their own parameters."""
        return (self.num_groups if self.share in ("all", "ffn") else self.num_layers) * self.num_inner_groups

    def inner_layers(self) -> list[tuple[int, int]]:
        """The indices of the attention and the feed-forward of every inner layer, in the order in which they run."""
        return [
            (self._index(self.num_attentions, layer, inner), self._index(self.num_ffns, layer, inner))
            for layer in range(self.num_layers)
            for inner in range(self.num_inner_groups)
        ]

    def _index(self, count: int, layer: int, inner: int) -> int:
        """Which of `count` attentions or feed-forwards computes inner layer `inner` of a layer.

        12 layers of 2 inner layers in 3 groups have 6 modules. Layer 5 is in group 5 * 3 // 12 = 1, so its inner layers
        are computed by modules 2 and 3.
        """
        num_groups = count // self.num_inner_groups  # the number of layers if nothing is shared
        return (layer * num_groups // self.num_layers) * self.num_inner_groups + inner


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The settings of a training run. The defaults are those of a short run of preset base.

    steps, epochs, minutes: the length of the run; exactly one is given. The learning rate follows the same measure.
    batch_tokens: tokens of a step's batch over all ranks, padding included.
    micro_tokens: tokens that a rank computes at once; it sums the gradients over its share of the batch. None: what
    fits in the memory of a GPU, and at most 8,192 on a CPU.
    warmup_share: the share of the run in which the rate rises; after it the rate falls linearly to 0.
    dropout: None takes that of the preset or of the initial weights. Section 4.8 of the paper finds that ALBERT
    underfits and that dropout hurts its MLM accuracy. Raise it to 0.1 (v1) for many epochs over little text.
    recompute: compute each layer again in the backward pass, instead of keeping all that it computed.
    remask: draw new masks in every epoch after the first.
    mask_prob: the share of tokens that are masked; all masks are then new ones. None: as the shards were built.
    last_mask_prob: that share at the end of the run, to which it changes evenly. None: mask_prob to the end.
    weight_init: the first weights: those of the paper's code, or the same with sinusoids as positions (model.py).
    first_window: how many tokens before and after a token its attention reaches at first. It doubles at even intervals
    until it is the whole row. 0: the whole row from the start. Evaluations always have the whole row.
    window_share: the share of the run after which it is the whole row.
    sentence_weight: what the loss of the sentence task is multiplied by, beside that of the masks. 1 in the paper.
    compile: use torch.compile. None: on a GPU, and on a CPU if the run is by the clock and long enough (compiling.py).
    graphs: launch whole updates as CUDA graphs. None: those that take longer to launch than to compute (graphs.py).
    log_every, eval_every, save_every: steps from one line of metrics, evaluation and checkpoint to the next. None: by
    the length of the run (schedule.py).
    eval_rows: the most validation rows of an evaluation, the same each time; see `choose_rows`. None: by the same.
    guesses: record what the model guesses for masked words of five validation rows. They quote the text.
    """

    preset: str = "base"
    steps: int | None = 10_000
    epochs: float | None = None
    minutes: float | None = None
    batch_tokens: int = 65_536
    micro_tokens: int | None = None
    optimizer: str = "adamw"
    lr: float = 3e-4
    warmup_share: float = 0.05
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    max_grad_norm: float = 1.0
    dropout: float | None = None
    remask: bool = True
    mask_prob: float | None = None
    last_mask_prob: float | None = None
    weight_init: str = "paper"
    first_window: int = 0
    window_share: float = 0.3
    sentence_weight: float = 1.0
    eval_every: int | None = None
    eval_rows: int | None = None
    save_every: int | None = None
    keep: int = 2
    log_every: int | None = None
    seed: int = 0
    precision: str = "auto"
    device: str = "auto"
    recompute: bool = False
    compile: bool | None = None
    graphs: bool | None = None
    guesses: bool = True
    profile: bool = False

    def __post_init__(self) -> None:
        check_types(self)
        check_choice("preset", self.preset, tuple(MODEL_PRESETS))
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("weight_init", self.weight_init, WEIGHT_INITS)
        budgets = {name: getattr(self, name) for name in BUDGETS if getattr(self, name) is not None}
        if len(budgets) != 1:
            given = ", ".join(f"{name} is {value}" for name, value in budgets.items()) or "none is given"
            raise ConfigError(f"{given}; give exactly one of {', '.join(BUDGETS)}")
        for names, least, most in _RANGES:
            for name in names.split():
                if getattr(self, name) is not None:
                    check_range(name, getattr(self, name), least, most)
        if self.mask_prob is None and self.last_mask_prob is not None:
            raise ConfigError(f"last_mask_prob is {self.last_mask_prob}, and mask_prob is not given; give both")
        if self.mask_prob is not None and not self.remask:
            why = "the masks of the shards are as they are"
            raise ConfigError(f"mask_prob is {self.mask_prob} while remask is False; {why}")
        if not self.first_window and self.window_share != TrainConfig.window_share:
            raise ConfigError(f"window_share is {self.window_share}, and first_window is not given; give both")
        check_choice("precision", self.precision, PRECISIONS)
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device):
            raise ConfigError(f"device is {self.device!r}; allowed are auto, cpu, cuda and cuda:N")


# Table 1, with the heads and the dropout of the released models: version 2 has no dropout; version 1 has 0.1, except
# xxlarge.
MODEL_PRESETS = {
    "tiny": AlbertConfig(embedding_size=64, hidden_size=128, num_layers=4, num_heads=4, ffn_size=512),
    "mini": AlbertConfig(embedding_size=128, hidden_size=256, num_layers=4, num_heads=4, ffn_size=1024),
    "base": AlbertConfig(),
    "large": AlbertConfig(hidden_size=1024, num_layers=24, num_heads=16, ffn_size=4096),
    "xlarge": AlbertConfig(hidden_size=2048, num_layers=24, num_heads=16, ffn_size=8192),
    "xxlarge": AlbertConfig(hidden_size=4096, num_layers=12, num_heads=64, ffn_size=16384),
    "base-v1": AlbertConfig(dropout=0.1),
    "large-v1": AlbertConfig(hidden_size=1024, num_layers=24, num_heads=16, ffn_size=4096, dropout=0.1),
    "xlarge-v1": AlbertConfig(hidden_size=2048, num_layers=24, num_heads=16, ffn_size=8192, dropout=0.1),
    "xxlarge-v1": AlbertConfig(hidden_size=4096, num_layers=12, num_heads=64, ffn_size=16384),
}
DEFAULT_PRESETS = {"cpu": "mini", "cuda": "base"}  # by the type of the device; base takes weeks on a CPU
# mini is for an hour on two CPU cores. A model of such a size first predicts by frequencies alone; many masks and Muon
# get it past that sooner: docs/guides/training.md has the figures. tiny, 3,000 updates on English books: a validation
# loss of 5.36 by this recipe, and of 5.98 by AdamW.
_MINI = TrainConfig(
    preset="mini",
    steps=None,
    minutes=60,
    batch_tokens=2048,
    optimizer="muon",
    lr=1.5e-3,
    beta2=0.98,
    mask_prob=0.45,
    last_mask_prob=0.15,
    weight_init="sinusoid",
    first_window=8,
)
_TINY = replace(_MINI, preset="tiny", steps=3000, minutes=None)
_PAPER = TrainConfig(steps=125_000, batch_tokens=4096 * 512, optimizer="lamb", lr=0.00176, warmup_share=0.025)
# quick: one short run on one GPU, AdamW. Models larger than base use 1e-4, the rate of BERT.
# paper: section 4.1 and ALBERT's released configuration: LAMB, 4,096 rows of 512, 3,125 steps of warm-up.
RECIPES = {
    "quick": {name: TrainConfig(preset=name, lr=3e-4 if name.startswith("base") else 1e-4) for name in MODEL_PRESETS}
    | {"tiny": _TINY, "mini": _MINI},
    # mini for five minutes of one GPU, whose launches cost the same for sixteen times the batch. The rate is a guess
    # between none and the square root of 16; nobody has compared it with others.
    "gpu": {"mini": replace(_MINI, minutes=5, batch_tokens=32_768, lr=3e-3)},
    # The settings of mini for other sizes. Nobody has compared them with quick on a GPU yet.
    "muon": {"tiny": _TINY, "mini": _MINI}
    | {
        name: replace(_MINI, preset=name, steps=TrainConfig.steps, minutes=None, batch_tokens=TrainConfig.batch_tokens)
        for name in ("base", "large", "xlarge", "xxlarge")
    },
    "paper": {name: replace(_PAPER, preset=name, eval_every=2500, save_every=2500) for name in MODEL_PRESETS},
}


def name_preset(preset: str, shape: AlbertConfig) -> str:
    """The preset whose sizes a model has, `preset` if it can be. Weights to begin with have sizes of their own."""
    free = {name: getattr(shape, name) for name in ("vocab_size", "max_positions", "dropout", "sentence_task")}
    return next((one for one in (preset, *MODEL_PRESETS) if replace(MODEL_PRESETS[one], **free) == shape), "none")


def resolve(
    recipe: str | None, preset: str | None, device: str, given: Mapping[str, Any], *, has_weights: bool = False
) -> TrainConfig:
    """Return the settings of a run: those of a recipe for a preset, changed by those that are given.

    device: its type, cpu or cuda, which decides where `recipe` and `preset` are None: mini has a recipe for a GPU.
    has_weights: whether the run begins with weights, which attend to what matters already. On a CPU, which needs
    minutes for a batch of a GPU, it then takes the batch of the preset for a CPU, unless `recipe` or the batch is
    given; and a rate that falls with the square root of the batch, as that of a GPU would spoil the weights.
    Raises ConfigError if the recipe has no settings for the preset.
    """
    preset = preset or (TrainConfig.preset if has_weights else DEFAULT_PRESETS[device])
    name = recipe or ("gpu" if device == "cuda" and preset in RECIPES["gpu"] else DEFAULT_RECIPE)
    check_choice("recipe", name, tuple(RECIPES))
    if preset not in RECIPES[name]:
        why = f"the recipe {name} has no settings for the preset {preset}; it has them for {', '.join(RECIPES[name])}"
        raise ConfigError(f"{why}; choose one of these with --preset, or another --recipe")
    config = RECIPES[name][preset]
    if has_weights:
        config = replace(config, first_window=0)
        small = RECIPES["quick"][DEFAULT_PRESETS["cpu"]].batch_tokens
        if not recipe and device == "cpu" and "batch_tokens" not in given and config.batch_tokens > small:
            lr = float(f"{config.lr * (small / config.batch_tokens) ** 0.5:.1g}")
            config = replace(config, batch_tokens=small, lr=lr)
    return change_settings(config, given)


def change_settings(config: TrainConfig, given: Mapping[str, Any]) -> TrainConfig:
    """Change settings by those that are given. A length replaces one of another kind, and masks replace both shares."""
    if {"mask_prob", "remask"} & given.keys():
        given = {"mask_prob": None, "last_mask_prob": None, **given}
    if any(name in given for name in BUDGETS):
        given = {**dict.fromkeys(BUDGETS), **given}
    return take_settings(TrainConfig, dict(given), config)
