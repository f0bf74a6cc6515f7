"""A model's guesses: one masked word of each row, the right word, and what the model says, safe for a terminal."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from toy_rows import SMALL

from albert_data.shards.reader import Shards, open_shards
from albert_data.tokenizer.model import Tokenizer
from albert_data.train.batch import Batch
from albert_data.train.guesses import Guesser, choose_questions, make_guesser, to_lines
from albert_data.train.model import Albert


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


@pytest.fixture
def shards(finished: Path) -> Shards:
    return open_shards(finished)


@pytest.fixture
def knows(shards: Shards) -> KnowsAll:
    return KnowsAll(shards.tokenizer.vocab_size)


def test_a_model_that_knows_all_guesses_every_word(knows, shards):
    lines = show(knows, shards)
    answers = [line for line in lines if "right: " in line]
    assert len(answers) == sum(line.count("____") for line in lines) == 5
    for line in answers:
        found = re.match(r' +right: "(.+?)"; guessed: "(.+?)" ([0-9.]+) %, ', line)
        assert found
        assert found[1] == found[2]
        assert float(found[3]) > 90
    assert show(knows, shards) == lines
    assert show(knows, shards, 0) == []


def test_one_word_of_each_row_is_masked_and_the_build_masked_it_too(knows, shards):
    show(knows, shards, 8)
    [batch] = knows.batches
    questions = choose_questions(shards, shards.tokenizer, 8)
    mask_id = shards.tokenizer.mask_id
    rows = {example.original_ids.tobytes(): example for example in shards}
    assert (batch.input_ids_BT == mask_id).sum() == len(questions)
    for ids, question in zip(batch.input_ids_BT.numpy(), questions, strict=True):
        example = rows[question.ids.tobytes()]
        assert question.position in example.masked_positions
        expected = example.original_ids.copy()
        expected[question.position] = mask_id
        np.testing.assert_array_equal(ids[: len(expected)], expected)


def test_the_model_stays_in_its_mode_and_is_asked_in_evaluation_mode(knows, shards):
    for is_training in (True, False):
        show(knows.train(is_training), shards, 1)
        assert knows.training == is_training
    assert knows.modes == [False, False]


def test_the_sentence_has_the_gap_in_place_of_the_word(shards, tokenizer):
    for question in choose_questions(shards, shards.tokenizer, 5):
        left, right = question.sentence.split("____")
        before, after = question.ids[: question.position], question.ids[question.position + 1 :]
        assert tokenizer.decode(before).endswith(left.strip())
        assert tokenizer.decode(after).strip().startswith(right.strip())
        assert left.strip() or right.strip()


def test_control_characters_of_the_text_do_not_reach_the_terminal(knows, shards, monkeypatch):
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: "a\x1b[2Jb\tc\nd")
    answers = Guesser(shards).ask(knows)
    lines = list(to_lines(answers))
    assert any("a\\x1b[2Jb" in line for line in lines)
    assert not any("\x1b" in line for line in lines)
    assert not any(set("\t\n") & set("".join(answer)) for answer in answers), "they divide the parts in metrics.jsonl"


def test_asking_a_compiled_model_compiles_nothing_and_draws_no_random_number(shards):
    compiled = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        compiled.append(graph)
        return graph

    model = Albert(dataclasses.replace(SMALL, vocab_size=shards.tokenizer.vocab_size, dropout=0.5))
    state = torch.get_rng_state()
    expected = Guesser(shards).ask(model)
    assert len(expected) == 5
    assert torch.equal(torch.get_rng_state(), state)
    model.embeddings.compile(backend=backend, dynamic=False)
    assert Guesser(shards).ask(model) == expected
    assert compiled == []
    with torch.no_grad():
        model.embeddings(torch.zeros(2, 64, dtype=torch.int32), torch.zeros(2, 64, dtype=torch.int32))
    assert len(compiled) == 1, "outside of guesses it is compiled as before"


def test_shards_without_a_tokenizer_have_no_guesses_and_that_is_said(shards, tmp_path):
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
