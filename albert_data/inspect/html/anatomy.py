"""One row explained, step by step: sentences, the pair, words and pieces, masked spans, and what the model is shown.

In: a split. Out: HTML, made from a row that shows most of what is explained. A shard keeps no sentences, so the text of
the row is split into sentences again, by the rule of the build.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from albert_data.config import ExampleConfig
from albert_data.examples.pair_tasks import IN_ORDER, NO_LABEL, RANDOM_B, SWAPPED, PairTask
from albert_data.inspect.statistics import Statistics
from albert_data.report.page import escape
from albert_data.sentences.text import split_sentences
from albert_data.shards import decoding
from albert_data.shards.decoding import Example, Token
from albert_data.shards.reader import Shards
from albert_data.text.wording import count_of, format_share
from albert_data.tokenizer.piece_texts import VISIBLE_SPACE
from albert_data.tokenizer.words import WordRule

_NUM_SEARCHED = 100  # rows
_TOKENS = 72  # about as many fit on a screen
Word = list[Token]  # of one piece each; `shown` is set where it is plain, too


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A or B. spans: the words of a masked span (True) or those between two (False), in order; sentences: in order."""

    name: str
    spans: list[tuple[bool, list[Word]]]
    sentences: list[str]

    @property
    def masked_spans(self) -> list[list[Word]]:
        return [words for is_masked, words in self.spans if is_masked]


def choose_row(shards: Shards) -> int | None:
    """The number of the row to explain, always the same one of a set; None if the split is empty.

    Of the first _NUM_SEARCHED rows is wanted, in this order: a pair; masked tokens of all three kinds; the longest
    span; a masked word of several pieces; three sentences; swapped; a length that fits on a screen.
    """
    return min(range(min(_NUM_SEARCHED, len(shards))), key=partial(_judge, shards), default=None)


def _judge(shards: Shards, row: int) -> tuple[int, ...]:
    """The order of choose_row; smaller is better."""
    example, segments = shards[row], read_segments(shards, row)
    masked = [words for segment in segments for words in segment.masked_spans]
    return (
        int(len(segments) < 2),
        -len({token.kind for words in masked for word in words for token in word}),
        -max(map(len, masked), default=0),
        int(all(len(word) == 1 for words in masked for word in words)),
        int(sum(len(segment.sentences) for segment in segments) < 3),
        int(example.sop_label != shards.manifest.config.examples.task.label_of(SWAPPED)),
        abs(len(example.input_ids) - _TOKENS),
    )


def read_segments(shards: Shards, row: int) -> list[Segment]:
    """Segment A, and B where the row has one."""
    example, manifest = shards[row], shards.manifest
    config, text = manifest.config.examples, manifest.find_text_config(example.source)
    rule = shards.tokenizer.word_rule(config)
    segments = []
    for name, begin, end in decoding.find_segments(example):
        decoded = shards.tokenizer.decode(example.original_ids[begin:end]).strip()
        sentences = split_sentences(decoded, text.language, text.abbreviations) if text.sentences == "prose" else []
        spans = _find_spans(_find_words(example, begin, end, shards, rule), config.span_gap)
        segments.append(Segment(name=name, spans=list(spans), sentences=sentences or [decoded]))
    return segments


def _find_words(example: Example, begin: int, end: int, shards: Shards, rule: WordRule) -> Iterator[Word]:
    tokenizer, original = shards.tokenizer, example.original_ids
    starts = decoding.find_starts(original[begin:end], rule, tokenizer.specials.is_special)
    masked = set(example.masked_positions.tolist())
    word: Word = []
    for at in range(begin, end):
        if starts[at - begin] and word:
            yield word
            word = []
        here, there = int(original[at]), int(example.input_ids[at])
        kind = decoding.name_kind(here, there, tokenizer) if at in masked else decoding.PLAIN
        names = (decoding.name_piece(tokenizer.piece_texts[i]) for i in (here, there))
        word.append(Token(kind, *names))
    if word:
        yield word


