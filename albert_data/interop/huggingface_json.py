"""Makes the files that transformers' AutoTokenizer loads, from a tokenizer.json.

In: a Tokenizer that is no SentencePiece model. Out: tokenizer.json, tokenizer_config.json, and vocab.txt for WordPiece.
BERT's WordPiece is loaded as BertTokenizer, any other as PreTrainedTokenizerFast. Whatever template its tokenizer.json
had, a row is `[CLS] A [SEP] B [SEP]`, as in the shards.
"""

from __future__ import annotations

import json
from typing import Any

from albert_data.tokenizer.model import Tokenizer
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
