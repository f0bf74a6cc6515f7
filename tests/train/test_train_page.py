"""A run as a page and as text tells what its two files hold, finished or stopped, all of it escaped."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path

import pytest
from refusals import check_refused, refused

from albert_data.errors import CheckpointError
from albert_data.runs.figures import read_run, thin
from albert_data.runs.page import PAGE_FILE, write_run_page
from albert_data.runs.view import describe_run, run_to_dict


def line(step: int, split: str = "train", **figures: object) -> dict[str, object]:
    train = {"lr": 1e-3 / step, "tokens_per_second": 1000.0 + step, "seconds": step * 2.0} if split == "train" else {}
    losses = {"mlm_loss": 9.0 - step / 100, "mlm_accuracy": step / 1000, "sop_loss": 0.7, "sop_accuracy": 0.5125}
    return {"step": step, "split": split, **losses, **train, **figures}


def write_run(run: Path, lines: list[dict[str, object]], *, torn: str = "", **config: object) -> Path:
    run.mkdir()
    settings = {"preset": "tiny", "steps": 300, **config}
    identity = {"device type": "cpu", "precision": "fp32", "model's hidden_size": 128, "preset": "tiny"}
    (run / "run.json").write_text(json.dumps({"config": settings, "identity": identity}))
    (run / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines) + torn)
    return run


def read_page(path: Path) -> str:
    """The text of a page, with "; " after cells and labels."""
    page = path.read_text("utf-8")
    assert "<script" not in page
    page = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    page = re.sub(r"</(td|th|caption|title|desc|text|figcaption)>", "; ", page)
    return html.unescape(re.sub(r"<[^>]*>", "", page))


def finished(run: Path, **config: object) -> Path:
    """A finished run of 300 steps, with a short interval at its end, and guesses of its first evaluations."""
    known = {"unigram_loss": 6.789, "unigram_entropy": 6.321}
    last, ends = line(300, mfu=0.4321, peak_gb=31.25, epoch=2.5), line(300, "validation", **known)
    guesses = 'the ____ sat\tcat\t"<b>{0}</b>" 3.0 %\na ____\tdog\t"fox" 1.0 %'
    earlier = [line(step, "validation", guesses=guesses.format(step)) for step in (0, 150, 200)]
    return write_run(run, [line(100), *earlier, line(290), last, ends], **config)


def test_the_page_of_a_finished_run(tmp_path, golden):
    page = write_run_page(finished(tmp_path / "run"))
    assert page == tmp_path / "run" / PAGE_FILE
    golden("run_page.txt", "".join(f"{line.strip()}\n" for line in read_page(page).splitlines() if line.strip()))


def test_text_of_the_run_can_not_become_markup(tmp_path):
    evil = "<script>alert(1)</script>\"'&"
    run = finished(tmp_path / "run<script>", device=evil, **{evil: [evil]})
    assert read_page(write_run_page(run)).count("<script>alert(1)</script>") == 3


@pytest.mark.parametrize(
    ("lines", "config", "told", "untold"),
    [
        ([line(100), line(100, "validation"), line(200)], {}, "Step 200 of 300.", ""),
        ([line(100, "validation")], {}, "Validation at step 100 & measured at the end of a run", ""),
        ([line(300)], {}, "There are no validation figures", "without context"),
        ([], {}, "No figures yet & hidden_size", ""),
        ([line(200, split, sop_loss=None, sop_accuracy=None) for split in ("train", "validation")], {}, "MLM", "SOP"),
        ([line(561, epoch=0)], {}, "Epoch 0.00.", ""),
        ([line(561, epoch=0.3712)], {}, "Epoch 0.37.", ""),
        ([line(300)], {"dropout": None, "remask": False}, "remask", "dropout"),
        *(
            ([line(100, "validation", guesses=strange)], {}, "Validation at", "Guesses for masked words")
            for strange in ("", "no tabs", 7, None, "a\tb\tc\td\te")
        ),
    ],
)
def test_the_page_of_a_run_tells_what_there_is(tmp_path, lines, config, told, untold):
    text = read_page(write_run_page(write_run(tmp_path / "run", lines, torn='{"step": 300, "spl', **config)))
    assert all(part in text for part in told.split(" & "))
    assert not untold or untold not in text


def test_what_is_no_run_or_no_line_of_metrics_is_named(tmp_path):
    run = write_run(tmp_path / "run", [line(100)], torn="nonsense\n" + json.dumps(line(200)) + "\n")
    check_refused(lambda: write_run_page(run), CheckpointError, "line 2 is no line of metrics: 'nonsense'")
    assert not (run / PAGE_FILE).exists()
    check_refused(lambda: describe_run(tmp_path), CheckpointError, "there is no run (run.json is missing) & --output")
    (tmp_path / "run.json").write_text("[1]")
    check_refused(lambda: write_run_page(tmp_path), CheckpointError, "holds no JSON object")


def test_a_long_run_stays_under_a_megabyte_and_keeps_its_ends(tmp_path):
    lines = [line(step) for step in range(1, 20_001)] + [line(step, "validation") for step in range(20, 20_001, 20)]
    page = write_run_page(write_run(tmp_path / "run", lines, steps=20_000))
    assert page.stat().st_size < 1_000_000
    text = read_page(page)
    assert "Step 20,000 of 20,000." in text


def test_what_training_writes_can_be_read(finished_run, tmp_path):
    run = read_run(finished_run)
    assert run.unigram_loss is not None
    text = read_page(finished_run / PAGE_FILE)
    assert "Step 4 of 4." in text
    assert f"{run.unigram_loss:.3f} (frequencies alone)" in text
    assert "guessed at step 2; guessed at step 4" in text
    assert text.count("____") == 5


# ---- as text and as JSON ----


@pytest.fixture
def run(finished_run, tmp_path) -> Path:
    """A finished run with made-up figures."""
    copy = Path(shutil.copytree(finished_run, tmp_path / "run"))
    lines = [line(2), line(2, "validation"), line(4), line(4, "validation", unigram_loss=6.789, sop_error=0.0125)]
    lines.insert(0, {"step": 1, "split": "validation", "mlm_loss": "low", "sop_accuracy": "?"})
    (copy / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    return copy


def test_a_run_is_described_with_its_curves(run, monkeypatch, golden):
    monkeypatch.chdir(run.parent)
    text = describe_run(Path("run"))
    golden("run_view.txt", text + "\n")
    assert max(map(len, text.splitlines())) <= 80
    assert [one["step"] for one in run_to_dict(run)["metrics"]] == [1, 2, 2, 4, 4]


def test_figures_that_training_lacks_are_left_out(run):
    (run / "metrics.jsonl").write_text('{"step": 4, "split": "train", "mlm_loss": "low", "tokens_per_second": "?"}\n')
    assert re.search(r"training: MLM loss +- at the last line$", describe_run(run), re.MULTILINE)


@refused(
    ({"config": {"colour": 1}}, CheckpointError, "colour is 1, a setting that this version does not know"),
    ({"config": {"lr": "fast"}}, CheckpointError, "lr is 'fast', of the type str; a number is needed"),
    ({"config": {"steps": 2.5}}, CheckpointError, "steps is 2.5, of the type float; a whole number is needed"),
    ({"config": {"steps": None}}, CheckpointError, "none is given; give exactly one of"),
    ({"config": {"recompute": 1}}, CheckpointError, "recompute is 1, of the type int; True or False is needed"),
    ({"model": {"num_layers": True}}, CheckpointError, "num_layers is True, of the type bool"),
    ({"model": {"num_layers": 0}}, CheckpointError, "num_layers is 0; allowed are 1 to"),
    ({"model": None}, CheckpointError, "model is None; an object is needed"),
)
def test_a_damaged_run_file_is_one_line_that_names_it(run, call, kind, named):
    content = json.loads((run / "run.json").read_text())
    changed = {section: changes and content[section] | changes for section, changes in call.items()}
    (run / "run.json").write_text(json.dumps(content | changed))
    check_refused(lambda: describe_run(run), kind, f"{run / 'run.json'} can't be read ( & {named}")


def test_of_many_lines_a_few_and_the_last_are_shown():
    lines = [{"step": step} for step in range(100)]
    assert [line["step"] for line in thin(lines, 4)] == [24, 49, 74, 99]
    assert thin(lines[:3], 4) == lines[:3]
