"""Objects that learn or keep scratch buffers give the same results in several threads at once, and as copies."""

from __future__ import annotations

import copy
import pickle
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from test_chunks import ODD, train

from albert_data.errors import TokenizerError
from albert_data.tokenizer.model import Tokenizer

NUM_THREADS, NUM_ROUNDS = 8, 6


@pytest.fixture(autouse=True)
def switch_often() -> Iterator[None]:
    """Let Python change the thread as often as it can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def make_texts(count: int, seed: int) -> list[str]:
    """Sentences of new words, so that the chunk table learns all the time."""
    rng = random.Random(seed)
    letters = "etaoin shrdlu cmfwyp 中国我们天气。，.!?'" + ODD
    return ["".join(rng.choices(letters, k=rng.randint(1, 300))) for _ in range(count)]


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_threads_that_share_a_tokenizer_get_the_ids_of_sentencepiece(model_type):
    tokenizer = Tokenizer(train(model_type=model_type).model, "model")
    texts = [make_texts(300, seed) for seed in range(NUM_THREADS)]
    expected = [tokenizer._kind.processor.encode(part) for part in texts]

    def encode(thread: int) -> list[list[list[int]]]:
        rounds = []
        for _ in range(NUM_ROUNDS):
            ids, offsets = tokenizer.encode(texts[thread])
            rounds.append([part.tolist() for part in np.split(ids, offsets[1:-1])])
        return rounds

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        for rounds, wanted in zip(pool.map(encode, range(NUM_THREADS)), expected, strict=True):
            assert all(found == wanted for found in rounds)
    ids, offsets = tokenizer.encode(texts[0])
    assert [part.tolist() for part in np.split(ids, offsets[1:-1])] == expected[0], "the object stays right afterwards"


@pytest.mark.parametrize("duplicate", [lambda t: pickle.loads(pickle.dumps(t)), copy.copy, copy.deepcopy])
def test_a_tokenizer_pickles_and_copies_and_each_encodes_by_itself(duplicate):
    tokenizer, texts = Tokenizer(train().model, "model"), make_texts(50, 0)
    tokenizer.encode(texts)  # it has learnt
    other = duplicate(tokenizer)
    assert (other.sha256, other.pieces, other.slow_reason) == (tokenizer.sha256, tokenizer.pieces, None)
    assert np.array_equal(other.encode(texts)[0], tokenizer.encode(texts)[0])
    assert len(pickle.dumps(tokenizer)) < len(tokenizer.model) + 1000
    assert other._encoder.chunks is not tokenizer._encoder.chunks


@pytest.mark.parametrize("text", ["a string", b"bytes"])
def test_a_lone_string_is_refused_instead_of_encoded_letter_by_letter(text):
    with pytest.raises(TypeError, match=r"sequence of str, not one (str|bytes); give it as \[text\]"):
        Tokenizer(train().model, "model").encode(text)


def test_a_model_with_a_piece_of_no_utf8_is_an_error_of_the_tokenizer():
    model = train().model
    piece = max(Tokenizer(model, "model").pieces[5:], key=len).encode()
    with pytest.raises(TokenizerError, match=r"spiece.model is damaged: the piece .* is not valid UTF-8"):
        Tokenizer(model.replace(piece, piece[:-2] + b"\xff" + piece[-1:]), "spiece.model")
