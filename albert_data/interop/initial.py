"""Loads, from another run, a checkpoint or a Hugging Face folder, the weights that a run begins with.

Folders as published differ from those that `export` writes: heads that their class does not have are missing, names
are older, and the tokenizer of the shards may have more pieces than theirs. What a folder lacks is drawn as for a new
model, and the user is told.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from albert_data.errors import CheckpointError, ConfigError
from albert_data.files import hash_file
from albert_data.interop.huggingface import CONFIG_FILE, import_model
from albert_data.interop.masked_lm import find_normalization
from albert_data.shards.manifest_file import read_manifest
from albert_data.shards.reader import open_shards
from albert_data.tokenizer.model import MODEL_NAME, load_tokenizer
from albert_data.tokenizer.tokenizer_json import JSON_NAME, VOCAB_NAME
from albert_data.train.folder import RUN_FILE, TOKENIZER_KEY, find_tokenizer
from albert_data.train.model.checkpoint import STATE_FILE, list_checkpoints, load_checkpoint, load_model
from albert_data.train.model.model import INIT_STD, Albert
from albert_data.train.run.session import Initial

Say = Callable[[str], object]
# What other classes than AlbertForPreTraining lack: the beginning of its names in transformers, and what it is.
_OPTIONAL_PARTS = {
    "albert.pooler.": "the pooler",
    "predictions.": "the MLM head",
    "sop_classifier.": "the SOP head",
}
_SIZES = (  # tensors of V x E, H x E and H x H
    "albert.embeddings.word_embeddings.weight",
    "albert.encoder.embedding_hidden_mapping_in.weight",
    "albert.encoder.albert_layer_groups.0.albert_layers.0.attention.dense.weight",
)
_TANH_GELUS = ("gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh")  # one function under three names
_CAPITALS = 0.01  # English: a tenth and more of the pieces with letters; the single letters A to Z of 8,000: 0.003
_VOCABULARY = ("embeddings.token.weight", "mlm_head.bias")  # the parameters with a row for each piece


def load_initial(path: Path, shards: Path | None = None, *, seed: int = 0, say: Say = lambda line: None) -> Initial:
    """Load weights to begin with.

    shards: the folder of the rows to train on. Its tokenizer may have more pieces than the model has embeddings; the
    missing ones are drawn at random from `seed`. say: called with a line for each part that was drawn or left out.
    Raises CheckpointError if the weights are missing or damaged, ConfigError for another kind of model or vocabulary.
    """
    origin, generator = path, torch.Generator().manual_seed(seed)
    if (path / RUN_FILE).is_file():
        checkpoints = list_checkpoints(path)
        if not checkpoints:
            raise CheckpointError(
                f"{path}: the run has no checkpoint yet; begin with another run, or without --init-from"
            )
        origin = checkpoints[-1]
    if (origin / STATE_FILE).is_file():
        initial = _load_own(origin)
        tokenizer = find_tokenizer(origin.parent.parent, str(initial.tokenizer_sha256))
    elif (origin / CONFIG_FILE).is_file():
        tokenizer = _find_published(origin, shards)
        if shards is not None:
            _tell_tokenizer(tokenizer, shards, say)
        model = import_model(origin, _Adapter(generator, say))
        digest = _identify(tokenizer) if tokenizer.is_file() else None
        initial = Initial(model=model, tokenizer_sha256=digest, origin=origin)
    else:
        raise CheckpointError(
            f"{path}: holds no weights to begin with; --init-from takes a run, a checkpoint, or a Hugging Face folder"
        )
    if shards is None:
        return initial
    _tell_sentence_task(initial, shards, say)
    return _fit_vocabulary(initial, tokenizer, shards, generator, say)


def _load_own(checkpoint: Path) -> Initial:
    _, _, state = load_checkpoint(checkpoint)
    identity = state.get("identity")
    if not isinstance(identity, dict):
        raise CheckpointError(
            f"{checkpoint / STATE_FILE}: lacks identity, so its vocabulary is not known; "
            "begin with another checkpoint, or without --init-from"
        )
    return Initial(model=load_model(checkpoint), tokenizer_sha256=identity.get(TOKENIZER_KEY), origin=checkpoint)


def _find_published(folder: Path, shards: Path | None) -> Path:
    """The tokenizer of a Hugging Face folder, to compare with that of the shards.

    A tokenizer.json made of a spiece.model is nothing to compare with a spiece.model.
    """
    is_json = shards is not None and Path(read_manifest(shards).tokenizer.file).name == JSON_NAME
    names = (MODEL_NAME, VOCAB_NAME, *((JSON_NAME,) if is_json else ()))
    return next((folder / name for name in names if (folder / name).is_file()), folder / MODEL_NAME)


def _identify(tokenizer: Path) -> str:
    """The SHA-256 that shards built with it name."""
    if tokenizer.name == MODEL_NAME:
        return hash_file(tokenizer)
    return load_tokenizer(tokenizer, to_encode=False).sha256


def _tell_tokenizer(tokenizer: Path, shards: Path, say: Say) -> None:
    """Tell what can't be checked of a Hugging Face folder's tokenizer, or differs from that of the shards."""
    folder, entry = tokenizer.parent, read_manifest(shards).tokenizer
    normalization = entry.normalization or "none"
    if not tokenizer.is_file():
        say(f"{folder} holds no {MODEL_NAME}: of its vocabulary only the size is compared")
    elif tokenizer.name != MODEL_NAME:
        _tell_rules(tokenizer, shards, say)
    elif (found := find_normalization(folder)) is None:
        _tell_case(tokenizer, shards, say)
    elif found != normalization:
        say(
            f"the tokenizer of {folder} has the normalization {found}, and that of the shards {normalization}; the "
            f"weights fit better to shards that are built with --normalization {found}"
        )


def _tell_case(tokenizer: Path, shards: Path, say: Say) -> None:
    """Tell if the shards' text has another case than the folder's pieces.

    Settings that are missing, or name a part of what is done, don't tell on what text the weights were trained. The
    pieces do: a vocabulary has capital letters if, and only if, the text that it was made of had them.
    """
    theirs, ours = load_tokenizer(tokenizer, to_encode=False), open_shards(shards).tokenizer
    pieces = [theirs.piece_texts[i] for i in theirs.ordinary_ids.tolist()]
    cased = [piece for piece in pieces if piece.lower() != piece.upper()]
    has_capitals = sum(piece != piece.lower() for piece in cased) > _CAPITALS * len(cased)
    is_kept = any(map(str.isupper, ours.normalise("ABC")))
    if has_capitals and not is_kept:
        say(
            f"the pieces of {tokenizer.parent} have capital letters, and the text of the shards is made lower case; "
            "the weights fit better to shards that keep them"
        )
    elif cased and is_kept and not has_capitals:
        say(
            f"the pieces of {tokenizer.parent} have no capital letters, and the text of the shards keeps them; the "
            "weights fit better to text in lower case, as --normalization albert-v2 makes it, which removes accents too"
        )


def _tell_rules(tokenizer: Path, shards: Path, say: Say) -> None:
    """Tell if text is prepared for the shards in another way than for the folder's WordPiece."""
    theirs, ours = load_tokenizer(tokenizer, to_encode=False), open_shards(shards).tokenizer
    if theirs.note:
        say(theirs.note)
    if theirs.model != ours.model and theirs.pieces == ours.pieces:
        say(
            f"{tokenizer.parent} has the vocabulary of the shards with other rules for case, accents or ideographs; "
            f"the weights fit better to shards that are built with --tokenizer {tokenizer}"
        )


