"""What the rules make of a few texts and documents, by hashes: the same on every machine and Python.

Another hash here means that the same command makes other shards: raise RULES_VERSION with it. No trained tokenizer has
a part in it, since SentencePiece's training is its own.
"""

from __future__ import annotations

import json
from hashlib import sha256

import numpy as np
import pytest
from toy_documents import ORDINARY_IDS, RULE, SPECIALS, as_documents

from albert_data import split_sentences
from albert_data.config import ExampleConfig
from albert_data.examples.masks import mask_pairs
from albert_data.examples.pairs import make_pairs
from albert_data.tokenizer.words import WordRule

TEXTS = (
    ("en", "CHAPTER I\nMr. Smith paid $3.50 at 5 p.m. “Go!” he said. “No. Never.” She left... ’Tis true. ’Twas night."),
    ("en", "plain words without capitals. more of them, e.g. these. and the last."),
    ("de", "Am 5. Januar kam Dr. Müller. »Wirklich?«, fragte sie. Er ging z. B. nach Hause."),
    ("zh", "今天天气很好。“真的吗？”她问。他说：“好。”然后走了。『嗯！』她点头。"),
    ("ja", "「行こう。」と彼は言った。雨が降っていた！"),
    ("hi", "डॉ. शर्मा आए। उन्होंने कहा कि ठीक है।"),
    ("ar", "وصل د. أحمد اليوم. هل رأيته؟ نعم."),
    ("th", "วันนี้อากาศดี ไปกันเถอะ"),
)
PIECES = ["▁the", "ing", "▁", ",", "，", "中国", "ｶﾀ", "...", "、a", "ไทย", "́", "<0xE4>", "<0xB8>", "é", "が", "ำ"]


def hash_arrays(*arrays: np.ndarray) -> str:
    return sha256(b"".join(array.astype(np.int64).tobytes() for array in arrays)).hexdigest()[:16]


def test_sentences():
    found = [split_sentences(text, language) for language, text in TEXTS]
    assert sha256(json.dumps(found).encode()).hexdigest()[:16] == "e19dd8427bdd8597", found


def test_words():
    rule = WordRule.from_pieces(PIECES)
    assert hash_arrays(rule.starts, rule.standalone) == "ab0d034c7370d075", (rule.starts, rule.standalone)


@pytest.mark.parametrize(
    ("max_seq_len", "pass_index", "expected"),
    [
        (16, 0, "220fb7e9b6b0466b"),
        (128, 0, "ab50932af8a52ca0"),
        (512, 0, "be38523d0c9b1465"),
        (16, 1, "70de20c783f9ae67"),
        (128, 3, "539718704e200bd2"),
    ],
)
def test_pairs_and_masks(max_seq_len, pass_index, expected):
    """Sentences of ordinary pieces, of lengths and ids by a simple generator."""
    keyed, state = [], 1
    for key in range(40):
        document = []
        for _ in range(60):
            state = state * 6364136223846793005 + 1442695040888963407 & 2**64 - 1
            document.append([5 + (state >> 8 + shift) % 15 for shift in range(1 + (state >> 33) % 40)])
        keyed.append((key * 0x9E3779B97F4A7C15 & 2**64 - 1, document))
    config = ExampleConfig(max_seq_len=max_seq_len)
    pairs = make_pairs(as_documents(keyed), SPECIALS, RULE, config, pass_index)
    rows = mask_pairs(pairs, SPECIALS, RULE, ORDINARY_IDS, config, pass_index)
    columns = (rows.input_ids, rows.offsets, rows.segment_a_len, rows.sop_label)
    found = hash_arrays(*columns, rows.masked_positions, rows.masked_ids)
    assert found == expected
