"""Plain-Python twins of the kernels and rooms: slow, obvious, on lists of lists and Python ints.

They are written from DESIGN.md and the modules' docstrings; the tests demand that the fast code equals them.
Documents are lists of sentences, sentences lists of token ids; texts are bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from xxhash import xxh3_64_intdigest

WHITESPACE = b" \t\n\r\x0b\x0c"
BITS_64 = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
PAIRING, MASKING = 2, 3

# ---- draws.py: SplitMix64 ----


def mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & BITS_64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & BITS_64
    return x ^ (x >> 31)


def stream(seed: int, purpose: int, key: int, pass_index: int, index: int) -> int:
    state = mix((seed + GOLDEN) & BITS_64)
    for part in (purpose, key, pass_index):
        state = (mix(state ^ part) + GOLDEN) & BITS_64
    return mix(state ^ index)


def draw(state: int, counter: int) -> int:
    return mix((state + (counter + 1) * GOLDEN) & BITS_64)


def below(bits: int, limit: int) -> int:
    return (bits >> 32) * limit // 2**32


def threshold(probability: float) -> int:
    return min(int(Fraction(probability) * 2**64), BITS_64)


# ---- corpus/: bytes into documents of canonical text ----


def read_txt(data: bytes) -> list[bytes]:
    """Documents, parted by lines of white space, each a text of stripped lines."""
    documents: list[list[bytes]] = [[]]
    for line in split_lines(data.removeprefix(b"\xef\xbb\xbf")):
        if line.strip(WHITESPACE):
            documents[-1].append(line)
        else:
            documents.append([])
    return [canonical(b"\n".join(lines).decode(errors="replace")) for lines in documents if lines]


def read_jsonl(data: bytes, field: str = "text") -> list[bytes]:
    """The text of every line that is a JSON object with a string in `field`, if there is any text in it."""
    documents = []
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        try:
            line = line.removeprefix(b"\xef\xbb\xbf")
            text = json.loads(line.decode(errors="replace"), parse_int=float)[field]
        except (ValueError, LookupError, TypeError):
            continue
        if isinstance(text, str):
            documents.append(canonical(replace_surrogates(text)))
    return [document for document in documents if document]


def replace_surrogates(text: str) -> str:
    return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)


def canonical(text: str) -> bytes:
    """Lines without white space around them, blank ones left out, each with a line feed."""
    lines = [line.strip(WHITESPACE) for line in split_lines(text.encode())]
    return b"".join(line + b"\n" for line in lines if line)


def split_lines(data: bytes) -> list[bytes]:
    """Lines, each ended by LF, CR LF, CR CR LF, or a lone CR, U+0085, U+2028 or U+2029."""
    ends = rb"\r?\r?\n|\r|\xc2\x85|\xe2\x80[\xa8\xa9]"
    return re.split(ends, data)


def cut_document(document: bytes, max_line: int, max_document: int) -> list[bytes]:
    """Cut a canonical text: lines over `max_line`, then documents over `max_document`, in bytes."""
    parts = [b""]
    for line in document[:-1].split(b"\n"):
        for piece in cut_line(line, max_line):
            if parts[-1] and len(parts[-1]) + len(piece) + 1 > max_document:
                parts.append(b"")
            parts[-1] += piece + b"\n"
    return [part for part in parts if part]


def cut_line(line: bytes, max_line: int) -> list[bytes]:
    """Cut at the last white space of the first `max_line` bytes, or else between two characters."""
    pieces = []
    while len(line) > max_line:
        spaces = [at for at in range(max_line) if line[at] in WHITESPACE]
        cut = spaces[-1] if spaces else max_line
        while 0x80 <= line[cut] < 0xC0:
            cut -= 1
        pieces.append(line[:cut].strip(WHITESPACE))
        line = line[cut:].strip(WHITESPACE)
    return [*pieces, line]


def document_key(document: bytes) -> int:
    return int(xxh3_64_intdigest(document))


# ---- tokenizer/words.py ----


@dataclass
class Vocabulary:
    """What the rules need to know of each piece: lists of bool over the vocabulary."""

    starts: Sequence[bool]
    standalone: Sequence[bool]
    is_special: Sequence[bool]
    cls_id: int
    sep_id: int
    mask_id: int


def begins_word(segment: Sequence[int], at: int, vocabulary: Vocabulary) -> bool:
    if at == 0:
        return True
    return bool(vocabulary.starts[segment[at]] or vocabulary.standalone[segment[at - 1]])


# ---- examples/pairs.py ----


@dataclass
class Row:
    """One example: ids with special tokens, the length of A, the label, its number in the document."""

    ids: list[int]
    segment_a_len: int
    label: int
    index: int


def make_rows(
    document: list[list[int]],
    key: int,
    vocabulary: Vocabulary,
    *,
    max_tokens: int,
    short_seq_prob: float,
    seed: int,
    pass_index: int,
) -> list[Row]:
    """Rows in the order in which they are taken from either end of the document."""
    left = [sentence for sentence in document if sentence]
    rows: list[Row] = []
    while left:
        state = stream(seed, PAIRING, key, pass_index, len(rows))
        target = max_tokens
        if draw(state, 0) < threshold(short_seq_prob):
            target = 2 + below(draw(state, 1), max_tokens - 1)
        take = take_first if draw(state, 4) >= 2**63 else take_last
        chunk, left = take(left, target, max_tokens, vocabulary)
        tokens = [token for sentence in chunk for token in sentence]
        if len(chunk) > 1:
            split = sum(map(len, chunk[: 1 + below(draw(state, 2), len(chunk) - 1)]))
        else:
            split = find_middle(tokens, vocabulary, prefers_left=draw(state, 2) >= 2**63)
        is_swapped = draw(state, 3) >= 2**63
        rows.append(lay_out(tokens[:split], tokens[split:], is_swapped, len(rows), vocabulary))
    return rows


def take_first(
    left: list[list[int]], target: int, max_tokens: int, vocabulary: Vocabulary
) -> tuple[list[list[int]], list[list[int]]]:
    """The first sentences that fit, or what fits of the first one; and what is left."""
    sentence = left[0]
    if len(sentence) > max_tokens:
        cuts = [at for at in range(1, max_tokens + 1) if begins_word(sentence, at, vocabulary)]
        cut = cuts[-1] if cuts else max_tokens
        return [sentence[:cut]], [sentence[cut:], *left[1:]]
    number = 1
    while number < len(left) and sum(map(len, left[: number + 1])) <= target:
        number += 1
    return left[:number], left[number:]


def take_last(
    left: list[list[int]], target: int, max_tokens: int, vocabulary: Vocabulary
) -> tuple[list[list[int]], list[list[int]]]:
    """The last sentences that fit, or what fits of the last one; and what is left."""
    sentence = left[-1]
    if len(sentence) > max_tokens:
        begin = len(sentence) - max_tokens
        cuts = [at for at in range(begin, len(sentence)) if begins_word(sentence, at, vocabulary)]
        cut = cuts[0] if cuts else begin
        return [sentence[cut:]], [*left[:-1], sentence[:cut]]
    number = 1
    while number < len(left) and sum(map(len, left[-number - 1 :])) <= target:
        number += 1
    return left[-number:], left[:-number]


def find_middle(tokens: list[int], vocabulary: Vocabulary, *, prefers_left: bool) -> int:
    """The word boundary nearest to the middle, or of two as near one of them; the end if there is none."""
    cuts = [at for at in range(1, len(tokens)) if begins_word(tokens, at, vocabulary)]
    return min(cuts, key=lambda at: (abs(at - len(tokens) / 2), at if prefers_left else -at), default=len(tokens))


def lay_out(first: list[int], second: list[int], is_swapped: bool, index: int, vocabulary: Vocabulary) -> Row:
    cls, sep = vocabulary.cls_id, vocabulary.sep_id
    if not second:
        return Row([cls, *first, sep], len(first), -1, index)
    if is_swapped:
        first, second = second, first
    return Row([cls, *first, sep, *second, sep], len(first), int(is_swapped), index)


# ---- examples/masks.py ----


@dataclass
class SpanLaw:
    """What the tables say of one row: thresholds of the lengths, the bound, and the threshold of one more."""

    cumulative: list[int]
    bound: int
    extra: int


def find_words(ids: list[int], segment_a_len: int, vocabulary: Vocabulary) -> list[list[list[int]]]:
    """The maskable words of A and of B, each a list of positions in the row."""
    found = []
    for first, last in ((1, 1 + segment_a_len), (2 + segment_a_len, len(ids) - 1)):
        words: list[list[int]] = []
        for at in range(first, last):
            if vocabulary.is_special[ids[at]]:
                continue
            follows = at > first and not vocabulary.is_special[ids[at - 1]]
            if follows and not begins_word(ids[first:last], at - first, vocabulary):
                words[-1].append(at)
            else:
                words.append([at])
        found.append(words)
    return found


def longest_span(words_a: int, words_b: int, ngram: int) -> int:
    """A span must not be able to cover a whole segment and cross both of its ends."""
    shorter = min(words_a, words_b) if words_a and words_b else words_a + words_b
    return min(ngram, shorter + 1)


def draw_lengths(state: int, num_words: int, law: SpanLaw) -> list[int]:
    bound = law.bound + (draw(state, 0) < law.extra)
    lengths: list[int] = []
    while sum(lengths) < bound:
        bits = draw(state, 2 + len(lengths))
        length = 1 + sum(bits >= limit for limit in law.cumulative[:-1])
        if lengths and sum(lengths) + length + len(lengths) + 1 > num_words:
            break
        lengths.append(length)
    return lengths


def choose_items(state: int, num_items: int, num_chosen: int) -> set[int]:
    """Floyd's choice: for each of the last items, one of those up to it, or itself in place of one that is taken."""
    chosen: set[int] = set()
    for last in range(num_items - num_chosen, num_items):
        drawn = below(draw(state, last), last + 1)
        chosen.add(last if drawn in chosen else drawn)
    return chosen


