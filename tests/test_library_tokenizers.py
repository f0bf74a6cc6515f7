"""Any other tokenizer.json gives the library's ids: byte-level BPE, Unigram, WordPiece with other rules."""

from __future__ import annotations

import itertools
import json
import random
import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
import pytest
from build_fixtures import digest_shards, make_documents, write_corpus
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from refusals import check_refused, refused
from toy_language import make_sentences
from unwrapping_reference import is_alpha, is_glued
from wordpiece_fixtures import SPECIALS, encode, tokenizers

from albert_data import open_shards, split_sentences
from albert_data.clean.documents import clean_documents
from albert_data.cli.main import cli
from albert_data.config import TextConfig
from albert_data.corpus.blocks import Block, Origin
from albert_data.corpus.damage import Damage
from albert_data.data import Text, slice_sentences
from albert_data.errors import TokenizerError
from albert_data.inspect.choice import RowChoice, choose_rows
from albert_data.inspect.verify import verify
from albert_data.sentences.text import find_sentences
from albert_data.tokenizer.library import include_spaces
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from albert_data.tokenizer.words import find_word_starts

normalizers, pre_tokenizers = tokenizers.normalizers, tokenizers.pre_tokenizers
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def train_roberta(**changes: Any) -> Any:
    """A byte-level BPE with RoBERTa's special pieces, and then with other parts."""
    backend = make_byte_level(vocab_size=600, special_tokens=ROBERTA)
    backend.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    for name, part in changes.items():
        setattr(backend, name, part)
    return backend


def train_modernbert() -> Any:
    """A byte-level BPE whose special pieces are added tokens after the model's own, among them pieces of text."""
    backend = make_byte_level(vocab_size=500)
    backend.add_tokens(["   "])
    backend.add_special_tokens(SPECIALS)
    backend.add_tokens(["[unused0]"])
    return backend


def make_byte_level(**settings: Any) -> Any:
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(initial_alphabet=alphabet, show_progress=False, **settings)
    backend.train_from_iterator(make_sentences(1000, seed=0), trainer)
    return backend


def train_unigram() -> Any:
    """A Unigram model whose vocabulary holds its special pieces, as XLM-RoBERTa's does."""
    backend = tokenizers.Tokenizer(tokenizers.models.Unigram())
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = tokenizers.decoders.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=300, special_tokens=ROBERTA, unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(make_sentences(1000, seed=0), trainer)
    return backend


def make_whitespace_wordpiece() -> Any:
    """WordPiece that divides text at white space alone, so that a text may hold a special piece as a word."""
    vocab = {piece: i for i, piece in enumerate([*SPECIALS, "the", "river", "##s", "##,", "##."])}
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = tokenizers.decoders.WordPiece()
    return backend


