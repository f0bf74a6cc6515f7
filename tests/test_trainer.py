"""SentencePiece trains in a process of its own; if it dies, that is an error and not a hang."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from functools import partial
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from toy_language import make_sentences

from albert_data.config import MODEL_TYPES, VocabConfig
from albert_data.errors import TokenizerError
from albert_data.jobs.progress import NullProgress, Progress
from albert_data.vocab import process
from albert_data.vocab.alphabet import Alphabet, choose_alphabet
from albert_data.vocab.counting import CharacterCounts
from albert_data.vocab.process import send, train_apart
from albert_data.vocab.training import TrainedModel, VocabularyTooLarge, train_model

SENTENCES = [sentence.encode() for sentence in make_sentences(2000, seed=1)]
_CHARACTERS = sorted(Counter(ord(c) for sentence in SENTENCES for c in sentence.decode().replace(" ", "▁")).items())
COUNTS = CharacterCounts(
    codes=np.array([code for code, _ in _CHARACTERS], np.uint32), counts=np.array([num for _, num in _CHARACTERS])
)

OURS = "import sys; sys.path[:] = sys.argv[1:]; import albert_data.vocab.process as t, time; "


def settings(**changes: Any) -> tuple[VocabConfig, Alphabet]:
    config = VocabConfig(**{"vocab_size": 400, "dummy_prefix": True, **changes})
    return config, choose_alphabet(COUNTS, config)


def train(progress: Progress, sentences: list[bytes] = SENTENCES, **changes: Any) -> TrainedModel:
    config, alphabet = settings(**changes)
    return train_model(sentences, config, alphabet, partial(train_apart, progress))


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_model_equals_one_trained_in_this_process(model_type):
    assert train(NullProgress(), model_type=model_type) == train_model(SENTENCES, *settings(model_type=model_type))


def test_training_writes_nothing_to_the_standard_error_of_this_process(capfd):
    train(NullProgress())
    assert capfd.readouterr() == ("", "")


def test_an_error_of_the_trainer_is_raised_in_this_process():
    with pytest.raises(VocabularyTooLarge) as refusal:
        train(NullProgress(), vocab_size=100_000)
    assert 400 < refusal.value.largest < 100_000
    with pytest.raises(TokenizerError, match="no sentence to learn a vocabulary from"):
        train(NullProgress(), [])


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("os.kill(os.getpid(), 9)", r"MB of sentences died \(signal 9\); .*memory ran out: .*--sample-bytes"),
        (
            "os.write(2, b'bad_alloc\\n'); os.abort()",
            r"died \(signal 6\) and said: bad_alloc; .*memory",
        ),
        ("os.read(0, 9); os._exit(3)", r"died \(exit code 3\); "),
        ("os.write(1, b'half an answ')", r"died \(exit code 0\); "),
        (f"{OURS}t.train = lambda *_: bytes(1 << 60); t.main()", r"died \(exit code 0\)"),
    ],
)
@pytest.mark.parametrize("num_copies", [1, 40], ids=["little text", "more than a pipe holds"])
def test_a_trainer_that_dies_is_an_error_that_names_the_cause(num_copies, program, told, monkeypatch):
    monkeypatch.setattr(process, "COMMAND", f"import os; {program}")
    with pytest.raises(TokenizerError, match=told):
        train(NullProgress(), SENTENCES * num_copies)


def test_ctrl_c_ends_the_trainer(monkeypatch):
    started: list[subprocess.Popen[bytes]] = []
    progress = Mock(advance=Mock(side_effect=KeyboardInterrupt))
    start = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *words, **named: started.append(start(*words, **named)) or started[0]
    )
    monkeypatch.setattr(process, "COMMAND", f"{OURS}t.train = lambda *_: time.sleep(60); t.main()")
    with pytest.raises(KeyboardInterrupt):
        train(progress)
    assert started[0].returncode is not None


def test_the_trainer_ends_with_its_parent():
    """A killed parent closes its end of the pipe."""
    command = [sys.executable, "-c", f"{OURS}t.train = lambda *_: time.sleep(60); t.main()", *sys.path]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    send(child.stdin, SENTENCES, {})
    assert child.poll() is None
    child.stdin.close()
    assert child.wait(30) == 1
