"""The audit finds pairs whose surface shows their order, and wrong labels; it is quiet on sound pairs.

What it measures equals plain Python, and its regression a plain one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_language import chinese_sentence, english_sentence, make_sentences, train_model

from albert_data.data import Examples
from albert_data.inspect.audit import surface as audit_surface
from albert_data.inspect.audit.guesses import MIN_PAIRS, check_surface
from albert_data.inspect.audit.regression import FOLDS, RIDGE, NumberDesign, StateDesign, cross_validate
from albert_data.inspect.audit.rules import BAD, LOOK, NOT_KNOWN, OK, Check
from albert_data.inspect.audit.surface import (
    CASES,
    CLOSERS,
    KINDS,
    STOPS,
    find_case,
    find_kind,
    gather_surface,
    make_features,
)
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


def write_english(count: int, seed: int) -> Sentences:
    rng = random.Random(seed)
    return [english_sentence(rng) for _ in range(count)]


def write_chinese(count: int, seed: int) -> Sentences:
    rng = random.Random(seed)
    return [chinese_sentence(rng) for _ in range(count)]


def part(rng: random.Random, taken: Sentences, joint: str = " ") -> Pair:
    """A sound pair: parted between two sentences."""
    at = rng.randrange(1, len(taken))
    return joint.join(taken[:at]), joint.join(taken[at:])


def cut_sentence(rng: random.Random, taken: Sentences) -> Pair:
    """One sentence cut at its middle."""
    words = max(taken, key=len).split(" ")
    return " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])


def part_heading(rng: random.Random, taken: Sentences) -> Pair:
    """A heading as the earlier segment."""
    return f"{taken[0].split()[0]} {rng.randint(1, 99)}", " ".join(taken[1:])


def put_longest_outside(rng: random.Random, taken: Sentences) -> Pair:
    """The sentences that are longest at the outer edges."""
    ranked = sorted(taken, key=len)
    return part(rng, [ranked[-1], *ranked[:-2], ranked[-2]])


def quote_across(rng: random.Random, taken: Sentences) -> Pair:
    """A quotation that goes on across the boundary."""
    earlier, later = part(rng, taken)
    return f"“{earlier}", f"{later}”"


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


def as_shards(*batches: Examples) -> Any:
    """What a check asks of a split."""
    return SimpleNamespace(tokenizer=get_tokenizer(), batches=lambda: iter(batches))


def audit_pairs(examples: Examples) -> dict[str, Check]:
    """The checks of the surface by name."""
    return {check.rule.name: check for check in check_surface([as_shards(examples)])}


# ---- what is measured ----

CHARACTERS = 'the river walked Quickly 12 我们 。，.!?,“”"()[]’- '
texts = st.text(st.sampled_from(CHARACTERS), max_size=60)


def plain_depth(text: str, opening: str, closing: str) -> tuple[int, int]:
    """Marks that are closed and not opened, and opened and not closed."""
    unopened = unclosed = 0
    for character in text:
        if character in opening:
            unclosed += 1
        elif character in closing and unclosed:
            unclosed -= 1
        elif character in closing:
            unopened += 1
    return unopened, unclosed


def plain_sentences(shown: list[str]) -> tuple[int, int, bool]:
    """Tokens of the first and the last sentence, and whether no stop ends the last. shown: the text of each token."""
    begins, is_over = [0], False
    for at, text in enumerate(shown):
        body = text.rstrip(CLOSERS)
        if text and body and body[-1] in STOPS:
            is_over = True
        elif text and body and is_over:
            begins.append(at)
            is_over = False
    bounds = [*begins, len(shown)]
    return bounds[1], bounds[-1] - bounds[-2], not is_over


def plain_measures(pieces: list[str]) -> dict[str, object]:
    shown = ["\ufffd" if piece == "<unk>" else piece.replace("▁", "") for piece in pieces]
    text = "".join(shown)
    first_len, last_len, ends_open = plain_sentences(shown)
    return {
        "lens": len(pieces),
        "first_pieces": next((text for text in shown if text), None),
        "last_pieces": next((text for text in reversed(shown) if text), None),
        "letter_pieces": next((text for text in shown if any(map(str.isalnum, text))), None),
        "quotes": plain_depth(text, "“", "”"),
        "brackets": plain_depth(text, "([", ")]"),
        "straight": text.count('"'),
        "sentences": (first_len, last_len, ends_open),
    }


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=4))
def test_a_surface_is_measured_as_in_plain_python(pairs):
    pairs = [("A " + a, "B " + b) for a, b in pairs]
    examples = lay_out(pairs, [0] * len(pairs), range(len(pairs)))
    surface = gather_surface([as_shards(examples)])
    names = get_tokenizer().pieces
    shown = [*audit_surface.show_pieces(get_tokenizer()), None]
    for row in range(len(pairs)):
        begin, end = examples.offsets[row], examples.offsets[row + 1]
        sep = begin + 1 + examples.segment_a_len[row]
        for segment, (first, stop) in enumerate([(begin + 1, sep), (sep + 1, end - 1)]):
            wanted = plain_measures([names[i] for i in examples.input_ids[first:stop]])
            found = {name: getattr(surface, name)[row, segment].item() for name in audit_surface.MEASURES}
            for name in ("first_pieces", "last_pieces", "letter_pieces"):
                assert shown[found[name]] == wanted[name]
            assert found["lens"] == wanted["lens"]
            assert (found["unopened"], found["unclosed"]) == wanted["quotes"]
            assert (found["unopened_brackets"], found["unclosed_brackets"]) == wanted["brackets"]
            assert found["straight"] == wanted["straight"]
            assert (found["first_lens"], found["last_lens"], bool(found["ends_open"])) == wanted["sentences"]


def test_original_ids_are_measured_and_rows_without_a_pair_left_out():
    examples = lay_out([("The river.", "Water.")] * 3, [0, -1, 1], [7, 8, 9])
    whole = gather_surface([as_shards(examples)])
    examples.input_ids[1], masked = get_tokenizer().mask_id, examples.input_ids[1]
    masks = {"masked_positions": np.ones(1, np.uint16), "masked_ids": np.array([masked], examples.input_ids.dtype)}
    for name, value in {**masks, "mask_offsets": np.array([0, 1, 1, 1])}.items():
        object.__setattr__(examples, name, value)
    found = gather_surface([as_shards(examples)])
    assert found.keys.tolist() == whole.keys.tolist() == [7, 9]
    assert found.is_swapped.tolist() == [False, True]
    assert found.first_pieces.tolist() == whole.first_pieces.tolist()


def test_no_more_than_the_given_number_of_pairs_is_measured(monkeypatch):
    monkeypatch.setattr(audit_surface, "MAX_PAIRS", 5)
    examples = lay_out([("The river.", "Water.")] * 3, [0, 1, 0], [1, 2, 3])
    assert gather_surface([as_shards(examples, examples)] * 2).keys.tolist() == [1, 2, 3, 1, 2]


SHOWN_KINDS = {
    **{"a": "a lower-case letter", "É": "a capital", "中": "a letter without case", "٣": "a digit"},
    **{"「": "an opening quotation mark", "»": "a closing quotation mark", '"': "a straight quotation mark"},
    **{"’": "an apostrophe", "(": "an opening bracket", "。": "a stop", "—": "a dash", ",": "other punctuation"},
    **{"€": "a symbol", "\ufffd": "an unknown piece", "": "nothing visible"},
}
SHOWN_CASES = {
    **{"“He": "a capital", "he": "a letter in lower case", "CHAPTER": "a word in capitals"},
    **{"我们": "a letter without case", "12": "a digit", "—": "none"},
}


def test_a_character_is_of_its_kind_and_the_case_of_a_piece_is_that_of_its_first_letter():
    assert {character: KINDS[find_kind(character)] for character in SHOWN_KINDS} == SHOWN_KINDS
    assert {text: CASES[find_case(text)] for text in SHOWN_CASES} == SHOWN_CASES


def test_exchanging_the_segments_exchanges_their_states():
    pairs = list(make_pairs(50, 3, write_english(50, 3)))
    there, back = (lay_out(pairs, [label] * 50, range(50)) for label in (0, 1))
    tokenizer = get_tokenizer()
    one, other = (make_features(gather_surface([as_shards(rows)]), tokenizer) for rows in (there, back))
    assert one.names == other.names
    assert np.array_equal(one.states_a, other.states_b)
    assert np.array_equal(one.states_b, other.states_a)


def plain_right(columns: np.ndarray, is_swapped: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Newton's method, a hundred steps."""
    guesses = np.zeros(len(fold), bool)
    for held_out in range(FOLDS):
        rows, labels = columns[fold != held_out], is_swapped[fold != held_out]
        weights = np.zeros(columns.shape[1])
        for _ in range(100):
            chances = 1 / (1 + np.exp(-rows @ weights))
            curve = (rows * (chances * (1 - chances))[:, None]).T @ rows + RIDGE * len(rows) * np.eye(len(weights))
            weights += np.linalg.solve(curve, rows.T @ (labels - chances) - RIDGE * len(rows) * weights)
        guesses[fold == held_out] = columns[fold == held_out] @ weights > 0
    return np.where((columns == 0).all(axis=1), 0.5, guesses == is_swapped)


