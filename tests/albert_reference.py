"""The slow, plain way of `--normalization albert-v2`: what Google's ALBERT code does around SentencePiece."""

from __future__ import annotations

import unicodedata

import sentencepiece


def normalise_slowly(text: str) -> str:
    text = " ".join(text.strip().split())
    text = text.replace("``", '"').replace("''", '"')
    text = unicodedata.normalize("NFKD", text)
    return "".join(character for character in text if not unicodedata.combining(character)).lower()


def encode_slowly(processor: sentencepiece.SentencePieceProcessor, text: str) -> list[int]:
    ids = []
    for piece in processor.encode(normalise_slowly(text), out_type=str):
        if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
            parts = processor.encode(piece[:-1].replace("▁", ""), out_type=str)
            if parts and piece[0] != "▁" and parts[0][0] == "▁":
                parts[0] = parts[0][1:]
            ids += [processor.piece_to_id(part) for part in [*filter(None, parts), ","]]
        else:
            ids.append(processor.piece_to_id(piece))
    return ids
