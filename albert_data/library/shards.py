"""What is done with a finished shard folder: `inspect_shards`, `audit_shards`, `verify_shards`, `convert_shards`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from albert_data.config import take_value
from albert_data.convert.conversion import Conversion, convert_folder
from albert_data.corpus.mixtures import Names, find_sources
from albert_data.errors import ArgumentError
from albert_data.inspect.audit.audit import Audit, audit_folder
from albert_data.inspect.audit.rules import NAMES
from albert_data.inspect.choice import RowChoice
from albert_data.inspect.report import ShardReport, inspect_folder
from albert_data.inspect.verify import Fault, count_contents, describe_sound, verify
from albert_data.jobs.engine import Engine, MultiprocessEngine, count_cores
from albert_data.jobs.progress import Progress
from albert_data.library.arguments import NUM_IN_HTML, NUM_SHOWN, PathName, disk_path, public
from albert_data.library.progress import show_progress
from albert_data.report.page import embed_page
from albert_data.shards.manifest_file import read_manifest
from albert_data.shards.paths import list_files
from albert_data.storage import FILE, find_kind, make_path
from albert_data.storage.files import check_output, write_output
from albert_data.storage.hub import use_commits
from albert_data.text.escaping import name_as_text, quote
from albert_data.text.wording import count_of
from albert_data.train.folder import RUN_FILE

# What an argument does, and the arguments that would have no effect with it.
_CONFLICTS = {
    "row": ("already says which rows", ("grep", "num_examples", "seed", "source")),
    "grep": ("shows the first rows that contain the text", ("seed",)),
}


@dataclass(frozen=True, kw_only=True)
class Inspection(ShardReport):
    """What `inspect_shards` measured: `to_text()`, `to_dict()`, `page`.

    saved: where the page was written; None if nowhere, or to no regular file.
    """

    saved: Path | None = None

    @cached_property
    def page(self) -> str:
        """The report as an HTML page. It audits the shards too, which reads all rows once more."""
        from albert_data.inspect.html.page import render

        return render(self)

    def __repr__(self) -> str:
        rows = ", ".join(f"{count_of(split.num_rows, 'row')} of {name}" for name, split in self.manifest.splits.items())
        return f"Inspection({str(self.shards.folder)!r}, {rows}; to_text() and to_dict() have the figures)"

    def _repr_html_(self) -> str:
        return embed_page(self.page)


@public()
def inspect_shards(
    shards: PathName,
    *,
    num_examples: int | None = None,
    split: str = "train",
    seed: int | None = None,
    row: int | Sequence[int] = (),
    grep: str | None = None,
    source: str | None = None,
    html: PathName | None = None,
) -> Inspection:
    """Measure shards against the figures of the paper, and choose some rows, as `albert-data inspect` does.

    num_examples: rows to choose; None for 3, or 300 with `html`. seed: they are drawn with it; None for 0.
    row: the numbers of rows instead; the page explains the first. grep: the first rows that contain this text.
    source: only rows of this language or source of a mixture; None draws alike from all.
    html: where the report is written as a page. Raises ShardError, ConfigError and OutputError.
    """
    rows = tuple(take_value("row", one, "int") for one in (row if isinstance(row, Iterable) else [row]))
    given = {
        "row": rows,
        "grep": grep,
        "source": source,
        "num_examples": num_examples is not None,
        "seed": seed is not None,
    }
    for name, (what, ignored) in _CONFLICTS.items():
        if given[name] and (named := [f"--{other.replace('_', '-')}" for other in ignored if given[other]]):
            raise ArgumentError(f"--{name} {what}; leave out {' and '.join(named)}")
    folder, page = make_path(shards), None if html is None else disk_path(html, "html")
    if find_kind(folder / RUN_FILE) == FILE:
        raise ArgumentError(f"{folder} is a training run; `albert-data runs {quote(folder)}` shows it")
    if page is not None:  # before the work: it must not replace a shard
        check_output(page, list_files(folder))
    choice = RowChoice(
        count=num_examples if num_examples is not None else NUM_SHOWN if page is None else NUM_IN_HTML,
        seed=seed or 0,
        numbers=rows,
        text=grep,
        source=source,
    )
    found = Inspection(**vars(inspect_folder(folder, split=split, choice=choice)))
    is_saved = page is not None and write_output(page, found.page.encode())
    return replace(found, saved=page) if is_saved else found


@public()
def audit_shards(
    shards: PathName, *, corpus: Names = (), ignore: Sequence[str] = (), progress: Progress | bool = False
) -> Audit:
    """Look for what makes shards bad for pretraining, as `albert-data audit` does.

    corpus: what they were built from; adds checks of lost characters and similar documents.
    ignore: checks that `list_failed` leaves out, by the names in JSON. Raises ShardError, InputError and ArgumentError.
    """
    for name in ignore:
        if name not in NAMES:
            similar = " or ".join(get_close_matches(name, NAMES)) or ", ".join(NAMES)
            raise ArgumentError(f"--ignore {name}: the audit has no such check; is it one of: {similar}?")
    folder, inputs = make_path(shards), None
    if corpus:
        manifest = read_manifest(folder)
        with show_progress(progress) as shown, use_commits(manifest.plan.hub):
            inputs = find_sources(corpus, shown.say, manifest.config.text)
    return replace(audit_folder(folder, inputs), ignored=frozenset(ignore))


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What `verify_shards` found.

    counts, contents: shards, rows and tokens of a folder without faults, and the same in one line; None with faults
    """

    folder: Path
    faults: list[Fault]
    counts: Mapping[str, int] | None
    contents: str | None

    def __repr__(self) -> str:
        found = self.contents or count_of(len(self.faults), "fault")
        return "\n".join([f"Verification({str(self.folder)!r}: {found})", *map(str, self.faults)])

    def to_dict(self) -> dict[str, Any]:
        """The figures for JSON, by stable names."""
        faults = [fault.to_dict() for fault in self.faults]
        return {"folder": name_as_text(self.folder), "faults": faults, "counts": self.counts}


