"""Makes random strings of words and ideographs of a corpus mixed with characters that tokenizers treat differently."""

from __future__ import annotations

import random
import unicodedata
from itertools import chain

from benchmarks.corpora import take_bytes

_SAMPLE_BYTES = 300_000
_MAX_PARTS = 12

MARKS = ["\u0300", "\u0301", "\u0308", "\u0300\u0301", "\u064b", "\u093c", "\u094d", "\u0e33", "\u1160", "\u3099"]
JOINERS = ["\u200b", "\u200c", "\u200d", "\u2060", "\u00ad", "\u034f", "\ufe0f", "\ufeff"]
BIDI = ["\u200e", "\u200f", "\u202a", "\u202c", "\u202e", "\u2066", "\u2067", "\u2069"]
CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))]
SPACES = [" ", "  ", "   ", *map(chr, (0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000))]
EDGES = ["\u2581", "\u2581\u2581", " \u2581", "\ufffd", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"]
EMOJI = ["😀", "👩‍👩‍👧", "👍🏽", "🇩🇪", "❤\ufe0f", "🏴‍☠\ufe0f"]
LITERALS = ["[MASK]", "[CLS]", "[SEP]", "<pad>", "<unk>", "<0x41>", "foo", "中国", "<sep>"]
FORMS = list("Åİßςǅﬁﷺﻻ½①㌔ﾊﾞﾟが각가ㄱ𝐀𠀀กเا。！？“”—…・々ー〜~`^¨´")
ODDITIES = [MARKS, JOINERS, BIDI, CONTROLS, SPACES, EDGES, EMOJI, LITERALS, FORMS]

# Upper ends of code point ranges: characters of one, two, three and four bytes in UTF-8, and smaller ranges in between.
_PLANES = (0x80, 0x300, 0x800, 0x3000, 0x10000, 0x110000)


def make_strings(count: int, sentences: list[str], seed: int) -> list[str]:
    """Make `count` random strings. sentences: a corpus, for words and for sequences of its characters."""
    rng = random.Random(seed)
    stride = max(1, len(sentences) // 5000)
    sample = take_bytes(sentences[::stride], _SAMPLE_BYTES)
    words = list(chain.from_iterable(sentence.split() for sentence in sample)) or ["word"]
    text = "".join(sample)
    return ["".join(_make_parts(rng, words, text)) for _ in range(count)]


def _make_parts(rng: random.Random, words: list[str], text: str) -> list[str]:
    parts = []
    for _ in range(rng.randint(1, _MAX_PARTS)):
        parts.append(_make_part(rng, words, text))
        if rng.random() < 0.4:
            parts.append(" ")
    return parts


def _make_part(rng: random.Random, words: list[str], text: str) -> str:
    kind = rng.random()
    if kind < 0.25:
        return rng.choice(words)
    if kind < 0.3:
        return unicodedata.normalize("NFD", rng.choice(words))
    if kind < 0.45:
        at = rng.randrange(len(text))
        return text[at : at + rng.randint(1, 8)]
    if kind < 0.75:
        return rng.choice(rng.choice(ODDITIES))
    if kind < 0.85:
        code = rng.randrange(1, rng.choice(_PLANES))
        return chr(code) if not 0xD800 <= code < 0xE000 else "\ud7ff"  # surrogates are not characters
    return rng.choice(words)[: rng.randint(1, 3)] + rng.choice(rng.choice(ODDITIES))
