"""What type checkers and `help` say of the public functions is what the dataclasses of the settings do."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

import albert_data
from albert_data.config import BuildConfig, ExampleConfig, TextConfig, VocabConfig, swap_documents
from albert_data.corpus.mixtures import TEXT_KEYS
from albert_data.errors import ConfigError
from albert_data.interop.sentence_pairs import ScoreConfig
from albert_data.library import settings
from albert_data.library.building import load_arguments
from albert_data.train.config import RECIPES, TrainConfig

# The class of albert_data/library/settings.py that a setting of the dataclass is added to.
CLASSES: dict[type, type] = {
    TextConfig: settings.TextSettings,
    ExampleConfig: settings.ExampleSettings,
    BuildConfig: settings.BuildSettings,
    VocabConfig: settings.VocabSettings,
    ScoreConfig: settings.ScoreSettings,
    TrainConfig: settings.TrainSettings,
}
OTHERS = {"text", "examples", "preset", "without_keys"}  # objects, and arguments of their own
WHERE = "str | collections.abc.Sequence[str] | None"  # several conditions, joined before the dataclass has them


def list_settings(config: type) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(config) if field.name not in OTHERS]


@pytest.mark.parametrize("config", CLASSES, ids=lambda config: config.__name__)
def test_a_setting_of_a_dataclass_is_one_of_the_typed_dict(config):
    typed = get_type_hints(CLASSES[config])
    for field in list_settings(config):
        where = f"{CLASSES[config].__name__} of library/settings.py: {field.name}: {field.type}"
        assert field.name in typed, f"add to {where}"
        kind = typed[field.name]
        if field.name == "where":
            assert inspect.formatannotation(kind) == WHERE
        elif get_origin(kind) is Literal:
            assert field.type == "str"
        else:
            assert inspect.formatannotation(kind) == field.type, f"the type is another one in {where}"


def test_a_typed_dict_has_no_setting_that_no_dataclass_has():
    known = {field.name for config in CLASSES for field in list_settings(config)}
    others = {name for typed in CLASSES.values() for name in get_type_hints(typed)} - known
    assert others <= inspect.signature(load_arguments).parameters.keys()


def list_choices(config: type) -> dict[str, tuple[str, ...]]:
    """The values that a class allows, of the settings that allow some words alone."""
    found = {}
    for field in list_settings(config):
        if field.type in ("str", "str | None"):
            try:
                config(**{field.name: "no-such"})
            except ConfigError as error:
                if match := re.fullmatch(r"\w+ is 'no-such'; allowed are ((?:[\w-]+, )*[\w-]+)", str(error)):
                    found[field.name] = tuple(match[1].split(", "))
    return found


@pytest.mark.parametrize("config", CLASSES, ids=lambda config: config.__name__)
def test_literals_are_the_values_that_are_allowed(config):
    typed = get_type_hints(CLASSES[config])
    names = [field.name for field in list_settings(config)]
    literals = {name: get_args(typed[name]) for name in names if get_origin(typed[name]) is Literal}
    assert literals == list_choices(config)
    assert get_args(settings.Recipe) == tuple(RECIPES)
    assert get_args(settings.Preset) == tuple(RECIPES["quick"])


def test_a_source_takes_the_keys_of_a_mixture_file():
    keys = {*swap_documents(dict.fromkeys(TEXT_KEYS)), "name", "inputs", "documents", "weight", "tokens"}
    assert get_type_hints(albert_data.Source).keys() == keys


@pytest.mark.parametrize("function", [albert_data.build, albert_data.estimate])
def test_help_shows_true_types_and_defaults(function):
    shown = inspect.signature(function).parameters
    for config in (TextConfig, ExampleConfig, BuildConfig):
        for field in list_settings(config):
            assert shown[field.name].default == field.default, field.name
    assert str(shown["pairs"]) == "pairs: Literal['sop', 'nsp', 'order3', 'none'] = 'sop'"
    assert str(shown["documents"]).startswith("documents: collections.abc.Iterable[str |")
    assert shown["validation"].default == ()


def test_every_error_of_the_package_is_exported():
    import albert_data.errors as errors

    found = [name for name, one in vars(errors).items() if inspect.isclass(one) and issubclass(one, Exception)]
    assert set(found) <= set(albert_data.__all__)


PROGRAM = """
import pyarrow
from pathlib import Path
import albert_data
from albert_data import Source
albert_data.build("x", "y", max_seq_length=128)
albert_data.build("x", "y", max_seq_len="128")
albert_data.build("x", "y", pairs="snop")
albert_data.train_vocab("x", "y", vocab_sizes=1)
albert_data.train_model("s", preset="huge")
albert_data.build(sources=[Source(name="a", documents=["x"], wieght=2)], output="y")
albert_data.build(Path("x"), "y", max_seq_len=128, pairs="sop", where=["a == 1"], tokenizer="v", alpha=None)
albert_data.build(documents=pyarrow.table({}), output=Path("y"), document_rule="file", validation_documents=["A."])
albert_data.build(sources=[Source(name="a", documents=[{"text": "A."}]), {"name": "b", "inputs": "x"}], output="y")
tokens: int = albert_data.estimate("x", tokenizer=albert_data.load_tokenizer("v"), max_seq_len=64).tokens
albert_data.train_model("s", preset="tiny", steps=3, lr=1e-3)
error: type[albert_data.AlbertDataError] = albert_data.ShardError
"""


@pytest.mark.slow
def test_mypy_finds_wrong_settings_and_no_others(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM.lstrip())
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--disable-error-code", "import-untyped"]
    package = Path(albert_data.__file__).parent.parent
    environment = {**os.environ, "MYPYPATH": str(package)}
    command.append(str(tmp_path / "program.py"))
    result = subprocess.run(command, capture_output=True, text=True, cwd=package, env=environment)
    lines = [
        int(line.split(":")[1]) for line in result.stdout.splitlines() if "program.py:" in line and "error:" in line
    ]
    assert lines == list(range(5, 11)), result.stdout + result.stderr
    for named in ('"max_seq_length"', '"max_seq_len" to "build"', "'snop'", '"vocab_sizes"', "'huge'", '"wieght"'):
        assert named in result.stdout
