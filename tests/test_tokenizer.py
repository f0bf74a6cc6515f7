"""Ids are SentencePiece's own; special pieces are found or refused; words begin where they should."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st
from made_models import make_model
from refusals import check_refused, refused
from toy_language import train_model

from albert_data.data import DocumentColumns, Text, slice_sentences
from albert_data.errors import TokenizerError
from albert_data.tokenizer.buffers import join_strings
from albert_data.tokenizer.model import MODEL_NAME, Tokenizer, load_tokenizer
from albert_data.tokenizer.sentencepiece.proto import NORMAL, UNIGRAM
from albert_data.tokenizer.words import WordRule, find_word_starts, is_standalone

ODD = "the of<b> walking ,.!?\"'()中国我们天气。，é e\u0301▁😀\u3000\u00a0\u200b\x00\t[MASK]<pad><0x41>ﬁİß9"

sentence_lists = st.lists(
    st.text(st.sampled_from(ODD) | st.characters(exclude_categories=["Cs"]), max_size=40), max_size=8
)


def as_text(sentences: list[str]) -> Text:
    """One document of these sentences."""
    encoded = [sentence.encode() for sentence in sentences]
    ends = np.cumsum([len(sentence) + 1 for sentence in encoded], dtype=np.int64) - 1
    return Text(
        utf8=np.frombuffer(b"".join(sentence + b"\n" for sentence in encoded), np.uint8),
        sentence_begins=ends - np.array([len(sentence) for sentence in encoded], np.int64),
        sentence_ends=ends,
        is_heading=np.zeros(len(ends), bool),
        document_offsets=np.array([0, len(encoded)], np.int64),
        columns=DocumentColumns(np.array([7], np.uint64)),
    )


def rows_of(ids: np.ndarray, offsets: np.ndarray) -> list[list[int]]:
    assert (offsets[0], offsets[-1]) == (0, len(ids))
    return [ids[begin:end].tolist() for begin, end in pairwise(offsets)]


# ---- ids ----


@pytest.mark.parametrize(
    "options", [{}, {"model_type": "char"}, {"vocab_size": 130, "character_coverage": 0.98}, {"byte_fallback": True}]
)
def test_ids_are_sentencepieces_own_one_sentence_at_a_time(options):
    model = train_model(**options)
    tokenizer = Tokenizer(model, "tokenizer x")
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    @given(sentence_lists)
    @example([])
    @example([""])
    @example(["", "the river", "", "\ud7ff\U0010ffff", "e\u0301 \u0301", "\u3000中国", "▁the", "[CLS] <unk>"])
    def ids_are_equal(sentences: list[str]) -> None:
        expected = [processor.encode(sentence, out_type=int) for sentence in sentences]
        for texts in (sentences, tuple(sentences), as_text(sentences)):
            ids, offsets = tokenizer.encode(texts)
            assert (ids.dtype, offsets.dtype) == (np.uint16, np.int64)
            assert rows_of(ids, offsets) == expected

    ids_are_equal()


def test_whole_documents_keep_their_sentences_and_keys(tokenizer, sentences):
    texts = [*sentences[:5], "\u200b", "the", "\x01"]  # two that come out empty
    documents = tokenizer.encode_documents(as_text(texts))
    assert rows_of(documents.ids, documents.sentence_offsets) == rows_of(*tokenizer.encode(texts))
    assert np.diff(documents.sentence_offsets)[5:].tolist() == [0, 1, 0]
    assert documents.document_offsets.tolist() == [0, 8]
    assert documents.document_keys.tolist() == [7]


def test_decoding_gives_the_text_without_special_pieces(tokenizer):
    ids, _ = tokenizer.encode(["The river was long."])
    wrapped = [tokenizer.cls_id, *ids.tolist(), tokenizer.sep_id, tokenizer.mask_id, tokenizer.pad_id]
    assert tokenizer.decode(ids) == tokenizer.decode(wrapped) == "The river was long."
    assert tokenizer.decode(np.zeros(0, np.uint16)) == tokenizer.decode([]) == ""


# ---- special pieces ----


def test_the_special_pieces_have_the_ids_of_the_model(tokenizer):
    expected = {"pad_id": 0, "unk_id": 1, "cls_id": 2, "sep_id": 3, "mask_id": 4}
    assert tokenizer.specials.to_dict() == expected
    assert {name: getattr(tokenizer, name) for name in expected} == expected
    assert np.flatnonzero(tokenizer.specials.is_special).tolist() == [0, 2, 3, 4]
    ids, _ = tokenizer.encode(["[CLS] [SEP] [MASK] <pad> the[MASK]"])
    assert not tokenizer.specials.is_special[ids].any()


def test_ordinary_ids_are_no_special_unknown_or_byte_piece(tokenizer):
    assert tokenizer.ordinary_ids.dtype == np.uint32
    assert tokenizer.ordinary_ids.tolist() == list(range(5, tokenizer.vocab_size))
    with_bytes = Tokenizer(train_model(byte_fallback=True, vocab_size=700), "with bytes")
    ordinary = {with_bytes.pieces[i] for i in with_bytes.ordinary_ids}
    assert len(ordinary) == with_bytes.vocab_size - 256 - 5
    assert ordinary.isdisjoint({"<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "<0x00>", "<0xE4>", "<0xFF>"})


def test_a_padding_piece_is_also_found_by_its_name():
    model = train_model(pad_id=-1, unk_id=0, control_symbols=["[CLS]", "[SEP]", "[MASK]", "[PAD]"])
    specials = Tokenizer(model, "named").specials
    assert (specials.unk_id, specials.pad_id) == (0, 4)
    assert specials.is_special[4]


@refused(
    ({"control_symbols": ["[CLS]", "[SEP]"]}, TokenizerError, "tokenizer x lacks [MASK] or <mask>;"),
    ({"control_symbols": []}, TokenizerError, "lacks [CLS] or <s>, [SEP] or </s>, [MASK] or <mask>;"),
    ({"pad_id": -1, "unk_id": 0}, TokenizerError, "lacks [PAD] or <pad>;"),
)
def test_a_model_without_a_special_piece_is_refused(call, kind, named):
    check_refused(lambda: Tokenizer(train_model(**call), "tokenizer x"), kind, named)


def test_a_damaged_table_of_replacements_is_reported_before_text_is_encoded(tokenizer_model, monkeypatch):
    def fail(*arguments: object) -> None:
        raise ValueError("the table of replacements is damaged")

    tokenizer = Tokenizer(tokenizer_model, "tokenizer x")
    with monkeypatch.context() as patch:
        patch.setattr("albert_data.tokenizer.sentencepiece.kind.make_cut_rule", fail)
        with pytest.raises(TokenizerError, match="tokenizer x is damaged: the table"):
            tokenizer.prepare()
    tokenizer.prepare()


def test_any_sequence_of_strings_is_encoded_alike(tokenizer_model):
    tokenizer, texts = Tokenizer(tokenizer_model, "x"), ["the cat", "", "walks, é", "(the dog)", "中国"] * 60
    expected = [tokenizer.encode([text])[0].tolist() for text in texts]
    for made in (texts, tuple(texts), np.array(texts), deque(texts)):
        ids, offsets = tokenizer.encode(made)
        assert (ids.dtype, offsets.dtype) == (tokenizer.id_dtype, np.int64)
        assert rows_of(ids, offsets) == expected


# ---- files ----


CUT_SHORT = make_model([("the", -1.0, NORMAL)] * 9, model_type=UNIGRAM)[:100]


@refused(
    ({"x.model": b""}, TokenizerError, "x.model is no SentencePiece model; train one"),
    ({"x.model": b"no model"}, TokenizerError, "x.model is no SentencePiece model; train one"),
    ({"x.model": b"\x00" * 100}, TokenizerError, "x.model is no SentencePiece model; train one"),
    ({"x.model": b"\x0a\x03abc"}, TokenizerError, "x.model is no SentencePiece model; train one"),
    ({"x.model": CUT_SHORT}, TokenizerError, "x.model"),
    ({}, TokenizerError, "holds 0 *.model files"),
    ({"a.model": b"", "b.model": b""}, TokenizerError, "holds 2 *.model files & needs exactly one"),
)
def test_a_folder_of_no_model_is_refused(tmp_path, call, kind, named):
    for name, data in call.items():
        (tmp_path / name).write_bytes(data)
    check_refused(lambda: load_tokenizer(tmp_path), kind, named)


def test_a_model_loads_from_its_file_and_its_folder_by_the_usual_name(tmp_path, tokenizer):
    path = tmp_path / "mine.model"
    path.write_bytes(tokenizer.model)
    for name in (path, str(path), tmp_path, str(tmp_path)):
        assert load_tokenizer(name).sha256 == tokenizer.sha256
    (tmp_path / "a.model").write_bytes(b"another")
    (tmp_path / MODEL_NAME).write_bytes(tokenizer.model)
    assert load_tokenizer(tmp_path).sha256 == tokenizer.sha256
    check_refused(lambda: load_tokenizer(tmp_path / "gone"), TokenizerError, "gone can't be read: No such file")


# ---- words ----


BEGINS = "▁the ▁1990"
# Korean sets spaces; and ー lengthens the vowel before it.
INSIDE = "ing The 7 é привет 한국 's .5 <unk>"
ALONE = ", ... ▁( ▁“ ▁-- 。 $ 😀 中 中国 ▁中国 A股 ひらがな カタカナ ー ｶﾀｶﾅ 々 ไทย ខ្មែរ မြန်မာ"


@pytest.mark.parametrize(("pieces", "starts", "standalone"), [(BEGINS, 1, 0), (INSIDE, 0, 0), (ALONE, 1, 1)])
def test_which_words_a_piece_begins_and_ends(pieces, starts, standalone):
    for piece in pieces.split():
        rule = WordRule.from_pieces([piece])
        assert (rule.starts[0], rule.standalone[0] > 0, is_standalone(piece)) == (starts, standalone, standalone), piece


def test_words_of_a_literal_sentence():
    pieces = ["▁walk", "ing", ",", "he", "▁", "“", "sa", "id", "中国", "x", "y", "▁the"]
    starts = find_word_starts(np.arange(len(pieces)), WordRule.from_pieces(pieces))
    words = "".join(("|" if begins else "") + piece for begins, piece in zip(starts, pieces, strict=True))
    assert words == "|▁walking|,|he|▁“|said|中国|xy|▁the"


def test_the_rule_of_the_tokenizer_is_over_its_pieces(tokenizer):
    starts = {piece for piece, begins in zip(tokenizer.pieces, tokenizer.word_rule().starts, strict=True) if begins > 0}
    assert {"▁the", "▁", ",", "。", "学习"} <= starts
    assert starts.isdisjoint({"a", "c", "[MASK]", "<pad>", "<unk>"})


def read(texts: list[str]) -> list[bytes]:
    """The UTF-8 of each string."""
    return slice_sentences(*join_strings(texts))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=20))
def test_strings_are_read_as_they_are_encoded(texts):
    assert read(texts) == [text.encode() for text in texts]


class Name(str):
    """A string of a subclass whose methods lie."""

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return b""

    def __len__(self) -> int:
        return 1


def test_a_string_of_a_subclass_is_read():
    assert read([Name("Ishmael"), Name("é"), Name("a" * 1000)]) == [b"Ishmael", "é".encode(), b"a" * 1000]
    with pytest.raises(UnicodeEncodeError):
        read([Name("half \ud83d")])


@pytest.mark.parametrize("before", [0, 1, 30])
def test_what_has_no_utf8_is_refused(before):
    for wrong in (None, b"bytes", 7, ["a list"], object()):
        with pytest.raises(TypeError, match="for 'str' objects doesn't apply"):
            read(["text"] * before + [wrong, "text"])
    with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
        read(["text"] * before + ["half \ud83d", "text"])
