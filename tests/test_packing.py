"""Packs hold every token once, cut rows only before words, and are 99 % full where rows are long."""

from __future__ import annotations

import dataclasses
import pickle
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inspect_fixtures import SMALL, draw_sentences, get_tokenizer, make_examples, write_folder, write_sentences
from refusals import check_refused, refused

from albert_data.data import Examples
from albert_data.errors import ConfigError
from albert_data.shards import packing
from albert_data.shards.packing import Packs, check_pack, cut_rows, find_words, pack_rows, pack_split
from albert_data.shards.reader import Example, Shards, open_shards

SINGLES = dataclasses.replace(SMALL, pairs="none")
Cells = list[tuple[int, int]]  # of a row: each token of its text, and its original if it is masked, else -1


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Shards:
    """Rows without a pair, of words of several pieces, some with few words."""
    parts = [
        make_examples([*draw_sentences(40, seed), *write_sentences(40, seed)], SINGLES, 99 * seed) for seed in (1, 2)
    ]
    return open_shards(write_folder(tmp_path_factory.mktemp("packing") / "shards", {"train": parts}, SINGLES))


def lists_of(packs: Packs) -> list[list[tuple[int, int, int]]]:
    parts = list(zip(packs.rows.tolist(), packs.begins.tolist(), packs.ends.tolist(), strict=True))
    return [parts[begin:end] for begin, end in pairwise(packs.offsets.tolist())]


def check_packs(packs: Packs, lengths: list[int], pack_len: int, words: dict[int, list[int]]) -> set[int]:
    """Check by plain loops what packs promise. Returns the rows that are cut."""
    found: dict[int, list[tuple[int, int]]] = {}
    for pack in lists_of(packs):
        assert pack
        assert sum(end - begin + 2 for _, begin, end in pack) <= pack_len
        for row, begin, end in pack:
            found.setdefault(row, []).append((begin, end))
    for row, length in enumerate(lengths):
        at = 1
        for begin, end in sorted(found[row]):
            assert begin == at, "a token is lost or comes twice"
            assert begin == 1 or begin in words[row], "a cut is not before a word"
            assert end > begin or length == 2
            at = end
        assert at == length - 1
    return {row for row, parts in found.items() if len(parts) > 1}


@given(data=st.data(), pack_len=st.integers(20, 200), max_rows=st.integers(1, 9) | st.none())
def test_every_token_is_in_one_part_and_parts_begin_with_words(data, pack_len, max_rows):
    lengths = data.draw(st.lists(st.integers(2, pack_len), min_size=1, max_size=60))
    seldom = data.draw(st.integers(1, 9))
    words = {row: [at for at in range(1, length - 1) if at * 7 % seldom == 0] for row, length in enumerate(lengths)}

    def find_words(row: int) -> np.ndarray:
        return np.array(words[row], np.int64)

    packs = pack_rows(np.arange(len(lengths)), np.array(lengths), pack_len, max_rows=max_rows, find_words=find_words)
    cut = check_packs(packs, lengths, pack_len, words)
    assert max_rows is None or max(map(len, lists_of(packs))) <= max_rows
    if 4 * sum(lengths) < pack_len * len(lengths):
        assert len(cut) <= len(lengths) / 20, "rows are short"
    whole = pack_rows(np.arange(len(lengths)), np.array(lengths), pack_len, max_rows=max_rows)
    assert check_packs(whole, lengths, pack_len, {}) == set()
    assert len(whole.offsets) >= len(packs.offsets)


@pytest.mark.parametrize("shares", [(0.3, 1), (0.97, 1), (0.6, 0.6), (0.51, 0.52), (1, 1), (0.26, 0.34)])
@pytest.mark.parametrize("pack_len", [512, 8192])
def test_packs_of_long_rows_are_99_percent_full(shares, pack_len):
    low, high = (int(share * pack_len) for share in shares)
    lengths = np.random.default_rng(0).integers(low, high + 1, 1500)
    words = {row: list(range(1, n - 1, 2)) for row, n in enumerate(lengths)}
    packs = pack_rows(np.arange(1500), lengths, pack_len, find_words=lambda row: np.array(words[row]))
    used = np.add.reduceat(packs.lengths, packs.offsets[:-1])
    assert used[:-1].mean() >= 0.99 * pack_len
    assert used[-1] == used.min()
    check_packs(packs, lengths.tolist(), pack_len, words)


def test_no_cut_leaves_a_part_of_less_than_eight_tokens():
    lengths = np.random.default_rng(1).integers(10, 101, 500)
    packs = pack_rows(np.arange(500), lengths, 100, find_words=lambda row: np.arange(1, lengths[row] - 1))
    counts = np.bincount(packs.rows)
    assert (counts > 1).any()
    assert packs.lengths.min() >= 8


