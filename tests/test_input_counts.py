"""Inputs that give no document, or lose text, are counted and named: the same however the work is split."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import random
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import build_fixtures as fixtures
import pytest
from build_fixtures import digest_shards, run_build
from hypothesis import given
from hypothesis import strategies as st
from mixture_fixtures import build_mixture

from albert_data.cli.main import run
from albert_data.cli.summary import describe_build
from albert_data.config import TextConfig, VocabConfig
from albert_data.corpus.damage import CountsByInput, Damage
from albert_data.corpus.fields import Fields
from albert_data.corpus.inputs import find_inputs
from albert_data.inspect.choice import RowChoice
from albert_data.inspect.html.page import render
from albert_data.inspect.report import inspect_folder
from albert_data.jobs.engine import MultiprocessEngine
from albert_data.jobs.receipts import from_values, to_values
from albert_data.shards.advice import advise_inputs, list_damaged
from albert_data.shards.manifest import DamagedInputs
from albert_data.vocab.learning import learn_vocabulary

DOCUMENTS = fixtures.make_documents(60, seed=11)
REASONS = ("missing_field", "invalid_utf8", "empty_document")

# ---- counting ----


class Part(NamedTuple):
    """What one task reads of an input."""

    name: str
    num_documents: int
    damage: list[str]


parts = st.builds(Part, st.sampled_from("abcdefgh"), st.integers(0, 2), st.lists(st.sampled_from(REASONS), max_size=4))


def list_worst(found: list[Part]) -> tuple[list[tuple[str, int, dict[str, int]]], int, int]:
    """The reference: all inputs in one dict."""
    documents, damage = Counter[str](), {part.name: Counter[str]() for part in found}
    for part in found:
        documents[part.name] += part.num_documents
        damage[part.name] += Counter(part.damage)
    losses = {name: counts["missing_field"] + counts["invalid_utf8"] for name, counts in damage.items()}
    shares = {
        name: counts["missing_field"] / max(documents[name] + counts["missing_field"] + counts["empty_document"], 1)
        for name, counts in damage.items()
    }
    shares |= {
        name: 1.0 for name in damage if losses[name] == damage[name].total() and not documents[name] and losses[name]
    }
    worst = [name for name in damage if losses[name] or not documents[name]]
    worst.sort(key=lambda name: (-shares[name] if shares[name] > 0.1 else 0, documents[name] > 0, -losses[name], name))
    listed = [(name, documents[name], dict(damage[name])) for name in worst]
    return listed, sum(not documents[name] for name in worst), sum(losses[name] > 0 for name in worst)


@given(st.lists(parts, max_size=20), st.randoms(use_true_random=False), st.integers(1, 9), st.integers(1, 4))
def test_the_sums_do_not_depend_on_tasks_receipts_or_order(found, rng, kept, num_tasks):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("albert_data.corpus.damage._KEPT", kept)
        is_part = {name: count > 1 for name, count in Counter(part.name for part in found).items()}
        tasks = [Damage() for _ in range(num_tasks)]
        for part in rng.sample(found, len(found)):
            damage = rng.choice(tasks)
            with damage.inputs.reading(part.name, is_part=is_part[part.name]):
                damage.inputs.of(part.name).num_documents += part.num_documents
                for reason in part.damage:
                    damage.add(reason, part.name, 0)
        total = Damage()
        for task in tasks:
            total.merge(from_values(json.loads(json.dumps(to_values(task))), Damage) if rng.random() < 0.5 else task)
        listed, sums = total.inputs.finish()
    worst, *numbers = list_worst(found)
    assert [sums.num_empty, sums.num_damaged] == numbers
    values = [(name, counts.num_documents, dict(counts.damage)) for name, counts in listed]
    assert values[:kept] == worst[:kept]
    assert total.counts == sum((Counter(part.damage) for part in found), Counter[str]())


def test_of_a_million_inputs_the_worst_are_held_and_fewer_listed():
    inputs = CountsByInput()
    for number in range(3000):
        with inputs.reading(f"{number:06d}", is_part=False):
            inputs.of(f"{number:06d}").damage["missing_field"] += number
        with inputs.reading(f"sound {number}", is_part=False):
            inputs.of(f"sound {number}").num_documents += 1
    assert len(inputs.whole) <= 200
    damaged = list_damaged(inputs)
    assert damaged is not None
    assert (len(damaged.worst), damaged.num_without_documents) == (20, 3000)
    assert advise_inputs(damaged)[0].endswith("and 2,997 more")
    found, total = inputs.finish()
    assert ([name for name, _ in found[:2]], total.num_empty, total.num_damaged) == (["002999", "002998"], 3000, 2999)
    assert found[0][1].fields is None


@given(st.lists(st.dictionaries(st.text("ab", min_size=1), st.text(max_size=3)), max_size=9), st.integers(0, 9))
def test_the_fields_that_are_kept_do_not_depend_on_the_order(records, split):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("albert_data.corpus.fields.MAX_NAMES", 3)
        first, second = Fields(), Fields()
        for record in reversed(records[:split]):
            second.add(record)
        for record in records[split:]:
            first.add(record)
        first.merge(second)
    counts = Counter(name[:41] for record in records for name in record)
    assert first.counts == {name: counts[name] for name in sorted(counts)[:3]}


# ---- a build ----


def write_inputs(folder: Path) -> None:
    folder.mkdir()
    (folder / "good.jsonl").write_bytes(fixtures.to_jsonl(DOCUMENTS))
    lines = [json.dumps({"body": text, "id": number}) for number, text in enumerate(DOCUMENTS)]
    (folder / "bad.jsonl").write_text("\n".join(lines))
    (folder / "half.jsonl.gz").write_bytes(gzip.compress(fixtures.to_jsonl(DOCUMENTS[:20]) + b"{\n" * 7))
    (folder / "nothing.jsonl.gz").write_bytes(gzip.compress(b""))
    (folder / "empty.txt").write_bytes(b"")
    (folder / "header.csv").write_text("id,text\n")
    (folder / "\x1b[2J.txt").write_text(" \n\n \n")


WORST = {
    "bad.jsonl": {"missing_field": 60},
    "\x1b[2J.txt": {},
    "empty.txt": {},
    "header.csv": {},
    "nothing.jsonl.gz": {},
    "half.jsonl.gz": {"malformed_json": 7},
}


@pytest.mark.parametrize("task_bytes", [1 << 11, 1 << 20])
def test_each_input_without_documents_is_named_however_the_work_is_split(tokenizer, tmp_path, task_bytes):
    write_inputs(tmp_path / "in")
    wanted: DamagedInputs | None = None
    with fixtures.small_tasks(task_bytes):
        for number, engine in enumerate((None, MultiprocessEngine(2))):
            manifest = run_build(tmp_path / "in", tmp_path / f"{number}", tokenizer, engine).manifest
            wanted = wanted or manifest.damaged_inputs
            assert manifest.damaged_inputs == wanted
        with pytest.raises(KeyboardInterrupt):
            run_build(tmp_path / "in", tmp_path / "out", tokenizer, fixtures.InterruptedEngine(1))
        report = run_build(tmp_path / "in", tmp_path / "out", tokenizer)
    assert report.manifest.damaged_inputs == wanted is not None
    assert {Path(item.path).name: dict(item.damage) for item in wanted.worst} == WORST
    assert (wanted.num_without_documents, wanted.num_damaged) == (5, 2)
    bad = wanted.worst[0]
    assert (bad.num_documents, bad.fields) == (0, ("body", "id"))
    (line,) = (line for line in describe_build(report, tmp_path) if "gave no document" in line)
    assert line.startswith("warning    5 inputs gave no document: ")
    assert 'bad.jsonl (missing_field 60; its fields are "body", "id"), ' in line
    assert f"{tmp_path}/in/empty.txt (it holds no text) and 2 more; name the fields of text with --text-field" in line


def test_what_gave_nothing_changes_no_byte_and_is_read_by_the_field_that_is_named(tokenizer, tmp_path):
    (tmp_path / "in.jsonl").write_bytes(fixtures.to_jsonl(DOCUMENTS))
    write_inputs(tmp_path / "more")
    manifest = run_build(tmp_path / "in.jsonl", tmp_path / "one", tokenizer).manifest
    assert manifest.damaged_inputs is None
    assert "damaged_inputs" not in manifest.to_values()
    run_build(tmp_path / "more", tmp_path / "two", tokenizer)
    assert digest_shards(tmp_path / "one") == digest_shards(tmp_path / "two")
    inputs = find_inputs([str(tmp_path / "more")], text=TextConfig())
    learnt = learn_vocabulary(inputs, TextConfig(), VocabConfig(vocab_size=400), fixtures.InlineEngine(), shrink=True)
    assert [line for line in learnt.advice if line.startswith("5 inputs gave no document: ")]
    (tmp_path / "more/header.csv").unlink()  # a header without one of the fields is an error
    manifest = run_build(tmp_path / "more", tmp_path / "three", tokenizer, text_field="text,body").manifest
    assert manifest.damaged_inputs is not None
    found = {Path(item.path).name for item in manifest.damaged_inputs.worst}
    assert found == WORST.keys() - {"bad.jsonl", "header.csv"}
    assert manifest.counts.documents == 140


def test_in_a_mixture_an_input_gives_nothing_if_no_source_reads_a_document_of_it(tokenizer, tmp_path):
    write_inputs(tmp_path / "in")
    (tmp_path / "mix.toml").write_text(
        '[[source]]\nname = "a"\npaths = ["in/good.jsonl", "in/bad.jsonl"]\n'
        '[[source]]\nname = "b"\npaths = ["in/bad.jsonl", "in/good.jsonl"]\ntext_field = "body"\n'
        '[[source]]\nname = "c"\npaths = ["in/good.jsonl", "in/header.csv"]\n'
    )
    manifest = build_mixture(tmp_path / "mix.toml", tmp_path / "out", tokenizer).manifest
    damaged = manifest.damaged_inputs
    assert damaged is not None
    assert [(Path(item.path).name, item.num_documents) for item in damaged.worst] == [
        ("bad.jsonl", 60),
        ("good.jsonl", 120),
        ("header.csv", 0),
    ]
    assert advise_inputs(damaged) == [
        f"1 input gave no document: {tmp_path}/in/header.csv (it holds no text)",
        f"2 inputs lost much text: {tmp_path}/in/bad.jsonl (50.00 % lost; missing_field 60), {tmp_path}/in/good.jsonl "
        "(33.33 % lost; missing_field 60)",
    ]


def test_inspect_lists_the_worst(tokenizer, tmp_path, capsys):
    write_inputs(tmp_path / "in")
    run_build(tmp_path / "in", tmp_path / "out", tokenizer)
    capsys.readouterr()
    assert run(["inspect", str(tmp_path / "out"), "-n", "0"]) == 0
    report = inspect_folder(tmp_path / "out", split="train", choice=RowChoice(count=0))
    shown, page = capsys.readouterr().out, render(report)
    assert "5 inputs without a document, 2 inputs with damage; the worst" in shown
    for text in (shown, page):
        assert "\x1b" not in text
        unwrapped = "".join(text.split())  # a long path is broken at the edge of the terminal
        assert "\\x1b[2J.txt" in unwrapped
        assert "bad.jsonl" in unwrapped
    assert 'missing_field 60; its fields are "body", "id"' in " ".join(shown.split())
    assert "missing_field 60; its fields are &quot;body&quot;, &quot;id&quot;" in page
    assert max(map(len, shown.splitlines())) <= 80
    assert report.to_dict()["damaged_inputs"]["num_without_documents"] == 5


# ---- how much is lost ----

RECORDS = [json.dumps({"text": text}) for text in DOCUMENTS]
CYRILLIC = "Слово за словом.\n"


@pytest.mark.parametrize(
    ("name", "data", "cause", "is_most"),
    [
        ("a.jsonl", "\n".join([*RECORDS, *["[1]"] * 6]).encode(), None, False),
        ("a.jsonl", "\n".join([*RECORDS[:40], *["{}"] * 20]).encode(), "33.33 % lost; missing_field 20", False),
        ("a.jsonl.gz", gzip.compress("\n".join([*RECORDS[:9], *"{" * 41]).encode()), "82.00 %", True),
        ("a.jsonl.gz", "\n".join(RECORDS).encode(), "name it without .gz", True),
        ("a.jsonl.gz", gzip.compress("\n".join(RECORDS).encode())[:-99], "at least 0.00 % lost", False),
        ("a.csv", b"text\n" + b"One.\n" * 4 + b"One.,two\n" * 6, "60.00 %", True),
        ("a.txt", CYRILLIC.encode() * 3000 + CYRILLIC.encode("cp1251") * 30000, "invalid_utf8 1", True),
        ("wiki_00", b"<doc id='1'>\nOne.\n</doc>\n<doc id='2'>\n" + b"Two.\n" * 99, "malformed_article", True),
    ],
)
def test_an_input_that_loses_much_is_named_and_stops_a_build_that_names_it(
    here, capfd, name, data, cause, is_most, monkeypatch
):
    fixtures.load_tokenizers_once(monkeypatch)
    (here / "in").mkdir()
    (here / "in" / name).write_bytes(data)
    (here / "in/good.txt").write_text("\n\n".join(DOCUMENTS) * (len(data) // 5000 + 9))
    options = ["--tokenizer", "model.model", "--max-seq-len", "64", "--workers", "1", "-o"]
    assert run(["build", "in", *options, "folder"]) == 0
    shown = capfd.readouterr().out
    lines = [line for line in shown.splitlines() if "lost much text" in line or "gave no document" in line]
    assert len(lines) == (cause is not None), shown
    named = ["build", f"in/{name}", "in/good.txt", *options, "out"]
    assert run(named) == is_most
    error = capfd.readouterr().err
    assert not is_most or (str(cause) in error.splitlines()[-1] and len(error.splitlines()[-1]) <= 1000)
    assert (here / "out/manifest.json").exists() != is_most
    assert run([*named, "--allow-loss"]) == 0
    assert ("resumed" in capfd.readouterr().out) == is_most  # what was read before is not read again
    assert digest_shards(here / "folder") == digest_shards(here / "out")


def test_a_corpus_of_which_most_is_lost_is_not_published(here, capfd):
    (here / "in").mkdir()
    for number in range(40):
        (here / f"in/{number}.jsonl").write_text("\n".join([*RECORDS[:1], *["{}"] * 9]))
    assert run(["vocab", "in", "--vocab-size", "300", "-o", "vocab"]) == 1
    build = ["build", "in", "--tokenizer", "model.model", "-o", "out", "--workers", "1"]
    assert run(build) == 1
    worst = "in/0.jsonl (90.00 % lost; missing_field 9)"
    assert f"90.00 % of the corpus would be lost; the worst is {worst}" in capfd.readouterr().err
    assert run([*build, "--allow-loss", "--strict"]) == 2


@pytest.mark.parametrize(
    ("begin", "ending"),
    [
        *(("[", "jsonl"), ("\x1e", "jsonl"), ("\n ", "jsonl"), ("[", "jsonl.gz"), ("\n ", "jsonl.bz2")),
        *(("[", None), ("\x1e", None)),
    ],
)
def test_json_that_has_no_object_a_line_is_read_whatever_its_name(here, capfd, monkeypatch, begin, ending):
    fixtures.load_tokenizers_once(monkeypatch)
    indent = 1 if begin == "\n " else None
    ends = {"[": (",\n", "]"), "\x1e": ("\n\x1e", "\n")}.get(begin, ("\n", ""))
    filler = "".join(random.Random(1).choices("abcdefgh", k=1 << 20))  # more than the first 64 KB hold
    records = [
        json.dumps({"text": text, "x": filler[: 10**9 * (not i)]}, indent=indent) for i, text in enumerate(DOCUMENTS)
    ]
    data = (begin.strip("\n ") + ends[0].join(records) + ends[1]).encode()
    pack = {"jsonl.gz": gzip.compress, "jsonl.bz2": bz2.compress}.get(str(ending), bytes)
    (here / f"a.{ending}").write_bytes(pack(data))
    (here / "sound.jsonl").write_text("\n".join(RECORDS))
    for name in (f"a.{ending}" if ending else "-", "sound.jsonl"):
        with open(here / f"a.{ending}", "rb") as file:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(file))
            options = ["--tokenizer", "model.model", "--workers", "1", "-o", f"out-{name[0]}"]
            assert run(["build", name, *options]) == 0
    assert digest_shards(here / f"out-{'a' if ending else '-'}") == digest_shards(here / "out-s")
    assert ("so it is read as a .json file" in capfd.readouterr().err) == (ending is not None)
    assert ending is None or find_inputs([f"a.{ending}"], text=TextConfig(encoding="auto"))[0].format == "json"
