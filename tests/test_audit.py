"""`audit` finds each fault in shards built from a corpus that has it, and is quiet on one that has none."""

from __future__ import annotations

import json
import os
import random
import shutil
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import build_fixtures as fixtures
import numpy as np
import pytest
from audit_reference import RULES as ALL_RULES
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from inspect_fixtures import configs, edit_rows, get_tokenizer, make_examples, put, text_documents
from test_library_tokenizers import train_roberta
from toy_language import CHINESE, chinese_sentence, make_sentences, train_model

from albert_data.cli.main import cli, run
from albert_data.config import TextConfig
from albert_data.corpus.inputs import find_inputs
from albert_data.corpus.mixtures import find_sources
from albert_data.data import Examples
from albert_data.errors import InputError
from albert_data.inspect.audit import overlap
from albert_data.inspect.audit.audit import Audit, audit_folder
from albert_data.inspect.audit.corpus import find_lost, read_corpus
from albert_data.inspect.audit.overlap import RowGrams, hash_grams
from albert_data.inspect.audit.rows import measure_rows
from albert_data.inspect.audit.rules import BAD, LOOK, NOT_KNOWN, OK, UNPAIRED_ROWS, Check
from albert_data.kernels.draws import mix
from albert_data.pipeline.build import build_shards
from albert_data.shards.rows import restore_ids
from albert_data.survey.gram_index import index_grams, sort_grams
from albert_data.tokenizer.model import Tokenizer

NEED_CORPUS = {"lost_characters", "near_duplicates"}
NEED_BYTES = {"byte_pieces"}  # a tokenizer with byte pieces
NEED_SOURCES = {"largest_source"}  # rows with sources
RULES = [rule for rule in ALL_RULES if rule.name not in NEED_BYTES | NEED_SOURCES]
Documents = list[str]


def write_documents(count: int, seed: int) -> Documents:
    """Made-up documents of some 30 sentences, a few rows each.

    Shuffled, since every third sentence is Chinese as they are made: documents would all begin alike.
    """
    lines = list(make_sentences(30 * count, seed=seed))
    random.Random(seed).shuffle(lines)
    return ["\n".join(lines[begin : begin + 30]) for begin in range(0, len(lines), 30)]


def build_and_audit(
    folder: Path, tokenizer: Tokenizer, files: dict[str, Documents], *, with_corpus: bool, **changes: Any
) -> Audit:
    (folder / "in").mkdir(parents=True)
    for name, documents in files.items():
        (folder / "in" / name).write_bytes(fixtures.to_txt(documents))
    fixtures.run_build(folder / "in", folder / "out", tokenizer, max_seq_len=64, **changes)
    return audit_folder(folder / "out", find_inputs([str(folder / "in")]) if with_corpus else None)


def get_check(audit: Audit, name: str) -> Check:
    return next(check for check in audit.checks if check.rule.name == name)


def verdicts(audit: Audit) -> dict[str, str]:
    return {check.rule.name: check.verdict for check in audit.checks}


CLEAN = write_documents(150, seed=2)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> tuple[Path, Audit]:
    folder = tmp_path_factory.mktemp("clean")
    files = {"a.txt": CLEAN[:80], "b.txt": CLEAN[80:]}
    return folder, build_and_audit(folder, tokenizer, files, with_corpus=True)


def test_a_clean_corpus_passes_every_check(clean):
    assert verdicts(clean[1]) == {rule.name: OK for rule in RULES}
    assert "There is nothing to do." in clean[1].to_html()


def test_without_the_corpus_its_checks_are_not_known(clean):
    found = verdicts(audit_folder(clean[0] / "out"))
    assert found == {rule.name: NOT_KNOWN if rule.name in NEED_CORPUS else OK for rule in RULES}


def write_scripts(count: int) -> Documents:
    rng = random.Random(0)
    return ["\n".join(" ".join(rng.choices("ႠႡႢႣႤႥႦႧ", k=9)) for _ in range(9)) for _ in range(count)]


def write_endless_words() -> Documents:
    rng = random.Random(0)
    return ["".join(rng.choices("abcdefghijklmnoprstu", k=600)) for _ in range(20)]


