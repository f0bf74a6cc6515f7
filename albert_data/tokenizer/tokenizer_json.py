"""tokenizer.json, the format of the library `tokenizers`, and vocab.txt, of which one is made.

**tokenizer.json.** In: the bytes of a file. Out: its values, with the vocabulary checked. The library itself reads the
rest.

**vocab.txt** is the vocabulary of a BERT: a piece on each line. In: the file, and the tokenizer_config.json beside it,
which says whether text is made lower case. Out: a tokenizer.json.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from albert_data.data import Specials
from albert_data.errors import TokenizerError
from albert_data.storage import files

JSON_NAME = "tokenizer.json"
VOCAB_NAME, CONFIG_NAME = "vocab.txt", "tokenizer_config.json"
_RULES = {  # in tokenizer_config.json, and in BertRules
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
CONTINUING = "##"  # before a piece that continues a word, in WordPiece vocabularies
# The names of each special piece, the usual one first.
ROLES = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
_HIDDEN = "\uffff"  # no character
_MAX_WORD = 100  # characters; BERT makes a longer word unknown


@dataclass(frozen=True, kw_only=True)
class BertRules:
    """What BERT does to text before it applies its vocabulary. strip_accents: None for where it makes lower case."""

    lowercase: bool
    strip_accents: bool | None = None
    handle_chinese_chars: bool = True
    clean_text: bool = True


def is_json(model: bytes, name: str) -> bool:
    """Whether a model is a JSON object, or ought to be by its name; a SentencePiece model begins with another byte."""
    return model.lstrip()[:1] == b"{" or name.endswith(".json")


def parse_json(data: bytes, name: str) -> dict[str, Any]:
    """Raises TokenizerError if it is no tokenizer.json, or of a kind whose vocabulary can't be used."""
    try:
        values = files.parse_json(data)
    except ValueError as error:
        raise TokenizerError(f"{name} is damaged: {error}; copy it again") from error
    model = values.get("model") if isinstance(values, dict) else None
    if not isinstance(model, dict) or "vocab" not in model:
        raise TokenizerError(f"{name} is no {JSON_NAME} of the library tokenizers: it has no model with a vocab")
    added = values.get("added_tokens") or []
    parts = [values.get(part) or {} for part in ("normalizer", "pre_tokenizer")]
    if (
        not isinstance(model["vocab"], dict | list)
        or not isinstance(added, list)
        or not all(isinstance(part, dict) for part in (*parts, *added))
        or not all(isinstance(token.get("content"), str) for token in added)
    ):
        raise TokenizerError(f"{name} has values of wrong types, so it is damaged; copy it again")
    return dict(values)


def list_pieces(values: Mapping[str, Any], name: str) -> list[str]:
    """The vocabulary by id, added tokens included. Raises TokenizerError unless they are those of the library."""
    vocab = values["model"]["vocab"]
    try:
        own = dict(vocab) if isinstance(vocab, dict) else {piece: i for i, (piece, _) in enumerate(vocab)}
        found = {token["content"]: token["id"] for token in values.get("added_tokens") or []} | own
        pieces = dict[int, str]()
        for piece, i in found.items():  # the library counts on from the number of the model's pieces
            begin, end = (0, len(own)) if piece in own else (len(own), len(found))
            if not isinstance(piece, str) or not isinstance(i, int) or not begin <= i < end or i in pieces:
                allowed = f"{begin:,}..{end - 1:,}, each once"
                raise ValueError(f"the id {i!r:.40} of the piece {piece!r:.80} is taken, or not one of {allowed}")
            pieces[i] = piece
    except (TypeError, KeyError, ValueError) as error:
        raise TokenizerError(f"{name} has a damaged vocabulary, or ids without a piece: {error}") from error
    return [pieces[i] for i in range(len(pieces))]


