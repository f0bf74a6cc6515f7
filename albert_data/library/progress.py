"""A progress bar on stderr, or one line per stage if stderr is neither a terminal nor a notebook's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from albert_data.jobs.progress import NullProgress, Progress
from albert_data.text.escaping import escape_controls
from albert_data.text.output import fit, make_harmless, show, tell


class Bar:
    """Shows the stages of a command: share done, MB of text per second, time left."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._text_bytes = 0
        self._counts_text = False

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self, stage: str, total: int | None, unit: str = "bytes") -> None:
        """Begin a stage. total: None if unknown; unit: empty if nothing is counted, and only the time is shown."""
        self.close()
        self._text_bytes, self._counts_text = 0, total is None and unit == "bytes"
        if not (sys.stderr and sys.stderr.isatty()) and "ipykernel" not in sys.modules:
            tell(stage)
            return
        from tqdm import tqdm

        line = None if unit else "{desc} {elapsed}"  # tqdm's own, or only the time if nothing is counted
        if total is not None:
            line = "{desc} {percentage:3.0f} %|{bar}| {elapsed}<{remaining}{postfix}"
        tqdm.monitor_interval = 0  # the monitor is a thread, and forking workers from a process with threads is unsafe
        self._bar = tqdm(
            total=total,
            desc=stage,
            unit="B" if unit == "bytes" else f" {unit}",
            unit_scale=unit == "bytes",
            dynamic_ncols=True,
            bar_format=line,
        )

    def advance(self, done: int, text_bytes: int = 0) -> None:
        """Add to the bar. done: of the total given to `start`; text_bytes: bytes of text processed."""
        self._text_bytes += text_bytes
        if self._bar is not None:
            elapsed = self._bar.format_dict["elapsed"]
            if self._text_bytes and elapsed > 0:
                self._bar.set_postfix_str(f"{self._text_bytes / elapsed / 1e6:.1f} MB/s of text", refresh=False)
            # Without a total, as for a pipe, the bytes read are not counted: the bar shows the bytes of text.
            self._bar.update(text_bytes if self._counts_text else done)

    def say(self, line: str) -> None:
        """Print a line on stderr, above the bar."""
        if self._bar is None:
            tell(line)
        else:
            self._bar.write(fit(escape_controls(line), sys.stderr), file=sys.stderr)

    def print(self, line: str) -> None:
        """Print a line of the command's output on stdout, above the bar."""
        if self._bar is None:
            show(line)
        else:
            self._bar.write(make_harmless([line], sys.stdout.encoding), file=sys.stdout)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


@contextmanager
def show_progress(progress: Progress | bool) -> Iterator[Progress]:
    """What a public function reports to: a bar of its own for True, the log for False."""
    if progress is True:
        with Bar() as bar:
            yield bar
    else:
        yield progress or NullProgress()
