"""Keeps the findings: one folder for each fault, with the smallest input that shows it.

    FOLDER/READER--WHAT--PLACE/  input  case.json  trace.txt

Findings with the same reader, exception and last frame in albert_data are one fault.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reliability.cases import Case, Fault, Outcome, Reader

FINDINGS = Path("reliability-findings")  # the default, in the working directory; git ignores it
INPUT, CASE, TRACE = "input", "case.json", "trace.txt"
Key = tuple[str, str, str]


@dataclass(kw_only=True)
class Findings:
    """The faults that the fuzzer finds. counts: how often each was found."""

    folder: Path
    counts: Counter[Key] = field(default_factory=Counter)
    _sizes: dict[Key, int] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> str | None:
        """Keep a finding. Returns a line about it if the fault is new."""
        case, fault = outcome.case, outcome.fault
        assert fault is not None, "only faults are findings"
        key = (case.reader.name, fault.what, fault.place)
        self.counts[key] += 1
        size = len(data := case.make())
        if size >= self._sizes.get(key, size + 1):
            return None
        is_new = key not in self._sizes
        self._sizes[key] = size
        folder = self._save(key, case, fault, data)
        return f"FINDING {describe(case, fault)}: {folder / INPUT}" if is_new else None

    def _save(self, key: Key, case: Case, fault: Fault, data: bytes) -> Path:
        folder = self.folder / "--".join(re.sub(r"[^\w.]+", "-", part).strip("-")[:60] for part in key)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / INPUT).write_bytes(data)
        known = {"reader": case.reader.name, "seed": case.seed, "number": case.number, "what": fault.what}
        known |= {"place": fault.place, "oddity": case.oddity.name if case.oddity else None}
        (folder / CASE).write_text(json.dumps(known, indent=2) + "\n")
        (folder / TRACE).write_text(fault.trace, errors="backslashreplace")
        return folder


def find_memory() -> str | None:
    """Return a folder for files in memory, if there is one: a case writes dozens of files."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def describe(case: Case, fault: Fault) -> str:
    """Describe a finding in one line."""
    oddity = f", {case.oddity.name}" if case.oddity else ""
    return f"{case.reader.name}: {fault.what} in {fault.place} (case {case.number} of seed {case.seed}{oddity})"


def load_case(path: Path, readers: list[Reader], name: str | None) -> Case:
    """Return the case of a saved input, or of any file for the named reader. Raises ValueError for no reader."""
    data, known = path.read_bytes(), path.with_name(CASE)
    found: dict[str, Any] = (
        json.loads(known.read_text()) if name is None and known.exists() else {"reader": name, "seed": 0}
    )
    for reader in readers:
        if reader.name == found["reader"]:
            number = found.get("number", len(reader.oddities))
            return Case(reader=reader, seed=found["seed"], number=number, given=data)
    known_names = ", ".join(reader.name for reader in readers)
    raise ValueError(f"{path}: no {CASE} beside it names a reader; name one of {known_names} with --reader")
