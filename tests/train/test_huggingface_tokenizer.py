"""An exported tokenizer gives the same ids in transformers, with and without a "▁" before a sentence."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from build_fixtures import run_build
from refusals import check_refused, refused
from toy_language import train_model
from wordpiece_fixtures import write_vocab

from albert_data.errors import OutputError, TokenizerError
from albert_data.inspect.verify import verify
from albert_data.pipeline.build import BuildReport
from albert_data.tokenizer import huggingface as huggingface_tokenizer
from albert_data.tokenizer.model import Tokenizer, load_tokenizer
from albert_data.tokenizer.sentencepiece.proto import read_settings

transformers = pytest.importorskip("transformers")
pytest.importorskip("torch")

TEXTS = [
    "The water of the long river is very little.",
    "we find their PEOPLE, and they call; do they?",
    "naïve Café Ünïcode — émigré",
    "ｆｕｌｌ ｗｉｄｔｈ １２３ ﬁne",
    "今天天气很好，我们去学习语言。",
    "\u3000\u3000今天天气很好 ， 我们去学习。 \u3000",
    "  white\tspace   all  over\u00a0it \u3000 ",
    'numbers 1,234.5 and ("quoted") words',
    "mixed 中文 and English 文字",
    "unknown 🙂 🙂 signs ☃☃ here",
    "don't can't it's",
    "river ▁the ▁ ",
    "\u200bthe",
    " ",
    "",
]
KINDS = {
    "with a prefix": {},
    "uncased": {"normalization_rule_name": "nmt_nfkc_cf"},
    "no prefix": {"add_dummy_prefix": False},
    "no prefix, identity": {"add_dummy_prefix": False, "normalization_rule_name": "identity"},
    "no prefix, uncased": {"add_dummy_prefix": False, "normalization_rule_name": "nmt_nfkc_cf"},
}


@pytest.fixture(scope="module", params=[*KINDS, "WordPiece"])
def tokenizer(request, tmp_path_factory) -> Tokenizer:
    if request.param == "WordPiece":
        return load_tokenizer(write_vocab(tmp_path_factory.mktemp("bert"), do_lower_case=True))
    return Tokenizer(train_model(**KINDS[request.param]), request.param)


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("model")
    for name, content in huggingface_tokenizer.tokenizer_files(tokenizer, max_len=512).items():
        (out / name).write_bytes(content)
    (out / "config.json").write_text(json.dumps({"model_type": "albert"}))
    return out


@pytest.fixture(scope="module")
def theirs(folder):
    return transformers.AutoTokenizer.from_pretrained(folder)


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode([text])[0].tolist()


def test_ids_are_those_of_the_model(theirs, tokenizer, folder, sentences):
    loaded, texts = [theirs], [*TEXTS, *sentences]
    if (folder / "vocab.txt").exists():
        assert (folder / "vocab.txt").read_text(encoding="utf-8").splitlines() == tokenizer.pieces
    elif read_settings(tokenizer.model).add_dummy_prefix:
        loaded.append(transformers.AlbertTokenizer.from_pretrained(folder))
    else:
        texts.append("``two quotes''")  # AlbertTokenizer makes others of them
    for one in loaded:
        assert one(texts, add_special_tokens=False)["input_ids"] == [encode(tokenizer, text) for text in texts]


def test_the_space_after_a_mask_stays(theirs, tokenizer):
    """A mask replaces a word and the space before it, as in the shards; the next word has its own space."""
    the, after = encode(tokenizer, "the"), encode(tokenizer, "the is")
    masked = [*encode(tokenizer, "the long"), tokenizer.mask_id, *after[len(the) :]]
    for text in ("the long [MASK] is", "the long[MASK] is"):
        assert theirs(text, add_special_tokens=False)["input_ids"] == masked
    middle = theirs("今天[MASK]很好", add_special_tokens=False)["input_ids"]
    assert middle == [*encode(tokenizer, "今天"), tokenizer.mask_id, *encode(tokenizer, "很好")]


def test_two_segments_get_their_special_pieces(theirs, tokenizer):
    left, right, cls, sep = encode(tokenizer, "the long"), encode(tokenizer, " river."), 2, 3
    pair = theirs("the long", " river.")
    assert pair["input_ids"] == [cls, *left, sep, *right, sep]
    assert pair["token_type_ids"] == [0] * (len(left) + 2) + [1] * (len(right) + 1)
    for name, value in tokenizer.specials.to_dict().items():
        assert getattr(theirs, f"{name.removesuffix('_id')}_token_id") == value
    assert theirs.model_max_length == 512
    assert theirs.decode(encode(tokenizer, "the long river")) == "the long river"


@refused(
    ({"model_type": "bpe"}, TokenizerError, "not a unigram model"),
    ({"byte_fallback": True, "vocab_size": 700}, TokenizerError, "as bytes"),
    ({"unk_id": 0, "pad_id": 1}, TokenizerError, "id 0, where 1 is needed"),
    ({"remove_extra_whitespaces": False}, TokenizerError, "white space"),
    ({"treat_whitespace_as_suffix": True}, TokenizerError, "a space after each word"),
    ({"split_by_whitespace": False}, TokenizerError, "more than one word & albert-data vocab"),
)
def test_a_tokenizer_that_transformers_would_read_differently_is_refused(call, kind, named):
    tokenizer = Tokenizer(train_model(**call), "a tokenizer")
    check_refused(lambda: huggingface_tokenizer.tokenizer_files(tokenizer, max_len=512), kind, named)


@pytest.mark.parametrize(
    ("piece", "score", "words"),
    [
        ("a\udcff", -1.0, r"piece 7, 'a\udcff', is not valid text"),
        ("a", math.nan, "score of its piece 7, 'a', is nan"),
    ],
)
def test_a_piece_that_json_cannot_hold_is_refused(tokenizer_model, piece, score, words):
    settings, pieces = read_settings(tokenizer_model), Tokenizer(tokenizer_model, "a tokenizer").pieces
    scores = np.array([*settings.scores[:7], score, *settings.scores[8:]])
    one = SimpleNamespace(unk_id=1, pieces=[*pieces[:7], piece, *pieces[8:]])
    assert words in huggingface_tokenizer.explain_unsupported(one, dataclasses.replace(settings, scores=scores))


# ---- the folder of a build ----


def save_byte_level(folder: Path) -> Path:
    tokenizers = pytest.importorskip("tokenizers")
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=alphabet, special_tokens=specials, show_progress=False
    )
    backend.train_from_iterator(TEXTS, trainer)
    backend.save(str(folder / "tokenizer.json"))
    return folder


def save_model(folder: Path, **settings: object) -> Path:
    (folder / "spiece.model").write_bytes(train_model(**settings))
    return folder


GIVEN = {
    "unigram": save_model,
    "unigram with other names": lambda folder: save_model(folder, bos_id=2, eos_id=3, control_symbols=["<mask>"]),
    "unigram without a prefix": lambda folder: save_model(folder, add_dummy_prefix=False),
    "WordPiece": lambda folder: write_vocab(folder, do_lower_case=True),
    "byte-level BPE": save_byte_level,
}


@pytest.mark.parametrize("kind", GIVEN)
def test_transformers_opens_the_tokenizer_of_a_build_with_its_ids_and_special_pieces(kind, sentences, tmp_path):
    (tmp_path / "given").mkdir()
    report = build(tmp_path, GIVEN[kind](tmp_path / "given"))
    folder, tokenizer = tmp_path / "out" / "tokenizer", load_tokenizer(tmp_path / "out" / "tokenizer")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    texts = [text for text in (*TEXTS, *sentences) if kind != "byte-level BPE" or text.strip()]
    assert theirs(texts, add_special_tokens=False)["input_ids"] == [encode(tokenizer, text) for text in texts]
    for name, value in tokenizer.specials.to_dict().items():
        assert getattr(theirs, f"{name.removesuffix('_id')}_token_id") == value
    ids = [tokenizer.cls_id, *encode(tokenizer, "the long"), tokenizer.sep_id]
    assert theirs("the long")["input_ids"] == (ids[1:-1] if kind == "byte-level BPE" else ids), "it has no template"
    assert theirs.model_max_length == 64
    assert len(theirs) == tokenizer.vocab_size
    assert report.manifest.tokenizer.sha256 == tokenizer.sha256


def test_a_build_knows_the_files_that_transformers_needs(tmp_path):
    (tmp_path / "given").mkdir()
    entries = build(tmp_path, save_model(tmp_path / "given")).manifest.tokenizer.added
    assert [entry.file for entry in entries] == ["tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"]
    out = tmp_path / "out"
    assert list(verify(out)) == []
    config = out / entries[1].file
    data = config.read_bytes()
    config.write_bytes(data + b" ")
    assert [fault.file for fault in verify(out)] == [entries[1].file]
    with pytest.raises(OutputError, match=r"tokenizer_config\.json was not written by a build"):
        build(tmp_path, tmp_path / "given", seed=1, overwrite=True)
    config.write_bytes(data)
    (tmp_path / "wordpiece").mkdir()
    build(tmp_path, write_vocab(tmp_path / "wordpiece"), overwrite=True)
    assert sorted(path.name for path in (out / "tokenizer").iterdir()) == ["tokenizer.json", "tokenizer_config.json"]
    assert list(verify(out)) == []


def test_a_model_that_transformers_would_read_differently_lies_alone_in_its_folder(tmp_path):
    (tmp_path / "given").mkdir()
    assert build(tmp_path, save_model(tmp_path / "given", model_type="bpe")).manifest.tokenizer.added is None
    assert [path.name for path in (tmp_path / "out" / "tokenizer").iterdir()] == ["spiece.model"]


def build(folder: Path, path: Path, *, overwrite: bool = False, **settings: int) -> BuildReport:
    (folder / "corpus.txt").write_text("\n".join(TEXTS[:5]), encoding="utf-8")
    settings = {"max_seq_len": 64, "validation_fraction": 0, **settings}
    tokenizer = load_tokenizer(path)
    return run_build(folder / "corpus.txt", folder / "out", tokenizer, pairs="none", overwrite=overwrite, **settings)
