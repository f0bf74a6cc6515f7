"""What is shown of a mixture: by inspect, audit and the commands, and of languages alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import build_fixtures as fixtures
import pytest
from build_fixtures import run_build
from mixture_fixtures import Mixed, build_mixture, count_text, write_mixture

from albert_data.cli.main import run
from albert_data.cli.summary import describe_build
from albert_data.inspect.audit.audit import audit_folder
from albert_data.inspect.audit.rules import Check
from albert_data.inspect.choice import RowChoice
from albert_data.inspect.html.page import render
from albert_data.inspect.report import inspect_folder
from albert_data.inspect.statistics import measure
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
    found = measure(shards).by_source
    assert [one.name for one in found] == ["source 0", "source 1", "source 2"]
    for number, one in enumerate(found):
        rows = list(rows_of(out, split, number))
        assert one.num_documents == len({row.document_key for row in rows})
        assert one.num_rows == len(rows)
        assert one.num_unpaired == sum(row.sop_label < 0 for row in rows)
        assert one.num_tokens == sum(len(row.input_ids) for row in rows)
        assert one.num_text_tokens == sum(map(count_text, rows))
        assert one.num_masked == sum(len(row.masked_ids) for row in rows)
        assert one.num_unk == sum(int((row.original_ids == tokenizer.unk_id).sum()) for row in rows)
    if split == "train":
        assert found[1].num_unk > 0


def test_the_pages_of_inspect_show_the_mixture_and_its_rows(out):
    report = inspect_folder(out, split="train", choice=RowChoice(count=1))
    page, values, html = report.to_text(), report.to_dict(), render(report)
    for one in open_shards(out).manifest.mixture or ():
        line = next(line for line in page.splitlines() if line.startswith(f"  {one.name} ({one.language})"))
        assert line.split()[-3:] == [f"{n:,}" for n in (one.num_documents, one.num_used_documents, one.num_used_tokens)]
    assert "Rows of train by source" in page
    assert sum(one["num_rows"] for one in values["statistics"]["train"]["by_source"]) == len(open_shards(out))
    assert "Sources of the mixture" in html
    assert "Rows of train by source" in html


def find_check(folder: Path, name: str) -> Check:
    return next(check for check in audit_folder(folder).checks if check.rule.name == name)


def test_the_audit_names_the_worst_and_the_largest_source_without_the_corpus(out):
    tokens = [one.num_used_tokens for one in open_shards(out).manifest.mixture]
    check = find_check(out, "largest_source")
    assert check.figure == pytest.approx(max(tokens) / sum(tokens))
    assert f"source source {tokens.index(max(tokens))}" in check.finding
    assert "source source 1" in find_check(out, "unknown_by_source").finding


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
    assert names == ["de", "zh"]
    assert "mixture" not in inspect_folder(tmp_path / "out", split="train", choice=RowChoice(count=0)).to_dict()


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
