"""The page that continues a ModernBERT is run as it stands, on a model of two layers made here."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from random import Random

import pytest
from test_docs import ROOT, blocks, run_command, run_python

transformers = pytest.importorskip("transformers", reason="the huggingface extra is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="the huggingface extra is not installed")
pytest.importorskip("accelerate", reason="the huggingface extra is not installed")

PAGE = ROOT / "docs" / "guides" / "modernbert.md"
SPECIALS = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
SUBJECTS = {
    "garden": ("The gardener", "roses", "the old greenhouse", "watered", "cut back"),
    "kitchen": ("The cook", "onions", "a heavy pan", "peeled", "fried slowly"),
    "harbour": ("The captain", "ropes", "the northern pier", "untied", "dried"),
}


def write_note(random: Random, subject: tuple[str, ...]) -> str:
    who, what, where, *verbs = subject
    sentences = [
        f"{who} {random.choice(verbs)} {random.choice(('many', 'all', 'a few'))} {what} "
        f"{random.choice(('in', 'near', 'behind'))} {where} on day {random.randrange(1000)}."
        for _ in range(random.randrange(2, 9))
    ]
    return " ".join(sentences)


def write_notes(folder: Path) -> list[str]:
    """Short notes on three topics, each of them in a file. Returns their texts."""
    folder.mkdir()
    random, texts = Random(0), []
    for topic, subject in SUBJECTS.items():
        rows = [(write_note(random, subject), topic) for _ in range(60)]
        with (folder / f"{topic}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "topic"), *rows])
        texts += [text for text, _ in rows]
    return texts


def make_tokenizer(texts: list[str]) -> tokenizers.Tokenizer:
    """With the rules of ModernBERT's."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.normalizer = tokenizers.normalizers.NFC()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, special_tokens=list(SPECIALS), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    ids = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ids)
    return tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `notes`, and `model` as somebody else published it."""
    folder = tmp_path_factory.mktemp("modernbert")
    tokenizer = make_tokenizer(write_notes(folder / "notes"))
    names = {f"{name[1:-1].lower()}_token": name for name in SPECIALS}
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=512, **names)
    theirs.save_pretrained(folder / "model")
    ids = {name: theirs.convert_tokens_to_ids(f"[{name.upper()}]") for name in ("cls", "sep", "pad")}
    config = transformers.ModernBertConfig(
        vocab_size=len(theirs),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=512,
        pad_token_id=ids["pad"],
        **{f"{name}_token_id": ids["cls"] for name in ("cls", "bos")},
        **{f"{name}_token_id": ids["sep"] for name in ("sep", "eos")},
    )
    transformers.set_seed(0)
    transformers.ModernBertForMaskedLM(config).save_pretrained(folder / "model")
    return folder


@pytest.mark.slow
def test_the_page_runs_from_csv_files_to_a_classifier(folder):
    commands = [line for block in blocks("sh", PAGE) for line in block.splitlines()]
    training, classifier = blocks("python", PAGE)
    for command in commands:
        run_command(command, folder)
    before, after = map(
        float, re.search(r"validation loss: ([\d.]+) -> ([\d.]+)", run_python(training, folder)).groups()
    )
    assert after < before - 1
    assert (folder / "streams" / "train" / "index.json").is_file()
    right = re.search(r"right: ([\d.]+)", run_python(classifier, folder))
    assert right
    assert float(right[1]) > 0.9
