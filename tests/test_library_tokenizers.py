"""Any other tokenizer.json gives the library's ids: byte-level BPE, Unigram, WordPiece with other rules."""

from __future__ import annotations

import itertools
import json
import random
import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from build_fixtures import digest_shards, run_build, write_corpus
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from toy_language import make_sentences
from unwrapping_reference import is_alpha, is_glued
from wordpiece_fixtures import SPECIALS, encode, tokenizers

from albert_data import open_shards, split_sentences
from albert_data.cli.main import cli
from albert_data.config import TextConfig
from albert_data.corpus.blocks import Block
from albert_data.corpus.damage import Damage
from albert_data.corpus.documents import clean_documents
from albert_data.data import Text, slice_sentences
from albert_data.errors import TokenizerError
from albert_data.inspect.choice import RowChoice, choose_rows
from albert_data.inspect.verify import verify
from albert_data.sentences.text import find_sentences
from albert_data.tokenizer.library import include_spaces
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from albert_data.tokenizer.words import find_word_starts

ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def train_roberta() -> Any:
    """A byte-level BPE with RoBERTa's special pieces."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=None))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, special_tokens=ROBERTA, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(make_sentences(1000, seed=0), trainer)
    backend.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return backend


def train_modernbert() -> Any:
    """A byte-level BPE whose special pieces are added tokens after the model's own, among them pieces of text."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(make_sentences(1000, seed=0), trainer)
    backend.add_tokens(["   "])
    backend.add_special_tokens(SPECIALS)
    backend.add_tokens(["[unused0]"])
    return backend


def train_unigram() -> Any:
    """A Unigram model whose vocabulary holds its special pieces, as XLM-RoBERTa's does."""
    backend = tokenizers.Tokenizer(tokenizers.models.Unigram())
    backend.normalizer = tokenizers.normalizers.NFKC()
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    backend.decoder = tokenizers.decoders.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=300, special_tokens=ROBERTA, unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(make_sentences(1000, seed=0), trainer)
    return backend


def make_whitespace_wordpiece() -> Any:
    """WordPiece that divides text at white space alone, so that a text may hold a special piece as a word."""
    pieces = [*SPECIALS, "the", "river", "##s", "##,", "##."]
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]")
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    backend.decoder = tokenizers.decoders.WordPiece()
    return backend


MAKERS = {
    "roberta": train_roberta,
    "modernbert": train_modernbert,
    "unigram": train_unigram,
    "wordpiece": make_whitespace_wordpiece,
}


@pytest.fixture(scope="module", params=MAKERS)
def pair(request) -> tuple[Tokenizer, Any]:
    """A tokenizer, and the library's."""
    model = MAKERS[request.param]().to_str()
    return Tokenizer(model.encode(), request.param), hide_specials(model)


def hide_specials(model: str) -> Any:
    """The library's tokenizer with names for its special pieces that no text has."""
    values = re.sub(r'"(\[(?:PAD|UNK|CLS|SEP|MASK)\]|</?s>|<(?:pad|unk|mask)>)"', '"\ue000\\1\ue000"', model)
    return tokenizers.Tokenizer.from_str(values)


@pytest.fixture(scope="module")
def roberta() -> Tokenizer:
    return Tokenizer(train_roberta().to_str().encode(), "roberta")


names = st.sampled_from([*SPECIALS, *ROBERTA, " "])


@given(st.lists(st.text(max_size=30) | st.lists(names | st.text(max_size=3)).map("".join), max_size=4))
def test_the_ids_are_those_of_the_library(pair, texts: list[str]):
    tokenizer, backend = pair
    assert encode(tokenizer, texts) == [backend.encode(text, add_special_tokens=False).ids for text in texts]


def test_text_of_several_slices_gives_the_ids_of_the_library(pair, monkeypatch):
    tokenizer, backend = pair
    monkeypatch.setattr("albert_data.tokenizer.library.SLICE_BYTES", 100)
    texts = [*make_sentences(30, seed=2), "", "the " * 50]
    assert encode(tokenizer, texts) == [backend.encode(text, add_special_tokens=False).ids for text in texts]


def test_merges_and_added_tokens_that_spell_special_pieces_are_text():
    merges = ["S E", "SE P", "[ SEP", "[SEP ]", "[SEP] s"]
    pieces = [*SPECIALS, "▁", *"[SEP]sMAK", "SE", "SEP", "[SEP", "[SEP]s"]
    vocab = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab, [tuple(merge.split()) for merge in merges], unk_token="[UNK]")
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    backend.add_tokens(["[MASK]"])
    tokenizer = Tokenizer(backend.to_str().encode(), "t")
    (ids,) = encode(tokenizer, ["[SEP]s [MASK]"])
    assert [tokenizer.pieces[i] for i in ids] == ["▁", "[SEP", "]", "s", "▁", *"[MASK]"]


