"""WordPiece vocabularies give the ids of the library tokenizers, and go through building, looking and remasking."""

from __future__ import annotations

import pickle
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from build_fixtures import digest_shards, make_documents, run_build, write_corpus
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from wordpiece_fixtures import SPECIALS, encode, encode_alone, load_reference, make_pieces, tokenizers, write_vocab

from albert_data import open_shards
from albert_data.cli.main import cli
from albert_data.errors import OutputError
from albert_data.inspect.choice import RowChoice, choose_rows
from albert_data.inspect.verify import verify
from albert_data.shards.manifest_file import read_manifest
from albert_data.tokenizer import wordpiece
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from albert_data.tokenizer.tokenizer_json import BertRules, make_wordpiece
from albert_data.tokenizer.words import find_word_starts

# What BERT's rules treat in a way of its own: spaces, control characters, marks, ideographs, capitals that become two
# characters, punctuation of all kinds, and characters beyond the basic plane.
ODD = (
    "\t\n\r\u00a0\u2028\u3000\ufeff\u200b\u0000\ufffd\u0301\u0323\u0345\u3099İßſKÅΣςǅﬁ́"
    "中﨑豈𠀀𫠠😀“”¿·;!$^`|~_-##[]ー가각각が"
)
ADDED = [*"AÉÅ\u0301", "##\u0301", "가"]
TEXT = st.text(st.one_of(st.sampled_from(ODD + " aAbé.,'"), st.characters(exclude_categories=["Cs"])), max_size=40)
RULES = [
    {"do_lower_case": True},
    {"do_lower_case": False},
    {"do_lower_case": True, "strip_accents": False},
    {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False},
]


@pytest.fixture(scope="module", params=range(len(RULES)))
def pair(request, tmp_path_factory) -> tuple[Tokenizer, Any]:
    """A tokenizer, and the library's."""
    path = write_vocab(tmp_path_factory.mktemp("vocab"), [*make_pieces(), *ADDED], **RULES[request.param])
    tokenizer = load_tokenizer(path)
    return tokenizer, load_reference(tokenizer)


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Tokenizer:
    return load_tokenizer(write_vocab(tmp_path_factory.mktemp("bert")))


@given(st.lists(TEXT, max_size=5))
def test_the_ids_are_those_of_the_library(pair, texts):
    tokenizer, reference = pair
    assert encode(tokenizer, texts) == encode_alone(reference, texts)


def test_every_character_between_any_neighbours_gives_the_ids_of_the_library(pair):
    tokenizer, reference = pair
    codes = [code for code in range(1, 0x11000) if not 0xD800 <= code < 0xE000]
    random.Random(0).shuffle(codes)
    texts = [" ".join(f"a{chr(code)}A{chr(code)}é" for code in codes[at : at + 64]) for at in range(0, 8192, 64)]
    assert encode(tokenizer, texts) == encode_alone(reference, texts)


def test_words_and_texts_beyond_the_limits_give_the_ids_of_the_library(pair):
    """Of over 100 characters, unknown words beside each other, of over 16 bytes, and texts of over 32 KB."""
    tokenizer, reference = pair
    texts = ["a" * 100, "a" * 101, "☃ ☃☃ ☃", "walkinglywalkingly", "the, " * 9000, "the" * 11_000, "😀 " * 30, ""]
    assert encode(tokenizer, texts) == encode_alone(reference, texts)


@given(st.randoms(use_true_random=False), st.lists(st.text("abcdéA中,", max_size=12), min_size=1, max_size=8))
def test_random_vocabularies_give_the_ids_of_the_library(rng, texts):
    bodies = {"".join(rng.choices("abcdeé中,", k=rng.randint(1, 4))) for _ in range(40)}
    pieces = [*SPECIALS, *sorted(rng.choice(("", "##")) + body for body in bodies)]
    tokenizer = Tokenizer(make_wordpiece(pieces, BertRules(lowercase=True)), "made")
    assert encode(tokenizer, texts) == encode_alone(load_reference(tokenizer), texts)


def test_a_cut_lies_on_both_sides_of_what_is_always_a_word(bert):
    split = bert._kind._backend.split
    rule = wordpiece.make_cut_rule(split)
    assert rule.ascii_cuts[ord("a") | ord(",") << 8]
    assert rule.ascii_cuts[ord(",") | ord("a") << 8]
    assert not rule.ascii_cuts[ord("a") | ord("1") << 8]
    classes = rule.characters & np.uint64(0xFFFF)
    assert classes[ord("中")] == classes[ord("。")] == classes[ord(",")] != classes[ord("a")]


