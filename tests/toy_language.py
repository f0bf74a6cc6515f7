"""A made-up corpus of English and Chinese words, and tiny SentencePiece models trained on it."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator

import sentencepiece

ENGLISH = (
    "the of and to in a is that for it was on are as with his they at be this from have or by one had not "
    "but what all were when we there can an your which their said if do will each about how up out them "
    "then she many some so these would other into has more her two like him see time could no make than "
    "first been its who now people my made over did down only way find use may water long little very "
    "after words called just where most know river mountain walking talked singing quickly slowly"
)
CHINESE = (
    "我们 中国 学习 语言 老师 学生 今天 天气 很好 城市 河流 山 水 看 书 写 字 大 小 人 在 是 的 了 有 不 "
    "和 也 都 去 来 做 时候 因为 所以 模型 句子 文字 数据"
)


def english_sentence(rng: random.Random) -> str:
    words = rng.choices(ENGLISH.split(), k=rng.randint(3, 14))
    if rng.random() < 0.3:
        words[rng.randrange(len(words) - 1)] += ","
    if rng.random() < 0.1:
        words.insert(rng.randrange(len(words)), f'("{rng.randint(1, 2026)}")')
    return " ".join(words).capitalize() + rng.choice(".....!?")


def chinese_sentence(rng: random.Random) -> str:
    words = rng.choices(CHINESE.split(), k=rng.randint(3, 14))
    if rng.random() < 0.5:
        words.insert(rng.randint(1, len(words) - 1), "，")
    return "".join(words) + rng.choice("。。。！？")


def make_sentences(count: int, seed: int) -> Iterator[str]:
    """Yield made-up sentences: two of English words, one of Chinese words, and so on."""
    rng = random.Random(seed)
    for number in range(count):
        yield chinese_sentence(rng) if number % 3 == 2 else english_sentence(rng)


def train_model(**settings: object) -> bytes:
    """Train a SentencePiece model; by default with at most 500 pieces and ALBERT's special ids."""
    model = io.BytesIO()
    options: dict[str, object] = {
        "sentence_iterator": make_sentences(3000, seed=0),
        "model_writer": model,
        "model_type": "unigram",
        "vocab_size": 500,
        "hard_vocab_limit": False,
        "character_coverage": 1.0,
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": -1,
        "eos_id": -1,
        "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
        "num_threads": 1,
        "minloglevel": 2,
    }
    sentencepiece.SentencePieceTrainer.train(**(options | settings))
    return model.getvalue()
