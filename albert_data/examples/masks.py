"""Which words of a row are masked, and by what (ALBERT, section 4.1; BERT, section 3.1).

In: rows without masks. Out: the same rows masked, in place, the positions to predict and the ids that stood there.
The words of a row lie on a circle. Span lengths are drawn by the law of spans.py; one arrangement of the
spans, each followed by at least one unmasked word, and of the other words is drawn at random, and turned
by a random number of words: so every word is masked with the same probability, the first and the last
too. A span that lies across a segment's end is parted there, so none crosses [CLS] or [SEP]. The unmasked
word between spans lets a reader of the shard tell each span. Of the masked tokens 80 % become [MASK],
10 % a random ordinary piece, 10 % stay.

An arrangement is a choice of items: of the spans, each with the word behind it, and all other words. Floyd's
algorithm (Bentley and Floyd 1987) makes it with one number a span instead of one an item: every choice of as
many items is alike, whatever the lengths, which the chosen take in the order in which they were drawn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from albert_data.config import ExampleConfig
from albert_data.draws import MASKING, below, draw, mix, stream, threshold
from albert_data.examples.ragged import Examples, Pairs
from albert_data.examples.spans import SpanTables, span_tables
from albert_data.kernels import I64, U64, Pointer, count_trailing_zeros, helper, item, kernel, pointer, put
from albert_data.tokenizer.model import Specials
from albert_data.tokenizer.words import WordRule

MASK_SHARE, RANDOM_SHARE = 0.8, 0.1
_MASK_BELOW, _RANDOM_BELOW = threshold(MASK_SHARE), threshold(MASK_SHARE + RANDOM_SHARE)

# What can stand before a piece: a piece that leaves its word open, one that ends it, a special piece or the segment's
# start, one that the next belongs to. The kind of a piece has a bit for each of these four: whether a word begins at
# the piece behind it. Above these bits stands which of the four the piece itself is.
_OPEN, _ENDED, _SPECIAL, _JOINED = range(4)
_OWN_SHIFT = 4
_STRIDE = 4  # so many tokens of a span are written, needed or not: few spans are longer


class Pieces(NamedTuple):
    """What masking needs to know of the vocabulary. In kernels, pointers.

    kinds: uint8, of each piece; ordinary_ids: uint32, the pieces that may replace a token.
    """

    kinds: np.ndarray
    ordinary_ids: np.ndarray
    num_ordinary: int
    mask_id: int


class Room(NamedTuple):
    """Room for the words of one row. In kernels, pointers.

    begins: int64, the first token of each maskable word, and where the last segment ends; lengths: int64, of
    spans; is_chosen: uint64, a bit for each item; tokens: int64, the masked ones; replaced: int64, those of them that
    become a random piece.
    """

    begins: np.ndarray
    lengths: np.ndarray
    is_chosen: np.ndarray
    tokens: np.ndarray
    replaced: np.ndarray


class Masks(NamedTuple):
    """The masked tokens of rows, and room for more: offsets of the rows, the first 0 (int64); positions in the row
    (uint16); ids that stood there.
    """

    offsets: np.ndarray
    positions: np.ndarray
    ids: np.ndarray


def mask_pairs(
    pairs: Pairs,
    specials: Specials,
    words: WordRule,
    ordinary_ids: np.ndarray,
    config: ExampleConfig,
    pass_index: int,
) -> Examples:
    """Mask every row, in `pairs.ids` itself; a pure function of each row's (document, pass, index) and the config.

    ordinary_ids: uint32, the pieces that may replace a token: no special, control, unused or byte piece.
    """
    longest = max(int(np.diff(pairs.offsets).max(initial=0)), config.max_seq_len)
    tables = span_tables(longest, config.ngram, config.mask_prob)
    pieces = Pieces(find_kinds(specials, words), ordinary_ids, len(ordinary_ids), specials.mask_id)
    return mask_by_tables(pairs, pairs.document_keys, np.uint64(config.seed), pass_index, tables, pieces)


def mask_by_tables(
    pairs: Pairs, keys: np.ndarray, seed: np.uint64, pass_index: int, tables: SpanTables, pieces: Pieces
) -> Examples:
    """Mask every row, in `pairs.ids` itself. keys: uint64, what each row draws by beside its number."""
    masks = Masks(np.zeros(len(pairs) + 1, np.int64), np.empty(len(pairs.ids), np.uint16), np.empty_like(pairs.ids))
    num_masked = mask_rows(
        pairs.ids,
        pairs.offsets,
        pairs.segment_a_len,
        keys,
        pairs.indices,
        seed,
        pass_index,
        tables.cumulative,
        tables.bounds,
        tables.extra,
        pieces,
        make_room(sum(tables.bounds.shape[1:])),
        masks,
    )
    return Examples(
        input_ids=pairs.ids,
        offsets=pairs.offsets,
        segment_a_len=pairs.segment_a_len,
        sop_label=pairs.sop_label,
        masked_positions=masks.positions[:num_masked].copy(),
        masked_ids=masks.ids[:num_masked].copy(),
        mask_offsets=masks.offsets,
        document_keys=pairs.document_keys,
    )


def find_kinds(specials: Specials, words: WordRule) -> np.ndarray:
    """The kind of each piece: uint8."""
    kinds = np.full(len(words.starts), 1 << _SPECIAL, np.uint8)
    for has_bits, bits in (
        (words.starts > 0, 1 << _OPEN),
        (words.starts >= 0, 1 << _ENDED),
        (words.standalone > 0, _ENDED << _OWN_SHIFT),
        (words.standalone < 0, _JOINED << _OWN_SHIFT),
    ):
        kinds |= has_bits * np.uint8(bits)
    kinds[specials.is_special] = _SPECIAL << _OWN_SHIFT
    return kinds


def make_room(longest: int) -> Room:
    """Room for rows of up to so many tokens."""
    begins, lengths, tokens, replaced = (np.empty(longest + _STRIDE, np.int64) for _ in range(4))
    return Room(begins, lengths, np.empty(longest // 64 + 1, np.uint64), tokens, replaced)


@helper
def point_to_pieces(pieces: Pieces) -> Pieces:
    return Pieces(pointer(pieces.kinds), pointer(pieces.ordinary_ids), pieces.num_ordinary, pieces.mask_id)


@helper
def point_to_room(room: Room) -> Room:
    return Room(
        pointer(room.begins),
        pointer(room.lengths),
        pointer(room.is_chosen),
        pointer(room.tokens),
        pointer(room.replaced),
    )


@helper
def begin_words(ids: Pointer, first: int, last: int, kinds: Pointer, begins: Pointer, count: int) -> int:
    """Put behind `count` words those of the segment from token `first` to `last`; returns how many there are now."""
    before = _SPECIAL
    for at in range(first, last):
        kind = I64(item(kinds, I64(item(ids, at))))
        put(begins, count, at)
        count += kind >> before & 1
        before = kind >> _OWN_SHIFT
    return count


@helper
def draw_lengths(
    state: np.uint64, num_words: int, cumulative: Pointer, ngram: int, bound: int, lengths: Pointer
) -> tuple[int, int]:
    """Draw span lengths until their sum reaches the bound; returns their number and sum.

    A span for which the circle has no room left ends the draw: at a masking share of 15 % that cannot be.
    """
    count, total = 0, 0
    while total < bound:
        bits = draw(state, 2 + count)
        length = 1
        for shorter in range(ngram - 1):
            length += bits >= item(cumulative, shorter)
        if count > 0 and total + length + count + 1 > num_words:
            break
        put(lengths, count, length)
        count, total = count + 1, total + length
    return count, total


@helper
def choose_items(state: np.uint64, num_items: int, num_chosen: int, is_chosen: Pointer) -> None:
    """Choose some of the items, every choice of as many alike: a bit each in the words of `is_chosen`."""
    for block in range((num_items + 63) >> 6):
        put(is_chosen, block, U64(0))
    for last in range(num_items - num_chosen, num_items):
        chosen = I64(below(draw(state, last), last + 1))
        if item(is_chosen, chosen >> 6) >> U64(chosen & 63) & U64(1):
            chosen = last
        put(is_chosen, chosen >> 6, item(is_chosen, chosen >> 6) | U64(1) << U64(chosen & 63))


@helper
def put_tokens(begins: Pointer, first: int, last: int, tokens: Pointer, filled: int) -> I64:
    """Put the tokens of the words from `first` to `last` behind `filled` others; returns how many there are now."""
    begin, end = item(begins, first), item(begins, last)
    for i in range(_STRIDE):
        put(tokens, filled + i, begin + i)
    for at in range(begin + _STRIDE, end):
        put(tokens, filled + at - begin, at)
    return filled + end - begin


@helper
def arrange(state: np.uint64, num_words: int, count: int, total: int, room: Room) -> tuple[int, int]:
    """Place the spans and put their tokens in the order of the circle; returns their number and the place of the first.

    count, total: how many spans there are, and how many words in them.
    """
    turn = below(draw(state, 1), num_words)
    num_items = max(count, num_words - total)
    choose_items(mix(state), num_items, count, room.is_chosen)
    span, filled, lowest = 0, 0, 0
    for block in range((num_items + 63) >> 6):
        bits = item(room.is_chosen, block)
        while bits != U64(0):
            # The items before it have one word each, but for the spans: these have `length` more.
            first = turn + (block << 6) + count_trailing_zeros(bits)
            if first >= num_words:
                turn, first, lowest = turn - num_words, first - num_words, filled
            last = first + item(room.lengths, span)
            turn += last - first
            if last > num_words:
                lowest = put_tokens(room.begins, first, num_words, room.tokens, filled)
                turn, first, last, filled = turn - num_words, 0, last - num_words, lowest
            filled = put_tokens(room.begins, first, last, room.tokens, filled)
            bits &= bits - U64(1)
            span += 1
    return filled, lowest


@helper
def mask_tokens(
    state: np.uint64,
    row_begin: int,
    first: int,
    count: int,
    tokens: Pointer,
    pieces: Pieces,
    room: Room,
    positions: Pointer,
    originals: Pointer,
    filled: int,
) -> int:
    """Put [MASK], a random piece or the original in place of `count` tokens of the room, from number `first` on around.

    Writes positions in the row and originals behind `filled` others; returns how many there are now. Nothing
    branches on what is drawn, which nobody can foresee: random pieces come in a loop of their own.
    """
    num_replaced = 0
    for i in range(first, first + count):
        at = item(room.tokens, i if i < count else i - count)
        original, bits = I64(item(tokens, at)), draw(state, at - row_begin)
        is_maskable = I64(item(pieces.kinds, original)) >> _SPECIAL & 1  # special tokens may stand behind a word
        put(positions, filled, np.uint16(at - row_begin))
        put(originals, filled, original)
        put(tokens, at, pieces.mask_id if is_maskable & I64(bits < _MASK_BELOW) else original)
        put(room.replaced, num_replaced, at)
        num_replaced += is_maskable & I64(bits >= _MASK_BELOW) & I64(bits < _RANDOM_BELOW)
        filled += is_maskable
    for i in range(num_replaced):
        at = item(room.replaced, i)
        bits = mix(draw(state, at - row_begin))
        put(tokens, at, I64(item(pieces.ordinary_ids, below(bits, pieces.num_ordinary))))
    return filled


@kernel
def mask_rows(
    ids: np.ndarray,
    offsets: np.ndarray,
    segment_a_len: np.ndarray,
    document_keys: np.ndarray,
    indices: np.ndarray,
    seed: np.uint64,
    pass_index: int,
    cumulative: np.ndarray,
    bounds: np.ndarray,
    extra: np.ndarray,
    pieces_arrays: Pieces,
    room_arrays: Room,
    masks: Masks,
) -> int:
    """Mask all rows in `ids` itself, fill in what stood there, and return how many tokens that is."""
    num_rows, ngram = len(segment_a_len), cumulative.shape[1]
    pieces, room, tokens = point_to_pieces(pieces_arrays), point_to_room(room_arrays), pointer(ids)
    out_positions, out_ids = pointer(masks.positions), pointer(masks.ids)
    filled = 0
    for row in range(num_rows):
        begin, end = offsets[row], offsets[row + 1]
        sep = begin + 1 + segment_a_len[row]
        words_a = begin_words(tokens, begin + 1, sep, pieces.kinds, room.begins, 0)
        words = begin_words(tokens, sep + 1, end - 1, pieces.kinds, room.begins, words_a)
        put(room.begins, words, end - 1)
        if words > 0:
            two = 0 < words_a < words
            shorter = min(words_a, words - words_a) if two else words
            ends, longest_span = (1 if two else 0), min(ngram, shorter + 1) - 1
            state = stream(seed, MASKING, document_keys[row], pass_index, indices[row])
            bound = bounds[ends, longest_span, words]
            if draw(state, 0) < extra[ends, longest_span, words]:
                bound += 1
            law = pointer(cumulative[ends, longest_span, words])
            count, total = draw_lengths(state, words, law, ngram, bound, room.lengths)
            num_masked, lowest = arrange(state, words, count, total, room)
            state = mix(state ^ U64(MASKING))
            filled = mask_tokens(state, begin, lowest, num_masked, tokens, pieces, room, out_positions, out_ids, filled)
        masks.offsets[row + 1] = filled
    return filled
