"""Which words of a row are masked, and by what (ALBERT, section 4.1; BERT, section 3.1).

In: rows without masks. Out: the same rows masked, in place, the positions to predict and the original ids.
The words of a row are arranged on a circle. Span lengths are drawn from the distribution of spans.py; one arrangement
of the spans, each followed by at least one unmasked word, and of the other words is drawn at random, and turned
by a random number of words: so every word is masked with the same probability, also the first and the last. A span
across the end of a segment is split there, so none crosses [CLS] or [SEP]. The unmasked word between spans, their gap,
lets a reader of the shard recognise each span. Single words or pieces have no gap: any of a row may be masked, as in
BERT. Of the masked tokens 80 % become [MASK], 10 % a random ordinary piece, 10 % stay, unless the config names other
shares.

An arrangement is a sequence of items: each span with its gap is one item, each other word is one. To draw it
is to choose which of the items are spans; every choice is equally likely. Floyd's algorithm (Bentley and Floyd 1987)
does that with one random number for each span instead of one for each item. The chosen items get the span lengths in
the order in which the lengths were drawn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from albert_data.config import ExampleConfig
from albert_data.data import Examples, Pairs, Specials
from albert_data.examples.spans import SpanTables, span_tables
from albert_data.kernels import I64, U64, Pointer, count_trailing_zeros, helper, item, kernel, pointer, put
from albert_data.kernels.draws import MASKING, below, draw, mix, stream, threshold
from albert_data.tokenizer.words import WordRule

_BUDGET, _TURN, _LENGTHS = range(3)  # the counters of a row's draws; the lengths take all from _LENGTHS on

# Piece flags say where words begin. The piece before sets one of four states:
#   _OPEN     its word goes on, unless this piece begins one by itself
#   _ENDED    its word ends, unless this piece never begins one
#   _SPECIAL  it is special, as at the start of a segment: a word begins at any ordinary piece
#   _JOINED   this piece belongs to its word, whatever it is
#
#     bit   7  6   5 4     3        2         1       0
#           unused state   _JOINED  _SPECIAL  _ENDED  _OPEN     bits 0 to 3: does a word begin here in this state?
#     "▁I"         _OPEN   0        1         1       1         bits 4 and 5: the state that this piece sets
#     "'"          _ENDED  0        1         1       1         So "▁I", "'", "m" are three words,
#     "m"          _OPEN   0        1         1       0         but "▁th", "em" is one.
_OPEN, _ENDED, _SPECIAL, _JOINED = range(4)
_STATE_SHIFT = 4
_STRIDE = 4  # tokens of a span that are written without a loop; few spans are longer


class Pieces(NamedTuple):
    """What may be masked, and what replaces it.

    flags: uint8 [vocabulary], see above
    ordinary_ids: uint32, ids that may replace a token
    mask_below, random_below: 64 random bits below the first are for [MASK], others below the second for a random piece
    gap: ExampleConfig.span_gap
    """

    flags: np.ndarray
    ordinary_ids: np.ndarray
    mask_id: int
    mask_below: np.uint64
    random_below: np.uint64
    gap: int

    @classmethod
    def of(cls, specials: Specials, words: WordRule, ordinary_ids: np.ndarray, config: ExampleConfig) -> Pieces:
        to_mask, random, _ = config.replace_shares
        thresholds = threshold(to_mask), threshold(to_mask + random)
        return cls(find_piece_flags(specials, words), ordinary_ids, specials.mask_id, *thresholds, config.span_gap)


class Rows(NamedTuple):
    """Unmasked rows. A row's draws depend on its key, its index, and the seed and the pass of all rows.

    ids, offsets, segment_a_len, indices: as in Pairs
    joined: as WordRule.find_joined gives it
    keys: uint64 [R]
    """

    ids: np.ndarray
    offsets: np.ndarray
    segment_a_len: np.ndarray
    joined: np.ndarray
    keys: np.ndarray
    indices: np.ndarray
    seed: np.uint64
    pass_index: int


class Masks(NamedTuple):
    """Buffers for the masked tokens of rows, filled by mask_rows.

    offsets: int64 [R + 1]
    positions: uint16 [tokens of all rows], of which the first offsets[-1] are used
    ids: as Pairs.ids, the originals
    """

    offsets: np.ndarray
    positions: np.ndarray
    ids: np.ndarray


class MaskScratch(NamedTuple):
    """Scratch buffers for one row.

    word_begins: int64, the first token of each maskable word, and last the end of the row's text
    lengths: int64, of the spans
    is_chosen: uint64, a bit for each item
    tokens: int64, the masked ones
    replaced: int64, those of them that become a random piece
    """

    word_begins: np.ndarray
    lengths: np.ndarray
    is_chosen: np.ndarray
    tokens: np.ndarray
    replaced: np.ndarray


class MaskPointers(NamedTuple):
    """What a row's masking reads and writes, with pointers in place of arrays.

    Small helpers take the few pointers that they need: with this bundle instead, masking is 6 % slower.
    """

    ids: Pointer
    pieces: Pieces
    num_ordinary: int
    scratch: MaskScratch
    masks: Masks


def mask_pairs(
    pairs: Pairs, specials: Specials, words: WordRule, ordinary_ids: np.ndarray, config: ExampleConfig, pass_index: int
) -> Examples:
    """Mask every row, in `pairs.ids` itself; a pure function of each row's (document, pass, index) and the config.

    ordinary_ids: uint32, the pieces that may replace a token: no special, control, unused or byte piece.
    """
    max_row_len = max(int(np.diff(pairs.offsets).max(initial=0)), config.max_seq_len)
    tables = span_tables(max_row_len, config.longest_span, config.mask_prob, config.masking)
    pieces = Pieces.of(specials, words, ordinary_ids, config)
    rows = make_rows(pairs, words, pairs.document_keys, np.uint64(config.seed), pass_index)
    return mask_by_tables(pairs, rows, tables, pieces)


def make_rows(pairs: Pairs, words: WordRule, keys: np.ndarray, seed: np.uint64, pass_index: int) -> Rows:
    """keys: uint64; a row's draws depend on its key and its index."""
    joined = words.find_joined(pairs.ids)
    return Rows(pairs.ids, pairs.offsets, pairs.segment_a_len, joined, keys, pairs.indices, seed, pass_index)


