"""The report of a run tells what its two files hold, of a finished run or of a stopped one, all of it escaped."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from albert_data.errors import CheckpointError
from albert_data.train.config import TrainConfig
from albert_data.train.history.figures import join_short_end, read_run
from albert_data.train.history.page import PAGE_FILE, write_run_page
from albert_data.train.run import loop

VOID = {"meta", "br", "link", "img"}


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


class Outline(HTMLParser):
    """Fails on tags that don't nest; gathers tags and the text without styles."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data


def read_page(path: Path | None) -> Outline:
    assert path is not None
    outline = Outline()
    outline.feed(path.read_text("utf-8"))
    assert outline.open == []
    assert "script" not in {tag for tag, _ in outline.tags}
    return outline


def finished(run: Path, **config: object) -> Path:
    known = {"unigram_loss": 6.789, "unigram_entropy": 6.321}
    last, ends = line(300, mfu=0.4321, peak_gb=31.25, epoch=2.5), line(300, "validation", **known)
    return write_run(run, [line(100), line(150, "validation"), line(200), last, ends], **config)


def test_a_finished_run_shows_its_figures_beside_the_baselines(tmp_path):
    page = write_run_page(finished(tmp_path / "run"))
    assert page == tmp_path / "run" / PAGE_FILE
    text = read_page(page).text
    assert "Step 300 of 300." in text
    assert "Training took 10 min 0 s." in text
    assert "Validation at step 300" in text
    # These lines lack the shares of the labels, so they count as equal.
    labels = ("0.693 (frequencies of the labels)", "50.0 % (most frequent label)")
    for figure in ("6.000", "6.789 (frequencies alone)", "51.2 %", *labels, "6.321"):
        assert figure in text
    assert "1,200 tokens a second" in text, "the median of three lines"
    assert "not finished" not in text
    for title in ("MLM loss, nats", "Learning rate", "Tokens a second", "Model FLOPs utilisation", "GPU memory"):
        assert title in text
    for setting in ("hidden_size", "128", "precision", "fp32"):
        assert setting in text


def test_settings_that_are_null_are_left_out(tmp_path):
    text = read_page(write_run_page(finished(tmp_path / "run", dropout=None, remask=False))).text
    assert "remask" in text
    assert "dropout" not in text
    assert "null" not in text


def test_every_plot_is_sound_xml_with_a_text_alternative(tmp_path):
    page = write_run_page(finished(tmp_path / "run"))
    outline = read_page(page)
    plots = [attributes for tag, attributes in outline.tags if tag == "svg"]
    assert len(plots) == 8
    svgs = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page.read_text("utf-8"), re.DOTALL)]
    for attributes, svg in zip(plots, svgs, strict=True):
        assert attributes["role"] == "img"
        title, says = (svg.find(f"{{http://www.w3.org/2000/svg}}{name}") for name in ("title", "desc"))
        assert attributes["aria-labelledby"] == f"{title.get('id')} {says.get('id')}"
        assert title.text.endswith("over the steps")
        assert re.search(r"(train|validation): .* to .*, lowest .*, highest", says.text)
    assert "train: 8.000 to 6.000" in svgs[0][1].text
    assert {tag for tag, _ in outline.tags} >= {"figcaption", "caption", "th"}


def test_the_colours_follow_the_scheme_and_nothing_comes_from_elsewhere(tmp_path):
    html = write_run_page(finished(tmp_path / "run")).read_text("utf-8")
    for name in ("ink", "grid", "first", "second", "third"):
        assert html.count(f"--{name}:") == 2, "a light and a dark one"
        assert f"var(--{name})" in html
        assert f"fill-{name}" in html or f"stroke-{name}" in html
    assert not re.search(r"#[0-9a-f]{3,6}\b", "".join(re.findall(r"<svg.*?</svg>", html))), "colours are classes"
    assert not re.search(r"(src|href)=\"(?!#)|url\((?!#)|@import", html)
    ids = re.findall(r'\bid="([^"]*)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]*)', html)) <= set(ids)


def test_text_of_the_run_can_not_become_markup(tmp_path):
    evil = "<script>alert(1)</script>\"'&"
    run = finished(tmp_path / "run<script>", device=evil, **{evil: [evil]})
    outline = read_page(write_run_page(run))
    assert outline.text.count("<script>alert(1)</script>") == 3


def test_a_stopped_run_has_a_page_without_its_torn_line(tmp_path):
    run = write_run(tmp_path / "run", [line(100), line(100, "validation"), line(200)], torn='{"step": 300, "spl')
    text = read_page(write_run_page(run)).text
    assert "Step 200 of 300: the run is not finished." in text
    assert "Validation at step 100" in text
    assert "measured at the end of a run, and so not known here" in text


def test_a_run_by_the_clock_is_not_called_unfinished(tmp_path):
    run = write_run(tmp_path / "run", [line(100)], minutes=10)
    assert "Step 100 of a run of 10 minutes." in read_page(write_run_page(run)).text


def test_a_run_without_validation_says_so(tmp_path):
    text = read_page(write_run_page(write_run(tmp_path / "run", [line(300)]))).text
    assert "There are no validation figures" in text
    assert "without context" not in text


