"""RUN/report.html: what a run did, in one file that opens from disk. Extra: report (matplotlib).

In: RUN/run.json and RUN/metrics.jsonl alone, so a run that was stopped or goes on still has its page too.
Out: a page without scripts, links or anything from elsewhere, in a light and a dark scheme. All text of the run is
escaped, and the page's own policy forbids whatever might slip through.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path
from statistics import median
from typing import Any

from albert_data.errors import OutputError
from albert_data.escaping import escape_controls
from albert_data.files import write_bytes
from albert_data.train.folder import METRICS_FILE, PAGE_FILE
from albert_data.train.reading import explain
from albert_data.train.runs.figures import CURVES, SPLITS, Curve, RunFigures, number, read_run

MISSING = f"{PAGE_FILE} is not written: it needs matplotlib; install it with: pip install 'albert-data[report]'"
MOST_ROWS = 40
# The objects of run.json by the title of their table; others stand under their own name.
TITLES = {"config": "Settings", "identity": "Model, data and machine", "machine": "Machine"}

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1d2328; --grid: #c9d0d6; --train: #1769aa;
  --validation: #b4410e; --baseline: #5f6b75; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181c; --ink: #e4e8eb; --grid: #434c54; --train: #69b3f0;
  --validation: #ff9a5c; --baseline: #a3b0bb; } }
body { background: var(--paper); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; max-width: 70rem;
  margin: 2rem auto; padding: 0 1rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 1.5rem; }
figure { margin: 0; }
figcaption { color: var(--baseline); font-size: .9rem; }
svg { width: 100%; height: auto; stroke-linejoin: round; }
svg text { font-family: inherit !important; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; }
caption { text-align: left; font-weight: 600; }
th, td { border-bottom: 1px solid var(--grid); padding: .25rem 1rem .25rem 0; text-align: left;
  overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
"""
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}
</main>
</body>
</html>
"""


def say_on_stderr(line: str) -> None:
    print(escape_controls(line), file=sys.stderr)


def write_run_page(run: Path, *, say: Callable[[str], None] = say_on_stderr) -> Path | None:
    """Write RUN/report.html, of at most 1 MB, and return its path.

    Returns None where matplotlib is not installed, and says in one line how to. Raises CheckpointError where there
    is no run, OutputError where the page can't be written.
    """
    try:
        importlib.import_module("matplotlib")
    except ImportError:
        say(MISSING)
        return None
    page = run / PAGE_FILE
    text = render_page(read_run(run))
    try:
        # A folder's name, or a string of run.json, may hold what UTF-8 has no bytes for.
        write_bytes(page, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise OutputError(f"{page}: can't be written: {explain(error)}; free some space, then --resume") from error
    return page


def is_page_current(run: Path) -> bool:
    """Whether the page is there and no older than the figures."""
    page, metrics = run / PAGE_FILE, run / METRICS_FILE
    return page.is_file() and (not metrics.is_file() or metrics.stat().st_mtime_ns <= page.stat().st_mtime_ns)


def render_page(run: RunFigures) -> str:
    """The page as text. Needs matplotlib."""
    parts = [describe_progress(run), *describe_outcome(run), *plot_section(run), *validation_table(run)]
    return PAGE.format(title=escape(f"Training run {run.name}"), style=STYLE, body="\n".join(parts + settings(run)))


def describe_progress(run: RunFigures) -> str:
    """How far the run is, how long it took and how fast it was."""
    if not run.lines:
        return "<p>No figures yet: the run was stopped before its first line of metrics.</p>"
    told = [f"Step {run.last_step:,}{_budget(run.sections.get('config', {}), run.last_step)}."]
    if seconds := run.points("seconds", "train"):
        told.append(f"Training took {_duration(seconds[-1][1])}.")
    if speeds := run.points("tokens_per_second", "train"):
        told.append(f"Median speed: {median(value for _, value in speeds):,.0f} tokens a second.")
    if epochs := run.points("epoch", "train"):
        told.append(f"Epoch {epochs[-1][1]:,.2f}.")
    return f"<p>{' '.join(told)}</p>"


def _budget(config: dict[str, Any], last_step: int) -> str:
    """What the run was given; that it was stopped is known only where that is a number of steps."""
    for name in ("minutes", "epochs"):
        if (given := number(config, name)) is not None:
            return f" of a run of {given:g} {name}"
    steps = number(config, "steps")
    if steps is None or last_step > steps:
        return ""
    return f" of {steps:,.0f}" + (": the run is not finished" if last_step < steps else "")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def describe_outcome(run: RunFigures) -> list[str]:
    """The last validation figures beside those of one who learnt nothing."""
    last = run.final_validation
    if last is None:
        return ["<p>There are no validation figures: the shards have no validation rows, or none was read yet.</p>"]
    rows = [
        (curve.title, curve.form.format(value), _describe_baseline(run, curve))
        for curve in CURVES
        if (value := number(last, curve.key)) is not None
    ]
    notes = []
    if run.unigram_loss is None:
        notes.append("<p>The MLM loss of frequencies alone is measured at the end of a run, and so not known here.</p>")
    if (entropy := number(last, "unigram_entropy")) is not None:
        notes.append(f"<p>Entropy of the validation labels themselves: {entropy:.3f} nats.</p>")
    caption = f"Validation at step {last['step']:,}"
    return [table(caption, ("figure", "model", "without learning from context"), rows), *notes]


def _describe_baseline(run: RunFigures, curve: Curve) -> str:
    value = run.baseline(curve.key)
    return "" if value is None else f"{curve.form.format(value)} ({curve.baseline_name})"


def plot_section(run: RunFigures) -> list[str]:
    """A figure with a caption for each curve that has points."""
    plots = [plot for curve in CURVES if (plot := draw_figure(run, curve))]
    return ['<h2>Curves</h2>\n<div class="plots">', *plots, "</div>"] if plots else []


def draw_figure(run: RunFigures, curve: Curve) -> str:
    from albert_data.train.runs.plots import draw_curve

    points = {split: found for split in SPLITS if (found := run.points(curve.key, split))}
    if not points:
        return ""
    told = "; ".join(describe_points(split, found, curve.form) for split, found in points.items())
    svg = draw_curve(curve, points, run.baseline(curve.key), f"{curve.title} over the steps. {told}")
    return f"<figure><h3>{escape(curve.title)}</h3>\n{svg}\n<figcaption>{escape(told)}</figcaption></figure>"


def describe_points(split: str, points: list[tuple[float, float]], form: str) -> str:
    """A curve in words."""
    values = [value for _, value in points]
    low, high = form.format(min(values)), form.format(max(values))
    return f"{split}: {form.format(values[0])} to {form.format(values[-1])}, lowest {low}, highest {high}"


def validation_table(run: RunFigures) -> list[str]:
    """The validation figures by step, evenly thinned where there are many; the last is always there."""
    lines = [line for line in run.lines if line["split"] == "validation"]
    if len(lines) < 2:
        return []
    every = -(-len(lines) // MOST_ROWS)
    shown = lines[::-1][::every][::-1]
    curves = [curve for curve in CURVES if any(number(line, curve.key) is not None for line in shown)]
    rows = [(f"{line['step']:,}", *(_cell(line, curve) for curve in curves)) for line in shown]
    heads = ("step", *(curve.title for curve in curves))
    return [table("Validation by step" + (f", every {every}th" if every > 1 else ""), heads, rows)]


def _cell(line: dict[str, Any], curve: Curve) -> str:
    value = number(line, curve.key)
    return "" if value is None else curve.form.format(value)


def settings(run: RunFigures) -> list[str]:
    """A table for each object of run.json, without what an earlier one says already."""
    parts, said = ["<h2>Settings</h2>"], dict[str, Any]()
    for name, section in run.sections.items():
        rows = [(key, _plain(value)) for key, value in section.items() if said.get(key, ...) != value]
        said |= section
        if rows:
            parts.append(table(TITLES.get(name, name), ("name", "value"), rows))
    return parts


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def table(caption: str, heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Escapes every cell; the first of a row is its head."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in heads)
    body = "\n".join(_row(list(cells)) for cells in rows)
    return (
        f'<div class="wide"><table><caption>{escape(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _row(cells: list[str]) -> str:
    first, *rest = map(escape, cells)
    return f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in rest) + "</tr>"
