"""WordPiece vocabularies give the ids of the library tokenizers, and go through building, looking and remasking."""

from __future__ import annotations

import json
import pickle
import random
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from build_fixtures import digest_shards, run_build, write_corpus
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from toy_language import make_sentences, train_model
from wordpiece_fixtures import SPECIALS, encode, encode_alone, load_reference, make_pieces, tokenizers, write_vocab

from albert_data import open_shards
from albert_data.cli.main import cli
from albert_data.errors import TokenizerError
from albert_data.inspect.choice import RowChoice, choose_rows
from albert_data.inspect.verify import verify
from albert_data.tokenizer import wordpiece
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from albert_data.tokenizer.tokenizer_json import BertRules, make_wordpiece
from albert_data.tokenizer.words import find_word_starts
from albert_data.train.data.remasking import Remasker

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
def test_the_ids_are_those_of_the_library(pair, texts: list[str]):
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
def test_random_vocabularies_give_the_ids_of_the_library(rng: random.Random, texts: list[str]):
    bodies = {"".join(rng.choices("abcdeé中,", k=rng.randint(1, 4))) for _ in range(40)}
    pieces = [*SPECIALS, *sorted(rng.choice(("", "##")) + body for body in bodies)]
    tokenizer = Tokenizer(make_wordpiece(pieces, BertRules(lowercase=True)), "made")
    assert encode(tokenizer, texts) == encode_alone(load_reference(tokenizer), texts)


def test_text_that_spells_a_special_piece_is_text(bert: Tokenizer):
    (ids,) = encode(bert, ["the [MASK] [CLS] river"])
    assert not bert.specials.is_special[ids].any()


def test_a_cut_lies_on_both_sides_of_what_is_always_a_word(bert: Tokenizer):
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


def test_threads_and_pickles_share_no_state(bert: Tokenizer):
    texts = list(make_sentences(50, seed=4))
    assert encode(pickle.loads(pickle.dumps(bert)), texts) == encode(bert, texts)


def test_case_follows_the_files_beside_the_vocabulary_and_else_its_pieces(tmp_path: Path):
    def lowers(path: Path) -> bool:
        lowercase: bool = json.loads(load_tokenizer(path, to_encode=False).model)["normalizer"]["lowercase"]
        return lowercase

    bare = write_vocab(tmp_path / "bare")
    assert lowers(bare)
    assert "no piece has a capital letter" in str(load_tokenizer(bare, to_encode=False).note)
    cased = write_vocab(tmp_path / "cased", [*make_pieces(), "Paris"])
    assert not lowers(cased)
    assert "a piece has a capital letter, so text keeps its case" in str(load_tokenizer(cased, to_encode=False).note)
    named = write_vocab(tmp_path / "named", do_lower_case=False)
    assert not lowers(named)
    assert load_tokenizer(named, to_encode=False).note is None
    beside = write_vocab(tmp_path / "beside")
    (tmp_path / "beside" / "tokenizer.json").write_bytes(load_tokenizer(named, to_encode=False).model)
    assert not lowers(beside)
    (tmp_path / "beside" / "tokenizer.json").write_text("[]")
    with pytest.raises(TokenizerError, match=r"no tokenizer\.json of the library"):
        load_tokenizer(beside)


def test_rules_beside_the_vocabulary_hold_also_where_case_is_not_named(tmp_path: Path):
    path = write_vocab(tmp_path, strip_accents=False, tokenize_chinese_chars=False)
    tokenizer = load_tokenizer(path, to_encode=False)
    rules = json.loads(tokenizer.model)["normalizer"]
    assert (rules["lowercase"], rules["strip_accents"], rules["handle_chinese_chars"]) == (True, False, False)
    assert "no piece has a capital letter" in str(tokenizer.note)
    with pytest.raises(TokenizerError, match="do_lower_case is 'yes'; true or false is needed"):
        load_tokenizer(write_vocab(tmp_path, do_lower_case="yes"))


def test_a_vocabulary_gives_the_same_ids_in_either_file(tmp_path: Path):
    path = write_vocab(tmp_path, do_lower_case=True)
    tokenizer = load_tokenizer(path, to_encode=False)
    (tmp_path / "json").mkdir()
    values = json.loads(tokenizer.model)
    (tmp_path / "json" / "tokenizer.json").write_text(json.dumps(values | {"padding": None, "post_processor": None}))
    texts = list(make_sentences(20, seed=2))
    assert encode(load_tokenizer(tmp_path / "json"), texts) == encode(tokenizer, texts)
    windows = tmp_path / "windows.txt"
    windows.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_tokenizer(windows, to_encode=False).sha256 == tokenizer.sha256


