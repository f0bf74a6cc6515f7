"""Folders that transformers loads as AlbertForPreTraining, and back: the same numbers under other names.

In: a run of `albert-data train`, or such a folder. Out: config.json, model.safetensors and the tokenizer's files,
or an Albert. Writing needs no transformers; reading takes safetensors alone, never a pickle.
Two differences of form: query, key and value are three matrices there and one here; layers there share whole groups,
so a model that shares less is written with its shared part in every group, which is exact.
transformers' model has a dropout before its SOP classifier and none behind the feed-forward; logits do not show it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from albert_data.errors import CheckpointError, ConfigError, OutputError, TokenizerError
from albert_data.files import hash_file, write_bytes
from albert_data.interop.huggingface_tokenizer import to_json, tokenizer_files
from albert_data.tokenizer.model import MODEL_NAME, Tokenizer, load_tokenizer
from albert_data.train.checkpoint import list_checkpoints, load_model, load_tensors
from albert_data.train.config import AlbertConfig
from albert_data.train.folder import RUN_FILE, TOKENIZER_KEY, check_types, read_run_file
from albert_data.train.model import INIT_STD, LAYER_NORM_EPS, Albert
from albert_data.train.reading import explain, read_object, show

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"
# Of another model, they would change the pieces or the weights of this one without a word.
_READ_TOO = ("added_tokens.json", "special_tokens_map.json", "adapter_config.json")
_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
CLASSIFIER_DROPOUT = 0.1  # of the released models, before any classifier that transformers puts on top

# Names of modules and parameters outside the layers: here, there.
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
# Inside one pair of attention and feed-forward; a tuple is a matrix here that is several there, one upon another.
_ATTENTION_NAMES: dict[str, tuple[str, ...]] = {
    "qkv": ("attention.query", "attention.key", "attention.value"),
    "out": ("attention.dense",),
    "norm": ("attention.LayerNorm",),
}
_FFN_NAMES: dict[str, tuple[str, ...]] = {
    "up": ("ffn",),
    "down": ("ffn_output",),
    "norm": ("full_layer_layer_norm",),
}
# What transformers' files may hold beside: ties to other parameters, and a constant.
_IGNORED = {"predictions.decoder.weight", "predictions.decoder.bias", "albert.embeddings.position_ids"}
# Settings: here, there.
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
# Settings there that this model has no choice in.
_FIXED = {"hidden_act": "gelu_new", "layer_norm_eps": LAYER_NORM_EPS, "type_vocab_size": 2}


def export_model(run: Path, out: Path, *, checkpoint: Path | None = None, tokenizer: Path | None = None) -> Path:
    """Write a checkpoint of a run, the newest unless told otherwise, to a folder; return the checkpoint.

    tokenizer: the SentencePiece model, where the run's folder holds none.
    Raises CheckpointError, TokenizerError, ConfigError, and what `write_folder` raises.
    """
    if not (run / RUN_FILE).is_file():
        raise CheckpointError(f"{run}: is no training run ({RUN_FILE} is missing); name the RUN of `albert-data train`")
    _refuse_file(out)
    path = _newest(run) if checkpoint is None else checkpoint
    pieces = _find_tokenizer(run, tokenizer)
    _check_tokenizer(run, pieces, tokenizer)
    write_folder(load_model(path), pieces, out)
    return path


def write_folder(model: Albert, tokenizer: Tokenizer, out: Path) -> None:
    """Write a model and its tokenizer to a folder; config.json comes last, so half a folder loads nowhere.

    Whatever else the folder holds stays as it is. Raises OutputError where a file of ours would take the place of
    another, where one would change what transformers reads, and where the disk is full; then nothing of this call is
    left.
    """
    if tokenizer.vocab_size != model.config.vocab_size:
        raise ConfigError(
            f"the tokenizer has {tokenizer.vocab_size:,} pieces, but the model {model.config.vocab_size:,}; "
            "give the tokenizer of the shards that it was trained on"
        )
    _refuse_file(out)
    files = {
        **tokenizer_files(tokenizer, max_len=model.config.max_positions),
        WEIGHTS_FILE: save(to_huggingface(model), metadata={"format": "pt"}),
        CONFIG_FILE: to_json({**config_to_huggingface(model.config), **_special_ids(tokenizer)}),
    }
    for name in _READ_TOO:
        if os.path.lexists(out / name):
            raise OutputError(f"{out}: holds {name}, which transformers would read too; choose another --output")
    missing = [name for name in files if not _is_written(out / name, files[name])]
    _write_all(out, {name: files[name] for name in missing})


def _is_written(path: Path, content: bytes) -> bool:
    """Whether the very file is there, of an export that was killed. Raises OutputError for anything else."""
    if not os.path.lexists(path):
        return False
    if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
        return True
    raise OutputError(f"{path.parent}: holds another {path.name}; choose another --output")


def _write_all(out: Path, files: dict[str, bytes]) -> None:
    """Write all files, or leave the folder as it was."""
    written: list[Path] = []
    is_new = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_bytes(out / name, content)
            written.append(out / name)
    except BaseException as error:
        for path in written:
            path.unlink(missing_ok=True)
        if is_new and out.is_dir() and not any(out.iterdir()):
            out.rmdir()
        if isinstance(error, OSError):
            raise OutputError(f"{out}: can't write there: {explain(error)}; choose another --output") from error
        raise


def import_model(folder: Path) -> Albert:
    """Read a folder of transformers' AlbertForPreTraining into a model on the CPU, in evaluation mode.

    What layers share comes as whole groups (share "all", num_groups), as transformers has it.
    Raises CheckpointError where a file is missing or damaged, ConfigError where the model is of another kind.
    """
    config = config_from_huggingface(_read_config(folder / CONFIG_FILE))
    weights = _read_weights(folder / WEIGHTS_FILE)
    with torch.device("meta"):  # of sizes that the weights have not, the shapes are the error, not the memory
        model = Albert(config)
    model.load_state_dict(from_huggingface(weights, model), assign=True)
    return model.eval()


def config_to_huggingface(config: AlbertConfig) -> dict[str, Any]:
    """The content of config.json, but for the ids of special pieces."""
    return {
        "architectures": ["AlbertForPreTraining"],
        "model_type": "albert",
        **{there: getattr(config, here) for here, there in _SETTINGS.items()},
        "num_hidden_groups": _num_groups(config),
        "attention_probs_dropout_prob": config.dropout,
        "classifier_dropout_prob": CLASSIFIER_DROPOUT,
        "initializer_range": INIT_STD,
        "dtype": "float32",
        **_FIXED,
    }


def config_from_huggingface(settings: dict[str, Any]) -> AlbertConfig:
    """Raises ConfigError, naming the setting, where this model can't be what config.json describes."""
    if settings.get("model_type") != "albert":
        raise ConfigError(f"config.json has model_type {show(settings.get('model_type'))}; allowed is 'albert'")
    for name, value in _FIXED.items():
        if settings.get(name, value) != value:
            raise ConfigError(f"config.json has {name} {show(settings[name])}; this model allows {value!r} alone")
    dropouts = [settings.get(name, 0.0) for name in ("hidden_dropout_prob", "attention_probs_dropout_prob")]
    if dropouts[0] != dropouts[1]:
        raise ConfigError(
            f"config.json has hidden_dropout_prob {show(dropouts[0])} and attention_probs_dropout_prob "
            f"{show(dropouts[1])}; "
            "this model has one dropout: make them equal there"
        )
    try:
        found = {here: settings[there] for here, there in _SETTINGS.items() if here != "dropout"}
    except KeyError as error:
        raise ConfigError(f"config.json lacks {error.args[0]}; save the model again with transformers") from error
    found |= {"num_groups": settings.get("num_hidden_groups", 1), "dropout": dropouts[0]}
    try:
        check_types(AlbertConfig, found, {**_SETTINGS, "num_groups": "num_hidden_groups"})
        return AlbertConfig(**found)
    except ConfigError as error:
        raise ConfigError(f"config.json: {explain(error)}") from error