def test_text_never_gives_a_special_piece(pair):
    tokenizer, _ = pair
    (ids,) = encode(tokenizer, ["the <s> </s> <mask> <pad> [MASK] [CLS] [SEP] [PAD] river"])
    assert not tokenizer.specials.is_special[ids].any()


def test_special_and_unused_pieces_are_never_drawn(pair):
    tokenizer, _ = pair
    drawn = {tokenizer.pieces[i] for i in tokenizer.ordinary_ids}
    assert drawn.isdisjoint({*SPECIALS, *ROBERTA, "[unused0]"})
    assert len(drawn) > 4


def test_words_begin_at_the_marks_of_the_pieces(pair):
    tokenizer, _ = pair
    text = "the rivers, the river."
    (ids,) = encode(tokenizer, [text])
    starts = find_word_starts(np.array(ids), tokenizer.word_rule())
    words: list[str] = []
    for begins, i in zip(starts.tolist(), ids, strict=True):
        if begins:
            words.append("")
        words[-1] += tokenizer.piece_texts[i].strip("▁")
    assert words == re.findall(r"\w+|[,.]", text)


def test_text_is_decoded_and_shown(pair):
    tokenizer, _ = pair
    (ids,) = encode(tokenizer, ["the river"])
    assert tokenizer.decode([tokenizer.cls_id, *ids, tokenizer.sep_id]) == "the river"
    assert tokenizer.normalise("the river").strip("▁") == "the▁river"


def test_bytes_of_a_divided_character_are_shown_by_number(roberta: Tokenizer):
    (ids,) = encode(roberta, ["☃"])
    assert "".join(roberta.piece_texts[i] for i in ids) == "<0xE2><0x98><0x83>"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": {"type": "WordLevel", "vocab": {}}}, "is WordLevel; supported are BPE, Unigram, WordPiece"),
        ({"pre_tokenizer": {"type": "Nonsense"}}, "the library tokenizers can't load tokenizer"),
    ],
)
def test_an_unsupported_kind_is_named(tmp_path: Path, change: dict[str, Any], says: str):
    values = json.loads(train_roberta().to_str()) | change
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(values))
    with pytest.raises(TokenizerError, match=re.escape(says)) as caught:
        load_tokenizer(path)
    assert "\n" not in str(caught.value)


