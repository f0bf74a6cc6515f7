"""The script for a GPU runs each phase on a CPU at toy sizes, and names a wrong argument."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "gpu_day.sh"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["bash", SCRIPT, *arguments], env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=280
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mini"], "usage: "),
        (["mini", "OUT", "--corpus", "/missing"], "--corpus needs a path that exists, not '/missing'"),
        (["mini", "OUT", "--fast"], "unknown option --fast; allowed are"),
    ],
)
def test_a_wrong_argument_is_named(tmp_path, arguments, message):
    done = run(*(str(tmp_path) if one == "OUT" else one for one in arguments))
    assert done.returncode == 2
    assert message in done.stdout + done.stderr


@pytest.mark.slow  # it trains twice, and measures for a minute
def test_phases_run_at_toy_sizes_and_leave_their_figures(tmp_path):
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"good": "She has gone.", "bad": "She has went."}\n')
    for phase, files in {
        "base": ("base-quick/report.html", "base-muon/metrics.jsonl", "base-quick-score.json"),
        "windows": ("base-muon-whole/metrics.jsonl",),
        "xxlarge": ("speed.md", "speed.json"),
    }.items():
        done = run(phase, tmp_path / "out", "--tiny", "--pairs", pairs)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{phase} took " in (tmp_path / "out" / f"{phase}.txt").read_text()
        assert all((tmp_path / "out" / name).stat().st_size for name in files)
