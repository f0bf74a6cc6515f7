"""The trainer of the library `tokenizers`, made to depend on the text alone. Imports nothing else, so it starts fast.

It joins the most frequent pair of neighbours, as BPE does, and of equally frequent ones that of the lowest ids. Left to
itself it numbers the forms of characters inside words ("##a") as a hash table yields them, differently each time. Here
they are special pieces, which it numbers in the order in which they are given.
"""

from __future__ import annotations

from typing import Any


def train_wordpiece(sentences: list[bytes], options: dict[str, Any]) -> bytes:
    """The pieces, a line each.

    options: vocab_size; symbols: special pieces, characters and their forms inside words, the first pieces; lowercase:
    of BERT's normaliser; lost: characters that divide words, as they have no piece.
    """
    import tokenizers

    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    normalise = tokenizers.normalizers.BertNormalizer(lowercase=options["lowercase"]).normalize_str
    without = dict.fromkeys(map(ord, options["lost"]), " ")
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=options["vocab_size"],
        min_frequency=2,
        special_tokens=options["symbols"],
        continuing_subword_prefix="##",
        show_progress=False,
    )
    backend.train_from_iterator((normalise(text.decode()).translate(without) for text in sentences), trainer)
    found = backend.get_vocab(with_added_tokens=False)
    return "\n".join(sorted(found, key=found.__getitem__)).encode()
