"""Each document has the language that its line, its input or the settings name."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from corpus_fixtures import small_sizes
from hypothesis import given
from hypothesis import strategies as st

from albert_data.config import TextConfig
from albert_data.corpus.blocks import Origin, read_blocks
from albert_data.corpus.damage import Damage
from albert_data.corpus.documents import batch_documents, clean_documents
from albert_data.corpus.fields import hash_group
from albert_data.corpus.formats import json_lines
from albert_data.errors import ConfigError, InputError
from albert_data.languages import unpack_language

BY_FIELD = TextConfig(language="en", language_field="lang")


def read_languages(
    data: bytes, config: TextConfig, *, format: str = "jsonl", language: str | None = None, strict: bool = False
) -> tuple[list[tuple[bytes, str | None]], dict[str, int]]:
    """The first character of each document and its language."""
    damage, found = Damage(strict=strict), []
    stream = io.BytesIO(data)
    for block in read_blocks(stream, Origin("p", format, language), damage, text=config):
        for lines in batch_documents(clean_documents(block, config, damage)):
            starts = lines.line_offsets[lines.document_offsets[:-1]]
            codes = [None] * len(starts) if lines.source_codes is None else map(unpack_language, lines.source_codes)
            assert lines.source_codes is None or lines.source_codes.dtype == np.uint32
            found += [(bytes(lines.utf8[at : at + 1]), code) for at, code in zip(starts, codes, strict=True)]
    return found, dict(damage.counts)


def record(text: str, **fields: Any) -> bytes:
    return json.dumps({"text": text, **fields}).encode() + b"\n"


def test_a_field_names_the_language_of_a_line_and_the_input_that_of_the_others():
    data = record("a", lang="pt-BR") + record("b", lang="DEU") + record("c") + record("d", lang="English")
    data += record("e", lang=None) + record("f", lang="x" * 65) + record("g", lang=["de"]) + record("", lang="de")
    found, counts = read_languages(data, BY_FIELD)
    others = [(b"d", "und")]  # what is no language is a source without one
    assert found == [(b"a", "pt"), (b"b", "de"), (b"c", "en"), *others, *((letter.encode(), "en") for letter in "efg")]
    assert counts == {"unknown_language": 4, "empty_document": 1}
    assert read_languages(data, BY_FIELD, language="fr")[0][4:] == [(letter.encode(), "fr") for letter in "efg"]


def test_without_a_field_the_input_names_it_and_without_that_nothing_does():
    data = record("a", lang="de") + record("b")
    assert read_languages(data, TextConfig()) == ([(b"a", None), (b"b", None)], {})
    assert read_languages(data, TextConfig(), language="fr") == ([(b"a", "fr"), (b"b", "fr")], {})
    assert read_languages(b"a\n\nb\n", BY_FIELD, format="txt") == ([(b"a", "en"), (b"b", "en")], {})
    assert read_languages(b"a\n\nb\n", BY_FIELD, format="txt", language="fr")[0][1] == (b"b", "fr")


def test_a_large_line_has_its_language_too(monkeypatch: pytest.MonkeyPatch):
    values = ["de-AT", 7, "x" * 64, "x" * 65, " klingon ", "\U0001f600" * 64, "\U0001f600" * 65, "a\n", "\\"]
    values += ["de-" + "x" * 2000, "de" + " " * 2000, " " * 2000 + "de", "é" * 130]
    lines = [record("b"), *(record("a", lang=value) for value in values)]
    expected = read_languages(b"".join(lines), BY_FIELD)
    assert [code for _, code in expected[0]].count("und") == 5
    monkeypatch.setattr(json_lines, "LARGE_LINE", 4)
    assert read_languages(b"".join(lines), BY_FIELD) == expected


@pytest.mark.parametrize(
    ("fields", "problem"),
    [({}, "is missing"), ({"lang": ""}, "holds '', no ISO 639 code or other name"), ({"lang": 3}, "holds 3")],
)
def test_strict_names_the_line(fields: dict[str, Any], problem: str):
    with pytest.raises(InputError, match=f"p, byte 28: unknown language: field 'lang' {problem}"):
        read_languages(record("a", lang="de") + record("b", **fields), BY_FIELD, strict=True)


@given(st.lists(st.tuples(st.sampled_from(["a", "b " * 30, "c\n\n" * 40]), st.sampled_from(["de", "fr"])), max_size=6))
def test_every_part_of_a_cut_document_has_its_language(documents: list[tuple[str, str]]):
    data = b"".join(record(text, lang=language) for text, language in documents)
    languages = {text[0].encode(): {code for other, code in documents if other == text} for text, _ in documents}
    with small_sizes():
        for config in (BY_FIELD, TextConfig(language_field="lang", unwrap=True)):
            found = read_languages(data, config)[0]
            order = [code for letter, code in found]
            assert all(code in languages[letter] for letter, code in found)
            assert [code for at, code in enumerate(order) if at == 0 or order[at - 1] != code] == [
                code for at, (_, code) in enumerate(documents) if at == 0 or documents[at - 1][1] != code
            ]


@given(st.lists(st.tuples(st.sampled_from(["a", "b " * 30, "c\n\n" * 40]), st.sampled_from(["x", "y", 7])), max_size=6))
def test_every_part_of_a_cut_document_has_its_group(documents: list[tuple[str, str | int]]):
    data = b"".join(record(text, book=group) for text, group in documents) + record("d")
    groups = {text[0]: {hash_group(group) for other, group in documents if other == text} for text, _ in documents}
    damage = Damage()
    with small_sizes():
        for config in (TextConfig(group_field="book"), TextConfig(group_field="book", unwrap=True)):
            for block in read_blocks(io.BytesIO(data), Origin("p", "jsonl"), damage, text=config):
                for lines in batch_documents(clean_documents(block, config, damage)):
                    starts = lines.line_offsets[lines.document_offsets[:-1]]
                    for at, key, group in zip(starts, lines.document_keys, lines.groups, strict=True):
                        letter = chr(lines.utf8[at])
                        assert group == key if letter == "d" else group in groups[letter]


@pytest.mark.parametrize("name", ["", "text"])
def test_a_language_field_that_can_be_none_is_refused(name: str):
    with pytest.raises(ConfigError, match="name the field that holds the language"):
        TextConfig(language_field=name)