def test_a_model_without_its_unknown_piece_is_refused_before_any_text(tmp_path: Path):
    backend = make_whitespace_wordpiece()
    values = json.loads(backend.to_str())
    added = [{"id": len(values["model"]["vocab"]), "content": "<unk>", "special": True}]
    values["model"]["unk_token"] = "<unk>"
    values["added_tokens"] += [added[0] | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)]
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    with pytest.raises(TokenizerError, match="can't encode a character that it has no piece for"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(("maker", "rule"), [("roberta", "dropout"), ("modernbert", "dropout"), ("unigram", "alpha")])
def test_rules_that_make_ids_random_are_left_out(maker: str, rule: str):
    plain = json.loads(MAKERS[maker]().to_str())
    values = {**plain, "model": {**plain["model"], rule: 0.5}, "truncation": {"max_length": 2, "stride": 0}}
    values["truncation"] |= {"strategy": "LongestFirst", "direction": "Right"}
    tokenizer, texts = Tokenizer(json.dumps(values).encode(), "t"), list(make_sentences(30, seed=2))
    assert encode(tokenizer, texts) == encode(Tokenizer(json.dumps(plain).encode(), "t"), texts)
    assert tokenizer.note == f"t has {rule}, so its ids would be random; a build encodes text without"


def test_other_ids_each_time_are_refused(monkeypatch: pytest.MonkeyPatch):
    numbers = itertools.count()
    monkeypatch.setattr(
        "albert_data.tokenizer.backend.Backend.encode", lambda self, texts: [[next(numbers)] for _ in texts]
    )
    with pytest.raises(TokenizerError, match="^t gives other ids each time; give one without"):
        Tokenizer(train_roberta().to_str().encode(), "t").prepare()


def test_a_tokenizer_without_a_mask_is_refused(tmp_path: Path):
    backend = tokenizers.Tokenizer.from_str(train_roberta().to_str().replace("<mask>", "<no>"))
    backend.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(TokenizerError, match=re.escape("lacks [MASK] or <mask>; ALBERT needs")):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("is_slow", [True, False])
def test_a_build_says_whether_it_is_slow_and_is_verified(tmp_path: Path, is_slow: bool):
    sentences = list(make_sentences(200, seed=5))
    documents = ["\n".join(sentences[at : at + 20]) for at in range(0, 200, 20)]
    write_corpus(tmp_path / "in", documents, "txt", random.Random(0))
    (tmp_path / "tokenizer.json").write_text((split_roberta() if is_slow else train_roberta()).to_str())
    for workers in ("1", "2"):
        command = ["build", str(tmp_path / "in"), "--tokenizer", str(tmp_path), "--workers", workers]
        result = CliRunner().invoke(cli, [*command, "-o", str(tmp_path / workers)])
        assert result.exit_code == 0, result.output
        why = (
            "tokenizer is slow: the library tokenizers itself encodes each sentence, because its pre_tokenizer divides"
        )
        assert (why in " ".join(result.output.split())) == is_slow
    assert digest_shards(tmp_path / "1") == digest_shards(tmp_path / "2")
    assert list(verify(tmp_path / "1")) == []
    assert choose_rows(open_shards(tmp_path / "1"), RowChoice(count=3, text=" the "))
    assert "Ġ" not in CliRunner().invoke(cli, ["inspect", str(tmp_path / "1")]).output


# ---- the space before a sentence ----


def split_roberta() -> Any:
    """Pre-tokenised by a pattern and then by bytes, as for Llama and Qwen."""
    backend = train_roberta()
    pattern = tokenizers.Regex(r" ?\w+| ?[^\s\w]+|\s+")
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(pattern, "isolated"),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return backend


def composed_roberta() -> Any:
    backend = train_roberta()
    backend.normalizer = tokenizers.normalizers.NFC()
    return backend


def prefixed_roberta() -> Any:
    backend = train_roberta()
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    return backend


def stripped_roberta() -> Any:
    backend = train_roberta()
    backend.normalizer = tokenizers.normalizers.Strip()
    return backend


def prepended_roberta() -> Any:
    backend = train_roberta()
    backend.normalizer = tokenizers.normalizers.Prepend(" ")
    return backend


def read(text: str) -> Text:
    config, block = TextConfig(), Block(data=text.encode(), format="txt", path="", start=0)
    return find_sentences(clean_documents(block, config, Damage()), config)


def list_sentences(text: Text) -> list[str]:
    return [part.decode() for part in slice_sentences(text.utf8, text.sentence_begins, text.sentence_ends)]


READS_SPACES = [train_roberta, train_modernbert, split_roberta, composed_roberta]
READS_NONE = [prefixed_roberta, stripped_roberta, prepended_roberta, train_unigram, make_whitespace_wordpiece]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two.\nThree.\n\nFour. Five.", ["One.", " Two.", " Three.", "Four.", " Five."]),
        ("一句。两句。\n三句。", ["一句。", "两句。", "三句。"]),
        ("一句。 “两句。”\n“三句。”\nThree.", ["一句。", " “两句。”", "“三句。”", " Three."]),
        ("2024。\n第三。\n3\n中", ["2024。", "第三。", " 3", " 中"]),
        ("中 a.\nไทย\nไทย", ["中 a.", " ไทย", "ไทย"]),
        ("...\n中\n...", ["...", " 中", " ..."]),
    ],
)
def test_a_sentence_has_the_space_that_stood_before_it(text: str, expected: list[str]):
    assert list_sentences(include_spaces(read(text))) == expected


def is_unspaced(characters: Iterable[str]) -> bool:
    """Whether the first letter, or mark of a script without spaces, is of such a script."""
    for character in characters:
        if is_glued(character):
            return True
        if is_alpha(character):
            return False
    return False


def is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] not in "LN"


def add_spaces_slowly(documents: list[list[list[str]]], lines: list[list[str]]) -> list[str]:
    """The sentences of documents, each a list of lines of sentences, with their spaces. lines: the texts of lines."""
    found = []
    for document, texts in zip(documents, lines, strict=True):
        last = ""
        for line, text in zip(document, texts, strict=True):
            at = 0
            for number, sentence in enumerate(line):
                begin = text.index(sentence, at)
                is_spaced = number > 0 and begin > at
                if number == 0 and last:
                    is_spaced = not (is_unspaced(reversed(last)) and is_unspaced(sentence))
                if number > 0 and begin == at and is_mark(last[-1]) and is_mark(sentence[0]):
                    found[-1] += sentence
                else:
                    found.append(" " * is_spaced + sentence)
                last, at = sentence, begin + len(sentence)
    return found