def arrange(state: int, num_words: int, lengths: list[int]) -> set[int]:
    """The words that are masked: spans, each before an unmasked word, among single words, on a circle."""
    at = below(draw(state, 1), num_words)
    num_items = len(lengths) + max(0, num_words - sum(lengths) - len(lengths))
    chosen = choose_items(mix(state), num_items, len(lengths))
    spans = list(lengths)
    masked: set[int] = set()
    for item in range(num_items):
        if item in chosen:
            length = spans.pop(0)
            masked |= {(at + step) % num_words for step in range(length)}
            at += length
        at += 1
    return masked


def mask_row(
    row: tuple[list[int], int, int, int],
    vocabulary: Vocabulary,
    ordinary_ids: Sequence[int],
    laws: dict[tuple[int, int, int], SpanLaw],
    *,
    ngram: int,
    seed: int,
    pass_index: int,
) -> tuple[list[int], list[int]]:
    """Positions and ids of the masks of a row (ids, segment_a_len, document key, index).

    laws: by number of segments, longest span and number of words.
    """
    ids, segment_a_len, key, index = row
    words_a, words_b = find_words(ids, segment_a_len, vocabulary)
    words = words_a + words_b
    if not words:
        return [], []
    num_segments = bool(words_a) + bool(words_b)
    law = laws[num_segments, longest_span(len(words_a), len(words_b), ngram), len(words)]
    state = stream(seed, MASKING, key, pass_index, index)
    lengths = draw_lengths(state, len(words), law)
    masked = arrange(state, len(words), lengths) if lengths else set()
    positions = sorted(at for word in masked for at in words[word])
    state = mix(state ^ MASKING)
    return positions, [replace(draw(state, at), ids[at], vocabulary.mask_id, ordinary_ids) for at in positions]


def replace(bits: int, original: int, mask_id: int, ordinary_ids: Sequence[int]) -> int:
    if bits < threshold(0.8):
        return mask_id
    if bits < threshold(0.8 + 0.1):
        return ordinary_ids[below(mix(bits), len(ordinary_ids))]
    return original
