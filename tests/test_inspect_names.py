"""Names of any bytes reach the terminal escaped, and JSON as text."""

from __future__ import annotations

import json
import os
import unicodedata
from pathlib import Path

import pytest
from click.testing import CliRunner
from inspect_fixtures import edit_manifest, write_small

from albert_data.cli.main import cli
from albert_data.config import TextConfig
from albert_data.corpus.inputs import find_inputs
from albert_data.inspect.input_files import read_corpus

ODD = "a\x1b[2J\r\x9b\u202eb"


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build in a folder of such a name, with such values wherever a manifest may hold text."""
    folder = write_small(tmp_path_factory.mktemp("odd") / f"{ODD}\udcff")
    edit_manifest(folder, lambda m: m.update(albert_data_version=ODD, documents_digest=ODD, damage={ODD: 3}))
    return folder


def is_harmful(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character != "\n"


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        *(("inspect", arguments) for arguments in ([], ["-n", "2"], ["--json"], ["--grep", "ve"])),
        *(("audit", arguments) for arguments in ([], ["--json"])),
    ],
)
def test_nothing_that_inspect_or_audit_prints_holds_control_characters(odd: Path, command: str, arguments: list[str]):
    result = CliRunner().invoke(cli, [command, str(odd), *arguments])
    assert result.exit_code == 0
    assert not list(filter(is_harmful, result.stdout))


def test_a_page_of_any_name_is_announced_without_control_characters(odd: Path, tmp_path: Path):
    result = CliRunner().invoke(cli, ["inspect", str(odd), "--html", str(tmp_path / f"{ODD}\udcff.html")])
    assert result.exit_code == 0
    assert r"a\x1b[2J\r\x9b\u202eb\udcff.html: 0." in result.stdout
    assert not list(filter(is_harmful, result.stdout))


def test_a_page_that_goes_to_a_device_is_not_announced(odd: Path):
    """What is printed after it could be in it, as with /dev/stdout."""
    result = CliRunner().invoke(cli, ["inspect", str(odd), "--html", "/dev/null"])
    assert (result.exit_code, result.stdout) == (0, "")


def test_inputs_whose_names_are_not_utf_8_are_named_as_text(tmp_path: Path):
    path = Path(os.fsdecode(bytes(tmp_path) + b"/in\xff.txt"))
    path.write_text("A line.\n")
    corpus = read_corpus(find_inputs([str(path)]), TextConfig())
    assert corpus.names == [rf"{tmp_path}/in\udcff.txt"]
    assert corpus.files.tolist() == [0]
    json.dumps(corpus.names, ensure_ascii=False).encode()