def _find_spans(words: Iterator[Word], gap: int) -> Iterator[tuple[bool, list[Word]]]:
    """A span is a longest sequence of masked words, or without a gap between spans, each masked word."""
    for is_masked, group in groupby(words, key=lambda word: all(token.kind != decoding.PLAIN for token in word)):
        if is_masked and not gap:
            yield from ((True, [word]) for word in group)
        else:
            yield is_masked, list(group)


# ---- HTML ----


def render_anatomy(shards: Shards, measured: Mapping[str, Statistics], asked: int | None = None) -> str:
    """A row of the split in five steps. measured: the statistics of the splits that have rows; asked: this row."""
    statistics = measured.get(shards.split)
    row = choose_row(shards) if statistics and asked is None else asked
    if statistics is None or row is None:
        return f"<p>{escape(shards.split)} has no rows.</p>"
    example, segments = shards[row], read_segments(shards, row)
    task, unit = shards.manifest.config.examples.task, "word" if statistics.config.masks_words else "piece"
    in_document = segments[::-1] if example.sop_label == task.label_of(SWAPPED) else segments
    tokens = f"{count_of(len(example.input_ids), 'token')}, {len(example.masked_positions):,} of them masked"
    why = "It is chosen because it shows most of what is explained here." if asked is None else "It was asked for."
    about = f"Row {row:,} of {shards.split}: {tokens}. {why}"
    language = escape(shards.manifest.find_text_config(example.source).language)
    steps = [
        ("Sentences of a document", _render_sentences(example, in_document, language)),
        ("How the segments stand", _render_pair(example, in_document, task)),
        ("Words and their pieces, masked in spans", _render_words(segments, language, unit)),
        ("Lengths of the spans", (_explain_span_lens(segments, statistics.config, unit), "")),
        ("What the model sees in place of a masked token", (_explain_kinds(segments, statistics.config), "")),
    ]
    cards = (
        f'<li class="card"><h3><span class="step">{number}</span> {escape(title)}</h3><p>{escape(says)}</p>{body}</li>'
        for number, (title, (says, body)) in enumerate(steps, 1)
    )
    return f'<p>{escape(about)}</p>\n<ol class="anatomy">\n' + "\n".join(cards) + "\n</ol>"


def _render_sentences(example: Example, segments: Sequence[Segment], language: str) -> tuple[str, str]:
    """What is said, and HTML. segments: in the order of the document."""
    says = f"These follow one another in document {example.document_key:016x}."
    if example.document_key_b not in (None, example.document_key):
        says = f"A is of document {example.document_key:016x}, B of document {example.document_key_b:016x}."
    if len(segments) > 1:
        says += " The dashed line divides the row into its two segments."
    parts, number = [], 1
    for segment in segments:
        items = "".join(f'<li dir="auto">{escape(sentence)}</li>' for sentence in segment.sentences)
        parts.append(f'<ol class="sentences {segment.name}" start="{number}" lang="{language}">{items}</ol>')
        number += len(segment.sentences)
    return says, "".join(parts)


def _render_pair(example: Example, segments: Sequence[Segment], task: PairTask) -> tuple[str, str]:
    """What is said, and HTML. segments: in the order of the document."""
    if not task.orders:
        return "Every row is one segment: this set has no sentence task.", ""
    if len(segments) == 1:
        return f"This row has no pair: label {NO_LABEL}. The model is not asked for its order.", ""
    first, second = segments
    ends = [0, len(first.sentences), len(first.sentences) + len(second.sentences)]
    names = [
        f"sentence {end}" if end == begin + 1 else f"sentences {begin + 1} to {end}"
        for begin, end in zip(ends, ends[1:], strict=False)
    ]
    if example.sop_label == task.label_of(RANDOM_B):
        names[1] = "what follows A"
    ways = {
        IN_ORDER: [(first, names[0]), (second, names[1])],
        SWAPPED: [(second, names[1]), (first, names[0])],
        RANDOM_B: [(first, names[0]), (second, "of another document")],
    }
    orders = []
    for label, order in enumerate(task.orders):
        here = example.sop_label == label
        title = f"{order.capitalize()}, label {label}{' <strong>(this row)</strong>' if here else ''}"
        blocks = "".join(
            f'<span class="block {segment.name}">{name}: {text}</span>{_special("[SEP]")}'
            for name, (segment, text) in zip("AB", ways[order], strict=True)
        )
        tokens = _special("[CLS]") + blocks
        orders.append(f'<div class="order{" here" * here}"><p>{title}</p><div class="flow">{tokens}</div></div>')
    says = "A pair stands in one of these ways, each as likely as the others. The model has to say in which."
    return says, "".join(orders)


