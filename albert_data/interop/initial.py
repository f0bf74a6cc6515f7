"""Loads, from another run, a checkpoint or a Hugging Face folder, the weights that a run begins with.

Folders as published differ from those that `export` writes: heads that their class does not have are missing, names
are older, and the tokenizer of the shards may have more pieces than theirs. What a folder lacks is drawn as for a new
model, and the user is told.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from albert_data.errors import CheckpointError, ConfigError
from albert_data.interop.huggingface import CONFIG_FILE, import_model
from albert_data.shards.manifest_file import read_manifest
from albert_data.shards.reader import open_shards
from albert_data.storage.files import hash_file
from albert_data.tokenizer.model import MODEL_NAME, load_tokenizer
from albert_data.tokenizer.tokenizer_json import CONFIG_NAME, JSON_NAME, VOCAB_NAME
from albert_data.train.checkpoint import STATE_FILE, find_newest, load_checkpoint, load_model
from albert_data.train.folder import RUN_FILE, TOKENIZER_KEY, find_tokenizer
from albert_data.train.model import INIT_STD, Albert
from albert_data.train.reading import load_object
from albert_data.train.state import Initial

Say = Callable[[str], object]
_SIZES = (  # tensors of V x E, H x E and H x H
    "albert.embeddings.word_embeddings.weight",
    "albert.encoder.embedding_hidden_mapping_in.weight",
    "albert.encoder.albert_layer_groups.0.albert_layers.0.attention.dense.weight",
)
_TANH_GELUS = ("gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh")  # one function under three names
USUAL_SETTINGS = {"do_lower_case": True, "keep_accents": False}  # of AlbertTokenizer, where a folder has none
_VOCABULARY = ("embeddings.token.weight", "mlm_head.bias")  # the parameters with a row for each piece


def load_initial(path: Path, shards: Path | None = None, *, seed: int = 0, say: Say = lambda line: None) -> Initial:
    """Load weights to begin with.

    shards: the folder of the rows to train on. Its tokenizer may have more pieces than the model has embeddings; the
    missing ones are drawn at random from `seed`. say: called with a line for each part that was drawn or left out.
    Raises CheckpointError if the weights are missing or damaged, ConfigError for another kind of model or vocabulary.
    """
    origin, generator = path, torch.Generator().manual_seed(seed)
    if (path / RUN_FILE).is_file():
        origin = find_newest(path, "begin with another run, or without --init-from")
    if (origin / STATE_FILE).is_file():
        identity = load_checkpoint(origin)[2].get("identity")
        if not isinstance(identity, dict):
            raise CheckpointError(
                f"{origin / STATE_FILE} lacks identity, so its vocabulary is not known; "
                "begin with another checkpoint, or without --init-from"
            )
        model, sha256 = load_model(origin), identity.get(TOKENIZER_KEY)
        tokenizer = find_tokenizer(origin.parent.parent, str(sha256))
    elif (origin / CONFIG_FILE).is_file():
        tokenizer = _find_published(origin, shards)
        if not tokenizer.is_file():
            say(f"{origin} holds no {MODEL_NAME}: of its vocabulary only the size is compared")
        elif shards is not None and tokenizer.name == MODEL_NAME:  # other tokenizers have rules of their own
            _check_normalization(origin, read_manifest(shards).tokenizer.normalization or "none")
        model, sha256 = import_model(origin, partial(_adapt, generator=generator, say=say)), None
        if tokenizer.is_file():  # the SHA-256 that shards built with it name
            is_json = tokenizer.name != MODEL_NAME
            sha256 = load_tokenizer(tokenizer, to_encode=False).sha256 if is_json else hash_file(tokenizer)
    else:
        raise CheckpointError(
            f"{path} holds no weights to begin with; --init-from takes a run, a checkpoint, or a Hugging Face folder"
        )
    initial = Initial(model=model, tokenizer_sha256=sha256, origin=origin)
    if shards is None:
        return initial
    wanted, found = read_manifest(shards).config.examples.task, model.config.task
    if wanted != found and wanted.orders:  # `start_session` does not take the head
        drawn = "its head is" if found.orders else "its head and the pooler are"
        say(f"the shards are for the sentence task {wanted.name}, the weights for {found.name}: {drawn} drawn anew")
    return _fit_vocabulary(initial, tokenizer, shards, generator, say)


def _find_published(folder: Path, shards: Path | None) -> Path:
    """The tokenizer of a Hugging Face folder, to compare with that of the shards.

    A tokenizer.json made of a spiece.model is nothing to compare with a spiece.model.
    """
    is_json = shards is not None and Path(read_manifest(shards).tokenizer.file).name == JSON_NAME
    names = (MODEL_NAME, VOCAB_NAME, *((JSON_NAME,) if is_json else ()))
    return next((folder / name for name in names if (folder / name).is_file()), folder / MODEL_NAME)


def _check_normalization(folder: Path, ours: str) -> None:
    """Raise ConfigError if a folder's settings name another normalization than `ours`, that of the shards."""
    theirs = find_normalization(folder)
    if theirs not in (None, ours):
        raise ConfigError(
            f"the tokenizer of {folder} has the normalization {theirs}, and that of the shards {ours}; "
            f"build the shards with --normalization {theirs}"
        )


