"""`load_tokenizer`: a Tokenizer of a path or a name."""

from __future__ import annotations

import os
from collections.abc import Mapping

from albert_data.errors import ArgumentError
from albert_data.library.arguments import PathName, public
from albert_data.storage import make_path
from albert_data.storage.hub import TOKENIZER_FILES, find_model
from albert_data.tokenizer.lexicon import NO_WORDS
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.model import load_tokenizer as load_file
from albert_data.vocab.folder import check_normalization


@public()
def load_tokenizer(
    tokenizer: PathName | Tokenizer,
    *,
    normalization: str = "none",
    words: PathName = NO_WORDS,
    specials: Mapping[str, str] | None = None,
    to_encode: bool = True,
) -> Tokenizer:
    """Load a tokenizer; one that is loaded is returned as it is.

    tokenizer: the path of a SentencePiece model, tokenizer.json or vocab.txt, or of a folder that holds one; a str that
    is no path may be the name of a model on the Hugging Face Hub.
    normalization: of text before a SentencePiece model: "none", or "albert-v2" for what Google's ALBERT code does.
    words: which characters are a word in scripts without spaces: the path of a word list, "jieba" for that of the
    library, or "none".
    specials: the pieces for pad, unk, cls, sep or mask if they have other names than usual.
    to_encode: prepare it for encoding now; if not, the first encoding does it.
    Raises TokenizerError, also if `vocab` trained it on text of another normalization, and ArgumentError.
    """
    if isinstance(tokenizer, str | os.PathLike):
        path = make_path(find_model(tokenizer, TOKENIZER_FILES))
        check_normalization(path, normalization)
        return load_file(path, normalization=normalization, words=words, specials=specials, to_encode=to_encode)
    if not isinstance(tokenizer, Tokenizer):
        raise ArgumentError(
            f"tokenizer is of the type {type(tokenizer).__name__}; give a path or a Tokenizer; save one of "
            "transformers by save_pretrained('folder'), and give that folder"
        )
    if specials or (normalization, words) != ("none", NO_WORDS):
        raise ArgumentError("tokenizer is loaded; give --normalization, --words and --special to load_tokenizer")
    return tokenizer