@pytest.mark.parametrize("strength", [0.0, 0.3, 1.0])
def test_both_designs_guess_like_newtons_method(strength):
    rng = np.random.default_rng(0)
    a, b = (np.stack([rng.integers(0, 3, 2000), rng.integers(3, 8, 2000)], axis=1).astype(np.int16) for _ in range(2))
    logits = strength * (a[:, 0] - b[:, 0] + (a[:, 1] == 5) - (b[:, 1] == 5))
    is_swapped, fold = rng.random(2000) < 1 / (1 + np.exp(-logits)), rng.integers(0, FOLDS, 2000)
    columns = np.zeros((2000, 8))
    for states, sign in ((a, 1), (b, -1)):
        for feature in range(2):
            np.add.at(columns, (np.arange(2000), states[:, feature]), sign)
    wanted = plain_right(columns, is_swapped, fold)
    for design in (NumberDesign(values=columns), StateDesign(states_a=a, states_b=b, num_states=8)):
        assert np.count_nonzero(cross_validate(design, is_swapped, fold) != wanted) <= 2


# ---- verdicts on pairs ----

NUM_PAIRS = 12_000
ENGLISH, CHINESE = write_english(3000, seed=1), write_chinese(3000, seed=2)
GUESSES = ("order_from_surface", "order_from_fragments", "order_from_outer_sentences")


