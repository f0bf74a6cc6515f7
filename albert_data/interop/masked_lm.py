"""Loads a masked language model with its tokenizer, for scoring: a training run, or a Hugging Face folder.

In: a path. Out: a MaskedLm. A run and an ALBERT with its SentencePiece model are read without transformers. Any other
masked language model with safetensors and a fast tokenizer is read by transformers; its words are those of the
tokenizer's pre-tokeniser.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from albert_data.errors import CheckpointError, ConfigError, TokenizerError
from albert_data.interop.huggingface import CONFIG_FILE, import_model, load_run, read_weights
from albert_data.interop.scoring import AlbertLm, EncodedSentence, MaskedLm
from albert_data.tokenizer.backend import NO_MODEL, Backend, explain_failures
from albert_data.tokenizer.model import MODEL_NAME, load_tokenizer
from albert_data.tokenizer.tokenizer_json import CONFIG_NAME, JSON_NAME
from albert_data.train.folder import RUN_FILE, list_files
from albert_data.train.reading import check_regular, explain, load_object, name_in_utf8, show

_ADVICE = "save the model again"
_CODE = re.compile(
    r"auto_map|quantization_config|kernel_config|use_kernels|transformers_weights|_?\w+_implementation(_internal)?"
)
_READ_WHOLE, _MAX_BYTES = (".json", ".txt", ".model", ".jinja"), 1 << 27  # kinds of files, and bytes of each


def load_masked_lm(
    path: Path, *, checkpoint: Path | None = None, tokenizer: Path | None = None
) -> tuple[MaskedLm, Path]:
    """Return the model, and the folder that its weights are from. checkpoint, tokenizer: as in `export_run`.

    Raises CheckpointError, ConfigError and TokenizerError.
    """
    if (path / RUN_FILE).is_file():
        origin, model, pieces = load_run(path, checkpoint=checkpoint, tokenizer=tokenizer)
        return AlbertLm(model, pieces), origin
    if checkpoint is not None or tokenizer is not None:
        raise ConfigError(f"{path} is not a training run; leave out --checkpoint and --tokenizer")
    if not (path / CONFIG_FILE).is_file():
        raise CheckpointError(
            f"{path} is neither a training run nor a Hugging Face folder ({RUN_FILE} and {CONFIG_FILE} are missing)"
        )
    settings = load_object(path / CONFIG_FILE, _ADVICE)
    if settings.get("model_type") == "albert" and (normalization := find_normalization(path)):
        return AlbertLm(import_model(path), load_tokenizer(path / MODEL_NAME, normalization=normalization)), path
    return TransformersLm(path, settings), path


def list_read(path: Path, *, checkpoint: Path | None = None, tokenizer: Path | None = None) -> Iterator[Path]:
    """The files and folders that `load_masked_lm` reads; of a Hugging Face folder transformers may read any file."""
    yield from list_files(path) if (path / RUN_FILE).is_file() else [path]
    if checkpoint is not None:
        yield checkpoint
    if tokenizer is not None:  # a file beside it may say what is done with case
        yield from (tokenizer, *(tokenizer.parent / name for name in (JSON_NAME, CONFIG_NAME)))


def find_normalization(folder: Path) -> str | None:
    """What is done to text before the SentencePiece model, None if we do not know how: Google's models lower text and
    remove accents, ours mostly do not.
    """
    if not (folder / MODEL_NAME).is_file() or not (folder / CONFIG_NAME).is_file():
        return None
    settings = load_object(folder / CONFIG_NAME, _ADVICE)
    lowers, keeps_accents = settings.get("do_lower_case"), settings.get("keep_accents")
    if lowers is True and keeps_accents is False:
        return "albert-v2"
    return "none" if lowers is False and keeps_accents is True else None


class TransformersLm:
    """A masked language model of transformers, from a folder on the disk. Runs no code and no pickle of the folder."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        try:
            transformers = importlib.import_module("transformers")
        except ImportError as error:
            raise ConfigError(
                f"{folder}: its model_type {show(settings.get('model_type'))} needs transformers; "
                "install it with: pip install 'albert-data[huggingface]'"
            ) from error
        transformers.utils.logging.disable_progress_bar()
        transformers.utils.logging.set_verbosity_error()
        _check_files(folder)
        self._model = _load_model(transformers, folder, settings)
        self._tokenizer = _load_tokenizer(transformers, folder, self._model.config)
        rules = json.loads(self._tokenizer.backend_tokenizer.to_str()) | {"model": NO_MODEL, "added_tokens": []}
        self._folder, self._rules = folder, Backend(rules, f"the tokenizer of {folder}")
        num_pieces, vocab_size = len(self._tokenizer), self._model.config.vocab_size
        # Without a vocabulary transformers makes a tokenizer of special pieces only. Padding may enlarge the model's.
        if not vocab_size // 2 < num_pieces <= vocab_size:
            raise TokenizerError(
                f"{folder}: its tokenizer has {num_pieces:,} pieces, but the model has {vocab_size:,}; "
                "copy the tokenizer's files of this model into the folder"
            )
        self.mask_id: int = self._tokenizer.mask_token_id
        self.max_len = min(self._tokenizer.model_max_length, count_positions(self._model))

    def encode(self, sentences: list[str]) -> list[EncodedSentence]:
        texts = [self._rules.check_growth(sentence.strip()) for sentence in sentences]
        with explain_failures(f"fails on a text with the tokenizer of {self._folder}"):
            # No "longer than the maximum" warning: the caller raises an error with the line.
            found = self._tokenizer(texts, verbose=False)
        return [
            EncodedSentence(np.array(ids, np.int64), _find_word_ends(found.word_ids(index)))
            for index, ids in enumerate(found["input_ids"])
        ]

    def to(self, device: torch.device) -> None:
        self._model.to(device)

    def predict(self, input_ids_BT: Tensor, positions_B: Tensor) -> Tensor:
        rows_B = torch.arange(len(positions_B), device=positions_B.device)

        def select(module: nn.Module, given: Any, output: Any) -> Any:
            # So the head computes one position of each row, not T: for T = 16 and 30,000 pieces, a sixteenth of 2 GB.
            output.last_hidden_state = output.last_hidden_state[rows_B, positions_B][:, None]
            return output

        encoder = getattr(self._model, self._model.base_model_prefix, None)
        if not isinstance(encoder, nn.Module):
            raise ConfigError(f"a {type(self._model).__name__} has no encoder apart from its head; score another model")
        with encoder.register_forward_hook(select):
            logits_B1V: Tensor = self._model(input_ids_BT, torch.ones_like(input_ids_BT)).logits
        return logits_B1V[:, 0]


