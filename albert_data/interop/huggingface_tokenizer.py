"""Makes the files that transformers' AutoTokenizer loads, from a SentencePiece model.

In: a Tokenizer. Out: spiece.model unchanged, tokenizer.json, tokenizer_config.json (`json_files` makes those
of other tokenizers). tokenizer.json has pieces, scores and normalisation; transformers can derive these from
spiece.model only if protobuf is installed.
A model that puts "▁" before a sentence is loaded as AlbertTokenizer. This class has rules of its own that can't be
changed: two backticks or two apostrophes become a quotation mark, and text after [MASK] begins a new word, with "▁".
A model without this dummy prefix is loaded as PreTrainedTokenizerFast, which takes every rule from tokenizer.json;
AlbertTokenizer splits at spaces and drops them, and would put no "▁" in their place. Apart from those rules and from
ties between segmentations of equal score, the ids are those of the model.
With the normalization albert-v2 transformers lowers case and removes accents, as Google's models have it. It divides no
piece before a comma, and it also removes marks that are not combining characters, as vowels of Indic scripts.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any

from albert_data.errors import TokenizerError
from albert_data.tokenizer.model import MODEL_NAME, Tokenizer
from albert_data.tokenizer.sentencepiece.proto import UNIGRAM, ModelSettings, read_settings
from albert_data.tokenizer.tokenizer_json import (
    CONFIG_NAME,
    JSON_NAME,
    VOCAB_NAME,
    describe_config,
    describe_special,
    describe_template,
    dump,
    is_wordpiece,
    read_rules,
)

# ---- makes the files that transformers' AutoTokenizer loads, from a tokenizer.json ----
#
# In: a Tokenizer that is no SentencePiece model. Out: tokenizer.json, tokenizer_config.json, and vocab.txt for
# WordPiece. BERT's WordPiece is loaded as BertTokenizer, any other as PreTrainedTokenizerFast. Whatever template its
# tokenizer.json had, a row is `[CLS] A [SEP] B [SEP]`, as in the shards.


def json_files(tokenizer: Tokenizer, *, max_len: int) -> dict[str, bytes]:
    """Return the files by name."""
    values, pieces = json.loads(tokenizer.model), tokenizer.pieces
    cls_id, sep_id = tokenizer.cls_id, tokenizer.sep_id
    values["post_processor"] = describe_template(pieces[cls_id], cls_id, pieces[sep_id], sep_id)
    added = {token["id"]: token for token in values.get("added_tokens") or []}
    specials = {i: describe_special(i, pieces[i]) for i in tokenizer.specials.to_dict().values()}
    values["added_tokens"] = [entry for _, entry in sorted((specials | added).items())]
    names = {f"{role.removesuffix('_id')}_token": pieces[i] for role, i in tokenizer.specials.to_dict().items()}
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_len,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        **names,
    }
    if not is_wordpiece(values):
        return {JSON_NAME: dump(values), CONFIG_NAME: dump(settings)}
    settings |= describe_config(read_rules(values))
    vocab = "".join(f"{piece}\n" for piece in pieces).encode()
    return {JSON_NAME: dump(values), CONFIG_NAME: dump(settings), VOCAB_NAME: vocab}


# ---- huggingface_tokenizer ----

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
    if tokenizer.file_name != MODEL_NAME:
        return json_files(tokenizer, max_len=max_len)
    settings = read_settings(tokenizer.model)
    if reason := explain_unsupported(tokenizer, settings):
        raise TokenizerError(
            f"transformers has no tokenizer that gives the same ids: {reason}; "
            "train a vocabulary with `albert-data vocab`, and a model with it"
        )
    return {
        MODEL_NAME: tokenizer.model,
        "tokenizer.json": dump(_describe_backend(tokenizer, settings)),
        "tokenizer_config.json": dump(_describe_class(tokenizer, settings, max_len)),
    }


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
    scores = [float(score) for score in settings.scores]
    normalizers = list(_ALBERT_V2) if tokenizer.normalization == "albert-v2" else []
    normalizers += [_describe_charsmap(settings)] if settings.charsmap else []
    if settings.add_dummy_prefix:
        metaspace = _describe_metaspace("always", split=True)
        pretokenizers = [{"type": "WhitespaceSplit"}, metaspace]
    else:
        metaspace = _describe_metaspace("never", split=False)
        # SentencePiece removes spaces at the end of a text, and all but one of several spaces.
        normalizers += [_describe_replacement(r"[ ▁]+\z", ""), _describe_replacement("(?<= ) +", "")]
        pretokenizers = [metaspace, *_drop_first_space()]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [describe_special(i, tokenizer.pieces[i]) for i in _special_ids(tokenizer)],
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pretokenizers},
        "post_processor": describe_template("[CLS]", tokenizer.cls_id, "[SEP]", tokenizer.sep_id),
        "decoder": metaspace,  # as a decoder it turns "▁" back into spaces
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.unk_id,
            "vocab": [list(pair) for pair in zip(tokenizer.pieces, scores, strict=True)],
            "byte_fallback": False,
        },
    }


def _describe_charsmap(settings: ModelSettings) -> dict[str, Any]:
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(settings.charsmap).decode("ascii")}


def _describe_metaspace(scheme: str, *, split: bool, replacement: str = "▁") -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": replacement, "prepend_scheme": scheme, "split": split}


def _describe_replacement(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _drop_first_space() -> list[dict[str, Any]]:
    """Return pre-tokenisers that drop a space at the start of a text, and only there.

    The tokenizers library splits the text at [MASK] first and normalises each part, so a normaliser would also drop
    the space after a mask. Only Metaspace with the scheme "first" knows which part starts the text: it prepends its
    `replacement`, here _START, to that part. (It also replaces spaces, but all of them are "▁" already.) Then Split
    removes _START, with a "▁" after it.
    (If normalisation leaves a literal "▁" in text, one at the very start is dropped too.)
    """
    mark = {"type": "Split", "pattern": {"Regex": rf"\A{_START}▁?"}, "behavior": "Removed", "invert": False}
    return [_describe_metaspace("first", split=False, replacement=_START), mark]


def _special_ids(tokenizer: Tokenizer) -> list[int]:
    return sorted(tokenizer.specials.to_dict().values())


def _describe_class(tokenizer: Tokenizer, settings: ModelSettings, max_len: int) -> dict[str, Any]:
    """Return tokenizer_config.json. Without a normalization, case and accents are left to the model's own.

    do_lower_case, keep_accents, remove_space (only in transformers 4) and add_prefix_space are options of
    AlbertTokenizer, which PreTrainedTokenizerFast ignores.
    """
    specials = tokenizer.specials.to_dict()
    names = {f"{name.removesuffix('_id')}_token": tokenizer.pieces[i] for name, i in specials.items()}
    return {
        "tokenizer_class": "AlbertTokenizer" if settings.add_dummy_prefix else "PreTrainedTokenizerFast",
        "do_lower_case": tokenizer.normalization == "albert-v2",
        "keep_accents": tokenizer.normalization != "albert-v2",
        "remove_space": True,
        "add_prefix_space": settings.add_dummy_prefix,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_len,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],  # by default without token_type_ids
        **names,
        "bos_token": "[CLS]",
        "eos_token": "[SEP]",
    }
