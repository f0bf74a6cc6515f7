"""RUN/report.html: what a run did, in one file that opens from disk.

In: RUN/run.json and RUN/metrics.jsonl alone, so a run that was stopped or is still training has its page too. Out: a
page without scripts. `albert_data.report` draws it and escapes all text of the run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from albert_data.report.charts import Plot, Series, make_ticks
from albert_data.report.page import Chart, PageSection, escape, render_charts, render_page, render_table
from albert_data.runs.figures import SPLITS, Curve, Point, RunFigures, name_curves, number, read_run, thin
from albert_data.runs.verdicts import judge_run, tabulate_sources
from albert_data.storage.files import write_bytes
from albert_data.text.wording import format_duration
from albert_data.train.folder import PAGE_FILE
from albert_data.train.reading import FREE_SPACE, explain_writing

MOST_POINTS = 400  # of a curve: more than a screen shows, and few enough for a small page
SERIES = {"train": Series("train", shape="line"), "validation": Series("validation", "second", "dashed")}


def write_run_page(run: Path) -> Path:
    """Write RUN/report.html, of at most 1 MB, and return its path.

    Raises CheckpointError where there is no run, OutputError where the page can't be written.
    """
    page = run / PAGE_FILE
    text = make_run_page(read_run(run))
    with explain_writing(f"{page} can't be written", FREE_SPACE):
        write_bytes(page, text.encode())
    return page


def make_run_page(run: RunFigures) -> str:
    """The page as text."""
    charts = [chart for curve in name_curves(run.task) if (chart := _draw_curve(run, curve))]
    bodies = {
        "Validation": "\n".join(_describe_outcome(run)),
        "Curves": render_charts(charts) if charts else "",
        "Guesses for masked words": _describe_guesses(run),
        "Settings": "\n".join(_list_settings(run)),
    }
    sections = [
        PageSection(name=title.split()[0].lower(), title=title, body=body)
        for title, body in bodies.items()
        if body or title == "Settings"
    ]
    return render_page(sections, kind="ALBERT training run", title=run.name, about=_describe_progress(run))


def _describe_progress(run: RunFigures) -> str:
    """How far the run is, how long it took and how fast it was."""
    if not run.lines:
        return "No figures yet: the run has not written its first line of metrics."
    steps, last_step = number(run.sections.get("config", {}), "steps"), run.last_step
    of = f" of {steps:,.0f}" if steps is not None and last_step <= steps else ""
    parts = [f"Step {last_step:,}{of}."]
    if seconds := run.points("seconds", "train"):
        parts.append(f"Training took {format_duration(seconds[-1][1])}.")
    if speeds := run.points("tokens_per_second", "train"):
        parts.append(f"Median speed: {median(value for _, value in speeds):,.0f} tokens a second.")
    if epochs := run.points("epoch", "train"):
        parts.append(f"Epoch {epochs[-1][1]:,.2f}.")
    return " ".join(parts)


def _describe_outcome(run: RunFigures) -> Iterator[str]:
    """The last validation figures so far, beside those of a model that learnt nothing from context."""
    last = run.last_validation
    if not last:
        yield "<p>There are no validation figures: the shards have no validation rows, or none was read yet.</p>"
        return
    rows = []
    for curve in name_curves(run.task):
        if (value := number(last, curve.key)) is not None:
            error = number(last, "sop_error") if curve.key == "sop_accuracy" else None
            baseline = run.baseline(curve.key)
            shown = curve.form(value) + ("" if error is None else f", standard error {curve.form(error)}")
            beside = "" if baseline is None else f"{curve.form(baseline)} ({curve.baseline_name})"
            rows.append((curve.title, shown, beside))
    heads = ("figure", "model", "without context")
    yield render_table(heads, rows, caption=f"Validation at step {last['step']:,}")
    if run.unigram_loss is None:
        yield "<p>The MLM loss of frequencies alone is measured at the end of a run, and so not known here.</p>"
    if table := tabulate_sources(last, run.task):
        yield render_table(table[0], table[1:], caption="By source, the worst first")
    yield from (f"<p>{escape(text)}</p>" for text in judge_run(run))


def _describe_guesses(run: RunFigures) -> str:
    """The guesses of the first evaluation beside those of the newest; empty if the run has none."""
    found = [line for line in run.lines if isinstance(line.get("guesses"), str)]
    ends = [*found[:1], *found[1:][-1:]]
    answers = []
    for line in ends:
        parts = [text.split("\t") for text in line["guesses"].split("\n")]
        answers.append({(part[0], *part[3:], part[1]): part[2] for part in parts if len(part) in (3, 4)})
    if not answers or not answers[-1]:
        return ""
    rows = [(*question, *(one.get(question, "") for one in answers)) for question in answers[-1]]
    source = ["source"] * (len(max(answers[-1], key=len)) - 2)
    heads = ("validation text", *source, "right", *(f"guessed at step {line['step']:,}" for line in ends))
    return render_table(heads, rows, kind="prose")


def _draw_curve(run: RunFigures, curve: Curve) -> Chart | None:
    """The curve of each split, and the baseline; None where no line has the figure."""
    points = {split: found for split in SPLITS if (found := run.points(curve.key, split))}
    if not points:
        return None
    says = "; ".join(_describe_points(split, found, curve.form) for split, found in points.items())
    thinned = {split: thin(found, MOST_POINTS) for split, found in points.items()}
    baseline = run.baseline(curve.key)
    series = [SERIES[split] for split in points]
    if baseline is not None:
        series.append(Series(f"{curve.baseline_name}: {curve.form(baseline)}", "third", "dotted"))
    values = [value for found in thinned.values() for _, value in found] + ([] if baseline is None else [baseline])
    margin = 0.05 * (max(values) - min(values)) or 0.05 * abs(values[0]) or 1.0
    low, high = min(values) - margin, max(values) + margin
    steps = [step for found in thinned.values() for step, _ in found]
    x = (min(steps), max(steps))
    ticks = make_ticks(*x, "{:,.0f}".format), make_ticks(low, high, curve.form)
    plot = Plot(x, (low, high), *ticks, "step", series)
    if baseline is not None:
        plot.level(series[-1], baseline)
    for split, found in thinned.items():
        plot.line(SERIES[split], found, has_markers=split == "validation")
    title = curve.title
    return Chart(name=curve.key, title=title, says=says, svg=plot.to_svg(curve.key, f"{title} over the steps", says))


def _describe_points(split: str, points: list[Point], form: Callable[[float], str]) -> str:
    """A curve in words."""
    values = [value for _, value in points]
    low, high = form(min(values)), form(max(values))
    return f"{split}: {form(values[0])} to {form(values[-1])}, lowest {low}, highest {high}"


def _list_settings(run: RunFigures) -> Iterator[str]:
    """A table for each object of run.json, without null and the values that an earlier table has."""
    said: dict[str, object] = {}
    for name, section in run.sections.items():
        rows = [
            (key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
            for key, value in section.items()
            if value is not None and said.get(key) != value
        ]
        said |= section
        if rows:
            yield render_table(("name", "value"), rows, caption=name, kind="prose")
