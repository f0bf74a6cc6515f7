"""Input that was meant to be read in another way is noticed by counts, and the option that does so is named."""

from __future__ import annotations

import io
import json
import textwrap
from collections import Counter

import pytest
from corpus_fixtures import any_bytes, block_sizes, read
from hypothesis import given
from hypothesis import strategies as st

from albert_data.config import TextConfig
from albert_data.corpus.blocks import Origin, read_blocks
from albert_data.corpus.damage import Damage
from albert_data.corpus.documents import clean_documents
from albert_data.corpus.fields import Fields
from albert_data.corpus.formats import json_lines
from albert_data.corpus.layout import SHORT_BYTES, advise
from albert_data.errors import InputError
from albert_data.jobs.receipts import from_values, to_values
from albert_data.vocab.learning import check_found

WORDS = "It was the best of times it was the worst of times it was the age of wisdom it was the age of foolishness "


def count(data: bytes, format: str = "txt", block_bytes: int = 4096) -> Damage:
    damage = Damage()
    blocks = read_blocks(io.BytesIO(data), Origin("p", format), damage, block_bytes=lambda at: block_bytes)
    for block in blocks:
        clean_documents(block, TextConfig(), damage)
    return damage


@given(st.one_of(any_bytes, st.integers(0, 99).map(lambda number: b"line\n" * number)), block_sizes)
def test_lines_and_documents_are_counted_as_the_reference_counts_them(data: bytes, block_bytes: int):
    documents = [document.split(b"\n")[:-1] for document in read(data)[0]]
    inner = [line for lines in documents for at, line in enumerate(lines[:-1]) if at < 32 or at % 16 == 0]
    layout = count(data, block_bytes=block_bytes).layout
    assert layout["inner_lines"] == len(inner)
    assert layout["short_documents"] == sum(sum(len(line) + 1 for line in lines) < SHORT_BYTES for lines in documents)


@pytest.mark.parametrize(
    ("line", "is_wrapped"),
    [
        ("x" * 49, False),
        ("x" * 50, True),
        ("x" * 90 + ",", False),
        ("x" * 89 + ",", True),
        *(("x" * 60 + stop, False) for stop in (".", '."', "!", "?", ":", "…", ".”", "。", "！")),
        *(("中" * length, expected) for length, expected in ((24, False), (25, True), (45, True), (46, False))),
        ("й" * 60 + "ё", True),
    ],
)
def test_a_line_looks_wrapped_by_its_width_and_its_end(line: str, is_wrapped: bool):
    layout = count(f"{line}\nlast\n".encode()).layout
    assert (layout["inner_lines"], layout["wrapped_lines"]) == (1, is_wrapped)


def advise_on(text: str, path: str = "a.txt", **settings: object) -> list[str]:
    damage = Damage()
    config = TextConfig(**settings)  # type: ignore[arg-type]
    num_documents = 0
    for block in read_blocks(io.BytesIO(text.encode()), Origin("p", "txt"), damage, text=config):
        num_documents += len(clean_documents(block, config, damage).document_keys)
    return [one.text for one in advise({"documents": num_documents, **damage.layout}, vars(config), [path])]


def test_wrapped_paragraphs_are_noticed_and_both_options_named():
    text = "\n\n".join(textwrap.fill(WORDS * 4, 72) for _ in range(200))
    first, second = advise_on(text)
    assert "100 % of the line ends inside documents look as if" in first
    assert "pass --unwrap" in first
    assert "the 200 documents are under 400 bytes" in second
    assert "pass --documents file" in second
    assert advise_on(text, documents="file") == [first]
    assert advise_on(text, documents="file", unwrap=True) == []
    assert advise_on(text, path="a.jsonl") == [first]


def test_paragraphs_that_are_read_as_documents_are_noticed():
    text = "\n\n".join(["A short paragraph. It has two sentences."] * 300)
    (found,) = advise_on(text)
    assert found.startswith("100 % of the 300 documents are under 400 bytes, too short for pairs of some length")
    assert advise_on(text, documents="file") == []


@pytest.mark.parametrize(
    "text",
    [
        "\n\n".join([f"{WORDS * 5}.\n{WORDS * 9}."] * 300),
        "\n\n".join(["Roses are red,\nViolets are blue,\n" * 20] * 300),
        "\n\n".join([textwrap.fill(WORDS * 4, 72)] * 5),
        "\n".join(
            f"2026-11-{day:02} 10:04:31 worker {day} has read a block of four thousand bytes" for day in range(300)
        ),
        "\n".join(f"[info] worker {task} has read a block of four thousand bytes from disk" for task in range(300)),
    ],
    ids=["paragraphs a line", "verse", "too little to judge by", "log", "log with levels"],
)
def test_sound_text_gets_no_advice(text: str):
    assert advise_on(text) == []


# ---- fields ----


def explain(lines: list[object]) -> str:
    damage = count(b"".join(json.dumps(line).encode() + b"\n" for line in lines), "jsonl")
    with pytest.raises(InputError) as caught:
        check_found([], TextConfig(), damage, 0)
    return str(caught.value)


def test_the_fields_that_were_seen_are_listed_and_the_one_with_text_is_named():
    records: list[object] = [{"id": str(number), "content": "Some text.", "n": 3} for number in range(30)]
    assert explain(records) == (
        'the corpus holds no document (30 missing field); the 30 records have the fields "content" (30), "id" (30), '
        '"n" (30); pass --text-field content'
    )
    assert explain([{"text": ["a"], "it's": "a b"}]).endswith(
        """(1 field not text); the record has the fields "it's" (1), "text" (1); pass --text-field 'it'"'"'s'"""
    )
    assert explain([{"n": 1}]).endswith('the field "n" (1); pass --text-field NAME with the one that holds the text')
    # A version is no text, so the advice is not to make documents of it.
    assert explain([{"version": "1.1", "data": [{"paragraphs": []}]}]).endswith(
        "; none of them holds text; if the list in one does, take its items out of it, as in: jq '.data[]' FILE > "
        "NEW_FILE.json"
    )
    assert explain([]) == "the corpus holds no document; give files with text in them"


def test_names_of_fields_are_harmless_and_bounded():
    message = explain([{"\x1b[2J" + "x" * 99: "text"}, *({f"field {number}": number} for number in range(500))])
    assert "\x1b" not in message
    assert '"\\x1b[2J' in message or "and 92 more" in message
    assert len(message) < 500


def test_a_large_line_shows_its_first_field(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(json_lines, "LARGE_LINE", 4)
    assert '"content" (2)' in explain([{"content": "Some text.", "n": 3}] * 2)


def test_fields_are_added_up_over_tasks_and_receipts():
    first, second = Fields(), Fields()
    first.add({"a": "a text", "\ud800": 1})
    second.add({"a": "more text", "b": 2})
    first.merge(from_values(json.loads(json.dumps(to_values(second))), Fields))
    assert (first.num_records, first.counts, first.text_len["a"]) == (2, Counter({"a": 2, "b": 1, "\\ud800": 1}), 15)
    json.dumps(to_values(first), ensure_ascii=False).encode()