def rename_pieces(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """A tokenizer.json in which these pieces have other names, and are special where they are added tokens."""
    model = dict(values["model"])
    if isinstance(unk := model.get("unk_token"), str):
        model["unk_token"] = names.get(unk, unk)
    if isinstance(vocab := model["vocab"], dict):
        model["vocab"] = {names.get(piece, piece): i for piece, i in vocab.items()}
    else:
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in vocab]
    added = [
        {**token, "content": names[piece], "special": True} if (piece := token["content"]) in names else token
        for token in values.get("added_tokens") or []
    ]
    return {**values, "model": model, "added_tokens": added}


def hide_specials(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """A tokenizer.json with other names for its special pieces, so that text that spells one is text like any other."""
    hidden = {name: f"{_HIDDEN}{name}" for name in names}
    values = rename_pieces(values, hidden)
    merges = values["model"].get("merges") or []
    parts = (merge.split(" ") if isinstance(merge, str) else merge for merge in merges)
    kept = [merge for merge, two in zip(merges, parts, strict=True) if hidden.keys().isdisjoint([*two, "".join(two)])]
    return {**values, "model": {**values["model"], **({"merges": kept} if merges else {})}}


def find_specials(pieces: Sequence[str], name: str, known: Mapping[str, int] | None = None) -> Specials:
    """Raises TokenizerError if one is missing. known: ids of roles that a model names itself."""
    index = {piece: i for i, piece in enumerate(pieces)}
    found = {role: next((index[piece] for piece in names if piece in index), None) for role, names in ROLES.items()}
    found |= known or {}
    if missing := [" or ".join(ROLES[role]) for role, i in found.items() if i is None]:
        raise TokenizerError(
            f"{name} lacks {', '.join(missing)}; ALBERT needs pieces for padding, unknown text, the beginning of a "
            "row, the end of a segment and a mask: train a model with `albert-data vocab`, or name the pieces, as in "
            "--special cls='<s>'"
        )
    return Specials.from_ids(len(pieces), **{f"{role}_id": i for role, i in found.items() if i is not None})


def name_specials(data: bytes, specials: Mapping[str, str], name: str) -> bytes:
    """A tokenizer.json with the usual names of special pieces for other ones. Ids stay as they are.

    specials: the piece of each role, as {"cls": "<bos>"}. Raises TokenizerError if that can't be.
    """
    values = parse_json(data, name)
    return dump(rename_pieces(values, choose_names(list_pieces(values, name), specials, name)))


def choose_names(listed: Iterable[str], specials: Mapping[str, str], name: str) -> dict[str, str]:
    """The usual name of each piece that has a role. Raises TokenizerError if that can't be."""
    pieces, names = set(listed), dict[str, str]()
    for role, piece in specials.items():
        usual = ROLES.get(role, ("",))[0]
        if not usual:
            raise TokenizerError(f"--special {role}={piece} has no role that exists; they are {', '.join(ROLES)}")
        if piece not in pieces or piece in names:
            why = "is given twice" if piece in names else "is no piece"
            raise TokenizerError(f"{name}: {piece!r} of --special {role} {why}; each role needs a piece of its own")
        if usual in pieces:
            raise TokenizerError(f"{name} has the piece {usual}, so leave out --special {role}")
        names[piece] = usual
    return names


def is_wordpiece(values: Mapping[str, Any]) -> bool:
    """Whether it is BERT's tokenizer: nothing but its normaliser, its pre-tokeniser and WordPiece."""
    model, vocab = values["model"], values["model"]["vocab"]
    added = values.get("added_tokens") or []
    return (
        model.get("type") == "WordPiece"
        and model.get("continuing_subword_prefix", CONTINUING) == CONTINUING
        and model.get("max_input_chars_per_word", _MAX_WORD) == _MAX_WORD
        and model.get("unk_token") in ROLES["unk"][:1]
        and (values.get("normalizer") or {}).get("type") == "BertNormalizer"
        and (values.get("pre_tokenizer") or {}).get("type") == "BertPreTokenizer"
        and all(token.get("special") and token.get("content") in vocab for token in added)
    )


def read_rules(values: Mapping[str, Any]) -> BertRules:
    """The rules of a tokenizer that `is_wordpiece`."""
    normalizer = {"lowercase": True, **values["normalizer"]}
    return BertRules(**{one.name: normalizer[one.name] for one in fields(BertRules) if one.name in normalizer})


def make_wordpiece(pieces: Sequence[str], rules: BertRules) -> bytes:
    """The tokenizer.json of a WordPiece vocabulary."""
    index = {piece: i for i, piece in enumerate(pieces)}
    specials = sorted((index[names[0]], names[0]) for names in ROLES.values() if names[0] in index)
    values = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [describe_special(i, piece) for i, piece in specials],
        "normalizer": {"type": "BertNormalizer", **vars(rules)},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": describe_template(pieces, index["[CLS]"], index["[SEP]"]),
        "decoder": {"type": "WordPiece", "prefix": CONTINUING, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": CONTINUING,
            "max_input_chars_per_word": _MAX_WORD,
            "vocab": index,
        },
    }
    return dump(values)