def to_huggingface(model: Albert) -> dict[str, Tensor]:
    """The weights under transformers' names, each in memory of its own."""
    ours = model.state_dict()
    return {
        name: part.detach().float().cpu().clone(memory_format=torch.contiguous_format)
        for here, theirs in _pair_names(model)
        for name, part in zip(theirs, ours[here].chunk(len(theirs)), strict=True)
    }


def from_huggingface(weights: dict[str, Tensor], model: Albert) -> dict[str, Tensor]:
    """A state_dict for `model`, whose config has share "all", of weights under transformers' names.

    Raises CheckpointError, naming the tensor, where one is missing, unknown or of another shape.
    """
    names, expected = list(_pair_names(model)), model.state_dict()
    known = {name for _, theirs in names for name in theirs}
    if missing := sorted(known - weights.keys()):
        raise CheckpointError(f"the weights lack {missing[0]}; give a folder of an AlbertForPreTraining")
    if unknown := sorted(weights.keys() - known - _IGNORED):
        raise CheckpointError(f"the weights hold {unknown[0]}, which an AlbertForPreTraining of this config has not")
    for here, theirs in names:
        for name, part in zip(theirs, expected[here].chunk(len(theirs)), strict=True):
            if weights[name].dtype not in _DTYPES:
                raise CheckpointError(f"{name} is of {weights[name].dtype}; a float of 16, 32 or 64 bits is needed")
            if weights[name].shape != part.shape:
                raise CheckpointError(
                    f"{name} has shape {tuple(weights[name].shape)}, where config.json asks for {tuple(part.shape)}"
                )
    return {here: torch.cat([weights[name].float() for name in theirs]) for here, theirs in names}


