"""What the audit measures on the surface of segments equals plain Python, and its regression a plain one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import surface_fixtures as fixtures
from hypothesis import given
from hypothesis import strategies as st

from albert_data.inspect.audit import surface as audit_surface
from albert_data.inspect.audit.guesses import guess_from
from albert_data.inspect.audit.regression import FOLDS, RIDGE, NumberDesign, StateDesign, cross_validate
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
def test_a_surface_is_measured_as_in_plain_python(pairs: list[tuple[str, str]]):
    pairs = [("A " + a, "B " + b) for a, b in pairs]
    examples = fixtures.lay_out(pairs, [0] * len(pairs), range(len(pairs)))
    surface = gather_surface([fixtures.as_shards(examples)])
    names = fixtures.get_tokenizer().pieces
    shown = [*audit_surface.show_pieces(fixtures.get_tokenizer()), None]
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
    examples = fixtures.lay_out([("The river.", "Water.")] * 3, [0, -1, 1], [7, 8, 9])
    whole = gather_surface([fixtures.as_shards(examples)])
    examples.input_ids[1], masked = fixtures.get_tokenizer().mask_id, examples.input_ids[1]
    masks = {"masked_positions": np.ones(1, np.uint16), "masked_ids": np.array([masked], examples.input_ids.dtype)}
    for name, value in {**masks, "mask_offsets": np.array([0, 1, 1, 1])}.items():
        object.__setattr__(examples, name, value)
    found = gather_surface([fixtures.as_shards(examples)])
    assert found.keys.tolist() == whole.keys.tolist() == [7, 9]
    assert found.is_swapped.tolist() == [False, True]
    assert found.first_pieces.tolist() == whole.first_pieces.tolist()


def test_no_more_than_the_given_number_of_pairs_is_measured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(audit_surface, "MAX_PAIRS", 5)
    examples = fixtures.lay_out([("The river.", "Water.")] * 3, [0, 1, 0], [1, 2, 3])
    assert gather_surface([fixtures.as_shards(examples, examples)] * 2).keys.tolist() == [1, 2, 3, 1, 2]


@pytest.mark.parametrize(
    ("character", "kind"),
    [
        ("a", "a lower-case letter"),
        ("É", "a capital"),
        ("中", "a letter without case"),
        ("٣", "a digit"),
        ("「", "an opening quotation mark"),
        ("»", "a closing quotation mark"),
        ('"', "a straight quotation mark"),
        ("’", "an apostrophe"),
        ("(", "an opening bracket"),
        ("。", "a stop"),
        ("—", "a dash"),
        (",", "other punctuation"),
        ("€", "a symbol"),
        ("\ufffd", "an unknown piece"),
        ("", "nothing visible"),
    ],
)
def test_a_character_is_of_its_kind(character: str, kind: str):
    assert KINDS[find_kind(character)] == kind


def test_the_case_of_a_piece_is_that_of_its_first_letter():
    found = [CASES[find_case(text)] for text in ("“He", "he", "CHAPTER", "我们", "12", "—")]
    assert found == [
        "a capital",
        "a letter in lower case",
        "a word in capitals",
        "a letter without case",
        "a digit",
        "none",
    ]


def test_exchanging_the_segments_exchanges_their_states():
    pairs = list(fixtures.make_pairs(50, 3, fixtures.write_english(50, 3)))
    there, back = (fixtures.lay_out(pairs, [label] * 50, range(50)) for label in (0, 1))
    tokenizer = fixtures.get_tokenizer()
    one, other = (make_features(gather_surface([fixtures.as_shards(rows)]), tokenizer) for rows in (there, back))
    assert one.names == other.names
    assert np.array_equal(one.states_a, other.states_b)
    assert np.array_equal(one.states_b, other.states_a)


def test_chosen_groups_keep_the_names_of_their_states():
    surface = gather_surface([fixtures.as_shards(fixtures.give_labels([("The river.", "Water.")] * 9, 0))])
    features = make_features(surface, fixtures.get_tokenizer())
    chosen = features.choose(("stops", "lengths"))
    groups = {features.names[state]: features.groups[state] for state in features.states_a[0]}
    wanted = {name for name, group in groups.items() if group in ("stops", "lengths")}
    assert {chosen.names[state] for state in chosen.states_a[0]} == wanted
    assert set(chosen.groups) == {"stops", "lengths"}


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
def test_both_designs_guess_like_newtons_method(strength: float):
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


def test_the_columns_of_states_are_what_they_say():
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0, 4, (30, 1)).astype(np.int16) for _ in range(2))
    columns = (a == np.arange(4)).astype(float) - (b == np.arange(4))
    fold, weights = rng.integers(0, FOLDS, 30), rng.normal(size=4)
    states, written = StateDesign(states_a=a, states_b=b, num_states=4), NumberDesign(values=columns)
    assert np.allclose(states.gram(fold), written.gram(fold))
    assert np.allclose(states.score(weights), written.score(weights))
    assert np.allclose(states.project(np.arange(30.0)), written.project(np.arange(30.0)))


def test_guesses_without_a_sign_are_as_good_as_chance():
    """Over 100 labellings the deviations in standard errors have a mean square of 1, itself +- 0.14."""
    rows = fixtures.give_labels(list(fixtures.make_pairs(600, 0, fixtures.write_english(300, 0))), 0)
    surface = gather_surface([fixtures.as_shards(rows)])
    features, rng, squares = make_features(surface, fixtures.get_tokenizer()), np.random.default_rng(0), []
    for _ in range(100):
        labelled = replace(surface, is_swapped=rng.random(len(surface)) < 0.5)
        accuracy, error = guess_from(labelled, features, ("marks", "words", "lengths"))
        squares.append(((accuracy - 0.5) / error) ** 2)
    assert 0.58 < np.mean(squares) < 1.42
