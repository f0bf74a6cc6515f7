"""Imports run to the top of the table in docs/explanation/architecture.md, and only rooms that train use torch."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import albert_data

PACKAGE = Path(albert_data.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
# What any room may import, and the order among them: modules, and storage/ as a whole.
COMMON = (
    *(
        "version",
        "text.wording",
        "errors",
        "text.languages",
        "examples.pair_tasks",
        "corpus.conditions",
        "sentences.abbreviations",
    ),
    *("config",),
    *("storage", "text.escaping", "text.output", "kernels.cache", "kernels", "kernels.draws", "text.ascii"),
    *("text.utf8", "kernels.fnv", "text.unicode_tables", "text.character_bits", "rules", "data", "text.nfc", "text"),
)
# Of train/, what says what a run is, without torch: runs/ reads it, and the trainer writes its page by runs/.
RUN_FILES = ("train.config", "train.reading", "train.folder")
# Each room, and those to its left that it may import from.
MAY_IMPORT = {
    "corpus": (),
    "clean": ("corpus",),
    "sentences": ("corpus", "clean"),
    "tokenizer": (),
    "examples": ("tokenizer",),
    "shards": ("corpus", "tokenizer", "examples"),
    "jobs": (),
    "survey": ("corpus", "clean", "shards", "jobs"),
    "vocab": ("corpus", "clean", "survey", "sentences", "tokenizer", "shards", "jobs"),
    "pipeline": ("corpus", "clean", "survey", "sentences", "tokenizer", "examples", "shards", "jobs", "vocab"),
    "report": (),
    "inspect": ("corpus", "clean", "survey", "sentences", "tokenizer", "examples", "shards", "jobs", "report"),
    "convert": ("tokenizer", "examples", "shards", "jobs"),
    **{place: ("shards", "jobs", *RUN_FILES[:number]) for number, place in enumerate(RUN_FILES)},
    "runs": (*RUN_FILES, "report"),
    "train": ("tokenizer", "examples", "shards", "jobs", "report", *RUN_FILES, "runs"),
    "interop": ("tokenizer", "examples", "shards", "jobs", *RUN_FILES, "runs", "train"),
}
MAY_IMPORT["library"] = tuple(MAY_IMPORT)
MAY_IMPORT["cli"] = tuple(MAY_IMPORT)
ROOMS = tuple(MAY_IMPORT)


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def room_of(path: Path) -> str:
    """The folder of a module below albert_data/, or its own name if it lies there directly."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def place_of(name: str) -> str:
    """A module's place in the tables above. name: without the package's, as `corpus.tasks`."""
    parts = name.split(".")
    return next((place for n in (2, 1) if (place := ".".join(parts[:n])) in (*COMMON, *ROOMS)), name)


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """All modules that a module imports, wherever in it, and the lines."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            yield node.module or "", node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def ours(path: Path) -> Iterator[tuple[str, int]]:
    """The places that a module imports from."""
    for name, line in imports_of(path):
        package, _, rest = name.partition(".")
        if package == "albert_data" and rest and not rest.startswith("__"):
            yield place_of(rest), line


def test_every_module_is_in_a_room_or_common():
    assert {room_of(path) for path in MODULES} <= {"__init__", "__main__", *COMMON, *ROOMS}


@pytest.mark.parametrize("place", [*COMMON, *ROOMS])
def test_a_place_imports_only_from_places_to_its_left(place):
    """A common module only from those before it, and a room from the common modules and the rooms that it may."""
    allowed = COMMON[: COMMON.index(place)] if place in COMMON else (*COMMON, *MAY_IMPORT[place])
    for path in MODULES:
        if place_of(".".join(path.relative_to(PACKAGE).with_suffix("").parts)) == place:
            assert not [
                f"{path}:{line} imports {found}" for found, line in ours(path) if found not in (place, *allowed)
            ]


def test_the_rooms_that_may_be_imported_lie_to_the_left():
    for room, allowed in MAY_IMPORT.items():
        assert set(allowed) <= set(ROOMS[: ROOMS.index(room)])


def test_torch_is_imported_by_train_and_interop_alone():
    found = {
        room_of(path)
        for path in MODULES
        for name, _ in imports_of(path)
        if name.split(".")[0] in ("torch", "transformers", "tensorflow", "safetensors")
        and path != PACKAGE / "shards" / "reader.py"  # to_torch imports it when it is called
    }
    assert found <= {"train", "interop"}


def test_no_room_imports_a_private_name_of_another():
    for path in MODULES:
        for name, line in imports_of(path):
            if name.startswith("albert_data."):
                assert not re.search(r"\._[^_]", name), f"{path}:{line} imports {name}"


# ---- storage ----

STORED = ("corpus", "jobs", "vocab", "pipeline", "shards", "inspect", "convert")
# What of these modules touches no file by its name. Of every other module named here nothing may be used.
HARMLESS = {
    "os": {
        *("PathLike", "fsdecode", "fspath", "path", "path.abspath", "path.basename", "path.dirname", "path.join"),
        *("path.commonprefix", "path.splitext", "sep"),
        *("_exit", "chdir", "cpu_count", "environ", "environ.get", "environ.setdefault", "getcwd", "getpid"),
        *("getppid", "read", "sched_getaffinity"),
    },
    "io": {"BufferedIOBase", "BufferedReader", "BytesIO", "RawIOBase", "TextIOWrapper"},
    "glob": {"escape", "has_magic"},
    "gzip": {"GzipFile"},
    **{name: set[str]() for name in ("fcntl", "mmap", "shutil", "tempfile")},
}
FILE_CALLS = {"pyarrow.OSFile", "pyarrow.memory_map", "pyarrow.input_stream", "pyarrow.output_stream"}
# Methods of pathlib.Path, except `replace`, which is one of str too.
PATH_METHODS = {
    *("chmod", "exists", "glob", "hardlink_to", "is_dir", "is_file", "is_symlink", "iterdir", "lstat", "mkdir", "open"),
    *("read_bytes", "read_text", "readlink", "rename", "resolve", "rglob", "rmdir", "samefile", "stat", "symlink_to"),
    *("touch", "unlink", "walk", "write_bytes", "write_text"),
}
STORAGE = re.compile(r"(\w+\.)*_?storage|find_storage\(.*\)")
DIRECT = {
    ("corpus/inputs.py", "open"): "a list may be a pipe",
    ("corpus/inputs.py", "os.fstat"): "stdin has no name",
    ("corpus/inputs.py", "os.stat"): "two names of a pipe are recognised by its device and inode",
    ("corpus/inputs.py", "io.FileIO"): "a pipe or a device",
    ("jobs/engine.py", "CPU_QUOTA.read_text"): "/sys",
    ("pipeline/build_folder.py", "path.exists"): "/proc",
    ("pipeline/build_folder.py", "path.read_text"): "/proc",
}


def touching_files(source: str) -> set[str]:
    """What in a module's source touches files in another way than through the storage."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module in HARMLESS:
            found |= {f"{node.module}.{alias.name}" for alias in node.names if alias.name not in HARMLESS[node.module]}
        elif isinstance(node, ast.Attribute):
            module, _, name = ast.unparse(node).partition(".")
            if (module in HARMLESS and name.replace(".", "").isidentifier() and name not in HARMLESS[module]) or (
                f"{module}.{name}" in FILE_CALLS
            ):
                found.add(f"{module}.{name}")
        elif isinstance(node, ast.Call):
            is_method = isinstance(node.func, ast.Attribute) and node.func.attr in PATH_METHODS
            if ast.unparse(node.func) == "open" or (is_method and not STORAGE.fullmatch(ast.unparse(node.func.value))):
                found.add(ast.unparse(node.func))
    return found


