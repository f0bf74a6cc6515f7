"""What is decided between map and merge, by hashes of rows and counts: the same on every machine and Python.

A build of the table is a decision, or several that meet, over a small corpus. Another hash means that the same command
makes other shards: raise RULES_VERSION with it. No trained tokenizer has a part in it, and the hashes are of rows: the
bytes of files are pyarrow's. Builds of other files and copies, that are killed, or run as on a cluster or in a store,
make the same.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unicodedata import normalize

import build_fixtures as fixtures
import pyarrow
import pyarrow.parquet
import pytest
from corpus_fixtures import small_sizes
from made_models import compile_charsmap, make_model
from memory_store import Died

from albert_data import storage
from albert_data.corpus.mixtures import find_sources
from albert_data.jobs.engine import Engine, MultiprocessEngine
from albert_data.jobs.progress import NullProgress
from albert_data.pipeline.build import build_shards
from albert_data.shards.manifest import Manifest
from albert_data.storage import make_path
from albert_data.tokenizer.model import Tokenizer

GOLDEN = Path(__file__).parent / "golden/decisions.json"

# ---- documents ----

Record = dict[str, Any]
LANGUAGES, BOOKS = ("en", "en", "de", "zh"), (*(f"book {number}" for number in range(11)), None)


def change(records: Sequence[Record], ending: str = "", form: str = "NFC", **fields: str) -> list[Record]:
    return [{**one, "text": normalize(form, one["text"] + ending), **fields} for one in records]


RNG = Random(42)
POOL = [
    {"text": text, "lang": LANGUAGES[number % 4], "book": BOOKS[number * 7 % 12]}
    for number, text in enumerate(fixtures.make_documents(72, seed=41))
]
NEAR = change(POOL[::3], "\nRead by me.", book="book 20")
EMPTY = [{"text": "\x01", "lang": "en", "book": "book 1"}] * 3  # no token, and copies
OTHER = [{"text": text, "book": f"book {len(text) % 5}"} for text in fixtures.make_documents(20, seed=43)]
HALVES = [  # neither they nor what is wholly decomposed is in NFC, so texts are compared
    {**one, "text": normalize("NFD", one["text"][: len(one["text"]) // 2]) + one["text"][len(one["text"]) // 2 :]}
    for one in OTHER[:12]
]
ALL = [
    *(*POOL, *NEAR, *EMPTY),
    *change(POOL[10:20], book="book 30"),
    *change(POOL[4:9], lang="zh"),
    *change(POOL[::5], form="NFD"),
    *change(NEAR[3:8], form="NFD", lang="de"),
    *(*HALVES, *change(OTHER[:12], form="NFD", lang="zh")),
]
HELD = [*POOL[60:], *change(POOL[:9], form="NFD"), *change(POOL[12:18], "\nRead by me."), *EMPTY]
SHORT = [f"{fixtures.make_sentence(RNG)} {fixtures.make_sentence(RNG)}" for _ in range(1500)]
MANY = [
    {"text": text, "book": f"{number // 7}"}
    for number, text in enumerate([*SHORT, *SHORT[:40], *(f"{text} Indeed." for text in SHORT[::40])])
]
TWO_BOOKS = [*change(POOL[:6], book="a"), *change(POOL[6:12], book="b")]
LONG = [{"text": "\n".join(one["text"] for one in POOL[at : at + 12])} for at in (0, 0, 20, 40)]
BENCHMARK = [{"text": " ".join(one["text"].split()[:30])} for one in POOL[40:44]]


# ---- builds ----


class Build(NamedTuple):
    """shows: counts that are not 0, as the decision is taken; sources: of a mixture, with the lines of each table."""

    shows: str
    sources: list[tuple[Sequence[Record], str]]
    settings: dict[str, Any]
    validation: Sequence[Record] = ()
    head: str = ""
    flags: Sequence[str] = ()


def plain(shows: str, records: Sequence[Record] = ALL, held: Any = (), *flags: str, **settings: Any) -> Build:
    settings |= {"validation_fraction": 0.0} if held else {}
    return Build(shows, [(records, "")], settings, held, flags=flags)


def mixed(shows: str, *lines: str, head: str = "", many: Any = (), **settings: Any) -> Build:
    """Sources that overlap, and a benchmark."""
    parts = ([*ALL[:60], *many], ALL[40:], [*HELD, *OTHER])
    return Build(shows, [*zip(parts, lines, strict=True), (BENCHMARK, "weight = 0.0")], settings, head=head)


COPIES, SIMILAR, MOVED = "duplicate_documents uncomposed_documents", "near_duplicate_documents", "moved_documents"
WEIGHTS = "weight = 0.5", "weight = 3", 'weight = 1.3\nsentences = "lines"'
BUDGETS = "tokens = 700", 'tokens = 100000\nlanguage = "de"', "tokens = 900"
GROUPS: dict[str, Any] = {"group_field": "book"}
NO_NEAR: dict[str, Any] = {"drop_near_duplicates": True}
BY_SIZE: dict[str, Any] = {"language_field": "lang", "alpha": 0.3, "max_passes": 2.5}
SHARE: dict[str, Any] = {"validation_fraction": 0.3}
SIZES = "alpha = 0.4\nmax_passes = 3"
BUILDS = {
    "copies": plain(f"{COPIES} {MOVED} no_tokens train_shards"),
    "copies, a share": plain(COPIES, **SHARE, num_shards=5, dupe_factor=2),
    "copies, no validation": plain(COPIES, validation_fraction=0.0, compression="zstd"),
    "copies that are kept": plain(f"{MOVED} uncomposed_documents", keep_duplicates=True, dupe_factor=2),
    "copies in a stream": plain(f"{COPIES} {MOVED}", ALL, (), "stream"),
    "copies in NFC": plain(f"duplicate_documents {MOVED}", unicode="nfc"),
    "copies in languages": plain(f"{COPIES} {MOVED} sources", language_field="lang"),
    "repeated lines": plain(f"{COPIES} {MOVED} removed", drop_repeated_lines=5),
    "long documents": plain("duplicate_documents long_document_cut", LONG, (), "cuts"),
    "near-duplicates": plain(f"{COPIES} {SIMILAR} {MOVED}", **NO_NEAR),
    "near-duplicates, a share": plain(f"{COPIES} {SIMILAR}", **NO_NEAR, **SHARE, similarity=0.6),
    "near-duplicates in languages": plain(f"{COPIES} {SIMILAR} sources", **NO_NEAR, language_field="lang"),
    "near-duplicates in a mixture": mixed(f"{COPIES} {SIMILAR} contaminated_documents", *WEIGHTS, **NO_NEAR),
    "near-duplicates by size": plain(f"{COPIES} {SIMILAR} mixture", **NO_NEAR, **BY_SIZE),
    "near-duplicates in groups": plain(f"{COPIES} {SIMILAR} {MOVED}", **NO_NEAR, **GROUPS),
    "near-duplicates in groups, a share": plain(f"{COPIES} {SIMILAR}", **NO_NEAR, **GROUPS, **SHARE),
    "near-duplicates in groups of a mixture": mixed(f"{COPIES} {SIMILAR} mixture", *WEIGHTS, **NO_NEAR, **GROUPS),
    "near-duplicates of validation": plain(f"{COPIES} {SIMILAR} left_out_documents", held=HELD, **NO_NEAR),
    "near-duplicates were drawn": plain(SIMILAR, NEAR[:1] + POOL[:1] * 4, **NO_NEAR, seed=34),
    "near-duplicates were groups that were drawn": plain(
        SIMILAR, NEAR[:1] + POOL[:1] * 4, **NO_NEAR, **GROUPS, seed=174
    ),
    "groups": plain(f"{COPIES} {MOVED}", **GROUPS, dupe_factor=2),
    "groups, a share": plain(COPIES, **GROUPS, **SHARE, num_shards=3),
    "groups, no validation": plain(COPIES, **GROUPS, validation_fraction=0.0),
    "groups in a mixture": mixed(f"{COPIES} {MOVED} mixture", *WEIGHTS, **GROUPS),
    "groups in a mixture, a share": mixed(f"{COPIES} mixture", *BUDGETS, **GROUPS, **SHARE),
    "groups by size": plain(f"{COPIES} {MOVED} mixture", **GROUPS, **BY_SIZE),
    "groups by size, a share": plain(f"{COPIES} mixture", **GROUPS, **BY_SIZE, **SHARE),
    "languages by size": plain(f"{COPIES} {MOVED} mixture", **BY_SIZE, dupe_factor=2),
    "languages by size, kept": plain(f"{MOVED} mixture", **BY_SIZE, keep_duplicates=True),
    "a mixture by weights": mixed(f"{COPIES} {MOVED} mixture contaminated_documents", *WEIGHTS),
    "a mixture by weights, kept": mixed(f"{MOVED} mixture", *WEIGHTS, keep_duplicates=True),
    "a mixture by budgets": mixed(f"{COPIES} {MOVED} mixture", *BUDGETS, dupe_factor=3, num_shards=4),
    "a mixture by size": mixed(f"{COPIES} {MOVED} mixture", "", "", 'sentences = "lines"', head=SIZES),
    "a mixture by size and near-duplicates": mixed(f"{COPIES} {SIMILAR}", "", "", "", head=SIZES, **NO_NEAR, **GROUPS),
    "a mixture without repeated lines": mixed(f"{COPIES} mixture removed", *WEIGHTS, drop_repeated_lines=5),
    "validation inputs": plain(f"{COPIES} left_out_documents", held=HELD, dupe_factor=2),
    "validation inputs, kept": plain("left_out_documents", held=HELD, keep_duplicates=True),
    "validation inputs in languages": plain(f"{COPIES} left_out_documents", held=HELD, language_field="lang"),
    "validation inputs of a stream": plain(f"{COPIES} left_out_documents", ALL, HELD, "stream"),
    "one document": plain("train_rows", POOL[:1]),
    "one document that was drawn": plain("train_rows", POOL[:1], seed=34),
    "two documents that were drawn": plain("train_rows validation_rows", POOL[:2], seed=50364),
    "twelve documents": plain(MOVED, POOL[:12]),
    "twelve documents of two groups": plain(MOVED, TWO_BOOKS, **GROUPS),
    "two groups that were drawn": plain("train_rows validation_rows", TWO_BOOKS, **GROUPS, seed=59427),
    "one group that was drawn": plain("train_rows", TWO_BOOKS[:6], **GROUPS, seed=59427),
}
for pairs in ("nsp", "order3"):  # whose segments come from rows of one slice, so the estimated sizes decide
    shows = "train_random train_shards"
    BUILDS |= {
        f"{pairs}, sampled sizes": plain(shows, pairs=pairs),
        f"{pairs}, sizes of held rows": plain(shows, keep_duplicates=True, pairs=pairs),
        f"{pairs}, sizes of used documents": mixed(f"{shows} mixture", *WEIGHTS, pairs=pairs),
        f"{pairs}, sizes of documents that stay": plain(f"{shows} {SIMILAR}", **NO_NEAR, pairs=pairs, dupe_factor=2),
        f"{pairs}, sizes of groups": plain(shows, **GROUPS, pairs=pairs),
        f"{pairs}, sizes of training": plain(f"{shows} left_out_documents", held=HELD, pairs=pairs),
    }
for name, settings in {"": {}, " in groups": GROUPS, " near-duplicates": NO_NEAR, ", nsp": {"pairs": "nsp"}}.items():
    BUILDS[f"1,500 documents{name}"] = plain(f"duplicate_documents {MOVED}", MANY, **settings)
BUILDS["1,500 documents in a mixture"] = mixed("mixture", *WEIGHTS, pairs="order3", many=MANY)
BUILDS["1,500 documents beside validation"] = plain("left_out_documents", MANY, held=MANY[::9])

DOZEN = (
    *("near-duplicates", "near-duplicates by size", "near-duplicates of validation", "repeated lines", "copies in NFC"),
    *("near-duplicates in groups of a mixture", "groups", "groups, a share", "groups by size", "copies that are kept"),
    *("a mixture by budgets", "a mixture by size and near-duplicates", "validation inputs"),
    *("nsp, sizes of documents that stay", "order3, sizes of groups"),
)


@cache
def get_tokenizer() -> Tokenizer:
    """Words and letters, each form of an accent by itself; a control character is nothing."""
    letters = sorted({letter for one in ALL for letter in one["text"] if letter.isprintable() and letter != " "})
    pieces = dict.fromkeys(["▁", *letters, *(f"▁{word}" for word in fixtures.WORDS)])
    listed = [(piece, -9.0 + len(piece), 1) for piece in pieces]
    return Tokenizer(make_model(listed, model_type=1, charsmap=compile_charsmap({"\x01": ""})), "the made tokenizer")


def write_inputs(build: Build, folder: Path, *, mixes: bool = False) -> list[str]:
    """Write the sources, half of each compressed. Returns the name of the input, and of that for validation.

    mixes: in another order and format, with more copies where those change nothing.
    """
    tables, validation = [build.head], [(build.validation, "")] if build.validation else []
    for number, (records, lines) in enumerate([*build.sources, *validation]):
        if mixes:
            counts_copies = {"keep_duplicates", "drop_repeated_lines"} & build.settings.keys()
            records = [*records, *([] if counts_copies else records[::2])]
            records = Random(number).sample(records, len(records))
            (folder / f"s{number}").mkdir(parents=True)
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records[::3]), folder / f"s{number}/c.parquet")
            records = [one for at, one in enumerate(records) if at % 3]
        data = [json.dumps(one).encode() + b"\n" for one in records]
        fixtures.plant(folder / f"s{number}/a.jsonl", b"".join(data[::2]))
        fixtures.plant(folder / f"s{number}/b.jsonl.gz", gzip.compress(b"".join(data[1::2])))
        tables.append(f'[[source]]\nname = "source {number}"\npaths = "s{number}"\n{lines}')
    fixtures.plant(folder / "mixture.toml", "\n".join(tables).encode())
    names = ["s0", "s1"] if validation else ["s0"] if len(build.sources) == 1 else ["mixture.toml"]
    return [str(folder / name) for name in names]


class Saying(NullProgress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        if "compiling" not in line:  # of kernels, where that takes long
            self.lines.append(line.partition("; ")[0])


def run(build: Build, names: list[str], out: Any, engine: Engine | None = None) -> tuple[dict[str, Any], list[str]]:
    """Returns what the manifest says, see `describe`, and what was said."""
    config, progress = fixtures.make_config(**build.settings), Saying()
    cutting = small_sizes(max_line=500, max_document=2000, BLOCK_BYTES=1 << 12, GIANT_BYTES=1 << 14, _CHUNK=1 << 10)
    with pytest.MonkeyPatch.context() as patch, cutting if "cuts" in build.flags else nullcontext():
        if "stream" in build.flags:
            fixtures.set_stdin(patch, b"".join(json.dumps(one).encode() + b"\n" for one in build.sources[0][0]))
        inputs = find_sources(["-" if "stream" in build.flags else names[0]], text=config.text, validation=names[1:])
        report = build_shards(inputs, out, get_tokenizer(), config, engine or fixtures.InlineEngine(), progress)
    return describe(report.manifest), progress.lines


def describe(manifest: Manifest) -> dict[str, Any]:
    """What does not depend on where inputs lie, nor on the libraries that wrote the files."""
    values = manifest.to_values()
    names = ["documents_digest", "counts", "damage", "removed", "near_duplicates", "sources", "source_tokens"]
    found = {name: values[name] for name in names if values.get(name)}
    if mixture := values.get("mixture"):
        numbers = ["passes", *(f"num_{name}" for name in ("documents", "tokens", "used_documents", "used_tokens"))]
        found["mixture"] = {one["name"]: [one[key] for key in numbers] for one in mixture}
    totals = [f"num_{name}" for name in ("rows", "tokens", "masked", "unpaired", "random")]
    found["splits"] = {name: {key: one.get(key) for key in totals} for name, one in values["splits"].items()}
    return found


def hash_rows(path: Path) -> str:
    """Of the rows of each record batch."""
    with pyarrow.OSFile(str(path)) as source, pyarrow.ipc.open_file(source) as file:
        batches = [file.get_batch(number).to_pydict() for number in range(file.num_record_batches)]
    return sha256(repr(batches).encode()).hexdigest()[:16]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """Makes a build of the table, once. Returns what `run` does, and hashes of its files.

    Files, lists and shards are small, so that there are several of each.
    """

    @cache
    def make(name: str) -> Any:
        folder = tmp_path_factory.mktemp("made")
        found, lines = run(BUILDS[name], write_inputs(BUILDS[name], folder / "in"), folder / "out")
        files = fixtures.digest_shards(folder / "out")
        hashes = {file.removesuffix(".arrow"): hash_rows(folder / "out" / file) for file in files}
        return {**found, "said": lines, "shards": hashes}, found, files

    with fixtures.small_tasks(1 << 13), pytest.MonkeyPatch.context() as patch:
        patch.setattr("albert_data.pipeline.make_rows.RUN_BYTES", 1 << 14)
        patch.setattr("albert_data.pipeline.shard_plan.SHARD_BYTES", 1 << 14)
        patch.setattr("albert_data.pipeline.shard_plan.SLICE_BYTES", 1 << 12)
        patch.setattr("albert_data.survey.document_lists.RANGE_DOCUMENTS", 50)
        yield make


@pytest.mark.parametrize("name", BUILDS)
def test_a_build_makes_the_rows_and_the_counts_of_the_table(name, make, golden):
    entry, *_ = make(name)
    numbers = {**entry, **entry["counts"], **entry.get("damage", {})}
    for split, totals in entry["splits"].items():
        numbers |= {f"{split}_{key.removeprefix('num_')}": value for key, value in totals.items()}
        numbers[f"{split}_shards"] = sum(file.startswith(split) for file in entry["shards"]) > 1
    assert [shown for shown in BUILDS[name].shows.split() if not numbers.get(shown)] == []
    table = {**dict.fromkeys(BUILDS, {}), **json.loads(GOLDEN.read_text()), name: entry}
    blocks = (
        f"{json.dumps(one)}: {{\n"
        + ",\n".join(f"  {json.dumps(key)}: {json.dumps(table[one][key])}" for key in table[one])
        for one in BUILDS
    )
    golden("decisions.json", "{" + "},\n".join(blocks) + "}}\n")


# ---- the same, killed or elsewhere ----


class DyingDisk(storage.Disk):
    """Notes the kind of each file that is written, moved or removed, and dies where `left` are noted."""

    def __init__(self) -> None:
        self.kinds, self.left = list[str](), 1 << 30

    def _note(self, doing: str, path: Path) -> None:
        if self.left == len(self.kinds):
            raise Died
        name = "" if doing == "remove" else re.sub(".*[0-9][0-9a-f]*", "0", path.name)
        self.kinds.append(f"{doing} {path.parent.name}/{name}")

    @contextmanager
    def create(self, path: Path, *, sync: bool = True) -> Iterator[Any]:
        self._note("write", path)
        with super().create(path, sync=sync) as file:
            yield file

    def place(self, folder: Path, files: Mapping[str, Path]) -> None:
        self._note("place", folder)
        super().place(folder, files)

    def remove(self, path: Path) -> None:
        self._note("remove", path)
        super().remove(path)


def find_moments(kinds: list[str]) -> list[int]:
    """Where the first file of each kind is written, and shards in the middle of the merge."""
    shards = [at for at, kind in enumerate(kinds) if kind == "write train/0.arrow"]
    return sorted({*map(kinds.index, kinds), shards[len(shards) // 2]})


def choose(*quick: str) -> list[Any]:
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in DOZEN]


SEVERAL = "groups, a share", "a mixture by budgets", "near-duplicates by size", "validation inputs"


@pytest.mark.parametrize("name", choose(*SEVERAL, "order3, sizes of groups"))
def test_layout_order_copies_and_workers_change_no_byte(name, make, tmp_path):
    _, wanted, files = make(name)
    names = write_inputs(BUILDS[name], tmp_path / "in", mixes=True)
    found, _ = run(BUILDS[name], names, tmp_path / "out", MultiprocessEngine(2))
    assert fixtures.digest_shards(tmp_path / "out") == files
    for key in ("documents_digest", "mixture", "splits"):
        assert found.get(key) == wanted.get(key)


@pytest.mark.parametrize("name", choose("groups"))
def test_a_build_that_dies_at_any_kind_of_file_resumes_to_the_same(name, make, tmp_path, monkeypatch):
    (_, wanted, files), build, disk = make(name), BUILDS[name], DyingDisk()
    names = write_inputs(build, tmp_path / "in")
    monkeypatch.setattr(storage, "_disk", disk)
    run(build, names, tmp_path / "whole")
    moments = find_moments(disk.kinds)
    assert len(moments) > 12
    for moment in moments:
        out, disk.kinds, disk.left = tmp_path / str(moment), [], moment
        with pytest.raises(Died):
            run(build, names, out)
        disk.left = 1 << 30
        found, _ = run(build, names, out)
        assert (found, fixtures.digest_shards(out)) == (wanted, files)


class Cluster(fixtures.PicklingEngine):
    spans_machines = True


@pytest.mark.parametrize("name", choose("near-duplicates in groups of a mixture"))
@pytest.mark.parametrize("how", ["one stage", "two stages, windows", pytest.param("store", marks=pytest.mark.slow)])
def test_a_build_as_on_a_cluster_or_in_a_store_makes_the_same(name, how, make, tmp_path, monkeypatch, request):
    (_, wanted, files), out = make(name), tmp_path / "out"
    names = write_inputs(BUILDS[name], tmp_path / "in")
    if how == "store":
        from store_fixtures import make_bucket

        bucket = make_bucket(request, "s3")
        found, _ = run(BUILDS[name], names, make_path(f"{bucket.url}/out"), Cluster())
        for file, data in bucket.files("out/").items():
            fixtures.plant(out / file, data)
    else:
        fixtures.shape_shuffle(monkeypatch, how)
        found, _ = run(BUILDS[name], names, out, Cluster())
    assert (found, fixtures.digest_shards(out)) == (wanted, files)
