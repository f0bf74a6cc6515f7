"""Records a few steps of a run with PyTorch's profiler, as a trace for ui.perfetto.dev or Chrome."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

from torch.profiler import profile, schedule

from albert_data.files import replace_file
from albert_data.train.reading import explain

WARM_UP, RECORDED = 5, 5  # steps; the first ones compile, allocate memory and fill caches

Item = TypeVar("Item")


def profile_steps(steps: Iterator[Item], path: Path, say: Callable[[str], None]) -> Iterator[Item]:
    """Yield what `steps` yields, and write a trace of the work after the 6th to the 10th item to `path`.

    If the run ends before, the trace has fewer steps or is not written. One that can't be written does not stop it.
    """

    def write(profiler: profile) -> None:
        try:
            with replace_file(path) as file:
                profiler.export_chrome_trace(file.name)
                if not os.stat(file.name).st_size:  # the profiler reports no error
                    raise OSError("the profiler wrote nothing")
        except OSError as error:
            return say(f"{path}: the trace can't be written: {explain(error)}")
        say(f"{path} is written: open it at ui.perfetto.dev or chrome://tracing")

    say(f"profiling   {RECORDED} steps, after {WARM_UP} of warm-up, to {path}")
    cycle = schedule(wait=WARM_UP - 1, warmup=1, active=RECORDED, repeat=1)
    with profile(schedule=cycle, on_trace_ready=write) as profiler:
        for item in islice(steps, WARM_UP + RECORDED):
            yield item
            profiler.step()
    yield from steps
