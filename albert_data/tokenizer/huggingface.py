"""Makes the files that transformers' AutoTokenizer loads.

In: a Tokenizer. Out: tokenizer.json, tokenizer_config.json, and spiece.model or, for WordPiece, vocab.txt.

A SentencePiece model: tokenizer.json has pieces, scores and normalisation; transformers can derive these from
spiece.model only if protobuf is installed. A model that puts "▁" before a sentence is loaded as AlbertTokenizer. This
class has rules of its own that can't be changed: two backticks or two apostrophes become a quotation mark, and text
after [MASK] begins a new word, with "▁". A model without this dummy prefix is loaded as PreTrainedTokenizerFast, which
takes every rule from tokenizer.json; AlbertTokenizer splits at spaces and drops them, and would put no "▁" in their
place. Apart from those rules and from ties between segmentations of equal score, the ids are those of the model.
With the normalization albert-v2 transformers lowers case and removes accents, as Google's models have it. It divides no
piece before a comma, and it also removes marks that are not combining characters, as vowels of Indic scripts.

Any other tokenizer: BERT's WordPiece is loaded as BertTokenizer, others as PreTrainedTokenizerFast. Whatever template
its tokenizer.json had, a row is `[CLS] A [SEP] B [SEP]`, as in the shards.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any

from albert_data.errors import TokenizerError
from albert_data.tokenizer import tokenizer_json
from albert_data.tokenizer.model import MODEL_NAME, Tokenizer
from albert_data.tokenizer.sentencepiece.proto import UNIGRAM, ModelSettings, read_settings
from albert_data.tokenizer.tokenizer_json import CONFIG_NAME, JSON_NAME, VOCAB_NAME, dump

UNK_ID = 1  # fixed in AlbertTokenizer
# What AlbertTokenizer makes of do_lower_case without keep_accents; for PreTrainedTokenizerFast.
_ALBERT_V2: list[dict[str, Any]] = [
    *({"type": "Replace", "pattern": {"String": quote}, "content": '"'} for quote in ("``", "''")),
    *({"type": name} for name in ("NFKD", "StripAccents", "Lowercase")),
]
# A temporary mark at the start of a text. SentencePiece's usual normalisation removes this character from the text.
# With one that keeps it, a text that begins with this character loses it.
_START = "\u0001"


def tokenizer_files(tokenizer: Tokenizer, *, max_len: int) -> dict[str, bytes]:
    """Return the files by name. Raises TokenizerError for a model that `explain_unsupported` refuses."""
    shared = _describe_roles(tokenizer, max_len)
    if tokenizer.file_name != MODEL_NAME:
        return _list_json_files(tokenizer, shared)
    settings, is_v2 = read_settings(tokenizer.model), tokenizer.normalization == "albert-v2"
    if reason := explain_unsupported(tokenizer, settings):
        raise TokenizerError(
            f"transformers has no tokenizer that gives the same ids: {reason}; "
            "train a vocabulary with `albert-data vocab`, and a model with it"
        )
    config = {
        "tokenizer_class": "AlbertTokenizer" if settings.add_dummy_prefix else "PreTrainedTokenizerFast",
        # Options of AlbertTokenizer, which PreTrainedTokenizerFast ignores; remove_space only in transformers 4.
        # Without a normalization, case and accents are left to the model's own.
        "do_lower_case": is_v2,
        "keep_accents": not is_v2,
        "remove_space": True,
        "add_prefix_space": settings.add_dummy_prefix,
        **shared,
        "bos_token": shared["cls_token"],
        "eos_token": shared["sep_token"],
    }
    # On one line: indented, 30,000 pieces would take twice the time.
    backend = json.dumps(_describe_backend(tokenizer, settings), ensure_ascii=False).encode()
    return {MODEL_NAME: tokenizer.model, JSON_NAME: backend, CONFIG_NAME: dump(config)}


def added_files(tokenizer: Tokenizer, *, max_len: int) -> dict[str, bytes]:
    """The files by name that transformers needs beside spiece.model or the tokenizer.json that a build was given.

    None for a model that `explain_unsupported` refuses. A tokenizer.json keeps its template.
    """
    if tokenizer.file_name != MODEL_NAME:
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **_describe_roles(tokenizer, max_len)}
        return {CONFIG_NAME: dump(config)}
    try:
        files = tokenizer_files(tokenizer, max_len=max_len)
    except TokenizerError:
        return {}
    return {name: data for name, data in files.items() if name != MODEL_NAME}


def _describe_roles(tokenizer: Tokenizer, max_len: int) -> dict[str, Any]:
    """The settings of any tokenizer_config.json."""
    return {
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_len,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],  # by default without token_type_ids
        **{
            f"{name.removesuffix('_id')}_token": tokenizer.pieces[i] for name, i in tokenizer.specials.to_dict().items()
        },
    }


def _list_json_files(tokenizer: Tokenizer, shared: dict[str, Any]) -> dict[str, bytes]:
    """The files of a tokenizer that is no SentencePiece model. shared: settings of any tokenizer_config.json."""
    values, pieces = json.loads(tokenizer.model), tokenizer.pieces
    values["post_processor"] = tokenizer_json.describe_template(pieces, tokenizer.cls_id, tokenizer.sep_id)
    added = {token["id"]: token for token in values.get("added_tokens") or []}
    specials = {i: tokenizer_json.describe_special(i, pieces[i]) for i in tokenizer.specials.to_dict().values()}
    values["added_tokens"] = [entry for _, entry in sorted((specials | added).items())]
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **shared}
    if not tokenizer_json.is_wordpiece(values):
        return {JSON_NAME: dump(values), CONFIG_NAME: dump(config)}
    config |= tokenizer_json.describe_config(tokenizer_json.read_rules(values))
    vocab = "".join(f"{piece}\n" for piece in pieces).encode()
    return {JSON_NAME: dump(values), CONFIG_NAME: dump(config), VOCAB_NAME: vocab}


def explain_unsupported(tokenizer: Tokenizer, settings: ModelSettings) -> str | None:
    """Return why transformers can't give the ids of this model, or None if it can, except as the module's text says."""
    if settings.model_type != UNIGRAM:
        return "its model is not a unigram model"
    if tokenizer.unk_id != UNK_ID:
        return f"its unknown piece has id {tokenizer.unk_id}, where {UNK_ID} is needed"
    if settings.byte_fallback:
        return "it spells unknown characters as bytes"
    if not (settings.remove_extra_whitespaces and settings.escape_whitespaces):
        return "it keeps white space as it is (remove_extra_whitespaces or escape_whitespaces off)"
    if settings.treat_whitespace_as_suffix:
        return "it puts a space after each word (treat_whitespace_as_suffix)"
    if any("▁" in piece[1:] for piece in tokenizer.pieces):
        return "it has pieces of more than one word"
    for number, (piece, score) in enumerate(zip(tokenizer.pieces, settings.scores, strict=True)):
        # A surrogate stands for a byte of the model that is not UTF-8. isascii spares most pieces the slow loop.
        if not piece.isascii() and any("\ud800" <= character <= "\udfff" for character in piece):
            return f"its piece {number}, {piece!r}, is not valid text"
        if not math.isfinite(score):
            return f"the score of its piece {number}, {piece!r}, is {score}"
    return None


def _describe_backend(tokenizer: Tokenizer, settings: ModelSettings) -> dict[str, Any]:
    """Return tokenizer.json. AlbertTokenizer uses only its pieces, scores and normalisation."""
    pieces, special_ids = tokenizer.pieces, sorted(tokenizer.specials.to_dict().values())
    normalizers = list(_ALBERT_V2) if tokenizer.normalization == "albert-v2" else []
    if settings.charsmap:
        charsmap = base64.b64encode(settings.charsmap).decode("ascii")
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if settings.add_dummy_prefix:
        metaspace = _describe_metaspace("always", split=True)
        pretokenizers = [{"type": "WhitespaceSplit"}, metaspace]
    else:
        metaspace = _describe_metaspace("never", split=False)
        # SentencePiece removes spaces at the end of a text, and all but one of several spaces.
        for pattern in (r"[ ▁]+\z", "(?<= ) +"):
            normalizers.append({"type": "Replace", "pattern": {"Regex": pattern}, "content": ""})
        # It also drops a space at the start of a text. The library splits the text at [MASK] first and normalises each
        # part, so a normaliser would also drop the space after a mask. Only Metaspace with the scheme "first" knows
        # which part starts the text: it prepends its `replacement`, here _START, to that part. (It also replaces
        # spaces, but all of them are "▁" already.) Then Split removes _START, with a "▁" after it. (If normalisation
        # leaves a literal "▁" in text, one at the very start is dropped too.)
        first = _describe_metaspace("first", split=False, replacement=_START)
        mark = {"type": "Split", "pattern": {"Regex": rf"\A{_START}▁?"}, "behavior": "Removed", "invert": False}
        pretokenizers = [metaspace, first, mark]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [tokenizer_json.describe_special(i, pieces[i]) for i in special_ids],
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pretokenizers},
        "post_processor": tokenizer_json.describe_template(pieces, tokenizer.cls_id, tokenizer.sep_id),
        "decoder": metaspace,  # as a decoder it turns "▁" back into spaces
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.unk_id,
            "vocab": [[piece, float(score)] for piece, score in zip(pieces, settings.scores, strict=True)],
            "byte_fallback": False,
        },
    }


def _describe_metaspace(scheme: str, *, split: bool, replacement: str = "▁") -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": replacement, "prepend_scheme": scheme, "split": split}