class _Adapter:
    """Makes of a published folder what an AlbertForPreTraining of today would be saved as. See `import_model`."""

    def __init__(self, generator: torch.Generator, say: Say) -> None:
        self._generator, self._say = generator, say

    def __call__(self, settings: dict[str, Any], weights: dict[str, Tensor]) -> None:
        if settings.get("model_type") != "albert":
            return  # config_from_huggingface refuses it
        if settings.get("hidden_act") == "gelu":
            self._say("hidden_act is gelu: computed by tanh, as Google's code for ALBERT does under this name")
        if settings.get("hidden_act") in ("gelu", *_TANH_GELUS):
            settings["hidden_act"] = _TANH_GELUS[0]
        if not any(name.startswith("albert.") for name in weights):  # an AlbertModel, saved without heads
            bare = [name for name in weights if name.split(".")[0] in ("embeddings", "encoder", "pooler")]
            weights.update({f"albert.{name}": weights.pop(name) for name in bare})
        if "predictions.bias" not in weights and "predictions.decoder.bias" in weights:
            weights["predictions.bias"] = weights["predictions.decoder.bias"]
        self._draw_parts(weights)

    def _draw_parts(self, weights: dict[str, Tensor]) -> None:
        """Draw the parts of which nothing is there, if other tensors of their sizes are: config.json may name any."""
        embeddings, projection, square = (weights.get(name, torch.empty(0)).shape for name in _SIZES)
        if len(embeddings) != 2 or len(projection) != 2:
            return  # from_huggingface says what is wrong
        (V, E), H = embeddings, projection[0]
        if (projection, square) != ((H, E), (H, H)):
            return
        shapes = {
            **{"albert.pooler.weight": (H, H), "albert.pooler.bias": (H,)},
            **{"predictions.dense.weight": (E, H), "predictions.dense.bias": (E,), "predictions.bias": (V,)},
            **{"predictions.LayerNorm.weight": (E,), "predictions.LayerNorm.bias": (E,)},
            **{"sop_classifier.classifier.weight": (2, H), "sop_classifier.classifier.bias": (2,)},
        }
        for prefix, part in _OPTIONAL_PARTS.items():
            needed = {name: shape for name, shape in shapes.items() if name.startswith(prefix)}
            if not needed.keys() & weights.keys():
                for name, shape in needed.items():
                    weights[name] = torch.ones(shape) if "LayerNorm.weight" in name else _draw(shape, self._generator)
                self._say(f"the folder lacks {part}, which is drawn anew")


