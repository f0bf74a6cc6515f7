"""The tutorial is run as it stands, with fewer steps of training."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from test_docs import ROOT, blocks, run_command, run_python

pytest.importorskip("transformers", reason="the huggingface extra is not installed")

PAGE = ROOT / "docs" / "tutorial" / "one-evening.md"


def run_line(line: str, folder: Path) -> str:
    """Run a line of a shell in a folder. Returns what a program other than albert-data prints."""
    if line.startswith("albert-data "):
        run_command(line.replace("--steps 300", "--steps 4"), folder)
        return ""
    line = line.replace("--save", "--steps 4 --save").replace("python ", f"{sys.executable} ", 1)
    return subprocess.run(line, shell=True, cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.mark.slow
def test_the_commands_of_the_tutorial_lead_from_messy_files_to_a_classifier(tmp_path: Path, capsys):
    for name in ("sample_corpus", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (messy,) = blocks("python", PAGE)
    run_python(messy, tmp_path)
    for name, language in ("pairs.jsonl", "json"), ("remarks.txt", "text"):
        (content,) = blocks(language, PAGE)
        (tmp_path / name).write_text(content, encoding="utf-8")
    shown = [run_line(line, tmp_path) for block in blocks("sh", PAGE) for line in block.splitlines()]
    assert [line.split("\t")[1] for line in shown[-1].splitlines()] == content.splitlines()

    said, page = capsys.readouterr(), PAGE.read_text(encoding="utf-8")
    quoted = [
        line[4:] for line in page.splitlines() if line.startswith(("    warning ", "    removed ", "    dropped "))
    ]
    assert len(quoted) == 5
    assert not [line for line in quoted if line not in said.out + said.err]
    assert (tmp_path / "report.html").is_file()