def _pair_names(model: Albert) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each parameter's name here with its names there. A part that groups there have each to themselves comes often."""
    for here in model.state_dict():
        module, _, kind = here.rpartition(".")
        if module in _NAMES:
            yield here, (f"{_NAMES[module]}.{kind}",)
    for group, inner, attention, ffn in _places(model.config):
        there = f"albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}"
        for owner, names in ((f"attentions.{attention}", _ATTENTION_NAMES), (f"ffns.{ffn}", _FFN_NAMES)):
            for part, theirs in names.items():
                for kind in ("weight", "bias"):
                    yield f"encoder.{owner}.{part}.{kind}", tuple(f"{there}.{name}.{kind}" for name in theirs)


def _places(config: AlbertConfig) -> Iterator[tuple[int, int, int, int]]:
    """Group and inner layer there, attention and feed-forward here."""
    num_groups, num_inner = _num_groups(config), config.num_inner_groups
    pairs = config.pairs()
    for group in range(num_groups):
        first = group * config.num_layers // num_groups * num_inner
        for inner, (attention, ffn) in enumerate(pairs[first : first + num_inner]):
            yield group, inner, attention, ffn


def _num_groups(config: AlbertConfig) -> int:
    """Groups that share everything within: transformers knows no other sharing."""
    return config.num_groups if config.share == "all" else config.num_layers


def _special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    return {"pad_token_id": tokenizer.pad_id, "bos_token_id": tokenizer.cls_id, "eos_token_id": tokenizer.sep_id}


def _newest(run: Path) -> Path:
    checkpoints = list_checkpoints(run)
    if not checkpoints:
        raise CheckpointError(f"{run}: holds no checkpoint yet; go on with `albert-data train --resume`")
    return checkpoints[-1]


def _find_tokenizer(run: Path, given: Path | None) -> Tokenizer:
    """The run's own tokenizer; one that is given counts where the run has none, and else must be the same."""
    own = run / "tokenizer" / MODEL_NAME
    if not own.is_file():
        if given is None:
            raise ConfigError(
                f"{run}: holds no tokenizer ({own.relative_to(run)} is missing); "
                "name that of its shards with --tokenizer, such as SHARDS/tokenizer"
            )
        return load_tokenizer(given)
    if given is None:
        return load_tokenizer(own)
    tokenizer = load_tokenizer(given)
    if tokenizer.sha256 != hash_file(own):
        raise ConfigError(f"--tokenizer {given} is another than {own}, of which the run is; leave out --tokenizer")
    return tokenizer


def _check_tokenizer(run: Path, tokenizer: Tokenizer, given: Path | None) -> None:
    known = read_run_file(run)["identity"].get(TOKENIZER_KEY)
    if tokenizer.sha256 != known:
        raise TokenizerError(
            f"{given or run / 'tokenizer' / MODEL_NAME}: is not the tokenizer that {run} was trained with "
            f"(SHA-256 {tokenizer.sha256[:12]}..., where {RUN_FILE} has {str(known)[:12]}...); give that of its shards"
        )


def _refuse_file(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise OutputError(f"{out}: is a file; --output has to name a folder")


def _read_config(path: Path) -> dict[str, Any]:
    try:
        return read_object(path)
    except OSError as error:
        raise CheckpointError(f"{path}: can't be read ({explain(error)}); give a folder of transformers") from error
    except ValueError as error:
        raise CheckpointError(f"{path}: is damaged ({explain(error)})") from error


def _read_weights(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise CheckpointError(
            f"{path}: is missing; only safetensors in one file is read, never a pickle: save the model again with "
            "transformers' save_pretrained"
        )
    try:
        return load_tensors(path)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: is damaged ({explain(error)})") from error
