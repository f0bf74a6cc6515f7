"""A model's guesses: one masked word of each row, the right word, and what the model says, safe for a terminal."""

from __future__ import annotations

import re
import shutil
from types import SimpleNamespace

import build_fixtures as fixtures
import numpy as np
import pytest
import torch
from torch import nn

from albert_data.shards.reader import Shards, open_shards
from albert_data.tokenizer.model import Tokenizer
from albert_data.train.config import AlbertConfig
from albert_data.train.data.batch import Batch
from albert_data.train.model.model import Albert
from albert_data.train.run.guesses import Guesser, Question, _show_gap, choose_questions, make_guesser, to_lines


class KnowsAll(nn.Module):
    """Predicts the right piece with nearly the whole probability, and records the batch."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(20.0))
        self._vocab_size = vocab_size
        self.batches: list[Batch] = []
        self.modes: list[bool] = []

    def forward(self, batch: Batch) -> SimpleNamespace:
        self.batches.append(batch)
        self.modes.append(self.training)
        return SimpleNamespace(
            mlm_logits_NV=self.scale * nn.functional.one_hot(batch.masked_labels_N, self._vocab_size).float()
        )


def show(model: nn.Module, shards: Shards, count: int = 5) -> list[str]:
    return list(to_lines(Guesser(shards, count=count).ask(model)))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Shards:
    folder = tmp_path_factory.mktemp("guesses")
    (folder / "corpus.txt").write_bytes(fixtures.to_txt(fixtures.make_documents(60, seed=8)))
    with fixtures.small_tasks():
        fixtures.run_build(folder / "corpus.txt", folder / "out", tokenizer)
    return open_shards(folder / "out")


def test_a_model_that_knows_all_guesses_every_word(shards: Shards):
    lines = show(KnowsAll(shards.tokenizer.vocab_size), shards)
    answers = [line for line in lines if "right: " in line]
    assert len(answers) == sum(line.count("____") for line in lines) == 5
    for line in answers:
        found = re.match(r' +right: "(.+?)"; guessed: "(.+?)" ([0-9.]+) %', line)
        assert found
        assert found[1] == found[2]
        assert float(found[3]) > 90


def test_one_word_of_each_row_is_masked_and_the_build_masked_it_too(shards: Shards):
    model = KnowsAll(shards.tokenizer.vocab_size)
    show(model, shards, 8)
    [batch] = model.batches
    questions = choose_questions(shards, shards.tokenizer, 8)
    mask_id = shards.tokenizer.mask_id
    rows = {example.original_ids.tobytes(): example for example in shards}
    assert (batch.input_ids_BT == mask_id).sum() == sum(question.end - question.begin for question in questions)
    for ids, question in zip(batch.input_ids_BT.numpy(), questions, strict=True):
        example = rows[question.ids.tobytes()]
        assert set(range(question.begin, question.end)) <= set(example.masked_positions.tolist())
        expected = example.original_ids.copy()
        expected[question.begin : question.end] = mask_id
        np.testing.assert_array_equal(ids[: len(expected)], expected)


@pytest.mark.parametrize("is_training", [True, False])
def test_the_model_stays_in_its_mode_and_predicts_in_evaluation_mode(shards: Shards, is_training: bool):
    model = KnowsAll(shards.tokenizer.vocab_size).train(is_training)
    show(model, shards, 1)
    assert (model.training, model.modes) == (is_training, [False])


def test_equal_weights_give_equal_lines(shards: Shards):
    model = KnowsAll(shards.tokenizer.vocab_size)
    first, second = (show(model, shards) for _ in range(2))
    assert first == second


def test_no_question_gives_no_lines(shards: Shards):
    assert show(KnowsAll(shards.tokenizer.vocab_size), shards, 0) == []


def test_the_sentence_has_the_gap_in_place_of_the_word(tokenizer: Tokenizer):
    ids, _ = tokenizer.encode(["people walked to the river"])
    starts = [at for at, i in enumerate(ids) if tokenizer.pieces[i].startswith("\u2581")] + [len(ids)]
    question = Question(
        ids=ids,
        segment_a_len=len(ids),
        begin=starts[1],
        end=starts[2],
        first=0,
        last=len(ids),
        is_cut_left=False,
        is_cut_right=True,
    )
    assert _show_gap(question, tokenizer) == "people ____ to the river ..."


def test_control_characters_of_the_text_do_not_reach_the_terminal(shards: Shards, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: "a\x1b[2Jb\tc\nd")
    answers = Guesser(shards).ask(KnowsAll(shards.tokenizer.vocab_size))
    lines = list(to_lines(answers))
    assert lines
    assert not any("\x1b" in line for line in lines)
    assert any("a\\x1b[2Jb" in line for line in lines)
    assert not any(set("\t\n") & set("".join(answer)) for answer in answers), "they divide the parts in metrics.jsonl"


@pytest.fixture
def model(shards: Shards) -> Albert:
    config = AlbertConfig(
        vocab_size=shards.tokenizer.vocab_size,
        embedding_size=8,
        hidden_size=16,
        num_layers=1,
        num_heads=2,
        ffn_size=32,
        dropout=0.5,
    )
    return Albert(config)


def test_asking_draws_no_random_number(shards: Shards, model: Albert):
    state = torch.get_rng_state()
    assert len(Guesser(shards).ask(model)) == 5
    assert torch.equal(torch.get_rng_state(), state)


def test_asking_a_compiled_model_compiles_nothing(shards: Shards, model: Albert):
    compiled = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        compiled.append(graph)
        return graph

    expected = Guesser(shards).ask(model)
    model.embeddings.compile(backend=backend, dynamic=False)
    assert Guesser(shards).ask(model) == expected
    assert compiled == []
    with torch.no_grad():
        model.embeddings(torch.zeros(2, 64, dtype=torch.int32), torch.zeros(2, 64, dtype=torch.int32))
    assert len(compiled) == 1, "outside of guesses it is compiled as before"


def test_shards_without_a_tokenizer_have_no_guesses_and_that_is_said(shards: Shards, tmp_path):
    shutil.copytree(shards.folder, tmp_path / "out")
    shutil.rmtree(tmp_path / "out/tokenizer")
    said: list[str] = []
    assert make_guesser(open_shards(tmp_path / "out"), said.append) is None
    assert said[0].startswith("no guesses are shown: tokenizer ")
    assert make_guesser(None, said.append) is None
    assert len(said) == 1


def test_damaged_rows_are_not_followed(toys):
    damaged = toys.make_shards(20)
    damaged.examples.masked_positions[3] = 60_000
    said: list[str] = []
    assert make_guesser(damaged, said.append) is None
    assert "row 2: masked_positions[" in said[0]


def test_a_gpu_without_memory_for_guesses_does_not_end_the_training(shards: Shards):
    class Full(KnowsAll):
        def forward(self, batch: Batch) -> SimpleNamespace:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    said: list[str] = []
    assert Guesser(shards, say=said.append).ask(Full(shards.tokenizer.vocab_size)) == []
    assert said == ["no guesses are shown: the GPU has no memory left for them"]