def mask_by_tables(pairs: Pairs, rows: Rows, tables: SpanTables, pieces: Pieces) -> Examples:
    """Mask every row, in `pairs.ids` itself. rows: those of `pairs`."""
    masks = Masks(np.zeros(len(pairs) + 1, np.int64), np.empty(len(pairs.ids), np.uint16), np.empty_like(pairs.ids))
    _, ngram, max_tokens, _ = tables.cumulative.shape  # a row has no more words than tokens
    num_masked = mask_rows(rows, tables, pieces, make_scratch(max_tokens, ngram), masks)
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


def find_piece_flags(specials: Specials, words: WordRule) -> np.ndarray:
    """The flags of each piece: uint8. WordRule's numbers are 1, 0 and NEVER, which is negative."""
    flags = np.full(len(words.starts), 1 << _SPECIAL, np.uint8)
    for has_bits, bits in (
        (words.starts > 0, 1 << _OPEN),
        (words.starts >= 0, 1 << _ENDED),
        (words.standalone > 0, _ENDED << _STATE_SHIFT),
        (words.standalone < 0, _JOINED << _STATE_SHIFT),
    ):
        flags |= has_bits * np.uint8(bits)
    flags[specials.is_special] = _SPECIAL << _STATE_SHIFT
    return flags


