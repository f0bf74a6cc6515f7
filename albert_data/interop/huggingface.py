"""Writes folders that transformers loads as AlbertForPreTraining or AlbertForMaskedLM, and reads them.

In: a run of `albert-data train`, or such a folder. Out: config.json, model.safetensors, the tokenizer's files and a
model card, or an Albert. Writing needs no transformers. Reading accepts only safetensors, never a pickle.
The weights are the same numbers under other names, with two differences. Query, key and value are three matrices in
transformers and one here. In transformers the layers of a group share everything; a model here may share only the
attention, only the feed-forward, or nothing. Such a model is written with a group for each layer, and a shared part is
repeated in every group. The logits are the same up to rounding, except in training mode, where transformers has a
dropout before the SOP classifier and none after the feed-forward.
AlbertForPreTraining has a head of two labels. A model with another number becomes an AlbertForMaskedLM, which has
neither that head nor the pooler.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from albert_data.errors import CheckpointError, ConfigError, OutputError, TokenizerError
from albert_data.interop.model_card import make_card
from albert_data.shards.paths import CARD_NAME
from albert_data.storage import find_storage, make_path
from albert_data.tokenizer.huggingface import tokenizer_files
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from albert_data.tokenizer.tokenizer_json import dump
from albert_data.train.checkpoint import find_newest, load_model, load_tensors
from albert_data.train.config import AlbertConfig
from albert_data.train.folder import NORMALIZATION_KEY, RUN_FILE, TOKENIZER_KEY, find_tokenizer, read_run_file
from albert_data.train.model import INIT_STD, LAYER_NORM_EPS, Albert
from albert_data.train.reading import advise, explain, explain_writing, load_object, show

FOR_PRETRAINING, FOR_MASKED_LM = "AlbertForPreTraining", "AlbertForMaskedLM"
NUM_LABELS = 2  # of the sentence task of AlbertForPreTraining
CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"
# Files that transformers reads too. Those of another model would silently change the pieces or weights of this one.
_ALSO_READ = ("added_tokens.json", "special_tokens_map.json", "adapter_config.json")
# A pickle can run any code while it is loaded, so it is refused. The error shows this program, which converts it:
# `weights_only` reads nothing but tensors.
_PICKLE_FILE = "pytorch_model.bin"
_CONVERT = (
    "import torch, safetensors.torch as s; w = torch.load('pytorch_model.bin', weights_only=True); "
    "s.save_file({k: w[k].clone() for k in w}, 'model.safetensors')"
)
Adapt = Callable[[dict[str, Any], dict[str, Tensor]], None]
_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
CLASSIFIER_DROPOUT = 0.1  # that of the released models, even if their other dropouts are 0; only training uses it

# Names of modules and parameters outside the layers: ours, transformers'.
_NAMES = {
    "embeddings.token": "albert.embeddings.word_embeddings",
    "embeddings.position": "albert.embeddings.position_embeddings",
    "embeddings.segment": "albert.embeddings.token_type_embeddings",
    "embeddings.norm": "albert.embeddings.LayerNorm",
    "embeddings.project": "albert.encoder.embedding_hidden_mapping_in",
    "pooler": "albert.pooler",
    "mlm_head.dense": "predictions.dense",
    "mlm_head.norm": "predictions.LayerNorm",
    "mlm_head": "predictions",
    "sop_head": "sop_classifier.classifier",
}
# Names inside an inner layer. A tuple of several: our matrix holds theirs, one after another.
_ATTENTION_NAMES: dict[str, tuple[str, ...]] = {
    "qkv": ("attention.query", "attention.key", "attention.value"),
    "out": ("attention.dense",),
    "norm": ("attention.LayerNorm",),
}
_FFN_NAMES: dict[str, tuple[str, ...]] = {"up": ("ffn",), "down": ("ffn_output",), "norm": ("full_layer_layer_norm",)}
# Tensors that transformers' files may also hold: copies of other parameters, and a constant.
_IGNORED = {"predictions.decoder.weight", "predictions.decoder.bias", "albert.embeddings.position_ids"}
# Names of settings: ours, transformers'.
_SETTINGS = {
    "vocab_size": "vocab_size",
    "max_positions": "max_position_embeddings",
    "embedding_size": "embedding_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "ffn_size": "intermediate_size",
    "num_inner_groups": "inner_group_num",
    "dropout": "hidden_dropout_prob",
}
# Settings of transformers that have only one value here.
_FIXED = {"hidden_act": "gelu_new", "layer_norm_eps": LAYER_NORM_EPS, "type_vocab_size": 2}


def export_run(run: Path, out: Path, *, checkpoint: Path | None = None) -> Path:
    """Write a checkpoint of a run, by default the newest, and a model card to a folder. Returns the checkpoint.

    Raises the errors of `load_run` and `write_folder`.
    """
    if not (run / RUN_FILE).is_file():
        raise CheckpointError(
            f"{run} is not a training run ({RUN_FILE} is missing); name the RUN of `albert-data train`"
        )
    if out.exists() and not out.is_dir():
        raise OutputError(f"{out} is a file; --output has to name a folder")
    path, model, pieces = load_run(run, checkpoint=checkpoint)
    write_folder(model, pieces, out, card=make_card(run, path, model.config, model.num_parameters()))
    return path


def load_run(run: Path, *, checkpoint: Path | None) -> tuple[Path, Albert, Tokenizer]:
    """Load a checkpoint of a run, by default the newest, and the run's tokenizer. Returns the checkpoint's path first.

    Raises CheckpointError; ConfigError for no tokenizer, TokenizerError for another than run.json names.
    """
    path = checkpoint or find_newest(run, "continue it with `albert-data train --resume`")
    identity = read_run_file(run)["identity"]
    known, normalization = identity.get(TOKENIZER_KEY), str(identity.get(NORMALIZATION_KEY, "none"))
    own = find_tokenizer(run, str(known))
    if not own.is_file():
        raise ConfigError(
            f"{run} holds no tokenizer ({own.relative_to(run)} is missing); copy that folder of its shards there"
        )
    pieces = load_tokenizer(own, normalization=normalization)
    if pieces.sha256 != known:
        raise TokenizerError(
            f"{own} is not the tokenizer that {run} was trained with (SHA-256 {pieces.sha256[:12]}..., where "
            f"{RUN_FILE} has {str(known)[:12]}...); put that of its shards into {own.parent}"
        )
    return path, load_model(path), pieces


def write_folder(model: Albert, tokenizer: Tokenizer, out: Path, *, card: bytes | None = None) -> None:
    """Write a model and its tokenizer to a folder. config.json is written last, so an incomplete folder does not load.

    card: the content of README.md. All files that the folder already has stay, a README.md too.
    Raises OutputError if a file with other content has the name of one of ours, if a file is there that transformers
    would read too, and if a file can't be written; then the same call finishes what is incomplete.
    """
    if tokenizer.vocab_size != model.config.vocab_size:
        raise ConfigError(
            f"the tokenizer has {tokenizer.vocab_size:,} pieces, but the model has {model.config.vocab_size:,}; "
            "give the tokenizer of the shards that it was trained on"
        )
    # As the released models have them: [CLS] and [SEP] are also the beginning and end of a sentence.
    ids = {"pad_token_id": tokenizer.pad_id, "bos_token_id": tokenizer.cls_id, "eos_token_id": tokenizer.sep_id}
    files = {
        **({} if card is None or os.path.lexists(out / CARD_NAME) else {CARD_NAME: card}),
        **tokenizer_files(tokenizer, max_len=model.config.max_positions),
        WEIGHTS_FILE: save(to_huggingface(model), metadata={"format": "pt"}),
        CONFIG_FILE: dump({**config_to_huggingface(model.config), **ids}),
    }
    for name in _ALSO_READ:
        if os.path.lexists(out / name):
            raise OutputError(f"{out} holds {name}, which transformers would read too; choose another --output")
    missing = {name: content for name, content in files.items() if not os.path.lexists(out / name)}
    for path, content in ((out / name, content) for name, content in files.items() if name not in missing):
        if not path.is_file() or path.stat().st_size != len(content) or path.read_bytes() != content:
            raise OutputError(f"{out} holds another {path.name}; choose another --output")
    storage, is_new = find_storage(out), not out.exists()
    with explain_writing(f"{out}: can't write there", "choose another --output"):
        try:
            storage.make_folder(out)
            storage.replace_together(out, missing)  # in this order, so config.json is the last
        except BaseException:
            if is_new:
                storage.remove_empty(out)
            raise


def import_model(folder: str | os.PathLike[str], adapt: Adapt = lambda settings, weights: None) -> Albert:
    """Read a folder of transformers' AlbertForPreTraining into a model on the CPU, in evaluation mode.

    The model shares parameters as transformers does: in groups of layers that share everything (share "all").
    adapt: changes the content of config.json and the weights, by transformers' names, before they are checked.
    Raises CheckpointError if a file is missing or damaged, ConfigError for another kind of model.
    """
    folder = make_path(folder)
    settings = load_object(folder / CONFIG_FILE, "give a folder of transformers")
    weights = read_weights(folder)
    adapt(settings, weights)
    with torch.device("meta"):  # allocates nothing: config.json may name huge sizes that the weights do not have
        config = config_from_huggingface(settings)
        if settings.get("architectures") == [FOR_MASKED_LM] and not any(map(_is_of_pairs, weights)):
            config = dataclasses.replace(config, sentence_task="none")
        model = Albert(config)
    model.load_state_dict(from_huggingface(weights, model), assign=True)
    return model.eval()


def choose_class(config: AlbertConfig) -> str:
    """The class of transformers that holds the model."""
    return FOR_PRETRAINING if len(config.task.orders) == NUM_LABELS else FOR_MASKED_LM


def config_to_huggingface(config: AlbertConfig) -> dict[str, Any]:
    """Return the content of config.json, except the ids of special pieces."""
    return {
        "architectures": [choose_class(config)],
        "model_type": "albert",
        **{there: getattr(config, here) for here, there in _SETTINGS.items()},
        "num_hidden_groups": _num_groups(config),
        "attention_probs_dropout_prob": config.dropout,
        "classifier_dropout_prob": CLASSIFIER_DROPOUT,
        "initializer_range": INIT_STD,
        "dtype": "float32",
        # What the labels of `sop_classifier` mean, if it is not the order. transformers keeps settings of other names.
        **({"sentence_task": config.sentence_task} if config.sentence_task == "nsp" else {}),
        **_FIXED,
    }


def config_from_huggingface(settings: dict[str, Any]) -> AlbertConfig:
    """Return the config in config.json. Raises ConfigError for a setting that this model does not support."""
    if settings.get("model_type") != "albert":
        raise ConfigError(f"config.json has model_type {show(settings.get('model_type'))}; allowed is 'albert'")
    for name, value in _FIXED.items():
        if settings.get(name, value) != value:
            raise ConfigError(f"config.json has {name} {show(settings[name])}; this model allows only {value!r}")
    dropouts = [settings.get(name, 0.0) for name in ("hidden_dropout_prob", "attention_probs_dropout_prob")]
    if dropouts[0] != dropouts[1]:
        raise ConfigError(
            f"config.json has hidden_dropout_prob {show(dropouts[0])} and attention_probs_dropout_prob "
            f"{show(dropouts[1])}; this model has one dropout: make them equal in config.json"
        )
    try:
        found = {here: settings[there] for here, there in _SETTINGS.items() if here != "dropout"}
    except KeyError as error:
        raise ConfigError(f"config.json lacks {error.args[0]}; save the model again with transformers") from error
    found |= {"num_groups": settings.get("num_hidden_groups", 1), "dropout": dropouts[0]}
    found |= {"sentence_task": settings.get("sentence_task", AlbertConfig.sentence_task)}
    try:
        return AlbertConfig(**found)
    except ConfigError as error:
        raise ConfigError(f"config.json: {explain(error)}") from error


def to_huggingface(model: Albert) -> dict[str, Tensor]:
    """Return the weights under transformers' names, as copies: safetensors refuses tensors that share memory."""
    ours = model.state_dict()
    return {
        name: part.detach().float().cpu().clone(memory_format=torch.contiguous_format)
        for here, theirs in _match_names(model)
        if choose_class(model.config) == FOR_PRETRAINING or not any(map(_is_of_pairs, theirs))
        for name, part in zip(theirs, ours[here].chunk(len(theirs)), strict=True)
    }


