"""Writes the results of the training benchmark as a page of tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.report import NONE, table
from benchmarks.results import Part, Results
from benchmarks.training_rows import OURS, PACKED, WHOLE, Ceiling, Speed, Training, format_teraflops

# The aims, by model and length (None: any length): the share of the machine's ceiling, and the ratio to a rival.
CEILING_AIMS = {("base", 512): 0.6, ("xxlarge", 512): 0.75}
RATIO_AIMS = {("tiny", None): 1.3, ("mini", None): 1.3, ("base", None): 2.0}
MAX_CURVE_ROWS = 15

INTRO = """# Training speed

Made by `python -m benchmarks train`: see the end. All contenders make whole updates (forward, backward, clipping,
AdamW) of the same model on the same rows and take turns; the figures are medians of the turns. Ids are random, rows
are 94 to 100 % full, and 15 % of the tokens are masked. *transformers* is `AlbertForPreTraining` with SDPA. *fused
gelu* is the same with PyTorch's own kernel for tanh-gelu (`gelu_pytorch_tanh`): no released ALBERT has this setting,
but without a compiler it is the fairer rival. *packed* rows have no padding, as in training on a GPU. 16-bit formats
are those of autocast. *albert-data train* is a whole update of the preset's recipe on rows of SHARDS, with reading
and packing. The first line of a model is what `albert-data train` does on this machine; *ours to it* is its speed
divided by that of the line. Tokens do not include padding. TFLOP/s count our model's executed layers (the formula is
in docs/explanation/architecture.md), for all contenders, even if they compute more; they include padding, 3 %. *MFU*
is their share of the GPU's published peak, *of ceiling* their share of the fastest product of two large matrices that
was measured on the same machine in the same format.
"""

YOURSELF = """
## Measure it yourself

    pip install -e '.[bench]'
    python -m benchmarks train SHARDS -o training-speed.md

Without SHARDS everything except the parts `update` and `run` is measured. On a CPU the models are presets tiny and
mini, on a GPU those of the paper. The figures are written (.json beside the page) as they come. If the time of a
command is limited, measure one part at a time into the same page:

    python -m benchmarks train --only ceiling,speed-128 -o training-speed.md
    python -m benchmarks train --only speed-512 --models base,large -o training-speed.md
    python -m benchmarks train --only speed-512 --models xlarge,xxlarge -o training-speed.md
    python -m benchmarks train SHARDS --only run --preset base --minutes 9 -o training-speed.md
"""


def write_report(results: Results, page: Path) -> None:
    """Write the page: a section for each machine that was measured."""
    machines = dict.fromkeys(row.where for part in results.parts.values() for row in part.rows)
    sections = [INTRO, *(text for where in machines for text in describe_results(results, where)), YOURSELF]
    page.write_text("\n".join(text.strip("\n") + "\n" for text in sections), encoding="utf-8")


def describe_results(results: Results, where: str) -> Iterator[str]:
    parts = [part for part in results.parts.values() if part.rows and part.rows[0].where == where]
    rows = [row for part in parts for row in part.rows]
    ceilings = [row for row in rows if isinstance(row, Ceiling)]
    speeds = [row for row in rows if isinstance(row, Speed)]
    yield f"## {where}"
    loads: dict[str, list[str]] = {}
    for part in parts:
        loads.setdefault(describe_part(part), []).append(str(part.machine["load"]))
    for text, found in loads.items():
        yield text.format(loads=", ".join(found))
    yield from (describe_ceiling(row) for row in ceilings)
    if speeds:
        yield "\n".join(speed_table(speeds, ceilings))
    for row in rows:
        if isinstance(row, Training):
            yield from describe_run(row)


def describe_part(part: Part) -> str:
    machine = part.machine
    versions = ", ".join(f"{name} {machine['versions'].get(name, 'none')}" for name in ("torch", "transformers"))
    return (
        f"{machine['date']}, {machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, Python "
        f"{machine['python']}, {versions}. Load average when each part "
        f"began: {{loads}}.\n\n    {part.command}"
    )


def describe_ceiling(row: Ceiling) -> str:
    share = f", {row.flops_per_second / row.peak_flops:.0%} of the published peak" if row.peak_flops else ""
    return f"{row}{share}."


def speed_table(rows: list[Speed], ceilings: list[Ceiling]) -> list[str]:
    """Show ours and its rivals together. A ratio is our speed divided by the rival's."""
    heads = "model | rows x length | contender | format | tokens/s | ours to it | TFLOP/s | MFU | of ceiling | aim"
    heads += " | first update, s | compiled while timing | peak, GB"
    return table(heads, (speed_row(row, rows, ceilings) for row in rows))