def _adapt(settings: dict[str, Any], weights: dict[str, Tensor], *, generator: torch.Generator, say: Say) -> None:
    """Make of a published folder what an AlbertForPreTraining of today would be saved as. See `import_model`.

    Parts of which nothing is there are drawn, if other tensors of their sizes are: config.json may name any.
    """
    if settings.get("model_type") != "albert":
        return  # config_from_huggingface refuses it
    if settings.get("hidden_act") == "gelu":
        say("hidden_act is gelu: computed by tanh, as Google's code for ALBERT does under this name")
    if settings.get("hidden_act") in ("gelu", *_TANH_GELUS):
        settings["hidden_act"] = _TANH_GELUS[0]
    if not any(name.startswith("albert.") for name in weights):  # an AlbertModel, saved without heads
        bare = [name for name in weights if name.split(".")[0] in ("embeddings", "encoder", "pooler")]
        weights.update({f"albert.{name}": weights.pop(name) for name in bare})
    if "predictions.bias" not in weights and "predictions.decoder.bias" in weights:
        weights["predictions.bias"] = weights["predictions.decoder.bias"]
    embeddings, projection, square = (weights.get(name, torch.empty(0)).shape for name in _SIZES)
    if len(embeddings) != 2 or len(projection) != 2:
        return  # from_huggingface says what is wrong
    (V, E), H = embeddings, projection[0]
    if (projection, square) != ((H, E), (H, H)):
        return
    norm: dict[str, tuple[int, ...]] = {"predictions.LayerNorm.weight": (E,), "predictions.LayerNorm.bias": (E,)}
    dense = {"predictions.dense.weight": (E, H), "predictions.dense.bias": (E,), "predictions.bias": (V,)}
    parts: dict[str, dict[str, tuple[int, ...]]] = {  # what other classes than AlbertForPreTraining lack
        "the pooler": {"albert.pooler.weight": (H, H), "albert.pooler.bias": (H,)},
        "the MLM head": {**dense, **norm},
        "the SOP head": {"sop_classifier.classifier.weight": (2, H), "sop_classifier.classifier.bias": (2,)},
    }
    for part, needed in parts.items():
        if not needed.keys() & weights.keys():
            for name, shape in needed.items():
                weights[name] = torch.ones(shape) if "LayerNorm.weight" in name else _draw(shape, generator)
            say(f"the folder lacks {part}, which is drawn anew")


def _draw(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw a matrix as for a new model (see train/model.py); a vector is a bias, 0."""
    drawn = torch.zeros(shape)
    if len(shape) > 1:
        nn.init.trunc_normal_(drawn, std=INIT_STD, a=-2 * INIT_STD, b=2 * INIT_STD, generator=generator)
    return drawn


def _fit_vocabulary(initial: Initial, tokenizer: Path, folder: Path, generator: torch.Generator, say: Say) -> Initial:
    """Give the model a row for each piece of the shards' tokenizer, if the first pieces are those of its own tokenizer.

    tokenizer: the model's own, if there is such a file. Without one `choose_shape` decides by hash and size.
    """
    wanted, size, model = read_manifest(folder).tokenizer, initial.model.config.vocab_size, initial.model
    if not tokenizer.is_file():
        return initial
    num_known = min(size, wanted.vocab_size)
    if initial.tokenizer_sha256 != wanted.sha256:
        ours, theirs = open_shards(folder).tokenizer.pieces, load_tokenizer(tokenizer, to_encode=False).pieces
        differing = next((i for i, piece in enumerate(theirs) if ours[i : i + 1] != [piece]), None)
        if differing is not None:
            there = repr(ours[differing]) if differing < len(ours) else "missing"
            raise ConfigError(
                f"{initial.origin} has another vocabulary ({len(theirs):,} pieces) than the shards ({len(ours):,}): "
                f"its piece {differing}, {theirs[differing]!r}, is {there} there; build the shards with its tokenizer, "
                "or with one that begins with all its pieces"
            )
        num_known = min(size, len(theirs))
    if num_known < size:
        say(f"{size - num_known:,} rows of the embeddings have no piece in {tokenizer.name} and are left out")
    if num_known < wanted.vocab_size:
        say(f"the shards' tokenizer has {wanted.vocab_size - num_known:,} more pieces; their embeddings are drawn anew")
    if not size == num_known == wanted.vocab_size:
        state = model.state_dict()
        for name in _VOCABULARY:
            new = _draw((wanted.vocab_size - num_known, *state[name].shape[1:]), generator)
            state[name] = torch.cat([state[name][:num_known], new])
        with torch.device("meta"):
            model = Albert(dataclasses.replace(model.config, vocab_size=wanted.vocab_size)).eval()
        model.load_state_dict(state, assign=True)
    return dataclasses.replace(initial, model=model, tokenizer_sha256=wanted.sha256)


def find_normalization(folder: Path, settings: Mapping[str, object] | None = None) -> str | None:
    """What is done to text before the SentencePiece model of a folder; None if we do not know how.

    Google's models lower text and remove accents, ours mostly do not. settings: where the folder has none.
    """
    if not (folder / MODEL_NAME).is_file():
        return None
    settings = dict(settings or {})
    if (folder / CONFIG_NAME).is_file():
        settings |= load_object(folder / CONFIG_NAME, "save the model again")
    lowers, keeps_accents = settings.get("do_lower_case"), settings.get("keep_accents")
    if lowers is True and keeps_accents is False:
        return "albert-v2"
    return "none" if lowers is False and keeps_accents is True else None