def from_huggingface(weights: dict[str, Tensor], model: Albert) -> dict[str, Tensor]:
    """Convert weights under transformers' names to a state_dict of `model`, whose config has share "all".

    With another share, one parameter of the model would be read from several groups, which may differ.
    Raises CheckpointError for a tensor that is missing, unknown or of another shape.
    """
    names, expected = list(_match_names(model)), model.state_dict()
    known = {name for _, theirs in names for name in theirs}
    if missing := sorted(known - weights.keys()):
        raise CheckpointError(f"the weights lack {missing[0]}; give a folder of an AlbertForPreTraining")
    if unknown := sorted(weights.keys() - known - _IGNORED):
        raise CheckpointError(
            f"the weights hold {unknown[0]}, which an AlbertForPreTraining of this config does not have"
        )
    for here, theirs in names:
        for name, part in zip(theirs, expected[here].chunk(len(theirs)), strict=True):
            if weights[name].shape != part.shape:
                raise CheckpointError(
                    f"{name} has shape {tuple(weights[name].shape)}, where config.json asks for {tuple(part.shape)}"
                )
    return {here: torch.cat([weights[name].float() for name in theirs]) for here, theirs in names}


def _is_of_pairs(name: str) -> bool:
    """Whether a tensor of transformers is one that an AlbertForMaskedLM lacks."""
    return name.startswith(("albert.pooler.", "sop_classifier."))


