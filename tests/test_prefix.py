"""Models that put no "▁" before a sentence have SentencePiece's ids by the chunk table too."""

from __future__ import annotations

import re

import pytest
from build_fixtures import run_build
from hypothesis import example, given
from test_chunks import LINES, encode, encode_by_sentencepiece, texts, train

from albert_data.inspect.verify import verify
from albert_data.shards.decoding import decode_segments
from albert_data.shards.reader import open_shards
from albert_data.tokenizer.model import Tokenizer
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE

NO_SPACE = tuple(line.replace(" ", "") for line in LINES if "。" in line)


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_without_a_prefix_a_word_has_other_ids_at_the_start_than_behind_a_space(model_type):
    tokenizer = train(model_type=model_type, add_dummy_prefix=False)
    words = sorted({word for line in LINES for word in line.split()})[:2000]
    texts = [text for word in words for text in (word, f"{word} {word}", f" {word}", f"中{word}", f"中 {word}{word}")]
    assert encode(Tokenizer(tokenizer.model, "fresh"), texts) == encode_by_sentencepiece(tokenizer, texts)
    the, twice = encode(tokenizer, ["the", "the the"])
    assert tokenizer.pieces[twice[-1]] == VISIBLE_SPACE + "the"
    assert twice[: len(the)] == the
    assert not tokenizer.pieces[the[0]].startswith(VISIBLE_SPACE)


@pytest.mark.parametrize("settings", [{}, {"model_type": "bpe"}, {"byte_fallback": True}], ids=["", "bpe", "bytes"])
@given(texts=texts)
@example(texts=["丂 丄", "丂丄 中国 丆", "a b", " ", "x 丂", "▁", "中▁国"])
def test_a_model_without_a_piece_for_the_space(settings, texts):
    """Trained on text without spaces. A space is an unknown character then, and one with those beside it."""
    options = {"hard_vocab_limit": False, "add_dummy_prefix": False, "character_coverage": 1.0}
    tokenizer = train(lines=NO_SPACE, vocab_size=2000, **options, **settings)
    assert VISIBLE_SPACE not in tokenizer.pieces
    assert tokenizer.slow_reason is None
    assert encode(tokenizer, texts) == encode_by_sentencepiece(tokenizer, texts)


def test_a_build_without_a_prefix_reads_as_its_text(tmp_path):
    """No gap before a sentence; sentences stand in the rows as they stand in the text, one behind another."""
    tokenizer = train(add_dummy_prefix=False)
    documents = [NO_SPACE[i : i + 8] for i in range(0, 80, 8)]
    (tmp_path / "in.txt").write_text("\n\n".join("\n".join(document) for document in documents), encoding="utf-8")
    run_build(tmp_path / "in.txt", tmp_path / "out", tokenizer, language="zh", max_seq_len=64)
    assert not list(verify(tmp_path / "out"))
    text = "".join(tokenizer.normalise(line).replace(VISIBLE_SPACE, " ") for line in NO_SPACE)
    for row in open_shards(tmp_path / "out"):
        for _, tokens in decode_segments(row, tokenizer):
            shown = "".join(token.original for token in tokens).replace(VISIBLE_SPACE, " ")
            assert re.search(re.escape(shown).replace("<unk>", ".+"), text)
