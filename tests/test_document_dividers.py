"""Dividers end documents of .txt files: a separator anywhere in a line, or each line end. However files are cut
and read, the documents are those between the dividers, and no other text is lost."""

from __future__ import annotations

import dataclasses
import gzip
import random
import re

import pytest
import references
from build_fixtures import digest_shards, make_documents, make_tasks_small, run_build, small_tasks
from corpus_fixtures import PIECES, any_bytes, as_jsonl, block_sizes, cut_all, read, read_inputs, small_sizes
from hypothesis import example, given
from hypothesis import strategies as st

from albert_data.cli.main import run
from albert_data.config import TextConfig
from albert_data.corpus import layout, tasks
from albert_data.corpus.damage import Damage
from albert_data.corpus.inputs import find_inputs, open_input
from albert_data.corpus.layout import advise_on_beginnings
from albert_data.errors import ConfigError
from albert_data.inspect.audit.row_texts import find_separator
from albert_data.jobs.engine import MultiprocessEngine

SEPARATORS = ["<|endoftext|>", "</s>", "--", "aba", "|", "a b", "é中", "*"]


def split(data: bytes, config: TextConfig) -> list[bytes]:
    """The specification: lines, then what lies between the marks."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    lines = references.split_lines(data)
    separator = (config.document_separator or "").encode()
    parts = lines if config.document_rule == "line" else b"\n".join(lines).split(separator)
    return [one for part in parts if (one := references.canonical(part.decode(errors="replace")))]


@st.composite
def marked_text(draw: st.DrawFn) -> tuple[bytes, TextConfig]:
    """Odd bytes with whole separators, and parts of them, between."""
    separator = draw(st.sampled_from(SEPARATORS)).encode()
    parts = [*PIECES, *[separator] * 12, separator[:1], separator[1:], separator * 3, b"\n%b\r\n" % separator]
    data = draw(st.lists(st.sampled_from(parts), max_size=50).map(b"".join))
    option = {"document_rule": "line"} if draw(st.booleans()) else {"document_separator": separator.decode()}
    config = TextConfig(**option)
    return data, config


@given(marked_text(), block_sizes)
@example((b"-" * 100, TextConfig(document_separator="--")), 10)
def test_documents_are_what_lies_between_marks_however_text_is_cut_into_blocks(text, block_bytes):
    data, config = text
    whole, counts = read(data, config=config)
    assert whole == split(data, config)
    with small_sizes():
        found, of_blocks = read(data, block_bytes=block_bytes, config=config)
    assert found == cut_all(whole)
    assert of_blocks["invalid_utf8"] == counts["invalid_utf8"]


@given(marked_text(), st.integers(2, 20))
def test_files_are_cut_into_tasks_between_documents_alone(tmp_path_factory, text, task_bytes):
    data, config = text
    path = tmp_path_factory.mktemp("cut") / "a.txt"
    path.write_bytes(data)
    inputs = find_inputs([str(path)]) if data else []
    with small_tasks(task_bytes):
        found = [one for one, _ in read_inputs(inputs, config, Damage())]
        parts = [part for task in tasks.plan_tasks(inputs, config) for part in task.ranges]
    assert found == split(data, config)
    assert [0, *(part.end for part in parts)] == [*(part.start for part in parts), len(data)]


@given(
    st.lists(st.tuples(st.sampled_from(SEPARATORS), any_bytes), max_size=6), st.booleans(), st.sampled_from(SEPARATORS)
)
def test_small_files_that_are_read_together_give_their_own_documents(tmp_path_factory, texts, is_by_line, separator):
    folder = tmp_path_factory.mktemp("small")
    files = [before.encode() + data + before.encode() for before, data in texts]
    for number, data in enumerate(files):
        (folder / f"{number}.txt").write_bytes(data)
    config = TextConfig(document_rule="line") if is_by_line else TextConfig(document_separator=separator)
    config, damage = dataclasses.replace(config, encoding="utf-8"), Damage()  # any bytes may look like UTF-16
    found = [one for one, _ in read_inputs(find_inputs([str(folder)]) if files else [], config, damage)]
    assert found == [one for data in files for one in split(data, config)]
    if not is_by_line:
        has_mark = any(separator.encode() in b"\n".join(references.split_lines(data)) for data in files)
        assert (separator in damage.matched) == has_mark


@given(st.lists(st.text("ab \n-<", max_size=30), min_size=1, max_size=8), st.booleans())
def test_documents_with_separators_are_those_of_json_lines_also_unwrapped(texts, unwrap):
    config = TextConfig(document_separator="<eos>", unwrap=unwrap)
    texts = [text.strip() for text in texts]
    from_txt = read("<eos>".join(texts).encode(), config=config)[0]
    assert from_txt == read(as_jsonl([text + " " * 4 for text in texts]), "jsonl", config=config)[0]


def test_blank_lines_end_no_document_if_a_separator_does_and_a_separator_may_stand_anywhere():
    data = b"<eos>\r\n<eos>One.\r\n\r\nStill one.\r\n<eos>\r\n<eos>Two.<eos>Three <eo s>.\n<eos>"
    found = read(data, config=TextConfig(document_separator="<eos>"))[0]
    assert found == [b"One.\nStill one.\n", b"Two.\n", b"Three <eo s>.\n"]


def test_lines_over_a_mebibyte_and_documents_over_four_are_cut_as_in_json_lines():
    rng = random.Random(1)
    line = " ".join("".join(rng.choices("abcdefg", k=6)) for _ in range(160_000))
    texts = [line, "\n".join(["", *(line[at : at + 90_000] for at in range(0, len(line), 90_000))] * 16), "Short."]
    wanted = read(as_jsonl(texts), "jsonl")[0]
    config = TextConfig(document_separator="<|end|>")
    assert len(wanted) > 6
    assert read("<|end|>".join(texts).encode(), config=config)[0] == wanted
    by_line = "\n".join([texts[0], "Short.", texts[0]]).encode()
    wanted = read(as_jsonl([texts[0], "Short.", texts[0]]), "jsonl")[0]
    assert read(by_line, config=TextConfig(document_rule="line"))[0] == wanted


@pytest.mark.parametrize("option", [{"document_separator": "<|endoftext|>"}, {"document_rule": "line"}])
def test_a_build_has_the_bytes_of_one_from_json_lines(option, tmp_path, tokenizer, monkeypatch):
    texts = [" ".join(document.split()) for document in make_documents(300, 3)]
    mark = "\n" if "document_rule" in option else "<|endoftext|>"
    (tmp_path / "a.jsonl").write_bytes(as_jsonl(texts))
    (tmp_path / "a.txt").write_text(mark + mark.join(texts) + "\r\n" + mark)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(mark.join(texts).encode()))
    wanted = run_build(tmp_path / "a.jsonl", tmp_path / "jsonl", tokenizer)
    make_tasks_small(monkeypatch, 1 << 12)
    one = run_build(tmp_path / "a.txt", tmp_path / "one", tokenizer, **option)
    run_build(tmp_path / "a.txt", tmp_path / "two", tokenizer, MultiprocessEngine(2), **option)
    run_build(tmp_path / "b.txt.gz", tmp_path / "gz", tokenizer, **option)
    assert one.manifest.counts.text_bytes == wanted.manifest.counts.text_bytes
    digests = [digest_shards(tmp_path / name) for name in ("jsonl", "one", "two", "gz")]
    assert digests == digests[:1] * 4


REFUSED = ["", " ", "\n", "a\nb", " a", "a\t", "a\u2028", "\x85", "x" * 257]


@pytest.mark.parametrize("separator", REFUSED)
def test_what_can_be_no_separator_is_refused(separator):
    with pytest.raises(ConfigError, match="document_separator is .*; allowed are 1 to 256 characters"):
        TextConfig(document_separator=separator)


def test_one_rule_ends_documents():
    for documents in ("line", "file"):
        with pytest.raises(ConfigError, match=f"documents={documents}; give one of them"):
            TextConfig(document_rule=documents, document_separator="x")


# ---- what is said of files without marks, before and after the work ----

PROSE = "The mill wheel turned all day, and in the evening the lamps of the valley were lit by the boys, one by one. "
BLANK, LINES, BY_SEPARATOR = (
    "no blank line in the first MiB",
    "--documents line if each",
    "-separator TEXT with",
)


@pytest.mark.parametrize(
    ("data", "settings", "said"),
    {
        "a document a line": (f"{PROSE}\n" * 20, {}, [BLANK, LINES, "--documents file"]),
        "short lines": ("word word\n" * 20, {}, [BLANK, BY_SEPARATOR, "--documents file"]),
        "lines of CR": (f"{PROSE}\r" * 20, {}, [BLANK, LINES]),
        "a marker": (
            "One.\n\nTwo.\n<|endoftext|>\nThree." * 9,
            {},
            ["--document-separator '<|endoftext|>' if it ends"],
        ),
        "another marker": ("One.</s>Two.</s>", {"document_separator": "<eos>"}, ["--document-separator '</s>' if"]),
        "another separator": (f"{PROSE}\n\n" * 9, {"document_separator": "---"}, ["no '---' in the first", LINES]),
        "blank lines": ("One.\n\nTwo.\n", {}, None),
        "only blank at the ends": ("\n\nOne.\nTwo.\n\n", {}, [BLANK]),
        "the separator": ("One. --- Two.", {"document_separator": "---"}, None),
        "lines that are documents": ("One.\nTwo.", {"document_rule": "line"}, None),
        "a file that is a document": ("One.</s>Two.", {"document_rule": "file"}, None),
        "nothing": ("", {}, None),
    }.values(),
)
@pytest.mark.parametrize("has_others", [False, True])
def test_a_corpus_that_is_one_document_is_said_before_the_work(data, settings, said, has_others, tmp_path):
    (tmp_path / "a.txt").write_text(data, newline="")
    (tmp_path / "b.jsonl").write_text('{"text": "One."}\n' * has_others)
    text = TextConfig(**settings)
    found = advise_on_beginnings(
        find_inputs([str(tmp_path / name) for name in ("a.txt", *["b.jsonl"] * has_others)]), text
    )
    if said is None or (has_others and "first" in said[0]):
        assert found == []
    else:
        assert found[0].startswith(f"{tmp_path}/a.txt: ")
        assert all(part in found[0] for part in said)


def test_a_large_document_is_said_with_others_like_it_in_one_line_and_few_files_are_read(tmp_path, monkeypatch):
    for number in range(30):
        (tmp_path / f"{number:02d}.txt").write_text(PROSE * (1 if number < 25 else 12_000))
    (tmp_path / "z.txt.gz").write_bytes(gzip.compress(f"{PROSE}\n\n".encode() * 12_000))
    read: list[str] = []
    monkeypatch.setattr(layout, "open_input", lambda item: read.append(item.path) or open_input(item))
    (line,) = layout.advise_on_beginnings(find_inputs([str(tmp_path)]), TextConfig())
    assert re.match(rf"{tmp_path}/25.txt, {tmp_path}/26.txt, {tmp_path}/27.txt and 2 more: {BLANK}", line)
    assert len(read) == 20


def test_commands_say_it_once_and_a_separator_that_no_text_has_at_the_end(tmp_path, capfd):
    (tmp_path / "a.txt").write_text("".join(f"{PROSE} {number}\n" for number in range(60)))
    (tmp_path / "b.txt").write_text("One.\n\nTwo.\n")
    names = ["a.txt", "--document-separator", "<eos>", "--vocab-size", "110", "-o", "vocab"]
    names[::6] = [str(tmp_path / name) for name in ("a.txt", "vocab")]
    assert run(["vocab", *names]) == 0
    found = capfd.readouterr()
    assert found.err.count("no '<eos>' in the first MiB") == 1
    assert found.out.count("warning    no .txt input holds '<eos>'") == 1
    out, config = str(tmp_path / "out"), ["--tokenizer", str(tmp_path / "vocab")]
    table = '[[source]]\nname = "{0}"\npaths = "{0}.txt"\ndocument_separator = "{1}"\n'
    (tmp_path / "mix.toml").write_text(table.format("a", "valley") + table.format("b", "<eos>"))
    assert run(["build", str(tmp_path / "mix.toml"), *config, "-o", out]) == 0
    found = capfd.readouterr()
    assert found.out.count("warning    no .txt input holds '<eos>'") == 1
    assert "'valley'" not in found.out


def test_separators_in_rows_are_found_however_a_tokenizer_writes_them():
    assert find_separator("he went. < | EndOfText | > One day") == "<|EndOfText|>"
    assert find_separator("he went.</s> One day") == "</s>"
    assert find_separator("a < b and c > d, the eos of <b>it</b>") is None
