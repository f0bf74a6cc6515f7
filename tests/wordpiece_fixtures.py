"""WordPiece vocabularies for tests, and the library's own encoding, to which ours is compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from toy_language import CHINESE, ENGLISH, make_sentences

from albert_data.tokenizer.model import Tokenizer

tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers extra is not installed")

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def make_pieces() -> list[str]:
    """A vocabulary of BERT's form: special and unused pieces, characters, their continuations, words."""
    characters = sorted(set("".join(make_sentences(300, seed=0)).lower()) - {" "})
    letters = [character for character in characters if character.isalnum()]
    words = sorted({word for word in ENGLISH.split() if len(word) > 1})
    endings = ["##ing", "##ly", "##ed", "##s", "##er"]
    pieces = [*SPECIALS, "[unused1]", *characters, *(f"##{letter}" for letter in letters), *words, *endings]
    return list(dict.fromkeys([*pieces, *CHINESE.replace(" ", "")]))


def write_vocab(folder: Path, pieces: Sequence[str] | None = None, **settings: Any) -> Path:
    """Write vocab.txt and tokenizer_config.json, with these settings. Returns the path of the former."""
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces or make_pieces()), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, **settings}))
    return folder / "vocab.txt"


def load_reference(tokenizer: Tokenizer) -> Any:
    """The library's tokenizer of the same vocabulary and rules, made by its own BertWordPieceTokenizer."""
    rules = json.loads(tokenizer.model)["normalizer"]
    reference = tokenizers.BertWordPieceTokenizer(
        vocab={piece: i for i, piece in enumerate(tokenizer.pieces)},
        clean_text=rules["clean_text"],
        handle_chinese_chars=rules["handle_chinese_chars"],
        strip_accents=rules["strip_accents"],
        lowercase=rules["lowercase"],
    )
    reference._tokenizer.encode_special_tokens = True
    return reference


def encode_alone(reference: Any, texts: Sequence[str]) -> list[list[int]]:
    """The library's ids, one text after another."""
    return [reference.encode(text, add_special_tokens=False).ids for text in texts]


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    ids, offsets = tokenizer.encode(texts)
    return [ids[begin:end].tolist() for begin, end in zip(offsets, offsets[1:], strict=False)]