BAD_FILES = {
    "vocab.txt": [
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n", "lacks [MASK]; a vocab.txt of WordPiece needs"),
        (b"[PAD]\n[CLS]\n[SEP]\n[MASK]\nthe\n", "lacks [UNK]; a vocab.txt"),
        (b"<pad>\n<unk>\n<s>\n</s>\n<mask>\nthe\n", "lacks [PAD], [UNK], [CLS], [SEP], [MASK]; a vocab.txt"),
        (b"[PAD]\n[UNK]\nth\xff\n", "is not UTF-8 (line 3)"),
        (b"", "lacks [PAD], [UNK]"),
    ],
    "tokenizer.json": [
        (b'{"model": {"vocab": {"a', "is damaged: Unterminated string"),
        (b'{"a": 1}', "no tokenizer.json of the library tokenizers"),
        (b'{"model": {"type": "WordPiece", "vocab": {"a": 1, "b": 1}}}', "has a damaged vocabulary"),
        (b'{"model": {"type": "WordPiece", "vocab": {"a": "b"}}}', "has a damaged vocabulary"),
        (b'{"model": {"type": "WordPiece", "vocab": {"a": -1}}}', "has a damaged vocabulary: the id -1 of the piece"),
        (b'{"model": {"type": "WordPiece", "vocab": {"a": 9999999999}}}', "is taken, or not one of 0..1,001"),
        (b'{"model": {"type": "WordPiece", "vocab": "ab"}}', "has values of wrong types"),
        (b'{"model": {"vocab": {}}, "added_tokens": [1]}', "has values of wrong types"),
        (b'{"model": {"vocab": {}}, "normalizer": "x"}', "has values of wrong types"),
        (b"[1]", "no tokenizer.json of the library tokenizers"),
        (b"", "is damaged: Expecting value"),
        (b'{"\xff": 1}', "is not UTF-8 (byte 2)"),
    ],
}


@pytest.mark.parametrize(
    ("name", "data", "says"), [(name, *case) for name, cases in BAD_FILES.items() for case in cases]
)
def test_a_bad_file_is_one_line(tmp_path: Path, name: str, data: bytes, says: str):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TokenizerError, match=re.escape(says)) as caught:
        load_tokenizer(tmp_path / name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["WordPiece", "BPE", "vocab.txt"])