def _special(name: str) -> str:
    return f'<span class="special">{name}</span>'


def _render_words(segments: Sequence[Segment], language: str, unit: str) -> tuple[str, str]:
    says = (
        "Each box is a word. Dashed lines inside it separate the pieces of the vocabulary that spell it. A frame holds "
        "a masked span of neighbouring words, all of whose pieces are to be predicted; below is what the model sees."
        if unit == "word"
        else "Each box is a piece: this set masks single pieces, not whole words. A frame holds a masked span of "
        "neighbouring pieces, all of which are to be predicted; below each is what the model sees."
    )
    words = (word for one in segments for _, of_span in one.spans for word in of_span)
    if any(token.original == VISIBLE_SPACE for word in words for token in word):
        says += f" {VISIBLE_SPACE} is a space that is a piece of its own."
    parts = []
    for number, segment in enumerate(segments):
        begin = _special("[CLS]") if number == 0 else ""
        flow = "".join(_render_span(*span, unit) for span in segment.spans)
        parts.append(
            f'<div class="segment"><span class="name">{segment.name}</span>'
            f'<div class="flow words" dir="auto" lang="{language}">{begin}{flow}{_special("[SEP]")}</div></div>'
        )
    return says, "".join(parts)


def _render_span(is_masked: bool, words: Sequence[Word], unit: str) -> str:
    boxes = "".join(f'<span class="word">{"".join(map(_render_piece, word))}</span>' for word in words)
    if not is_masked:
        return boxes
    return f'<span class="span"><span class="length">{count_of(len(words), unit)}</span>{boxes}</span>'


def _render_piece(token: Token) -> str:
    shown = "" if token.kind == decoding.PLAIN else f'<bdi class="{token.kind}">{escape(token.shown)}</bdi>'
    return f'<span class="piece"><bdi>{escape(token.original)}</bdi>{shown}</span>'


def _explain_span_lens(segments: Sequence[Segment], config: ExampleConfig, unit: str) -> str:
    share = "1/n" if config.masking == "ngram" else "0.8 to the power of n"
    lengths = (
        f"A span has at most {config.longest_span} {unit}s. Lengths are drawn so that the share of the spans with n "
        f"{unit}s is in proportion to {share}. Spans"
        if config.span_gap
        else f"Single {unit}s are masked. They"
    )
    lens = Counter(len(words) for segment in segments for words in segment.masked_spans)
    here = ", ".join(f"{lens[n]:,} of {count_of(n, unit)}" for n in sorted(lens)) or "none"
    share = format_share(config.mask_prob, 0)
    return f"{lengths} are drawn until {share} of the tokens are masked. In this row: {here}."


def _explain_kinds(segments: Sequence[Segment], config: ExampleConfig) -> str:
    to_mask, random, kept = (format_share(share, 0) for share in config.replace_shares)
    kinds = Counter(token.kind for one in segments for _, words in one.spans for word in words for token in word)
    return (
        f"Each masked token is drawn by itself: {to_mask} show [MASK], {random} show a piece drawn at random, and "
        f"{kept} stay. All are to be predicted, so the model can't trust what it sees. In this row: "
        f"{kinds[decoding.MASKED]:,} [MASK], {kinds[decoding.RANDOM]:,} random, {kinds[decoding.KEPT]:,} unchanged."
    )