def _match_names(model: Albert) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each parameter's name here with its names in transformers.

    A parameter that is shared here, but repeated in every group of transformers, is yielded once for each group.
    """
    for here in model.state_dict():
        module, _, kind = here.rpartition(".")
        if module in _NAMES:
            yield here, (f"{_NAMES[module]}.{kind}",)
    config, num_inner = model.config, model.config.num_inner_groups
    for number in range(_num_groups(config) * num_inner):
        group, inner = divmod(number, num_inner)
        # The group's first layer is enough: the others share its parameters.
        first = group * config.num_layers // _num_groups(config)
        attention, ffn = config.inner_layers()[first * num_inner + inner]
        there = f"albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}"
        for owner, names in ((f"attentions.{attention}", _ATTENTION_NAMES), (f"ffns.{ffn}", _FFN_NAMES)):
            for part, theirs in names.items():
                for kind in ("weight", "bias"):
                    yield f"encoder.{owner}.{part}.{kind}", tuple(f"{there}.{name}.{kind}" for name in theirs)


def _num_groups(config: AlbertConfig) -> int:
    """The number of groups in transformers, where the layers of a group always share everything."""
    return config.num_groups if config.share == "all" else config.num_layers


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder of transformers.

    Links are followed, as the cache of the Hub consists of them. Raises CheckpointError, also for quantised weights.
    """
    path, how = folder / WEIGHTS_FILE, "save the model again"
    if not os.path.lexists(path):
        how = "save the model in one file with transformers' save_pretrained"
        if (folder / _PICKLE_FILE).is_file():
            how = f'to convert {_PICKLE_FILE}, run in the folder: python -c "{_CONVERT}"'
        raise CheckpointError(f"{path} is missing; only safetensors is read, never a pickle: {how}")
    try:
        weights = load_tensors(path)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} can't be read ({explain(error)}); {advise(error, how)}") from error
    for name, tensor in weights.items():
        if tensor.dtype not in _DTYPES and not name.endswith("_ids"):  # those of positions, as older BERTs have them
            raise CheckpointError(
                f"{folder}: {show(name)} is of {tensor.dtype}; floats of 16, 32 or 64 bits are needed"
            )
    return weights