def test_ids_without_a_piece_are_kept_and_never_drawn(tmp_path: Path, kind: str):
    """As the vocabularies of ConvBERT and ERNIE have them."""
    names = [*SPECIALS, *("a b c h Ġ" if kind == "BPE" else "ab ##c a ##b [unused7]").split()]
    vocab = {piece: i * 2 for i, piece in enumerate(names)}
    values = json.loads(make_wordpiece(names, BertRules(lowercase=True))) | {"added_tokens": [], "post_processor": None}
    if kind == "vocab.txt":
        (tmp_path / kind).write_text("".join(f"{piece}\n\n" for piece in names) + "ab\n")
        vocab["ab"] = 2 * len(names)
    elif kind == "WordPiece":
        values["model"]["vocab"] = vocab
    else:
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        values["model"] = {"type": "BPE", "vocab": vocab, "merges": [], "unk_token": "[UNK]"}
        values |= {"normalizer": None, "pre_tokenizer": level, "decoder": level}
    if kind != "vocab.txt":
        (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.vocab_size == max(vocab.values()) + 1 == len(set(tokenizer.pieces))
    assert all(tokenizer.pieces[i] == piece for piece, i in vocab.items())
    assert set(tokenizer.ordinary_ids.tolist()) <= set(vocab.values())
    texts, reference = ["abc a h", "c ab ab"], tokenizers.Tokenizer.from_str(tokenizer.model.decode())
    assert encode(tokenizer, texts) == encode_alone(reference, texts)


def test_an_added_token_has_the_id_that_the_library_gives_it(tmp_path: Path):
    """It counts on from the number of pieces, whatever the file says, and so gives one to two of them."""
    values = json.loads(make_wordpiece([*SPECIALS, "a"], BertRules(lowercase=True)))
    values["model"]["vocab"]["a"] = 9
    for number, is_known in ((10, False), (6, True)):
        values["added_tokens"][5:] = [{**values["added_tokens"][0], "id": number, "content": "<more>"}]
        (tmp_path / "tokenizer.json").write_text(json.dumps(values))
        if not is_known:
            with pytest.raises(TokenizerError, match=r"the id 10 of the piece '<more>' is taken, or not one of 6..6"):
                load_tokenizer(tmp_path)
    assert load_tokenizer(tmp_path).pieces[6:] == ["<more>", "[unused7]", "[unused8]", "a"]


def test_the_missing_library_is_named_when_text_is_to_be_encoded(tmp_path: Path, monkeypatch):
    path = write_vocab(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert load_tokenizer(path, to_encode=False).vocab_size == len(make_pieces())
    with pytest.raises(TokenizerError, match=r"pip install 'albert-data\[tokenizers\]'"):
        load_tokenizer(path)


def test_a_normalization_is_for_sentencepiece_models_alone(tmp_path: Path):
    with pytest.raises(TokenizerError, match="--normalization albert-v2 is for SentencePiece models"):
        load_tokenizer(write_vocab(tmp_path), normalization="albert-v2")


def test_a_piece_that_continues_a_word_begins_none_and_an_ideograph_is_a_word(bert: Tokenizer):
    (ids,) = encode(bert, ["walkingly, 我们 the"])
    starts = find_word_starts(np.array(ids), bert.word_rule())
    shown = list(zip([bert.pieces[i] for i in ids], starts.tolist(), strict=True))
    assert shown == [*(("walking", True), ("##ly", False), (",", True), ("我", True), ("们", True), ("the", True))]


def test_pieces_that_text_never_gives_are_never_drawn(bert: Tokenizer):
    drawn = {bert.pieces[i] for i in bert.ordinary_ids}
    assert drawn.isdisjoint({*SPECIALS, "[unused1]", "##我"})
    assert {"the", "##ing", ",", "我"} <= drawn


@pytest.mark.parametrize("text", ["the river, walkingly.", "now", "我们去。看书！", "a 1!"])
def test_decoded_text_reads_as_text(bert: Tokenizer, text: str):
    (ids,) = encode(bert, [text])
    assert bert.decode([bert.cls_id, *ids, bert.sep_id]) == text
    assert "".join(bert.piece_texts[i] for i in ids) == bert.normalise(text)


@pytest.fixture(scope="module")
def built(tmp_path_factory, bert: Tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("built")
    sentences = list(make_sentences(400, seed=5))
    write_corpus(
        folder / "in", ["\n".join(sentences[at : at + 20]) for at in range(0, 400, 20)], "txt", random.Random(0)
    )
    run_build(folder / "in", folder / "out", bert, max_seq_len=64)
    return folder


def test_a_build_is_verified_and_records_the_library(built: Path, bert: Tokenizer):
    shards = open_shards(built / "out")
    assert list(verify(built / "out")) == []
    assert shards.manifest.tokenizer.file == "tokenizer/tokenizer.json"
    assert shards.manifest.libraries is not None
    assert "tokenizers" in shards.manifest.libraries
    assert (built / "out" / "tokenizer" / "tokenizer.json").read_bytes() == bert.model
    assert shards.tokenizer.pieces == bert.pieces


def test_rows_hold_the_sentences_of_the_corpus(built: Path):
    shards = open_shards(built / "out")
    sentences = set(make_sentences(400, seed=5))
    example = shards[0]
    text = shards.tokenizer.decode(example.original_ids)
    assert any(sentence.lower().replace("(", "").split(" (")[0][:12] in text for sentence in sentences)
    assert choose_rows(shards, RowChoice(count=3, text="the "))


def test_only_ordinary_pieces_replace_masked_ones(built: Path, bert: Tokenizer):
    shards = open_shards(built / "out")
    allowed = {*bert.ordinary_ids.tolist(), bert.mask_id}
    for row in range(min(len(shards), 100)):
        example = shards[row]
        shown = example.input_ids[example.masked_positions]
        changed = shown[shown != example.masked_ids]
        assert set(changed.tolist()) <= allowed


def test_remasking_draws_whole_words(built: Path):
    shards = open_shards(built / "out")
    rows = np.arange(min(len(shards), 50))
    examples = shards.rows(rows)
    again = Remasker(shards.manifest, shards.tokenizer, seed=1)(examples, rows, 2)
    assert (again.offsets == examples.offsets).all()
    assert len(again.masked_ids) != 0
    assert not np.array_equal(again.masked_positions, examples.masked_positions)


def test_a_rebuild_by_another_kind_leaves_no_old_tokenizer(built: Path, tmp_path: Path, bert: Tokenizer):
    for tokenizer, own in ((bert, "tokenizer.json"), (Tokenizer(train_model(), "model"), "spiece.model")):
        run_build(built / "in", tmp_path / "out", tokenizer, overwrite=True, max_seq_len=64)
        assert [path.name for path in (tmp_path / "out" / "tokenizer").iterdir()] == [own]
        assert list(verify(tmp_path / "out")) == []
    run_build(built / "in", tmp_path / "out", bert, overwrite=True, max_seq_len=64)
    assert digest_shards(tmp_path / "out") == digest_shards(built / "out")


def test_a_tokenizer_that_the_user_put_there_is_not_replaced(built: Path, tmp_path: Path):
    vocab = write_vocab(tmp_path / "vocab")
    (tmp_path / "out" / "tokenizer").mkdir(parents=True)
    (tmp_path / "out" / "tokenizer" / "tokenizer.json").write_text("mine")
    command = ["build", str(built / "in"), "--tokenizer", str(vocab), "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 1
    assert "holds tokenizer, but no build" in str(result.exception) + result.output
    assert (tmp_path / "out" / "tokenizer" / "tokenizer.json").read_text() == "mine"
    run_build(built / "in", tmp_path / "ours", Tokenizer(train_model(), "model"), max_seq_len=64)
    (tmp_path / "ours" / "tokenizer" / "tokenizer.json").write_text("mine")
    result = CliRunner().invoke(cli, [*command[:-1], str(tmp_path / "ours"), "--overwrite"])
    assert "was not written by a build" in str(result.exception) + result.output
    assert (tmp_path / "ours" / "tokenizer" / "tokenizer.json").read_text() == "mine"


def test_the_commands_show_wordpieces_as_text(built: Path):
    for command in (["inspect", "-n", "2"], ["audit"]):
        result = CliRunner().invoke(cli, [*command, str(built / "out")])
        assert result.exit_code == 0, result.output
        assert not re.search(r"##\w", result.output)
