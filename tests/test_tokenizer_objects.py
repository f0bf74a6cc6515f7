"""Tokenizers of transformers as an argument of `build`: the ids of the object, or an error."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from refusals import check_refused, refused
from toy_language import make_sentences
from wordpiece_fixtures import SPECIALS, encode, tokenizers, write_vocab

import albert_data
from albert_data import load_tokenizer
from albert_data.errors import ArgumentError, TokenizerError

transformers = pytest.importorskip("transformers", reason="the huggingface extra is not installed")
PAGES = sorted((Path(__file__).parent.parent / "sample_corpus").glob("*.txt"))


def read_lines() -> list[str]:
    """Real text in several languages."""
    return [
        " ".join(line.split()) for page in PAGES for line in page.read_text(encoding="utf-8").split("\n")[:60] if line
    ]


def train_backend(model: Any, trainer: Any, **parts: Any) -> Any:
    made = tokenizers.Tokenizer(model)
    for name, part in parts.items():
        setattr(made, name, part)
    made.train_from_iterator(read_lines(), trainer)
    return made


def make_wordpiece(folder: Path, **settings: Any) -> Any:
    return transformers.BertTokenizer.from_pretrained(str(write_vocab(folder, do_lower_case=True).parent), **settings)


def make_slow(folder: Path) -> Any:
    legacy = pytest.importorskip("transformers.models.bert.tokenization_bert_legacy")
    return legacy.BertTokenizerLegacy(str(write_vocab(folder)), do_lower_case=False)


def make_byte_level(folder: Path) -> Any:
    """Byte-level BPE whose special pieces have names of their own."""
    names = {"bos": "<bos>", "pad": "<nothing>", "unk": "<what>", "cls": "<begin>", "sep": "<end>", "mask": "<hidden>"}
    pieces = tokenizers.trainers.BpeTrainer(
        vocab_size=900,
        special_tokens=list(names.values()),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    rule = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made = train_backend(tokenizers.models.BPE(), pieces, pre_tokenizer=rule, decoder=tokenizers.decoders.ByteLevel())
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, **{f"{role}_token": piece for role, piece in names.items()}
    )


def make_unigram(folder: Path, specials: Sequence[str] = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")) -> Any:
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=4000, special_tokens=list(specials), unk_token=specials[1], show_progress=False
    )
    metaspace = tokenizers.pre_tokenizers.Metaspace()
    made = train_backend(tokenizers.models.Unigram(), trainer, pre_tokenizer=metaspace)
    vocab = [(piece, score) for piece, score in json.loads(made.to_str())["model"]["vocab"]]
    return transformers.AlbertTokenizer(vocab=vocab)


OBJECTS = {"fast": make_wordpiece, "slow": make_slow, "byte-level": make_byte_level, "unigram": make_unigram}


@pytest.mark.parametrize("kind", OBJECTS)
def test_the_ids_are_those_of_the_object(kind, tmp_path):
    made = OBJECTS[kind](tmp_path)
    texts = [*read_lines(), *make_sentences(100, seed=3)]
    assert len(texts) > 150
    made("some text", truncation=True, max_length=3, padding="max_length")  # which its tokenizer.json then has
    loaded = load_tokenizer(made)
    assert encode(loaded, texts) == [made.encode(text, add_special_tokens=False) for text in texts]
    ids = {role: getattr(made, f"{role}_token_id") for role in ("pad", "unk", "cls", "sep", "mask")}
    assert {role: getattr(loaded, f"{role}_id") for role in ids} == ids


def test_a_build_takes_an_object_and_makes_the_bytes_of_its_folder(here):
    made = make_wordpiece(here / "vocab")
    made.save_pretrained("saved")
    built = {}
    for name, tokenizer in {"object": made, "path": "saved"}.items():
        albert_data.build("corpus.txt", name, tokenizer=tokenizer, max_seq_len=32, workers=1, words="none")
        built[name] = {path.name: path.read_bytes() for path in Path(name, "train").iterdir()}
    assert built["object"] == built["path"] != {}
    made("some text", truncation=True, max_length=3, padding="max_length")  # changes no id
    assert albert_data.build("corpus.txt", "object", tokenizer=made, max_seq_len=32).was_finished


def test_an_object_whose_class_has_rules_of_its_own_is_refused(tmp_path):
    class Shouting(transformers.BertTokenizer):
        def encode(self, text: str, **named: Any) -> list[int]:
            return super().encode(text.replace("e", "x"), **named)

    shouting = Shouting.from_pretrained(str(write_vocab(tmp_path).parent))
    named = "Shouting has other ids than its own files give, for example for 'Dr. Smith"
    check_refused(lambda: load_tokenizer(shouting), TokenizerError, named)


def test_tokens_that_were_added_are_found_or_refused(tmp_path):
    text, made = "A zebra in a zoo.", make_wordpiece(tmp_path)
    made.add_tokens(["zebra"])
    assert made.convert_tokens_to_ids("zebra") in made.encode(text)
    assert encode(load_tokenizer(made), [text]) == [made.encode(text, add_special_tokens=False)]
    slow = make_slow(tmp_path)
    slow.add_tokens(["zebra"])
    named = "BertTokenizerLegacy has other ids & for the tokens that were added"
    check_refused(lambda: load_tokenizer(slow), TokenizerError, named)


def test_what_an_object_lacks_is_named_with_its_class(tmp_path):
    made = make_byte_level(tmp_path)
    made.mask_token = None
    with pytest.raises(TokenizerError, match=r"\w+-\w+/tokenizer.json lacks \[MASK\]"):
        load_tokenizer(made)
    assert load_tokenizer(made, specials={"mask": "<hidden>"}).mask_id == 5


def test_an_object_with_two_pieces_for_a_role_or_with_random_ids_is_refused(tmp_path):
    named = "has other ids than its own files give, for example for its pad_token: "
    check_refused(lambda: load_tokenizer(make_unigram(tmp_path, SPECIALS)), TokenizerError, named)
    made = make_byte_level(tmp_path)
    made.backend_tokenizer.model.dropout = 0.01
    named = "gives random ids (dropout); set that to None"
    check_refused(lambda: load_tokenizer(made), TokenizerError, named)


LOADED = "tokenizer is loaded; give --normalization, --words and --special to load"


@refused(
    ({"tokenizer": 7}, ArgumentError, "tokenizer is of the type int; give a path, a Tokenizer"),
    ({"words": "jieba"}, ArgumentError, LOADED),
    ({"special": {"cls": "<s>"}}, ArgumentError, LOADED),
    ({"normalization": "albert-v2"}, ArgumentError, LOADED),
)
def test_what_is_no_tokenizer_or_would_be_ignored_is_refused(here, call, kind, named):
    given = {"tokenizer": albert_data.load_tokenizer("model.model"), **call}
    check_refused(lambda: albert_data.build("corpus.txt", "out", **given), kind, named)
    assert not Path("out").exists()
