"""Plain-Python twins of the kernels and rooms: slow, obvious, on lists of lists and Python ints.

They are written from the rules in docs/ and the modules' docstrings; the tests demand that the fast code equals them.
Documents are lists of sentences, sentences lists of token ids; texts are bytes.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from xxhash import xxh3_64_intdigest

from albert_data.config import ExampleConfig

BITS_64 = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
SPLITTING, PAIRING, MASKING = 1, 2, 3

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


def split_key(key: int, seed: int) -> int:
    return stream(seed, SPLITTING, key, 0, 0)


def choose_validation(keys: set[int], fraction: float | None, seed: int = 0) -> set[int]:
    """The documents of validation, by their keys: the rule of docs/reference/format.md, over all documents."""
    ranked = sorted(keys, key=lambda key: split_key(key, seed))
    drawn = [key for key in ranked if split_key(key, seed) < (0.005 if fraction is None else fraction) * 2**64]
    wanted = min(30, len(keys) // 10)
    if wanted == 0 and len(keys) > 1:
        wanted = 1
    if fraction is None and (len(drawn) < wanted or len(drawn) == len(keys)):
        drawn = ranked[:wanted]
    return set(drawn)


def draw(state: int, counter: int) -> int:
    return mix((state + (counter + 1) * GOLDEN) & BITS_64)


def below(bits: int, limit: int) -> int:
    return (bits >> 32) * limit // 2**32


def threshold(probability: float) -> int:
    return min(int(Fraction(probability) * 2**64), BITS_64)


# ---- corpus/: bytes into documents of canonical text ----


def read_txt(data: bytes) -> list[bytes]:
    """Documents, parted by lines of white space, each a canonical text."""
    documents: list[list[bytes]] = [[]]
    for line in split_lines(data.removeprefix(b"\xef\xbb\xbf")):
        if not is_blank(line.decode(errors="replace")):
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


def is_invisible(character: str) -> bool:
    """Whether it is a format character that is drawn as nothing. Others, as U+06DD, are drawn around numbers."""
    code = ord(character)
    is_drawn = 0x600 <= code <= 0x605 or code in (0x6DD, 0x70F, 0x890, 0x891, 0x8E2) or 0x110BD <= code < 0x14000
    return unicodedata.category(character) == "Cf" and not is_drawn


def is_blank(line: str) -> bool:
    return all(character.isspace() or is_invisible(character) for character in line)


def canonical(text: str) -> bytes:
    """Lines with one space for each run of white space and none around them, blank ones left out."""
    lines = [" ".join(line.decode().split()) for line in split_lines(text.encode())]
    return "".join(line + "\n" for line in lines if not is_blank(line)).encode()


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
        spaces = [at for at in range(max_line) if line[at] == ord(" ")]
        cut = spaces[-1] if spaces else max_line
        while 0x80 <= line[cut] < 0xC0:
            cut -= 1
        pieces.append(line[:cut].strip())
        line = line[cut:].strip()
    return [*pieces, line]


def document_key(document: bytes) -> int:
    return int(xxh3_64_intdigest(unicodedata.normalize("NFC", document.decode()).encode()))


# ---- tokenizer/words.py ----


@dataclass
class Vocabulary:
    """What the rules need to know of each piece: lists over the vocabulary, of 1, 0 or -2 (never); 2 after a clause.

    joined: pairs of pieces that are one word by a word list.
    """

    starts: Sequence[int]
    standalone: Sequence[int]
    is_special: Sequence[bool]
    cls_id: int
    sep_id: int
    mask_id: int
    joined: Sequence[tuple[int, int]] = ()


def begins_word(segment: Sequence[int], at: int, vocabulary: Vocabulary) -> bool:
    if at == 0:
        return True
    after, before = vocabulary.starts[segment[at]], vocabulary.standalone[segment[at - 1]]
    is_joined = (segment[at - 1], segment[at]) in vocabulary.joined
    return (after > 0 or before > 0) and after >= 0 and before >= 0 and not is_joined


def begins_clause(segment: Sequence[int], at: int, vocabulary: Vocabulary) -> bool:
    return vocabulary.starts[segment[at]] > 0 and vocabulary.standalone[segment[at - 1]] == 2


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
    config: ExampleConfig,
    pass_index: int,
    is_heading: Sequence[bool] | None = None,
) -> list[Row]:
    """Rows in the order in which they are made: block by block, each from its front or from its back.

    Pairs that are to get a random segment still have their own.
    """
    earlier: set[tuple[int, int]] = set()  # the first and the last sentence of each row of the passes to avoid
    joined = join_headings(document, is_heading, config.max_tokens)
    for number in range(pass_index - pass_index % 8, pass_index + 1):
        rows, spans = make_pass(joined, key, vocabulary, config, number, earlier)
        earlier |= spans
    return rows


def make_pass(
    joined: tuple[list[list[int]], set[int]],
    key: int,
    vocabulary: Vocabulary,
    config: ExampleConfig,
    pass_index: int,
    earlier: set[tuple[int, int]],
) -> tuple[list[Row], set[tuple[int, int]]]:
    """The rows of a pass, and the first and the last sentence of each.

    joined: as `join_headings` gives it. earlier: the first and last sentences of rows to avoid.
    """
    sentences, alone = joined
    orders, is_later = config.task.orders, pass_index % 8 > 0
    rows: list[Row] = []
    spans: set[tuple[int, int]] = set()
    stop = 0
    for block in find_blocks(sentences, config.max_tokens, alone):
        first, stop = stop, stop + len(block)
        if len(block[0]) > config.max_tokens or first in alone:
            for part in cut_long_sentence(block[0], config.max_tokens, vocabulary, pass_index % 8):
                rows.append(lay_out(part, [], 0, len(rows), vocabulary))
            continue
        is_backward = draw(stream(config.seed, PAIRING, key, pass_index, len(rows)), 4) >= 2**63
        numbers = list(range(first, stop))[:: -1 if is_backward else 1]
        had_room = True
        while numbers:
            state = stream(config.seed, PAIRING, key, pass_index, len(rows))
            target = config.max_tokens
            is_short = draw(state, 0) < threshold(config.short_seq_prob)
            if is_short:
                target = 2 + below(draw(state, 1), config.max_tokens - 1)
            left = [sentences[number] for number in numbers]
            seen = {tuple(sorted(map(numbers.index, span))) for span in earlier if set(span) <= set(numbers)}
            number = choose_number(left, target, config, seen if is_later else None, is_short=is_short)
            has_room = is_later and not is_short and number < len(left)
            has_room = has_room and sum(map(len, left[: number + 1])) <= config.max_tokens
            taken, numbers = sorted(numbers[:number]), numbers[number:]
            chunk = [sentences[number] for number in taken]
            spans.add((taken[0], taken[-1]))
            if not orders:
                rows.append(lay_out(sum(chunk, []), [], 0, len(rows), vocabulary))
                continue
            split, had_room = choose_split(state, chunk, is_even=had_room or has_room), has_room
            first_part, second_part = (sum(part, []) for part in (chunk[:split], chunk[split:]))
            label = below(draw(state, 3), len(orders))
            if second_part and orders[label] == "swapped":
                first_part, second_part = second_part, first_part
            rows.append(lay_out(first_part, second_part, label, len(rows), vocabulary))
    return rows, spans


def join_headings(
    document: list[list[int]], is_heading: Sequence[bool] | None, max_tokens: int
) -> tuple[list[list[int]], set[int]]:
    """Sentences, each with the headings before it, and the numbers of those that are headings alone.

    Where a sentence fits a row, but not with all its headings, the first ones are alone. Empty sentences are left out.
    """
    joined: list[list[int]] = []
    alone: set[int] = set()
    headings: list[list[int]] = []
    for number, sentence in enumerate(document):
        if is_heading and is_heading[number] and number + 1 < len(document):
            headings.append(sentence)
            continue
        kept = [sum([*headings[at:], sentence], []) for at in range(len(headings) + 1)]
        fitting = [at for at in range(len(kept)) if len(kept[at]) <= max_tokens]
        at = fitting[0] if fitting else 0
        if taken_off := sum(headings[:at], []):
            alone.add(len(joined))
            joined.append(taken_off)
        joined += [kept[at]] if kept[at] else []
        headings = []
    return joined, alone


def find_blocks(sentences: list[list[int]], max_tokens: int, alone: set[int] | None = None) -> list[list[list[int]]]:
    """Runs of sentences that fit a row, and each longer one and each heading alone by itself."""
    blocks: list[list[list[int]]] = []
    apart = {number for number, sentence in enumerate(sentences) if len(sentence) > max_tokens} | (alone or set())
    for number, sentence in enumerate(sentences):
        if number == 0 or number in apart or number - 1 in apart:
            blocks.append([])
        blocks[-1].append(sentence)
    return blocks


def find_best(
    lengths: Sequence[int], max_tokens: int, seen: set[tuple[int, int]] | None = None, *, wants_pairs: bool = True
) -> list[tuple[int, int]]:
    """The fewest (rows of one sentence, rows) that take the sentences from each one on: all ways are tried.

    seen: None in pass 0. In a later pass the first and the last sentence of each row that an earlier one has: these
    cost a row more, and only the eight farthest ends of a row are tried.
    """
    found = [(0, 0)]
    for first in range(len(lengths) - 1, -1, -1):
        ends = [end for end in range(first + 1, len(lengths) + 1) if sum(lengths[first:end]) <= max_tokens]
        ways = []
        for end in ends if seen is None else ends[-8:]:
            singles, rows = found[end - first - 1]
            is_single = wants_pairs and end == first + 1
            ways.append((singles + is_single, rows + 1 + ((first, end - 1) in (seen or ()))))
        found.insert(0, min(ways))
    return found


def choose_number(
    left: list[list[int]], target: int, config: ExampleConfig, seen: set[tuple[int, int]] | None, *, is_short: bool
) -> int:
    """How many of the sentences that are left go into a row.

    The most of those numbers that keep the fewest single rows, then the fewest rows. Of a short row only the single
    rows count: the most that fit its target, or if none does, the fewest. Without pairs single rows do not count.
    seen: as of `find_best`.
    """
    lengths, wants_pairs = [len(sentence) for sentence in left], bool(config.task.orders)
    best = find_best(lengths, config.max_tokens, seen, wants_pairs=wants_pairs)
    fitting = [number for number in range(1, len(left) + 1) if sum(lengths[:number]) <= config.max_tokens]
    singles = {number: best[number][0] + (wants_pairs and number == 1) for number in fitting}
    costs = {number: (singles[number], best[number][1] + 1 + ((0, number - 1) in (seen or ()))) for number in fitting}
    tried = fitting if seen is None else fitting[-8:]
    full = max(number for number in tried if costs[number] == min(costs[way] for way in tried))
    if not is_short:
        return full
    short = [number for number in fitting if number <= full and singles[number] == best[0][0]]
    return max((number for number in short if sum(lengths[:number]) <= target), default=short[0])


def choose_split(state: int, chunk: list[list[int]], *, is_even: bool) -> int:
    """How many sentences stand before the split: the boundary that owns a point on a circle.

    Each boundary owns as many points as the sentences beside it have tokens; the first points are those of the row's
    outer edge, between its last and its first sentence.
    """
    if len(chunk) == 1:
        return 1
    if is_even:
        return 1 + below(draw(state, 2), len(chunk) - 1)
    owners = [number for number in range(len(chunk)) for _ in range(len(chunk[number - 1]) + len(chunk[number]))]
    most = max(map(owners.count, owners))
    start, distance = below(draw(state, 2), owners.count(0)), most + below(draw(state, 5), len(owners) - 2 * most + 1)
    return owners[start + distance]


def cut_long_sentence(
    sentence: list[int], max_tokens: int, vocabulary: Vocabulary, num_earlier: int = 0
) -> list[list[int]]:
    """Parts of similar lengths, cut between clauses if there are any, or else between words that fit a row.

    num_earlier: for each earlier pass, the next clause after an eighth of the ideal length, in a circle.
    """
    parts = []
    while sentence:
        num_rows = -(-len(sentence) // max_tokens)
        ideal = len(sentence) // num_rows
        cuts = [at for at in range(1, max_tokens + 1) if at < len(sentence) and begins_word(sentence, at, vocabulary)]
        enough = [at for at in cuts if len(sentence) - at <= (num_rows - 1) * max_tokens]
        clauses = [at for at in enough if begins_clause(sentence, at, vocabulary) and abs(at - ideal) <= ideal // 2]
        if num_rows == 1:
            cut = len(sentence)
        elif clauses:
            cut = min(clauses, key=lambda at: (abs(at - ideal), at))
            for _ in range(num_earlier):
                cut = next((at for at in clauses if at > cut + ideal // 8), clauses[0])
        elif enough:
            cut = min(enough, key=lambda at: (abs(at - ideal), at))
        else:
            cut = max(cuts, default=ideal)
        parts.append(sentence[:cut])
        sentence = sentence[cut:]
    return parts


def lay_out(first: list[int], second: list[int], label: int, index: int, vocabulary: Vocabulary) -> Row:
    cls, sep = vocabulary.cls_id, vocabulary.sep_id
    if not second:
        return Row([cls, *first, sep], len(first), -1, index)
    return Row([cls, *first, sep, *second, sep], len(first), label, index)


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


def draw_lengths(state: int, num_words: int, law: SpanLaw, gap: int) -> list[int]:
    bound = law.bound + (draw(state, 0) < law.extra)
    lengths: list[int] = []
    while sum(lengths) < bound:
        bits = draw(state, 2 + len(lengths))
        length = 1 + sum(bits >= limit for limit in law.cumulative[:-1])
        if lengths and sum(lengths) + length + gap * (len(lengths) + 1) > num_words:
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


def arrange(state: int, num_words: int, lengths: list[int], gap: int) -> set[int]:
    """The words that are masked: spans, each before its gap of an unmasked word, among single words, on a circle."""
    at = below(draw(state, 1), num_words)
    num_items = len(lengths) + max(0, num_words - sum(lengths) - gap * len(lengths))
    chosen = choose_items(mix(state), num_items, len(lengths))
    spans = list(lengths)
    masked: set[int] = set()
    for item in range(num_items):
        if item in chosen:
            length = spans.pop(0)
            masked |= {(at + step) % num_words for step in range(length)}
            at += length + gap
        else:
            at += 1
    return masked


def mask_row(
    row: tuple[list[int], int, int, int],
    vocabulary: Vocabulary,
    ordinary_ids: Sequence[int],
    laws: dict[tuple[int, int, int], SpanLaw],
    config: ExampleConfig,
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
    gap = 0 if config.masking in ("word", "token") else 1
    law = laws[num_segments, longest_span(len(words_a), len(words_b), config.longest_span), len(words)]
    state = stream(config.seed, MASKING, key, pass_index, index)
    lengths = draw_lengths(state, len(words), law, gap)
    masked = arrange(state, len(words), lengths, gap) if lengths else set()
    positions = sorted(at for word in masked for at in words[word])
    state = mix(state ^ MASKING)
    percentages = [float(part) for part in config.replace.split("/")]
    limits = [threshold(percentages[0] / 100), threshold(percentages[0] / 100 + percentages[1] / 100)]
    return positions, [replace(draw(state, at), ids[at], vocabulary.mask_id, ordinary_ids, limits) for at in positions]


def replace(bits: int, original: int, mask_id: int, ordinary_ids: Sequence[int], limits: list[int]) -> int:
    if bits < limits[0]:
        return mask_id
    if bits < limits[1]:
        return ordinary_ids[below(mix(bits), len(ordinary_ids))]
    return original