def test_a_run_stopped_before_its_first_line_has_a_page_too(tmp_path):
    run = write_run(tmp_path / "run", [])
    (run / "metrics.jsonl").unlink()
    text = read_page(write_run_page(run)).text
    assert "No figures yet" in text
    assert "hidden_size" in text


def test_figures_that_were_not_measured_are_left_out(tmp_path):
    lines = [line(step, sop_loss=None, sop_accuracy=None) for step in (100, 200)]
    ends = line(200, "validation", sop_loss=None, sop_accuracy=None)
    outline = read_page(write_run_page(write_run(tmp_path / "run", [*lines, ends])))
    assert "SOP" not in outline.text


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    run = write_run(tmp_path / "run", [line(100)], torn="nonsense\n" + json.dumps(line(200)) + "\n")
    with pytest.raises(CheckpointError, match="line 2 is no line of metrics: 'nonsense'"):
        write_run_page(run)
    assert not (run / PAGE_FILE).exists()


def test_without_a_run_there_is_a_clear_error(tmp_path):
    with pytest.raises(CheckpointError, match=r"there is no run \(run.json is missing\)"):
        write_run_page(tmp_path)
    (tmp_path / "run.json").write_text("[1]")
    with pytest.raises(CheckpointError, match="holds no JSON object"):
        write_run_page(tmp_path)


def test_a_long_run_stays_under_a_megabyte_and_keeps_its_ends(tmp_path):
    lines = [line(step) for step in range(1, 20_001)] + [line(step, "validation") for step in range(20, 20_001, 20)]
    page = write_run_page(write_run(tmp_path / "run", lines, steps=20_000))
    assert page.stat().st_size < 1_000_000
    text = read_page(page).text
    assert "Validation by step, 40 of 1,000" in text
    assert "Step 20,000 of 20,000." in text


@pytest.mark.parametrize(
    ("end", "drawn"),
    [
        (121, "train: 1,000 to 1,095, lowest 1,000, highest 1,095"),  # (20 * 1000 + 1 * 3000) / 21
        (140, "train: 1,000 to 3,000, lowest 1,000, highest 3,000"),
    ],
)
def test_the_speed_of_a_few_steps_at_the_end_is_no_spike(tmp_path, end, drawn):
    lines = [line(step, tokens_per_second=1000.0) for step in range(20, 121, 20)]
    html = write_run_page(write_run(tmp_path / "run", [*lines, line(end, tokens_per_second=3000.0)])).read_text()
    [speed] = re.findall(r'id="chart-tokens_per_second".*?<figcaption>(.*?)</figcaption>', html, re.DOTALL)
    assert speed == drawn


@pytest.mark.parametrize("steps", [[], [5], [5, 6], [5, 5], [6, 5, 4], [0, 0, 0]])
def test_odd_steps_of_speeds_do_not_stop_the_page(steps):
    points = [(float(step), 100.0) for step in steps]
    joined = join_short_end(points)
    assert joined == (points if steps != [5, 6] else [(6.0, 100.0)])


@pytest.mark.parametrize(("epoch", "told"), [(0, "Epoch 0.00."), (0.3712, "Epoch 0.37.")])
def test_the_page_tells_the_epochs_of_old_and_new_runs(tmp_path, epoch, told):
    assert told in read_page(write_run_page(write_run(tmp_path / "run", [line(561, epoch=epoch)]))).text


def test_the_first_and_the_newest_guesses_are_side_by_side(tmp_path):
    texts = {step: f'the ____ sat\tcat\t"<b>{step}</b>" 3.0 %\na ____\tdog\t"fox" 1.0 %' for step in (0, 100, 200)}
    lines = [line(step, "validation", guesses=text) for step, text in texts.items()]
    run = write_run(tmp_path / "run", [*lines, line(300, "validation")])
    text = read_page(write_run_page(run)).text
    assert "validation textrightguessed at step 0guessed at step 200" in text
    assert 'the ____ satcat"<b>0</b>" 3.0 %"<b>200</b>" 3.0 %' in text
    assert 'a ____dog"fox" 1.0 %"fox" 1.0 %' in text
    assert "<b>100" not in text


@pytest.mark.parametrize("guesses", ["", "no tabs", 7, None, "a\tb\tc\td"])
def test_strange_guesses_are_left_out(tmp_path, guesses):
    run = write_run(tmp_path / "run", [line(100, "validation", guesses=guesses)])
    assert "Guesses for masked words" not in read_page(write_run_page(run)).text


def test_what_training_writes_can_be_read(toys, use_shards, tmp_path):
    use_shards(toys.make_shards(20), toys.make_shards(8, seed=1))
    config = TrainConfig(
        preset="tiny", steps=4, batch_tokens=256, remask=False, eval_every=2, save_every=4, log_every=1, device="cpu"
    )
    loop.train(tmp_path, tmp_path / "run", config)
    run = read_run(tmp_path / "run")
    assert run.unigram_loss is not None
    text = read_page(write_run_page(tmp_path / "run")).text
    assert "Step 4 of 4." in text
    assert f"{run.unigram_loss:.3f} (frequencies alone)" in text
    assert "guessed at step 2guessed at step 4" in text
    assert text.count("____") == 5
