"""`--normalization albert-v2`: what is trained, built and read agrees, and a build without it is as before."""

from __future__ import annotations

import json
from pathlib import Path

import build_fixtures as fixtures
import numpy as np
import pytest
import sentencepiece
from albert_reference import encode_slowly, normalise_slowly
from build_fixtures import InlineEngine, run_build

from albert_data.cli.main import run as main
from albert_data.config import VocabConfig
from albert_data.corpus.inputs import find_inputs
from albert_data.errors import OutputError
from albert_data.inspect.verify import verify
from albert_data.pipeline.build import build_shards
from albert_data.shards.reader import open_shards
from albert_data.tokenizer.model import Tokenizer

TEXT = "".join(
    f"Die Ärzte zählten {number}, {number + 7} oder {number},000 ``Fälle''. Ein café war 中国.\nDer Fluß ist Groß.\n\n"
    for number in range(60)
)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_a_build_has_the_tokens_of_the_plain_code_and_says_so(corpus, tmp_path, tokenizer_model):
    plain = run_build(corpus, tmp_path / "plain", Tokenizer(tokenizer_model, "model"), sentences="lines").manifest
    tokenizer = Tokenizer(tokenizer_model, "model", "albert-v2")
    manifest = run_build(corpus, tmp_path / "out", tokenizer, sentences="lines").manifest
    assert manifest.tokenizer.normalization == manifest.plan.tokenizer["normalization"] == "albert-v2"
    assert "normalization" not in str(plain.to_values())
    assert manifest.documents_digest == plain.documents_digest
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer_model)
    assert manifest.counts.tokens == sum(len(encode_slowly(processor, line)) for line in TEXT.split("\n"))
    assert manifest.counts.tokens != plain.counts.tokens
    shards = open_shards(tmp_path / "out")
    assert shards.tokenizer.normalization == "albert-v2"
    assert shards.tokenizer.encode(["Ä"])[0].tolist() == encode_slowly(processor, "Ä")
    assert list(verify(tmp_path / "out")) == []
    with pytest.raises(OutputError, match="tokenizer differs"):
        run_build(corpus, tmp_path / "out", Tokenizer(tokenizer_model, "model"), sentences="lines")


def test_a_vocabulary_learns_normalised_text_and_is_used_with_it(corpus, tmp_path, capsys):
    vocab, given = tmp_path / "vocab", ["--normalization", "albert-v2", "--workers", "1"]
    assert main(["vocab", str(corpus), "--vocab-size", "150", *given, "-o", str(vocab)]) == 0
    assert json.loads((vocab / "vocab.json").read_text())["normalization"] == "albert-v2"
    learnt = "".join((vocab / "pieces.txt").read_text(encoding="utf-8").split("\n")[5:])
    assert set(normalise_slowly(TEXT)) - {"中", "国", " "} <= set(learnt)
    assert not set("Äßäé") & set(learnt) - set(normalise_slowly(TEXT))
    build = ["build", str(corpus), "--tokenizer", str(vocab), "--workers", "1"]
    assert main([*build, "-o", str(tmp_path / "plain")]) == 1
    message = "was trained on text of --normalization albert-v2; pass that, not none"
    assert message in capsys.readouterr().err
    assert main([*build, "--normalization", "albert-v2", "-o", str(tmp_path / "out")]) == 0
    assert open_shards(tmp_path / "out").tokenizer.normalization == "albert-v2"


def test_a_build_that_trains_its_vocabulary_normalises_text_for_both(corpus, tmp_path):
    vocab, inputs = VocabConfig(vocab_size=150, normalization="albert-v2"), find_inputs([str(corpus)])
    config = fixtures.make_config()
    manifest = build_shards(inputs, tmp_path / "out", None, config, InlineEngine(), vocab=vocab).manifest
    assert manifest.plan.tokenizer["trained"]["normalization"] == "albert-v2"
    tokenizer = open_shards(tmp_path / "out").tokenizer
    assert tokenizer.normalization == "albert-v2"
    unknown = np.count_nonzero(tokenizer.encode(TEXT.split("\n"))[0] == tokenizer.unk_id)
    assert unknown == 0