def dump(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def describe_special(piece_id: int, piece: str) -> dict[str, Any]:
    """A special piece, as an entry of added_tokens."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": piece_id, "content": piece, **flags, "special": True}


def describe_template(pieces: Sequence[str], cls_id: int, sep_id: int) -> dict[str, Any]:
    """The templates [CLS] A [SEP] and [CLS] A [SEP] B [SEP]; B and its [SEP] are of type 1."""
    cls, sep = pieces[cls_id], pieces[sep_id]

    def part(kind: str, name: str, type_id: int) -> dict[str, Any]:
        return {kind: {"id": name, "type_id": type_id}}

    single = [part("SpecialToken", cls, 0), part("Sequence", "A", 0), part("SpecialToken", sep, 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, part("Sequence", "B", 1), part("SpecialToken", sep, 1)],
        "special_tokens": {pieces[i]: {"id": pieces[i], "ids": [i], "tokens": [pieces[i]]} for i in (cls_id, sep_id)},
    }


def read_vocab(path: Path, data: bytes) -> bytes:
    """The tokenizer.json of a vocab.txt. Raises TokenizerError, also where no file says what is done with case."""
    pieces, config = _split_lines(data, f"tokenizer {path}"), path.parent / CONFIG_NAME
    try:
        values = files.read_json(config)
        rules = {ours: values[theirs] for theirs, ours in _RULES.items() if values.get(theirs) is not None}
        if "lowercase" not in rules or not all(isinstance(value, bool) for value in rules.values()):
            raise ValueError(f"do_lower_case is needed there, and {', '.join(_RULES)} are true or false")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise TokenizerError(
            f"tokenizer {path} does not say whether text is made lower case, and {config} does not help ({why}); "
            'add "do_lower_case": true or "do_lower_case": false to the object in it'
        ) from error
    return make_wordpiece(pieces, BertRules(**rules))


def _split_lines(data: bytes, name: str) -> list[str]:
    try:
        pieces = data.decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TokenizerError(f"{name} is not UTF-8 (line {line:,}); a vocabulary has a piece on each line") from error
    if lacking := [names[0] for names in ROLES.values() if names[0] not in pieces]:
        raise TokenizerError(f"{name} lacks {', '.join(lacking)}; a vocab.txt of WordPiece needs a line for each")
    if len({*pieces} - {""}) < len(pieces):
        raise TokenizerError(f"{name} has an empty line, or a piece twice; a vocab.txt has a piece on each line")
    return pieces


def describe_config(rules: BertRules) -> dict[str, Any]:
    """What tokenizer_config.json says of BERT's rules, as transformers reads it."""
    return {"tokenizer_class": "BertTokenizer", **{key: getattr(rules, name) for key, name in _RULES.items()}}


def import_tokenizers(needed_by: str) -> Any:
    """Raises TokenizerError if the library is not installed."""
    try:
        return importlib.import_module("tokenizers")
    except ImportError as error:
        raise TokenizerError(
            f"{needed_by} needs the library tokenizers; install it with: pip install 'albert-data[tokenizers]'"
        ) from error