# Documents with a line of others at their end.
CHANGED = [f"{document}\n{line}" for document, line in zip(CLEAN[:30], CLEAN[-1].split("\n"), strict=True)]
FAULTS: dict[str, Documents] = {
    "equal_segments": [*CLEAN, *("\n".join(line.split("\n")[:1] * 2) for line in write_documents(60, seed=5))],
    "duplicate_documents": [*CLEAN, *CLEAN[:20]],
    "duplicate_rows": [*CLEAN, *CHANGED],
    "near_duplicates": [*CLEAN, *CHANGED],
    "near_empty_rows": [*CLEAN, *(" ".join(line.split()[:2]) for line in make_sentences(300, seed=7))],
    "unpaired_rows": [*CLEAN, *(min(line.split(), key=len) for line in make_sentences(900, seed=8))],
    "segments_inside_word": [*CLEAN, *write_endless_words()],
    "unknown_rate": [*CLEAN, *write_scripts(40)],
    "largest_document": ["\n".join(CLEAN[:120]), *CLEAN[120:]],
    "lost_characters": [*CLEAN, *write_scripts(40)],
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_corpus_is_found(name, tmp_path, tokenizer):
    settings = {"keep_duplicates": name == "duplicate_documents"}
    files = {"a.txt": FAULTS[name]}
    audit = build_and_audit(tmp_path, tokenizer, files, with_corpus=name in NEED_CORPUS, **settings)
    assert get_check(audit, name).verdict in (LOOK, BAD), audit.to_text()
    assert "To do: " in audit.to_text()


def test_similar_documents_are_named_with_their_files(tmp_path, tokenizer):
    files = {"a.txt": CLEAN, "copies.txt": [f"{document}\nRead by me." for document in CLEAN[:20]]}
    check = get_check(build_and_audit(tmp_path, tokenizer, files, with_corpus=True), "near_duplicates")
    assert (check.details["count"], check.details["of"]) == (20, 170)
    dropped, kept = check.details["pairs"][0]["documents"]
    assert dropped.endswith("a.txt")
    assert kept.endswith("copies.txt")
    assert dropped in check.finding
    corpus = find_inputs([str(tmp_path / "in" / "copies.txt")])
    check = get_check(audit_folder(tmp_path / "out", corpus), "near_duplicates")
    assert check.details["num_missing"] == 150
    assert "150 documents of the shards are in no file of --corpus" in check.finding
    (tmp_path / "other.txt").write_text("Another text.\n")
    with pytest.raises(InputError, match="--corpus has none of the shards' documents"):
        audit_folder(tmp_path / "out", find_inputs([str(tmp_path / "other.txt")]))


def test_inputs_whose_names_are_not_utf_8_are_named_as_text(tmp_path):
    path = Path(os.fsdecode(bytes(tmp_path) + b"/in\xff.txt"))
    path.write_text("A line.\n")
    corpus = read_corpus(find_inputs([str(path)]), TextConfig())
    assert corpus.name_document(int(corpus.keys[0])).endswith(rf" in {tmp_path}/in\udcff.txt")


def test_a_build_without_similar_documents_has_none_though_its_corpus_has(tmp_path, tokenizer):
    files = {"a.txt": [*CLEAN, *(f"{document}\nRead by me." for document in CLEAN[:20])]}
    audit = build_and_audit(tmp_path, tokenizer, files, with_corpus=True, drop_near_duplicates=True)
    assert get_check(audit, "near_duplicates").figure == 0


@pytest.mark.parametrize("dupe_factor", [1, 2, 10])
def test_passes_over_a_tiny_document_are_no_copies(dupe_factor, tmp_path, tokenizer):
    lines = make_sentences(600, seed=11)
    tiny = list(dict.fromkeys(" ".join(line.split()[: 2 + i % 8]) for i, line in enumerate(lines)))
    documents = [*tiny, *tiny[:8], *CLEAN[:8], *CLEAN[:4]]
    settings = {"dupe_factor": dupe_factor, "keep_duplicates": True}
    audit = build_and_audit(tmp_path, tokenizer, {"a.txt": documents}, with_corpus=False, **settings)
    assert get_check(audit, "duplicate_documents").details["count"] == 12


# ---- faults that no corpus makes ----


@pytest.fixture
def built(clean: tuple[Path, Audit], tmp_path: Path) -> Path:
    """The clean build, of one record batch a split, free to change."""
    return Path(shutil.copytree(clean[0] / "out", tmp_path / "out"))


def is_first_longer(rows: Examples) -> np.ndarray:
    is_longer = rows.segment_a_len > np.diff(rows.offsets) - rows.segment_a_len - 3
    return np.where(rows.sop_label >= 0, is_longer, rows.sop_label)


@pytest.mark.parametrize(
    ("name", "edit", "is_so"),
    [
        (
            "order_from_lengths",
            put("sop_label", slice(None), is_first_longer),
            lambda check: check.details["accuracy"] > 0.9,
        ),
        ("label_shares", put("sop_label", lambda rows: rows.sop_label == 1, 0), lambda check: True),
    ],
)
def test_a_fault_of_the_rows_is_bad(name, edit, is_so, built):
    edit_rows(built, edit)
    check = get_check(audit_folder(built), name)
    assert check.verdict == BAD
    assert is_so(check), check


def test_stripped_accents_are_lost_characters(tmp_path):
    pairs = [("é", "e"), ("ß", ""), ("Ａ", "a")]
    rules = "".join(f"{ord(before):X}\t{' '.join(f'{ord(c):X}' for c in after)}\n" for before, after in pairs)
    (tmp_path / "rules.tsv").write_text(rules)
    model = train_model(normalization_rule_tsv=str(tmp_path / "rules.tsv"))
    characters = np.bincount([ord(c) for c in "éé e ß\u200bＡ"], minlength=0x110000)
    total, lost = find_lost(characters, Tokenizer(model, "a tokenizer that strips accents"))
    assert total == 5
    assert [(one.character, one.count, one.how) for one in lost] == [("é", 2, "becomes e"), ("ß", 1, "is removed")]


# ---- unknown tokens and byte pieces ----


def load_byte_level() -> Tokenizer:
    return Tokenizer(train_roberta().to_str().encode(), "a byte-level tokenizer")


@pytest.mark.parametrize("make", [get_tokenizer, load_byte_level], ids=["byte fallback", "byte-level BPE"])
def test_a_byte_piece_is_no_lost_text_but_many_are_a_bad_fit(make, tmp_path):
    files = {"a.txt": [*CLEAN[:40], *write_scripts(40)]}
    audit = build_and_audit(tmp_path, make(), files, with_corpus=True, validation_fraction=0.0)
    assert get_check(audit, "unknown_rate").figure == 0
    found = get_check(audit, "byte_pieces")
    assert found.verdict == BAD


# ---- kernels against plain Python ----


@given(documents=text_documents(), config=configs())
def test_rows_are_measured_as_in_plain_python(documents, config):
    examples, tokenizer = make_examples(documents, config), get_tokenizer()
    inside = np.arange(tokenizer.vocab_size) % 3 == 0
    parting = np.arange(tokenizer.vocab_size) % 2 == 0
    ids, offsets = examples.input_ids.copy(), examples.offsets
    rows = [ids[a:b] for a, b in zip(offsets, offsets[1:], strict=False)]
    for i, row in enumerate(rows):
        masks = slice(examples.mask_offsets[i], examples.mask_offsets[i + 1])
        row[examples.masked_positions[masks]] = examples.masked_ids[masks]
    texts, whole, is_equal, num_inside = measure_rows(examples.arrays, ids, inside, parting, 1)
    parts = [
        (row[1 : 1 + a].tolist(), row[2 + a : -1].tolist()) for row, a in zip(rows, examples.segment_a_len, strict=True)
    ]
    ordered = [tuple(b + a if s == 1 else a + b) for (a, b), s in zip(parts, examples.sop_label, strict=True)]
    assert is_equal.tolist() == [a == b for a, b in parts]
    for pair, label, count in zip(parts, examples.sop_label, num_inside.tolist(), strict=True):
        first, second = pair[::-1] if label == 1 else pair
        goes_on = bool(second) and inside[second[0]] and not parting[first[-1]]
        assert count == int(inside[first[0]]) + int(goes_on)
    assert len(set(zip(ordered, texts.tolist(), strict=True))) == len(set(ordered)) == len(set(texts.tolist()))
    spans = [slice(begin, end) for begin, end in zip(offsets, offsets[1:], strict=False)]
    shown = [
        (key, a, *examples.input_ids[span].tolist(), *ids[span].tolist())
        for key, a, span in zip(examples.document_keys.tolist(), examples.segment_a_len.tolist(), spans, strict=True)
    ]
    assert len(set(zip(shown, whole.tolist(), strict=True))) == len(set(shown)) == len(set(whole.tolist()))


# ---- the command ----


def test_wrapped_lines_are_named_as_the_cause(tmp_path, tokenizer):
    """Each paragraph is a document here, and each line of it a sentence or less."""
    lines = [line for document in CLEAN for line in textwrap.wrap(document, 72)]
    documents = ["\n".join(lines[begin : begin + 3]) for begin in range(0, len(lines), 3)]
    audit = build_and_audit(tmp_path, tokenizer, {"a.txt": documents}, with_corpus=False)
    [named] = (check for check in audit.checks if "--unwrap" in check.finding)
    others = [check for check in audit.checks if f"for the same reason as {named.rule.title}" in check.finding]
    assert {check.verdict for check in (named, *others)} <= {LOOK, BAD}


def test_the_page_fits_80_columns_and_json_has_every_check_by_name(clean):
    folder = clean[0]
    shown = CliRunner().invoke(cli, ["audit", str(folder / "out")])
    assert shown.exit_code == 0
    assert max(map(len, shown.stdout.splitlines()[1:])) <= 80
    result = CliRunner().invoke(cli, ["audit", str(folder / "out"), "--json", "--corpus", str(folder / "in")])
    found = json.loads(result.stdout)
    assert found["checks"].keys() == {rule.name for rule in RULES}
    assert found["verdicts"] == {"ok": len(RULES), "not_known": 0, "look": 0, "bad": 0}
    keys = {"verdict", "figure", "look", "bad", "finding", "advice", "details"}
    assert found["checks"]["equal_segments"].keys() >= keys


def test_advice_names_no_option_that_is_on(tmp_path, tokenizer):
    switches = ("drop-near-duplicates", "drop-repeated-lines", "group-field", "language-field", "unwrap")
    for rule in ALL_RULES:
        assert not any(f"--{name}" in rule.fit(switches).advice for name in switches)
        assert rule.fit(switches).advice
        assert ("--keep-duplicates" in rule.advice) == (rule.name == "duplicate_documents")
    (tmp_path / "in.txt").write_bytes(fixtures.to_txt(fixtures.make_documents(60, seed=8)))
    for settings in ({"drop_near_duplicates": True}, {"keep_duplicates": True}):
        fixtures.run_build(tmp_path / "in.txt", tmp_path / "out", tokenizer, overwrite=True, **settings)
        advice = {check.rule.name: check.rule.advice for check in audit_folder(tmp_path / "out").checks}
        assert ("--drop-near-duplicates" in advice["seen_rows"]) == ("drop_near_duplicates" not in settings)
        assert ("--keep-duplicates" in advice["duplicate_documents"]) == ("keep_duplicates" in settings)


@pytest.mark.parametrize(
    ("verdict", "fail_on", "code"),
    [(OK, "look", 0), (NOT_KNOWN, "look", 0), (LOOK, "bad", 0), (LOOK, "look", 3), (BAD, "bad", 3), (BAD, "look", 3)],
)
def test_fail_on_makes_a_verdict_an_exit_code(verdict, fail_on, code, tmp_path, monkeypatch, capsys):
    figures = dict(zip((OK, NOT_KNOWN, LOOK, BAD), (0.0, None, *UNPAIRED_ROWS.limits), strict=True))
    check = Check(UNPAIRED_ROWS, figures[verdict], "so many")
    monkeypatch.setattr(
        "albert_data.library.shards.audit_folder", lambda *given: Audit(folder=tmp_path, checks=[check])
    )
    assert check.verdict == verdict
    assert run(["audit", str(tmp_path)]) == 0
    unasked = capsys.readouterr()
    assert run(["audit", str(tmp_path), "--fail-on", fail_on]) == code
    printed = capsys.readouterr()
    assert printed.out == unasked.out
    assert printed.err == (f"exit code 3 by --fail-on {fail_on}: unpaired_rows is {verdict}\n" if code else "")


def test_an_ignored_check_fails_nothing(clean, tmp_path, capsys, monkeypatch):
    check = Check(UNPAIRED_ROWS, 1.0, "all of them")
    monkeypatch.setattr(
        "albert_data.library.shards.audit_folder", lambda *given: Audit(folder=tmp_path, checks=[check])
    )
    assert run(["audit", str(tmp_path), "--fail-on", "bad", "--ignore", "unpaired_rows"]) == 0
    assert run(["audit", str(tmp_path), "--fail-on", "bad", "--ignore", "equal_segments"]) == 3
    capsys.readouterr()
    assert run(["audit", str(tmp_path), "--ignore", "unpaired"]) == 2
    assert capsys.readouterr().err.endswith("is it one of: unpaired_rows?\n")


def test_a_short_row_without_pairs_is_near_empty_by_its_tokens_alone(tmp_path, tokenizer):
    texts = [" ".join(line.split()[:8]) for line in make_sentences(300, seed=7)]
    (tmp_path / "in.txt").write_bytes(fixtures.to_txt(texts))
    found = {}
    for pairs in ("none", "sop"):
        fixtures.run_build(tmp_path / "in.txt", tmp_path / pairs, tokenizer, max_seq_len=512, pairs=pairs)
        found[pairs] = get_check(audit_folder(tmp_path / pairs), "near_empty_rows")
    assert (found["none"].details["under_tokens"], found["sop"].details["under_tokens"]) == (16, 31)
    assert found["none"].details["count"] < found["sop"].details["count"]


def test_no_check_is_bad_before_it_is_look():
    assert all(look <= bad for look, bad in (rule.limits for rule in ALL_RULES))


# ---- rows of validation whose text stands in training ----


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
def test_texts_with_another_header_are_found(pairs, tmp_path, tokenizer):
    headed = [f"{OTHERS[i].splitlines()[0]}\n{CLEAN[i]}" for i in range(8)]
    found = audit_validation(tmp_path, tokenizer, headed, pairs=pairs, seed=4)
    assert found.verdict == BAD
    assert (found.figure or 0) > 0.9


def test_texts_with_a_tenth_of_their_words_changed_are_found(tmp_path, tokenizer):
    found = audit_validation(tmp_path, tokenizer, [change_words(text, 0.1) for text in CLEAN[:8]])
    assert found.verdict == BAD
    assert found.details["num_altered"] > 0
    assert (found.figure or 0) > 0.8
    example = found.details["examples"][0]
    assert example["text"] in found.finding
    assert found.finding.count(f"{example['training_row']:,}") == 1


def write_chinese_texts(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return ["\n".join(chinese_sentence(rng) for _ in range(60)) for _ in range(count)]


def test_chinese_with_a_tenth_of_its_characters_changed_is_found(tmp_path, tokenizer):
    texts, rng, letters = write_chinese_texts(30, seed=1), random.Random(2), "".join(CHINESE.split())
    altered = [
        "".join(rng.choice(letters) if rng.random() < 0.1 and one != "\n" else one for one in text)
        for text in texts[:9]
    ]
    found = audit_validation(tmp_path, tokenizer, altered, texts, language="zh")
    assert found.verdict == BAD
    assert (found.figure or 0) > 0.9
    (tmp_path / "other").mkdir()
    found = audit_validation(tmp_path / "other", tokenizer, write_chinese_texts(9, seed=3), texts, language="zh")
    assert (found.verdict, found.figure) == (OK, 0.0)


def test_other_texts_are_not(tmp_path, tokenizer):
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
    hashes, begins = hash_grams(examples.arrays, ids, 1, random_label, gram_lens, is_unspaced)
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


GramRows = list[list[int]]
some_rows = st.lists(st.lists(st.integers(0, 40), max_size=9), min_size=1, max_size=8)


def to_grams(rows: GramRows) -> RowGrams:
    flat = np.array([gram for row in rows for gram in row], np.uint64)
    return RowGrams(mix(flat + np.uint64(1)), np.cumsum([0, *map(len, rows)]))


@given(training=some_rows, validation=some_rows, num_documents=st.integers(1, 4))
def test_seen_grams_are_counted_as_in_plain_python(training, validation, num_documents):
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
