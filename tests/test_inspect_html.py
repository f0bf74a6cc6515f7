"""The HTML report is one safe file: what a corpus holds stays text, and every chart can be read as words too."""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inspect_fixtures import (
    SMALL,
    configs,
    edit_manifest,
    get_tokenizer,
    make_examples,
    text_documents,
    write_folder,
    write_small,
)

from albert_data.cli.main import run
from albert_data.config import ExampleConfig
from albert_data.inspect.audit.audit import audit_folder
from albert_data.inspect.choice import RowChoice
from albert_data.inspect.html import page as embedding
from albert_data.inspect.html.anatomy import Segment, choose_row, read_segments, render_anatomy
from albert_data.inspect.html.page import escape_json, render
from albert_data.inspect.report import format_figure, inspect_folder
from albert_data.inspect.statistics import measure
from albert_data.shards.reader import Shards, open_shards

HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror=window.hacked=1> <svg onload=window.hacked=1>",
    "<!--<script>window.hacked = 1//--> ]]> ${window.hacked=1} \\u003cscript\\u003e",
    "\"'><b onmouseover=window.hacked=1>&lt;&#60;</b> javascript:window.hacked=1",
)
ARABIC = "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق"
CHINESE = "人人生而自由,在尊严和权利上一律平等"
CONFIG = ExampleConfig(max_seq_len=192, seed=5)


def write_hostile(folder: Path) -> Path:
    """Rows of HOSTILE, ARABIC and CHINESE text, spelt in bytes, and one row without a pair."""
    sentences = [*HOSTILE, ARABIC, CHINESE, "the river talking quickly . people walked"]
    ids = [get_tokenizer().encode([sentence])[0].tolist() for sentence in sentences]
    documents = [[sentence, sentence] for sentence in ids for _ in range(3)]
    documents += [[get_tokenizer().encode(["river"])[0].tolist()]]
    examples = make_examples(documents, replace(CONFIG, mask_prob=0.05))
    return write_folder(folder, {"train": [examples]}, CONFIG)


CHARTS = ("lengths",)
VOID = {"meta", "input", "br", "link", "img"}


class Reader(HTMLParser):
    """All elements of a page, in order, with the text directly inside of each."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[int, str] = {}
        self._open: list[int] = []
        self.feed(page)
        assert not self._open, "an element is left open"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(len(self.elements) - 1)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.elements[self._open.pop()][0] == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]] = self.texts.get(self._open[-1], "") + data

    def text_of(self, tag: str, **attributes: str) -> str:
        """The text of the one element of this kind."""
        wanted = attributes.items()
        (found,) = [i for i, (name, has) in enumerate(self.elements) if name == tag and wanted <= has.items()]
        return self.texts.get(found, "")


def write_page(folder: Path, count: int = 300) -> str:
    return render(inspect_folder(folder, split="train", choice=RowChoice(count=count)))


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    return write_page(write_small(tmp_path_factory.mktemp("small")))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> str:
    return write_page(write_hostile(tmp_path_factory.mktemp("hostile") / "<img src=x onerror=hacked()>"))


def embedded(page: str) -> list[dict[str, object]]:
    return json.loads(Reader(page).text_of("script", id="data"))


def test_the_page_fetches_nothing_and_is_small(page):
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!#)|@import|url\((?!#)|https?://(?!www\.w3\.org/)""", page)
    assert len(page.encode()) < 5_000_000


def test_only_the_pages_own_script_and_style_may_run(page):
    reader = Reader(page)
    (policy,) = [has["content"] for tag, has in reader.elements if has.get("http-equiv") == "Content-Security-Policy"]
    allowed = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert allowed["default-src"] == "'none'"
    (script,) = [i for i, (tag, has) in enumerate(reader.elements) if tag == "script" and not has]
    (style,) = [i for i, (tag, _) in enumerate(reader.elements) if tag == "style"]
    for key, i in (("script-src", script), ("style-src", style)):
        assert allowed[key] == f"'sha256-{b64encode(sha256(reader.texts[i].encode()).digest()).decode()}'"
    assert not any("style" in has or any(key.startswith("on") for key in has) for _, has in reader.elements)


