"""Print tests/json_keys.txt: the keys of what each command prints with --json. `make docs` writes it; a test compares.

A line is a command, the path of an object and its keys: `build counts: documents, ...`; `[]` stands for each item of a
list. The commands run on a small corpus, so a key that is only there sometimes may be missing here. Needs PyTorch.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from build_fixtures import make_documents
from click.testing import CliRunner

from albert_data.cli.main import cli

# What is shown, and the command that prints it with --json.
_COMMANDS = (
    ("vocab", "vocab in.txt --vocab-size 115 -o vocab"),
    ("build --dry-run", "build in.txt --tokenizer vocab --max-seq-len 32 -o shards --dry-run"),
    ("build", "build in.txt --tokenizer vocab --max-seq-len 32 -o shards"),
    ("inspect", "inspect shards"),
    ("audit", "audit shards --corpus in.txt"),
    ("verify", "verify shards"),
    ("convert", "convert shards --to parquet -o set"),
    ("runs", "runs run"),
    ("score", "score run pairs.jsonl --device cpu"),
)
_TRAIN = "train shards --preset tiny --steps 2 --batch-tokens 256 --device cpu -o run"


def render() -> str:
    """The whole list."""
    found: dict[str, dict[str, None]] = {}  # of each line the keys, each once
    with TemporaryDirectory() as folder, chdir(folder):
        for name, values in run_all():
            for path, keys in list_objects(values):
                found.setdefault(f"{name} {path}".rstrip(), {}).update(dict.fromkeys(keys))
    return "".join(f"{line}: {', '.join(keys)}\n" for line, keys in found.items() if keys)


def run_all() -> Iterator[tuple[str, Any]]:
    """What each command prints, in the working folder. Raises ValueError if that is no JSON, or a command fails."""
    Path("in.txt").write_text("\n\n".join(make_documents(60, seed=6)))
    Path("pairs.jsonl").write_text('{"good": "a b c", "bad": "c b a", "group": "order"}\n')
    for name, command in _COMMANDS:
        if name == "runs":
            call(_TRAIN)
        yield name, json.loads(call(f"{command} --json"))


def call(command: str) -> str:
    """What a command prints on stdout."""
    result = CliRunner().invoke(cli, shlex.split(command))
    if result.exit_code:
        raise ValueError(f"{command} ended with {result.exit_code}: {result.stderr}")
    return result.stdout


def list_objects(values: Any, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """The path and the keys of each object.

    >>> list(list_objects({"a": 1, "b": {"c": [{"d": 2}]}}))
    [('', ['a', 'b']), ('b', ['c']), ('b.c[]', ['d'])]
    """
    if isinstance(values, list):
        for item in values:
            yield from list_objects(item, f"{path}[]")
    elif isinstance(values, dict):
        yield path, list(values)
        for key, value in values.items():
            yield from list_objects(value, f"{path}.{key}" if path else key)


if __name__ == "__main__":
    print(render(), end="")
