"""Words are masked whole and counted right, wherever a vocabulary marks them: a plain count of decoded text says so."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from toy_language import ENGLISH, train_model
from wordpiece_fixtures import SPECIALS, tokenizers

import albert_data
from albert_data.errors import TokenizerError
from albert_data.inspect.statistics import measure
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.words import check_marks

PRE, DECODERS, NORMALIZERS = tokenizers.pre_tokenizers, tokenizers.decoders, tokenizers.normalizers


def make_documents(count: int) -> list[str]:
    """Words, commas and stops alone, so that all agree what a word is."""
    rng = random.Random(0)
    clauses = ["".join(" " + word for word in rng.choices(ENGLISH.split(), k=4)).strip() for _ in range(40 * count)]
    sentences = [f"{one.capitalize()}, {other}." for one, other in zip(clauses[::2], clauses[1::2], strict=True)]
    return [" ".join(sentences[at : at + 20]) for at in range(0, len(sentences), 20)]


DOCUMENTS = make_documents(150)


def train(model: str, pre_tokenizer: Any, normalizer: Any = None, decoder: Any = None, **settings: Any) -> bytes:
    unk = {"unk_token": "[UNK]"}
    at_once, later = ({}, unk) if model == "Unigram" else ({**unk, **settings}, settings)
    backend = tokenizers.Tokenizer(getattr(tokenizers.models, model.replace("Bpe", "BPE"))(**at_once))
    for name, part in {"pre_tokenizer": pre_tokenizer, "normalizer": normalizer, "decoder": decoder}.items():
        if part:
            setattr(backend, name, part)
    options = {"vocab_size": 300, "special_tokens": SPECIALS, "show_progress": False, **later}
    if isinstance(pre_tokenizer, PRE.ByteLevel):
        options |= {"vocab_size": 500, "initial_alphabet": PRE.ByteLevel.alphabet()}
    backend.train_from_iterator(
        DOCUMENTS, getattr(tokenizers.trainers, f"{model.replace('BPE', 'Bpe')}Trainer")(**options)
    )
    return bytes(backend.to_str().encode())


def train_pieces(**settings: Any) -> bytes:
    return train_model(sentence_iterator=iter(DOCUMENTS), vocab_size=300, **settings)


MAKERS: dict[str, Callable[[], bytes]] = {
    "sentencepiece": train_pieces,
    "wordpiece": partial(
        train, "WordPiece", PRE.BertPreTokenizer(), NORMALIZERS.BertNormalizer(), DECODERS.WordPiece()
    ),
    "byte-level bpe": partial(train, "Bpe", PRE.ByteLevel(add_prefix_space=False)),
    "unigram": partial(
        train, "Unigram", PRE.Sequence([PRE.Metaspace(), PRE.Punctuation()]), None, DECODERS.Metaspace()
    ),
}


def number_words(tokenizer: Tokenizer, ids: list[int]) -> Iterator[int]:
    """Of each token of text the number of its word; -1 for white space alone."""
    words = re.findall(r"\w+|[,.]", tokenizer.decode(ids))
    of_character, at = [number for number, word in enumerate(words) for _ in word], 0
    for i in ids:
        text = tokenizer.piece_texts[i].replace("▁", "")
        assert "".join(words).startswith(text, at)
        found = set(of_character[at : at + len(text)]) or {-1}
        assert len(found) == 1
        at += len(text)
        yield found.pop()
    assert at == len(of_character)


@pytest.mark.parametrize("name", MAKERS)
def test_spans_of_words_have_the_papers_shares_in_decoded_text(name, tmp_path):
    is_json = "sentencepiece" not in name
    path = tmp_path / ("tokenizer.json" if is_json else "spiece.model")
    path.write_bytes(MAKERS[name]())
    albert_data.build(documents=DOCUMENTS, output=tmp_path / "out", tokenizer=path, max_seq_len=64, short_seq_prob=0)
    shards, spans = albert_data.open_shards(tmp_path / "out"), Counter[int]()
    for row in shards:
        sep, masked = 1 + row.segment_a_len, set(row.masked_positions.tolist())
        assert masked or len(row.input_ids) < 48
        for begin, end in ((1, sep), (sep + 1, len(row.input_ids) - 1)):
            words = dict[int, list[bool]]()
            for at, word in enumerate(number_words(shards.tokenizer, row.original_ids[begin:end].tolist()), begin):
                words.setdefault(word, []).append(at in masked)
            words.pop(-1, None)
            assert all(all(word) or not any(word) for word in words.values()), "no word is masked in part"
            spans += Counter(len(list(run)) for is_masked, run in groupby(words.values(), all) if is_masked)
    total, measured = spans.total(), measure(shards)
    assert measured.span_lens == (spans[1], spans[2], spans[3], 0)
    for number, share in ((1, 6 / 11), (2, 3 / 11), (3, 2 / 11)):
        assert abs(spans[number] / total - share) < 5 * np.sqrt(share * (1 - share) / total)


PIECES = [f"▁{letter}{other}" for letter in "abcdefg" for other in "abcdefg"]


@pytest.mark.parametrize(
    ("pieces", "says"),
    [
        ([*PIECES, "a", "▁", "▁▁", "b▁"], None),
        (
            [*(piece[1:] + "▁" for piece in PIECES), "a"],
            "of 50 pieces 49, such as 'aa▁', have a space elsewhere",
        ),
        ([*PIECES, "a", "b▁", "▁b▁c"], "of 52 pieces 2, such as 'b▁', have a space elsewhere"),
        (["a▁b", "c"], "of 2 pieces 1, such as 'a▁b', have a space elsewhere"),
        (["[PAD]", "<0x20>", "ab", "c", "d", "."], "of 3 pieces 3, such as 'ab', have a space nowhere"),
        (["[PAD]", "中", "国", "。", "a"], None),
        ([" \n", "\n▁▁", "▁▁\n", *PIECES], None),
    ],
)
def test_marks_that_contradict_each_other_are_refused(pieces, says):
    if says is None:
        check_marks(pieces, "tokenizer t")
        return
    with pytest.raises(TokenizerError, match=f"^tokenizer t: its pieces do not show where words begin: {says}; mask"):
        check_marks(pieces, "tokenizer t")


def test_a_build_refuses_them_unless_single_pieces_are_masked(tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(train("Bpe", None, NORMALIZERS.Replace(" ", "▁")))
    build = partial(albert_data.build, documents=DOCUMENTS[:9], output=tmp_path / "out", tokenizer=tmp_path)
    with pytest.raises(TokenizerError, match="mask single pieces with --pieces"):
        build()
    assert build(whole_word=False).manifest.counts.documents == 9
