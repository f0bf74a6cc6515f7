"""The audit finds pairs whose surface shows their order, and wrong labels; it is quiet on sound pairs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from toy_language import chinese_sentence, english_sentence, make_sentences, train_model

from albert_data.data import Examples
from albert_data.inspect.audit.guesses import MIN_PAIRS, check_order, cross_validate
from albert_data.inspect.audit.rules import BAD, LOOK, NOT_KNOWN, OK, Check
from albert_data.inspect.audit.surface import BRACKETS, QUOTES, measure_pairs, measure_segment
from albert_data.tokenizer.model import Tokenizer

# ---- pairs of made-up text without a build: sound ones, and ones with a fault of a given share ----

Sentences = list[str]
Pair = tuple[str, str]  # the earlier segment and the later one
Fault = Callable[[random.Random, Sentences, int], Pair]
_QUOTED = [f"“{line}”" for line in make_sentences(300, seed=1)]


@cache
def get_tokenizer() -> Tokenizer:
    """Of toy_language, with quotation marks and brackets."""
    lines = [*make_sentences(3000, seed=0), *_QUOTED, *(f"[{line}] ({line})" for line in make_sentences(200, seed=2))]
    return Tokenizer(train_model(sentence_iterator=iter(lines)), "the tests' tokenizer")


def write(make: Callable[[random.Random], str], count: int, seed: int) -> Sentences:
    rng = random.Random(seed)
    return [make(rng) for _ in range(count)]


def part(rng: random.Random, taken: Sentences, joint: str = " ") -> Pair:
    """A sound pair: parted between two sentences."""
    at = rng.randrange(1, len(taken))
    return joint.join(taken[:at]), joint.join(taken[at:])


def cut_sentence(rng: random.Random, taken: Sentences) -> Pair:
    """One sentence cut at its middle."""
    words = max(taken, key=len).split(" ")
    return " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])


def put_longest_outside(rng: random.Random, taken: Sentences) -> Pair:
    """The sentences that are longest at the outer edges."""
    ranked = sorted(taken, key=len)
    return part(rng, [ranked[-1], *ranked[:-2], ranked[-2]])


def make_pairs(
    count: int, seed: int, lines: Sentences, fault: Callable[..., Pair] = part, share: float = 0.0
) -> Iterator[Pair]:
    """Pairs of two to six sentences, a share of them with a fault."""
    rng = random.Random(seed)
    for _ in range(count):
        taken = rng.choices(lines, k=rng.randint(2, 6))
        yield fault(rng, taken) if rng.random() < share else part(rng, taken)


def lay_out(pairs: Sequence[Pair], labels: Sequence[int], keys: Sequence[int]) -> Examples:
    """Rows without masks. labels: 0, 1, or -1 for a row of the earlier segment alone."""
    tokenizer = get_tokenizer()
    texts = [
        text
        for pair, label in zip(pairs, labels, strict=True)
        for text in (pair[::-1] if label == 1 else pair if label == 0 else (pair[0], ""))
    ]
    ids, offsets = tokenizer.encode(texts)
    rows, lens_a = [], []
    for i, label in enumerate(labels):
        a, b = ids[offsets[2 * i] : offsets[2 * i + 1]], ids[offsets[2 * i + 1] : offsets[2 * i + 2]]
        sep = np.array([tokenizer.sep_id], ids.dtype)
        rows.append(np.concatenate([[tokenizer.cls_id], a, sep, *((b, sep) if label >= 0 else ())]))
        lens_a.append(len(a))
    return Examples(
        input_ids=np.concatenate(rows).astype(ids.dtype),
        offsets=np.cumsum([0, *map(len, rows)]),
        segment_a_len=np.array(lens_a, np.int32),
        sop_label=np.array(labels, np.int8),
        masked_positions=np.zeros(0, np.uint16),
        masked_ids=np.zeros(0, ids.dtype),
        mask_offsets=np.zeros(len(rows) + 1, np.int64),
        document_keys=np.array(keys, np.uint64),
    )


def give_labels(pairs: Sequence[Pair], seed: int, num_documents: int = 300) -> Examples:
    """Rows of these pairs, swapped at random, dealt out to documents."""
    rng = random.Random(seed)
    labels = [rng.randrange(2) for _ in pairs]
    documents = [rng.getrandbits(64) for _ in range(num_documents)]
    return lay_out(pairs, labels, rng.choices(documents, k=len(pairs)))


def as_subject(*batches: Examples) -> Any:
    """What a check asks of the rows of a folder."""
    shards = SimpleNamespace(batches=lambda: iter(batches), manifest=SimpleNamespace(sources=None))

    def read_row(row: int) -> Any:
        ids = np.split(batches[0].input_ids, batches[0].offsets[1:-1])[row]
        return SimpleNamespace(original_ids=ids, segment_a_len=int(batches[0].segment_a_len[row]))

    facts = SimpleNamespace(sources=np.zeros(sum(map(len, batches)), np.uint16))
    return SimpleNamespace(tokenizer=get_tokenizer(), shards=[shards], read_row=read_row, facts=facts)


def audit_pairs(examples: Examples) -> dict[str, Check]:
    """The checks of the surface by name."""
    return {check.rule.name: check for check in check_order(as_subject(examples))}


# ---- what is measured ----


def test_a_segment_is_described_in_words():
    tokens = ["▁(", "▁it", "▁went", ".", "”", "▁No", ".", "▁", ")"]
    features, lengths = measure_segment(tokens)
    assert features == [
        "begins with an opening bracket",
        "begins with the piece “(”",
        "ends with a closing bracket",
        "ends with the piece “)”",
        "begins in lower case",
        "closes a quotation mark that it did not open",
    ]
    assert lengths == (9, len("( it went.” "), len("No. )"))


@pytest.mark.parametrize(
    ("text", "quotes", "brackets", "is_open"),
    [
        ("“Go on. (Now.)", {QUOTES[0]}, set(), False),
        ("went on.” He left.", {QUOTES[1]}, set(), False),
        ("went on.” “He", set(), set(), True),
        ("(so 「我们。", {QUOTES[0]}, {BRACKETS[0]}, False),
        ("so) it is", set(), {BRACKETS[1]}, True),
        ("", set(), set(), True),
    ],
)
def test_what_a_segment_leaves_open_is_seen(text, quotes, brackets, is_open):
    found = set(measure_segment(list(text)).features)
    assert (found & {*QUOTES}, found & {*BRACKETS}) == (quotes, brackets)
    assert ("ends without a stop" in found) == is_open


def test_original_ids_are_measured_and_rows_without_a_pair_left_out():
    examples = lay_out([("The river.", "Water.")] * 3, [0, -1, 1], [7, 8, 9])
    whole = measure_pairs(as_subject(examples))
    examples.input_ids[1], masked = get_tokenizer().mask_id, examples.input_ids[1]
    masks = {"masked_positions": np.ones(1, np.uint16), "masked_ids": np.array([masked], examples.input_ids.dtype)}
    for name, value in {**masks, "mask_offsets": np.array([0, 1, 1, 1])}.items():
        object.__setattr__(examples, name, value)
    found = measure_pairs(as_subject(examples))
    assert found.keys.tolist() == [7, 9]
    assert found.rows.tolist() == [0, 2]
    assert found.is_swapped.tolist() == [False, True]
    assert np.array_equal(found.columns, whole.columns)


def test_random_guesses_are_as_good_as_chance():
    """Over 100 sets the deviations in standard errors have a mean square of 1, itself +- 0.14."""
    rng, squares = np.random.default_rng(0), []
    for _ in range(100):
        columns, keys = rng.normal(size=(500, 5)), rng.integers(0, 2**63, 500).astype(np.uint64)
        accuracy, error = cross_validate(columns, rng.random(500) < 0.5, keys)
        squares.append(((accuracy - 0.5) / error) ** 2)
    assert 0.4 < np.mean(squares) < 1.42


def test_a_guess_learns_from_other_documents_alone():
    """Each document has a column that tells its label, so a guess that had seen it would be right."""
    keys = np.repeat(np.arange(50, dtype=np.uint64), 8)
    labels = np.random.default_rng(0).random(50)[keys] < 0.5
    accuracy, error = cross_validate(np.eye(50)[keys], labels, keys)
    assert (accuracy, error) == (0.5, pytest.approx(4 / 3 * 0.5 / 400))


# ---- verdicts on pairs ----

NUM_PAIRS = 12_000
ENGLISH, CHINESE = write(english_sentence, 3000, 1), write(chinese_sentence, 3000, 2)
GUESSES = ("order_from_lengths", "order_from_surface", "order_from_fragments")


def verdicts(rows):
    return {name: check.verdict for name, check in audit_pairs(rows).items()}


@pytest.mark.parametrize(
    ("lines", "count"),
    [(ENGLISH, NUM_PAIRS), (CHINESE, NUM_PAIRS), (ENGLISH + CHINESE, NUM_PAIRS), (ENGLISH, 1000)],
    ids=["English", "Chinese", "both", "few"],
)
@pytest.mark.parametrize("seed", range(3))
def test_sound_pairs_are_ok(seed, lines, count):
    found = verdicts(give_labels(list(make_pairs(count, seed, lines)), seed))
    assert found == dict.fromkeys(GUESSES, OK)


@pytest.mark.parametrize(("share", "of_all"), [(0.25, BAD), (0.05, OK)])
def test_sentences_cut_at_their_middle_are_found(share, of_all):
    checks = audit_pairs(give_labels(list(make_pairs(NUM_PAIRS, 5, ENGLISH, cut_sentence, share)), 5))
    assert checks["order_from_surface"].verdict == of_all
    assert checks["order_from_surface"].figure > 0.4 * share
    assert checks["order_from_fragments"].verdict == (BAD if share > 0.1 else LOOK)
    assert checks["order_from_fragments"].figure == pytest.approx(0.45 * share, rel=0.35)
    signs = checks["order_from_fragments"].details["signs"]
    assert {"begins in lower case", "ends without a stop"} <= {sign["sign"] for sign in signs}
    assert [sign["gain"] for sign in signs] == sorted((sign["gain"] for sign in signs), reverse=True)
    assert abs(signs[0]["later_share"] - 0.5) > 0.4
    assert signs[0]["count"] == pytest.approx(share * NUM_PAIRS, rel=0.3)
    named = f"strongest sign: a segment that {signs[0]['sign']} is the later one in "
    finding = checks["order_from_fragments"].finding
    assert named in finding
    assert f'{signs[0]["count"]:,}, as "{signs[0]["example"]}"' in finding


@pytest.mark.parametrize("lines", [ENGLISH, CHINESE], ids=["English", "Chinese"])
def test_long_sentences_at_the_outer_edges_are_found(lines):
    checks = audit_pairs(give_labels(list(make_pairs(NUM_PAIRS, 8, lines, put_longest_outside, 0.3)), 8))
    assert checks["order_from_lengths"].verdict in (LOOK, BAD)
    assert checks["order_from_fragments"].verdict == OK


# ---- what is not judged ----


@pytest.mark.parametrize(
    ("count", "num_documents", "is_judged"),
    [(MIN_PAIRS, 100, True), (MIN_PAIRS - 1, 100, False), (1000, 19, False), (1, 1, False)],
)
def test_few_pairs_or_documents_are_not_judged(count, num_documents, is_judged):
    rows = give_labels(list(make_pairs(count, 16, ENGLISH)), 16, num_documents)
    checks = audit_pairs(rows)
    assert all((checks[name].verdict != NOT_KNOWN) == is_judged for name in GUESSES)
    if not is_judged:
        assert "too few; at least 200 of 20 are needed" in checks["order_from_surface"].finding


def test_no_pair_at_all_is_not_judged():
    assert set(verdicts(lay_out([("The river.", "")] * 30, [-1] * 30, range(30))).values()) == {NOT_KNOWN}
