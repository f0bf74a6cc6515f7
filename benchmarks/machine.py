"""Describes what a figure was measured with: processor, cores, versions. No names of machines or folders."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import albert_data

PACKAGES = (
    ("sentencepiece", "numpy", "numba", "pyarrow")
    + ("tokenizers", "transformers", "datasets", "torch")
)  # fmt: skip


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def read_cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def describe_machine() -> dict[str, Any]:
    """Return cpu, cores, memory_gb, load (average of the last minute), system, python, versions and date."""
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": read_cpu_model(),
        "cores": count_cores(),
        "memory_gb": round(pages * page_bytes / 1e9),
        "load": round(os.getloadavg()[0], 2),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {"albert-data": albert_data.__version__}
        | {package: found for package in PACKAGES if (found := find_version(package))},
        "date": datetime.now(UTC).date().isoformat(),
    }
