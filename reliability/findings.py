"""Keep what was found: one folder for each fault, with the smallest input that shows it.

    FOLDER/READER--WHAT--PLACE/  input  case.json  trace.txt

Findings are one fault where reader, exception and last frame in albert_data are the same.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reliability.cases import Case, Fault, Outcome, Reader

INPUT, CASE, TRACE = "input", "case.json", "trace.txt"
Key = tuple[str, str, str]


@dataclass(kw_only=True)
class Findings:
    """The faults of a run of the fuzzer. counts: how often each was met."""

    folder: Path
    counts: Counter[Key] = field(default_factory=Counter)
    _sizes: dict[Key, int] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> str | None:
        """Keep a finding. Returns a line about it, if it is a new one."""
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


def describe(case: Case, fault: Fault) -> str:
    """A finding in one line."""
    oddity = f", {case.oddity.name}" if case.oddity else ""
    return f"{case.reader.name}: {fault.what} in {fault.place} (case {case.number} of seed {case.seed}{oddity})"


def load_case(path: Path, readers: list[Reader], name: str | None) -> Case:
    """The case of a saved input, or of any file for the reader of that name. Raises ValueError where none is told."""
    data, known = path.read_bytes(), path.with_name(CASE)
    found: dict[str, Any] = (
        json.loads(known.read_text()) if name is None and known.exists() else {"reader": name, "seed": 0}
    )
    for reader in readers:
        if reader.name == found["reader"]:
            number = found.get("number", len(reader.oddities))
            return Case(reader=reader, seed=found["seed"], number=number, given=data)
    known_names = ", ".join(reader.name for reader in readers)
    raise ValueError(f"{path}: no {CASE} beside it tells a reader; name one of {known_names} with --reader")