def speed_row(row: Speed, rows: list[Speed], ceilings: list[Ceiling]) -> list[str]:
    way = f"{row.precision}, compiled" if row.is_compiled else row.precision
    fixed = [row.model, f"{row.num_rows} x {row.row_len}", row.contender, way]
    if row.tokens_per_second is None or row.flops_per_second is None:
        return [*fixed, row.missing, *[NONE] * 8]
    ratio, peak = ratio_to(row, rows), next((one.peak_flops for one in ceilings), None)
    ceiling = max((one.flops_per_second for one in ceilings if one.precision == row.precision), default=None)
    return [
        *fixed,
        f"{row.tokens_per_second:,.0f}",
        f"{ratio:.2f}x" if ratio else NONE,
        format_teraflops(row.flops_per_second),
        f"{row.flops_per_second / peak:.0%}" if peak else NONE,
        f"{row.flops_per_second / ceiling:.0%}" if ceiling else NONE,
        aim_of(row),
        f"{row.first_seconds:.1f}",
        str(row.num_graphs) if row.is_compiled else NONE,
        f"{row.peak_bytes / 1e9:.1f}" if row.peak_bytes else NONE,
    ]


def ratio_to(row: Speed, rows: list[Speed]) -> float | None:
    """Return the tokens a second of the first row of the same model and length divided by those of this one."""
    same = (row.model, row.row_len, row.num_rows)
    first = next(one for one in rows if (one.model, one.row_len, one.num_rows) == same)
    if first is row or not first.tokens_per_second or not row.tokens_per_second:
        return None
    return first.tokens_per_second / row.tokens_per_second


def aim_of(row: Speed) -> str:
    if row.contender in (OURS, PACKED, WHOLE):
        share = CEILING_AIMS.get((row.model, row.row_len))
        return f"{share:.0%} of ceiling" if share else NONE
    ratio = RATIO_AIMS.get((row.model, None))
    return f"{ratio}x" if ratio else NONE


def describe_run(row: Training) -> Iterator[str]:
    """Yield the result of the training run and its validation figures over time."""
    speed = f", {row.tokens_per_second:,.0f} tokens/s" if row.tokens_per_second else ""
    share = f", MFU {row.mfu:.0%}" if row.mfu else ""
    unigram = f" Frequencies alone give an MLM loss of {row.unigram_loss:.3f}." if row.unigram_loss else ""
    yield (
        f"`albert-data train --preset {row.preset} --minutes {row.minutes:g}`, {row.precision}: {row.last_step:,} "
        f"steps in {row.wall_seconds / 60:.1f} minutes from start to end{speed}{share}.{unigram}"
    )
    every = -(-len(row.curve) // MAX_CURVE_ROWS) or 1
    shown = row.curve[::-1][::every][::-1]  # counted from the end, so that the last line is shown
    keys = ("mlm_loss", "mlm_accuracy", "sop_loss", "sop_accuracy")
    lines = ((f"{line['step']:,}", *(format_figure(line, key) for key in keys)) for line in shown)
    yield "\n".join(table("step | MLM loss | MLM accuracy | SOP loss | SOP accuracy", lines))


def format_figure(line: dict[str, float | None], key: str) -> str:
    value = line.get(key)
    if value is None:
        return NONE
    return f"{value:.1%}" if key.endswith("accuracy") else f"{value:.3f}"