def _check_files(folder: Path) -> None:
    """Raise CheckpointError for what transformers would open and wait for, or read without an end."""
    for path in sorted(folder.iterdir()):
        try:
            if not path.is_dir():
                check_regular(path)
            if path.suffix in _READ_WHOLE and (num_bytes := path.stat().st_size) > _MAX_BYTES:
                raise ValueError(f"it has {num_bytes:,} bytes; at most {_MAX_BYTES:,} are allowed")
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path}: {explain(error)}; move it out of the model's folder") from error


def _drop_code(value: Any) -> Any:
    """Settings without those that name code, kernels or other files of weights, at any depth."""
    if isinstance(value, dict):
        return {name: _drop_code(one) for name, one in value.items() if not _CODE.fullmatch(name)}
    return [_drop_code(one) for one in value] if isinstance(value, list) else value


def _explain(error: Exception, settings: dict[str, Any]) -> str:
    if "auto_map" in settings:
        return "its auto_map names code of the folder, which is never run; give a model that transformers knows itself"
    return explain(error)


def _load(kind: Any, folder: str | None, config: Any, **options: Any) -> Any:
    """What transformers makes. By default trust_remote_code asks on stdin whether to run code of an auto_map."""
    return kind.from_pretrained(folder, config=config, local_files_only=True, trust_remote_code=False, **options)


def _load_model(transformers: Any, folder: Path, settings: dict[str, Any]) -> Any:
    """The model. transformers makes it of our settings and tensors, and opens no file: it would follow any name."""
    try:
        config = transformers.AutoConfig.for_model(**{"model_type": None, **_drop_code(settings)})
        kind = transformers.MODEL_FOR_MASKED_LM_MAPPING[type(config)]
        weights = {"state_dict": read_weights(folder), "dtype": torch.float32, "output_loading_info": True}
        model, report = _load(kind, None, config, **weights)
    except CheckpointError:
        raise
    except Exception as error:  # of many types: a folder of others may be damaged in any way
        raise CheckpointError(
            f"{folder}: transformers can't load a masked language model ({_explain(error, settings)})"
        ) from error
    if lacking := sorted(report["missing_keys"]):  # transformers would draw them at random
        raise CheckpointError(f"{folder} lacks the weights {lacking[0]}; give a model with its MLM head")
    return model.eval()


def _load_tokenizer(transformers: Any, folder: Path, config: Any) -> Any:
    settings = load_object(path, _ADVICE) if (path := folder / CONFIG_NAME).exists() else {}
    try:
        with explain_failures("fails"):
            tokenizer = _load(transformers.AutoTokenizer, name_in_utf8(folder), config)
    except TokenizerError as error:
        raise TokenizerError(
            f"{folder}: transformers can't load its tokenizer ({_explain(error, settings)})"
        ) from error
    if not tokenizer.is_fast:
        raise TokenizerError(
            f"{folder}: its tokenizer does not tell which pieces make a word; save it as tokenizer.json"
        )
    if tokenizer.mask_token_id is None:
        raise TokenizerError(f"{folder}: its tokenizer has no mask token; give a masked language model")
    longest = tokenizer.model_max_length
    if not isinstance(longest, int | float) or not longest >= 1:
        raise TokenizerError(
            f"{folder / CONFIG_NAME}: model_max_length is {show(longest)}; a number of tokens is needed"
        )
    return tokenizer


def count_positions(model: Any) -> int:
    """The longest sequence. RoBERTa and its like number positions from padding_idx + 1."""
    positions = int(getattr(model.config, "max_position_embeddings", None) or 1 << 30)
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return positions - int(module.padding_idx) - 1
    return positions


def _find_word_ends(words: list[int | None]) -> np.ndarray:
    """EncodedSentence.word_ends from the number of each token's word; None for a special token."""
    ends, end = np.zeros(len(words), np.int64), len(words)
    for index in reversed(range(len(words))):
        if words[index : index + 1] != words[index + 1 : index + 2]:
            end = index + 1
        ends[index] = 0 if words[index] is None else end
    return ends