# ---- rows of shards ----


def cells_of(row: Example) -> Cells:
    masks = dict(zip(row.masked_positions.tolist(), row.masked_ids.tolist(), strict=True))
    return [(token, masks.get(at, -1)) for at, token in enumerate(row.input_ids.tolist())]


def read_parts(shards: Shards, packs: Packs) -> Examples:
    return cut_rows(shards.rows(packs.rows), packs.begins, packs.ends)


def test_parts_have_the_tokens_and_masks_of_their_rows_and_special_pieces_of_their_own(shards):
    packs = pack_split(shards, 32)
    parts, specials = read_parts(shards, packs), shards.tokenizer.specials
    assert len(packs.rows) > len(shards), "some rows are cut"
    found: dict[int, dict[int, Cells]] = {}
    for number, (row, begin) in enumerate(zip(packs.rows.tolist(), packs.begins.tolist(), strict=True)):
        ids = parts.input_ids[slice(*parts.offsets[number : number + 2])].tolist()
        masks = slice(*parts.mask_offsets[number : number + 2])
        originals = dict(zip(parts.masked_positions[masks].tolist(), parts.masked_ids[masks].tolist(), strict=True))
        cells = [(token, originals.pop(at, -1)) for at, token in enumerate(ids)]
        assert originals == {}
        assert (cells[0], cells[-1]) == ((specials.cls_id, -1), (specials.sep_id, -1))
        assert parts.segment_a_len[number] == len(ids) - 2
        assert parts.document_keys[number] == shards[row].document_key
        found.setdefault(row, {})[begin] = cells[1:-1]
    for row, texts in found.items():
        assert [cell for _, cells in sorted(texts.items()) for cell in cells] == cells_of(shards[row])[1:-1]
    assert sorted(found) == list(range(len(shards)))


def test_no_masked_word_is_divided(shards):
    texts, rule = get_tokenizer().piece_texts, get_tokenizer().word_rule()
    packs = pack_split(shards, 32)
    cuts = [(row, begin) for row, begin in zip(packs.rows.tolist(), packs.begins.tolist(), strict=True) if begin > 1]
    assert cuts
    for row, at in cuts:
        before, first = shards[row].original_ids[at - 1 : at + 1]
        assert rule.starts[first] + rule.standalone[before] > 0, (texts[before], texts[first])
        assert at in find_words(shards, row)


def test_the_packs_of_a_split_do_not_depend_on_the_windows_before(shards, monkeypatch):
    monkeypatch.setattr(packing, "WINDOW_PACKS", 8)
    packs = pack_split(shards, 32)
    words = {row: find_words(shards, row).tolist() for row in range(len(shards))}
    check_packs(packs, shards.lengths.tolist(), 32, words)
    half = len(shards) // round(shards.lengths.sum() / (8 * 32))
    first = pack_rows(
        np.arange(half), shards.lengths[:half], 32, find_words=pickle.loads(pickle.dumps(partial(find_words, shards)))
    )
    assert lists_of(packs)[: len(first.offsets) - 1] == lists_of(first)


def test_some_packs_are_taken_in_any_order(shards):
    packs = pack_split(shards, 40)
    every = lists_of(packs)
    assert lists_of(packs.take(np.array([3, 0, 3]))) == [every[3], every[0], every[3]]
    assert lists_of(packs.take(np.array([], np.int64))) == []
    for number in (-2, len(every)):
        with pytest.raises(IndexError):
            packs.take(np.array([0, number]))


@refused(
    ("8192", ConfigError, "pack is '8192'; give the tokens of a pack as a whole number, such as 8192"),
    (True, ConfigError, "pack is True; give the tokens"),
    (31, ConfigError, "pack is 31 & rows of shards have up to 32 tokens; give 32 or more, or & --max-seq-len 31"),
    (65_537, ConfigError, "pack is 65537; allowed are 8 to 65536"),
)
def test_a_length_that_holds_no_row_or_is_no_number_is_refused(shards, call, kind, named):
    check_refused(lambda: check_pack(call, shards.manifest, Path("shards")), kind, named)


def test_rows_with_a_sentence_task_are_refused(tmp_path):
    folder = write_folder(tmp_path / "sop", {"train": [make_examples(write_sentences(3, 1), SMALL)]})
    manifest, named = open_shards(folder).manifest, "sop was built with --pairs sop & a label & leave out pack"
    check_refused(lambda: check_pack(64, manifest, Path("sop")), ConfigError, named)