def test_inputs_work_folders_and_shards_are_touched_through_the_storage_alone():
    found = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in MODULES
        if room_of(path) in STORED
        for name in touching_files(path.read_text())
    }
    assert found == set(DIRECT)


def test_transformers_loads_in_one_place_and_never_the_code_of_a_folder():
    """One function of the examples may call from_pretrained, or something would ask on stdin."""
    root = PACKAGE.parent
    paths = [*MODULES, *(path for name in ("benchmarks", "docs/examples") for path in (root / name).rglob("*.py"))]
    calls = {
        (path.relative_to(root).as_posix(), ast.unparse(node))
        for path in paths
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("from_pretrained")
    }
    assert {path for path, _ in calls} == {"docs/examples/toy_tasks.py"}
    assert len(calls) == 1
    assert all("local_files_only=True" in call and "trust_remote_code=False" in call for _, call in calls)


@pytest.mark.parametrize(
    "line",
    [
        *("os.replace(a, b)", "os.path.exists(a)", "move = os.rename", "from os import fsync", "open(a)", "a.open()"),
        *("(a / b).unlink()", "glob.glob(a)", "pyarrow.memory_map(a)", "storage_of.open(a)"),
    ],
)
def test_a_line_that_touches_a_file_directly_is_noticed(line):
    assert touching_files(line)


def test_a_line_that_asks_the_storage_is_fine():
    assert not touching_files("find_storage(a).open(a); self._storage.glob(a); storage.resolve(a); a.replace(b, c)")