def _draw(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw a matrix as for a new model (see train/model/model.py); a vector is a bias, 0."""
    drawn = torch.zeros(shape)
    if len(shape) > 1:
        nn.init.trunc_normal_(drawn, std=INIT_STD, a=-2 * INIT_STD, b=2 * INIT_STD, generator=generator)
    return drawn


def _tell_sentence_task(initial: Initial, folder: Path, say: Say) -> None:
    """Tell if the shards have another sentence task: `start_session` does not take its head then."""
    wanted, found = read_manifest(folder).config.examples.task, initial.model.config.task
    if wanted != found and wanted.orders:
        drawn = "its head is" if found.orders else "its head and the pooler are"
        say(f"the shards are for the sentence task {wanted.name}, the weights for {found.name}: {drawn} drawn anew")


def _fit_vocabulary(initial: Initial, tokenizer: Path, folder: Path, generator: torch.Generator, say: Say) -> Initial:
    """Give the model a row for each piece of the shards' tokenizer, if the first pieces are those of its own tokenizer.

    tokenizer: the model's own, if there is such a file. Without one `choose_shape` decides by hash and size.
    """
    wanted, size = read_manifest(folder).tokenizer, initial.model.config.vocab_size
    if not tokenizer.is_file():
        return initial
    if initial.tokenizer_sha256 == wanted.sha256:
        num_known = min(size, wanted.vocab_size)
    else:
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
    if size == num_known == wanted.vocab_size:
        return dataclasses.replace(initial, tokenizer_sha256=wanted.sha256)
    if num_known < size:
        say(f"{size - num_known:,} rows of the embeddings have no piece in {tokenizer.name} and are left out")
    if num_known < wanted.vocab_size:
        say(f"the shards' tokenizer has {wanted.vocab_size - num_known:,} more pieces; their embeddings are drawn anew")
    model = _resize(initial.model, num_known, wanted.vocab_size, generator)
    return dataclasses.replace(initial, model=model, tokenizer_sha256=wanted.sha256)


def _resize(model: Albert, num_known: int, vocab_size: int, generator: torch.Generator) -> Albert:
    """Return a model with the rows of the first pieces, and drawn ones for the others."""
    state = model.state_dict()
    for name in _VOCABULARY:
        new = _draw((vocab_size - num_known, *state[name].shape[1:]), generator)
        state[name] = torch.cat([state[name][:num_known], new])
    with torch.device("meta"):
        resized = Albert(dataclasses.replace(model.config, vocab_size=vocab_size))
    resized.load_state_dict(state, assign=True)
    return resized.eval()
