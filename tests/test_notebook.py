"""docs/notebooks/first-model.ipynb: committed without outputs, uses what exists, and runs from top to bottom."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import albert_data
from albert_data.cli.main import cli

ROOT = Path(__file__).parent.parent
PATH = ROOT / "docs" / "notebooks" / "first-model.ipynb"
# In place of the cell of settings: a run of seconds.
TINY = """
TEXT, OUT, SENTENCE = "", "first", "The water [MASK] down."
VOCAB_SIZE, ROW_LEN, PASSES, VALIDATION, PRESET, LENGTH = 2000, 64, 1, 0.1, "tiny", {"steps": 3}
"""


def read_notebook() -> dict[str, Any]:
    return json.loads(PATH.read_text(encoding="utf-8"))


def list_sources(kind: str) -> list[str]:
    return ["".join(cell["source"]) for cell in read_notebook()["cells"] if cell["cell_type"] == kind]


def list_tags(cell: dict[str, Any]) -> list[str]:
    return cell["metadata"].get("tags", [])


def test_the_notebook_is_short_and_committed_without_outputs():
    notebook = read_notebook()
    cells = notebook["cells"]
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in cells}) == len(cells) <= 25
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert not [cell["id"] for cell in code if cell["outputs"] or cell["execution_count"] is not None]
    assert [list_tags(cell) for cell in code[:2]] == [["parameters"], ["install"]]
    assert max(len("".join(cell["source"]).splitlines()) for cell in code) < 12


def test_the_notebook_names_no_folder_of_a_machine():
    assert not re.findall(r"(?<![\w.])/\w+/|[A-Z]:\\", PATH.read_text(encoding="utf-8"))


def test_the_settings_of_the_notebook_are_those_that_its_test_makes_small():
    named = [
        {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
        for code in (list_sources("code")[0], TINY)
    ]
    assert named[0] == named[1]


def test_the_calls_and_commands_of_the_notebook_exist_with_their_arguments():
    code = "\n".join(list_sources("code"))
    commands = re.findall(r"^!(albert-data .*)$", code, re.MULTILINE)
    for words in map(shlex.split, commands):
        command = cli.get_command(None, words[1])
        command.make_context(words[1], words[2:]).close()
    tree = ast.parse(re.sub(r"^[!%].*$", "", code, flags=re.MULTILINE))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [node for node in calls if ast.unparse(node.func).startswith("albert_data.")]
    for node in named:
        function = getattr(albert_data, node.func.attr)
        inspect.signature(function).bind(*node.args, **{one.arg: one.value for one in node.keywords if one.arg})
    assert (len(commands), len(named)) == (1, 6)
    for name in re.findall(r"docs/[\w/-]+\.md", "".join(list_sources("markdown"))):
        assert (ROOT / name).is_file(), name


@pytest.mark.slow
def test_the_notebook_leads_from_text_to_guesses(tmp_path, monkeypatch):
    """With tiny sizes, in a kernel of this interpreter, and without its cell that installs."""
    pytest.importorskip("transformers", reason="the huggingface extra is not installed")
    nbclient = pytest.importorskip("nbclient", reason="the notebook extra is not installed")
    nbformat = pytest.importorskip("nbformat", reason="the notebook extra is not installed")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    notebook = nbformat.read(PATH, as_version=4)
    nbformat.validate(notebook)
    settings = next(cell for cell in notebook.cells if "parameters" in list_tags(cell))
    settings.source = TINY
    notebook.cells = [cell for cell in notebook.cells if "install" not in list_tags(cell)]
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    shown = {cell.id: str(cell.get("outputs", "")) for cell in notebook.cells}
    assert not albert_data.verify_shards(tmp_path / "first" / "shards").faults
    assert (tmp_path / "first" / "model" / "model.safetensors").is_file()
    assert (tmp_path / "first-model.zip").is_file()
    assert shown["inspection"].count("[MASK:") > 2
    assert "text/html" in shown["audit"]
    assert "text/html" in shown["curves"]
    assert "guessed: " in shown["training"]
    assert "without context" in shown["losses"]
    assert shown["guesses"].count("%  The water") == 5
