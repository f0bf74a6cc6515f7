"""Statistics equal a slow count over lists, and are compared with the figures of the paper."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inspect_fixtures import (
    configs,
    get_tokenizer,
    make_examples,
    text_documents,
    write_folder,
    write_small,
)

from albert_data.config import ExampleConfig
from albert_data.data import Examples
from albert_data.inspect.report import tabulate_scripts
from albert_data.inspect.statistics import Statistics, count_scripts, measure
from albert_data.shards.reader import Example, open_shards
from albert_data.tokenizer.words import WordRule


def measure_reference(shards: Iterable[Example], config: ExampleConfig) -> Statistics:
    """Count row by row, token by token."""
    counts: Counter[object] = Counter()
    keys, pieces = set(), [0] * get_tokenizer().vocab_size
    for example in shards:
        keys.add(example.document_key)
        for i in example.original_ids.tolist():
            counts["unknown"] += i == get_tokenizer().unk_id
            counts["maskable"] += not get_tokenizer().specials.is_special[i]
            pieces[i] += not get_tokenizer().specials.is_special[i]
        counts["length", len(example.input_ids)] += 1
        counts["label", example.sop_label] += 1
        count_standing(example, counts)
        for words in find_segment_words(example, config):
            count_words(example, words, config, counts)
    spans = [*range(1, config.longest_span + 1), "longer"]
    return Statistics(
        config=config,
        num_documents=len(keys),
        num_unk=counts["unknown"],
        num_maskable=counts["maskable"],
        label_counts=tuple(counts["label", label] for label in (0, 1, -1)),
        shown_counts=tuple(counts[kind] for kind in ("mask", "random", "kept")),
        row_lens=tuple(counts["length", length] for length in range(config.max_seq_len + 1)),
        span_lens=tuple(counts["span", length] for length in spans),
        piece_counts=tuple(pieces),
    )


def count_standing(example: Example, counts: Counter[object]) -> None:
    specials = get_tokenizer().specials
    for position, original in zip(example.masked_positions, example.masked_ids, strict=True):
        standing = example.input_ids[position]
        kind = "mask" if standing == specials.mask_id else "kept" if standing == original else "random"
        counts[kind] += 1


def find_segments(example: Example) -> Iterator[range]:
    sep = 1 + example.segment_a_len
    yield range(1, sep)
    yield range(sep + 1, len(example.input_ids) - 1)


def begins_word(ids: np.ndarray, at: int, rule: WordRule) -> bool:
    after, before = rule.starts[ids[at]], rule.standalone[ids[at - 1]]
    return bool((after > 0 or before > 0) and after >= 0 and before >= 0)


def find_segment_words(example: Example, config: ExampleConfig) -> Iterator[list[list[int]]]:
    """The words of each segment as lists of positions, special pieces and white space left out."""
    tokenizer, ids = get_tokenizer(), example.original_ids
    rule = tokenizer.word_rule(config)
    for segment in find_segments(example):
        words: list[list[int]] = []
        for at in segment:
            if tokenizer.specials.is_special[ids[at]] or (config.masks_words and tokenizer.pieces[ids[at]] == "▁"):
                continue
            follows = bool(words) and words[-1][-1] == at - 1
            if not follows or begins_word(ids, at, rule):
                words.append([])
            words[-1].append(at)
        yield words


def count_words(example: Example, words: list[list[int]], config: ExampleConfig, counts: Counter[object]) -> None:
    masked = set(example.masked_positions.tolist())
    for is_masked, run in groupby(words, key=masked.issuperset):
        length = len(list(run))
        if is_masked and config.span_gap:
            counts["span", length if length <= config.longest_span else "longer"] += 1
        elif is_masked:
            counts["span", 1] += length


def remask(examples: Examples, choices: st.DataObject) -> Examples:
    """Other masks, anywhere in each row and by anything, so that every rule of masking is broken."""
    ids, positions, originals, offsets = examples.input_ids.copy(), [], [], [0]
    piece = st.integers(0, get_tokenizer().vocab_size - 1)
    for begin, end in zip(examples.offsets, examples.offsets[1:], strict=False):
        chosen = choices.draw(st.sets(st.integers(0, int(end - begin) - 1), max_size=12))
        for position in sorted(chosen):
            positions.append(position)
            originals.append(ids[begin + position])
            ids[begin + position] = choices.draw(st.just(int(originals[-1])) | st.just(4) | piece)
        offsets.append(len(positions))
    return replace(
        examples,
        input_ids=ids,
        masked_positions=np.array(positions, np.uint16),
        masked_ids=np.array(originals, ids.dtype),
        mask_offsets=np.array(offsets),
    )


@given(documents=text_documents(), config=configs(), is_sound=st.booleans(), choices=st.data())
def test_statistics_equal_a_slow_count(documents, config, is_sound, choices):
    half = len(documents) // 2
    parts = [make_examples(documents[:half], config), make_examples(documents[half:], config, half)]
    with TemporaryDirectory() as folder:
        train = parts if is_sound else [remask(part, choices) for part in parts]
        shards = open_shards(write_folder(Path(folder), {"train": train}, config))
        assert measure(shards) == measure_reference(shards, config)


def test_intended_figures_are_those_of_the_paper(tmp_path):
    figures = {figure.name: figure.intended for figure in measure(open_shards(write_small(tmp_path))).figures}
    assert figures["masked_share"] == 0.15
    assert [figures[f"spans_of_{n}"] for n in (1, 2, 3)] == pytest.approx([6 / 11, 3 / 11, 2 / 11])
    shown = [figures[f"shown_as_{kind}"] for kind in ("mask", "random", "kept")]
    assert [*shown, figures["swapped_share"]] == [0.8, 0.1, 0.1, 0.5]


def make_statistics(row_lens: list[int]) -> Statistics:
    config = ExampleConfig(max_seq_len=len(row_lens) - 1)
    return replace(measure_reference((), config), row_lens=tuple(row_lens), piece_counts=(3, 0, 7, 7, 1))


@given(st.lists(st.integers(0, 9), min_size=9, max_size=70).filter(any))
def test_lengths_are_those_of_the_rows_themselves(row_lens):
    measured, lengths = make_statistics(row_lens), np.repeat(np.arange(len(row_lens)), row_lens)
    assert measured.mean_row_len == pytest.approx(lengths.mean())
    quantiles = np.quantile(lengths, (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1), method="inverted_cdf")
    assert list(measured.row_len_quantiles.values()) == quantiles.tolist()
    padded = len(lengths) * measured.config.max_seq_len
    assert measured.padding_share == pytest.approx(1 - lengths.sum() / padded)
    bins = [((lengths >= first) & (lengths <= last)).sum() for first, last, _ in measured.row_len_bins]
    assert bins == [num_rows for *_, num_rows in measured.row_len_bins]
    assert sum(bins) == (lengths > 0).sum()


def test_a_split_without_rows_has_no_shares(tmp_path):
    shards = open_shards(write_folder(tmp_path, {}), "validation")
    measured = measure(shards)
    assert measured.num_rows == 0
    assert {figure.realised for figure in measured.figures} == {None, 0}
    assert set(measured.row_len_quantiles.values()) == {None}


def test_statistics_are_valid_json_without_nan(tmp_path):
    for split in ("train", "validation"):
        measured = measure(open_shards(write_small(tmp_path), split)).to_dict()
        assert json.loads(json.dumps(measured, allow_nan=False)) == json.loads(json.dumps(measured))
    empty = make_statistics([0] * 20).to_dict()
    assert json.loads(json.dumps(empty, allow_nan=False))["figures"]["masked_share"]["realised"] is None


# ---- scripts ----

PIECES = ["<unk>", "[CLS]", "<0xE2>", "▁the", "é", "我们", "мир", "aб", ".", "▁", "12"]


def test_letters_and_tokens_are_counted_by_script():
    counts = count_scripts([9, 9, 9, 10, 2, 5, 1, 1, 50, 50, 50], PIECES)
    found = {one.script: (one.num_letters, one.num_tokens) for one in counts}
    assert found == {"Latin": (33, 13), "Cjk": (10, 5), "Cyrillic": (4, 1)}
    assert [one.script for one in counts] == ["Latin", "Cjk", "Cyrillic"]
    assert sum(one.share for one in counts) == 1


def test_one_script_and_a_few_loans_need_no_table(tmp_path):
    assert count_scripts([5] * 3 + [0] * 5 + [5] * 3, PIECES) == []
    assert count_scripts([5, 5], ["▁[UNK]", "▁<0xE4><0xB8>"]) == []
    measured, pieces = measure(open_shards(write_small(tmp_path))), get_tokenizer().pieces
    assert [row[0] for row in tabulate_scripts("train", measured, pieces)] == ["Scripts of train", "Latin", "Cjk"]
    loans = replace(measured, piece_counts=(0, 0, 0, 100, 0, 0, 0, 1, 0, 0, 0))
    assert len(count_scripts(loans.piece_counts, PIECES)) == 2
    assert len(tabulate_scripts("train", loans, PIECES)) == 2