# Pre-tokenised by a pattern and then by bytes, as for Llama and Qwen.
SPLIT = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Split(tokenizers.Regex(r" ?\w+| ?[^\s\w]+|\s+"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
)
READS_SPACES: dict[str, Callable[[], Any]] = {
    "roberta": train_roberta,
    "modernbert": train_modernbert,
    "split": lambda: train_roberta(pre_tokenizer=SPLIT),
    "composed": lambda: train_roberta(normalizer=normalizers.NFC()),
}
MAKERS = READS_SPACES | {
    "prefixed": lambda: train_roberta(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "stripped": lambda: train_roberta(normalizer=normalizers.Strip()),
    "prepended": lambda: train_roberta(normalizer=normalizers.Prepend(" ")),
    "unigram": train_unigram,
    "wordpiece": make_whitespace_wordpiece,
}


@cache
def load(name: str) -> tuple[Tokenizer, Any]:
    """A tokenizer, and the library's."""
    backend = MAKERS[name]()
    return Tokenizer(backend.to_str().encode(), name), backend


def encode_by_library(backend: Any, texts: Iterable[str]) -> list[list[int]]:
    return [backend.encode(text, add_special_tokens=False).ids for text in texts]


@pytest.fixture(scope="module", params=["roberta", "modernbert", "unigram", "wordpiece"])
def tokenizer(request) -> Tokenizer:
    return load(request.param)[0]


@pytest.fixture(scope="module")
def backend(tokenizer: Tokenizer) -> Any:
    """The library's tokenizer with names for its special pieces that no text has."""
    model = tokenizer.model.decode()
    values = re.sub(r'"(\[(?:PAD|UNK|CLS|SEP|MASK)\]|</?s>|<(?:pad|unk|mask)>)"', '"\ue000\\1\ue000"', model)
    return tokenizers.Tokenizer.from_str(values)


names = st.sampled_from([*SPECIALS, *ROBERTA, " "])


@given(st.lists(st.text(max_size=30) | st.lists(names | st.text(max_size=3)).map("".join), max_size=4))
def test_the_ids_are_those_of_the_library(tokenizer, backend, texts):
    assert encode(tokenizer, texts) == encode_by_library(backend, texts)


def test_text_of_several_slices_gives_the_ids_of_the_library(tokenizer, backend, monkeypatch):
    monkeypatch.setattr("albert_data.tokenizer.library.SLICE_BYTES", 100)
    texts = [*make_sentences(30, seed=2), "", "the " * 50]
    assert encode(tokenizer, texts) == encode_by_library(backend, texts)


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


def test_special_and_unused_pieces_are_never_given_by_text_and_never_drawn(tokenizer):
    (ids,) = encode(tokenizer, ["the <s> </s> <mask> <pad> [MASK] [CLS] [SEP] [PAD] river"])
    assert not tokenizer.specials.is_special[ids].any()
    drawn = {tokenizer.pieces[i] for i in tokenizer.ordinary_ids}
    assert drawn.isdisjoint({*SPECIALS, *ROBERTA, "[unused0]"})
    assert len(drawn) > 4


def test_words_begin_at_the_marks_of_the_pieces(tokenizer):
    text = "the rivers, the river."
    (ids,) = encode(tokenizer, [text])
    starts = find_word_starts(np.array(ids), tokenizer.word_rule())
    words: list[str] = []
    for begins, i in zip(starts.tolist(), ids, strict=True):
        if begins:
            words.append("")
        words[-1] += tokenizer.piece_texts[i].strip("▁")
    assert words == re.findall(r"\w+|[,.]", text)


def test_text_is_decoded_and_shown(tokenizer):
    (ids,) = encode(tokenizer, ["the river"])
    assert tokenizer.decode([tokenizer.cls_id, *ids, tokenizer.sep_id]) == "the river"
    assert tokenizer.normalise("the river").strip("▁") == "the▁river"


def test_bytes_of_a_divided_character_are_shown_by_number():
    (ids,) = encode(roberta := load("roberta")[0], ["☃"])
    assert "".join(roberta.piece_texts[i] for i in ids) == "<0xE2><0x98><0x83>"


NO_UNKNOWN = json.loads(make_whitespace_wordpiece().to_str())
NO_UNKNOWN["model"]["unk_token"] = "<unk>"
NO_UNKNOWN["added_tokens"] += [
    {"id": 10, "content": "<unk>", "special": True}
    | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
]


@refused(
    (lambda text: change(text, model={"type": "WordLevel", "vocab": {}}), TokenizerError, "is WordLevel & BPE, Uni"),
    (lambda text: change(text, pre_tokenizer={"type": "No"}), TokenizerError, "tokenizers can't load tokenizer"),
    (lambda text: text.replace("<mask>", "<no>"), TokenizerError, "lacks [MASK] or <mask> & ALBERT needs"),
    (lambda text: json.dumps(NO_UNKNOWN), TokenizerError, "tokenizers fails on a text with & give another tokenizer"),
)
def test_what_is_not_supported_or_lacks_a_piece_is_refused_before_any_text(tmp_path, call, kind, named):
    (tmp_path / "tokenizer.json").write_text(call(load("roberta")[0].model.decode()))
    check_refused(lambda: load_tokenizer(tmp_path), kind, named)


def change(text: str, **parts: Any) -> str:
    return json.dumps(json.loads(text) | parts)


@pytest.mark.parametrize(("maker", "rule"), [("roberta", "dropout"), ("modernbert", "dropout"), ("unigram", "alpha")])
def test_rules_that_make_ids_random_are_left_out(maker, rule):
    plain, texts = load(maker)[0], list(make_sentences(30, seed=2))
    values = json.loads(plain.model)
    truncation = {"max_length": 2, "stride": 0, "strategy": "LongestFirst", "direction": "Right"}
    values |= {"model": {**values["model"], rule: 0.5}, "truncation": truncation}
    tokenizer = Tokenizer(json.dumps(values).encode(), "t")
    assert encode(tokenizer, texts) == encode(plain, texts)
    assert tokenizer.note == f"t has {rule}, so its ids would be random; a build encodes text without"


def test_a_build_says_whether_it_is_slow_and_keeps_the_space_between_sentences(tmp_path):
    documents = [" ".join(document.split()) for document in make_documents(30, seed=5)]
    write_corpus(tmp_path / "in", documents, "txt", random.Random(0))
    why = "tokenizer is slow: the library tokenizers itself encodes each sentence, because its pre_tokenizer divides"
    for name, workers in (("split", 1), ("split", 2), ("roberta", 2)):
        (tmp_path / "tokenizer.json").write_bytes(load(name)[0].model)
        command = f"build {tmp_path}/in --tokenizer {tmp_path} --workers {workers} -o {tmp_path}/{name}{workers}"
        result = CliRunner().invoke(cli, command.split())
        assert result.exit_code == 0, result.output
        assert (why in " ".join(result.output.split())) == (name == "split")
    assert digest_shards(tmp_path / "split1") == digest_shards(tmp_path / "split2")
    shards = open_shards(tmp_path / "roberta2")
    assert list(verify(tmp_path / "roberta2")) == []
    assert choose_rows(shards, RowChoice(count=3, text=" which "))
    assert "Ġ" not in CliRunner().invoke(cli, ["inspect", str(tmp_path / "roberta2")]).output
    for row in shards:
        ids, end = row.original_ids, 1 + row.segment_a_len
        for segment in (ids[1:end], ids[end + 1 : -1]):
            assert any(shards.tokenizer.decode(segment) in document for document in documents)


# ---- the space before a sentence ----


def read(text: str) -> Text:
    config, block = TextConfig(), Block(text.encode(), Origin("", "txt"))
    return find_sentences(clean_documents(block, config, Damage()), config)


def list_sentences(text: Text) -> list[str]:
    return [part.decode() for part in slice_sentences(text.utf8, text.sentence_begins, text.sentence_ends)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two.\nThree.\n\nFour. Five.", ["One.", " Two.", " Three.", "Four.", " Five."]),
        ("一句。 “两句。”\n“三句。”\nThree.", ["一句。", " “两句。”", "“三句。”", " Three."]),
        ("2024。\n第三。\n3\n中", ["2024。", "第三。", " 3", " 中"]),
    ],
)
def test_a_sentence_has_the_space_that_stood_before_it(text, expected):
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
def test_spaces_are_those_of_the_slow_reference(documents, data):
    joints = st.sampled_from(["", " ", " "])
    written = [["x" + "".join(word + data.draw(joints) for word in line) for line in lines] for lines in documents]
    lines = [[" ".join(line.split()) for line in document] for document in written]
    sentences = [[split_sentences(line) for line in document] for document in lines]
    text = read("\n\n".join("\n".join(document) for document in written))
    assert list_sentences(include_spaces(text)) == add_spaces_slowly(sentences, lines)


@pytest.mark.parametrize("name", MAKERS)
def test_only_byte_level_bpe_without_a_prefix_reads_the_space_before_a_sentence(name):
    tokenizer, backend = load(name)
    text = read("The river. A long river.\nThe end.\n\nThe sea.")
    alone = encode_by_library(backend, list_sentences(text))
    expected = encode_by_library(backend, list_sentences(include_spaces(text))) if name in READS_SPACES else alone
    found = tokenizer.encode_documents(text)
    offsets = found.sentence_offsets.tolist()
    assert [found.ids[begin:end].tolist() for begin, end in itertools.pairwise(offsets)] == expected
    assert (alone == expected) == (name not in READS_SPACES)
    assert encode(tokenizer, list_sentences(text)) == alone, "encode adds nothing"
    assert tokenizer.encode(text)[0].tolist() == sum(alone, [])


def check_whole(name: str, line: str) -> None:
    """The sentences of a line with their spaces have the ids of the whole line."""
    tokenizer, backend = load(name)
    found = tokenizer.encode_documents(read(line))
    assert found.ids.tolist() == backend.encode(line, add_special_tokens=False).ids
    assert found.document_offsets.tolist() == [0, len(found.sentence_offsets) - 1]
    assert len(found.is_heading) == len(found.sentence_offsets) - 1


parts = [".", "?”", "—", "“I", "One two", "！", "好", "😀", "❤\ufe0f", "...", "3", "é!", "他 ", " ", "’", ")"]


@pytest.mark.parametrize("name", READS_SPACES)
@given(joined=st.lists(st.sampled_from(parts), max_size=12).map("".join))
def test_sentences_without_white_space_between_them_have_the_ids_of_the_whole_line(name, joined):
    check_whole(name, " ".join(f"He saw me. “You.”—“I.”{joined}".split()))


@pytest.mark.parametrize("name", ["prefixed", "split"])
def test_marks_side_by_side_are_in_one_sentence_whatever_the_rules(name):
    check_whole(name, "He saw me. “It was my duty.”—“I guess.”(So it was.)—Yes.")
