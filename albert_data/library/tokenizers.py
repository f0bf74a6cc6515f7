"""`load_tokenizer`: a Tokenizer of a path, a name, or an object of transformers.

A tokenizer that transformers has loaded, fast or slow, is made of the files that it saves of itself. What its class
does beside these files would be lost. So some sentences are encoded by both, and other ids are an error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from albert_data.errors import ArgumentError, TokenizerError
from albert_data.library.arguments import public
from albert_data.storage import make_path
from albert_data.storage.hub import TOKENIZER_FILES, find_model
from albert_data.tokenizer.backend import RANDOM_RULES
from albert_data.tokenizer.lexicon import NO_WORDS
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.model import load_tokenizer as load_file
from albert_data.tokenizer.tokenizer_json import JSON_NAME, ROLES
from albert_data.vocab.folder import check_normalization

# Case, accents, punctuation and scripts, by which rules differ.
_PROBES = (
    'Dr. Smith isn\'t here: 3.5 % of "that" (well, e-mail me_2@x.org)...',
    "``Quoted'' text, na\u00efve \u00dcBERGR\u00d6SSE, \u0130stanbul; \u00c7a va?",
    "\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002\u6771\u4eac\u306b\u884c\u304d\u307e\u3059",
    "\u041f\u0440\u0438\u0432\u0435\u0442! \u0645\u0631\u062d\u0628\u0627 \ud55c\uad6d\uc5b4",
)


@public()
def load_tokenizer(
    tokenizer: Any,
    *,
    normalization: str = "none",
    words: str | os.PathLike[str] = NO_WORDS,
    specials: Mapping[str, str] | None = None,
    to_encode: bool = True,
) -> Tokenizer:
    """Load a tokenizer; one that is loaded is returned as it is.

    tokenizer: the path of a SentencePiece model, tokenizer.json or vocab.txt, or of a folder that holds one; a str that
    is no path may be the name of a model on the Hugging Face Hub. Or an object of transformers.
    normalization: of text before a SentencePiece model: "none", or "albert-v2" for what Google's ALBERT code does.
    words: which characters are a word in scripts without spaces: the path of a word list, "jieba" for that of the
    library, or "none".
    specials: of a tokenizer.json, the pieces for pad, unk, cls, sep or mask if they have other names than usual.
    to_encode: prepare it for encoding now; if not, the first encoding does it.
    Raises TokenizerError, also if `vocab` trained it on text of another normalization, and ArgumentError.
    """
    rules: dict[str, Any] = {"normalization": normalization, "words": words, "specials": specials}
    if isinstance(tokenizer, str | os.PathLike):
        path = make_path(find_model(tokenizer, TOKENIZER_FILES))
        check_normalization(path, normalization)
        return load_file(path, **rules, to_encode=to_encode)
    if not isinstance(tokenizer, Tokenizer):
        return _load_object(tokenizer, **rules)
    if specials or (normalization, words) != ("none", NO_WORDS):
        raise ArgumentError("tokenizer is loaded; give --normalization, --words and --special to load_tokenizer")
    return tokenizer


def _load_object(tokenizer: Any, *, specials: Mapping[str, str] | None = None, **rules: Any) -> Tokenizer:
    """The Tokenizer of an object of transformers.

    Special pieces of unusual names are those that the object names. Raises ArgumentError for another object, and
    TokenizerError for a tokenizer that can't be loaded or whose ids differ.
    """
    kind = type(tokenizer).__name__
    if not hasattr(tokenizer, "save_pretrained"):
        raise ArgumentError(f"tokenizer is of the type {kind}; give a path, a Tokenizer or one of transformers")
    named = {role: str(getattr(tokenizer, f"{role}_token", None) or names[0]) for role, names in ROLES.items()}
    unusual = {role: piece for role, piece in named.items() if piece not in ROLES[role]}
    with TemporaryDirectory(prefix=f"{kind}-") as folder:
        try:
            tokenizer.save_pretrained(folder)
        except Exception as error:  # the class is not ours, and may raise anything
            raise TokenizerError(f"tokenizer of the type {kind} can't be saved: {error}; give its files") from error
        path = Path(folder, JSON_NAME)
        if path.is_file():  # what its last call cut or padded is no part of a tokenizer
            values = {**json.loads(path.read_bytes()), "truncation": None, "padding": None}
            path.write_text(json.dumps(values))
            if found := [rule for rule in RANDOM_RULES if values["model"].get(rule)]:
                raise TokenizerError(f"tokenizer of the type {kind} gives random ids ({found[0]}); set that to None")
        loaded = load_file(path if path.is_file() else folder, specials={**unusual, **(specials or {})}, **rules)
    differing = ["the tokens that were added"] if len(tokenizer) != len(loaded.pieces) else []
    differing += [
        f"its {role}_token"
        for role in ROLES
        if role not in (specials or {})
        and getattr(tokenizer, f"{role}_token_id", None) not in (None, getattr(loaded, f"{role}_id"))
    ]
    differing += [
        repr(text)
        for text in _PROBES
        if loaded.encode([text])[0].tolist() != list(tokenizer.encode(text, add_special_tokens=False))
    ]
    if differing:
        raise TokenizerError(
            f"tokenizer of the type {kind} has other ids than its own files give, for example for {differing[0]}: its "
            "class has rules of its own, or two pieces have one role; give one whose tokenizer.json says it all"
        )
    return loaded