def test_what_a_corpus_or_a_path_holds_makes_no_element(page, hostile):
    tags = [sorted({tag for tag, _ in Reader(text).elements}) for text in (page, hostile)]
    assert set(tags[1]) <= set(tags[0])
    assert "img" not in tags[1]
    assert hostile.count("<script") == page.count("<script") == 2
    assert "<title>&lt;img src=x onerror=hacked()&gt;: albert-data</title>" in hostile


def test_hostile_text_arrives_whole_as_text(hostile):
    texts = [part for row in embedded(hostile) for segment in row["segments"] for part in segment["parts"]]
    plain = "".join(part for part in texts if isinstance(part, str))
    assert any(text[:9] in plain for text in HOSTILE)


def test_names_in_a_manifest_are_escaped(tmp_path):
    folder = write_small(tmp_path)

    def poison(manifest) -> None:
        manifest["albert_data_version"] = "<script>1</script>"
        manifest["damage"] = {"<script>3</script>": 3}

    edit_manifest(folder, poison)
    assert write_page(folder).count("<script") == 2


@given(st.recursive(st.text(), lambda values: st.lists(values) | st.dictionaries(st.text(), values)))
def test_embedded_json_is_the_same_value_and_cant_end_its_element(value):
    text = escape_json(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029") & set(text)


def test_rows_beyond_the_pages_size_are_left_out_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(embedding, "MAX_BYTES", 6_000)
    page = write_page(write_small(tmp_path))
    rows = embedded(page)
    total = len(open_shards(tmp_path))
    assert 0 < len(rows) < total
    assert f"{total - len(rows)} more would make the page too large" in page


def test_every_chart_has_a_title_words_and_a_table(page):
    reader = Reader(page)
    images = [has for tag, has in reader.elements if tag == "svg"]
    assert [image["aria-labelledby"] for image in images] == [f"{name}-title {name}-desc" for name in CHARTS]
    assert {image["role"] for image in images} == {"img"}
    for name in CHARTS:
        assert reader.text_of("title", id=f"{name}-title")
        assert len(reader.text_of("desc", id=f"{name}-desc")) > 20
        figure = page.split(f'id="chart-{name}"')[1].split("</figure>")[0]
        assert figure.count("<tr>") > 2


def test_ids_are_unique_and_references_lead_somewhere(page):
    ids = [has["id"] for _, has in Reader(page).elements if "id" in has]
    assert len(set(ids)) == len(ids)
    used = set(re.findall(r"""(?:href="#|url\(#)([^")]+)""", page))
    assert used <= set(ids)


def test_the_tables_hold_the_measured_figures(tmp_path):
    page = write_page(write_small(tmp_path))
    assert page == write_page(tmp_path)
    for split in ("train", "validation"):
        measured = measure(open_shards(tmp_path, split))
        for share in (measured.padding_share, measured.unk_share):
            assert f"<td>{format_figure('share', share)}</td>" in page


def audit_of(page: str) -> str:
    return page.split('<section id="audit"')[1].split("</section>")[0]


def test_the_page_has_every_verdict_of_the_audit_and_what_to_do_about_it(tmp_path):
    ids = get_tokenizer().encode(["the river talking quickly people walked"])[0].tolist()
    examples = make_examples([[ids] * 4] * 20, SMALL)
    folder = write_folder(tmp_path, {"train": [examples], "validation": [examples]}, SMALL)
    audit, shown = audit_folder(folder), audit_of(write_page(folder))
    assert audit.count("bad") > 0
    for check in audit.checks:
        assert f"<bdi>{escape(check.rule.title)}</bdi></th><td>{check.verdict}</td>" in shown
        assert f"<td>{escape(check.finding)}</td>" in shown
        is_concern = check.verdict in ("look", "bad")
        assert (f"To do: {escape(check.rule.advice)}." in shown) == is_concern
    assert shown.count('class="verdict bad"') == audit.count("bad")
    assert shown.count('class="verdict look"') == audit.count("look")
    assert "nothing to do" not in shown


def test_a_folder_without_rows_still_makes_a_page(tmp_path):
    page = write_page(write_folder(tmp_path, {}))
    assert "No split has rows." in page
    assert "<p>train has no rows.</p>" in page
    assert embedded(page) == []


def test_the_command_writes_the_page_and_says_so(tmp_path, capsys):
    folder, path = write_small(tmp_path / "shards"), tmp_path / "report.html"
    assert run(["inspect", str(folder), "--html", str(path), "-n", "5"]) == 0
    assert capsys.readouterr().err.startswith(f"{path}: ")
    assert len(embedded(path.read_text(encoding="utf-8"))) == 5
    assert run(["inspect", str(folder), "--html", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["folder"] == str(folder)
    assert sorted(os.listdir(tmp_path)) == ["report.html", "shards"]


# ---- the anatomy of a row ----


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return open_shards(write_small(tmp_path_factory.mktemp("small")))


def spans_of(segments: list[Segment]) -> list[int]:
    return [len(words) for segment in segments for is_masked, words in segment.spans if is_masked]


def kinds_of(segments: list[Segment]) -> Counter[str]:
    spans = (words for segment in segments for _, words in segment.spans)
    return Counter(piece.kind for words in spans for word in words for piece in word)


@given(text_documents().filter(any), configs())
def test_spans_and_kinds_are_those_that_the_statistics_count(tmp_path_factory, documents, config):
    examples = make_examples(documents, config)
    folder = write_folder(tmp_path_factory.mktemp("shards"), {"train": [examples]}, config)
    shards = open_shards(folder)
    measured, lens, kinds = measure(shards), Counter[int](), Counter[str]()
    for row in range(len(shards)):
        segments = read_segments(shards, row)
        lens.update(spans_of(segments))
        kinds += kinds_of(segments)
        pieces = sum(len(word) for segment in segments for _, words in segment.spans for word in words)
        assert pieces == len(shards[row].input_ids) - 1 - len(segments)
    found = {f"spans_of_{n}": lens[n] / max(lens.total(), 1) for n in range(1, config.longest_span + 1)}
    num_masked = max(kinds.total() - kinds[""], 1)
    names = {"shown_as_mask": "masked", "shown_as_random": "random", "shown_as_kept": "kept"}
    found |= {name: kinds[kind] / num_masked for name, kind in names.items()}
    realised = {figure.name: figure.realised or 0.0 for figure in measured.figures}
    assert found == {name: realised[name] for name in found}


def test_the_same_row_is_chosen_each_time_and_it_shows_much(small):
    row = choose_row(small)
    assert row is not None
    assert row == choose_row(open_shards(small.folder))
    assert small[row].sop_label >= 0
    assert {"masked", "random", "kept"} <= set(kinds_of(read_segments(small, row)))
    best = max(max(spans_of(read_segments(small, other)), default=0) for other in range(len(small)))
    assert max(spans_of(read_segments(small, row))) == best


def test_a_row_that_is_asked_for_is_explained(small):
    page = render(inspect_folder(small.folder, split="validation", choice=RowChoice(count=3, numbers=(4, 1))))
    assert "Row 4 of validation: " in page
    assert "It was asked for." in page


@pytest.mark.parametrize("whole_word", [True, False])
def test_each_step_is_explained(tmp_path, whole_word):
    config = replace(SMALL, whole_word=whole_word)
    tokenizer = get_tokenizer()
    ids = tokenizer.encode(["the river talking quickly people walked"])[0].tolist()
    ids += [tokenizer.piece_texts.index("▁")] if whole_word else []
    shards = open_shards(write_folder(tmp_path, {"train": [make_examples([[ids] * 6] * 30, config)]}, config))
    page = render_anatomy(shards, {"train": measure(shards)})
    assert page.count('<li class="card">') == 5
    assert ("Each box is a word." if whole_word else "Each box is a piece") in page
    assert ("▁ is a space that is a piece of its own." in page) == whole_word
    assert "80 % show [MASK], 10 % show a piece drawn at random, and 10 % stay" in page


def test_a_row_without_a_pair_says_so(tmp_path):
    ids = get_tokenizer().encode(["the river"])[0].tolist()
    shards = open_shards(write_folder(tmp_path, {"train": [make_examples([[ids]], SMALL)]}, SMALL))
    assert "This row has no pair: label -1." in render_anatomy(shards, {"train": measure(shards)})