def make_scratch(max_tokens: int, ngram: int) -> MaskScratch:
    """Scratch buffers for rows of up to max_tokens tokens, so of no more words."""
    capacity = max_tokens + ngram + _STRIDE  # the last span may exceed the budget, and is written in whole strides
    word_begins, lengths, tokens, replaced = (np.empty(capacity, np.int64) for _ in range(4))
    return MaskScratch(word_begins, lengths, np.empty(capacity // 64 + 1, np.uint64), tokens, replaced)


@helper
def point_to(ids: np.ndarray, pieces: Pieces, scratch: MaskScratch, masks: Masks) -> MaskPointers:
    flags, ordinary_ids = pointer(pieces.flags), pointer(pieces.ordinary_ids)
    begins, lengths, is_chosen = pointer(scratch.word_begins), pointer(scratch.lengths), pointer(scratch.is_chosen)
    return MaskPointers(
        pointer(ids),
        Pieces(flags, ordinary_ids, pieces.mask_id, pieces.mask_below, pieces.random_below, pieces.gap),
        len(pieces.ordinary_ids),
        MaskScratch(begins, lengths, is_chosen, pointer(scratch.tokens), pointer(scratch.replaced)),
        Masks(pointer(masks.offsets), pointer(masks.positions), pointer(masks.ids)),
    )


@helper
def find_word_begins(ids: Pointer, flags: Pointer, begins: Pointer, first: int, last: int, count: int) -> int:
    """Append the words of the tokens `first` to `last` - 1 to the `count` ones in `begins`. Returns the new count."""
    state = _SPECIAL
    for token in range(first, last):
        own = I64(item(flags, I64(item(ids, token))))
        # No branch, as it could not be predicted: each token is written, and the next one overwrites it unless it
        # begins a word.
        put(begins, count, token)
        count += own >> state & 1
        state = own >> _STATE_SHIFT
    return count


@helper
def drop_joined(begins: Pointer, joined: np.ndarray, first: int, count: int) -> int:
    """Remove the words from number `first` on that begin at a joined token. Returns the new count."""
    kept = first
    for word in range(first, count):
        token = item(begins, word)
        put(begins, kept, token)
        kept += not joined[token]
    return kept


@helper
def draw_lengths(
    lengths: Pointer, state: np.uint64, num_words: int, cumulative: Pointer, ngram: int, bound: int, gap: int
) -> tuple[int, int]:
    """Draw span lengths until their sum reaches the bound; returns their number and sum.

    cumulative: the thresholds of the distribution; the last, for 1.0, is not read. The draw also ends at a span that
    does not fit on the circle any more, and then less is masked. With spans of up to 3 words and 15 % masked all fit:
    with an unmasked word after each they take at most 2 bound + 2 words.
    """
    count, total = 0, 0
    while total < bound:
        bits = draw(state, _LENGTHS + count)
        length = 1
        for shorter in range(ngram - 1):  # adds instead of branches: the length can't be predicted
            length += bits >= item(cumulative, shorter)
        if count > 0 and total + length + gap * (count + 1) > num_words:
            break
        put(lengths, count, length)
        count, total = count + 1, total + length
    return count, total


@helper
def choose_items(is_chosen: Pointer, state: np.uint64, num_items: int, num_chosen: int) -> None:
    """Choose some of the items, every choice equally likely: a bit for each in `is_chosen`.

    Floyd's algorithm: for each of the last `num_chosen` items draw an item up to it; if that is chosen already, choose
    the item itself.
    """
    for index in range((num_items + 63) >> 6):
        put(is_chosen, index, U64(0))
    for last in range(num_items - num_chosen, num_items):
        chosen = I64(below(draw(state, last), last + 1))
        if item(is_chosen, chosen >> 6) >> U64(chosen & 63) & U64(1):
            chosen = last
        put(is_chosen, chosen >> 6, item(is_chosen, chosen >> 6) | U64(1) << U64(chosen & 63))


@helper
def put_tokens(begins: Pointer, tokens: Pointer, first: int, last: int, filled: int) -> I64:
    """Append the tokens of the words from `first` to `last` - 1 to `tokens`, where `filled` are already.

    Returns the new number. Writes _STRIDE tokens in any case: what is too many is overwritten by the next span, and a
    loop over so few tokens would cost a mispredicted branch.
    """
    begin, end = item(begins, first), item(begins, last)
    for i in range(_STRIDE):
        put(tokens, filled + i, begin + i)
    for token in range(begin + _STRIDE, end):
        put(tokens, filled + token - begin, token)
    return filled + end - begin


@helper
def arrange(at: MaskPointers, state: np.uint64, num_words: int, count: int, total: int, gap: int) -> tuple[int, int]:
    """Arrange the spans and write their tokens in the order of the circle.

    count, total: how many spans there are, and how many words they have together. Returns the number of tokens, and
    the index in `tokens` of the one that comes first in the row: the turn may have moved it to the middle.
    """
    shift = below(draw(state, _TURN), num_words)
    # Each item has one unmasked word, or is a masked one. Only a span that covers the whole circle lacks its gap; it is
    # the only item.
    num_items = max(count, num_words - total + (1 - gap) * count)
    # A stream of its own: the counters in choose_items are item numbers, from 0 on, so with the row's own stream they
    # would repeat its draws of _BUDGET, _TURN and the lengths.
    scratch = at.scratch
    choose_items(scratch.is_chosen, mix(state), num_items, count)
    span, filled, lowest = 0, 0, 0
    for index in range((num_items + 63) >> 6):
        bits = item(scratch.is_chosen, index)
        while bits != U64(0):
            # Item i begins at word shift + i: each item before it has a word, and what spans are longer has been added
            # to `shift`, which was the turn.
            first = shift + (index << 6) + count_trailing_zeros(bits)
            if first >= num_words:  # once around the circle: this span comes first in the row
                shift, first, lowest = shift - num_words, first - num_words, filled
            last = first + item(scratch.lengths, span)
            shift += last - first - (1 - gap)
            if last > num_words:  # across the end of the row: its second part comes first in the row
                lowest = put_tokens(scratch.word_begins, scratch.tokens, first, num_words, filled)
                shift, first, last, filled = shift - num_words, 0, last - num_words, lowest
            filled = put_tokens(scratch.word_begins, scratch.tokens, first, last, filled)
            bits &= bits - U64(1)  # clears the lowest bit
            span += 1
    return filled, lowest


@helper
def mask_tokens(at: MaskPointers, state: np.uint64, row_begin: int, num_tokens: int, lowest: int, filled: int) -> int:
    """Put [MASK], a random piece or the original in place of the tokens listed in `tokens`, in the order of the row.

    Appends their positions and originals to the `filled` ones of the rows before; returns how many there are then.
    Nothing branches on what is drawn, as that can't be predicted: the few random pieces are collected, and written in
    a loop of their own.
    """
    pieces, masks, tokens, replaced = at.pieces, at.masks, at.scratch.tokens, at.scratch.replaced
    num_replaced = 0
    for i in range(lowest, lowest + num_tokens):
        token = item(tokens, i if i < num_tokens else i - num_tokens)
        original, bits = I64(item(at.ids, token)), draw(state, token - row_begin)
        # A span across the end of A has the [SEP] among its tokens. It stays, and the next token overwrites its entry.
        # Bit _SPECIAL is set for all pieces except special ones.
        is_maskable = I64(item(pieces.flags, original)) >> _SPECIAL & 1
        put(masks.positions, filled, np.uint16(token - row_begin))
        put(masks.ids, filled, original)
        put(at.ids, token, pieces.mask_id if is_maskable & I64(bits < pieces.mask_below) else original)
        put(replaced, num_replaced, token)
        num_replaced += is_maskable & I64(bits >= pieces.mask_below) & I64(bits < pieces.random_below)
        filled += is_maskable
    for i in range(num_replaced):
        token = item(replaced, i)
        bits = mix(draw(state, token - row_begin))  # the draw itself has chosen the token already
        put(at.ids, token, I64(item(pieces.ordinary_ids, below(bits, at.num_ordinary))))
    return filled


@kernel
def mask_rows(rows: Rows, tables: SpanTables, pieces: Pieces, scratch: MaskScratch, masks: Masks) -> int:
    """Mask all rows in `rows.ids` itself, fill in the masks, and return the number of masked tokens."""
    ngram, filled = tables.cumulative.shape[1], 0
    at = point_to(rows.ids, pieces, scratch, masks)
    flags, begins = at.pieces.flags, at.scratch.word_begins
    for row in range(len(rows.segment_a_len)):
        begin, end = rows.offsets[row], rows.offsets[row + 1]
        sep = begin + 1 + rows.segment_a_len[row]
        words_a = find_word_begins(at.ids, flags, begins, begin + 1, sep, 0)
        if len(rows.joined) > 0:
            words_a = drop_joined(begins, rows.joined, 0, words_a)
        words = find_word_begins(at.ids, flags, begins, sep + 1, end - 1, words_a)
        if len(rows.joined) > 0:
            words = drop_joined(begins, rows.joined, words_a, words)
        put(begins, words, end - 1)  # the last [SEP] ends the last word
        if words > 0:  # a row of special pieces alone has no words
            # The tables are for spans that cross at most one segment end. To cross two, a span must cover a whole
            # segment and a word on either side, so one of shorter + 1 words can't.
            has_pair = 0 < words_a < words
            shorter = min(words_a, words - words_a) if has_pair else words
            ends, longest = (1 if has_pair else 0), min(ngram, shorter + 1) - 1  # indices of the tables
            state = stream(rows.seed, MASKING, rows.keys[row], rows.pass_index, rows.indices[row])
            bound = tables.bounds[ends, longest, words]
            # b + 1 this often makes the expected number of masked words exactly the budget (spans.py).
            if draw(state, _BUDGET) < tables.extra[ends, longest, words]:
                bound += 1
            cumulative = pointer(tables.cumulative[ends, longest, words])
            count, total = draw_lengths(at.scratch.lengths, state, words, cumulative, ngram, bound, pieces.gap)
            num_tokens, lowest = arrange(at, state, words, count, total, pieces.gap)
            # A stream of its own, whose counters are positions in the row. `arrange` has taken mix(state).
            state = mix(state ^ U64(MASKING))
            filled = mask_tokens(at, state, begin, num_tokens, lowest, filled)
        masks.offsets[row + 1] = filled
    return filled
