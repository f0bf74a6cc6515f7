"""A literal vocabulary of 20 pieces, and documents made from it: by hypothesis, or from lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import references
from hypothesis import strategies as st

from albert_data.config import ExampleConfig
from albert_data.data import DocumentColumns, Documents, Pairs, Specials
from albert_data.examples.masks import mask_pairs
from albert_data.tokenizer.lexicon import match_words
from albert_data.tokenizer.words import WordRule

PIECES = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "▁the", "▁cat", "▁walk", "▁dog", "▁"]
PIECES += ["ing", "s", "ed", "er", "é", ",", ".", "▁(", "中", "国"]
PAD, UNK, CLS, SEP, MASK = range(5)
FIRST_ORDINARY, VOCAB_SIZE = 5, len(PIECES)

RULE = WordRule.from_pieces(PIECES)
EVERY_PIECE = WordRule.every_piece(VOCAB_SIZE)
# 中国 is the only word of the list, so all divisions are equally likely, and that with the longest words is taken.
LISTED_WORDS = replace(RULE, lexicon=match_words(PIECES, {"中国": 1.0}, str))
SPECIALS = Specials(
    pad_id=PAD,
    unk_id=UNK,
    cls_id=CLS,
    sep_id=SEP,
    mask_id=MASK,
    is_special=np.isin(np.arange(VOCAB_SIZE), [PAD, CLS, SEP, MASK]),
)
ORDINARY_IDS = np.arange(FIRST_ORDINARY, VOCAB_SIZE, dtype=np.uint32)

# A document is a list of sentences, a sentence a list of ids. Text may contain unknown pieces and, if the user defined
# symbols, special pieces.
START, INNER, ALONE = st.integers(5, 9), st.integers(10, 14), st.integers(15, 19)
tokens = st.one_of(START, INNER, INNER, ALONE, st.just(UNK), st.sampled_from([PAD, CLS, SEP, MASK]))
long_words = st.builds(lambda first, rest: [first, *rest], START, st.lists(INNER, min_size=8, max_size=30))
sentences = st.one_of(
    st.lists(tokens, max_size=6),
    st.lists(tokens, max_size=60),
    long_words,
    st.lists(START, min_size=1, max_size=4),
    st.lists(st.sampled_from([18, 19]), max_size=20),
)
documents = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.lists(sentences, max_size=9)), max_size=5)

KeyedDocument = tuple[int, list[list[int]]]


def plain_vocabulary(rule: WordRule = RULE) -> references.Vocabulary:
    return references.Vocabulary(
        rule.starts.tolist(),
        rule.standalone.tolist(),
        SPECIALS.is_special.tolist(),
        CLS,
        SEP,
        MASK,
        [] if rule.lexicon is None else [(PIECES.index("中"), PIECES.index("国"))],
    )


def as_documents(
    keyed: list[KeyedDocument], dtype: type = np.uint16, is_heading: Sequence[bool] | None = None
) -> Documents:
    """Make Documents from lists. is_heading: of each sentence of all documents; None means that there is no heading."""
    found = [sentence for _, document in keyed for sentence in document]
    return Documents(
        ids=np.array([token for sentence in found for token in sentence], dtype),
        sentence_offsets=np.cumsum([0, *map(len, found)], dtype=np.int64),
        is_heading=np.array(is_heading or [False] * len(found), bool),
        document_offsets=np.cumsum([0, *(len(document) for _, document in keyed)], dtype=np.int64),
        columns=DocumentColumns(np.array([key for key, _ in keyed], np.uint64)),
    )


def as_pairs(rows: list[tuple[list[int], int, int, int]]) -> Pairs:
    """Make Pairs from rows of (ids, segment_a_len, label, document key)."""
    ids, a_len, labels, keys = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Pairs(
        ids=np.array([token for row in ids for token in row], np.uint16),
        offsets=np.cumsum([0, *map(len, ids)], dtype=np.int64),
        segment_a_len=np.array(a_len, np.int32),
        sop_label=np.array(labels, np.int8),
        indices=np.zeros(len(rows), np.uint32),
        columns=DocumentColumns(np.array(keys, np.uint64)),
    )


def as_lists(values: np.ndarray, offsets: np.ndarray) -> list[list[int]]:
    assert (offsets[0], offsets[-1]) == (0, len(values))
    return [values[begin:end].tolist() for begin, end in pairwise(offsets.tolist())]


def plain_rows(pairs: Pairs) -> list[tuple[list[int], int, int, int, int]]:
    """Return each row as (ids, segment_a_len, label, document key, index)."""
    columns = (pairs.segment_a_len, pairs.sop_label, pairs.document_keys, pairs.indices)
    rows = as_lists(pairs.ids, pairs.offsets)
    return list(zip(rows, *(column.tolist() for column in columns), strict=True))


@dataclass(frozen=True, kw_only=True)
class Masks:
    """The masks of rows: offsets, positions in the row, and the ids that are there now."""

    offsets: np.ndarray
    positions: np.ndarray
    ids: np.ndarray


def draw_masks(pairs: Pairs, rule: WordRule, config: ExampleConfig, pass_index: int = 0) -> Masks:
    """Mask a copy of the rows."""
    rows = replace(pairs, ids=pairs.ids.copy())
    masked = mask_pairs(rows, SPECIALS, rule, ORDINARY_IDS, config, pass_index)
    at = np.repeat(masked.offsets[:-1], np.diff(masked.mask_offsets)) + masked.masked_positions
    assert (masked.masked_ids == pairs.ids[at]).all()
    return Masks(offsets=masked.mask_offsets, positions=masked.masked_positions, ids=masked.input_ids[at])
