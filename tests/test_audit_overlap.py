"""Rows of validation whose text stands in training are found: whole, with changes, masked and divided otherwise."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any
from unicodedata import normalize

import build_fixtures as fixtures
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inspect_fixtures import configs, make_examples, text_documents
from test_audit import CLEAN, get_check, write_documents
from tokenizers import ByteLevelBPETokenizer
from toy_language import CHINESE, chinese_sentence, train_model

from albert_data.corpus.mixtures import find_sources
from albert_data.dedup.gram_index import index_grams, sort_grams
from albert_data.draws import mix
from albert_data.inspect.audit import overlap
from albert_data.inspect.audit.audit import audit_folder
from albert_data.inspect.audit.overlap import RowGrams
from albert_data.inspect.audit.rules import BAD, OK, Check
from albert_data.pipeline.build import build_shards
from albert_data.shards.rows import restore_ids
from albert_data.tokenizer.model import Tokenizer

OTHERS = write_documents(20, seed=31)


def audit_validation(
    folder: Path, tokenizer: Tokenizer, validation: list[str], training: list[str] = CLEAN, **changes: Any
) -> Check:
    config = fixtures.make_config(max_seq_len=64, validation_fraction=0.0, **changes)
    for name, documents in (("train.txt", training), ("validation.txt", validation)):
        (folder / name).write_bytes(fixtures.to_txt(documents))
    inputs = find_sources([str(folder / "train.txt")], text=config.text, validation=[str(folder / "validation.txt")])
    build_shards(inputs, folder / "out", tokenizer, config, fixtures.InlineEngine())
    return get_check(audit_folder(folder / "out"), "seen_rows")


def change_words(document: str, share: float) -> str:
    rng, others = random.Random(0), OTHERS[0].split()
    lines = (line.split() for line in document.split("\n"))
    changed = ([rng.choice(others) if rng.random() < share else word for word in line] for line in lines)
    return "\n".join(map(" ".join, changed))


@pytest.mark.parametrize("pairs", ["sop", "nsp", "order3", "none"])
def test_texts_with_another_header_are_found(pairs: str, tmp_path: Path, tokenizer: Tokenizer):
    headed = [f"{OTHERS[i].splitlines()[0]}\n{CLEAN[i]}" for i in range(8)]
    found = audit_validation(tmp_path, tokenizer, headed, pairs=pairs, seed=4)
    assert found.verdict == BAD
    assert (found.figure or 0) > 0.9


@pytest.mark.parametrize("kind", ["sop", "none", "byte-level"])
def test_texts_in_another_form_of_unicode_are_found(kind: str, tmp_path: Path):
    composed = [text.translate(str.maketrans("eoa", "éộå")) for text in CLEAN]
    lines = iter([line for text in composed for form in ("NFC", "NFD") for line in normalize(form, text).split("\n")])
    pairs = "sop" if kind == "byte-level" else kind
    if kind == "byte-level":
        learner = ByteLevelBPETokenizer()
        learner.train_from_iterator(lines, 700, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
        model = learner.to_str().encode()
    else:
        model = train_model(sentence_iterator=lines, normalization_rule_name="identity")
    headed = [normalize("NFD", f"{OTHERS[i].splitlines()[0]}\n{composed[i]}") for i in range(8)]
    found = audit_validation(tmp_path, Tokenizer(model, "tests'"), headed, composed, pairs=pairs, seed=4)
    assert found.verdict == BAD
    assert (found.figure or 0) > 0.9


def test_texts_with_a_tenth_of_their_words_changed_are_found(tmp_path: Path, tokenizer: Tokenizer):
    found = audit_validation(tmp_path, tokenizer, [change_words(text, 0.1) for text in CLEAN[:8]])
    assert found.verdict == BAD
    assert found.details["num_altered"] > 0
    assert (found.figure or 0) > 0.8
    example = found.details["examples"][0]
    assert example["text"] in found.finding
    assert found.finding.count(f"{example['training_row']:,}") == 1


def write_chinese(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return ["\n".join(chinese_sentence(rng) for _ in range(60)) for _ in range(count)]


def test_chinese_with_a_tenth_of_its_characters_changed_is_found(tmp_path: Path, tokenizer: Tokenizer):
    texts, rng, letters = write_chinese(30, seed=1), random.Random(2), "".join(CHINESE.split())
    altered = [
        "".join(rng.choice(letters) if rng.random() < 0.1 and one != "\n" else one for one in text)
        for text in texts[:9]
    ]
    found = audit_validation(tmp_path, tokenizer, altered, texts, language="zh")
    assert found.verdict == BAD
    assert (found.figure or 0) > 0.9
    (tmp_path / "other").mkdir()
    found = audit_validation(tmp_path / "other", tokenizer, write_chinese(9, seed=3), texts, language="zh")
    assert (found.verdict, found.figure) == (OK, 0.0)


def test_other_texts_are_not(tmp_path: Path, tokenizer: Tokenizer):
    found = audit_validation(tmp_path, tokenizer, OTHERS)
    assert (found.verdict, found.figure, found.details["examples"]) == (OK, 0.0, [])


# ---- kernels against plain Python ----


@given(
    documents=text_documents(),
    config=configs(),
    gram_lens=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    unspaced=st.lists(st.booleans(), min_size=1, max_size=3),
    random_label=st.sampled_from((-2, 0)),
)
def test_grams_are_those_of_the_original_text_in_the_order_of_the_document(
    documents, config, gram_lens, unspaced, random_label
):
    examples = make_examples(documents, config)
    ids, offsets = restore_ids(examples), examples.offsets.tolist()
    is_unspaced = np.resize(unspaced, ids.max(initial=0) + 1)
    hashes, begins = overlap.hash_grams(examples.arrays, ids, 1, random_label, gram_lens, is_unspaced)
    wanted = []
    for row, (begin, end) in enumerate(zip(offsets, offsets[1:], strict=False)):
        sep = begin + 1 + int(examples.segment_a_len[row])
        parts = [ids[begin + 1 : sep].tolist(), ids[sep + 1 : end - 1].tolist()]
        label = int(examples.sop_label[row])
        if label == 1:
            parts.reverse()
        texts = parts if label == random_label else [parts[0] + parts[1]]
        gram_len = gram_lens[sum(is_unspaced[sum(parts, [])].tolist()) * 2 > len(sum(parts, []))]
        grams = [tuple(text[i : i + gram_len]) for text in texts for i in range(len(text) - gram_len + 1)]
        assert begins[row + 1] - begins[row] == len(grams)
        wanted += grams
    pairs = set(zip(wanted, hashes.tolist(), strict=True))
    assert len(pairs) == len(set(wanted)) == len(set(hashes.tolist()))


Rows = list[list[int]]
some_rows = st.lists(st.lists(st.integers(0, 40), max_size=9), min_size=1, max_size=8)


def to_grams(rows: Rows) -> RowGrams:
    flat = np.array([gram for row in rows for gram in row], np.uint64)
    return RowGrams(mix(flat + np.uint64(1)), np.cumsum([0, *map(len, rows)]))


@given(training=some_rows, validation=some_rows, num_documents=st.integers(1, 4))
def test_seen_grams_are_counted_as_in_plain_python(training: Rows, validation: Rows, num_documents: int):
    owners = np.arange(len(training)) % num_documents
    index = index_grams(sort_grams(to_grams(validation).hashes))
    last_seen = np.full(len(index.hashes), -1)
    overlap.mark_seen(index, last_seen, to_grams(training), 0)
    num_grams, num_seen, most, rows = overlap.count_seen(index, last_seen, to_grams(validation), owners)
    last_rows = {gram: number for number, row in enumerate(training) for gram in row}
    for number, row in enumerate(validation):
        found = [last_rows[gram] for gram in row if gram in last_rows]
        counts = Counter(int(owners[one]) for one in found)
        assert (num_grams[number], num_seen[number]) == (len(row), len(found))
        assert most[number] == max(counts.values(), default=0)
        assert rows[number] in found if found else rows[number] == -1
        assert not found or counts[int(owners[rows[number]])] == most[number]
