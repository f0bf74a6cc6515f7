"""The file of a mixture: what it may hold, which files its sources find, and one clear line for each mistake."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from refusals import check_refused

from albert_data.config import DEFAULT_TEXT, TextConfig
from albert_data.corpus.inputs import Input
from albert_data.corpus.mixtures import find_sources, is_mixture, read_mixture
from albert_data.errors import InputError

TWO = """
[[source]]
name = "books"
paths = ["books/*.txt", "more"]
weight = 2

[[source]]
name = "law"
paths = "@law.list"
language = "pt-BR"
documents = "file"
tokens = 1e6
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose name is a pattern, with files of both sources."""
    folder = tmp_path / "in [1]"
    for name in ("books/a.txt", "books/b.txt", "more/deep/c.jsonl", "law/d.txt", "alone.txt"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"text": "One sentence."}\n' if name.endswith("l") else "One sentence.\n")
    (folder / "law.list").write_text("law/*.txt\n")
    (folder / "mixture.toml").write_text(TWO)
    return folder


def find(folder: Path, text: str | bytes, config: TextConfig = DEFAULT_TEXT) -> list[Input]:
    (folder / "mixture.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return find_sources([str(folder / "mixture.toml")], text=config)


def test_a_source_names_files_beside_the_mixture_wherever_it_is_read_from(folder, monkeypatch):
    found = find_sources([str(folder / "mixture.toml")])
    names = [(item.source.name if item.source else "", os.path.relpath(item.path, folder)) for item in found]
    assert names == [
        ("books", "books/a.txt"),
        ("books", "books/b.txt"),
        ("books", "more/deep/c.jsonl"),
        ("law", "law/d.txt"),
    ]
    monkeypatch.chdir(folder)
    assert [item.path for item in find_sources(["mixture.toml"])] == [name for _, name in names]


def test_a_source_has_the_settings_that_it_names_and_those_of_the_command(folder):
    books, law = read_mixture(str(folder / "mixture.toml"), TextConfig(unwrap=True, language="de"))
    assert (books.weight, books.tokens, law.weight, law.tokens) == (2.0, None, None, 1_000_000)
    assert books.text == TextConfig(unwrap=True, language="de")
    assert law.text == TextConfig(unwrap=True, language="pt", document_rule="file")


def test_only_a_file_is_a_mixture_and_it_must_be_alone(folder):
    (folder / "folder.toml").mkdir()
    assert not is_mixture(str(folder / "folder.toml"))
    assert not is_mixture(str(folder / "missing.toml"))
    with pytest.raises(InputError, match=r"mixture\.toml is a mixture, which must be the only input"):
        find_sources([str(folder / "alone.txt"), str(folder / "mixture.toml")])
    with pytest.raises(InputError, match=r"missing\.toml matches no file"):
        find_sources([str(folder / "missing.toml")])
    with pytest.raises(InputError, match=r"mixture\.toml: a mixture must be the only input, without a language"):
        find_sources([f"{folder / 'mixture.toml'}:de"])


def source(*lines: str) -> str:
    return "\n".join(["[[source]]", 'name = "a"', 'paths = "alone.txt"', *lines])


MISTAKES = {
    "": r"names no source; begin each with a line \[\[source\]\]",
    "source = [1]": r"names no source; begin each with a line \[\[source\]\]",
    "[[sources]]": "'sources' is no known key; did you mean source",
    "[[source]": r"is no TOML: .*line 1.*; see docs/guides/mixtures\.md",
    "a = " + "[" * 2000: "is no TOML",
    "a" + ".a" * 33 + " = 1": r"is no TOML: line 1 has a key of over 32 parts; see docs/guides/mixtures\.md",
    "\n[" + "'.'." * 33 + "a]": "is no TOML: line 2 has a key of over 32 parts",
    '[[source]]\npaths = "alone.txt"': "source 1: name is missing; every source has a name and paths",
    '[[source]]\nname = "a"': "source 'a': paths is missing",
    '[[source]]\nname = 1\npaths = "alone.txt"': "source 1: name is 1, of the type int; a str is needed",
    '[[source]]\nname = "a|b"\npaths = "alone.txt"': r"name is 'a\|b'; use up to 64 letters",
    '[[source]]\nname = "a"\npaths = []': r"source 'a': paths is \[\]; give files, folders",
    '[[source]]\nname = "a"\npaths = [1]': r"paths is \[1\]; give files, folders, globs or lists",
    '[[source]]\nname = "a"\npaths = "nothing/*.txt"': "source 'a': input .*nothing.* matches no file",
    '[[source]]\nname = "a"\npaths = "-"': "source 'a': paths holds -, but a mixture can't read stdin",
    '[[source]]\nname = "a"\npaths = "/dev/null"': "source 'a': /dev/null is a pipe or device; a mixture reads files",
    '[[source]]\nname = "a"\npaths = "az://bucket/x.txt"': "source 'a': .*az://bucket",
    '[[source]]\nname = "a"\npaths = "mixture.toml"': "source 'a': .*a mixture must be the only input",
    '[[source]]\nname = "a"\npaths = "alone.txt:de"': "source 'a': the paths name a language.*write language = \"de\"",
    f"{source()}\n{source()}": "has two sources named 'a'; give each a name of its own",
    f"alpha = 1.5\n{source()}": r"alpha is 1\.5; allowed are 0 to 1",
    f"max_passes = 4\n{source()}": "max_passes limits what alpha gives, and there is no alpha; give both",
    "alpha = 0.3\n" + source("weight = 2"): "source 'a': has a weight or tokens, but alpha gives each source its share",
    source("alpha = 0.3"): "'alpha' is no known key; allowed are name",
    source("where = 'a == 1'"): r"source 'a': input .*alone\.txt has no fields, which --where 'a == 1' needs",
    source("wieght = 2"): "source 'a': 'wieght' is no known key; did you mean weight",
    source("weight = -1"): "source 'a': weight is -1; allowed are 0 to 1000",
    source("weight = nan"): "weight is nan; allowed are 0 to 1000",
    source("weight = '2'"): "weight is '2', of the type str; a number is needed",
    source("tokens = 1.5"): "tokens is 1.5, of the type float; a whole number is needed",
    source("weight = 1", "tokens = 5"): "source 'a': has both a weight and a budget of tokens; leave one out",
    source("language = 'germn'"): "source 'a': language is 'germn', which is no known ISO 639 code",
    source("unwrap = 1"): "unwrap is 1, of the type int; True or False is needed",
    source("encoding = 'utf-99'"): "source 'a': encoding is 'utf-99', which is no encoding",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_each_mistake_is_one_clear_line(text, folder):
    with pytest.raises(InputError, match=MISTAKES[text]) as raised:
        find(folder, text)
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith((str(folder / "mixture.toml"), f"mixture {folder / 'mixture.toml'}"))


def test_points_in_strings_and_comments_are_no_parts_of_keys(folder):
    text = source("# " + "." * 100).replace('"alone.txt"', '["./alone.txt", ' + "'./alone.txt', " * 40 + "]")
    assert len(find(folder, text)) == 1


def test_strings_without_an_end_are_each_read_once(folder):
    """A second reading of the rest from each quote on would take hours."""
    for quotes in ('"\\' * 300_000, "'\"" * 300_000, '\\"' * 300_000):
        check_refused(lambda quotes=quotes: find(folder, "." * 40 + quotes), InputError, "is no TOML")


def test_bytes_that_are_no_utf_8_huge_files_and_a_language_field_are_refused(folder):
    check_refused(lambda: find(folder, b"# \xff"), InputError, "is not UTF-8 (byte 2) & save it as UTF-8")
    check_refused(lambda: find(folder, b"#" * (1 << 20 | 1)), InputError, "over 1 MiB & name folders, globs or lists")
    config = TextConfig(language_field="lang")
    check_refused(lambda: find(folder, TWO, config), InputError, 'leave out --language-field & language = "de"')
