"""A model's guesses: one masked word of each row, the right word, and what the model says, safe for a terminal."""

from __future__ import annotations

import re
from types import SimpleNamespace

import build_fixtures as fixtures
import numpy as np
import pytest
import torch
from torch import nn

from albert_data.shards.reader import Shards, open_shards
from albert_data.tokenizer.model import Tokenizer
from albert_data.train.batch import Batch
from albert_data.train.guesses import Question, _show_gap, choose_questions, examples_of_guesses


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


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Shards:
    folder = tmp_path_factory.mktemp("guesses")
    (folder / "corpus.txt").write_bytes(fixtures.to_txt(fixtures.make_documents(60, seed=8)))
    with fixtures.small_tasks():
        fixtures.run_build(folder / "corpus.txt", folder / "out", tokenizer)
    return open_shards(folder / "out")


def test_a_model_that_knows_all_guesses_every_word(shards: Shards):
    lines = examples_of_guesses(KnowsAll(shards.tokenizer.vocab_size), shards, shards.tokenizer, count=5)
    answers = [line for line in lines if "right: " in line]
    assert len(answers) == sum(line.count("____") for line in lines) == 5
    for line in answers:
        found = re.match(r' +right: "(.+?)"; guessed: "(.+?)" ([0-9.]+) %', line)
        assert found
        assert found[1] == found[2]
        assert float(found[3]) > 90


def test_one_word_of_each_row_is_masked_and_the_build_masked_it_too(shards: Shards):
    model = KnowsAll(shards.tokenizer.vocab_size)
    examples_of_guesses(model, shards, shards.tokenizer, count=8)
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
    examples_of_guesses(model, shards, shards.tokenizer, count=1)
    assert (model.training, model.modes) == (is_training, [False])


def test_equal_weights_give_equal_lines(shards: Shards):
    model = KnowsAll(shards.tokenizer.vocab_size)
    first, second = (examples_of_guesses(model, shards, shards.tokenizer) for _ in range(2))
    assert first == second


def test_no_question_gives_no_lines(shards: Shards):
    assert examples_of_guesses(KnowsAll(shards.tokenizer.vocab_size), shards, shards.tokenizer, count=0) == []


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
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: "a\x1b[2Jb")
    lines = examples_of_guesses(KnowsAll(shards.tokenizer.vocab_size), shards, shards.tokenizer)
    assert lines
    assert not any("\x1b" in line for line in lines)
    assert any("a\\x1b[2Jb" in line for line in lines)
