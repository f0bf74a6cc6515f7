"""vocab.txt, the vocabulary of a BERT: a piece on each line.

In: the file, and tokenizer_config.json or tokenizer.json beside it. Out: a tokenizer.json. The file alone does not say
whether text is made lower case. If no file beside it does either, the pieces decide: a vocabulary with a capital letter
was learnt from cased text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from albert_data.errors import TokenizerError
from albert_data.files import read_bytes, read_json
from albert_data.tokenizer.tokenizer_json import (
    JSON_NAME,
    ROLES,
    BertRules,
    is_wordpiece,
    make_wordpiece,
    parse_json,
    read_rules,
)
from albert_data.unicode_tables import category

VOCAB_NAME, CONFIG_NAME = "vocab.txt", "tokenizer_config.json"
_RULES = {  # in tokenizer_config.json, and in BertRules
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}


def read_vocab(path: Path, data: bytes) -> tuple[bytes, str | None]:
    """A tokenizer.json, and what was decided about case for want of a file that says it. Raises TokenizerError."""
    name = f"tokenizer {path}"
    pieces = _split_lines(data, name)
    rules, has_case = _find_rules(path.parent, BertRules(lowercase=not any(map(_is_cased, pieces))))
    note = None
    if not has_case:
        seen, done = ("no", "is made lower case and loses its accents") if rules.lowercase else ("a", "keeps its case")
        note = f"{name}: {seen} piece has a capital letter, so text {done}; do_lower_case in {CONFIG_NAME} decides it"
    return make_wordpiece(pieces, rules), note


def _split_lines(data: bytes, name: str) -> list[str]:
    try:
        pieces = data.decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TokenizerError(f"{name} is not UTF-8 (line {line:,}); a vocabulary has a piece on each line") from error
    if lacking := [names[0] for names in ROLES.values() if names[0] not in pieces]:
        raise TokenizerError(f"{name} lacks {', '.join(lacking)}; a vocab.txt of WordPiece needs a line for each")
    numbers: dict[str, int] = {}
    for number, piece in enumerate(pieces, 1):
        if piece in numbers or not piece:
            what = f"the piece {piece!r} of line {numbers[piece]:,} again" if piece else "no piece"
            raise TokenizerError(
                f"{name} has {what} on line {number:,}; each line needs a piece of its own, as its number is its id"
            )
        numbers[piece] = number
    return pieces


def _find_rules(folder: Path, default: BertRules) -> tuple[BertRules, bool]:
    """The rules that files in the folder give, and whether they say what is done with case.

    tokenizer_config.json has precedence, as in transformers.
    """
    values = _read_beside(folder / JSON_NAME, lambda path: parse_json(read_bytes(path), f"tokenizer {path}"))
    rules = read_rules(values) if values is not None and is_wordpiece(values) else None
    found: dict[str, Any] = {}
    path = folder / CONFIG_NAME
    for name, value in (_read_beside(path, read_json) or {}).items():
        if name not in _RULES:
            continue
        if not (isinstance(value, bool) or value is None):
            raise TokenizerError(f"{path}: {name} is {value!r:.80}; true or false is needed")
        if name == "strip_accents" or value is not None:  # null is the default of strip_accents, and else says nothing
            found[_RULES[name]] = value
    return replace(rules or default, **found), rules is not None or "lowercase" in found


def _read_beside(path: Path, read: Callable[[Path], dict[str, Any]]) -> dict[str, Any] | None:
    try:
        return read(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise TokenizerError(f"{path} can't be read ({why}); it says whether text is made lower case") from error


def _is_cased(piece: str) -> bool:
    """Whether a piece of text has a capital letter. [UNK], [unused1] and <S> are no text."""
    is_special = (piece[0], piece[-1]) in (("[", "]"), ("<", ">"))
    return not is_special and any(category(character) in ("Lu", "Lt") for character in piece)


def describe_config(rules: BertRules) -> dict[str, Any]:
    """tokenizer_config.json, as transformers reads it."""
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": rules.lowercase,
        "strip_accents": rules.strip_accents,
        "tokenize_chinese_chars": rules.handle_chinese_chars,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        **{f"{role}_token": names[0] for role, names in ROLES.items()},
    }