def verdicts(rows):
    return {name: check.verdict for name, check in audit_pairs(rows).items()}


@pytest.mark.parametrize("lines", [ENGLISH, CHINESE, ENGLISH + CHINESE], ids=["English", "Chinese", "both"])
@pytest.mark.parametrize("seed", range(2))
def test_sound_pairs_are_ok(seed, lines):
    found = verdicts(give_labels(list(make_pairs(NUM_PAIRS, seed, lines)), seed))
    assert found == dict.fromkeys(GUESSES, OK) | {"labels_against_quotes": NOT_KNOWN}


@pytest.mark.parametrize("seed", range(10))
def test_a_thousand_sound_pairs_are_ok(seed):
    found = verdicts(give_labels(list(make_pairs(1000, seed, ENGLISH)), seed))
    assert {found[name] for name in GUESSES} == {OK}


@pytest.mark.parametrize(("share", "of_all"), [(0.25, BAD), (0.05, OK)])
def test_sentences_cut_at_their_middle_are_found(share, of_all):
    checks = audit_pairs(give_labels(list(make_pairs(NUM_PAIRS, 5, ENGLISH, cut_sentence, share)), 5))
    assert checks["order_from_surface"].verdict == of_all
    assert checks["order_from_surface"].figure > 0.4 * share
    assert checks["order_from_fragments"].verdict == (BAD if share > 0.1 else LOOK)
    assert checks["order_from_fragments"].figure == pytest.approx(0.45 * share, rel=0.35)
    strongest = checks["order_from_fragments"].details["signs"][0]
    later_share = max(strongest["later_share"], 1 - strongest["later_share"])
    assert later_share > 0.9
    assert strongest["count"] == pytest.approx(share * NUM_PAIRS, rel=0.3)
    assert "segment that" in checks["order_from_fragments"].finding