def test_ideographs_are_all_alone_or_none_is():
    """make_cut_rule tries the ends of each range only."""
    for alone in (True, False):
        bert = tokenizers.normalizers.BertNormalizer(handle_chinese_chars=alone)
        words = tokenizers.pre_tokenizers.BertPreTokenizer()

        def split(text: str, bert: Any = bert, words: Any = words) -> list[str]:
            return [word for word, _ in words.pre_tokenize_str(bert.normalize_str(text))]

        for codes in wordpiece._IDEOGRAPHS:
            found = wordpiece.find_alone(list(codes)[:: 1 if len(codes) < 3000 else 37], split)
            assert (found == alone).all()


def test_a_piece_that_continues_a_word_begins_none_and_an_ideograph_is_a_word(bert):
    (ids,) = encode(bert, ["walkingly, 我们 the"])
    starts = find_word_starts(np.array(ids), bert.word_rule())
    shown = list(zip([bert.pieces[i] for i in ids], starts.tolist(), strict=True))
    assert shown == [*(("walking", True), ("##ly", False), (",", True), ("我", True), ("们", True), ("the", True))]


def test_pieces_that_text_never_gives_are_never_drawn(bert):
    drawn = {bert.pieces[i] for i in bert.ordinary_ids}
    assert drawn.isdisjoint({*SPECIALS, "[unused1]", "##我"})
    assert {"the", "##ing", ",", "我"} <= drawn
    (ids,) = encode(bert, ["the [MASK] [CLS] river"])
    assert not bert.specials.is_special[ids].any()
    assert encode(pickle.loads(pickle.dumps(bert)), ["the [MASK] [CLS] river"]) == [ids]


@pytest.mark.parametrize("text", ["the river, walkingly.", "now", "我们去。看书！", "a 1!"])
def test_decoded_text_reads_as_text(bert, text):
    (ids,) = encode(bert, [text])
    assert bert.decode([bert.cls_id, *ids, bert.sep_id]) == text
    assert "".join(bert.piece_texts[i] for i in ids) == bert.normalise(text)


@pytest.fixture(scope="module")
def built(tmp_path_factory, bert: Tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("built")
    write_corpus(folder / "in", make_documents(60, seed=5), "txt", random.Random(0))
    run_build(folder / "in", folder / "out", bert, max_seq_len=64)
    return folder


def test_a_build_is_verified_shown_as_text_and_records_the_library(built, bert):
    shards = open_shards(built / "out")
    assert list(verify(built / "out")) == []
    assert shards.manifest.tokenizer.file == "tokenizer/tokenizer.json"
    assert shards.manifest.libraries is not None
    assert "tokenizers" in shards.manifest.libraries
    assert (built / "out" / "tokenizer" / "tokenizer.json").read_bytes() == bert.model
    assert shards.tokenizer.pieces == bert.pieces
    assert choose_rows(shards, RowChoice(count=3, text="which "))
    for command in (["inspect", "-n", "2"], ["audit"]):
        result = CliRunner().invoke(cli, [*command, str(built / "out")])
        assert result.exit_code == 0, result.output
        assert not re.search(r"##\w", result.output)


def test_a_rebuild_by_another_kind_leaves_no_old_tokenizer(built, tmp_path, bert, tokenizer):
    for other in (bert, tokenizer, bert):
        run_build(built / "in", tmp_path / "out", other, overwrite=True, max_seq_len=64)
        entry = read_manifest(tmp_path / "out").tokenizer
        named = {one.file for one in (entry, *(entry.added or ()))}
        assert {f"tokenizer/{path.name}" for path in (tmp_path / "out" / "tokenizer").iterdir()} == named
        assert list(verify(tmp_path / "out")) == []
    assert digest_shards(tmp_path / "out") == digest_shards(built / "out")


def test_a_tokenizer_that_the_user_put_there_is_not_replaced(here, bert, tokenizer):
    run_build(here / "corpus.txt", here / "ours", tokenizer)
    for out, named in (("out", "holds tokenizer, but no build"), ("ours", "was not written by a build")):
        mine = here / out / "tokenizer" / "tokenizer.json"
        mine.parent.mkdir(parents=True, exist_ok=True)
        mine.write_text("mine")
        with pytest.raises(OutputError, match=named):
            run_build(here / "corpus.txt", here / out, bert, overwrite=out == "ours")
        assert mine.read_text() == "mine"
