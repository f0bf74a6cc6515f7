"""The audit finds pairs whose surface shows their order, and wrong labels; it is quiet on sound pairs."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import surface_fixtures as fixtures
from surface_fixtures import audit_pairs, give_labels, lay_out, make_pairs, write_chinese, write_english

from albert_data.inspect.audit.guesses import MIN_PAIRS
from albert_data.inspect.audit.rules import BAD, LOOK, NOT_KNOWN, OK

NUM_PAIRS = 12_000
ENGLISH, CHINESE = write_english(3000, seed=1), write_chinese(3000, seed=2)
GUESSES = ("order_from_surface", "order_from_fragments", "order_from_outer_sentences")


def verdicts(rows):
    return {name: check.verdict for name, check in audit_pairs(rows).items()}


@pytest.mark.parametrize("lines", [ENGLISH, CHINESE, ENGLISH + CHINESE], ids=["English", "Chinese", "both"])
@pytest.mark.parametrize("seed", range(3))
def test_sound_pairs_are_ok(seed: int, lines: list[str]):
    found = verdicts(give_labels(list(make_pairs(NUM_PAIRS, seed, lines)), seed))
    assert found == dict.fromkeys(GUESSES, OK) | {"labels_against_quotes": NOT_KNOWN}


@pytest.mark.parametrize("seed", range(20))
def test_a_thousand_sound_pairs_are_ok(seed: int):
    found = verdicts(give_labels(list(make_pairs(1000, seed, ENGLISH)), seed))
    assert {found[name] for name in GUESSES} == {OK}


@pytest.mark.parametrize(("share", "of_all"), [(0.25, BAD), (0.05, OK)])
def test_sentences_cut_at_their_middle_are_found(share: float, of_all: str):
    checks = audit_pairs(give_labels(list(make_pairs(NUM_PAIRS, 5, ENGLISH, fixtures.cut_sentence, share)), 5))
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
    pairs = list(make_pairs(NUM_PAIRS, 6, ENGLISH, fixtures.cut_sentence, 0.3))
    check = audit_pairs(give_labels(pairs, 6))["order_from_surface"]
    names = [sign["sign"] for sign in check.details["signs"]]
    assert names[0] == "ends with a stop"
    assert "begins with a capital" in names
    assert "strongest sign: a segment that ends with a stop is the later one in 100.00 % of" in check.finding
    gains = [sign["gain"] for sign in check.details["signs"]]
    assert gains == sorted(gains, reverse=True)
    assert len(set(zip(gains, names, strict=True))) == len(gains)


def test_headings_as_segments_are_found():
    checks = audit_pairs(give_labels(list(make_pairs(NUM_PAIRS, 7, ENGLISH, fixtures.part_heading, 0.1)), 7))
    assert checks["order_from_fragments"].verdict == BAD
    assert "without a stop" in checks["order_from_fragments"].finding


@pytest.mark.parametrize("lines", [ENGLISH, CHINESE], ids=["English", "Chinese"])
def test_long_sentences_at_the_outer_edges_are_found(lines: list[str]):
    checks = audit_pairs(give_labels(list(make_pairs(NUM_PAIRS, 8, lines, fixtures.put_longest_outside, 0.3)), 8))
    assert checks["order_from_outer_sentences"].verdict in (LOOK, BAD)
    assert checks["order_from_fragments"].verdict == OK


def test_the_guess_does_not_depend_on_which_label_means_swapped():
    rows = give_labels(list(make_pairs(3000, 9, ENGLISH, fixtures.cut_sentence, 0.3)), 9)
    other = replace(rows, sop_label=1 - rows.sop_label)
    one, inverted = audit_pairs(rows)["order_from_surface"], audit_pairs(other)["order_from_surface"]
    assert one.details["accuracy"] == pytest.approx(inverted.details["accuracy"], abs=0.002)


# ---- labels ----


def quote_some(seed: int):
    return give_labels(list(make_pairs(3000, seed, ENGLISH, fixtures.quote_across, 0.05)), seed)


def test_labels_that_agree_with_quotation_marks_are_ok():
    check = audit_pairs(quote_some(11))["labels_against_quotes"]
    assert check.verdict == OK
    assert check.details == {"count": 0, "of": pytest.approx(150, abs=50)}
    assert check.finding.startswith("100.00 % of ")
    assert "half of them with random labels" in check.finding


def test_inverted_labels_are_bad():
    rows = quote_some(12)
    check = audit_pairs(replace(rows, sop_label=1 - rows.sop_label))["labels_against_quotes"]
    assert (check.verdict, check.figure) == (BAD, 1)


@pytest.mark.parametrize(("share", "verdict"), [(1.0, BAD), (0.65, BAD), (0.12, OK)])
def test_inverted_labels_of_most_documents_are_found(share: float, verdict: str):
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


def test_a_stray_quotation_mark_is_no_wrong_label():
    pairs = list(make_pairs(3000, 15, ENGLISH, fixtures.quote_across, 0.05))
    odd = next(i for i, (earlier, _) in enumerate(pairs) if "“" in earlier)
    pairs[odd] = pairs[odd][::-1]
    check = audit_pairs(give_labels(pairs, 15))["labels_against_quotes"]
    assert (check.verdict, check.figure, check.details["count"]) == (OK, 0, 1)


# ---- what is not judged ----


@pytest.mark.parametrize(
    ("count", "num_documents", "is_judged"),
    [(MIN_PAIRS, 100, True), (MIN_PAIRS - 1, 100, False), (1000, 19, False), (1, 1, False)],
)
def test_few_pairs_or_documents_are_not_judged(count: int, num_documents: int, is_judged: bool):
    rows = give_labels(list(make_pairs(count, 16, ENGLISH)), 16, num_documents)
    checks = audit_pairs(rows)
    assert all((checks[name].verdict != NOT_KNOWN) == is_judged for name in GUESSES)
    if not is_judged:
        assert "too few; at least 200 of 20 are needed" in checks["order_from_surface"].finding


def test_rows_without_a_pair_are_left_out():
    rng = random.Random(17)
    pairs = list(make_pairs(600, 17, ENGLISH))
    rows = lay_out(pairs, [rng.choice((-1, 0, 1)) for _ in pairs], range(600))
    num_pairs = int((rows.sop_label >= 0).sum())
    keep = [i for i in range(600) if rows.sop_label[i] >= 0]
    alone = lay_out([pairs[i] for i in keep], [int(rows.sop_label[i]) for i in keep], keep)
    assert num_pairs > 300
    for name, check in audit_pairs(rows).items():
        assert check.to_dict() == audit_pairs(alone)[name].to_dict()


def test_no_pair_at_all_is_not_judged():
    rows = lay_out([("The river.", "")] * 30, [-1] * 30, range(30))
    assert set(verdicts(rows).values()) == {NOT_KNOWN}
