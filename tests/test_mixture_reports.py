"""What is shown of a mixture: by inspect, audit and the commands, and of languages alike."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import build_fixtures as fixtures
import numpy as np
import pytest
from build_fixtures import run_build
from hypothesis import given
from hypothesis import strategies as st
from mixture_fixtures import Mixed, build_mixture, count_text, write_mixture

from albert_data.cli.main import run
from albert_data.cli.summary import describe_build
from albert_data.inspect.audit.audit import audit_folder
from albert_data.inspect.audit.rows import Subject
from albert_data.inspect.audit.rules import Check
from albert_data.inspect.audit.shares import share_by_source
from albert_data.inspect.choice import RowChoice
from albert_data.inspect.html.page import render
from albert_data.inspect.report import inspect_folder
from albert_data.inspect.statistics import measure
from albert_data.inspect.words import WordArrays, find_text_words
from albert_data.shards.reader import Example, open_shards
from albert_data.tokenizer.model import Tokenizer

POOL = fixtures.make_documents(40, seed=8)
STRANGE = [f"Strange {number} ʬʭ ʭʬ ʬ. {text}" for number, text in enumerate(POOL[30:])]  # with unknown characters
MIXTURE = [
    Mixed(documents=POOL[:20], weight=2.0),
    Mixed(documents=[*POOL[15:30], *STRANGE], weight=0.5, keys={"language": '"de"'}),
    Mixed(documents=POOL[25:], tokens=150),
]


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mixture(tmp_path_factory.mktemp("mixture"), MIXTURE)


@pytest.fixture(scope="module")
def out(mixture: Path, tokenizer: Tokenizer) -> Path:
    build_mixture(mixture, mixture.parent / "out", tokenizer, dupe_factor=2)
    return mixture.parent / "out"


def rows_of(out: Path, split: str, source: int) -> Iterator[Example]:
    return (row for row in open_shards(out, split) if row.source == source)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_statistics_by_source_are_those_of_the_rows(split, out, tokenizer):
    shards = open_shards(out, split)
    found, words = {one.name: one for one in measure(shards).by_source}, find_text_words(tokenizer)
    assert found.keys() == {"source 0", "source 1", "source 2"}
    for number in range(3):
        one, rows = found[f"source {number}"], list(rows_of(out, split, number))
        assert one.num_documents == len({row.document_key for row in rows})
        assert one.num_rows == len(rows)
        assert one.num_unpaired == sum(row.sop_label < 0 for row in rows)
        assert one.num_tokens == sum(len(row.input_ids) for row in rows)
        assert one.num_text_tokens == sum(map(count_text, rows))
        assert one.num_masked == sum(len(row.masked_ids) for row in rows)
        assert one.num_unk == sum(int((row.original_ids == tokenizer.unk_id).sum()) for row in rows)
        assert one.num_without_task == sum(row.sop_label < 0 and not len(row.masked_ids) for row in rows)
        assert one.num_words == sum(count_words_slowly(row.original_ids.tolist(), words) for row in rows)
        assert one.is_small == (one.num_documents < 10)
    if split == "train":
        assert found["source 1"].num_unk > 0
        assert next(iter(found)) == "source 1"  # the worst comes first


def count_words_slowly(ids: list[int], words: WordArrays) -> int:
    num_words = 0
    for before, one in pairwise(ids):
        is_first = words.is_apart[before] or words.starts[one] + words.standalone[before] > 0
        num_words += 0 if words.is_apart[one] else int(is_first) + int(words.num_inside[one])
    return num_words


def test_the_pages_of_inspect_show_the_mixture_and_its_rows(out):
    report = inspect_folder(out, split="train", choice=RowChoice(count=1))
    page, values, html = report.to_text(), report.to_dict(), render(report)
    for one in open_shards(out).manifest.mixture or ():
        line = next(line for line in page.splitlines() if line.startswith(f"  {one.name} ({one.language})"))
        assert line.split()[-3:] == [f"{n:,}" for n in (one.num_documents, one.num_used_documents, one.num_used_tokens)]
    assert "Sources of train, the worst first" in page
    assert sum(one["num_rows"] for one in values["statistics"]["train"]["by_source"]) == len(open_shards(out))
    assert "Sources of the mixture" in html
    assert "Sources of train, the worst first" in html


def find_check(folder: Path, name: str) -> Check:
    return next(check for check in audit_folder(folder).checks if check.rule.name == name)


def test_the_audit_names_the_worst_and_the_largest_source_without_the_corpus(out):
    tokens = [one.num_used_tokens for one in open_shards(out).manifest.mixture]
    check = find_check(out, "largest_source")
    assert check.figure == pytest.approx(max(tokens) / sum(tokens))
    assert f"source source {tokens.index(max(tokens))}" in check.finding
    check = find_check(out, "unknown_rate")
    assert "worst is source source 1 with " in check.finding
    assert (
        check.figure == check.details["by_source"]["source 1"]["share"] > check.details["count"] / check.details["of"]
    )


def test_passes_of_a_weight_are_no_copies(tokenizer, tmp_path):
    short = [f"The river {number}." for number in range(30)]
    for keep, wanted in ((False, 0), (True, 10)):
        sources = [Mixed(documents=[*short, *POOL[:10], *POOL[:10]], weight=6.0), Mixed(documents=POOL[10:20])]
        folder = tmp_path / str(keep)
        build_mixture(write_mixture(folder, sources), folder / "out", tokenizer, keep_duplicates=keep)
        assert find_check(folder / "out", "duplicate_documents").details["count"] == wanted


def test_rows_of_several_languages_are_counted_too(tokenizer, tmp_path):
    lines = [json.dumps({"text": text, "lang": "de" if number % 3 else "zh"}) for number, text in enumerate(POOL)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    run_build(tmp_path / "in.jsonl", tmp_path / "out", tokenizer, language_field="lang")
    names = [one.name for one in measure(open_shards(tmp_path / "out")).by_source]
    assert set(names) == {"de", "zh"}
    assert "mixture" not in inspect_folder(tmp_path / "out", split="train", choice=RowChoice(count=0)).to_dict()


@given(
    sources=st.lists(st.integers(0, 2), min_size=1, max_size=60),
    documents=st.lists(st.integers(0, 30), min_size=60, max_size=60),
    parts=st.lists(st.integers(0, 4), min_size=60, max_size=60),
)
def test_shares_and_errors_of_sources_are_those_of_plain_python(sources, documents, parts):
    """The error is that of a ratio whose units are whole documents."""
    count = len(sources)
    documents, parts = documents[:count], parts[:count]
    wholes = [part + 1 for part in parts]
    facts = SimpleNamespace(sources=np.array(sources, np.uint16))
    subject = Subject(
        shards=[SimpleNamespace(manifest=SimpleNamespace(sources=("a", "b", "c")))],
        begins=[0, count],
        facts=facts,
        documents=np.unique(documents),
        owners=np.unique(documents, return_inverse=True)[1],
        by_source=(),
    )
    found = {one.name: one for one in share_by_source(subject, np.array(parts), np.array(wholes))}
    assert found.keys() == {"abc"[source] for source in sources}
    for source in set(sources):
        rows = [row for row in range(count) if sources[row] == source]
        share = sum(parts[row] for row in rows) / sum(wholes[row] for row in rows)
        excess = Counter[int]()
        for row in rows:
            excess[documents[row]] += parts[row] - share * wholes[row]
        spread = sum(value**2 for value in excess.values()) * len(excess) / max(len(excess) - 1, 1)
        one = found["abc"[source]]
        assert (one.share, one.num_documents) == (pytest.approx(share), len(excess))
        assert one.error == pytest.approx(spread**0.5 / sum(wholes[row] for row in rows), abs=1e-9)


def build_languages(folder: Path, tokenizer: Tokenizer, texts: dict[str, list[str]], **changes: Any) -> Path:
    lines = [json.dumps({"text": text, "lang": name}) for name, some in texts.items() for text in some]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "in.jsonl").write_text("\n".join(lines))
    run_build(folder / "in.jsonl", folder / "out", tokenizer, language_field="lang", max_seq_len=128, **changes)
    return folder / "out"


def test_a_verdict_is_that_of_the_worst_language_and_names_it(tokenizer, tmp_path):
    texts = {"en": fixtures.make_documents(120, seed=3), "ne": [f"Word {number}." for number in range(40)]}
    out = build_languages(tmp_path, tokenizer, texts)
    check = find_check(out, "unpaired_rows")
    assert check.details["count"] / check.details["of"] < 0.5
    assert (check.figure, check.verdict) == (1.0, "bad")
    assert "worst is source ne with 100.00 %" in check.finding
    audit = audit_folder(out)
    lines = audit.to_text().splitlines()
    (head,) = (number for number, line in enumerate(lines) if line == "Sources, the worst first")
    assert [line.split()[0] for line in lines[head + 2 : head + 4]] == ["ne", "en"]
    assert max(map(len, lines)) <= 80
    assert [one["name"] for one in audit.to_dict()["by_source"]] == ["ne", "en"]
    assert find_check(out, "rows_without_task").details["by_source"]["ne"]["share"] > 0


def test_a_source_too_small_to_be_judged_is_said_to_be_that_and_decides_nothing(tokenizer, tmp_path):
    texts = {"en": fixtures.make_documents(120, seed=3), "am": ["ʬʭ ʭʬ ʬ."]}
    out = build_languages(tmp_path, tokenizer, texts, validation_fraction=0.0)
    audit = audit_folder(out)
    check = find_check(out, "unpaired_rows")
    assert check.verdict == "ok"
    assert "; source am has 100.00 %, but is too small to be judged" in check.finding
    assert not check.details["by_source"]["am"]["is_judged"]
    assert "of too few documents to be judged: am" in find_check(out, "largest_source").finding
    assert "of too few documents to be judged: am" in " ".join(audit.to_text().split())
    assert audit.by_source[-1].name == "am"


def test_an_order_that_one_language_gives_away_is_found(tokenizer, tmp_path):
    """Too few pairs to be seen in all: each document of it ends like no other sentence."""
    texts = {"en": fixtures.make_documents(200, seed=3), "de": fixtures.make_documents(60, seed=4)}
    texts["de"] = [re.sub(r"\n.*\n.*$", "\nThe river.\npeople.", text) for text in texts["de"]]
    check = find_check(build_languages(tmp_path, tokenizer, texts, dupe_factor=6), "order_from_surface")
    assert check.details["accuracy"] - 0.5 < check.figure
    assert "worst is source de: " in check.finding


def test_rows_of_one_source_are_shown_and_those_of_all_in_turn(tokenizer, tmp_path, capsys):
    texts = {"en": fixtures.make_documents(90, seed=3), "de": fixtures.make_documents(9, seed=4)}
    out = build_languages(tmp_path, tokenizer, texts)
    assert run(["inspect", str(out), "--json", "-n", "6"]) == 0
    assert Counter(row["source"] for row in json.loads(capsys.readouterr().out)["examples"]) == {"en": 3, "de": 3}
    for more in ((), ("--grep", "e")):
        assert run(["inspect", str(out), "--json", "-n", "4", "--source", "de", *more]) == 0
        assert {row["source"] for row in json.loads(capsys.readouterr().out)["examples"]} == {"de"}
    assert run(["inspect", str(out), "--source", "de", "-n", "1"]) == 0
    assert ", source de" in " ".join(capsys.readouterr().out.split())
    assert run(["inspect", str(out), "--source", "fr"]) == 1
    assert "have no source 'fr'; they are de, en" in capsys.readouterr().err
    assert run(["inspect", str(out), "--source", "de", "--row", "1"]) == 2
    page = render(inspect_folder(out, split="train", choice=RowChoice(count=6)))
    assert '<option value="1">en</option>' in page
    assert "from each source in turn" in page


def test_the_corpus_of_an_audit_may_be_the_mixture(mixture, out, capsys):
    assert run(["audit", str(out), "--corpus", str(mixture), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checks"]["near_duplicates"]["details"]["num_missing"] == 0


def test_the_commands_list_the_sources(mixture, tokenizer_model, tmp_path, capsys):
    (tmp_path / "model.model").write_bytes(tokenizer_model)
    arguments = ["build", str(mixture), "-o", str(tmp_path / "out"), "--tokenizer", str(tmp_path / "model.model")]
    assert run([*arguments, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "sources    source 0: weight 2, en, 1 input\n" in shown
    assert "           source 2: budget of 150 tokens, en, 1 input\n" in shown
    assert run([*arguments, "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert "sources    source 0: 2 passes, 20 of 20 documents, " in shown


def test_vocab_reads_each_source_as_it_says(tmp_path, capsys):
    sources = [Mixed(documents=POOL[:20], weight=0.0), Mixed(documents=POOL[20:], keys={"text_field": '"text"'})]
    path = write_mixture(tmp_path, sources, "jsonl")
    arguments = ["vocab", str(path), "-o", str(tmp_path / "vocab"), "--vocab-size", "120", "--workers", "1"]
    assert run([*arguments, "--text-field", "body"]) == 0
    assert "of 20 documents" in capsys.readouterr().out
    assert run([*arguments, "--overwrite"]) == 0
    assert "of 40 documents" in capsys.readouterr().out


def test_settings_are_those_that_the_sources_have(mixture, tokenizer, tmp_path):
    (tmp_path / "s").symlink_to(mixture.parent, target_is_directory=True)
    tables = (f'[[source]]\nname = "{one}"\npaths = "s/s{one}"\nlanguage = "de"\n' for one in "01")
    (tmp_path / "m.toml").write_text("\n".join(["alpha = 0.5", *tables, "unwrap = true"]))
    words = " ".join(describe_build(build_mixture(tmp_path / "m.toml", tmp_path / "out", tokenizer), tmp_path)).split()
    assert {"language=de", "alpha=0.5", "unwrap=by-source", "text_field=text", "seed=0"} <= {*words}