words = st.sampled_from(
    ["One", "two.", "中文。", "“好。”", "3", "...", "ไทย", "—", "é!", "Mr.", "他", "\u3000", "?", "『"]
)


@given(
    st.lists(st.lists(st.lists(words, min_size=1, max_size=6), min_size=1, max_size=4), min_size=1, max_size=3),
    st.data(),
)
def test_spaces_are_those_of_the_slow_reference(documents: list[list[list[str]]], data: st.DataObject):
    joints = st.sampled_from(["", " ", " "])
    written = [["x" + "".join(word + data.draw(joints) for word in line) for line in lines] for lines in documents]
    lines = [[" ".join(line.split()) for line in document] for document in written]
    sentences = [[split_sentences(line) for line in document] for document in lines]
    text = read("\n\n".join("\n".join(document) for document in written))
    assert list_sentences(include_spaces(text)) == add_spaces_slowly(sentences, lines)


@pytest.mark.parametrize("make", [*READS_SPACES, *READS_NONE])
def test_only_byte_level_bpe_without_a_prefix_reads_the_space_before_a_sentence(make: Callable[[], Any]):
    backend = make()
    backend.encode_special_tokens = True
    tokenizer, text = (
        Tokenizer(backend.to_str().encode(), "tokenizer"),
        read("The river. A long river.\nThe end.\n\nThe sea."),
    )
    sentences = list_sentences(include_spaces(text) if make in READS_SPACES else text)
    expected = [backend.encode(sentence, add_special_tokens=False).ids for sentence in sentences]
    found = tokenizer.encode_documents(text)
    offsets = found.sentence_offsets.tolist()
    assert [found.ids[begin:end].tolist() for begin, end in itertools.pairwise(offsets)] == expected
    alone, _ = tokenizer.encode(text)
    assert (alone.tolist() == found.ids.tolist()) == (make not in READS_SPACES), "encode adds nothing"
    plain = [backend.encode(sentence, add_special_tokens=False).ids for sentence in list_sentences(text)]
    assert encode(tokenizer, list_sentences(text)) == plain


@pytest.mark.parametrize("make", READS_SPACES)
def test_sentences_with_their_spaces_have_the_ids_of_the_whole_line(make: Callable[[], Any]):
    backend = make()
    tokenizer = Tokenizer(backend.to_str().encode(), "tokenizer")
    for at in range(20):
        line = " ".join(make_sentences(10, seed=at))
        assert tokenizer.encode_documents(read(line)).ids.tolist() == backend.encode(line, add_special_tokens=False).ids


parts = [".", "?”", "—", "“I", "One two", "！", "好", "😀", "❤\ufe0f", "...", "3", "é!", "他 ", " ", "’", ")"]


@pytest.mark.parametrize("make", [train_roberta, composed_roberta])
@given(joined=st.lists(st.sampled_from(parts), max_size=12).map("".join))
def test_sentences_without_white_space_between_them_have_the_ids_of_the_whole_line(make, joined: str):
    check_whole(make, " ".join(f"He saw me. “You.”—“I.”{joined}".split()))


@pytest.mark.parametrize("make", [prefixed_roberta, split_roberta])
def test_marks_side_by_side_are_in_one_sentence_whatever_the_rules(make: Callable[[], Any]):
    check_whole(make, "He saw me. “It was my duty.”—“I guess.”(So it was.)—Yes.")


def check_whole(make: Callable[[], Any], line: str) -> None:
    tokenizer, backend = load_pair(make)
    found = tokenizer.encode_documents(read(line))
    assert found.ids.tolist() == backend.encode(line, add_special_tokens=False).ids
    assert found.document_offsets.tolist() == [0, len(found.sentence_offsets) - 1]
    assert len(found.is_heading) == len(found.sentence_offsets) - 1


@cache
def load_pair(make: Callable[[], Any]) -> tuple[Tokenizer, Any]:
    backend = make()
    return Tokenizer(backend.to_str().encode(), "tokenizer"), backend


def test_rows_of_byte_level_pieces_keep_the_space_between_sentences(tmp_path: Path, roberta: Tokenizer):
    sentences = list(make_sentences(200, seed=5))
    documents = [" ".join(sentences[at : at + 20]) for at in range(0, 200, 20)]
    write_corpus(tmp_path / "in", documents, "txt", random.Random(0))
    run_build(tmp_path / "in", tmp_path / "out", roberta)
    for row in open_shards(tmp_path / "out"):
        ids, end = row.original_ids, 1 + row.segment_a_len
        for segment in (ids[1:end], ids[end + 1 : -1]):
            assert any(roberta.decode(segment) in document for document in documents)