def test_the_strongest_sign_is_named_in_words():
    pairs = list(make_pairs(NUM_PAIRS, 6, ENGLISH, cut_sentence, 0.3))
    check = audit_pairs(give_labels(pairs, 6))["order_from_surface"]
    names = [sign["sign"] for sign in check.details["signs"]]
    assert names[0] == "ends with a stop"
    assert "begins with a capital" in names
    assert "strongest sign: a segment that ends with a stop is the later one in 100.00 % of" in check.finding
    gains = [sign["gain"] for sign in check.details["signs"]]
    assert gains == sorted(gains, reverse=True)
    assert len(set(zip(gains, names, strict=True))) == len(gains)


def test_headings_as_segments_are_found():
    checks = audit_pairs(give_labels(list(make_pairs(NUM_PAIRS, 7, ENGLISH, part_heading, 0.1)), 7))
    assert checks["order_from_fragments"].verdict == BAD
    assert "without a stop" in checks["order_from_fragments"].finding


@pytest.mark.parametrize("lines", [ENGLISH, CHINESE], ids=["English", "Chinese"])
def test_long_sentences_at_the_outer_edges_are_found(lines):
    checks = audit_pairs(give_labels(list(make_pairs(NUM_PAIRS, 8, lines, put_longest_outside, 0.3)), 8))
    assert checks["order_from_outer_sentences"].verdict in (LOOK, BAD)
    assert checks["order_from_fragments"].verdict == OK


# ---- labels ----


def quote_some(seed: int):
    return give_labels(list(make_pairs(3000, seed, ENGLISH, quote_across, 0.05)), seed)


def test_labels_that_agree_with_quotation_marks_are_ok():
    check = audit_pairs(quote_some(11))["labels_against_quotes"]
    assert check.verdict == OK
    assert check.details == {"count": 0, "of": pytest.approx(150, abs=50)}
    assert check.finding.startswith("100.00 % of ")
    assert "half of them with random labels" in check.finding


@pytest.mark.parametrize(("share", "verdict"), [(1.0, BAD), (0.65, BAD), (0.12, OK)])
def test_inverted_labels_of_most_documents_are_found(share, verdict):
    """Of a few they are not: sound dialogue contradicts its labels as often."""
    rows = quote_some(13)
    keys = np.unique(rows.document_keys)
    is_wrong = np.isin(rows.document_keys, keys[: int(share * len(keys))])
    check = audit_pairs(replace(rows, sop_label=np.where(is_wrong, 1 - rows.sop_label, rows.sop_label)))
    assert check["labels_against_quotes"].verdict == verdict
    details = check["labels_against_quotes"].details
    assert details["count"] / details["of"] == pytest.approx(share, abs=0.1)


def test_labels_drawn_at_random_are_found():
    rows, rng = quote_some(14), np.random.default_rng(0)
    check = audit_pairs(replace(rows, sop_label=rng.integers(0, 2, len(rows)).astype(np.int8)))
    assert check["labels_against_quotes"].verdict in (LOOK, BAD)


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
    rows = lay_out([("The river.", "")] * 30, [-1] * 30, range(30))
    assert set(verdicts(rows).values()) == {NOT_KNOWN}