@public()
def verify_shards(
    shards: PathName,
    *,
    quick: bool = False,
    workers: int | None = None,
    engine: Engine | None = None,
    progress: Progress | bool = False,
    tell: Callable[[Fault], object] = lambda fault: None,
) -> Verification:
    """Check shards against their manifest, and every row against the format, as `albert-data verify` does.

    quick: only sizes and hashes. workers: threads; None for one a core. engine: in their place, as a RayEngine.
    tell: called with each fault when it is found. Raises ShardError if the folder is no finished build.
    """
    folder, faults = make_path(shards), list[Fault]()
    with show_progress(progress) as shown:
        for fault in verify(folder, quick=quick, workers=workers or count_cores(), engine=engine, progress=shown):
            faults.append(fault)
            tell(fault)
    counts = None if faults else count_contents(folder)
    contents = None if counts is None else describe_sound(counts, quick=quick)
    return Verification(folder=folder, faults=faults, counts=counts, contents=contents)


@public()
def convert_shards(
    shards: PathName,
    output: PathName,
    to: str,
    *,
    split: str | None = None,
    unmasked: bool = False,
    pack: int | None = None,
    workers: int | None = None,
    engine: Engine | None = None,
    progress: Progress | bool = False,
) -> Conversion:
    """Write the rows of shards in the format of another trainer, as `albert-data convert` does.

    to: "parquet" or "mds". split: only this one. unmasked: write the original tokens, without masks.
    pack: write packs of up to so many tokens. workers, engine, progress: see `build`.
    Raises ConfigError, ShardError, OutputError and WorkerError.
    """
    settings: dict[str, Any] = {"split": split, "unmasked": unmasked, "pack": pack}
    with show_progress(progress) as shown:
        place = engine or MultiprocessEngine(workers)
        return convert_folder(make_path(shards), make_path(output), to, place, **settings, progress=shown)
